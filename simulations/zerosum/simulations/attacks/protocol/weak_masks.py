"""Attack masks that are one scalar, or that repeat: read updates through them as a curious server.

A mask of one scalar leaves the differences of coordinates. Masks that repeat leave the change
between two rounds: a stream cipher's output is a one-time pad, and serves once (Bonawitz et al.,
"Practical secure aggregation" (CCS 2017), section 4, "Masking with one-time pads").
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from zerosum.simulations.attacks.harness.interface import (
    Case,
    Defense,
    Guess,
    Metric,
    ThreatModel,
)
from zerosum.simulations.attacks.protocol.opening import masked_vector
from zerosum.simulations.attacks.protocol.recovering import Recovery
from zerosum.simulations.attacks.protocol.sessions import SessionsSetting, SessionsView, Transcript

DOUBLE = Defense("double masks", "double", confirm=False)


@dataclass(frozen=True)
class ScalarMasks(Recovery):
    """Take the most frequent word of a contribution for the mask of a zero coordinate."""

    trials: int = 10
    name: ClassVar[str] = "weak masks: one scalar"
    threat: ClassVar[ThreatModel] = ThreatModel("curious server")
    adaptive: ClassVar[str] = "knows that dead inputs leave coordinates of zero"

    def cases(self, suite: str) -> Iterator[Case]:
        """Yield masks of one scalar, and the library's."""
        for weakness in ("vector masks", "none"):
            yield Case(SessionsSetting(trials=self.trials, weakness=weakness), DOUBLE)

    def run(self, view: SessionsView, rng: np.random.Generator) -> Guess:
        """Subtract the most frequent word from all."""
        return Guess({"updates": np.stack([_levelled(seen) for (seen,) in view.trials or ()])})


def _levelled(seen: Transcript) -> np.ndarray:
    vector = masked_vector(seen)
    words, counts = np.unique(vector, return_counts=True)
    return seen.opened().ring.reduce(vector - words[counts.argmax()])


@dataclass(frozen=True)
class ReusedMasks(Recovery):
    """Subtract a client's contributions of two rounds: equal masks leave its update's change.

    The library's clients also get the same seed in both rounds. Their masks still differ, since
    session and request enter them.
    """

    trials: int = 10
    name: ClassVar[str] = "weak masks: reused"
    adaptive: ClassVar[str] = "subtracts two rounds"
    threat: ClassVar[ThreatModel] = ThreatModel("curious server", rounds=2)
    wanted: ClassVar[str] = "changes"
    metrics: ClassVar[tuple[Metric, ...]] = (Metric("change of update recovered"),)

    def cases(self, suite: str) -> Iterator[Case]:
        """Yield masks that repeat, and the library's."""
        for weakness in ("fresh masks", "none"):
            setting = SessionsSetting(
                trials=self.trials, rounds=2, weakness=weakness, same_seed=True
            )
            yield Case(setting, DOUBLE)

    def run(self, view: SessionsView, rng: np.random.Generator) -> Guess:
        """Subtract the first round's vectors from the second's."""
        changes = [
            masked_vector(later) - masked_vector(first) for first, later in view.trials or ()
        ]
        ring = (view.trials or ())[0][0].opened().ring
        return Guess({"changes": ring.reduce(np.stack(changes))})


ATTACKS = (ScalarMasks(), ReusedMasks())
"""As the table lists them."""
