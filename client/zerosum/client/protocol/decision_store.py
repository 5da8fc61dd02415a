"""The record of a client's decisions: what it must never do twice.

It holds decisions (hashes, counters), never seeds or shares. A caller makes a line durable before
the message that it justifies leaves. A deployed client keeps its record in files
(:mod:`~zerosum.client.protocol.file_store`), a simulated one in memory.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar, Final, Protocol

from zerosum.client.privacy.spending import BudgetRule, Price, Spending
from zerosum.client.session_limits import Openings
from zerosum.secagg import OldRoster, StaleSession

ROUNDS_KEPT = 2
"""Numbers of sessions that may lie between two that are open at once: a federated evaluation \
stands between two rounds of training."""

LONGEST_WAIT_SECONDS = 3600.0
"""How long a message waits for the record where nobody says otherwise."""


class DamagedStoreError(Exception):
    """Unreadable record of decisions: the client takes part in nothing until enrolled anew."""


class UnusableStoreError(Exception):
    """Disk or path that refuses reads or writes of the record; one line, with the cure."""


class BusyStoreError(Exception):
    """Another message holds the record for longer than this one may wait."""


class DecisionStore(Protocol):
    """Record of one client's decisions, across runs and restarts."""

    @property
    def accounts(self) -> bool:
        """Return whether costs are kept even where no policy bounds them yet."""
        ...

    def exclusive(self, longest: float = LONGEST_WAIT_SECONDS) -> AbstractContextManager[None]:
        """Lock the store from before its first read until an answer leaves.

        Two messages may reach a node at once, each in a process of its own.

        Parameters
        ----------
        longest : float
            Seconds to wait for another.

        Raises
        ------
        BusyStoreError
            If that is not enough.
        """
        ...

    def lines(self, session: bytes) -> tuple[bytes, ...]:
        """Return the lines recorded for a session, oldest first."""
        ...

    def append(self, session: bytes, lines: tuple[bytes, ...]) -> None:
        """Record lines for a session; durable when this returns.

        Parameters
        ----------
        session : bytes
            Digest of the session.
        lines : tuple of bytes
            Added after those that are there.
        """
        ...

    def raise_high_water(
        self,
        run_id: bytes,
        round: int,
        attempt: int,
        session: bytes = b"",
        most: Openings | None = None,
    ) -> None:
        """Admit a new session, and count it where openings are bounded; durable when this returns.

        Parameters
        ----------
        run_id : bytes
            Of the session.
        round, attempt : int
            Of the session; compared in this order.
        session : bytes
            Its digest, under which lines are kept.
        most : Openings, optional
            Bounds on sessions a run and a day.

        Raises
        ------
        StaleSession
            Unless it is newer than all before, of a run that is not over.
        TooManyOpeningsError
            If ``most`` are reached.
        """
        ...

    def is_over(self, run_id: bytes, round: int) -> bool:
        """Return whether lines of a round's sessions may be gone: nothing goes on from them.

        Parameters
        ----------
        run_id : bytes
            Of the session.
        round : int
            Of the session.

        Returns
        -------
        bool
            True where a message of that round is refused.
        """
        ...

    def admit_roster(self, version: int, digest: bytes) -> None:
        """Remember the newest roster.

        Parameters
        ----------
        version : int
            Of the roster.
        digest : bytes
            Of the roster: one version has one.

        Raises
        ------
        OldRoster
            If a newer one was used here, or another one of this version.
        """
        ...

    @property
    def contributions(self) -> int:
        """Return the number of vectors that this client has sent."""
        ...

    @property
    def spent(self) -> tuple[float, ...] | None:
        """Sum of the client's costs: empty for none, None if one vector was unbounded."""
        ...

    @property
    def spending(self) -> Spending:
        """Return all that was spent, by unit, and the rule that it is held to."""
        ...

    def open_budget(
        self, order: int | None, max_epsilon: float, delta: float, rule: BudgetRule = "renyi"
    ) -> int | None:
        """Fix rule and order of a budget, unless they are fixed; durable when this returns.

        Parameters
        ----------
        order : int or None
            What the policy's budget asks for; None under the rule "sum".
        max_epsilon, delta : float
            The policy's limits now.
        rule : str
            What the policy asks for.

        Returns
        -------
        int or None
            The order that was fixed first.
        """
        ...

    def count_contribution(
        self,
        cost: Price | Sequence[float] | None = None,
        run_id: bytes = b"",
        flower_run: str = "",
    ) -> None:
        """Count one more vector, and what it cost if that is bounded; durable when this returns.

        Parameters
        ----------
        cost : Price or sequence of float, optional
            A bare row of Renyi divergences is the client's; None where nothing bounds it.
        run_id : bytes
            Whose vector it is.
        flower_run : str
            What Flower calls that run: for people alone.
        """
        ...


