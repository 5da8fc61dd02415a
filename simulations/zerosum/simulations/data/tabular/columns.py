"""A file as named columns, each of one type: numbers, truths, dates or texts."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from zerosum.client.files.operating_system import readable
from zerosum.client.spec import DataSpec
from zerosum.simulations.data.data_files import DataError, read_npz, reading
from zerosum.simulations.data.tabular.comparisons import label_of
from zerosum.simulations.data.tabular.delimited import read_delimited
from zerosum.simulations.data.tabular.numerals import (
    Convention,
    PlainNumbers,
    convention_of,
    is_code,
    is_number,
    is_whole,
    number,
    plain_numbers,
)

Columns = dict[str, np.ndarray]

KIND = "a .csv, .parquet or .npz file"

MOST_STRANGERS = 5
"""Different words in a column of numbers that may stand for what is missing; more are texts."""

_PANDAS_INDEX = "Unnamed: "
"""Name that pandas gives a column without one, and writes on the next saving."""


@dataclass(frozen=True)
class Table:
    """The columns of a file.

    Parameters
    ----------
    columns : dict of str to numpy.ndarray
        Numbers (int64 or float64, NaN where one is missing), truths, dates, or texts (objects, ""
        where one is missing), shape (n,); arrays of an NPZ as they are stored.
    said : tuple of str
        How the file was read, where that is not the usual way.
    left_out : dict of str to str
        Columns that are not among them, with the reason.
    strangers : dict of str to str
        Columns of numbers and a few words, which may stand for what is missing: which words.
    compared : dict of str to numpy.ndarray
        Columns that are none any more because the label is a comparison of them.
    """

    columns: Columns
    said: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    strangers: Mapping[str, str] = field(default_factory=dict)
    compared: Mapping[str, np.ndarray] = field(default_factory=dict)


def read_table(path: Path, spec: DataSpec, ending: str | None = None) -> Table:
    """Read a CSV, Parquet or NPZ file.

    Parameters
    ----------
    path : Path
        The file; its ending says which kind it is.
    spec : DataSpec
        The keys that say how it is read. Words in ``missing`` stand for nothing in the label and
        the client column: there they are names like others.
    ending : str, optional
        The kind of file, where its name does not say it.

    Returns
    -------
    Table
        The columns, and those left out with the reason.

    Raises
    ------
    DataError
        If the file cannot be read, two columns are of one name, one has none, or it is open what
        a number means.
    """
    kind = ending or path.suffix.lower()
    if kind not in (".csv", ".parquet", ".pq", ".npz"):
        raise DataError(f'data.path = "{path}": unknown kind "{path.suffix}"; give {KIND}')
    how = spec.model_copy(
        update={
            **{name: getattr(DataSpec(), name) for name in _IRRELEVANT},
            "path": readable(str(path)),
        }
    )
    try:
        return _read(path, kind, path.stat().st_mtime_ns, how.model_dump_json())
    except ImportError as error:
        raise DataError(f'data.path = "{path}": Parquet needs pyarrow: install it') from error


_RELEVANT = frozenset(
    {"label", "client_column", "missing", "separator", "decimal", "thousands", "encoding", "header"}
)
_IRRELEVANT = frozenset(DataSpec.model_fields) - _RELEVANT - {"path"}


@lru_cache(maxsize=8)
def _read(path: Path, kind: str, modified: int, how: str) -> Table:
    """Read a file as the keys in ``how`` say, unless it was read so and has not changed."""
    spec, key = DataSpec.model_validate_json(how), f'data.path = "{path}"'
    notes: tuple[str, ...] = ()
    separator = ""
    if kind == ".npz":
        given: list[tuple[str, Any]] = list(read_npz(path, KIND).items())
    elif kind == ".csv":
        split = read_delimited(path, spec)
        notes, separator = split.said, split.separator
        given = [(name, split.frame[place]) for place, name in enumerate(split.names)]
    else:
        given = _parquet(path)
    if not given:
        raise DataError(f"{key} has no records; give {KIND}")
    named, left_out = _named(given, key)
    texts = {name: _Texts.of(values) for name, values in named.items() if _holds_texts(values)}
    convention = _convention(texts, spec, separator, key)
    columns: Columns = {}
    strangers: dict[str, str] = {}
    reserved = {*_label_columns(spec.label, named), spec.client_column}
    for name, values in named.items():
        if name not in texts:
            columns[name] = _plain(values)
            continue
        missing = () if name in reserved else spec.missing or ()
        columns[name], odd = texts[name].typed(convention, missing)
        strangers |= {name: odd} if odd else {}
    return Table(columns, (*notes, *convention.said), left_out, strangers)


def _label_columns(label: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the columns that a label is read from; none where it names none, said later."""
    with contextlib.suppress(DataError):
        return label_of(label, names).columns
    return ()


