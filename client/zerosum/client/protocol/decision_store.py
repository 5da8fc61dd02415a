"""The durable record of a client's decisions: what it must never do twice.

It holds decisions (hashes, counters), never seeds or shares. A caller makes a line durable
before the message that it justifies leaves.
"""

import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

from zerosum.client.files.file_lock import HeldError, held_alone
from zerosum.client.files.operating_system import sync_folder
from zerosum.client.files.private_files import (
    open_private,
    private_folder,
    read_private,
    replace_private,
)
from zerosum.client.privacy.spending import Spending, run_name
from zerosum.client.protocol.closed_runs import ClosedRuns
from zerosum.client.session_limits import (
    Openings,
    TooManyOpeningsError,
    are_openings,
    check_openings,
    count_opening,
    expired_runs,
    turn_back,
)
from zerosum.secagg import OldRoster, StaleSession

log = logging.getLogger("zerosum.client")

ROUNDS_KEPT = 2
"""Numbers of sessions that may lie between two that are open at once: a federated evaluation \
stands between two rounds of training."""

LONGEST_WAIT = 3600.0
"""Seconds for which a message waits for the record where nobody says otherwise."""

_SAID_EVERY = 60.0
"""Seconds between two lines about a record that another process holds."""


COUNTERS, SESSIONS, CLOSED = "counters.json", "sessions", "closed"
"""What a state directory holds."""

NO_WAY_BACK = (
    "what this node did is not known any more. A copy would forget what came after it, so that the "
    "same is done twice: have this node's index and identity taken out of the roster, and let it "
    "come back with an index, an identity and a state-dir that are new"
)


class DamagedStoreError(Exception):
    """What a client decided cannot be read any more: it takes part in nothing."""


class UnusableStoreError(Exception):
    """The disk, or a path, refuses what a record needs; the message is one line, with the cure."""


class BusyStoreError(Exception):
    """Another message is being answered for longer than this one may wait."""


class DecisionStore(Protocol):
    """Decisions of one client, across runs and restarts."""

    @property
    def accounts(self) -> bool:
        """Whether costs are kept even where no policy bounds them yet."""
        ...

    def exclusive(self, longest: float = LONGEST_WAIT) -> AbstractContextManager[None]:
        """Hold the store alone, from before anything is read in it until an answer leaves.

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
        """Record lines for a session; durable when this returns."""
        ...

    def raise_high_water(
        self,
        run_id: bytes,
        round: int,
        attempt: int,
        session: bytes = b"",
        most: Openings | None = None,
    ) -> None:
        """Admit a new session, and count it where openings are bounded.

        Raises
        ------
        StaleSession
            Unless it is newer than all before, of a run that is not over.
        TooManyOpeningsError
            If ``most`` are reached.
        """
        ...

    def is_over(self, run_id: bytes, round: int) -> bool:
        """Return whether lines of a round's sessions may be gone: nothing goes on from them."""
        ...

    def admit_roster(self, version: int, digest: bytes) -> None:
        """Remember the newest roster; raise OldRoster for any before it."""
        ...

    @property
    def contributions(self) -> int:
        """How many vectors this client has sent."""
        ...

    @property
    def spent(self) -> tuple[float, ...] | None:
        """The sum of the costs of all vectors sent, empty for none; None if one had no bound."""
        ...

    def open_budget(self, order: int, max_epsilon: float, delta: float) -> int:
        """Fix the order at which a budget is kept, unless one is fixed; durable when this returns.

        Parameters
        ----------
        order : int
            What the policy's budget asks for.
        max_epsilon, delta : float
            The policy's limits now.

        Returns
        -------
        int
            The order that was fixed first.
        """
        ...

    def count_contribution(self, cost: Sequence[float] | None = None, run_id: bytes = b"") -> None:
        """Count one more vector, and what it cost if that is bounded; durable when this returns."""
        ...


_NOTHING: Final = Spending()


