"""Infer a property of a client's data that no label tells.

Melis et al. 2019, section 4: updates reveal more than the task needs. The attacker simulates
clients with and without the property from auxiliary data (Ganju et al. 2018, section 3) and learns
to tell their updates apart. In a sum the other clients' properties act as noise.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from scipy import stats
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from zerosum.simulations.attacks.harness.interface import (
    Case,
    Defense,
    Guess,
    Masking,
    Metric,
    ThreatModel,
)
from zerosum.simulations.attacks.harness.metrics import Ranking, Units
from zerosum.simulations.attacks.inference.mirrored_sums import (
    PropertySetting,
    PropertyView,
    simulated_updates,
)

AREA = Metric("AUC")

CLIP = 0.4
"""About the median norm of an update."""


def _noised(
    noise: Literal["local", "distributed"], sigma: float, masking: Masking = "none"
) -> Defense:
    name = f"{noise} noise {sigma:g} C"
    name = name if masking == "none" else f"masked + {name}"
    return Defense(name, masking=masking, clip=CLIP, noise=noise, sigma=sigma)


@dataclass(frozen=True)
class PropertyInference:
    """Fit a linear discriminant to simulated updates, and score by its likelihood ratio.

    Attributes
    ----------
    simulated : int
        Clients that the attacker simulates. Half have the property; half of each kind are fitted
        on, the others estimate the discriminant's moments.
    """

    simulated: int = 2000

    name: ClassVar[str] = "property inference"
    adaptive: ClassVar[str] = "simulates clip, noise and the others' coins"
    threat: ClassVar[ThreatModel] = ThreatModel(
        "curious server", knows=frozenset({"steps", "clip", "sigma", "auxiliary data"})
    )
    requires: ClassVar[tuple[str, ...]] = ("totals", "auxiliary_inputs", "auxiliary_labels")
    metrics: ClassVar[tuple[Metric, ...]] = (AREA,)

    def cases(self, suite: str) -> Iterable[Case]:
        """Yield single updates and sums."""
        full = suite == "full"
        for cohort in (10, 20, 50, 100) if full else (10, 50):
            # A sum of many clients reveals little, so it takes many sums to measure: with 300 the
            # 95 % interval of an AUC of 0.57 is about 0.04 to either side.
            setting = PropertySetting(cohort, sums=400 if cohort <= 20 else 300)
            at = {"cohort": float(cohort), "sigma": 0.0}
            yield Case(setting, Defense("masked", masking="double"), at)
        single = PropertySetting(10)
        yield Case(single, Defense("plain"), {"cohort": 1.0, "sigma": 0.0})
        for sigma in (0.01, 0.03, 0.1, 0.3, 1.0) if full else (0.1, 1.0):
            yield Case(single, _noised("local", sigma), {"cohort": 1.0, "sigma": sigma})
        for noise in ("local", "distributed") if full else ("local",):
            both = _noised(noise, 0.1, masking="double")
            yield Case(PropertySetting(10, sums=200), both, {"cohort": 10.0, "sigma": 0.1})

    def baseline(self, view: PropertyView, rng: np.random.Generator) -> Guess:
        """Give every client the same score."""
        return Guess({"scores": np.zeros(len(_vectors(view)[0]))})

    def run(self, view: PropertyView, rng: np.random.Generator) -> Guess:
        """Return the log-likelihood ratio of each client's coin.

        The target's coin shifts the discriminant by g. The coins of the n - 1 others add a variance
        of (n - 1) g^2 / 4, and all n clients add their own variance. Noise of the sum counts in
        each update as an n-th of its variance, so one direction is best for updates and sums alike.
        """
        vectors, others, noise = _vectors(view)
        share = noise / (others + 1) ** 0.5
        coins = np.arange(self.simulated) % 2 == 1
        updates = simulated_updates(view, coins, rng)
        noised = updates + share * rng.standard_normal(updates.shape)
        half = np.arange(self.simulated) < self.simulated // 2
        fitted = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
        direction = fitted.fit(noised[half], coins[half]).coef_[0]
        # The other half, for a discriminant separates the updates that it was fitted on too well.
        without, having = (noised[~half & (coins == coin)] @ direction for coin in (False, True))
        gap = having.mean() - without.mean()
        within = (without.var(ddof=1) + having.var(ddof=1)) / 2
        centre = (others + 1) * (having.mean() + without.mean()) / 2
        spread = (others + 1) * within + others * gap**2 / 4
        limit = (
            f"a sum of {others + 1} clients reveals at most how many have the property: AUC "
            f"{area_of_counts(others + 1):.2f}"
        )
        scores = gap * (vectors @ direction - centre) / spread
        return Guess({"scores": scores}, limit if others else "")

    def score(self, guess: Guess, truth: Mapping[str, np.ndarray]) -> Mapping[str, Units]:
        """Return how well scores rank clients with the property above others."""
        return {AREA.name: Ranking(guess["scores"], truth["has_property"])}


def area_of_counts(cohort: int) -> float:
    """Return the AUC of an attacker that knows only how many clients of a sum have the property.

    Clients are drawn alike, so a sum depends on the coins by their number alone: no attacker on
    sums does better. Of n - 1 others Binomial(n - 1, 1 / 2) have the property; the target adds one
    or none.
    """
    others = stats.binom.pmf(np.arange(cohort), cohort - 1, 0.5)
    above = np.cumsum(others)
    return float(others @ above + others[:-1] @ others[1:] / 2)


def _vectors(view: PropertyView) -> tuple[np.ndarray, int, float]:
    """Return vectors (sums, d), the number of other clients in each, and a coordinate's noise."""
    if view.contributions is not None:
        local = view.protection.noise == "local" and view.protection.clip is not None
        std = view.protection.sigma * (view.protection.clip or 0.0) if local else 0.0
        return view.contributions, 0, std
    if view.totals is None:
        raise ValueError("the view holds no sums: the server received none")
    return view.totals, view.cohort - 1, view.noise_std


ATTACKS = (PropertyInference(),)
"""As the table lists them."""
