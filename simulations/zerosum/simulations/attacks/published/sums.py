"""Open one private sum of given vectors, by real clients and the real mechanism."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from zerosum.client.protocol.noise_source import SeededEntropy
from zerosum.client.request import Request
from zerosum.client.spec import ModelSpec, TrainSpec
from zerosum.client.task import ClientInfo, Task
from zerosum.server.private_sum.aggregate import Aggregate
from zerosum.server.spec import SamplingSpec
from zerosum.simulations.attacks.harness.interface import Defense
from zerosum.simulations.attacks.harness.to_specs import secagg_of
from zerosum.simulations.attacks.settings.malicious_server import PolicyClients
from zerosum.simulations.attacks.settings.private_sums import PrivateSums, SumRequest
from zerosum.simulations.engine.grid import InProcessGrid


@dataclass(frozen=True)
class Answered:
    """Hold the result of a private sum.

    Attributes
    ----------
    total : ndarray
        float64, shape (d,): the opened sum, noise included.
    contributions : ndarray or None
        float64, shape (n, d): each client's own, where they are not masked.
    noise_std : float
        Standard deviation of each coordinate of the sum.
    epsilon : dict of str to float
        The ledger's, by observer: "sum", "local" and "release"; infinite without noise.
    """

    total: np.ndarray
    contributions: np.ndarray | None
    noise_std: float
    epsilon: dict[str, float]


def private_sum_of(vectors: np.ndarray, protection: Defense, seed: int) -> Answered:
    """Open the sum of given vectors, one a client.

    Parameters
    ----------
    vectors : ndarray of float
        Shape (n, d), a row a client; rows longer than the clip are clipped.
    protection : Defense
    seed : int
        Of noise and rounding.

    Returns
    -------
    Answered

    Raises
    ------
    RoundAbandoned
        If no sum was released.
    """
    clients, dimension = vectors.shape
    environment = _GivenVectors.with_rules(
        _no_task(), SeededEntropy(seed), secagg_of(protection), clients
    )
    environment.vectors = vectors
    nothing = np.zeros(dimension, dtype=np.float32)
    sums = PrivateSums(
        SumRequest("given vectors", ModelSpec(), TrainSpec(), nothing),
        protection,
        environment,
        InProcessGrid(environment.app, clients),
        population=clients,
        cohort=clients,
        sampling=SamplingSpec(kind="everyone"),
        seed=seed,
        purpose="attacked sum",
    )
    opened = sums.open(1, range(clients))
    return Answered(opened.total, _each(opened), opened.noise_std, sums.epsilons())


class _GivenVectors(PolicyClients):
    """Send a given vector where other clients would train."""

    vectors: np.ndarray

    def update(self, request: Request, task: Task, client: ClientInfo) -> np.ndarray:
        """Return the client's row."""
        row: np.ndarray = self.vectors[client.index]
        return row


class _NoTask:
    """Stand for a task, which clients with given vectors never use."""


def _no_task() -> Any:
    return _NoTask()


def _each(opened: Aggregate) -> np.ndarray | None:
    if opened.contributions is None:
        return None
    return np.stack([opened.contributions[i] for i in sorted(opened.contributions)])
