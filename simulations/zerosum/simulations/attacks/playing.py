"""Plays cells, keeps the truth, scores guesses.

A job is one setting with one seed, so that what a setting made once (a trained target, its
reference models) serves all attacks on it; jobs are spread over processes.
"""

import logging
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from zerosum.client.task import current_directory_importable
from zerosum.client.threads import one_thread
from zerosum.secagg.randomness import numpy_generator
from zerosum.simulations.attacks.interface import Attack, Case, Guess, NotApplicable, Scene
from zerosum.simulations.attacks.measures import Mean, Proportion, Ranking, Units
from zerosum.simulations.attacks.sealing import frozen, sealed
from zerosum.simulations.logs import log_to

log = logging.getLogger("zerosum.simulations")

Status = Literal["value", "stopped", "not applicable", "failed"]


@dataclass(frozen=True)
class Cell:
    """One attack in one case: a row of results for each seed."""

    attack: Attack
    case: Case

    @property
    def label(self) -> str:
        """Names the cell, and no other: its coins follow from it."""
        case = self.case
        return f"{self.attack.name}/{self.attack.adaptive}/{case.setting.name}/{case.protection}"


@dataclass(frozen=True)
class Outcome:
    """What came of a cell with one seed.

    Attributes
    ----------
    number : int
        Of the cell, in the order that was asked for.
    seed : int
    status : str
        "stopped": a protection left the attacker with nothing but the baseline's guess.
    note : str
        Why there is no value, why it was stopped, or what the attack had to say.
    units, baseline : mapping of str to Units
        By metric.
    epsilon : float or None
    delta : float
    cpu_seconds : float
        Of the attack itself, without what it attacks.
    pictures : mapping of str to ndarray
    """

    number: int
    seed: int
    status: Status
    note: str = ""
    units: Mapping[str, Units] = field(default_factory=dict)
    baseline: Mapping[str, Units] = field(default_factory=dict)
    epsilon: float | None = None
    delta: float = 0.0
    cpu_seconds: float = 0.0
    pictures: Mapping[str, np.ndarray] = field(default_factory=dict)


Job = tuple[int, tuple[tuple[int, Cell], ...]]
"""A seed and the cells, with their numbers, that are played with it in one process."""


def jobs_of(cells: Sequence[Cell], seeds: Iterable[int]) -> list[Job]:
    """Group cells by what they are played in; every seed is a job of its own."""
    groups: dict[str, list[tuple[int, Cell]]] = {}
    for number, cell in enumerate(cells):
        groups.setdefault(repr(cell.case.setting), []).append((number, cell))
    return [(seed, tuple(group)) for group in groups.values() for seed in seeds]


def play_all(
    cells: Sequence[Cell],
    seeds: Sequence[int],
    workers: int,
    on_outcome: Callable[[Outcome], None] = lambda outcome: None,
    log_path: Path | None = None,
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

    Returns
    -------
    list of Outcome
        By cell and seed, whatever the order in which they came.
    """
    found: list[Outcome] = []
    for outcome in _outcomes(jobs_of(cells, seeds), workers, log_path):
        found.append(outcome)
        on_outcome(outcome)
    return sorted(found, key=lambda outcome: (outcome.number, outcome.seed))


def _outcomes(jobs: Sequence[Job], workers: int, log_path: Path | None) -> Iterator[Outcome]:
    if workers == 1 or len(jobs) == 1:
        for job in jobs:
            yield from play_job(job)
        return
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    pool = ProcessPoolExecutor(
        min(workers, len(jobs)), mp_context=context, initializer=_begin, initargs=(log_path,)
    )
    try:
        with current_directory_importable():  # where an attack of the user's own may be
            tasks = [pool.submit(play_job, job) for job in jobs]
        for done in as_completed(tasks):
            yield from done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(log_path: Path | None) -> None:
    """Prepare a process of the pool."""
    if log_path is not None:
        log_to("zerosum", log_path)


def play_job(job: Job) -> list[Outcome]:
    """Play the cells of a job, one after another, in this process."""
    seed, cells = job
    with one_thread():
        return [play(number, cell, seed) for number, cell in cells]


def play(number: int, cell: Cell, seed: int) -> Outcome:
    """Play one cell with one seed. What fails is an outcome too: the others go on."""
    try:
        scene = cell.case.setting.play(cell.attack, cell.case.protection, seed)
        return _attacked(number, cell, seed, scene)
    except NotApplicable as reason:
        return Outcome(number, seed, "not applicable", str(reason))
    except (Exception, SystemExit) as error:  # an exit here would end all attacks in silence
        log.exception("%s, seed %d", cell.label, seed)
        return Outcome(number, seed, "failed", f"{type(error).__name__}: {error}")


def _attacked(number: int, cell: Cell, seed: int, scene: Scene) -> Outcome:
    attack, view = cell.attack, sealed(scene.view)
    missing = view.lacks(attack.requires)
    if missing and not view.stopped:
        reason = f"the view holds no {' and no '.join(missing)}"
        return Outcome(number, seed, "not applicable", reason)
    blind = attack.baseline(view, _coins(cell, seed, "baseline"))
    started = time.process_time()
    guess = blind if missing else attack.run(view, _coins(cell, seed, "attack"))
    spent = time.process_time() - started
    return Outcome(
        number,
        seed,
        "stopped" if missing else "value",
        view.stopped if missing else guess.notes,
        _scored(attack, guess, scene),
        _scored(attack, blind, scene),
        scene.epsilon,
        scene.delta,
        spent,
        _pictures(attack, guess, scene),
    )


def _coins(cell: Cell, seed: int, purpose: str) -> np.random.Generator:
    return numpy_generator(seed, f"{purpose} {cell.label}")


def _scored(attack: Attack, guess: Guess, scene: Scene) -> Mapping[str, Units]:
    units = attack.score(guess, frozen(scene.truth))
    wanted = {metric.name for metric in attack.metrics}
    if units.keys() != wanted:
        raise ValueError(f"{attack.name} scored {sorted(units)}, and its metrics are {wanted}")
    for name, each in units.items():
        if not isinstance(each, Proportion | Mean | Ranking):
            raise TypeError(f"{attack.name} scored {name} as a {type(each).__name__}")
    return units


def _pictures(attack: Attack, guess: Guess, scene: Scene) -> Mapping[str, np.ndarray]:
    drawn = getattr(attack, "pictures", None)
    return {} if drawn is None else drawn(guess, frozen(scene.truth))
