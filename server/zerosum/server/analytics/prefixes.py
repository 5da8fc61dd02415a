"""Frequent words: which prefixes go on to the next round, and which words are the answer.

A candidate is kept where its noisy count reaches a threshold t. It is the least with cells x
P(noise >= t) <= beta / T, over T rounds: by the union bound, all rounds together let in a prefix
that no record has with probability beta at most. The tail is exact, so nothing is assumed of it.
"""

import numpy as np
from numpy.typing import NDArray

from zerosum.client.queries import words
from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.query import Words
from zerosum.client.queries.schema import PADDING, TextColumn
from zerosum.client.request import QueryQuestion
from zerosum.server.analytics.noise_law import ReleasedNoise

INVENTED = 0.05
"""beta: probability, over all rounds, that a prefix is let in that nobody has."""


def threshold(noise: ReleasedNoise, cells: int, rounds: int, invented: float = INVENTED) -> int:
    """Return the least count at which a candidate is kept.

    Parameters
    ----------
    noise : ReleasedNoise
        Of a cell.
    cells : int
        Candidates of the round.
    rounds : int
        T.
    invented : float
        beta, in (0, 1).

    Returns
    -------
    int
        t, at least 1.
    """
    allowed = invented / rounds / cells
    low, high = 0, 1
    while noise.upper_tail(high) > allowed:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if noise.upper_tail(middle) > allowed else (low, middle)
    return high


def survivors(
    question: QueryQuestion,
    noisy: NDArray[np.int64],
    noise: ReleasedNoise,
    payload: bytes = b"",
) -> tuple[str, ...]:
    """Return the prefixes that a round of a query for words keeps.

    Parameters
    ----------
    question : QueryQuestion
        Its query is of kind ``words``.
    noisy : ndarray of int64, shape (candidates,)
        The round's noisy sum.
    noise : ReleasedNoise
        Of a cell.
    payload : bytes
        The prefixes that the round continued; empty in the first.

    Returns
    -------
    tuple of str
        Ascending, at most ``max_prefixes``, those of the largest counts. After the last round they
        are the words, padded. Empty where nothing reaches the threshold: then no round is left.

    Raises
    ------
    QueryError
        If the query is of another kind, or the sum of another length.
    """
    kept, _ = kept_candidates(question, noisy, noise, payload)
    return tuple(sorted(kept))


def payload_of(prefixes: tuple[str, ...]) -> bytes:
    """Return the prefixes as the payload of the next round's request."""
    return "\n".join(prefixes).encode()


def is_last(question: QueryQuestion, payload: bytes) -> bool:
    """Return whether the round that continues these prefixes completes the words.

    Parameters
    ----------
    question : QueryQuestion
        Its query is of kind ``words``.
    payload : bytes
        The prefixes; empty in the first round.

    Returns
    -------
    bool
    """
    query, column = _words(question)
    length = len(words.prefixes(column, payload, query.max_prefixes)[0])
    return length + words.STEP >= words.STEP * words.rounds(column)


def kept_candidates(
    question: QueryQuestion,
    noisy: NDArray[np.int64],
    noise: ReleasedNoise,
    payload: bytes,
) -> tuple[dict[str, int], int]:
    """Return the candidates that are kept, with their noisy counts, and the threshold.

    Parameters
    ----------
    question, noisy, noise, payload
        As for :func:`survivors`.

    Returns
    -------
    kept : dict
        Noisy count of each candidate, the largest first, of equal ones the first in order.
    threshold : int
        t.

    Raises
    ------
    QueryError
        As for :func:`survivors`.
    """
    query, column = _words(question)
    prefixes = words.prefixes(column, payload, query.max_prefixes)
    names = words.candidates(column, prefixes)
    if noisy.shape != (len(names),):
        raise QueryError(f"words: a sum of shape {noisy.shape} for {len(names)} candidates")
    least = threshold(noise, len(names), words.rounds(column))
    # A stable sort of the negated counts: ties go to the first in order, whatever the platform.
    order = np.argsort(-noisy, kind="stable")[: query.max_prefixes]
    kept = {names[i]: int(noisy[i]) for i in order if noisy[i] >= least}
    return kept, least


def without_padding(word: str) -> str:
    """Return a word of the last round as it was written."""
    return word.rstrip(PADDING)


def _words(question: QueryQuestion) -> tuple[Words, TextColumn]:
    query = question.query
    if not isinstance(query, Words):
        raise QueryError(f"prefixes are of words, not of {query.kind}")
    return query, query.text(question.domains)
