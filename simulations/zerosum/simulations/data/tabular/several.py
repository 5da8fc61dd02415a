"""Several files as one table: each is read by itself, and columns are joined by name."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from zerosum.client.spec import DataSpec
from zerosum.simulations.data.data_files import DataError, counted, listed
from zerosum.simulations.data.tabular.columns import Columns, Table, read_table

FEWEST_KINDS = 10
"""Different numbers beside 0 that a measured quantity has; codes have fewer."""


@dataclass(frozen=True)
class Joined:
    """The tables of several files, one below the other.

    Parameters
    ----------
    table : Table
        All records. A column that a file lacks is missing in all of its records.
    owners : numpy.ndarray
        Each record's file, int64, shape (n,).
    names : tuple of str
        Of the files, in order.
    lacking : dict of str to tuple of str
        Columns that some files lack: those files' names.
    """

    table: Table
    owners: np.ndarray
    names: tuple[str, ...]
    lacking: dict[str, tuple[str, ...]]

    @property
    def said(self) -> list[str]:
        """Which files lack which columns, in words."""
        by_file: dict[str, list[str]] = {}
        for column, files in self.lacking.items():
            for file in files:
                by_file.setdefault(file, []).append(column)
        return [f"{file} lacks {listed(columns)}" for file, columns in by_file.items()]

    def counted(self) -> str:
        """Return in words how many records each file has."""
        counts = np.bincount(self.owners, minlength=len(self.names))
        return listed(
            f"{name} ({counted(int(count), 'record')})"
            for name, count in zip(self.names, counts, strict=True)
        )


def read_tables(files: Sequence[Path], spec: DataSpec, ending: str | None = None) -> Joined:
    """Read files, each by itself, and join them by the names of their columns.

    Parameters
    ----------
    files : sequence of Path
        CSV or Parquet, or one NPZ.
    spec : DataSpec
        The keys that say how each is read.
    ending : str, optional
        The kind of file, where their names do not say it.

    Returns
    -------
    Joined
        All records, in the order of the files.

    Raises
    ------
    DataError
        If a file cannot be read, or a column holds numbers in one and texts in another.
    """
    if len(files) > 1:
        for file in files:
            if (ending or file.suffix.lower()) == ".npz":
                raise DataError(f'data.path: "{file}" is one of several; give one .npz, or tables')
    tables = [read_table(file, spec, ending) for file in files]
    names = _short(files)
    if len(tables) == 1:
        first = next(iter(tables[0].columns.values()))
        records = len(first) if first.ndim else 0
        return Joined(tables[0], np.zeros(records, dtype=np.int64), names, {})
    sizes = [_records(table) for table in tables]
    # A column without a name in one file, an index, is left out of all.
    nameless = [{name: why for name, why in t.left_out.items() if why} for t in tables]
    left_out = {name: why for each in nameless for name, why in each.items()}
    columns: Columns = {}
    lacking: dict[str, tuple[str, ...]] = {}
    for column in dict.fromkeys(name for table in tables for name in table.columns):
        left_out.pop(column, None)
        columns[column] = _joined(column, tables, sizes, names, spec)
        absent = [n for n, table in zip(names, tables, strict=True) if column not in table.columns]
        if absent:
            lacking[column] = tuple(absent)
    strangers = {
        name: f"{odd} in {file}"
        for file, table in zip(names, tables, strict=True)
        for name, odd in table.strangers.items()
    }
    owners = np.repeat(np.arange(len(tables)), sizes)
    said = _said([table.said for table in tables], names)
    return Joined(Table(columns, said, left_out, strangers), owners, names, lacking)


def zeros_for_nothing(joined: Joined, public: np.ndarray) -> dict[str, tuple[str, ...]]:
    """Return the columns in which a file writes 0 for what it did not measure: which files.

    A file's public records all are 0 there, while what is not 0 lies more than its own deviation
    above it, as a cholesterol of 85 and more does. Public records alone are looked at.

    Parameters
    ----------
    joined : Joined
        Several files.
    public : numpy.ndarray
        Indices of the public records.

    Returns
    -------
    dict of str to tuple of str
        Columns of numbers, with the files' names.
    """
    found: dict[str, tuple[str, ...]] = {}
    owners = joined.owners[public]
    for name, values in joined.table.columns.items():
        if values.ndim != 1 or values.dtype.kind not in "iuf":
            continue
        there = values[public].astype(np.float64)
        known = there[~np.isnan(there)]
        measured = known[known != 0]
        kinds = len(np.unique(measured))
        if kinds < FEWEST_KINDS or not measured.min() > measured.std():
            continue
        files = []
        for place, file in enumerate(joined.names):
            own = there[owners == place]
            own = own[~np.isnan(own)]
            if len(own) and not own.any():
                files.append(file)
        if files:
            found[name] = tuple(files)
    return found


def _records(table: Table) -> int:
    return max((len(values) for values in table.columns.values()), default=0)


def _short(files: Sequence[Path]) -> tuple[str, ...]:
    """Return the files' names; with their folders where two are called the same."""
    names = [file.name for file in files]
    if len(set(names)) == len(names):
        return tuple(names)
    return tuple(str(file) for file in files)