def _convention(
    texts: "Mapping[str, _Texts]", spec: DataSpec, separator: str, key: str
) -> Convention:
    """Return how the file writes numbers; names of clients do not count."""
    numbers = [each for name, each in texts.items() if name != spec.client_column]
    return convention_of(
        [each.words for each in numbers if each.plain is None],
        [each.words for each in numbers if each.plain is not None],
        decimal=spec.decimal,
        thousands=spec.thousands,
        separator=separator,
        key=key,
    )


def _parquet(path: Path) -> list[tuple[str, Any]]:
    """Return the columns of a Parquet file, those that pandas keeps as a named index among them."""
    with reading(path, KIND):
        frame = pd.read_parquet(path)
    named = [name for name in frame.index.names if name is not None]
    if named:
        frame = frame.reset_index(level=named)
    return [(str(name), frame.iloc[:, place]) for place, name in enumerate(frame.columns)]


def _named(given: Sequence[tuple[str, Any]], key: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return columns by name, and those without a name that say nothing, with the reason.

    Raises
    ------
    DataError
        If two columns have one name: one might be the label once more. If a column without a name
        holds anything but the numbers of records: nobody could ask for it.
    """
    places: dict[str, list[int]] = {}
    for place, (name, _) in enumerate(given, start=1):
        places.setdefault(name, []).append(place)
    columns, left_out = {}, {}
    for place, (name, values) in enumerate(given, start=1):
        if name and not name.startswith(_PANDAS_INDEX):
            if len(places[name]) > 1:
                which = " and ".join(map(str, places[name]))
                raise DataError(f'{key}: "{name}" is the name of columns {which}; rename one')
            columns[name] = values
            continue
        title, reason = name or f"column {place}", _says_nothing(pd.Series(values))
        if reason is None:
            raise DataError(
                f"{key}: column {place} has no name, and is no index; give it one in the first line"
            )
        left_out[title] = reason
    return columns, left_out


def _says_nothing(values: "pd.Series[Any]") -> str | None:
    """Return why a column without a name is no input, if it is none: an index, or nothing."""
    texts = [str(value).strip() for value in values]
    if not any(text and text not in ("None", "nan", "<NA>") for text in texts):
        return "empty"
    whole = all(map(is_whole, texts)) and len(set(texts)) == len(texts)
    return "no name: numbers of records" if whole else None


def _holds_texts(values: Any) -> bool:
    """Tell whether a column holds texts, beside what is missing."""
    if not isinstance(values, pd.Series):
        return bool(values.dtype.kind == "U" and values.ndim == 1)
    kind: Any = values.dtype
    if isinstance(kind, pd.CategoricalDtype):
        kind = kind.categories.dtype
    if pd.api.types.is_string_dtype(kind) and not pd.api.types.is_object_dtype(kind):
        return True
    if not pd.api.types.is_object_dtype(kind):
        return False
    return all(isinstance(value, str) for value in values.dropna())


def _plain(values: Any) -> np.ndarray:
    """Return a column that holds no texts as an array of one type; objects where there is none."""
    if not isinstance(values, pd.Series):
        return np.asarray(values, dtype=values.dtype.newbyteorder("="))  # pandas takes no other
    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(values.dtype.categories.dtype)
    if pd.api.types.is_bool_dtype(values.dtype) and not values.isna().any():
        return np.asarray(values.to_numpy(bool))
    if pd.api.types.is_numeric_dtype(values.dtype):
        if not values.isna().any():
            return np.asarray(values.to_numpy())
        return np.asarray(values.to_numpy(np.float64, na_value=np.nan))
    if pd.api.types.is_object_dtype(values.dtype):
        known = pd.to_numeric(values, errors="coerce")  # decimals, and numbers beside nothing
        if known.notna().equals(values.notna()):
            return np.asarray(known.to_numpy(np.float64, na_value=np.nan))
    return np.asarray(values.to_numpy())


@dataclass(frozen=True)
class _Texts:
    """A column of texts: its different ``words``, which of them each record has, what they are."""

    words: list[str]
    codes: np.ndarray
    plain: PlainNumbers | None

    @classmethod
    def of(cls, values: Any) -> "_Texts":
        filled = pd.Series(values).astype(object).where(pd.Series(values).notna(), "")
        codes, texts = pd.factorize(filled.str.strip())
        listed = [str(word) for word in texts]
        return cls(listed, codes, plain_numbers(listed))

    def typed(self, convention: Convention, missing: Iterable[str]) -> tuple[np.ndarray, str]:
        """Return the column, and which words stand between its numbers, if a few do.

        Numbers become int64 or float64 (NaN for nothing, and for words in ``missing``), truths
        bool, all else objects. Codes, as "01234", stay texts: as numbers they would lose a digit.
        """
        nothing = {"", *missing}
        plain = self.plain
        same = plain is not None and (convention.decimal == "." or not plain.points)
        if plain is not None and same and not nothing.intersection(self.words):
            if plain.codes:
                return self._texts(nothing), ""
            kind = np.int64 if plain.whole else np.float64
            return np.array(self.words, dtype=object).astype(kind)[self.codes], ""
        known = [word for word in self.words if word not in nothing]
        gaps = len(known) < len(self.words)
        kinds = {word: is_number(word, convention) for word in known}
        numbers = [word for word, fits in kinds.items() if fits]
        if any(map(is_code, numbers)) or any(_is_long(word) for word in numbers):
            return self._texts(nothing), ""
        if len(numbers) == len(known):
            whole = not gaps and all(map(is_whole, numbers))
            values = [
                (int(w) if whole else number(w, convention)) if w in kinds else np.nan
                for w in self.words
            ]
            return np.array(values, dtype=np.int64 if whole else np.float64)[self.codes], ""
        if not gaps and {word.lower() for word in known} <= {"true", "false"}:
            return np.array([word.lower() == "true" for word in self.words])[self.codes], ""
        strangers = [word for word in known if not kinds[word]]
        return self._texts(nothing), self._odd(strangers, numbers)

    def _texts(self, nothing: set[str]) -> np.ndarray:
        words = ["" if word in nothing else word for word in self.words]
        texts: np.ndarray = np.array(words, dtype=object)[self.codes]
        return texts

    def _odd(self, strangers: list[str], numbers: list[str]) -> str:
        """Say which words stand between numbers, if they are few and most records have a number."""
        counts = np.bincount(self.codes, minlength=len(self.words))
        total = dict(zip(self.words, counts.tolist(), strict=True))
        odd, plain = (sum(total[word] for word in texts) for texts in (strangers, numbers))
        if len(strangers) > MOST_STRANGERS or odd > plain:
            return ""
        quoted = " or ".join(f'"{word[:40]}"' for word in strangers)
        return f"{odd} of {len(self.codes)} are {quoted}"


def _is_long(word: str) -> bool:
    """Tell whether digits are an identifier: float64 holds no such whole number exactly."""
    return word.lstrip("+-").isdigit() and not is_whole(word)
