"""Attack a known rule: move as far along a direction as the server's own function follows.

One attack ruins the model, the other puts a backdoor into it. All other attackers of this package
play the same against every rule; these two measure what a rule is worth.

Sources: Fang, Cao, Jia, Gong, "Local model poisoning attacks to Byzantine-robust federated
learning" (2020), section 3; Shejwalkar, Houmansadr, "Manipulating the Byzantine" (2021), section
IV; Bagdasaryan, Veit, Hua, Estrin, Shmatikov, "How to backdoor federated learning" (2020), section
3.4: a backdoor within what a defense lets pass.
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
    """Send the mean of honest updates plus as much of a direction as the rule follows.

    Attributes
    ----------
    direction : str
        See :data:`~.directions.Direction`.
    """

    direction: Direction = "unit"

    name: ClassVar[str] = "tailored to the rule"
    threat: ClassVar[ThreatModel] = KNOWS
    quick: ClassVar[tuple[PoisonedSetting, ...]] = (DIRICHLET_CLIENTS,)

    @property
    def adaptive(self) -> str:
        """Return the direction."""
        return f"tries the server's rule on imagined peers, along the {self.direction}"

    def craft(self, view: PoisonView, rng: np.random.Generator) -> np.ndarray:
        """Return the rehearsed update, for every malicious client, shape (k, d)."""
        return sent_along(view, along(honest_updates(view), self.direction), rng)


@dataclass(frozen=True)
class TailoredBackdoor(Backdoor):
    """Send the mean of honest updates plus as much of a backdoor as the rule follows.

    The direction is the mean difference between updates on poisoned and on honest records.
    """

    name: ClassVar[str] = "tailored backdoor"
    adaptive: ClassVar[str] = "tries the server's rule on imagined peers, towards a backdoor"
    threat: ClassVar[ThreatModel] = KNOWS
    quick: ClassVar[tuple[PoisonedSetting, ...]] = (IID_CLIENTS, DIRICHLET_CLIENTS)

    def craft(self, view: PoisonView, rng: np.random.Generator) -> np.ndarray:
        """Return the rehearsed update, for every malicious client, shape (k, d)."""
        pairs = zip(view.inputs, view.labels, strict=True)
        poisoned = [trained(view, *self.poisoned(*pair), rng) for pair in pairs]
        away = np.mean(poisoned, axis=0) - honest_updates(view).mean(axis=0)
        return sent_along(view, away / np.linalg.norm(away), rng)


def sent_along(view: PoisonView, direction: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the update that moves the outcome furthest along a direction.

    Parameters
    ----------
    view : PoisonView
    direction : ndarray of float64
        Shape (d,), of norm 1.
    rng : numpy.random.Generator
        Draws the imagined peers.

    Returns
    -------
    ndarray of float64
        Shape (k, d): the same row for every malicious client.
    """
    known = honest_updates(view)
    scale = caution(view) * Rehearsal.of(view, rng).furthest(direction)
    return np.tile(known.mean(axis=0) + scale * direction, (len(known), 1))


RULE_COLUMNS = tuple(rule.name for rule in RULES)

ATTACKS = (
    Tailored(only=RULE_COLUMNS),
    TailoredBackdoor(only=(MASKED_AND_CLIPPED.name, *RULE_COLUMNS)),
)
"""As the table lists them."""
