"""Questions about small tables, and the integers that answer them with next to no noise."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from zerosum.client.queries.encode import encode
from zerosum.client.queries.query import Oracle, Query
from zerosum.client.queries.schema import Schema
from zerosum.client.queries.table import Table
from zerosum.client.request import MAX_RECORDS, QueryQuestion
from zerosum.client.spec.query_privacy import QueryPrivacy
from zerosum.secagg.randomness import insecure_keystream
from zerosum.server.analytics.answers import Answer, answer
from zerosum.server.analytics.noise_law import ReleasedNoise

STILL = ReleasedNoise("geometric", 1 / 64, 1.25)
"""Noise that is 0 but for a chance of 2^-90: its intervals are single points."""


def question(
    query: Query,
    schema: Schema,
    *,
    law: Literal["geometric", "skellam"] = "geometric",
    scale: float = 1 / 64,
) -> QueryQuestion:
    """Return a question to 300 clients, with noise or by local reports at epsilon = scale."""
    if isinstance(query, Oracle):
        privacy = QueryPrivacy(
            model="local",
            law="randomized-response",
            scale=scale,
            unit="client",
            adjacency="replace",
            cap=1,
        )
    else:
        privacy = QueryPrivacy(law=law, scale=scale)
    return QueryQuestion(
        round=1, seed=0, population=300, domains=schema, query=query, privacy=privacy
    )


def exact(query: Query, table: Table, payload: bytes = b"") -> NDArray[np.int64]:
    """Return the integers of a table, without noise."""
    return encode(
        query,
        table.schema,
        table,
        unit="record",
        cap=None,
        max_records=MAX_RECORDS,
        payload=payload,
        secret=bytes(32),
        coins=insecure_keystream(0, "coins"),
    )


def still_answer(query: Query, schema: Schema, rows: Mapping[str, Any]) -> Answer:
    """Return the answer of 300 clients that hold these rows, without noise."""
    table = Table.of(rows, schema)
    return answer(question(query, schema), exact(query, table), STILL, 300)