_NOTHING: Final = Spending()
"""Shared by all clients that sent nothing: there may be very many."""


class MemoryStore:
    """Record in memory, for simulated clients, which live as long as their process.

    There may be one for each of very many clients.
    """

    __slots__ = ("_high_water", "_lines", "_roster", "_spending")
    accounts: ClassVar[bool] = False

    def __init__(self) -> None:
        self._lines: tuple[bytes, tuple[bytes, ...]] | None = None
        self._high_water: dict[bytes, tuple[int, int]] = {}
        self._roster: tuple[int, str] | None = None
        self._spending = _NOTHING

    def exclusive(self, longest: float = LONGEST_WAIT_SECONDS) -> AbstractContextManager[None]:
        """Do nothing: one process, one message at a time."""
        return nullcontext()

    def lines(self, session: bytes) -> tuple[bytes, ...]:
        """Return the lines of a session."""
        return self._lines[1] if self._lines is not None and self._lines[0] == session else ()

    def append(self, session: bytes, lines: tuple[bytes, ...]) -> None:
        """Keep lines of the newest session only: an older one is refused by its number."""
        self._lines = session, self.lines(session) + lines

    def end_session(self) -> None:
        """Forget the lines: the session is over, and is never opened again."""
        self._lines = None

    def raise_high_water(
        self,
        run_id: bytes,
        round: int,
        attempt: int,
        session: bytes = b"",
        most: Openings | None = None,
    ) -> None:
        """Admit a session newer than all before; in memory none are counted."""
        self._high_water[run_id] = newer_mark(self._high_water.get(run_id), (round, attempt))

    def is_over(self, run_id: bytes, round: int) -> bool:
        """Return whether a round lies further back than two open ones can."""
        return is_past(self._high_water.get(run_id), round)

    def admit_roster(self, version: int, digest: bytes) -> None:
        """Remember the newest roster."""
        self._roster = not_older(self._roster, (version, digest.hex()))

    @property
    def contributions(self) -> int:
        """Vectors sent."""
        return self._spending.contributions

    @property
    def spending(self) -> Spending:
        """All that was spent."""
        return self._spending

    @property
    def spent(self) -> tuple[float, ...] | None:
        """The sum of all costs."""
        return self._spending.divergences if self._spending.bounded else None

    def open_budget(
        self, order: int | None, max_epsilon: float, delta: float, rule: BudgetRule = "renyi"
    ) -> int | None:
        """Fix the order, unless one is fixed."""
        self._spending = self._spending.with_budget(order, max_epsilon, delta, rule)
        return self._spending.order

    def count_contribution(
        self,
        cost: Price | Sequence[float] | None = None,
        run_id: bytes = b"",
        flower_run: str = "",
    ) -> None:
        """Count one more vector, and its cost."""
        self._spending = self._spending.with_contribution(cost, run_id)


def newer_mark(before: tuple[int, int] | None, new: tuple[int, int]) -> tuple[int, int]:
    """Return the mark of a session that begins.

    Marks only rise, across restarts as well. A session that is begun twice would have two sets of
    masks around the same noise.

    Parameters
    ----------
    before : tuple of int, or None
        (round, attempt) of the newest session so far.
    new : tuple of int
        (round, attempt) of this one.

    Returns
    -------
    tuple of int
        ``new``.

    Raises
    ------
    StaleSession
        Unless it is newer.
    """
    if before is not None and new <= before:
        raise StaleSession(
            f"round {new[0]} attempt {new[1]} is not newer than {before}, begun here before: the "
            "server asked again, or another node has the same state-dir, and each needs its own"
        )
    return new


def is_past(mark: tuple[int, int] | None, round: int) -> bool:
    """Return whether a round lies further back than two open ones can.

    Parameters
    ----------
    mark : tuple of int, or None
        (round, attempt) of the newest session so far.
    round : int
        Of another.

    Returns
    -------
    bool
        True where nothing goes on from that round.
    """
    return mark is not None and round < mark[0] - ROUNDS_KEPT


def not_older(before: tuple[int, str] | None, new: tuple[int, str]) -> tuple[int, str]:
    """Return the newest roster.

    Parameters
    ----------
    before, new : tuple of int and str
        Version and digest; ``before`` is None where there was none.

    Returns
    -------
    tuple of int and str
        ``new``.

    Raises
    ------
    OldRoster
        If it is older, or another one of the same version.
    """
    if before is not None and new[0] < before[0]:
        raise OldRoster(f"roster version {new[0]} comes before {before[0]}, known here")
    if before is not None and new[0] == before[0] and new != before:
        raise OldRoster(f"another roster of version {new[0]} was used here before")
    return new
