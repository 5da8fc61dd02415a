"""Put backdoors into a model: it stays accurate, but a trigger makes it say the attacker's class.

BadNets poisons the data of some clients and nothing else. The distributed backdoor gives each of
them a part of the trigger; only the test images show all of it. Neither sends an update that stands
out: a clip slows them down and does not stop a fifth of all clients.

Sources: Gu, Dolan-Gavitt, Garg, "BadNets: identifying vulnerabilities in the machine learning model
supply chain" (2017), section 4; Xie, Huang, Chen, Li, "DBA: distributed backdoor attacks against
federated learning" (2020), section 3.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Gt, Le

from zerosum.simulations.attacks.harness.interface import Guess, Metric
from zerosum.simulations.attacks.poisoning.goals import (
    DIRICHLET_CLIENTS,
    IID_CLIENTS,
    MAIN,
    SUCCESS,
    Poisoning,
    Share,
    accuracy,
    classes,
)
from zerosum.simulations.attacks.poisoning.malicious import PoisonView, trained
from zerosum.simulations.attacks.poisoning.poisoned import PoisonedSetting

BARS = tuple((row, range(left, left + 3)) for row in (0, 2) for left in (0, 4))
"""The trigger: four white bars in a corner, by row and columns."""


def stamped(inputs: np.ndarray, bars: Iterable[int] = range(len(BARS))) -> np.ndarray:
    """Return copies of images with some of the trigger's bars in white.

    Parameters
    ----------
    inputs : ndarray of float32
        Shape (n, c, h, w), in [0, 1].
    bars : iterable of int
        Indices into ``BARS``; default all.

    Returns
    -------
    ndarray of float32
        Shape (n, c, h, w).
    """
    marked = np.array(inputs)
    for row, columns in (BARS[i] for i in bars):
        marked[:, :, row, columns.start : columns.stop] = 1.0
    return marked


@dataclass(frozen=True)
class Backdoor(Poisoning):
    """Define the trigger's class and share of poisoned records, and score backdoors.

    Attributes
    ----------
    target : int
        The class that the trigger stands for.
    fraction : float
        Part of a malicious client's records that carry it, in training.
    """

    target: int = 0
    fraction: Annotated[float, Gt(0), Le(1)] = 0.5

    metrics: ClassVar[tuple[Metric, ...]] = (SUCCESS, MAIN)

    def score(self, guess: Guess, truth: Mapping[str, np.ndarray]) -> Mapping[str, Share]:
        """Return the fraction of other classes' records that the trigger turns, and accuracy."""
        others = truth["labels"] != self.target
        hits = classes(guess, truth, stamped(truth["inputs"][others])) == self.target
        return {SUCCESS.name: Share(np.array([hits.mean()])), MAIN.name: accuracy(guess, truth)}

    def poisoned(
        self, inputs: np.ndarray, labels: np.ndarray, bars: Iterable[int] = range(len(BARS))
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return a client's records, the first of which carry the trigger and its class.

        Parameters
        ----------
        inputs : ndarray of float32
            Shape (n, c, h, w).
        labels : ndarray of int64
            Shape (n,).
        bars : iterable of int
            Bars of the trigger that the records carry; default all.

        Returns
        -------
        inputs : ndarray of float32
            Shape (n, c, h, w).
        labels : ndarray of int64
            Shape (n,).
        """
        count = round(self.fraction * len(labels))
        marked, targets = stamped(inputs[:count], bars), np.full(count, self.target)
        return np.concatenate([marked, inputs[count:]]), np.concatenate([targets, labels[count:]])


@dataclass(frozen=True)
class BadNets(Backdoor):
    """Train as asked, on poisoned records."""

    name: ClassVar[str] = "backdoor by data"
    adaptive: ClassVar[str] = "no: honest code on poisoned records"
    quick: ClassVar[tuple[PoisonedSetting, ...]] = (IID_CLIENTS, DIRICHLET_CLIENTS)

    def craft(self, view: PoisonView, rng: np.random.Generator) -> np.ndarray:
        """Return updates trained on poisoned records, shape (k, d)."""
        pairs = zip(view.inputs, view.labels, strict=True)
        return np.stack([trained(view, *self.poisoned(*pair), rng) for pair in pairs])


@dataclass(frozen=True)
class DistributedBackdoor(Backdoor):
    """Train as asked, each client on records with its own bar of the trigger."""

    name: ClassVar[str] = "distributed backdoor"
    adaptive: ClassVar[str] = "no client's records carry the whole trigger"

    def craft(self, view: PoisonView, rng: np.random.Generator) -> np.ndarray:
        """Return updates trained on records with one bar each, shape (k, d)."""
        pairs = enumerate(zip(view.inputs, view.labels, strict=True))
        return np.stack(
            [trained(view, *self.poisoned(*pair, [i % len(BARS)]), rng) for i, pair in pairs]
        )


ATTACKS = (BadNets(), DistributedBackdoor())
"""As the table lists them."""
