"""Play many cells with many seeds, spread over processes.

A job is one setting with one seed, so that what a setting made once (a trained target, its
reference models) serves all attacks on it.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import closing
from pathlib import Path

from zerosum.client.training.threads import one_thread
from zerosum.simulations.attacks.harness.play import Cell, Outcome, play
from zerosum.simulations.attacks.harness.workers import Job, played_apart
from zerosum.simulations.engine.one_at_a_time import alone

__all__ = ["Cell", "Job", "Outcome", "jobs_of", "play", "play_all"]


def jobs_of(
    cells: Sequence[Cell], seeds: Iterable[int], done: Collection[tuple[int, int]] = ()
) -> list[Job]:
    """Group cells by their setting; every seed of a setting is a job of its own.

    Parameters
    ----------
    cells : sequence of Cell
    seeds : iterable of int
    done : collection of (int, int)
        Number of a cell, and seed, of plays that are left out.

    Returns
    -------
    list of Job
    """
    groups: dict[str, list[tuple[int, Cell]]] = {}
    for number, cell in enumerate(cells):
        groups.setdefault(repr(cell.case.setting), []).append((number, cell))
    jobs = [
        Job(seed, tuple(cell for cell in group if (cell[0], seed) not in done))
        for group in groups.values()
        for seed in seeds
    ]
    return [job for job in jobs if job.cells]


def play_all(
    cells: Sequence[Cell],
    seeds: Sequence[int],
    workers: int,
    on_outcome: Callable[[Outcome], None] = lambda outcome: None,
    log_path: Path | None = None,
    done: Collection[tuple[int, int]] = (),
) -> list[Outcome]:
    """Play every cell with every seed.

    Parameters
    ----------
    cells : sequence of Cell
    seeds : sequence of int
    workers : int
        Processes of one thread each; 1 plays everything in this one.
    on_outcome : callable
        Called with each outcome as it comes.
    log_path : Path, optional
        Where other processes write what is logged under attack.
    done : collection of (int, int)
        Number of a cell, and seed, of what is not played again.

    Returns
    -------
    list of Outcome
        By cell and seed, whatever the order in which they came.
    """
    jobs = jobs_of(cells, seeds, done)
    here = workers == 1 or len(jobs) <= 1
    outcomes: list[Outcome] = []
    with (
        alone("attack", nests=True),
        closing(_played_here(jobs) if here else played_apart(jobs, workers, log_path)) as played,
    ):
        for outcome in played:
            outcomes.append(outcome)
            on_outcome(outcome)
    return sorted(outcomes, key=lambda outcome: (outcome.number, outcome.seed))


def _played_here(jobs: Sequence[Job]) -> Generator[Outcome, None, None]:
    with one_thread():
        for job in jobs:
            for number, cell in job.cells:
                yield play(number, cell, job.seed)