class MemoryStore:
    """Decisions in memory: for simulations, where a client lives as long as its process.

    There may be one for each of very many clients.
    """

    __slots__ = ("_high_water", "_lines", "_roster", "_spending")
    accounts: ClassVar[bool] = False

    def __init__(self) -> None:
        self._lines: tuple[bytes, tuple[bytes, ...]] | None = None
        self._high_water: dict[bytes, tuple[int, int]] = {}
        self._roster: tuple[int, str] | None = None
        self._spending = _NOTHING

    def exclusive(self, longest: float = LONGEST_WAIT) -> AbstractContextManager[None]:
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
        return _is_over(self._high_water.get(run_id), round)

    def admit_roster(self, version: int, digest: bytes) -> None:
        """Remember the newest roster."""
        self._roster = _not_older(self._roster, (version, digest.hex()))

    @property
    def contributions(self) -> int:
        """Vectors sent."""
        return self._spending.contributions

    @property
    def spent(self) -> tuple[float, ...] | None:
        """The sum of all costs."""
        return self._spending.divergences if self._spending.bounded else None

    def open_budget(self, order: int, max_epsilon: float, delta: float) -> int:
        """Fix the order, unless one is fixed."""
        self._spending = self._spending.with_budget(order, max_epsilon, delta)
        return self._spending.order or order

    def count_contribution(self, cost: Sequence[float] | None = None, run_id: bytes = b"") -> None:
        """Count one more vector, and its cost."""
        self._spending = self._spending.with_contribution(cost, run_id)


