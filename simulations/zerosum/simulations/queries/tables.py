"""Tables of simulated clients: the rows of one file, dealt by a seed or by a column."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zerosum.client.files.operating_system import named_path
from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.schema import Schema
from zerosum.client.queries.table import Table, check_file, read_table
from zerosum.client.queries.table_files import read_columns
from zerosum.secagg.randomness import numpy_generator
from zerosum.server.analytics.query_plan import QueryPlan

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class DealtTable:
    """One table, and which of its rows each client holds.

    Parameters
    ----------
    table : Table
        All rows.
    order : numpy.ndarray
        int64, shape (rows,): row numbers, client by client.
    bounds : numpy.ndarray
        int64, shape (clients + 1,): client c holds ``order[bounds[c]:bounds[c + 1]]``.
    """

    table: Table
    order: np.ndarray
    bounds: np.ndarray

    @property
    def clients(self) -> int:
        """Number of clients."""
        return len(self.bounds) - 1

    @property
    def digest(self) -> str:
        """SHA-256 of all rows and of whose they are, hexadecimal."""
        hashed = hashlib.sha256(self.table.schema.canonical())
        columns = (self.table.columns[name] for name in sorted(self.table.columns))
        for array in (self.order, self.bounds, *columns):
            hashed.update(f"{array.dtype.str}{array.shape}".encode())
            hashed.update(np.ascontiguousarray(array).tobytes())
        return hashed.hexdigest()

    def of(self, client: int) -> Table:
        """Return the table of one client."""
        return self.table.take(self.order[self.bounds[client] : self.bounds[client + 1]])


def deal(table: Table, clients: int, seed: int) -> DealtTable:
    """Shuffle the rows and deal them to clients, as evenly as it goes.

    Parameters
    ----------
    table : Table
        All rows.
    clients : int
        More than rows: some hold none.
    seed : int
        The same seed deals the same rows.

    Returns
    -------
    DealtTable
        Of all rows.
    """
    rows = len(table)
    order = numpy_generator(seed, "deal").permutation(rows)
    return DealtTable(table, order, np.arange(clients + 1) * rows // clients)


def deal_by(table: Table, keys: Sequence[str]) -> DealtTable:
    """Give each distinct value of a column its rows, as one client each.

    Parameters
    ----------
    table : Table
        All rows.
    keys : sequence of str
        One for each row: the client that holds it.

    Returns
    -------
    DealtTable
        Clients in the order of their values.

    Raises
    ------
    QueryError
        If there are fewer than two values.
    """
    names, of = np.unique(np.asarray(keys, dtype=str), return_inverse=True)
    if len(names) < 2:
        raise QueryError(f"by: the column has {len(names)} value: name one with a value a client")
    counts = np.bincount(of, minlength=len(names))
    bounds = np.concatenate(([0], np.cumsum(counts)))
    return DealtTable(table, np.argsort(of, kind="stable"), bounds)


def deal_file(plan: QueryPlan, schema: Schema) -> DealtTable:
    """Read the file of a plan and deal its rows.

    Parameters
    ----------
    plan : QueryPlan
        Names the file, and ``clients`` or ``by``.
    schema : Schema
        The columns that are read.

    Returns
    -------
    DealtTable
        Of all rows.

    Raises
    ------
    QueryError
        If the file or its columns cannot be read, or neither or both of ``clients`` and ``by`` are
        given.
    """
    path = named_path(plan.data or "")
    _check_dealing(plan)
    table = read_table(path, schema, plan.rename)
    if plan.by is None:
        return deal(table, plan.clients or 0, plan.seed)
    return deal_by(table, _column(path, plan.by))


def dealt_of(
    data: "Table | Mapping[str, Sequence[Any]] | pd.DataFrame", plan: QueryPlan, schema: Schema
) -> DealtTable:
    """Deal the rows of a table in memory.

    Parameters
    ----------
    data : Table, mapping or pandas.DataFrame
        Columns, as a mapping has them, or coded by the schema already.
    plan : QueryPlan
        ``clients`` or ``by``, and the seed.
    schema : Schema
        Of the columns.

    Returns
    -------
    DealtTable
        Of all rows.

    Raises
    ------
    QueryError
        If the rows cannot be dealt so, or were coded by another schema.
    """
    _check_dealing(plan)
    if isinstance(data, Table):
        if data.schema != schema:
            # Clients would count every record as missing, and the answers be noise alone.
            raise QueryError("the table was coded by another schema: Table.of(columns, schema)")
        if plan.by is not None:
            raise QueryError(f"by = {plan.by!r}: a Table has coded columns alone; give a mapping")
        return deal(data, plan.clients or 0, plan.seed)
    if not (isinstance(data, Mapping) or hasattr(data, "columns")):
        raise QueryError(
            f"data is of type {type(data).__name__}: give the path of a CSV or Parquet file, a "
            "mapping of columns, or a DataFrame"
        )
    # By name: a DataFrame has the columns of a mapping, and is none.
    names = {*schema.columns, *(() if plan.by is None else (plan.by,))}
    columns = {name: data[name] for name in names if name in data}
    table = Table.of(columns, schema)
    if plan.by is None:
        return deal(table, plan.clients or 0, plan.seed)
    if plan.by not in columns:
        raise QueryError(f"by = {plan.by!r}: the data have no such column")
    keys = [_key(value) for value in columns[plan.by]]
    if len(keys) != len(table):
        raise QueryError(f"by = {plan.by!r} has {len(keys)} rows, and the table {len(table)}")
    return deal_by(table, keys)


def _check_dealing(plan: QueryPlan) -> None:
    if plan.clients is None and plan.by is None:
        raise QueryError(
            "clients is missing: write a number of clients, as clients = 300, or with by the "
            "column whose values are the clients"
        )
    if plan.clients is not None and plan.by is not None:
        raise QueryError(f"clients = {plan.clients} and by = {plan.by!r}: give one of them")


def _column(path: Path, name: str) -> list[str]:
    """Return one column of a file as text, by the reader of its table: row for row the same."""
    try:
        check_file(path, [name])
    except QueryError as error:
        raise QueryError(f"by = {name!r}: {error}") from None
    return [_key(value) for part in read_columns(path, [name]) for value in part[name]]


def _key(value: object) -> str:
    """Return a client's name as text; empty where a row has none."""
    return "" if value is None else str(value).strip()
