"""An attack of one's own: which labels does a client hold? Its output biases tell.

From this folder: ``zerosum attack my_attack:LabelLeak``

The gradient of cross-entropy in the output biases is the mean of probability less label, so that
after small steps a bias has grown where its class is held (Zhao, Mopuri, Bilen 2020, section 3.2).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from zerosum.simulations.attacks import (
    Case,
    Defense,
    Guess,
    Metric,
    Proportion,
    RoundsSetting,
    RoundsView,
    ThreatModel,
    Units,
)

PLAIN = Defense("plain")
MASKED = Defense("masked", masking="double")


@dataclass(frozen=True)
class LabelLeak:
    """Guesses the one label that each client holds."""

    lr: float = 0.1
    name: ClassVar[str] = "label leak"
    adaptive: ClassVar[str] = "reads the output biases"
    threat: ClassVar[ThreatModel] = ThreatModel("curious server")
    requires: ClassVar[tuple[str, ...]] = ("contributions",)
    metrics: ClassVar[tuple[Metric, ...]] = (Metric("labels right"),)

    def cases(self, suite: str) -> Iterable[Case]:
        """Twenty clients with one digit each, with masks and without."""
        setting = RoundsSetting(clients=20, records=1, lr=self.lr)
        return [Case(setting, PLAIN), Case(setting, MASKED)]

    def baseline(self, view: RoundsView, rng: np.random.Generator) -> Guess:
        """Guess any label."""
        return Guess({"labels": rng.integers(view.classes, size=(20, 1))})

    def run(self, view: RoundsView, rng: np.random.Generator) -> Guess:
        """Take the class whose bias has grown most: biases of the output layer come last."""
        biases = view.contributions[0][:, -view.classes :]
        return Guess({"labels": biases.argmax(axis=1)[:, None]})

    def score(self, guess: Guess, truth: Mapping[str, np.ndarray]) -> Mapping[str, Units]:
        """Count labels that are right."""
        return {"labels right": Proportion((guess["labels"] == truth["labels"]).ravel())}

    def pictures(self, guess: Guess, truth: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Draw which label each client holds, and which is guessed: a column a client."""
        labels = [truth["labels"][:, 0], guess["labels"][:, 0]]
        drawn = [np.arange(10)[:, None] == each for each in labels]
        return {"labels held": np.array([drawn])}
