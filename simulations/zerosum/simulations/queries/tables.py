"""Tables of simulated clients: the rows of one file, dealt by a seed or by a column."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.schema import Schema
from zerosum.client.queries.table import Table, read_table
from zerosum.secagg.randomness import numpy_generator


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
    names : sequence of str
        What each client is called, where a column dealt the rows.
    """

    table: Table
    order: np.ndarray
    bounds: np.ndarray
    names: Sequence[str] = ()

    @property
    def clients(self) -> int:
        """Number of clients."""
        return len(self.bounds) - 1

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
    return DealtTable(table, np.argsort(of, kind="stable"), bounds, list(map(str, names)))