class FileStore:
    """Decisions in a folder: one append-only file a session, one small file of counters.

    A damaged record raises DamagedStoreError: what cannot be remembered is not done again.
    Records of runs that are over expire (:mod:`~zerosum.client.protocol.closed_runs`).

    Parameters
    ----------
    folder : Path
        The node's state directory, of mode 0700: made if it is absent, with files of mode 0600.
    clock : callable
        Returns the time in seconds: for days and for runs that are over.

    Raises
    ------
    OpenToOthersError
        If others than this process's user can reach the folder or a file in it.
    UnusableStoreError
        By any method, where the folder cannot be read or written: nothing was answered then.
    """

    accounts: ClassVar[bool] = True

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder, self._clock = folder, clock
        self._sessions = folder / SESSIONS
        with _usable(folder):
            private_folder(folder)
            private_folder(self._sessions)
        self._counters = folder / COUNTERS
        self._closed = ClosedRuns(folder / CLOSED)

    @contextmanager
    def exclusive(self, longest: float = LONGEST_WAIT) -> Iterator[None]:
        """Wait for other processes of this node, then keep them out; a killed one holds nothing."""
        said = -math.inf

        def say(waited: float, holder: str) -> None:
            nonlocal said
            if waited >= said + _SAID_EVERY:
                said = waited
                log.info(
                    "waiting for the answer to another message: %s holds %s", holder, self._folder
                )

        began = time.monotonic()
        try:
            with ExitStack() as stack:
                with _usable(self._folder):
                    stack.enter_context(held_alone(self._folder / "lock", longest, say))
                yield
        except HeldError as error:
            raise BusyStoreError(
                f"{self._folder} has been held by {error}, which answers another message, for "
                f"{time.monotonic() - began:.0f} seconds, longer than the policy's longest_wait"
            ) from None

    def lines(self, session: bytes) -> tuple[bytes, ...]:
        """Return the whole lines of a session; one torn by a crash was never acted upon."""
        try:
            with _usable(self._folder, FileNotFoundError):
                data = read_private(self._path(session))
        except FileNotFoundError:
            return ()
        whole, _, _ = data.rpartition(b"\n")
        try:
            return tuple(bytes.fromhex(line.decode()) for line in whole.split(b"\n") if line)
        except ValueError:
            raise DamagedStoreError(f"{self._path(session)} is damaged: {NO_WAY_BACK}") from None

    def append(self, session: bytes, lines: tuple[bytes, ...]) -> None:
        """Append lines after the last whole one and flush file and folder to the disk."""
        with _usable(self._folder):
            with os.fdopen(open_private(self._path(session)), "r+b") as file:
                whole = file.read().rfind(b"\n") + 1
                file.truncate(whole)
                file.seek(whole)
                file.write(b"".join(line.hex().encode() + b"\n" for line in lines))
                file.flush()
                os.fsync(file.fileno())
            sync_folder(self._sessions)

    def raise_high_water(
        self,
        run_id: bytes,
        round: int,
        attempt: int,
        session: bytes = b"",
        most: Openings | None = None,
    ) -> None:
        """Admit a session newer than all before, durably; delete the lines of those long over."""
        counters, now = self._read(), int(self._clock())
        marks, run = counters["high_water"], run_name(run_id)
        before = marks.get(run)
        if before is None and self._is_closed(run, counters):
            raise StaleSession("the run is over: no session began in it for run_timeout")
        mark = newer_mark(None if before is None else (before[0], before[1]), (round, attempt))
        turn_back(counters, now)
        if most is not None:
            self._check_openings(counters, run, most)
        count_opening(counters, run, now)
        marks[run] = list(mark)
        known = counters["sessions"].get(run, [])
        over = [digest for number, digest in known if _is_over(mark, number)]
        kept = [[number, digest] for number, digest in known if not _is_over(mark, number)]
        counters["sessions"][run] = [*kept, [round, session.hex()]]
        if most is not None:
            over += self._close(expired_runs(counters, run, now, most), counters)
        self._write(counters)
        for digest in over:  # only now: no message of theirs is answered any more
            self._path(bytes.fromhex(digest)).unlink(missing_ok=True)

    def _check_openings(self, counters: dict[str, Any], run: str, most: Openings) -> None:
        try:
            check_openings(counters, run, most)
        except TooManyOpeningsError:
            self._write(counters)  # a day that a clock set back began now ends a day from now
            raise

    def _close(self, runs: Sequence[str], counters: dict[str, Any]) -> list[str]:
        """Keep no more of runs than that they are over; return the sessions whose lines may go.

        Their names are on the disk before the counters that lack their marks are: a crash between
        the two leaves runs that are closed as well as open, and begin no session twice either way.
        """
        if runs:
            with _usable(self._folder):
                counters["closed"] = self._closed.add(runs)
        sessions = []
        for run in runs:
            sessions += [digest for _, digest in counters["sessions"].pop(run, [])]
            del counters["high_water"][run], counters["runs"][run]
        return sessions

    def _is_closed(self, run: str, counters: Mapping[str, Any]) -> bool:
        """Return whether a run without a mark had one, which expired."""
        with _usable(self._folder):
            found = self._closed.holds(run, counters["closed"])
        if found is None:
            raise DamagedStoreError(
                f"{self._folder}: the names of runs that are over are damaged or lost: "
                f"{NO_WAY_BACK}"
            )
        return found

    def is_over(self, run_id: bytes, round: int) -> bool:
        """Return whether a round lies further back than two open ones can."""
        counters, run = self._read(), run_name(run_id)
        mark = counters["high_water"].get(run)
        if mark is None:
            return self._is_closed(run, counters)
        return _is_over((mark[0], mark[1]), round)

    def admit_roster(self, version: int, digest: bytes) -> None:
        """Remember the newest roster, durably."""
        counters = self._read()
        known = counters["roster"]
        before = None if known is None else (int(known[0]), str(known[1]))
        new = _not_older(before, (version, digest.hex()))
        if new != before:
            counters["roster"] = list(new)
            self._write(counters)

    @property
    def contributions(self) -> int:
        """Vectors sent, across runs."""
        return self._spending().contributions

    @property
    def spent(self) -> tuple[float, ...] | None:
        """The sum of all costs, across runs; None too for vectors that an older version sent."""
        spending = self._spending()
        return spending.divergences if spending.bounded else None

    def open_budget(self, order: int, max_epsilon: float, delta: float) -> int:
        """Fix the order, unless one is fixed, and note the policy's limits; durably."""
        counters = self._read()
        before = spending_of(counters)
        spending = before.with_budget(order, max_epsilon, delta)
        if spending != before:
            self._write(counters | {"spending": spending.to_json()})
        return spending.order or order

    def count_contribution(self, cost: Sequence[float] | None = None, run_id: bytes = b"") -> None:
        """Count one more vector, and its cost, durably."""
        counters = self._read()
        spending = spending_of(counters).with_contribution(cost, run_id)
        counters |= {"contributions": spending.contributions, "spending": spending.to_json()}
        self._write(counters)

    def _spending(self) -> Spending:
        return spending_of(self._read())

    def _path(self, session: bytes) -> Path:
        return self._sessions / f"{session.hex()}.log"

    def _read(self) -> dict[str, Any]:
        with _usable(self._folder):
            return _read_counters(self._folder)

    def _write(self, counters: dict[str, Any]) -> None:
        with _usable(self._folder):
            replace_private(self._counters, json.dumps(counters).encode())


