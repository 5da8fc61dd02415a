"""The lines of ``queries.jsonl``: typed in memory, JSON on the disk, never taken back.

A line with a key that this version does not know is refused: it may say of something spent that
would then not be counted.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field, TypeAdapter

from zerosum.server.privacy.ledger_file import (
    Count,
    LedgerLine,
    LedgerMismatchError,
    complete_lines,
    parse_line,
)
from zerosum.server.privacy.observers import ObserverName

QueryKey: TypeAlias = tuple[int, int, int]
"""Round, attempt, group: the session."""

Receipts: TypeAlias = Mapping[ObserverName, Mapping[str, Any] | None]
"""By observer the event that a sum costs against it, in plain values; None: nothing bounds it."""


class PlannedSums(LedgerLine):
    """Sums of one query that the rule "plan" fixes before the first answer."""

    ask: str
    sums: Count
    receipts: dict[ObserverName, dict[str, Any] | None]


class QueryHeader(LedgerLine):
    """The first line: the budget, and what every receipt follows from.

    Attributes
    ----------
    clients : int
        Of the roster.
    budget : dict
        Observer, unit, adjacency, epsilon, delta and rule, fixed when it is opened.
    planned : list of PlannedSums
        Under the rule "plan": all that may ever be charged.
    """

    type: Literal["queries"] = "queries"
    format: Literal[1] = 1
    clients: Count
    groups: Count
    protocol: str
    honest_fraction: float
    budget: dict[str, str | float]
    planned: list[PlannedSums] = Field(default_factory=list)


class QueryCharged(LedgerLine):
    """Clients are about to be asked for their vectors.

    Attributes
    ----------
    key : tuple of (round, attempt, group)
        The session.
    ask : str
        Hexadecimal digest of the question, as :attr:`~.costs.Costed.key`.
    asked : int
        Which paid answer to this question: 0, or more where a fresh one was bought.
    part, parts : int
        Which of the answer's sums, from 0.
    query : dict
        What is asked, in plain values.
    receipts : dict
        By observer.
    cohort : int
        The session's n.
    clients : list of int
        Roster indices.
    """

    type: Literal["contributions"] = "contributions"
    key: Annotated[QueryKey, Field(strict=False)]
    ask: str
    asked: Count
    part: Count
    parts: Count
    name: str
    query: dict[str, Any]
    receipts: dict[ObserverName, dict[str, Any] | None]
    cohort: Count
    clients: list[Count]


class QuerySumCharged(LedgerLine):
    """A sum is about to be opened."""

    type: Literal["sum"] = "sum"
    key: Annotated[QueryKey, Field(strict=False)]


class QuerySessionEnded(LedgerLine):
    """A session ended with so many survivors."""

    type: Literal["survived"] = "survived"
    key: Annotated[QueryKey, Field(strict=False)]
    cohort: Count
    survived: Count


class QuerySumAbandoned(LedgerLine):
    """A sum was given up: the next attempt at this part is another sum."""

    type: Literal["abandoned"] = "abandoned"
    key: Annotated[QueryKey, Field(strict=False)]
    reason: str


QueryEntry: TypeAlias = QueryCharged | QuerySumCharged | QuerySessionEnded | QuerySumAbandoned

_HEADER: Final = TypeAdapter(QueryHeader)
_ENTRY: Final[TypeAdapter[QueryEntry]] = TypeAdapter(
    Annotated[QueryEntry, Field(discriminator="type")]
)


def parse_query_header(line: bytes, path: Path) -> QueryHeader:
    """Read a first line.

    Parameters
    ----------
    line : bytes
        JSON.
    path : Path
        Where it stands, for the message.

    Returns
    -------
    QueryHeader
        What the line says.
    """
    header: QueryHeader = parse_line(_HEADER, line, path)
    return header


def parse_query_entry(line: bytes, path: Path) -> QueryEntry:
    """Read a line after the first.

    Parameters
    ----------
    line : bytes
        JSON.
    path : Path
        Where it stands, for the message.

    Returns
    -------
    QueryEntry
        What the line says.
    """
    entry: QueryEntry = parse_line(_ENTRY, line, path)
    return entry


def read_query_header(path: Path) -> QueryHeader:
    """Read the first line of a ledger of queries.

    Parameters
    ----------
    path : Path
        ``queries.jsonl``.

    Returns
    -------
    QueryHeader
        Of the budget that was opened.

    Raises
    ------
    LedgerMismatchError
        If there is none, or it is damaged.
    """
    lines = complete_lines(path, cut=False)
    if not lines:
        raise LedgerMismatchError(f"{path.parent} holds no {path.name}: nothing was asked yet")
    return parse_query_header(lines[0], path)
