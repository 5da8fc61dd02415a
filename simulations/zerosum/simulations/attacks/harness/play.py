"""Play one cell with one seed: keep the truth, score the guess."""

import logging
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal

import numpy as np
from pydantic import ValidationError

from zerosum.secagg.randomness import numpy_generator
from zerosum.simulations.attacks.harness.interface import (
    Attack,
    Case,
    Guess,
    NotApplicable,
    Scene,
    ThreatModel,
)
from zerosum.simulations.attacks.harness.metrics import Mean, Proportion, Ranking, Units
from zerosum.simulations.attacks.harness.parameters import refusal
from zerosum.simulations.attacks.harness.sealed_view import frozen, sealed

log = logging.getLogger("zerosum.simulations")

Status = Literal["value", "stopped", "not applicable", "failed", "not played"]


@dataclass(frozen=True)
class Cell:
    """One attack in one case: a row of results for each seed."""

    attack: Attack
    case: Case

    @property
    def label(self) -> str:
        """The cell's name, which no other has: its randomness is seeded by it."""
        case = self.case
        # Seeds must outlive a renaming of classes: figures of earlier versions are theirs. So the
        # defense's fields are named here under the class name that they first had.
        values = [f"{f.name}={getattr(case.protection, f.name)!r}" for f in fields(case.protection)]
        defense = f"Protection({', '.join(values)})"
        return f"{self.attack.name}/{self.attack.adaptive}/{case.setting.name}/{defense}"


@dataclass(frozen=True)
class Outcome:
    """The outcome of playing a cell with one seed.

    Attributes
    ----------
    number : int
        Of the cell, in the order that was asked for.
    seed : int
    status : str
        "stopped": a protection left the attacker with nothing but the baseline's guess. "not
        played": the attacks were ended before its turn came.
    note : str
        Why there is no value, why it was stopped, or what the attack had to say.
    units, baseline : mapping of str to Units
        By metric.
    epsilon : float or None
    delta : float
    cpu_seconds : float
        Of the attack itself, without what it attacks.
    pictures : mapping of str to ndarray
    threat : ThreatModel or None
        The view's; None where there was no view.
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
    threat: ThreatModel | None = None


def play(number: int, cell: Cell, seed: int) -> Outcome:
    """Play one cell with one seed; an error is an outcome too, so that other cells go on.

    Parameters
    ----------
    number : int
        Of the cell.
    cell : Cell
    seed : int

    Returns
    -------
    Outcome
    """
    try:
        scene = cell.case.setting.play(cell.attack, cell.case.protection, seed)
        return _attacked(number, cell, seed, scene)
    except NotApplicable as reason:
        return Outcome(number, seed, "not applicable", str(reason))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too, which would end all attacks without a word
        log.exception("%s, seed %d", cell.label, seed)
        if isinstance(error, ValidationError):
            return Outcome(number, seed, "failed", f"{error.title}: {refusal(error)}")
        words = "".join(traceback.format_exception_only(error))  # also of an error without any
        return Outcome(number, seed, "failed", words.strip())


def _attacked(number: int, cell: Cell, seed: int, scene: Scene) -> Outcome:
    attack, view = cell.attack, sealed(scene.view)
    missing = view.lacks(attack.requires)
    if missing and not view.stopped:
        reason = f"the view holds no {' and no '.join(missing)}"
        return Outcome(number, seed, "not applicable", reason, threat=view.threat)
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
        view.threat,
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
    pictures = {} if drawn is None else drawn(guess, frozen(scene.truth))
    for name, pairs in pictures.items():
        images = np.asarray(pairs)
        if images.ndim != 4 or images.shape[1] != 2 or images.dtype.kind not in "buif":
            raise ValueError(f"{attack.name} drew {name}: pictures are pairs of shape (k, 2, h, w)")
    return pictures
