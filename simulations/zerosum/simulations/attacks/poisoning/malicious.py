"""Run malicious clients: their view, their training, and how their updates are sent.

They know what a client knows and their accomplices' data. They know nothing of honest clients.
"""

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from flwr.app import RecordDict
from torch import nn

from zerosum.client.protocol.client_vector import Future, OnCollection, Work
from zerosum.client.protocol.protection import Protection
from zerosum.client.request import ModelRequest, about_model
from zerosum.client.spec import ModelSpec, TrainSpec
from zerosum.client.task import ClientInfo, Task
from zerosum.client.training.fast import choose_trainer
from zerosum.client.training.flat_parameters import load_vector
from zerosum.client.training.local import LocalTrainer
from zerosum.secagg.randomness import numpy_generator
from zerosum.server.spec import ServerSpec
from zerosum.simulations.attacks.harness.sealed_view import sealed
from zerosum.simulations.attacks.settings.model_view import LearningView
from zerosum.simulations.data.models import make_model
from zerosum.simulations.engine.simulated_clients import SimulatedEnvironment


@dataclass(frozen=True)
class PoisonView(LearningView):
    """Hold what all malicious clients have together, in one round or after the last.

    Attributes
    ----------
    clients : int
        n, honest and malicious; all take part in each round.
    server_lr : float
        eta: the server's learning rate on the average.
    server : ServerSpec or None
        The rule and what it was told, where the threat model knows the rule.
    round, rounds : int
        The current round, from 1; all rounds.
    vectors : ndarray
        float32, shape (rounds so far, d): the global models, the current one last.
    inputs, labels : ndarray
        float32 (k, records, ...), int64 (k, records): the malicious clients' own records.
    honest : ndarray or None
        float64, shape (k, d): their updates, had they been honest. None after the run.
    sent : ndarray
        float64, shape (rounds before, k, d): the updates that they sent.
    final : ndarray or None
        float32, shape (d,): the model at the end of the run. None before.
    abandoned : int
        Rounds whose sum the server refused.
    """

    clients: int = 0
    server_lr: float = 1.0
    server: ServerSpec | None = None
    round: int = 0
    rounds: int = 0
    vectors: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    inputs: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    labels: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    honest: np.ndarray | None = None
    sent: np.ndarray = field(default_factory=lambda: np.zeros((0, 0, 0)))
    final: np.ndarray | None = None
    abandoned: int = 0


def trained(
    view: PoisonView,
    inputs: np.ndarray,
    labels: np.ndarray,
    rng: np.random.Generator,
    training: TrainSpec | None = None,
) -> np.ndarray:
    """Train the library's own client code on other records, and return the update.

    Parameters
    ----------
    view : PoisonView
        Whose current model training starts from.
    inputs, labels : ndarray
        float32 (records, ...), int64 (records,).
    rng : numpy.random.Generator
        Fixes the order of batches.
    training : TrainSpec, optional
        Default: as the server asks.

    Returns
    -------
    ndarray of float64
        Shape (d,).
    """
    spec = training or view.training
    trainer = _trainer(view.model.canonical(), spec.canonical(), view.input_shape, view.classes)
    records = torch.tensor(inputs), torch.tensor(labels)
    update = trainer.train(np.array(view.vectors[-1]), records, int(rng.integers(2**62)))
    return update.astype(np.float64)


@lru_cache(maxsize=8)
def _trainer(model: bytes, training: bytes, shape: tuple[int, ...], classes: int) -> LocalTrainer:
    task: Any = _OwnRecords(ModelSpec.from_canonical(model), shape, classes)
    return choose_trainer(task, TrainSpec.from_canonical(training))


@dataclass(frozen=True)
class _OwnRecords:
    """Stand for a task: model and loss are all that a trainer uses of it."""

    spec: ModelSpec
    shape: tuple[int, ...]
    classes: int

    def model(self) -> nn.Module:
        return make_model(self.spec, self.shape, self.classes, seed=0)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")


def predicted(vector: np.ndarray, inputs: np.ndarray, hidden: int, classes: int) -> np.ndarray:
    """Return the class that a perceptron predicts for each record.

    Parameters
    ----------
    vector : ndarray of float32
        Shape (d,): the model's parameters.
    inputs : ndarray of float32
        Shape (n, c, h, w).
    hidden : int
        Width of the one hidden layer.
    classes : int

    Returns
    -------
    ndarray of int64
        Shape (n,).
    """
    model = make_model(ModelSpec(hidden=[hidden]), inputs.shape[1:], classes, seed=0)
    load_vector(model, np.array(vector, dtype=np.float32))
    with torch.no_grad():
        labels: np.ndarray = model.eval()(torch.tensor(inputs)).argmax(1).numpy()
    return labels