def _said(said: Sequence[tuple[str, ...]], names: Sequence[str]) -> tuple[str, ...]:
    """Return how the files were read: once where all were read so."""
    if len(set(said)) == 1:
        return said[0]
    each = zip(names, said, strict=True)
    return tuple(f"{', '.join(words)} in {name}" for name, words in each if words)


def _joined(
    column: str,
    tables: Sequence[Table],
    sizes: Sequence[int],
    names: Sequence[str],
    spec: DataSpec,
) -> np.ndarray:
    """Return one column of all files; as objects where it is excluded and of no one kind."""
    parts = [table.columns.get(column) for table in tables]
    kinds = {
        name: _kind(part)
        for name, part in zip(names, parts, strict=True)
        if part is not None and not _empty(part)
    }
    if len(set(kinds.values())) > 1:
        if column in spec.exclude:
            absent = [np.full(size, "", dtype=object) for size in sizes]
            return np.concatenate(
                [e if p is None else p.astype(object) for p, e in zip(parts, absent, strict=True)]
            )
        first = next(iter(kinds))
        other = next(name for name in kinds if kinds[name] != kinds[first])
        odd = [
            f": {table.strangers[column]}"
            for name, table in zip(names, tables, strict=True)
            if name in (first, other) and column in table.strangers
        ]
        raise DataError(
            f'column "{column}" holds {kinds[first]} in {first} and {kinds[other]} in {other}'
            f'{"".join(odd)}; correct it, or write data.exclude = ["{column}"]'
            + (", or name what stands for nothing in data.missing" if odd else "")
        )
    kind = next(iter(kinds.values()), "numbers")
    if kind == "truths" and len(kinds) < len(parts):  # as numbers, so that one can be missing
        kind = "numbers"
    filled = [
        _nothing(kind, size) if part is None or _empty(part) else part
        for part, size in zip(parts, sizes, strict=True)
    ]
    return np.concatenate(filled)


def _kind(values: np.ndarray) -> str:
    if values.dtype.kind in "iuf":
        return "numbers"
    return {"b": "truths", "O": "texts", "M": "dates"}.get(values.dtype.kind, str(values.dtype))


def _empty(values: np.ndarray) -> bool:
    """Tell whether a file has nothing in a column."""
    if values.dtype.kind == "f":
        return bool(np.isnan(values).all())
    return values.dtype.kind == "O" and not any(isinstance(v, str) and v for v in values)


def _nothing(kind: str, size: int) -> np.ndarray:
    if kind == "numbers":
        return np.full(size, np.nan)
    if kind == "dates":
        return np.full(size, np.datetime64("NaT"), dtype="datetime64[ns]")
    return np.full(size, "", dtype=object)
