"""Link a table without names to a register with names, by a few shared attributes.

Sweeney (2000): few attributes make most people unique. k-anonymity leaves nobody unique, and does
not stop the inference. Where all records that look alike share one sensitive value, it is known for
everybody among them (Machanavajjhala, Kifer, Gehrke and Venkitasubramaniam 2007, "l-diversity",
section 2.1).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from zerosum.simulations.attacks.harness.interface import (
    Case,
    Defense,
    Guess,
    Metric,
    ThreatModel,
)
from zerosum.simulations.attacks.harness.metrics import Proportion
from zerosum.simulations.attacks.published.released import ReleasedSetting, ReleasedView


@dataclass(frozen=True)
class Linkage:
    """Look up named people in a released table, and read their sensitive values.

    Attributes
    ----------
    targets : int
        Named people, others in each seed: five seeds cover all patients but two.
    path : str
        The Adult file, or empty: bundled records.
    """

    targets: int = 88
    path: str = ""

    name: ClassVar[str] = "linkage on quasi-identifiers"
    adaptive: ClassVar[str] = "matches ranges, uses homogeneous classes"
    threat: ClassVar[ThreatModel] = ThreatModel("outsider", knows=frozenset({"register"}))
    requires: ClassVar[tuple[str, ...]] = ("register", "secret")
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("unique rows"),
        Metric("sensitive value certain"),
        Metric("sensitive value guessed"),
    )

    def cases(self, suite: str) -> Iterable[Case]:
        """Yield more and more attributes, exact and k-anonymous, and noised values."""
        full = suite == "full"
        for attributes in (3, 5, 7):
            raw = ReleasedSetting(attributes, targets=self.targets, path=self.path)
            at = {"attributes": float(attributes)}
            yield Case(raw, Defense("plain"), at)
            for k in (2, 5, 10, 50) if full else (5,):
                yield Case(replace(raw, k=k), Defense(f"k-anonymity, k = {k}"), at)
            if self.path:
                # A message from each of 30,000 people would take minutes.
                continue
            for sigma in (1.0, 2.0, 4.0) if full else (2.0,):
                name = f"local noise of {sigma:g} on the value"
                yield Case(raw, Defense(name, clip=1.0, noise="local", sigma=sigma), at)

    def baseline(self, view: ReleasedView, rng: np.random.Generator) -> Guess:
        """Guess for everybody what most people have, and link nobody."""
        if view.register is None:
            raise ValueError("the view holds no register: add it to what the threat knows")
        nobody = np.zeros(len(view.register), dtype=np.bool_)
        return Guess({"unique": nobody, "certain": nobody, "secret": nobody | (view.share > 0.5)})

    def run(self, view: ReleasedView, rng: np.random.Generator) -> Guess:
        """Find the rows that each person may be, and weigh their values."""
        if view.register is None or view.secret is None:
            raise ValueError("the view holds no register, or no table: require both of the setting")
        probabilities = _meaning(view)[view.secret.astype(np.int64)]
        matches, chances = [], []
        for person in view.register:
            may_be = ((view.low <= person) & (person <= view.high)).all(axis=1)
            matches.append(np.count_nonzero(may_be))
            chances.append(probabilities[may_be].mean() if may_be.any() else view.share)
        chance = np.array(chances)
        return Guess(
            {
                "unique": np.array(matches) == 1,
                "certain": (chance == 0) | (chance == 1),
                "secret": chance > 0.5,
            }
        )

    def score(self, guess: Guess, truth: Mapping[str, np.ndarray]) -> Mapping[str, Proportion]:
        """Return who is unique, whose value is certain and right, and whose is guessed right."""
        right = guess["secret"] == truth["secret"]
        unique, certain, guessed = (metric.name for metric in self.metrics)
        return {
            unique: Proportion(guess["unique"]),
            certain: Proportion(guess["certain"] & right),
            guessed: Proportion(right),
        }


def _meaning(view: ReleasedView) -> np.ndarray:
    """Return the probability of the sensitive value, given a released no and a released yes."""
    yes = view.share * np.array([view.flipped, 1 - view.flipped])
    no = (1 - view.share) * np.array([1 - view.flipped, view.flipped])
    return yes / (yes + no)


ATTACKS = (Linkage(),)
"""As the table lists them."""
