"""Follow a rehearsal: a line a round, what it waits for now and then, and who has ended."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from zerosum.server.runs.run_folder import SUMMARY, RunFolder
from zerosum.simulations.rehearsal.federation import ASK_SECONDS, Federation
from zerosum.simulations.rehearsal.kept import Kept
from zerosum.simulations.rehearsal.processes import DeploymentError
from zerosum.simulations.terminal.progress import describe
from zerosum.simulations.terminal.signals import exit_in_words

QUIET_SECONDS = 15.0
"""After which a line says what is being waited for."""

LOOK_SECONDS = 0.5
"""Between two looks at files and processes."""

TAIL_BYTES = 1 << 16
"""Of a log: what a node received last stands there."""

_RECEIVED = re.compile(r"Receiving: (\S+) message")
_JOINED = "SuperNode ID: "


class ProgressLines:
    """Prints lines with the seconds since the start, and moves a bar of rounds on a terminal."""

    def __init__(self, console: Console, bar: Progress | None = None) -> None:
        self._console, self._bar, self._began = console, bar, time.monotonic()
        self._task = None if bar is None else bar.add_task("starting", total=None)
        self.last = self._began

    def line(self, words: str) -> None:
        """Print a line."""
        self.last = time.monotonic()
        self._console.print(
            f"{self.last - self._began:5.0f} s  {words}",
            highlight=False, markup=False, soft_wrap=True,
        )  # fmt: skip

    def at(self, done: int, rounds: int | None, words: str) -> None:
        """Move the bar."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=rounds, description=words)


@contextmanager
def progress_lines(console: Console) -> Iterator[ProgressLines]:
    """Yield the lines of a rehearsal's progress, with a bar where there is a terminal."""
    if not console.is_terminal:
        yield ProgressLines(console)
        return
    columns = (BarColumn(24), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        yield ProgressLines(console, bar)


@dataclass
class Watch:
    """One run of a federation, until it has ended.

    Attributes
    ----------
    built : Federation
    run : int
        Its id.
    kept : Kept
        Whose metrics and summary are looked at.
    tell : ProgressLines
    seen : int
        Lines of the metrics that were told of, or are of an earlier run.
    """

    built: Federation
    run: int
    kept: Kept
    tell: ProgressLines
    seen: int = 0

    def until_end(self, seconds: float) -> str:
        """Wait until the run has ended, and return how.

        Raises
        ------
        DeploymentError
            If it takes longer than ``seconds``, or who is needed has ended.
        """
        began = time.monotonic()
        before, gone = modified_ns(self.kept.path / SUMMARY), set[str]()
        question: _Question | None = None
        asked = began
        while time.monotonic() - began < seconds:
            self._tell_rounds()
            signed = modified_ns(self.kept.path / SUMMARY) != before
            if question is None and (signed or time.monotonic() - asked > ASK_SECONDS):
                question = _Question(self.built, self.run)
            if question is not None and question.answered:
                status = question.answer()
                if status.startswith("finished"):
                    self._tell_rounds()
                    return status
                question, asked = None, time.monotonic()
            self._look_for_ends(gone)
            if time.monotonic() - self.tell.last > QUIET_SECONDS:
                self.tell.line(self._waited_for())
            time.sleep(LOOK_SECONDS)
        raise DeploymentError(
            f"the rehearsal did not end in {seconds:g} s: --seconds is what it may take"
        )

    def _tell_rounds(self) -> None:
        """Print a line for every round that is over since the last look."""
        if not self.kept.begun:
            return
        records = RunFolder(self.kept.path).read_rounds()
        rounds = self.kept.rounds_asked() if len(records) > self.seen else 0
        for record in records[self.seen :]:
            words = describe(record, rounds)
            self.tell.line(f"{words}  {record.seconds:.1f} s")
            self.tell.at(record.round, rounds, words)
        self.seen = max(self.seen, len(records))

    def _look_for_ends(self, gone: set[str]) -> None:
        """Say which programs have ended; refuse to wait where nobody is left to wait for."""
        for name, process in self.built.processes.items():
            if name not in gone and process.poll() is not None:
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
        each = ", ".join(f"node {index}: {kind}" for index, kind in enumerate(received))
        rounds = self.kept.rounds_asked()
        if self.seen >= rounds:
            return "waiting for the ServerApp to write the results"
        return f"waiting for round {self.seen + 1} of {rounds}; received last: {each}"

    @property
    def _nodes(self) -> int:
        return len(self.built.hosts)


class _Question:
    """How a run is, asked of Flower meanwhile: on a busy machine that takes half a minute.

    Whoever stops waiting ends the command that asks, with all others.
    """

    def __init__(self, built: Federation, run: int) -> None:
        self._found: list[str | Exception] = []
        Thread(target=self._ask, args=(built, run), daemon=True).start()

    def _ask(self, built: Federation, run: int) -> None:
        try:
            self._found.append(built.status(run))
        except Exception as error:  # raised where the answer is wanted
            self._found.append(error)

    @property
    def answered(self) -> bool:
        """Whether there is an answer."""
        return bool(self._found)

    def answer(self) -> str:
        """Return it, or raise what came in its way."""
        (found,) = self._found
        if isinstance(found, Exception):
            raise found
        return found


def modified_ns(path: Path) -> int:
    """Return when a file was last written, in nanoseconds; 0 where there is none."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
