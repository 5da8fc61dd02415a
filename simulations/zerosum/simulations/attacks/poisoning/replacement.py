"""Replace the model: one client scales its update until the average becomes its own model.

The attack needs one client in one round, where nothing bounds an update. A clip that the client
keeps stops it, and so does every rule. A clip that the client's own code leaves out stops nothing.

Source: Bagdasaryan, Veit, Hua, Estrin, Shmatikov, "How to backdoor federated learning" (2020),
equation 3.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from zerosum.simulations.attacks.harness.interface import Case, ThreatModel
from zerosum.simulations.attacks.poisoning.backdoors import Backdoor
from zerosum.simulations.attacks.poisoning.goals import (
    CLIP,
    CLIPS,
    MASKED_AND_CLIPPED,
    NO_DEFENSE,
    OWN_CODE,
    RULES,
    Poisoning,
)
from zerosum.simulations.attacks.poisoning.malicious import PoisonView, trained
from zerosum.simulations.attacks.poisoning.poisoned import PoisonedSetting

ONE_ROUND = PoisonedSetting(malicious=1, rounds=1, before=20, lr=0.3, bound=CLIP)
"""One client, in one round of a model that has nearly converged."""

TEN_ROUNDS = replace(ONE_ROUND, rounds=10)
"""The same client in ten rounds: what it can do within a clip."""


@dataclass(frozen=True)
class ModelReplacement(Backdoor):
    """Send the scaled difference of a backdoored model to the global one, each round.

    Attributes
    ----------
    scale : float or None
        None: n / (eta k), which makes the average the attacker's model.
    epochs : int
        Of the attacker's own training.
    bound : float or None
        Train within this L2 norm of the global model, by projection after each epoch, and do not
        scale: such an update passes a clip or a server's bound unchanged.
    """

    scale: float | None = None
    epochs: int = 3
    bound: float | None = None

    name: ClassVar[str] = "model replacement"
    threat: ClassVar[ThreatModel] = replace(Poisoning.threat, colluders=1)

    @property
    def adaptive(self) -> str:
        """Return whether its own clip binds it, and the scale."""
        if self.bound is not None:
            return f"trained within a norm of {self.bound:g}"
        how = OWN_CODE if self.own_code else CLIPS
        return f"{how}; scaled by {'n/eta' if self.scale is None else format(self.scale, 'g')}"

    def cases(self, suite: str) -> Iterable[Case]:
        """Return the cells; of a scale of one's own, those that the picture of scales needs."""
        rules = RULES if suite == "full" else ()
        if self.bound is not None:
            settings = (TEN_ROUNDS, ONE_ROUND) if suite == "full" else (TEN_ROUNDS,)
            return [Case(where, one) for where in settings for one in (MASKED_AND_CLIPPED, *rules)]
        if self.scale is not None:
            return [
                Case(ONE_ROUND, one, {"scale": self.scale})
                for one in (NO_DEFENSE, MASKED_AND_CLIPPED, *rules)
            ]
        settings = (
            (ONE_ROUND,)
            if suite == "quick"
            else (ONE_ROUND, replace(ONE_ROUND, clients=50, root=80))
        )
        found = [
            Case(where, one, {"scale": where.clients / where.server_lr})
            for where in settings
            for one in self.protections(suite)
        ]
        again = (MASKED_AND_CLIPPED, *rules)
        return found if self.own_code else [*found, *(Case(TEN_ROUNDS, one) for one in again)]

    def craft(self, view: PoisonView, rng: np.random.Generator) -> np.ndarray:
        """Return the scaled or projected update, for every malicious client, shape (k, d)."""
        records = self.poisoned(np.concatenate(view.inputs), np.concatenate(view.labels))
        if self.bound is not None:
            update = within(view, *records, rng, self.epochs, self.bound)
            return np.tile(update, (len(view.inputs), 1))
        training = view.training.model_copy(update={"epochs": self.epochs})
        whole = view.clients / (view.server_lr * len(view.inputs))
        scale = whole if self.scale is None else self.scale
        return np.tile(scale * trained(view, *records, rng, training), (len(view.inputs), 1))


def within(
    view: PoisonView,
    inputs: np.ndarray,
    labels: np.ndarray,
    rng: np.random.Generator,
    epochs: int,
    bound: float,
) -> np.ndarray:
    """Train on other records within a norm, by projection after each epoch.

    Sun, Kairouz, Suresh, McMahan, "Can you really backdoor federated learning?" (2019), section 3.

    Parameters
    ----------
    view : PoisonView
        Training starts from its current model.
    inputs : ndarray of float32
        Shape (n, c, h, w).
    labels : ndarray of int64
        Shape (n,).
    rng : numpy.random.Generator
        Fixes the order of batches.
    epochs : int
    bound : float
        L2 norm of the update.

    Returns
    -------
    ndarray of float64
        Shape (d,).
    """
    once = view.training.model_copy(update={"epochs": 1})
    update = np.zeros(view.vectors.shape[1])
    for _ in range(epochs):
        here = replace(view, vectors=(view.vectors[-1] + update).astype(np.float32)[None])
        update = update + trained(here, inputs, labels, rng, once)
        update *= min(1.0, bound / (float(np.linalg.norm(update)) or 1.0))
    return update


ATTACKS = (
    ModelReplacement(),
    ModelReplacement(own_code=True),
    *(ModelReplacement(scale=scale) for scale in (2.0, 5.0, 10.0)),
    ModelReplacement(bound=CLIP),
)
"""As the table lists them; scales below n/eta are for the picture."""
