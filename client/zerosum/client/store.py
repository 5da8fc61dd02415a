"""The durable record of a client's decisions: what it must never do twice.

It holds decisions (hashes, counters), never seeds or shares. A caller makes a line durable
before the message that it justifies leaves.
"""

import fcntl
import hashlib
import json
import logging
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Final, Protocol

from zerosum.client.spending import Spending
from zerosum.secagg import OldRoster, StaleSession

log = logging.getLogger("zerosum.client")

ROUNDS_KEPT = 2
"""Numbers of sessions that may lie between two that are open at once: a federated evaluation \
stands between two rounds of training."""

_LOOKS_PER_SECOND = 20
_SAID_EVERY = 60.0
"""Seconds between two lines about a record that another process holds."""


COUNTERS, SESSIONS = "counters.json", "sessions"
"""What a state directory holds."""

NO_WAY_BACK = (
    "what this node did is not known any more. A copy would forget what came after it, so that the "
    "same is done twice: have this node's index and identity taken out of the roster, and let it "
    "come back with an index, an identity and a state-dir that are new"
)


class DamagedStoreError(Exception):
    """What a client decided cannot be read any more: it takes part in nothing."""


class BusyStoreError(Exception):
    """Another message is being answered for longer than this one may wait."""


class DecisionStore(Protocol):
    """Decisions of one client, across runs and restarts."""

    @property
    def accounts(self) -> bool:
        """Whether costs are kept even where no policy bounds them yet."""
        ...

    def exclusive(self, longest: float = math.inf) -> AbstractContextManager[None]:
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
        self, run_id: bytes, round: int, attempt: int, session: bytes = b""
    ) -> None:
        """Admit a new session; raise StaleSession unless it is newer than all before."""
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

    def exclusive(self, longest: float = math.inf) -> AbstractContextManager[None]:
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
        self, run_id: bytes, round: int, attempt: int, session: bytes = b""
    ) -> None:
        """Admit a session newer than all before."""
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

    Parameters
    ----------
    folder : Path
        The node's state directory; made if it is absent, readable by its owner only.
    """

    accounts: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sessions = folder / SESSIONS
        self._sessions.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._counters = folder / COUNTERS

    @contextmanager
    def exclusive(self, longest: float = math.inf) -> Iterator[None]:
        """Wait for other processes of this node, then keep them out; a killed one holds nothing."""
        with (self._folder / "lock").open("wb") as lock:
            began, said = time.monotonic(), 0.0
            while not _locked(lock):
                waited = time.monotonic() - began
                if waited >= longest:
                    raise BusyStoreError(
                        f"{self._folder} has been held by the answer to another message for "
                        f"{waited:.0f} seconds, longer than the policy's longest_wait"
                    )
                if not said or waited >= said + _SAID_EVERY:
                    said = max(waited, 1e-9)
                    log.info(
                        "waiting for the answer to another message, which holds %s", self._folder
                    )
                time.sleep(1 / _LOOKS_PER_SECOND)
            yield

    def lines(self, session: bytes) -> tuple[bytes, ...]:
        """Return the whole lines of a session; one torn by a crash was never acted upon."""
        try:
            data = self._path(session).read_bytes()
        except FileNotFoundError:
            return ()
        whole, _, _ = data.rpartition(b"\n")
        try:
            return tuple(bytes.fromhex(line.decode()) for line in whole.split(b"\n") if line)
        except ValueError:
            raise DamagedStoreError(f"{self._path(session)} is damaged: {NO_WAY_BACK}") from None

    def append(self, session: bytes, lines: tuple[bytes, ...]) -> None:
        """Append lines after the last whole one and flush file and folder to the disk."""
        path = self._path(session)
        whole = path.read_bytes().rfind(b"\n") + 1 if path.exists() else 0
        with path.open("r+b" if path.exists() else "wb") as file:
            file.truncate(whole)
            file.seek(whole)
            file.write(b"".join(line.hex().encode() + b"\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self._sessions)

    def raise_high_water(
        self, run_id: bytes, round: int, attempt: int, session: bytes = b""
    ) -> None:
        """Admit a session newer than all before, durably; delete the lines of those long over."""
        counters = self._read()
        marks, run = counters["high_water"], hashlib.sha256(run_id).hexdigest()
        before = marks.get(run)
        mark = newer_mark(None if before is None else (before[0], before[1]), (round, attempt))
        marks[run] = list(mark)
        known = counters["sessions"].get(run, [])
        over = [digest for number, digest in known if _is_over(mark, number)]
        kept = [[number, digest] for number, digest in known if not _is_over(mark, number)]
        counters["sessions"][run] = [*kept, [round, session.hex()]]
        self._write(counters)
        for digest in over:  # only now: no message of theirs is answered any more
            self._path(bytes.fromhex(digest)).unlink(missing_ok=True)

    def is_over(self, run_id: bytes, round: int) -> bool:
        """Return whether a round lies further back than two open ones can."""
        mark = self._read()["high_water"].get(hashlib.sha256(run_id).hexdigest())
        return _is_over(None if mark is None else (mark[0], mark[1]), round)

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
        return _read_counters(self._counters, self._sessions)

    def _write(self, counters: dict[str, Any]) -> None:
        replace_file(self._counters, json.dumps(counters).encode())


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
    """
    return spending_of(_read_counters(folder / COUNTERS, folder / SESSIONS))


def _read_counters(path: Path, sessions: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        # They are written before the first session is: beside one they have been lost.
        found = None if sessions.is_dir() and any(sessions.iterdir()) else {}
    except ValueError:
        found = None
    if not _are_counters(found):
        raise DamagedStoreError(f"{path} is damaged or lost: {NO_WAY_BACK}")
    read: dict[str, Any] = found
    empty: dict[str, Any] = {
        "high_water": {},
        "sessions": {},
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


def _locked(lock: BinaryIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


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
    return (
        all(_is_pair(pair, int) for pair in pairs)
        and all(isinstance(each, list) and all(map(_is_session, each)) for each in opened)
        and (roster is None or _is_pair(roster, str))
    )


def _is_session(value: object) -> bool:
    """Return whether this is a round and the digest of a session."""
    if not _is_pair(value, str):
        return False
    digest: str = value[1]  # type: ignore[index]
    return set(digest) <= set("0123456789abcdef") and len(digest) % 2 == 0


def _is_pair(value: object, second: type) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and type(value[0]) is int
        and type(value[1]) is second
    )


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that a crash leaves the old one or the new one, never a part."""
    temporary = path.with_name(path.name + ".new")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush a folder, so that the names in it outlive a crash."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def newer_mark(before: tuple[int, int] | None, new: tuple[int, int]) -> tuple[int, int]:
    """Return the new (round, attempt); raise StaleSession unless it is newer than the last."""
    if before is not None and new <= before:
        raise StaleSession(f"round {new[0]} attempt {new[1]} is not newer than {before}")
    return new


def _is_over(mark: tuple[int, int] | None, round: int) -> bool:
    return mark is not None and round < mark[0] - ROUNDS_KEPT


def _not_older(before: tuple[int, str] | None, new: tuple[int, str]) -> tuple[int, str]:
    if before is not None and new[0] < before[0]:
        raise OldRoster(f"roster version {new[0]} comes before {before[0]}, known here")
    if before is not None and new[0] == before[0] and new != before:
        raise OldRoster(f"another roster of version {new[0]} was used here before")
    return new
