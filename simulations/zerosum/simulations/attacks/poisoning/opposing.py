"""Sign flip and inner product manipulation: the average turned round.

Both send the opposite of an honest update, and show what a mean does: it goes where a few want it
to, if they are loud. The first sends each client's own update, the second one vector of all.

Sources: Li, Xu, Chen, Giannakis, Ling, "RSA: Byzantine-robust stochastic aggregation methods"
(2019), section 5, "sign-flipping attack", on updates; Xie, Koyejo, Gupta, "Fall of empires:
breaking Byzantine-tolerant SGD by inner product manipulation" (2019), section 4.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from zerosum.simulations.attacks.poisoning.goals import (
    CLIPS,
    DIRICHLET_CLIENTS,
    MEANS,
    OWN_CODE,
    Ruin,
    honest_updates,
)
from zerosum.simulations.attacks.poisoning.malicious import PoisonView
from zerosum.simulations.attacks.poisoning.poisoned import PoisonedSetting

NEAR = ("Krum", "multi-Krum", "FLTrust", "masked + median")
"""Columns of rules that leave out what is far; the last one is refused to all alike."""


@dataclass(frozen=True)
class SignFlip(Ruin):
    """Send -scale times one's own honest update.

    Attributes
    ----------
    scale : float
        The mean of n, k of them malicious, is turned round above (n - k) / k.
    """

    scale: float = 10.0

    name: ClassVar[str] = "sign flip"

    @property
    def adaptive(self) -> str:
        """Whether its own clip binds it."""
        how = OWN_CODE if self.own_code else CLIPS
        return f"{how}; {self.scale:g} times"

    def craft(self, view: PoisonView, rng: np.random.Generator) -> np.ndarray:
        """Return what is sent, shape (k, d)."""
        return -self.scale * honest_updates(view)


@dataclass(frozen=True)
class InnerProduct(Ruin):
    """Send -epsilon times the mean of honest updates, as the colluders' own tell it.

    Attributes
    ----------
    epsilon : float
        Large, it turns a mean round. Small, what is sent lies as near to honest updates as they to
        each other, and misleads rules that select the nearest.
    """

    epsilon: float = 0.5

    name: ClassVar[str] = "inner product"
    quick: ClassVar[tuple[PoisonedSetting, ...]] = (DIRICHLET_CLIENTS,)

    @property
    def adaptive(self) -> str:
        """What it is aimed at."""
        aim = "count what is far" if self.epsilon > 1 else "select what is near"
        return f"against rules that {aim}: epsilon = {self.epsilon:g}"

    def craft(self, view: PoisonView, rng: np.random.Generator) -> np.ndarray:
        """Return what is sent, shape (k, d)."""
        known = honest_updates(view)
        return np.broadcast_to(-self.epsilon * known.mean(axis=0), known.shape)


ATTACKS = (
    SignFlip(only=(*MEANS, *NEAR, "median", "trimmed mean")),
    SignFlip(own_code=True),
    SignFlip(scale=1.0, only=("Bulyan", "geometric median")),
    InnerProduct(only=(*NEAR, "Bulyan")),
    InnerProduct(epsilon=10.0, only=(*MEANS, "median", "trimmed mean", "geometric median")),
)
"""As the table has them; those of one name are variants of one attack."""
