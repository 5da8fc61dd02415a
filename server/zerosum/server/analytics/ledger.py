"""The write-ahead ledger of queries: each sum is charged, with its receipt, before it is asked for.

The file is ``queries.jsonl`` of a folder of queries, beside ``ledger.jsonl`` of training. A line is
on the disk before what it announces, and is never taken back. A key that this version does not know
is refused: it may say of something spent that would then not be counted.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zerosum.client.files.durable_append import append_durably
from zerosum.client.queries.errors import QueryError
from zerosum.server.analytics.ledger_lines import (
    QueryCharged,
    QueryEntry,
    QueryHeader,
    QueryKey,
    QuerySessionEnded,
    QuerySumAbandoned,
    QuerySumCharged,
    Receipts,
    parse_query_entry,
    parse_query_header,
)
from zerosum.server.analytics.query_files import QUERY_LEDGER, SUMS
from zerosum.server.analytics.receipts import read_receipt
from zerosum.server.privacy.ledger_file import LedgerMismatchError, complete_lines, damaged
from zerosum.server.privacy.observers import ObserverName

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from zerosum.server.private_sum.coordinator import Charge, ChargeKind


@dataclass(frozen=True)
class Part:
    """One sum of an answer: which question, which paid answer to it, which of its sums.

    Attributes
    ----------
    ask : str
        Digest of the question.
    asked : int
        Which paid answer.
    number, of : int
        Which of the answer's sums, from 0, and how many these are.
    name : str
        Of the answer.
    query : dict
        What is asked, in plain values.
    receipts : mapping
        By observer, in plain values.
    """

    ask: str
    asked: int
    number: int
    of: int
    name: str
    query: dict[str, Any]
    receipts: Receipts

    @property
    def place(self) -> tuple[str, int, int]:
        """Its question, answer and number."""
        return self.ask, self.asked, self.number


@dataclass
class ChargedSum:
    """A sum that was charged: its number, and how far it got.

    Attributes
    ----------
    charge : QueryCharged
        Of its first group.
    opened : bool
        Whether its sum was about to be opened: what a budget counts.
    abandoned : bool
        Whether it was given up.
    reason : str
        Why it was given up.
    """

    charge: QueryCharged
    opened: bool = False
    abandoned: bool = False
    reason: str = ""

    @property
    def number(self) -> tuple[int, int]:
        """Round and attempt."""
        return self.charge.key[:2]

    def receipt(self, observer: ObserverName) -> "DpEvent":
        """Return what it costs against an observer; raise ValueError where nothing bounds it."""
        return read_receipt(self.charge.receipts.get(observer))


class QueryLedger:
    """Charges the sums of queries ahead of each, and knows what was charged.

    Parameters
    ----------
    path : Path or None
        ``queries.jsonl``; read if it exists, appended to durably. None keeps all in memory.
    header : QueryHeader
        Of the budget: a file of another one is refused.
    read_only : bool
        Whether nothing is written, not even a torn last line cut off.

    Raises
    ------
    LedgerMismatchError
        If the file belongs to another budget, or cannot be read.
    """

    def __init__(self, path: Path | None, header: QueryHeader, *, read_only: bool = False) -> None:
        self._path, self._read_only = path, read_only
        self.header = header
        self._failed: OSError | None = None
        self._sums: dict[tuple[int, int], ChargedSum] = {}
        self._charged: dict[QueryKey, QueryCharged] = {}
        self._opened: set[QueryKey] = set()
        self._ended: set[QueryKey] = set()
        self._highest = 0
        self._reserved: tuple[str, int] | None = None
        for entry in self._read():
            try:
                self._take(entry)
            except ValueError as error:
                raise damaged(path or Path(QUERY_LEDGER), error) from None

    @property
    def sums(self) -> Sequence[ChargedSum]:
        """All sums that clients were asked for, in order."""
        return tuple(self._sums.values())

    @property
    def last_round(self) -> int:
        """The latest round that was charged for; 0 where none was."""
        return max((number[0] for number in self._sums), default=0)

    def number(self, ask: str) -> int:
        """Return the round of a question's next sum, under which nobody was asked before.

        Clients begin a session once: a number that was given to a sum in this process is not given
        again, though the sum was given up before anything of it was charged.

        Parameters
        ----------
        ask : str
            Digest of the question.

        Returns
        -------
        int
            The one that was reserved for it, if no later one was given meanwhile.
        """
        reserved, self._reserved = self._reserved, None
        if reserved == (ask, self._highest) and self._highest > self.last_round:
            return self._highest
        self._highest = max(self._highest, self.last_round) + 1
        return self._highest

    def reserve(self, ask: str) -> int:
        """Reserve the next round for a question that is asked next, and return it.

        Parameters
        ----------
        ask : str
            Digest of the question.

        Returns
        -------
        int
            Of its first sum, unless another is asked for before.
        """
        self._highest = max(self._highest, self.last_round) + 1
        self._reserved = ask, self._highest
        return self._highest

    def receipts(self, observer: ObserverName) -> list["DpEvent"]:
        """Return what all opened sums cost against an observer.

        The groups of one sum are disjoint, so that a client is in one of them: a sum counts once.

        Parameters
        ----------
        observer : str
            A sum that was never opened costs nothing but against "local".

        Returns
        -------
        list of DpEvent
            In the order in which they were charged.

        Raises
        ------
        ValueError
            If nothing bounds one of them against this observer.
        """
        return [
            each.receipt(observer)
            for each in self._sums.values()
            if each.opened or observer == "local"
        ]

    def check_released(self, released: Collection[tuple[int, int]]) -> None:
        """Refuse to go on where the ledger has lost lines of sums that were opened.

        A line is on the disk before its sum is opened, and is never taken back: a sum that was
        kept and is not charged shows that what was spent is more than the ledger says.

        Parameters
        ----------
        released : collection of (round, attempt)
            Sums that the folder holds, listed before the ledger was read.

        Raises
        ------
        LedgerMismatchError
            If one of them was never charged.
        """
        opened = {number for number, each in self._sums.items() if each.opened}
        if lost := sorted(set(released) - opened):
            round, attempt = lost[0]
            raise damaged(
                self._path or Path(QUERY_LEDGER),
                f"{SUMS}/{round}-{attempt}.json was released, and no line says that it was paid "
                "for",
            )

    def answers_begun(self, ask: str) -> int:
        """Return how many paid answers to a question were begun."""
        return len({each.charge.asked for each in self._sums.values() if each.charge.ask == ask})

    def planned(self, observer: ObserverName) -> "list[DpEvent] | None":
        """Return all receipts that the rule "plan" fixed; None under the other rules."""
        if self.header.budget["rule"] != "plan":
            return None
        return [
            read_receipt(each.receipts.get(observer))
            for each in self.header.planned
            for _ in range(each.sums)
        ]

    def check_planned(self, ask: str, due: int) -> None:
        """Refuse sums that the plan does not have, or has no more of.

        Under the rule "plan" all receipts are fixed before the first answer, spare ones for second
        attempts too: a sum that was opened and given up has used one.

        Parameters
        ----------
        ask : str
            Digest of the question.
        due : int
            Sums that are to be charged.

        Raises
        ------
        QueryError
            If the plan does not admit them.
        """
        planned = next((each for each in self.header.planned if each.ask == ask), None)
        if planned is None:
            raise QueryError(
                'this budget has rule = "plan", which fixes all queries beforehand, and this is '
                'none of them: ask it in a folder of its own, or under rule = "sum"'
            )
        used = sum(each.opened and each.charge.ask == ask for each in self._sums.values())
        if used + due > planned.sums:
            raise QueryError(
                f"the plan has {planned.sums} sums of this query, {used} of them are spent and "
                f"{due} more are needed: write attempts = 2 at a query of a new plan, for a second "
                "attempt"
            )

    def latest(self, place: tuple[str, int, int]) -> ChargedSum | None:
        """Return the last sum that was charged for a part; None where none was."""
        latest = None
        for each in self._sums.values():
            charge = each.charge
            if (charge.ask, charge.asked, charge.part) == place:
                latest = each
        return latest

    def charging(
        self, part: Part, round: int, attempt: int, groups: Sequence[Sequence[int]]
    ) -> "Charge":
        """Return the call by which a coordinator charges the sessions of one sum.

        Parameters
        ----------
        part : Part
            What the sum is for.
        round, attempt : int
            Of the sum. The same numbers again are the same release, and cost nothing.
        groups : sequence of sequence of int
            Roster indices, one sequence a session.

        Returns
        -------
        callable
            Of the stage that is charged, the session's place in ``groups``, and clients.
        """

        def charge(what: "ChargeKind", group: int, clients: tuple[int, ...]) -> None:
            self._check_written()
            key = (round, attempt, group)
            if what == "contributions":
                self._charge_contributions(part, key, clients, len(groups[group]))
            elif what == "survived":
                # A sum that was given up before anybody was asked for a vector has no line.
                if key in self._charged and key not in self._ended:
                    cohort, survived = len(groups[group]), len(clients)
                    self._append(QuerySessionEnded(key=key, cohort=cohort, survived=survived))
            elif key not in self._opened:
                self._append(QuerySumCharged(key=key))

        return charge

    def abandon(self, round: int, attempt: int, reason: str) -> None:
        """Record that a sum was given up; what was charged for it stays charged.

        Parameters
        ----------
        round, attempt : int
            Of the sum; nothing is written where nobody was asked.
        reason : str
            For people.
        """
        charged = self._sums.get((round, attempt))
        if charged is not None and not charged.abandoned:
            self._append(QuerySumAbandoned(key=charged.charge.key, reason=reason))

    def _charge_contributions(
        self, part: Part, key: QueryKey, clients: Sequence[int], cohort: int
    ) -> None:
        entry = QueryCharged(
            key=key,
            ask=part.ask,
            asked=part.asked,
            part=part.number,
            parts=part.of,
            name=part.name,
            query=part.query,
            receipts={name: None if r is None else dict(r) for name, r in part.receipts.items()},
            cohort=cohort,
            clients=sorted(map(int, clients)),
        )
        before = self._charged.get(key)
        if before is None:
            self._append(entry)
        elif _release(before) != _release(entry):
            raise ValueError(f"{key} was charged for another sum: a number is never used twice")

    def _check_written(self) -> None:
        """Refuse to go on after a line that may not be on the disk: what it charges is not known.

        In memory it is counted, and would not be written again.
        """
        if self._failed is not None:
            raise QueryError(
                f"{self._path} could not be written ({self._failed.strerror or self._failed}): "
                "nothing more is asked until the folder is opened again"
            )

    def _append(self, entry: QueryEntry | QueryHeader) -> None:
        self._check_written()
        if not isinstance(entry, QueryHeader):
            self._take(entry)
        if self._path is not None and not self._read_only:
            # By json, not by pydantic, which writes a large float otherwise.
            line = json.dumps(entry.model_dump(mode="json"), separators=(",", ":"))
            try:
                append_durably(self._path, line.encode() + b"\n")
            except OSError as error:
                self._failed = error
                raise

    def _take(self, entry: QueryEntry) -> None:
        """Count an entry.

        Raises
        ------
        ValueError
            If it does not follow from those before it.
        """
        key = entry.key
        if isinstance(entry, QueryCharged):
            if key in self._charged or (entry.clients and entry.clients[-1] >= self.header.clients):
                raise ValueError(f"{list(key)} is charged twice, or for clients that are not there")
            for receipt in filter(None, entry.receipts.values()):
                read_receipt(receipt)
            self._charged[key] = entry
            self._sums.setdefault(key[:2], ChargedSum(entry))
            return
        if key not in self._charged:
            raise ValueError(f"nobody was asked under {list(key)}")
        charged = self._sums[key[:2]]
        if isinstance(entry, QuerySumCharged):
            self._opened.add(key)
            charged.opened = True
        elif isinstance(entry, QuerySessionEnded):
            self._ended.add(key)
        else:
            charged.abandoned, charged.reason = True, entry.reason

    def _read(self) -> list[QueryEntry]:
        path = self._path
        if path is None:
            return []
        lines = complete_lines(path, cut=not self._read_only)
        if not lines:
            self._append(self.header)
            return []
        before = parse_query_header(lines[0], path)
        if before != self.header:
            raise LedgerMismatchError(f"{path}: {_difference(before, self.header)}")
        return [parse_query_entry(line, path) for line in lines[1:]]


def _release(entry: QueryCharged) -> QueryCharged:
    """Return an entry without what does not change the release: who answered, and its name."""
    return entry.model_copy(update={"clients": [], "name": ""})


def _difference(before: QueryHeader, after: QueryHeader) -> str:
    """Say what a budget was opened with, and is not any more."""
    old, new = before.model_dump(), after.model_dump()
    for name, value in old["budget"].items():
        if new["budget"].get(name) != value:
            return (
                f"the budget was opened with {name} = {value!r}, not {new['budget'].get(name)!r}, "
                "and stays what it is: go on with it, or choose another folder"
            )
    changed = [name for name in old if old[name] != new[name]]
    return (
        f"it was opened with other {', '.join(changed)}: go on with what it was started with, or "
        "choose another folder"
    )
