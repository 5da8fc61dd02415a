"""Reverse the average: sign flip and inner product manipulation.

Both send the opposite of an honest update, and show that a mean has no defense: a few clients with
large updates decide its direction. Sign flip negates each client's own update. Inner product
manipulation sends one vector from all.

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
"""Columns of rules that discard distant updates; the last one is refused to all attacks."""


@dataclass(frozen=True)
class SignFlip(Ruin):
    """Send -scale times one's own honest update.

    Attributes
    ----------
    scale : float
        Above (n - k) / k the mean of n clients, k of them malicious, is reversed.
    """

    scale: float = 10.0

    name: ClassVar[str] = "sign flip"

    @property
    def adaptive(self) -> str:
        """Return how it uses the protection: by own code, or within its clip."""
        how = OWN_CODE if self.own_code else CLIPS
        return f"{how}; {self.scale:g} times"

    def craft(self, view: PoisonView, rng: np.random.Generator) -> np.ndarray:
        """Return each client's own update, negated and scaled, shape (k, d)."""
        return -self.scale * honest_updates(view)


@dataclass(frozen=True)
class InnerProduct(Ruin):
    """Send -epsilon times the mean of honest updates, estimated from the colluders' own.

    Attributes
    ----------
    epsilon : float
        A large one reverses a mean. A small one keeps the vector as near to honest updates as they
        are to each other, and misleads rules that select the nearest.
    """

    epsilon: float = 0.5

    name: ClassVar[str] = "inner product"
    quick: ClassVar[tuple[PoisonedSetting, ...]] = (DIRICHLET_CLIENTS,)

    @property
    def adaptive(self) -> str:
        """Return the kind of rule that this epsilon is aimed at."""
        aim = "count what is far" if self.epsilon > 1 else "select what is near"
        return f"against rules that {aim}: epsilon = {self.epsilon:g}"

    def craft(self, view: PoisonView, rng: np.random.Generator) -> np.ndarray:
        """Return the negated mean, for every malicious client, shape (k, d)."""
        known = honest_updates(view)
        return np.broadcast_to(-self.epsilon * known.mean(axis=0), known.shape)


ATTACKS = (
    SignFlip(only=(*MEANS, *NEAR, "median", "trimmed mean")),
    SignFlip(own_code=True),
    SignFlip(scale=1.0, only=("Bulyan", "geometric median")),
    InnerProduct(only=(*NEAR, "Bulyan")),
    InnerProduct(epsilon=10.0, only=(*MEANS, "median", "trimmed mean", "geometric median")),
)
"""As the table lists them; those of one name are variants of one attack."""
