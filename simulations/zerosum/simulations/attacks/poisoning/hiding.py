"""Hide poisoned updates among honest ones: "A little is enough" and "Min-Max".

All malicious clients send one vector. It lies about as far from honest updates as these lie from
each other, so that no rule of distances singles it out. Both papers estimate unknown honest updates
from the colluders' own, as is done here.

Sources: Baruch, Baruch, Goldberg, "A little is enough: circumventing defenses for distributed
learning" (2019), algorithm 3; Shejwalkar, Houmansadr, "Manipulating the Byzantine: optimizing model
poisoning attacks and defenses for federated learning" (2021), "Min-Max" and "Min-Sum", of the
attacks that do not know the rule.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.spatial.distance import cdist, pdist, squareform
from scipy.stats import norm

from zerosum.simulations.attacks.poisoning.directions import Direction, along, spread
from zerosum.simulations.attacks.poisoning.goals import (
    DIRICHLET_CLIENTS,
    MEANS,
    Ruin,
    honest_updates,
)
from zerosum.simulations.attacks.poisoning.malicious import PoisonView
from zerosum.simulations.attacks.poisoning.poisoned import PoisonedSetting

# 2^-40 of the largest distance is below what float32 updates can resolve.
_HALVINGS = 40


@dataclass(frozen=True)
class LittleIsEnough(Ruin):
    """Send the mean less some standard deviations, in each coordinate.

    Attributes
    ----------
    deviations : float or None
        z. None: the largest at which enough honest clients lie beyond it to be outvoted.
    """

    deviations: float | None = None

    name: ClassVar[str] = "a little is enough"
    quick: ClassVar[tuple[PoisonedSetting, ...]] = (DIRICHLET_CLIENTS,)

    @property
    def adaptive(self) -> str:
        """Return the number of standard deviations."""
        far = "as a vote allows" if self.deviations is None else f"{self.deviations:g}"
        return f"colluders' own mean and deviation, z {far}"

    def craft(self, view: PoisonView, rng: np.random.Generator) -> np.ndarray:
        """Return the mean less z standard deviations, for every malicious client, shape (k, d)."""
        known = honest_updates(view)
        z = self.deviations
        if z is None:
            z = deviations_of(view.clients, len(known))
        return np.broadcast_to(known.mean(axis=0) - z * spread(known), known.shape)


def deviations_of(clients: int, malicious: int) -> float:
    """Return z: Phi^-1((n - m - s) / (n - m)), s = floor(n / 2 + 1) - m, at least 0.

    With s honest clients beyond it, the vector that m clients send is the median: Baruch, Baruch,
    Goldberg (2019), algorithm 3.

    Parameters
    ----------
    clients, malicious : int
        n and m.

    Returns
    -------
    float
        In standard deviations of a coordinate.
    """
    supporters = clients // 2 + 1 - malicious
    honest = clients - malicious
    return max(0.0, float(norm.ppf((honest - supporters) / honest)))


@dataclass(frozen=True)
class MinMax(Ruin):
    """Send the mean plus the most of a direction that stays within the largest known distance.

    Attributes
    ----------
    direction : str
        "deviation": against each coordinate's standard deviation; "unit": against the mean;
        "sign": against its signs.
    summed : bool
        Bound the sum of squared distances to all others by the largest such sum, instead of the
        largest distance: the paper's "Min-Sum".
    """

    direction: Direction = "unit"
    summed: bool = False

    name: ClassVar[str] = "min-max"
    quick: ClassVar[tuple[PoisonedSetting, ...]] = (DIRICHLET_CLIENTS,)

    @property
    def adaptive(self) -> str:
        """Return the direction and the distance that bounds it."""
        what = "own sums of distances (min-sum)" if self.summed else "own distances"
        return f"colluders' {what}, along the {self.direction}"

    def craft(self, view: PoisonView, rng: np.random.Generator) -> np.ndarray:
        """Return the shifted mean, for every malicious client, shape (k, d)."""
        known = honest_updates(view)
        unit = along(known, self.direction)
        far = furthest_sum(known) if self.summed else furthest(known, unit)
        return np.broadcast_to(known.mean(axis=0) + far * unit, known.shape)


def furthest(known: np.ndarray, direction: np.ndarray) -> float:
    """Return the largest gamma at which mean + gamma direction keeps within the largest distance.

    Bisection from 0 to twice the largest distance: the distance to each update grows with gamma
    once it has passed its minimum, so the values within the bound form one interval from 0.

    Parameters
    ----------
    known : ndarray of float64
        Shape (k, d): updates; of a single one there are no distances, and gamma is 0.
    direction : ndarray of float64
        Shape (d,), of norm 1.

    Returns
    -------
    float
        In the units of an update.
    """
    mean, largest = known.mean(axis=0), float(pdist(known).max(initial=0.0))
    low, high = 0.0, 2 * largest
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        within = cdist(known, (mean + middle * direction)[None]).max() <= largest
        low, high = (middle, high) if within else (low, middle)
    return low


def furthest_sum(known: np.ndarray) -> float:
    """Return the largest gamma whose sum of squared distances exceeds no known update's sum.

    From mean + gamma direction the k squared distances add up to those from the mean and k gamma^2,
    whatever the direction: the bound has this closed form.
    """
    squared = squareform(pdist(known, "sqeuclidean"))
    around = float(((known - known.mean(axis=0)) ** 2).sum())
    return math.sqrt(max(0.0, (squared.sum(axis=1).max() - around) / len(known)))


ATTACKS = (
    LittleIsEnough(only=("geometric median", "FLTrust", "masked + median")),
    LittleIsEnough(deviations=0.5, only=("Bulyan",)),
    LittleIsEnough(deviations=1.0, only=("Krum", "multi-Krum")),
    LittleIsEnough(deviations=1.5, only=(*MEANS, "median", "trimmed mean")),
    MinMax(only=(*MEANS, "median", "trimmed mean", "multi-Krum", "geometric median", "FLTrust")),
    MinMax(summed=True, only=("Krum", "Bulyan", "masked + median")),
    MinMax(direction="deviation", only=("FLTrust",)),
    MinMax(direction="sign", only=("FLTrust",)),
)
"""As the table lists them; those of one name are variants of one attack."""
