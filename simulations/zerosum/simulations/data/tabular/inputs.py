"""Columns as one matrix of inputs: which are used, what texts become, how numbers are scaled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from zerosum.client.nearest_word import did_you_mean
from zerosum.client.spec import DataSpec
from zerosum.simulations.data.data_files import DataError, as_float32, counted, listed
from zerosum.simulations.data.tabular.columns import Columns, Table
from zerosum.simulations.data.tabular.identifiers import why_identifier
from zerosum.simulations.data.tabular.leaks import FEWEST_TO_COMPARE, why_leak
from zerosum.simulations.data.tabular.written import are_dates, marks_of

MOST_CATEGORIES = 100
"""Texts of more kinds are names or notes: one input each would be one person each."""

_KINDS = {"M": "dates", "m": "durations", "c": "complex numbers", "S": "bytes", "O": "objects"}


@dataclass(frozen=True)
class Chosen:
    """The columns chosen as inputs.

    Parameters
    ----------
    names : tuple of str
        In their order.
    categories : dict of str to tuple of str
        Of those that hold texts: each category is an input of its own, 0 or 1.
    left_out : dict of str to str
        Other columns, with the reason.
    shapes : dict of str to tuple of int
        Of an NPZ's arrays that hold more than one number a record: the shape of one.
    """

    names: tuple[str, ...]
    categories: Mapping[str, tuple[str, ...]]
    left_out: Mapping[str, str]
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def said(self) -> list[str]:
        """The inputs, in words."""
        more = {name: f"{len(known)} categories" for name, known in self.categories.items()}
        for name, shape in self.shapes.items():
            sides = "x".join(map(str, shape))
            more[name] = counted(shape[0], "column") if len(shape) == 1 else f"{sides} numbers"
        return [f"{name} ({more[name]})" if name in more else name for name in self.names]


def require_column(columns: Columns, key: str, name: str) -> None:
    """Raise a DataError that names the key, unless there is a column of that name.

    Parameters
    ----------
    columns : dict of str to numpy.ndarray
        Of the file.
    key : str
        Key that names the column; begins the message.
    name : str
        The column.

    Raises
    ------
    DataError
        If there is none.
    """
    if name not in columns:
        only = "; data.separator may split it otherwise" if len(columns) == 1 else ""
        raise DataError(
            f'{key} = "{name}": no such column; there are {listed(columns)}{only}'
            f"{did_you_mean(name, columns)}"
        )


def choose_inputs(table: Table, spec: DataSpec, public: np.ndarray) -> Chosen:
    """Return the columns that ``data.features`` names, or all that can be inputs.

    Parameters
    ----------
    table : Table
        The file.
    spec : DataSpec
        ``features``, ``exclude``, and the label and client column, which are no inputs.
    public : numpy.ndarray
        Indices of the public records. They alone say which categories a text has: those of the
        others are private, and how many a column has is the shape of the model.

    Returns
    -------
    Chosen
        Names in order, categories of texts, and what is left out.

    Raises
    ------
    DataError
        If a name is no column, one that was named cannot be an input, or none is left.
    """
    reserved = {spec.label, spec.client_column}
    for key in ("features", "exclude"):
        for name in getattr(spec, key) or ():
            if name in table.compared:
                raise DataError(
                    f'data.{key}: column "{name}" is read by the label, {spec.label}, and so no '
                    "input; leave it out"
                )
            require_column(table.columns, f"data.{key}", name)
    if both := [name for name in spec.features or () if name in spec.exclude]:
        raise DataError(
            f'data.features and data.exclude both name "{both[0]}": take it out of one of them'
        )
    left_out = dict(table.left_out)
    categories: dict[str, tuple[str, ...]] = {}
    names = []
    for name in _candidates(table, spec, reserved, left_out):
        values = table.columns[name]
        key = f'data.features: column "{name}"'
        if name in reserved:
            raise DataError(f"{key} is the label or the client column; leave it out")
        if name in table.strangers:
            raise _strange(key, name, table.strangers[name])
        known, reason = _use(
            values, public, len(table.columns[spec.label]), named=spec.features is not None
        )
        if reason is None and spec.features is None:
            reason = why_identifier(name, values, public)
        if reason is None and spec.features is None:
            _refuse_leak(name, table, spec)
        if reason is None:
            names.append(name)
            categories |= {name: known} if known else {}
        elif spec.features is not None:
            raise DataError(
                f"{key} is not numeric: {reason}; encode it as numbers, or leave it out"
            )
        else:
            left_out[name] = reason
    if not names:
        reasons = listed(f"{name}: {reason}" for name, reason in left_out.items())
        reasons = f" ({reasons})" if left_out else ""
        raise DataError(
            f"data.features: no numeric column is left as input{reasons}; name at least one"
        )
    shapes = {n: table.columns[n].shape[1:] for n in names if table.columns[n].ndim > 1}
    return Chosen(tuple(names), categories, left_out, shapes)


def _candidates(
    table: Table, spec: DataSpec, reserved: set[str | None], left_out: dict[str, str]
) -> Sequence[str]:
    """Return the candidate columns, and note those that the configuration leaves out."""
    others = [name for name in table.columns if name not in reserved]
    left_out |= {name: "data.exclude" for name in others if name in spec.exclude}
    if spec.features is None:
        return [name for name in others if name not in spec.exclude]
    left_out |= {name: "not in data.features" for name in others if name not in spec.features}
    return list(dict.fromkeys(spec.features))


def _use(
    values: np.ndarray, public: np.ndarray, records: int, *, named: bool
) -> tuple[tuple[str, ...], str | None]:
    """Return (categories, None) of a column that is used, none of numbers, or ((), a reason).

    Dates go on after those that a model was trained on: as categories they would say nothing of
    the next day. They are used where the user ``named`` the column.
    """
    if values.dtype.kind in "iufb":
        empty = values.ndim == 1 and values.dtype.kind == "f" and bool(np.isnan(values).all())
        return (), "empty" if empty and len(values) else None
    texts = values.dtype.kind == "O" and all(isinstance(value, str) for value in values)
    if values.ndim != 1 or len(values) != records:  # names of columns, in an NPZ
        return (), f"{values.dtype.name} of shape {values.shape}"
    if not texts:
        return (), _KINDS.get(values.dtype.kind, str(values.dtype))
    known = sorted(set(values[public]) - {""})
    if not named and are_dates(known):
        return (), _KINDS["M"]
    if len(known) > MOST_CATEGORIES or 2 * len(known) > len(public):
        mark = marks_of(known)
        cure = f', as "{known[0][:40]}": take off "{mark}", and they are numbers' if mark else ""
        return (), f"text, {len(set(values)):,} values{cure}"
    if len(known) < 2:
        return (), f'text, "{known[0][:40]}" in all public records' if known else "empty"
    return tuple(known), None


def _refuse_leak(name: str, table: Table, spec: DataSpec) -> None:
    if why := why_leak(table.columns[name], table.columns[spec.label], table.compared):
        raise DataError(
            f'column "{name}" is {why}: a model would learn nothing else; write data.exclude = '
            f'["{name}"], or name all inputs in data.features'
        )


def _strange(key: str, name: str, reason: str) -> DataError:
    quoted = [f'"{word}"' for word in reason.split('"')[1::2]]
    return DataError(
        f"{key} holds numbers, but {reason}; write data.missing = [{', '.join(quoted)}] where that "
        f'is a missing value, or data.exclude = ["{name}"]'
    )


@dataclass(frozen=True)
class Encoded:
    """Inputs before any scaling.

    Parameters
    ----------
    inputs : numpy.ndarray
        float64, shape (records, width), NaN where a number is missing; a single array of more
        dimensions keeps its shape.
    scaled : numpy.ndarray
        bool, shape (width,): which are numbers to be scaled; categories stay 0 and 1.
    names : numpy.ndarray
        The column of each input, shape (width,).
    """

    inputs: np.ndarray
    scaled: np.ndarray
    names: np.ndarray


def encode_inputs(columns: Columns, chosen: Chosen, *, records: int, fill: bool) -> Encoded:
    """Return inputs as they stand in the columns, before any scaling.

    Parameters
    ----------
    columns : dict of str to numpy.ndarray
        Of the file.
    chosen : Chosen
        Which are inputs.
    records : int
        How many there are.
    fill : bool
        Whether a number may be missing.

    Returns
    -------
    Encoded
        Inputs of shape (n, width), float64, or an image's own shape.

    Raises
    ------
    DataError
        Names the column that has gaps, infinities, another length or no values.
    """
    parts, scaled, names = [], [], []
    for name in chosen.names:
        key = f'data.features: column "{name}"'
        if name in chosen.categories:
            parts.append(one_hot(columns[name], chosen.categories[name]))
        else:
            parts.append(_numbers(columns[name], records, key, fill=fill))
        scaled.append(np.full(parts[-1][0].size, name not in chosen.categories))
        names.append(np.full(len(scaled[-1]), name))
    whole = parts[0]
    if len(parts) > 1 or whole.ndim < 2:
        whole = np.concatenate([part.reshape(records, -1) for part in parts], axis=1)
    return Encoded(whole, np.concatenate(scaled), np.concatenate(names))


def one_hot(values: np.ndarray, categories: Sequence[str]) -> np.ndarray:
    """Return float64 of shape (n, categories), 1 at each text's category; other texts have none.

    Parameters
    ----------
    values : numpy.ndarray
        Texts, shape (n,).
    categories : sequence of str
        In their order.

    Returns
    -------
    numpy.ndarray
        float64, shape (n, categories).
    """
    codes = pd.Index(list(categories), dtype=object).get_indexer(pd.Index(values, dtype=object))
    hot: np.ndarray = codes[:, None] == np.arange(len(categories))
    return hot.astype(np.float64)


def _numbers(values: np.ndarray, records: int, key: str, *, fill: bool) -> np.ndarray:
    if values.ndim == 0 or values.size == 0:
        raise DataError(f"{key} has shape {values.shape}; give values for each record")
    if len(values) != records:
        raise DataError(f"{key} has {len(values)} entries for {records} labels; leave it out")
    if values.ndim > 2:  # images: nothing is scaled, and float64 would be twice as large
        return as_float32(values, key)
    numbers = values.astype(np.float64)
    if np.isinf(numbers).any():
        raise DataError(f"{key} has infinities; replace them, or leave it out by data.exclude")
    gaps = np.isnan(numbers).reshape(records, -1).any(axis=1)
    if gaps.any() and not fill:
        raise DataError(
            f"{key} has missing values ({gaps.sum()} of {records}, first in record "
            f'{np.argmax(gaps) + 1}); write data.missing = [""] to fill them with the mean of the '
            "public records, or leave it out by data.exclude"
        )
    return numbers


def scale_inputs(
    inputs: np.ndarray, public: np.ndarray, scaled: np.ndarray, names: np.ndarray
) -> np.ndarray:
    """Return inputs as float32, each number at mean 0 and deviation 1 over the public records.

    In float64 until the end: as float32, seconds since 1970 differ by 128 at least, and 1e12 by
    65,536. What is missing becomes 0, the mean. A column that is the same in all public records
    is shifted alone.

    Parameters
    ----------
    inputs : numpy.ndarray
        float64, shape (n, width).
    public : numpy.ndarray
        Indices of the public records.
    scaled : numpy.ndarray
        bool, shape (width,): others are left as they are.
    names : numpy.ndarray
        The column of each input, shape (width,).

    Returns
    -------
    numpy.ndarray
        float32, shape (n, width).

    Raises
    ------
    DataError
        Names the column that leaves float32 when it is scaled, or has no number in any public
        record.
    """
    known = inputs[public][:, scaled]
    empty = np.isnan(known).all(axis=0)
    if empty.any():
        raise DataError(
            f'data.features: column "{names[scaled][empty][0]}" is missing in all public records; '
            "leave it out by data.exclude, or raise data.test_fraction"
        )
    result = inputs.copy()
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = _statistics(known)
        shifted = (inputs[:, scaled] - mean) / deviation
        result[:, scaled] = np.where(np.isnan(inputs[:, scaled]), 0.0, shifted)
        cast: np.ndarray = result.astype(np.float32)
    beyond = ~np.isfinite(cast).all(axis=0)
    beyond[scaled] |= ~np.isfinite(deviation)
    if beyond.any():
        raise DataError(
            f'data.features: column "{names[beyond][0]}" has values beyond float32 once scaled; '
            "allowed: up to 3.4e38 deviations; leave it out by data.exclude, or take logarithms"
        )
    return cast


def _statistics(known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and deviation of each column, of what is not missing; no deviation is 1."""
    if np.isnan(known).any():
        mean, deviation = np.nanmean(known, axis=0), np.nanstd(known, axis=0)
    else:
        mean, deviation = known.mean(axis=0), known.std(axis=0)
    # The deviation of equal numbers need not come out as 0.
    deviation[np.nanmin(known, axis=0) == np.nanmax(known, axis=0)] = 1.0
    return mean, deviation


def cautions(
    columns: Columns,
    chosen: Chosen,
    labels: np.ndarray,
    compared: Mapping[str, np.ndarray] | None = None,
) -> list[str]:
    """Describe suspicious inputs that are used: a copy of the label, a record counter.

    Parameters
    ----------
    columns : dict of str to numpy.ndarray
        Of the file, each of shape (n,).
    chosen : Chosen
        Which are inputs.
    labels : numpy.ndarray
        Shape (n,).
    compared : dict of str to numpy.ndarray, optional
        Columns that the label is a comparison of, shape (n,).

    Returns
    -------
    list of str
        One caution each.
    """
    notes = []
    for name, known in chosen.categories.items():
        if mark := marks_of(known):
            notes.append(f'{name} holds numbers with "{mark}", taken for categories')
    for name in chosen.names:
        values = columns[name]
        if values.ndim != 1 or len(values) < FEWEST_TO_COMPARE:
            continue
        if values.dtype.kind in "iu" and (np.diff(values) == 1).all():
            notes.append(f"{name} counts the records")
            continue
        if why := why_leak(values, labels, compared or {}):
            notes.append(f"{name} is {why}")
    return notes
