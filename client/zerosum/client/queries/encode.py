"""Encode a table as the integer vector that answers a query."""

import logging
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from zerosum.client.queries import words
from zerosum.client.queries.coding import MISSING, cells_of, fractions
from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.moves import Unit
from zerosum.client.queries.oracles import report
from zerosum.client.queries.predicate import holds
from zerosum.client.queries.query import (
    FAN_OUT,
    LEAVES,
    LEVELS,
    Bayes,
    Count,
    Histogram,
    Marginals,
    Moments,
    Oracle,
    Quantile,
    Query,
    Words,
)
from zerosum.client.queries.record_order import first_rows
from zerosum.client.queries.schema import Schema
from zerosum.client.queries.table import Table
from zerosum.secagg.randomness import Keystream

_OFFSET_BITS = 32
"""Bits of the offset that a record's weights are rounded by: they are biased by 2^-32 at most, and
by what float64 has rounded before."""

log = logging.getLogger("zerosum.client")


def encode(
    query: Query,
    schema: Schema,
    table: Table,
    *,
    unit: Unit,
    cap: int | None,
    max_records: int,
    payload: bytes = b"",
    secret: bytes,
    coins: Keystream,
    epsilon: float | None = None,
) -> NDArray[np.int64]:
    """Encode a table: in each block a record adds weights >= 0 that sum to at most the block's.

    Parameters
    ----------
    query : Query
        Checked against the schema, and resolved.
    schema : Schema
    table : Table
        Coded by this schema.
    unit : {"record", "client"}
        Of privacy.
    cap : int or None
        Most records that a client adds; needed under unit `client`.
    max_records : int
        Most records that a client adds, under either unit.
    payload : bytes
        Of `words` alone: the surviving prefixes.
    secret : bytes
        32 bytes that order the rows where there are more than may count.
    coins : Keystream
        Of roundings and local reports.
    epsilon : float, optional
        Of a local report.

    Returns
    -------
    ndarray of int64, shape (dimension,)
        The blocks of the query, one after another.

    Raises
    ------
    QueryError
        If the query is not resolved, its limits on records are left out, or the table is coded by
        other domains.
    """
    query.blocks(schema, payload)
    if any(table.schema.column(name) != schema.column(name) for name in query.reads):
        raise QueryError("the table was read by another schema than the query's")
    rows = first_rows(len(table), _most_records(unit, cap, max_records), secret)
    if rows is not None:
        log.info("%d of %d records count: the first in this client's order", len(rows), len(table))
        table = table.take(rows)
    if query.where is not None:
        table = table.take(holds(query.where, table))
    if isinstance(query, Oracle):
        if unit != "client" or cap != 1:
            raise QueryError('oracle: a client reports one record: unit = "client", cap = 1')
        return _reported(query, schema, table, epsilon, coins)
    if isinstance(query, Moments):
        return _moments(query, table, coins)
    if isinstance(query, Words):
        return _words(query, schema, table, payload)
    return np.concatenate(_counted(query, table))


def _most_records(unit: Unit, cap: int | None, max_records: int) -> int:
    if max_records < 1 or (cap is not None and cap < 1):
        raise QueryError(f"cap = {cap}, max_records = {max_records}: each is at least 1")
    if unit == "record":
        return max_records
    if cap is None:
        raise QueryError('unit = "client" needs cap, the most records a client adds: cap = 1')
    return min(cap, max_records)


def _counted(
    query: Count | Histogram | Quantile | Bayes | Marginals, table: Table
) -> list[NDArray[np.int64]]:
    """Return the blocks of a query in which a record adds 1 to one cell of each."""
    if isinstance(query, Count):
        return [np.array([len(table)], dtype=np.int64)]
    if isinstance(query, Histogram):
        return [_tabulated(table, query.asked)]
    if isinstance(query, Bayes):
        return [_tabulated(table, (query.label, feature)) for feature in query.features]
    if isinstance(query, Marginals):
        return [_tabulated(table, clique) for clique in query.cliques]
    return _tree(query, table)


def _tabulated(table: Table, names: Sequence[str]) -> NDArray[np.int64]:
    """Cross-tabulate columns, the last varying fastest; a record that lacks one counts nowhere."""
    place = np.zeros(len(table), dtype=np.int64)
    present = np.ones(len(table), dtype=np.bool_)
    size = 1
    for name in names:
        column = table.schema.column(name)
        cells = cells_of(column, table.columns[name])
        present &= cells != MISSING
        place = place * column.cells + cells
        size *= column.cells
    return np.bincount(place[present], minlength=size).astype(np.int64, copy=False)


def _tree(query: Quantile, table: Table) -> list[NDArray[np.int64]]:
    """Count the nodes of the quantile tree, from the 16 below the root to the leaves."""
    leaves = cells_of(table.schema.column(query.column), table.columns[query.column], LEAVES)
    counts = np.bincount(leaves[leaves != MISSING], minlength=LEAVES).astype(np.int64, copy=False)
    shapes = [(FAN_OUT**level, -1) for level in range(1, LEVELS + 1)]
    return [counts.reshape(shape).sum(axis=1) for shape in shapes]


def _moments(query: Moments, table: Table, coins: Keystream) -> NDArray[np.int64]:
    """Sum the records' Bernstein cells, each rounded by one offset on its cumulative sums.

    Of cells that sum to 1, c_0 + ... + c_j is cut to multiples of 1/K at an offset that all j
    share: floor(K (c_0 + ... + c_j) + offset). The last of these is K, so that the integers sum to
    it; each has the right mean, for floor(x + offset) has mean x.
    """
    u = fractions(table.schema.column(query.column), table.columns[query.column])
    u = u[~np.isnan(u)]
    weight = query.weight or 0
    cumulative = [1 - u] if query.order == 1 else [(1 - u) ** 2, 1 - u**2]
    offsets = coins.words(len(u), np.uint32).astype(np.int64)
    ends: list[int] = []
    for part in cumulative:
        # In fixed point, for in floating point K + offset can round up to K + 1.
        fixed = np.rint(part * float(weight << _OFFSET_BITS)).astype(np.int64)
        ends.append(int(((fixed + offsets) >> _OFFSET_BITS).sum()))
    sums = [0, *ends, weight * len(u)]
    return np.array([after - before for before, after in pairwise(sums)], dtype=np.int64)


def _words(query: Words, schema: Schema, table: Table, payload: bytes) -> NDArray[np.int64]:
    """Count the candidates that begin the records' words."""
    column = query.text(schema)
    surviving = words.prefixes(column, payload, query.max_prefixes)
    cells = words.cells(column, surviving)
    result = np.zeros(len(cells), dtype=np.int64)
    # A cast cuts each word to as many characters as a candidate has.
    begun = table.columns[query.column].astype(f"<U{len(surviving[0]) + words.STEP}")
    for word, count in zip(*np.unique(begun, return_counts=True), strict=True):
        if (cell := cells.get(str(word))) is not None:
            result[cell] = count
    return result


def _reported(
    query: Oracle, schema: Schema, table: Table, epsilon: float | None, coins: Keystream
) -> NDArray[np.int64]:
    """Report the value of the one record; `(other)`, the last, where there is none."""
    if epsilon is None or query.oracle == "auto":
        raise QueryError("oracle: epsilon or the kind of oracle is not resolved")
    k = query.size(schema)
    cells = cells_of(schema.column(query.column), table.columns[query.column])
    value = int(cells[0]) if len(cells) and cells[0] != MISSING else k - 1
    return report(query.oracle, value, k, epsilon, coins)