class MaliciousClients(SimulatedEnvironment):
    """Simulate clients of which the first few send crafted updates.

    Attributes
    ----------
    attack : Attack
    view : PoisonView
        The last round's.
    seed : int
        Of the attack's randomness.
    failure : Exception or None
        The exception of the attack. The run itself goes on without a client that fails, so the
        exception is raised after it.
    """

    attack: Any
    view: PoisonView
    seed: int
    failure: Exception | None = None
    _asked: ModelRequest | None = None
    _sent: np.ndarray

    def request(self, content: RecordDict) -> ModelRequest:
        """Read the request, as every client does, and craft the answers to a new one."""
        request = about_model(super().request(content))
        # The environment keeps a round's request, so identity tells a new round.
        if self._asked is not request:
            self._asked = request
            self._sent = self._crafted(request)
        return request

    def update(self, request: ModelRequest, task: Task, client: ClientInfo) -> np.ndarray:
        """Return a client's update, before its own clip: crafted for a malicious one.

        Parameters
        ----------
        request : ModelRequest
        task : Task
        client : ClientInfo

        Returns
        -------
        ndarray of float32
            Shape (d,).
        """
        if client.index < len(self._sent):
            sent: np.ndarray = self._sent[client.index].astype(np.float32)  # as training leaves it
            return within_range(sent, request)
        return super().update(request, task, client)

    def compute(self, work: Work, client: ClientInfo) -> Future:
        """Return what a client sends whose code is its own; all others compute theirs."""
        index = client.index
        if not (getattr(self.attack, "own_code", False) and index < len(self._sent)):
            return super().compute(work, client)
        sent, malicious = self._sent[index], len(self._sent)
        return OnCollection(lambda: unclipped(sent, work.protection, malicious))

    def _crafted(self, request: ModelRequest) -> np.ndarray:
        """Run the attack on a view of what these clients know, and no more."""
        malicious = self.view.threat.colluders
        self.view = replace(
            self.view,
            round=request.question.round,
            vectors=np.concatenate([self.view.vectors, request.model[None]]),
            honest=np.stack([self._honest(request, index) for index in range(malicious)]),
        )
        rng = numpy_generator(self.seed, "craft", request.question.round)
        try:
            sent = np.asarray(self.attack.craft(sealed(self.view), rng), dtype=np.float64)
            if sent.shape != (malicious, request.dimension):
                raise ValueError(
                    f"{self.attack.name} crafted an array of shape {sent.shape}: return "
                    f"{(malicious, request.dimension)}, a row a malicious client"
                )
        except Exception as error:
            self.failure = error
            return np.zeros((malicious, request.dimension))
        self.view = replace(self.view, sent=np.concatenate([self.view.sent, sent[None]]))
        return sent

    def _honest(self, request: ModelRequest, index: int) -> np.ndarray:
        question = request.question
        client = ClientInfo(index, question.population, seed=question.seed)
        return super().update(request, self._task, client).astype(np.float64)


def within_range(update: np.ndarray, request: ModelRequest) -> np.ndarray:
    """Clip an update to the encoding's range, where no clip bounds it.

    The encoding would produce the same integers, and would count and report the values that it
    clips. A liar does not report its own.

    Parameters
    ----------
    update : ndarray of float32
        Shape (d,).
    request : ModelRequest

    Returns
    -------
    ndarray of float32
        Shape (d,).
    """
    limit = request.question.encoding.range
    if request.question.privacy.clip is not None or limit is None:
        return update
    clipped: np.ndarray = np.clip(update, -limit, limit)
    return clipped


def unclipped(update: np.ndarray, protection: Protection, malicious: int) -> np.ndarray:
    """Encode an update as integers, neither clipped nor within the range of a coordinate.

    The server's check of the sum remains: no coordinate beyond n times the range. Half of that is
    shared among the malicious clients. The other half is left to honest updates, which are far
    below it: a sum that fails the check would be abandoned, and the attack with it.

    Parameters
    ----------
    update : ndarray of float64
        Shape (d,).
    protection : Protection
        The encoding that the session asks for.
    malicious : int
        Clients that share the bound.

    Returns
    -------
    ndarray of int64
        Shape (length,): d coordinates, and the counters of clipped values, at zero.
    """
    limit = protection.cohort * protection.encoding.bound // (2 * malicious)
    steps = np.rint(update / protection.encoding.step)
    sent = np.zeros(protection.length, dtype=np.int64)  # a liar counts none of its cuts
    sent[: len(steps)] = np.clip(steps, -limit, limit)
    return sent
