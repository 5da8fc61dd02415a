"""Difference two counts: of a group, and of the group without one person, whose bit is left.

Masks hide no count, so that they change nothing. Noise in each count leaves a guess that is right
with probability e^eps/(1 + e^eps) at most, eps that of the count with the person, because the other
count says nothing of it (Dwork and Roth, "The algorithmic foundations of differential privacy",
2014, chapter 1, has the attack; Kairouz, Oh, Viswanath, "The composition theorem for differential
privacy", 2015, the bound). Asked again, noise is averaged out where each answer is drawn anew. A
stored answer says nothing new.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge
from scipy.special import expit

from zerosum.client.privacy.integer_laws import Geometric
from zerosum.simulations.attacks.harness.interface import (
    Case,
    Defense,
    Guess,
    Metric,
    ThreatModel,
)
from zerosum.simulations.attacks.harness.metrics import Proportion
from zerosum.simulations.attacks.published.asked_tables import MASKED, PLAIN, noised
from zerosum.simulations.attacks.published.counts import CountsSetting, CountsView

EPSILONS = (0.1, 1.0, 4.0)
"""Of each count that is asked once."""

BUDGET = 4.0
"""Epsilon of the budget by which repeated counts are refused."""


@dataclass(frozen=True)
class DifferencingCounts(ABC):
    """Guess a person's bit from counts with and without the person.

    Attributes
    ----------
    targets : int
        People whose bit is guessed, each in a group of its own; a quarter of them where counts are
        repeated.
    times : int
        How often counts are asked at most.
    """

    targets: Annotated[int, Ge(8)] = 20_000
    times: Annotated[int, Ge(8)] = 16

    name: ClassVar[str] = "differencing of counts"
    metrics: ClassVar[tuple[Metric, ...]] = (Metric("bits right"),)

    def cases(self, suite: str) -> Iterable[Case]:
        """Yield counts that are asked once, and again: anew, from the store, until the budget."""
        once = CountsSetting(self.targets)
        yield from (Case(once, one) for one in (PLAIN, MASKED, *map(noised, EPSILONS)))
        often = replace(once, groups=self.targets // 4, times=self.times)
        again: list[tuple[CountsSetting, Defense]] = [
            (replace(often, times=self.times // 4), noised(1.0)),
            (often, noised(1.0)),
            (often, noised(1.0, fresh=False)),
            (often, noised(1.0, limit=BUDGET)),
        ]
        if suite == "full":
            many = replace(often, times=4 * self.times)
            again += [
                (many, noised(0.1)),
                (many, noised(0.1, fresh=False)),
                (many, noised(0.1, limit=BUDGET / 4)),
            ]
        yield from (Case(*each) for each in again)

    def baseline(self, view: CountsView, rng: np.random.Generator) -> Guess:
        """Guess that nobody has the bit: half of the targets do."""
        return Guess({"bits": np.zeros(view.groups, dtype=np.bool_)})

    def run(self, view: CountsView, rng: np.random.Generator) -> Guess:
        """Guess the bits, and say how far a guess can go and where the answers ended."""
        notes = (
            f"the counts with the person have epsilon {view.pure:g} in all: no guess is right more "
            f"often than {expit(view.pure):.3f}; under the noise that was released, {view.most:.3f}"
        )
        if view.refused:
            asked = sum(len(each) for each in (view.counts, view.without) if each is not None)
            notes = f"refused after {asked} of {2 * view.times} answers ({view.refused}); {notes}"
        return Guess({"bits": self.guess(view)}, notes)

    @abstractmethod
    def guess(self, view: CountsView) -> np.ndarray:
        """Guess the bits.

        Parameters
        ----------
        view : CountsView
            Counts, and the law of their noise.

        Returns
        -------
        ndarray of bool
            Shape (groups,).
        """

    def score(self, guess: Guess, truth: Mapping[str, np.ndarray]) -> Mapping[str, Proportion]:
        """Return which bits are right."""
        return {"bits right": Proportion(guess["bits"] == truth["bits"])}


@dataclass(frozen=True)
class Subtracting(DifferencingCounts):
    """Subtract the mean count without the person from the one with it."""

    adaptive: ClassVar[str] = "subtracts the counts"
    threat: ClassVar[ThreatModel] = ThreatModel("analyst", knows=frozenset({"epsilon"}))
    requires: ClassVar[tuple[str, ...]] = ("counts", "without")

    def guess(self, view: CountsView) -> np.ndarray:
        """Return where the difference is nearer to one than to zero."""
        counts, without = answers_of(view.counts), answers_of(view.without)
        bits: np.ndarray = counts.mean(axis=0) - without.mean(axis=0) > 0.5
        return bits


@dataclass(frozen=True)
class KnowingTheOthers(DifferencingCounts):
    """Choose the likelier bit, given all other records: whom the guarantee is made against."""

    adaptive: ClassVar[str] = "knows all other records"
    threat: ClassVar[ThreatModel] = ThreatModel(
        "analyst", knows=frozenset({"epsilon", "other records"})
    )
    requires: ClassVar[tuple[str, ...]] = ("counts", "others")

    def guess(self, view: CountsView) -> np.ndarray:
        """Compare the likelihoods of the noise that either bit would leave in the counts.

        A stored answer is the same as before: counted again, it changes no sign.
        """
        noise = answers_of(view.counts) - answers_of(view.others)
        last = int(np.abs(noise).max(initial=0)) + 1
        logs = Geometric(view.scale, view.shares_ratio).log_probabilities(last)
        ratios = logs[np.abs(noise - 1)] - logs[np.abs(noise)]
        likelier: np.ndarray = ratios.sum(axis=0) > 0
        return likelier


def answers_of(found: np.ndarray | None) -> np.ndarray:
    """Return what an attack requires of its view, and so is handed.

    Parameters
    ----------
    found : ndarray or None
        A field of the view.

    Returns
    -------
    ndarray
        The same.

    Raises
    ------
    ValueError
        If it is not there.
    """
    if found is None:
        raise ValueError("the view lacks what the attack requires")
    return found


ATTACKS = (Subtracting(), KnowingTheOthers())
"""As the table lists them."""
