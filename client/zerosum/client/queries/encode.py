"""Encode a table as the integer vector that answers a query."""

import numpy as np
from numpy.typing import NDArray

from zerosum.client.queries.moves import Unit
from zerosum.client.queries.query import Query
from zerosum.client.queries.schema import Schema
from zerosum.client.queries.table import Table
from zerosum.secagg.randomness import Keystream

MAX_RECORDS = 1 << 20
"""Records that a client adds at most, unless a request says otherwise."""


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
    """Encode a table; `epsilon` is for local oracles alone. Shape (dimension,)."""
    raise NotImplementedError
