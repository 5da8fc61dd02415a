"""Speak of a task's own records: of the rows of a table no image is found, and no pixel."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from zerosum.simulations.attacks.harness.interface import (
    Attack,
    Case,
    Guess,
    Metric,
    ThreatModel,
)
from zerosum.simulations.attacks.harness.metrics import Units
from zerosum.simulations.attacks.inversion.reconstruction import RECOGNISED
from zerosum.simulations.attacks.own_task.facts import Facts
from zerosum.simulations.attacks.own_task.subject import Pool

_OF_RECORDS = {"image": "record", "images": "records", "pixel": "number", "pixels": "numbers"}

_THRESHOLD = f"above {RECOGNISED:.0f} dB"
"""How a metric of images says from where on one counts as recovered."""


@dataclass(frozen=True)
class Renamed:
    """An attack whose figures are called by what the task's records are.

    What it does is the attack's: a method that this class does not have is looked up there.

    Attributes
    ----------
    attack : Attack
    image : bool
        Whether the records are images.
    recognised : float
        PSNR, in dB, from which a guess counts as a record.
    """

    attack: Attack
    image: bool
    recognised: float

    def __getattr__(self, name: str) -> Any:
        """Return the attack's own: its moves, its pictures, its parameters."""
        if name.startswith("__") or "attack" not in self.__dict__:  # while it is unpickled
            raise AttributeError(name)
        return getattr(self.attack, name)

    @property
    def name(self) -> str:
        """Return the attack's name."""
        return self.attack.name

    @property
    def adaptive(self) -> str:
        """Return what the attacker uses, in these words."""
        return self._said(self.attack.adaptive)

    @property
    def threat(self) -> ThreatModel:
        """Return the attacker's place."""
        return self.attack.threat

    @property
    def requires(self) -> tuple[str, ...]:
        """Return the fields of the view without which there is no attack."""
        return self.attack.requires

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Return the metrics, in these words: complete success is as far above what counts."""
        return tuple(
            replace(
                each,
                name=self._said(each.name),
                whole=None if each.whole is None else each.whole + self._further(each),
            )
            for each in self.attack.metrics
        )

    def cases(self, suite: str) -> Iterable[Case]:
        """Return the attack's cells."""
        return self.attack.cases(suite)

    def baseline(self, view: Any, rng: np.random.Generator) -> Guess:
        """Guess without what is attacked."""
        return self._noted(self.attack.baseline(view, rng))

    def run(self, view: Any, rng: np.random.Generator) -> Guess:
        """Attack."""
        return self._noted(self.attack.run(view, rng))

    def score(self, guess: Guess, truth: Mapping[str, np.ndarray]) -> Mapping[str, Units]:
        """Score a guess, its figures in these words."""
        scored = self.attack.score(guess, truth)
        return {self._said(name): units for name, units in scored.items()}

    def _further(self, metric: Metric) -> float:
        return self.recognised - RECOGNISED if metric.unit == "dB" else 0.0

    def _noted(self, guess: Guess) -> Guess:
        return replace(guess, notes=self._said(guess.notes))

    def _said(self, text: str) -> str:
        text = text.replace(_THRESHOLD, f"above {self.recognised:.0f} dB")
        if self.image:
            return text
        return re.sub(r"[a-z]+", lambda word: _OF_RECORDS.get(word[0], word[0]), text)


def in_words_of(attack: Attack, facts: Facts, pool: Pool) -> Attack:
    """Return an attack that speaks of a task's records as what they are.

    Parameters
    ----------
    attack : Attack
    facts : Facts
    pool : Pool

    Returns
    -------
    Attack
        As it is, where its words fit.
    """
    renamed = Renamed(attack, facts.image, pool.recognised)
    texts = [(attack.adaptive, renamed.adaptive)]
    texts += [(a.name, b.name) for a, b in zip(attack.metrics, renamed.metrics, strict=True)]
    return renamed if any(before != after for before, after in texts) else attack
