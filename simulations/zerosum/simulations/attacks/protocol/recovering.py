"""Define what attacks on the protocol share: a vector of each trial, right or wrong."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from zerosum.simulations.attacks.harness.interface import Guess, Metric
from zerosum.simulations.attacks.harness.metrics import Proportion
from zerosum.simulations.attacks.protocol.opening import masked_vector
from zerosum.simulations.attacks.protocol.sessions import SessionsView


@dataclass(frozen=True)
class Recovery:
    """Require transcripts, and score how often the victim's ring vector is exactly right.

    ``wanted`` names the truth: "updates" of the first round, or "changes" to the second.
    """

    wanted: ClassVar[str] = "updates"
    requires: ClassVar[tuple[str, ...]] = ("trials",)
    metrics: ClassVar[tuple[Metric, ...]] = (Metric("update recovered"),)

    def baseline(self, view: SessionsView, rng: np.random.Generator) -> Guess:
        """Guess zero for every vector."""
        sent = np.stack([masked_vector(trial[0]) for trial in view.trials or ()])
        return Guess({self.wanted: np.zeros_like(sent)})

    def score(self, guess: Guess, truth: Mapping[str, np.ndarray]) -> Mapping[str, Proportion]:
        """Return which vectors are right in every coordinate."""
        right = (guess[self.wanted] == truth[self.wanted]).all(axis=1)
        return {self.metrics[0].name: Proportion(right)}