@contextmanager
def _usable(folder: Path, *passed: type[OSError]) -> Iterator[None]:
    """Turn what a disk or a path refuses into one line, but for errors that mean something."""
    try:
        yield
    except passed:
        raise
    except OSError as error:
        raise UnusableStoreError(
            f"state-dir {folder} cannot be used: {error}; nothing is answered until it can be read "
            "and written, by this process's user, on a local disk with room"
        ) from None


def read_spending(folder: Path) -> Spending:
    """Read what a node has spent, and write nothing: not a lock, and no folder.

    Counters are replaced whole, so that they can be read while the node answers.

    Parameters
    ----------
    folder : Path
        The node's state directory.

    Raises
    ------
    DamagedStoreError
        If the record cannot be read.
    OpenToOthersError
        If others than its owner can reach the record.
    """
    return spending_of(_read_counters(folder))


def _read_counters(folder: Path) -> dict[str, Any]:
    path, sessions = folder / COUNTERS, folder / SESSIONS
    try:
        found = json.loads(read_private(path))
    except FileNotFoundError:
        # They are written before the first session is: beside one they have been lost.
        begun = sessions.is_dir() and any(sessions.iterdir())
        found = None if begun or (folder / CLOSED).exists() else {}
    except (ValueError, RecursionError):
        found = None
    if not _are_counters(found):
        raise DamagedStoreError(f"{path} is damaged or lost: {NO_WAY_BACK}")
    read: dict[str, Any] = found
    empty: dict[str, Any] = {
        "high_water": {},
        "sessions": {},
        "runs": {},
        "day": None,
        "closed": 0,
        "roster": None,
        "contributions": 0,
        "spending": {},
    }
    return empty | read


def spending_of(counters: Mapping[str, Any]) -> Spending:
    """Read what was spent from a record's counters.

    Raises
    ------
    ValueError
        If that is not what this version writes, nor a record from before it did.
    """
    return Spending.from_json(counters.get("contributions", 0), counters.get("spending", {}))


def _are_counters(found: object) -> bool:
    """Return whether this is what a store writes, or a part of it."""
    if not isinstance(found, dict):
        return False
    marks, roster = found.get("high_water", {}), found.get("roster")
    sessions = found.get("sessions", {})
    pairs = marks.values() if isinstance(marks, dict) else [None]
    opened = sessions.values() if isinstance(sessions, dict) else [None]
    try:
        spending_of(found)
    except ValueError:
        return False
    # A run's mark goes with all that is known of it: one that was lost alone would be begun again.
    known = set(sessions) | set(found["runs"] if isinstance(found.get("runs"), dict) else ())
    return (
        all(_is_pair(pair, int) for pair in pairs)
        and all(map(_is_hexadecimal, marks))
        and known <= set(marks)
        and all(isinstance(each, list) and all(map(_is_session, each)) for each in opened)
        and (roster is None or _is_pair(roster, str))
        and are_openings(found)
    )


def _is_session(value: object) -> bool:
    """Return whether this is a round and the digest of a session."""
    if not _is_pair(value, str):
        return False
    return _is_hexadecimal(value[1])  # type: ignore[index]


def _is_hexadecimal(value: str) -> bool:
    return set(value) <= set("0123456789abcdef") and len(value) % 2 == 0


def _is_pair(value: object, second: type) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and type(value[0]) is int
        and type(value[1]) is second
    )


def newer_mark(before: tuple[int, int] | None, new: tuple[int, int]) -> tuple[int, int]:
    """Return the new (round, attempt); raise StaleSession unless it is newer than the last."""
    if before is not None and new <= before:
        raise StaleSession(
            f"round {new[0]} attempt {new[1]} is not newer than {before}, begun here before: the "
            "server asked again, or another node has the same state-dir, and each needs its own"
        )
    return new


def _is_over(mark: tuple[int, int] | None, round: int) -> bool:
    return mark is not None and round < mark[0] - ROUNDS_KEPT


def _not_older(before: tuple[int, str] | None, new: tuple[int, str]) -> tuple[int, str]:
    if before is not None and new[0] < before[0]:
        raise OldRoster(f"roster version {new[0]} comes before {before[0]}, known here")
    if before is not None and new[0] == before[0] and new != before:
        raise OldRoster(f"another roster of version {new[0]} was used here before")
    return new
