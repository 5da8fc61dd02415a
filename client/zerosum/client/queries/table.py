"""Hold a client's table, coded by a schema, and read it from a file."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.client.nearest_word import did_you_mean
from zerosum.client.queries.coding import all_missing, coded
from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.schema import OTHER, CategoryColumn, Schema
from zerosum.client.queries.table_files import header, read_columns

CACHED_TABLES = 4
"""Tables kept in memory: one for each schema that a file was read by."""

log = logging.getLogger("zerosum.client")


@dataclass(frozen=True)
class Table:
    """A client's rows, coded by a schema.

    Parameters
    ----------
    schema : Schema
    columns : dict of str to ndarray
        Each of shape (size,), read-only. An integer is int64, its clamped value less `low`, -1
        where missing. A category is int64, the number of its cell; `(other)` is the last. A
        number is float64, clamped, NaN where missing. A text is a numpy str, empty where missing.
    size : int
        Number of rows.
    """

    schema: Schema
    columns: dict[str, NDArray[Any]] = field(repr=False)
    size: int

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.size

    def take(self, rows: NDArray[np.integer[Any]] | NDArray[np.bool_]) -> "Table":
        """Return some of the rows.

        Parameters
        ----------
        rows : ndarray of int or bool
            Their numbers, or a mask of shape (size,).

        Returns
        -------
        Table
        """
        columns = {name: values[rows] for name, values in self.columns.items()}
        size = int(np.count_nonzero(rows)) if rows.dtype == np.bool_ else len(rows)
        return Table(self.schema, columns, size)

    @classmethod
    def of(cls, mapping: Mapping[str, Iterable[Any]], schema: Schema) -> "Table":
        """Code the values of a mapping, as those of a file are coded.

        Parameters
        ----------
        mapping : mapping of str to iterable
            Every column of the schema; others are left out. None and NaN are missing.
        schema : Schema

        Returns
        -------
        Table

        Raises
        ------
        QueryError
            If a column is absent, or they are not of one length.
        """
        columns: dict[str, NDArray[Any]] = {}
        for name, column in schema.columns.items():
            if name not in mapping:
                raise QueryError(f'the table has no column "{name}"')
            columns[name] = coded(column, mapping[name])
        sizes = {len(values) for values in columns.values()}
        if len(sizes) > 1:
            raise QueryError(f"the table's columns have {sorted(sizes)} rows")
        return cls(schema, columns, sizes.pop())

    @classmethod
    def empty(cls, schema: Schema) -> "Table":
        """Return a table without rows: where a file cannot be read."""
        return cls.of(dict.fromkeys(schema.columns, ()), schema)


def read_table(path: str | Path, schema: Schema, rename: Mapping[str, str] | None = None) -> Table:
    """Read the schema's columns of a CSV or Parquet file.

    A value that is missing, not listed or cannot be read, and all of a row that has not as many
    fields as the header, count as missing. The last tables read stay in memory until their file
    changes in size or time.

    Parameters
    ----------
    path : path
        Parquet where it ends in `.parquet`, else CSV with a header, in UTF-8.
    schema : Schema
    rename : mapping, optional
        The file's names of columns by the schema's, where they differ.

    Returns
    -------
    Table
        Its arrays are shared and read-only.

    Raises
    ------
    QueryError
        If the file cannot be read, or has not all columns.
    """
    try:
        status = Path(path).stat()
    except OSError as error:
        raise QueryError(f"{path}: {error.strerror}") from None
    names = tuple((rename or {}).get(name, name) for name in schema.columns)
    return _read(str(path), status.st_mtime_ns, status.st_size, schema.canonical(), names)


@lru_cache(maxsize=CACHED_TABLES)
def _read(path: str, modified: int, size: int, domains: bytes, names: tuple[str, ...]) -> Table:
    schema = Schema.from_canonical(domains)
    _refuse_missing(path, names)
    own = dict(zip(schema.columns, names, strict=True))
    parts = [
        Table.of({name: values[theirs] for name, theirs in own.items()}, schema)
        for values in read_columns(path, names)
    ]
    table = _joined(parts) if parts else Table.empty(schema)
    _warn_of_unread(path, own, table)
    return table


def _warn_of_unread(path: str, names: Mapping[str, str], table: Table) -> None:
    """Tell the data's owner, whose log this is, of columns that no row has a declared value of."""
    for name, column in table.schema.columns.items():
        if table.size and all_missing(column, table.columns[name]):
            log.warning(
                '%s: no row\'s "%s" is of the declared domain: every one counts as %s',
                *(path, names[name]),
                OTHER if isinstance(column, CategoryColumn) else "missing",
            )


def _joined(parts: list[Table]) -> Table:
    schema = parts[0].schema
    columns = {name: np.concatenate([p.columns[name] for p in parts]) for name in schema.columns}
    for values in columns.values():
        values.flags.writeable = False
    return Table(schema, columns, sum(map(len, parts)))


def check_file(
    path: str | Path, columns: Iterable[str], rename: Mapping[str, str] | None = None
) -> None:
    """Refuse a file that cannot be read, or has not all of some columns: at a node's start.

    Parameters
    ----------
    path : path
    columns : iterable of str
        By their names in a schema.
    rename : mapping, optional
        As for :func:`read_table`.

    Raises
    ------
    QueryError
        With the column, and the one that may be meant.
    """
    _refuse_missing(path, [(rename or {}).get(name, name) for name in columns])


def _refuse_missing(path: str | Path, names: Iterable[str]) -> None:
    known = header(path)
    for name in names:
        if known.count(name) != 1:
            how = "no column" if name not in known else "more than one column"
            hint = did_you_mean(name, known) if name not in known else ""
            if len(known) == 1 and not known[0].isidentifier():
                hint = f"; its fields are separated by commas, and its header is {known[0]!r}"
            raise QueryError(f'{path} has {how} "{name}"{hint}')
