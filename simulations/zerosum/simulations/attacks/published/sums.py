"""One private sum of given vectors: real clients send them, the real mechanism protects them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from zerosum.client import contribution
from zerosum.client.entropy import SeededEntropy
from zerosum.client.request import Question, Request
from zerosum.client.spec import DataSpec, ModelSpec, PrivacySpec, SecAggSpec, TrainSpec
from zerosum.client.task import ClientInfo, Task
from zerosum.secagg.randomness import derive_seed
from zerosum.server.accounting import RunLedger
from zerosum.server.aggregate import Aggregate
from zerosum.server.coordinator import ChargeKind, Coordinator, Nodes
from zerosum.server.spec import SamplingSpec
from zerosum.simulations.attacks.interface import Protection
from zerosum.simulations.attacks.sections import encoding_of, privacy_of, secagg_of
from zerosum.simulations.attacks.tampering import Clients
from zerosum.simulations.grid import InProcessGrid, nodes

_KEY = (1, 0, "train", 0)


@dataclass(frozen=True)
class Answered:
    """What a private sum gave.

    Attributes
    ----------
    total : ndarray
        float64, shape (d,): the opened sum, noise included.
    contributions : ndarray or None
        float64, shape (n, d): each client's own, where they are not masked.
    noise_std : float
        Of each coordinate of the sum.
    epsilon : dict of str to float
        By observer, "sum", "local" and "release", as the ledger says; infinite without noise.
    """

    total: np.ndarray
    contributions: np.ndarray | None
    noise_std: float
    epsilon: dict[str, float]


def private_sum_of(vectors: np.ndarray, protection: Protection, seed: int) -> Answered:
    """Ask one client a row for its vector, and open the sum.

    Parameters
    ----------
    vectors : ndarray of float
        Shape (n, d), one a client; longer ones than the clip are clipped, as everywhere.
    protection : Protection
    seed : int
        Of noise and rounding.

    Raises
    ------
    RoundAbandoned
        If no sum was released.
    """
    clients, dimension = vectors.shape
    privacy, secagg = privacy_of(protection, clients, dimension), secagg_of(protection)
    ledger = _ledger(protection, privacy, secagg, clients, dimension)

    def charge(what: ChargeKind, group: int, asked: tuple[int, ...]) -> None:
        if what == "contributions":
            ledger.charge_contributions(_KEY, asked, cohort=clients)
        else:
            ledger.charge_sum(_KEY)

    opened = _coordinator(vectors, secagg, seed).private_sum(
        _request(protection, privacy, clients, dimension, seed),
        [tuple(range(clients))],
        round=1,
        charge=charge,
    )
    figures = ledger.figures()
    epsilon = {name: _epsilon(figures[name]["value"]) for name in ("sum", "local", "release")}
    return Answered(opened.total, _each(opened), opened.noise_std, epsilon)


class _GivenVectors(Clients):
    """Clients that send a given vector where others would train."""

    vectors: np.ndarray

    def update(self, request: Request, task: Task, client: ClientInfo) -> np.ndarray:
        """Return the client's row."""
        row: np.ndarray = self.vectors[client.index]
        return row


class _NoTask:
    """Stands where a task would: vectors are sent whatever it is."""


def _coordinator(vectors: np.ndarray, secagg: SecAggSpec, seed: int) -> Coordinator:
    entropy, no_task = SeededEntropy(seed), _no_task()
    environment = _GivenVectors.with_rules(no_task, entropy, secagg, len(vectors))
    environment.vectors = vectors
    return Coordinator(
        InProcessGrid(environment.app, len(vectors)),
        Nodes(nodes(len(vectors)), environment.roster),
        secagg,
        run_id=derive_seed(seed, "attacked sum")[:16],
        entropy=entropy,
        cache=environment.cache,
    )


def _no_task() -> Any:
    return _NoTask()


def _request(
    protection: Protection, privacy: PrivacySpec, clients: int, dimension: int, seed: int
) -> Request:
    question = Question(
        kind="train",
        round=1,
        seed=seed,
        population=clients,
        task="given vectors",
        data=DataSpec(),
        model=ModelSpec(),
        training=TrainSpec(),
        privacy=privacy,
        encoding=encoding_of(protection),
        noise_draw="per_client",
        max_loss=1.0,
    )
    return Request(question, np.zeros(dimension, dtype=np.float32))


def _ledger(
    protection: Protection,
    privacy: PrivacySpec,
    secagg: SecAggSpec,
    clients: int,
    dimension: int,
) -> RunLedger:
    built = contribution.Protection.build(
        privacy,
        encoding_of(protection),
        cohort=clients,
        dimension=dimension,
        rotation_seed=bytes(32),
    )
    return RunLedger(
        None,
        privacy=privacy,
        secagg=secagg,
        sampling=SamplingSpec(kind="everyone"),
        population=clients,
        protections={"train": built},
    )


def _epsilon(value: float | None) -> float:
    return float("inf") if value is None else float(value)


def _each(opened: Aggregate) -> np.ndarray | None:
    if opened.contributions is None:
        return None
    return np.stack([opened.contributions[i] for i in sorted(opened.contributions)])
