"""Answer a query from a client's table: whatever happens at home, a share of the sum leaves.

Whether a client takes part must not depend on its records. A file that cannot be read counts as one
without rows, and the node's own log says so.
"""

import logging
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from zerosum.client.protocol.refusal import Declined
from zerosum.client.protocol.training_outcomes import ANSWER_FAILED, Notes
from zerosum.client.queries.encode import encode
from zerosum.client.queries.schema import Schema
from zerosum.client.queries.table import Table
from zerosum.client.request import QueryQuestion, QueryRequest
from zerosum.client.task_errors import FAILURES
from zerosum.secagg.randomness import Keystream

QUERY_COINS: Final = "query"
"""Purpose of the coins that a query's answer is rounded and randomised by."""

log = logging.getLogger("zerosum.client")


def query_answer(
    request: QueryRequest,
    read: Callable[[], Table],
    secret: bytes,
    coins: Callable[[], Keystream],
    *,
    index: int,
    notes: Notes | None = None,
) -> NDArray[np.int64]:
    """Encode a client's table as the integers that answer a query, before noise is added.

    Parameters
    ----------
    request : QueryRequest
        As admitted and priced.
    read : callable
        Reads the table, coded by :func:`columns_read`.
    secret : bytes
        32 bytes that order the client's rows, the same for every query.
    coins : callable
        Returns coins of roundings and local reports, from their beginning.
    index : int
        The client, for its log.
    notes : Notes, optional
        Where a simulation notes failures.

    Returns
    -------
    ndarray of int64
        Shape (request.dimension,), each at most ``request.encoding.bound``. A report of the local
        model holds its noise.
    """
    try:
        return _encoded(request, read(), secret, coins())
    except Declined:
        raise  # of clients that have no tables at all
    except FAILURES as error:
        (Notes() if notes is None else notes).fail(error)
        log.exception(
            "client %d: %s %d failed: no row of its table counts",
            *(index, ANSWER_FAILED, request.question.round),
        )
    return _encoded(request, Table.empty(columns_read(request.question)), secret, coins())


def _encoded(
    request: QueryRequest, table: Table, secret: bytes, coins: Keystream
) -> NDArray[np.int64]:
    question, privacy = request.question, request.question.privacy
    return encode(
        question.query,
        columns_read(question),
        table,
        unit=privacy.unit,
        cap=privacy.cap,
        max_records=question.max_records,
        payload=request.payload,
        secret=secret,
        coins=coins,
        epsilon=privacy.scale if privacy.noise_inside else None,
    )


def columns_read(question: QueryQuestion) -> Schema:
    """Return the domains of the columns that a query reads: all of them where it reads none.

    A plain count reads no column, and a schema has one at least.
    """
    reads = question.query.reads
    return question.domains.only(reads) if reads else question.domains
