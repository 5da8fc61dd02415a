"""Follow a rehearsal: print rounds or answers, what it waits for, and which processes ended."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rich.console import Console

from zerosum.simulations.rehearsal.federation import SERVERAPP, Federation
from zerosum.simulations.rehearsal.processes import DeploymentError
from zerosum.simulations.rehearsal.rehearsal_folder import RehearsalFolder
from zerosum.simulations.rehearsal.waiting import wait_for_end
from zerosum.simulations.terminal.progress import ProgressBar
from zerosum.simulations.terminal.signals import exit_in_words

QUIET_SECONDS = 15.0
"""After which a line says what is being waited for."""

TAIL_BYTES = 1 << 16
"""Of a log: what a node received last stands there."""

Conclude = Callable[[Console], None]
"""Prints what came of a run that ended."""

Run = Callable[["Federation", float, "TimedLines"], Conclude]
"""Runs an app on a federation whose nodes are not started yet, within so many seconds."""

_RECEIVED = re.compile(r"Receiving: (\S+) message")
_JOINED = "SuperNode ID: "


class TimedLines:
    """Lines that begin with the seconds since the start, above a bar of rounds on a terminal.

    Attributes
    ----------
    last : float
        When the last line was printed, in seconds of the monotonic clock.
    """

    def __init__(self, bar: ProgressBar) -> None:
        self.bar = bar
        self.last = self._began = time.monotonic()

    def line(self, text: str) -> None:
        """Print a line."""
        self.last = time.monotonic()
        self.bar.line(f"{self.last - self._began:5.0f} s  {text}")


@dataclass
class Watch:
    """One run of a federation, until it has ended.

    Attributes
    ----------
    built : Federation
    run : int
        Its id.
    kept : RehearsalFolder
        Whose metrics and summary are looked at.
    tell : TimedLines
    seen : int
        Lines of the metrics that were told of, or are of an earlier run.
    """

    built: Federation
    run: int
    kept: RehearsalFolder
    tell: TimedLines
    seen: int = 0
    _gone: set[str] = field(default_factory=set, init=False)

    def until_end(self, seconds: float) -> str:
        """Wait until the run has ended, and return how.

        Parameters
        ----------
        seconds : float
            That the run may take.

        Returns
        -------
        str
            The status, as ``finished:completed``.

        Raises
        ------
        DeploymentError
            If it takes longer than ``seconds``, or who is needed has ended.
        """
        log = self.built.follow(self.run)
        self.tell.line(f"started the run; its log: {log}")
        follower = self.built.processes[SERVERAPP]
        try:
            return wait_for_end(
                partial(self.built.status, self.run),
                seconds,
                sign=self.kept.sign,
                look=self._look,
                over=lambda: follower.poll() is not None,
            )
        except TimeoutError:
            raise DeploymentError(
                f"the rehearsal did not end in {seconds:g} s: raise that limit, as "
                f"--seconds {2 * seconds:g}"
            ) from None

    def _look(self) -> None:
        """Say what has happened since the last look, or after a while what is waited for."""
        self._tell_rounds()
        self._look_for_ends()
        if time.monotonic() - self.tell.last > QUIET_SECONDS:
            self.tell.line(self._waited_for())

    def _tell_rounds(self) -> None:
        """Print a line for every round or answer since the last look."""
        for each in self.kept.news(self.seen):
            self.tell.line(each.line)
            self.tell.bar.show(each.text, each.number, each.of)
            self.seen += 1

    def _look_for_ends(self) -> None:
        """Report programs that have ended; stop waiting once no node or no SuperLink is left."""
        gone = self._gone
        for name, process in self.built.processes.items():
            if name not in gone and name != SERVERAPP and process.poll() is not None:
                gone.add(name)
                how = exit_in_words(process.returncode)
                self.tell.line(f"{name} {how}; its log: {self.built.folder}/{name}.log")
        if "superlink" in gone:
            raise DeploymentError(f"the SuperLink ended:\n{self.built.log('superlink')[-1500:]}")
        if gone and len(gone) == len(self.built.hosts):
            raise DeploymentError(f"all nodes ended:\n{self.built.log('supernode0')[-1500:]}")

    def _waited_for(self) -> str:
        tails = [_tail(self.built.folder / f"supernode{i}.log") for i in range(self._nodes)]
        if not self.kept.begun:
            joined = sum(_JOINED in tail for tail in tails)
            return f"waiting for the ServerApp to meet its nodes: {joined} of {self._nodes} joined"
        received = [(_RECEIVED.findall(tail) or ["nothing"])[-1] for tail in tails]
        last_received = ", ".join(f"node {index}: {kind}" for index, kind in enumerate(received))
        rounds = self.kept.rounds_asked()
        if self.seen >= rounds:
            return "waiting for the ServerApp to write the results"
        awaited = f"{self.kept.unit} {self.seen + 1} of {rounds}"
        return f"waiting for {awaited}; received last: {last_received}"

    @property
    def _nodes(self) -> int:
        return len(self.built.hosts)


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
