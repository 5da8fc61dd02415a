"""Attacks that know the rule: as far along a direction as the server's own function still follows.

One ruins the model, one puts a backdoor into it. All other attackers here play the same against
every rule; what these achieve is what a rule is worth.

Sources: Fang, Cao, Jia, Gong, "Local model poisoning attacks to Byzantine-robust federated
learning" (2020), section 3; Shejwalkar, Houmansadr, "Manipulating the Byzantine" (2021), section
IV; Bagdasaryan, Veit, Hua, Estrin, Shmatikov, "How to backdoor federated learning" (2020), section
3.4: a backdoor within what is let pass.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from zerosum.simulations.attacks.harness.interface import ThreatModel
from zerosum.simulations.attacks.poisoning.adapting import Rehearsal, caution
from zerosum.simulations.attacks.poisoning.backdoors import Backdoor
from zerosum.simulations.attacks.poisoning.directions import Direction, along
from zerosum.simulations.attacks.poisoning.goals import (
    DIRICHLET_CLIENTS,
    IID_CLIENTS,
    MASKED_AND_CLIPPED,
    RULES,
    Poisoning,
    Ruin,
    honest_updates,
)
from zerosum.simulations.attacks.poisoning.malicious import PoisonView, trained
from zerosum.simulations.attacks.poisoning.poisoned import PoisonedSetting

KNOWS = replace(Poisoning.threat, knows=Poisoning.threat.knows | {"rule"})


@dataclass(frozen=True)
class Tailored(Ruin):
    """Send the mean of honest updates and as much of a direction as the rule follows.

    Attributes
    ----------
    direction : str
        As of min-max.
    """

    direction: Direction = "unit"

    name: ClassVar[str] = "tailored to the rule"
    threat: ClassVar[ThreatModel] = KNOWS
    quick: ClassVar[tuple[PoisonedSetting, ...]] = (DIRICHLET_CLIENTS,)

    @property
    def adaptive(self) -> str:
        """Which way it goes."""
        return f"tries the server's rule on imagined peers, along the {self.direction}"

    def craft(self, view: PoisonView, rng: np.random.Generator) -> np.ndarray:
        """Return what is sent, shape (k, d)."""
        return sent_along(view, along(honest_updates(view), self.direction), rng)


@dataclass(frozen=True)
class TailoredBackdoor(Backdoor):
    """Send the mean of honest updates and as much of a backdoor as the rule follows.

    The backdoor is what poisoned records change in honest updates, on average.
    """

    name: ClassVar[str] = "tailored backdoor"
    adaptive: ClassVar[str] = "tries the server's rule on imagined peers, towards a backdoor"
    threat: ClassVar[ThreatModel] = KNOWS
    quick: ClassVar[tuple[PoisonedSetting, ...]] = (IID_CLIENTS, DIRICHLET_CLIENTS)

    def craft(self, view: PoisonView, rng: np.random.Generator) -> np.ndarray:
        """Return what is sent, shape (k, d)."""
        pairs = zip(view.inputs, view.labels, strict=True)
        poisoned = [trained(view, *self.poisoned(*pair), rng) for pair in pairs]
        away = np.mean(poisoned, axis=0) - honest_updates(view).mean(axis=0)
        return sent_along(view, away / np.linalg.norm(away), rng)


def sent_along(view: PoisonView, way: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return what all malicious clients send, shape (k, d), to move the outcome along a way.

    Parameters
    ----------
    view : PoisonView
    way : ndarray
        Shape (d,), of norm 1.
    rng : numpy.random.Generator
        Draws the peers.
    """
    known = honest_updates(view)
    scale = caution(view) * Rehearsal.of(view, rng).furthest(way)
    return np.tile(known.mean(axis=0) + scale * way, (len(known), 1))


RULE_COLUMNS = tuple(rule.name for rule in RULES)

ATTACKS = (
    Tailored(only=RULE_COLUMNS),
    TailoredBackdoor(only=(MASKED_AND_CLIPPED.name, *RULE_COLUMNS)),
)
"""As the table has them."""
