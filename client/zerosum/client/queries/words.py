"""List the candidates of a round of the search for frequent words."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.schema import PADDING, TextColumn

STEP = 2
"""Characters that a round adds to a prefix."""


def rounds(column: TextColumn) -> int:
    """Return the number of rounds: half the column's length, rounded up."""
    return -(-column.length // STEP)


# A simulation asks for the same lists on behalf of each of its clients.
@lru_cache(maxsize=4)
def prefixes(column: TextColumn, payload: bytes, most: int) -> tuple[str, ...]:
    """Read the surviving prefixes of a request, and refuse what would count a record twice.

    Parameters
    ----------
    column : TextColumn
    payload : bytes
        UTF-8, newline-joined, strictly ascending, all of one round's length; empty in round one.
    most : int
        Most of them.

    Returns
    -------
    tuple of str
        The one empty prefix in round one.

    Raises
    ------
    QueryError
        If the payload is anything else.
    """
    if not payload:
        return ("",)
    try:
        found = tuple(payload.decode("utf-8").split("\n"))
    except UnicodeDecodeError as error:
        raise QueryError(f"words: the prefixes are not UTF-8: {error}") from None
    if len(found) > most:
        raise QueryError(f"words: {len(found)} prefixes and max_prefixes is {most}")
    length, letters = len(found[0]), set(column.alphabet)
    if length % STEP or not 0 < length < STEP * rounds(column):
        raise QueryError(f"words: prefixes of {length} characters are of no round but the first")
    for before, prefix in zip(("", *found), found, strict=False):
        if len(prefix) != length or prefix <= before:
            raise QueryError(
                f"words: prefix {prefix!r} after {before!r}: prefixes ascend strictly and have "
                f"one length, {length}"
            )
        word = prefix.rstrip(PADDING)
        if not word or len(word) > column.length or not letters.issuperset(word):
            raise QueryError(f"words: prefix {prefix!r} begins no word of the column")
    return found


def continuations(column: TextColumn, length: int) -> tuple[str, ...]:
    """Return what an unfinished prefix may be continued with, ascending.

    Two characters; one and padding; or padding alone, which ends a word. No word is empty, and
    none is longer than its column: at either end there are fewer.

    Parameters
    ----------
    column : TextColumn
    length : int
        Of the prefix.

    Returns
    -------
    tuple of str
    """
    last = length + 1 == column.length
    second = PADDING if last else PADDING + column.alphabet
    ends = [PADDING * STEP] if length else []
    return (*ends, *(a + b for a in column.alphabet for b in second))


def candidates(column: TextColumn, surviving: Sequence[str]) -> tuple[str, ...]:
    """Return the prefixes that a round counts, ascending: one cell each.

    Parameters
    ----------
    column : TextColumn
    surviving : sequence of str
        As `prefixes` returns them.

    Returns
    -------
    tuple of str
        A finished word is continued by padding alone.
    """
    ways = continuations(column, len(surviving[0]))
    found: list[str] = []
    for prefix in surviving:
        if prefix.endswith(PADDING):
            found.append(prefix + PADDING * STEP)
        else:
            found.extend(prefix + way for way in ways)
    return tuple(found)


@lru_cache(maxsize=4)
def cells(column: TextColumn, surviving: tuple[str, ...]) -> Mapping[str, int]:
    """Return the cell of each candidate, by its characters without padding.

    No two candidates of a round are the same without it: a finished word is shorter than the rest.

    Parameters
    ----------
    column : TextColumn
    surviving : tuple of str
        As `prefixes` returns them.

    Returns
    -------
    mapping of str to int
        Read-only.
    """
    listed = candidates(column, surviving)
    return MappingProxyType({word.rstrip(PADDING): cell for cell, word in enumerate(listed)})


def candidate_count(column: TextColumn, surviving: Sequence[str]) -> int:
    """Return how many candidates there are, without listing them.

    Parameters
    ----------
    column : TextColumn
    surviving : sequence of str
        As `prefixes` returns them.

    Returns
    -------
    int
    """
    finished = sum(prefix.endswith(PADDING) for prefix in surviving)
    letters, length = len(column.alphabet), len(surviving[0])
    second = 1 if length + 1 == column.length else letters + 1
    ways = letters * second + (length > 0)
    return finished + (len(surviving) - finished) * ways
