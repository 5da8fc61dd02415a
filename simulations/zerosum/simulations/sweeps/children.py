"""Run the cells of a sweep in child processes, as many at a time as there are cores for."""

import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from zerosum.client.files.operating_system import KILL
from zerosum.server.runs.plain_json import numbers
from zerosum.simulations.sweeps.grid import Cell
from zerosum.simulations.sweeps.sweep_folder import LOGS, SweepFolder
from zerosum.simulations.sweeps.time_left import Pace
from zerosum.simulations.terminal.signals import exit_in_words, undisturbed

LOOK_SECONDS = 0.2
"""Between looks at what the children have done."""

GRACE_SECONDS = 5.0
"""For a child that was told to end to close its files, before it is killed."""

_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)


@dataclass
class _Child:
    cell: Cell
    process: "subprocess.Popen[bytes]"
    began: float
    read: int = 0  # bytes of its metrics that were counted
    seconds: list[float] = field(default_factory=list)  # of each round since it began


def run_cells(
    folder: SweepFolder,
    cells: Iterable[Cell],
    workers: int,
    look: Callable[[Pace], None],
    ended: Callable[[Cell, str], None],
) -> None:
    """Run cells to their end; whatever ends this call ends its children.

    Parameters
    ----------
    folder : SweepFolder
        Of the sweep.
    cells : iterable of Cell
        Those to be done.
    workers : int
        Processes at a time, of one thread each.
    look : callable
        Is given the pace, several times a second.
    ended : callable
        Is given each cell that ended, and why it failed; empty where it did not.
    """
    waiting = deque(cells)
    pace = Pace(workers, len(waiting), sum(cell.experiment.rounds for cell in waiting))
    for cell in waiting:
        pace.rounds_left -= _complete_lines(folder, cell)
    (folder.path / LOGS).mkdir(exist_ok=True)
    running: list[_Child] = []
    with _ending(running):
        while waiting or running:
            while waiting and len(running) < workers:
                running.append(_start(folder, waiting.popleft()))
            time.sleep(LOOK_SECONDS)
            for child in list(running):
                _count(folder, child, pace)
                if child.process.poll() is not None:
                    running.remove(child)
                    _close(child)
                    _leave(folder, child, pace)
                    pace.running = _begun(running)
                    look(pace)
                    ended(child.cell, _reason(folder, child))
            pace.running = _begun(running)
            look(pace)


def _begun(running: Iterable[_Child]) -> list[float]:
    """Return the seconds of each child, its rounds that are over left out."""
    now = time.monotonic()
    return [max(0.0, now - child.began - sum(child.seconds)) for child in running]


def _start(folder: SweepFolder, cell: Cell) -> _Child:
    """Start a child in a session of its own: ctrl-C is its parent's, which ends it in order."""
    read = _size(folder, cell)
    with folder.log_path(cell).open("wb") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "zerosum.simulations.sweeps.cell"),
                *(str(folder.path), str(folder.cells.index(cell))),
            ],
            stdin=subprocess.PIPE,  # never written to: it closes with this process
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | _ONE_THREAD,
            start_new_session=True,
        )
    return _Child(cell, process, time.monotonic(), read)


@contextmanager
def _ending(running: Sequence[_Child]) -> Iterator[None]:
    """End the children that still run when the block is left, each by its id."""
    try:
        yield
    finally:
        with undisturbed():
            for child in running:
                child.process.terminate()
            deadline = time.monotonic() + GRACE_SECONDS
            for child in running:
                try:
                    child.process.wait(max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    child.process.send_signal(KILL)
                    child.process.wait()
                _close(child)


def _leave(folder: SweepFolder, child: _Child, pace: Pace) -> None:
    """Count a child that ended; where it failed, its other rounds are nobody's."""
    pace.over(time.monotonic() - child.began, child.seconds)
    missing = child.cell.experiment.rounds - _complete_lines(folder, child.cell)
    pace.rounds_left = max(0, pace.rounds_left - max(0, missing))


def _close(child: _Child) -> None:
    if child.process.stdin is not None:
        child.process.stdin.close()


def _size(folder: SweepFolder, cell: Cell) -> int:
    path = folder.metrics_path(cell)
    return path.stat().st_size if path.is_file() else 0


def _complete_lines(folder: SweepFolder, cell: Cell) -> int:
    path = folder.metrics_path(cell)
    return path.read_bytes().count(b"\n") if path.is_file() else 0


def _count(folder: SweepFolder, child: _Child, pace: Pace) -> None:
    """Count the rounds that a child has written since the last look."""
    path = folder.metrics_path(child.cell)
    if not path.is_file() or path.stat().st_size <= child.read:
        return
    with path.open("rb") as file:
        file.seek(child.read)
        data = file.read()
    whole = data[: data.rfind(b"\n") + 1]
    child.read += len(whole)
    for line in whole.splitlines():
        if (seconds := _seconds(line)) is not None:
            child.seconds.append(seconds)
            pace.round(seconds)


def _seconds(line: bytes) -> float | None:
    """Return the seconds of a round; None of a piece, where a resumed run has cut the file."""
    try:
        return float(numbers(json.loads(line))["seconds"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _reason(folder: SweepFolder, child: _Child) -> str:
    """Return why a cell failed, in one line; empty where it did not."""
    log = folder.log_path(child.cell)
    code = child.process.returncode
    if code == 0 and folder.is_over(child.cell):
        if not log.stat().st_size:
            log.unlink()
        return ""
    if code < 0:
        return f"its process {exit_in_words(code)}"
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    last = lines[-1].removeprefix("error: ") if lines else ""
    return last or f"its process {exit_in_words(code)}"
