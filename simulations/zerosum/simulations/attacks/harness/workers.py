"""Play jobs in processes, cell by cell: what a process does not survive fails alone.

An outcome is sent as soon as there is one. A process that dies fails the cell that it was playing;
the job's other cells go to another process, once.
"""

import logging
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

from zerosum.simulations.attacks.harness.play import Cell, Outcome, play
from zerosum.simulations.engine.processes import Answered, Answering, Failure, WorkerProcesses
from zerosum.simulations.terminal.logs import log_to

log = logging.getLogger("zerosum.simulations")


@dataclass(frozen=True)
class Job:
    """Cells that are played one after another in one process.

    Attributes
    ----------
    seed : int
    cells : tuple of (int, Cell)
        With their numbers.
    again : bool
        Whether a process that died left them.
    """

    seed: int
    cells: tuple[tuple[int, Cell], ...]
    again: bool = False

    @property
    def answers(self) -> int:
        """Outcomes that the job has."""
        return len(self.cells)


def played_apart(
    jobs: Sequence[Job], workers: int, log_path: Path | None
) -> Generator[Outcome, None, None]:
    """Yield the outcomes of all cells, as they come; close it to end the processes at once.

    Parameters
    ----------
    jobs : sequence of Job
    workers : int
        Processes, of one thread each.
    log_path : Path or None
        The file to which they append what is logged.

    Yields
    ------
    Outcome
    """
    left = deque(jobs)
    # Attacks may use torch's threads before and after, which do not survive a fork.
    processes: WorkerProcesses[Job] = WorkerProcesses(
        partial(_player, log_path), min(workers, len(jobs)), "spawn", with_script=_of_script(jobs)
    )
    with closing(processes), closing(processes.answers(left)) as answers:
        for answered in answers:
            if isinstance(answered.answer, Failure):
                yield from _failed(answered, answered.answer, left)
            else:
                yield answered.answer


def _of_script(jobs: Sequence[Job]) -> bool:
    """Tell whether jobs have parts that the script that runs has defined."""
    try:
        return b"__main__" in ForkingPickler.dumps(jobs).tobytes()
    except Exception:  # whatever pickling runs into; each job fails by itself
        return True


def _failed(answered: Answered[Job], failure: Failure, jobs: deque[Job]) -> Iterator[Outcome]:
    """Yield the outcomes of cells that failed, and put the rest of their job back."""
    job, first = answered.order, answered.number
    lost = job.cells[first:]
    if failure.lost == "worker":
        log.error("%s, seed %d: %s", lost[0][1].label, job.seed, failure.reason)
        if not job.again and lost[1:]:
            jobs.append(Job(job.seed, lost[1:], again=True))
    alone = failure.lost == "answer" or (failure.lost == "worker" and not job.again)
    for number, _ in lost[:1] if alone else lost:
        yield Outcome(number, job.seed, "failed", failure.reason)


def _player(log_path: Path | None, place: int) -> Answering:
    """Return what plays jobs in a worker."""
    if log_path is not None:
        log_to("zerosum", log_path)
    return _outcomes


def _outcomes(shared: None, job: Job) -> Iterator[Outcome]:
    for number, cell in job.cells:
        yield play(number, cell, job.seed)
