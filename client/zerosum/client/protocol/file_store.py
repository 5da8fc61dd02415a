"""Keep a deployed client's decisions in files, across messages, processes and restarts."""

import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar

from zerosum.client.files.file_lock import HeldError, held_alone
from zerosum.client.files.operating_system import sync_folder
from zerosum.client.files.private_files import (
    open_private,
    private_folder,
    read_private,
    replace_private,
)
from zerosum.client.privacy.spending import BudgetRule, Price, Spending, run_name
from zerosum.client.protocol.closed_runs import ClosedRuns
from zerosum.client.protocol.decision_store import (
    LONGEST_WAIT_SECONDS,
    BusyStoreError,
    DamagedStoreError,
    UnusableStoreError,
    is_past,
    newer_mark,
    not_older,
)
from zerosum.client.protocol.stored_counters import (
    CLOSED,
    COUNTERS,
    NO_WAY_BACK,
    SESSIONS,
    read_counters,
    spending_of,
    written_counters,
)
from zerosum.client.session_limits import (
    Openings,
    TooManyOpeningsError,
    check_openings,
    count_opening,
    expired_runs,
    turn_back,
)
from zerosum.secagg import StaleSession

log = logging.getLogger("zerosum.client")

LOG_INTERVAL_SECONDS = 60.0
"""Between two lines about a record that another process holds."""


class FileStore:
    """Record in a folder: an append-only file for each session, and one file of counters.

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
    def exclusive(self, longest: float = LONGEST_WAIT_SECONDS) -> Iterator[None]:
        """Lock the folder against other processes of this node; a killed process holds no lock."""
        logged = -math.inf

        def say(waited: float, holder: str) -> None:
            nonlocal logged
            if waited >= logged + LOG_INTERVAL_SECONDS:
                logged = waited
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
        """Return the complete lines of a session; a line torn by a crash was never acted upon."""
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
            # A torn last line is cut off: the message that it justified never left. The file is
            # flushed for its content, the folder for its name, which a crash loses by itself.
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
        """Admit a session newer than all before, durably, and delete the lines of those long over.

        The order matters. The mark is on the disk before any message of the session is answered,
        and old lines go last. A crash in between leaves lines that nothing reads, and never a
        session without its mark.

        Parameters
        ----------
        run_id, round, attempt, session, most
            As of :class:`~zerosum.client.protocol.decision_store.DecisionStore`.

        Raises
        ------
        StaleSession
            If the run is over, or the session not newer.
        """
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
        sessions = counters["sessions"].get(run, [])
        over = [digest for number, digest in sessions if is_past(mark, number)]
        open_sessions = [
            [number, digest] for number, digest in sessions if not is_past(mark, number)
        ]
        counters["sessions"][run] = [*open_sessions, [round, session.hex()]]
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
        """Reduce runs to their closed names; return the sessions whose lines may be deleted.

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
        """Return whether a run without a mark expired."""
        with _usable(self._folder):
            closed = self._closed.holds(run, counters["closed"])
        if closed is None:
            raise DamagedStoreError(
                f"{self._folder}: the names of runs that are over are damaged or lost: "
                f"{NO_WAY_BACK}"
            )
        return closed

    def is_over(self, run_id: bytes, round: int) -> bool:
        """Return whether a round lies further back than two open ones can."""
        counters, run = self._read(), run_name(run_id)
        mark = counters["high_water"].get(run)
        if mark is None:
            return self._is_closed(run, counters)
        return is_past((mark[0], mark[1]), round)

    def admit_roster(self, version: int, digest: bytes) -> None:
        """Remember the newest roster, durably."""
        counters = self._read()
        stored = counters["roster"]
        before = None if stored is None else (int(stored[0]), str(stored[1]))
        new = not_older(before, (version, digest.hex()))
        if new != before:
            counters["roster"] = list(new)
            self._write(counters)

    @property
    def contributions(self) -> int:
        """Vectors sent, across runs."""
        return self._spending().contributions

    @property
    def spending(self) -> Spending:
        """All that was spent, across runs."""
        return self._spending()

    @property
    def spent(self) -> tuple[float, ...] | None:
        """Sum of all costs, across runs; None where an older version sent unbounded vectors."""
        spending = self._spending()
        return spending.divergences if spending.bounded else None

    def open_budget(
        self, order: int | None, max_epsilon: float, delta: float, rule: BudgetRule = "renyi"
    ) -> int | None:
        """Fix the order, unless one is fixed, and note the policy's limits; durably."""
        counters = self._read()
        before = spending_of(counters)
        spending = before.with_budget(order, max_epsilon, delta, rule)
        if spending != before:
            self._write(counters | {"spending": spending.to_json()})
        return spending.order

    def count_contribution(
        self,
        cost: Price | Sequence[float] | None = None,
        run_id: bytes = b"",
        flower_run: str = "",
    ) -> None:
        """Count one more vector, and its cost, durably."""
        counters = self._read()
        spending = spending_of(counters).with_contribution(cost, run_id)
        counters |= {"contributions": spending.contributions, "spending": spending.to_json()}
        if flower_run:
            counters["flower_runs"] |= {run_name(run_id): flower_run}
        self._write(counters)

    def _spending(self) -> Spending:
        return spending_of(self._read())

    def _path(self, session: bytes) -> Path:
        return self._sessions / f"{session.hex()}.log"

    def _read(self) -> dict[str, Any]:
        with _usable(self._folder):
            return read_counters(self._folder)

    def _write(self, counters: dict[str, Any]) -> None:
        with _usable(self._folder):
            replace_private(self._counters, written_counters(counters))


@contextmanager
def _usable(folder: Path, *passed: type[OSError]) -> Iterator[None]:
    """Convert an OSError into one line with its cure, except for errors that callers expect."""
    try:
        yield
    except passed:
        raise
    except OSError as error:
        raise UnusableStoreError(
            f"state-dir {folder} cannot be used: {error}; nothing is answered until it can be read "
            "and written, by this process's user, on a local disk with room"
        ) from None
