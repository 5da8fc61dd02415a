"""Model replacement: one client sends an update so large that the average becomes its own model.

It works where nothing bounds an update, and then one client in one round is enough. A clip that the
client keeps stops it, and so does every rule; a clip that its own code leaves out stops nothing.

Source: Bagdasaryan, Veit, Hua, Estrin, Shmatikov, "How to backdoor federated learning" (2020),
equation 3.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from zerosum.simulations.attacks.interface import Case, ThreatModel
from zerosum.simulations.attacks.poisoning.backdoors import Backdoor
from zerosum.simulations.attacks.poisoning.goals import CLIP, CLIPPED, PLAIN, Poisoning
from zerosum.simulations.attacks.poisoning.malicious import PoisonView, trained
from zerosum.simulations.attacks.poisoning.poisoned import PoisonedSetting

ONCE = PoisonedSetting(malicious=1, rounds=1, before=20, lr=0.3, bound=CLIP)
"""One client, in one round of a model that has nearly converged."""

AGAIN = replace(ONCE, rounds=10)
"""The same client in ten rounds: what it can do within a clip."""


@dataclass(frozen=True)
class ModelReplacement(Backdoor):
    """Send a backdoored model's difference to the global one, many times over, each round.

    Attributes
    ----------
    scale : float or None
        None: n / (eta k), which makes the average the attacker's model.
    epochs : int
        Of the attacker's own training.
    """

    scale: float | None = None
    epochs: int = 3

    name: ClassVar[str] = "model replacement"
    threat: ClassVar[ThreatModel] = replace(Poisoning.threat, colluders=1)

    @property
    def adaptive(self) -> str:
        """Whether its own clip binds it, and the scale."""
        how = "its own code: no clip" if self.own_code else "no: before its own clip"
        return f"{how}; scaled by {'n/eta' if self.scale is None else format(self.scale, 'g')}"

    def cases(self, suite: str) -> Iterable[Case]:
        """Return the cells; of a scale of one's own, those that the picture of scales needs."""
        if self.scale is not None:
            return [Case(ONCE, one, {"scale": self.scale}) for one in (PLAIN, CLIPPED)]
        settings = (ONCE,) if suite == "quick" else (ONCE, replace(ONCE, clients=50, root=80))
        found = [
            Case(where, one, {"scale": where.clients / where.server_lr})
            for where in settings
            for one in self.protections(suite)
        ]
        return found if self.own_code else [*found, Case(AGAIN, CLIPPED)]

    def craft(self, view: PoisonView, rng: np.random.Generator) -> np.ndarray:
        """Return what is sent, shape (k, d)."""
        training = view.training.model_copy(update={"epochs": self.epochs})
        records = self.poisoned(np.concatenate(view.inputs), np.concatenate(view.labels))
        whole = view.clients / (view.server_lr * len(view.inputs))
        scale = whole if self.scale is None else self.scale
        return np.tile(scale * trained(view, *records, rng, training), (len(view.inputs), 1))


ATTACKS = (
    ModelReplacement(),
    ModelReplacement(own_code=True),
    *(ModelReplacement(scale=scale) for scale in (2.0, 5.0, 10.0)),
)
"""As the table has them; scales below n/eta are for the picture."""
