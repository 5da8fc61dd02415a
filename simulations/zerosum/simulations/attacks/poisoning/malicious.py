"""Malicious clients: what they know, what they can do, and how they send it.

They know what a client knows, and their accomplices' data: nothing of honest ones.
"""

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from flwr.app import RecordDict
from torch import nn

from zerosum.client.protocol.client_vector import Future, OnCollection, Work
from zerosum.client.protocol.protection import Protection as Envelope
from zerosum.client.request import Request
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
    """What malicious clients have, all of them together, in one round; and after the last.

    Attributes
    ----------
    clients : int
        All of them, n; all take part in each round.
    server_lr : float
        eta: what the server does with the average.
    server : ServerSpec or None
        The rule and what it was told, where the threat model knows the rule.
    round, rounds : int
        This one, from 1; how many there are.
    vectors : ndarray
        float32, shape (rounds so far, d): the global models that were sent, the last one now.
    inputs, labels : ndarray
        float32 (k, records, ...), int64 (k, records): the malicious clients' own records.
    honest : ndarray or None
        float64, shape (k, d): what they would have sent, had they been honest. None after the run.
    sent : ndarray
        float64, shape (rounds before, k, d): what they sent in them.
    final : ndarray or None
        float32, shape (d,): the model that the run ended with. None before.
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
    """Return the update that the library's own client code makes of other records.

    Parameters
    ----------
    view : PoisonView
        Whose current model training starts from.
    inputs, labels : ndarray
        float32 (records, ...), int64 (records,).
    rng : numpy.random.Generator
        Fixes the order of batches.
    training : TrainSpec, optional
        Default: what the server asks for.

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
    """What a trainer asks of a task."""

    spec: ModelSpec
    shape: tuple[int, ...]
    classes: int

    def model(self) -> nn.Module:
        return make_model(self.spec, self.shape, self.classes, seed=0)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")


def predicted(vector: np.ndarray, inputs: np.ndarray, hidden: int, classes: int) -> np.ndarray:
    """Return the class that a model gives each record, int64, shape (n,)."""
    model = make_model(ModelSpec(hidden=[hidden]), inputs.shape[1:], classes, seed=0)
    load_vector(model, np.array(vector, dtype=np.float32))
    with torch.no_grad():
        found: np.ndarray = model.eval()(torch.tensor(inputs)).argmax(1).numpy()
    return found


class MaliciousClients(SimulatedEnvironment):
    """Clients of which the first few send what an attack crafts.

    Attributes
    ----------
    attack : Attack
    view : PoisonView
        The last round's.
    seed : int
    failure : Exception or None
        What went wrong in the attack: a run goes on without a client that fails.
    """

    attack: Any
    view: PoisonView
    seed: int
    failure: Exception | None = None
    _asked: Request | None = None
    _sent: np.ndarray

    def request(self, content: RecordDict) -> Request:
        """Read the request, as every client does, and craft the answers to a new one."""
        found = super().request(content)
        if self._asked is not found:
            self._asked = found
            self._sent = self._crafted(found)
        return found

    def update(self, request: Request, task: Task, client: ClientInfo) -> np.ndarray:
        """Return what a client sends, before its own clip."""
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

    def _crafted(self, request: Request) -> np.ndarray:
        """Ask the attack, which is told what these clients know and no more."""
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
                raise ValueError(f"{self.attack.name}: {sent.shape} for {malicious} clients")
        except Exception as error:
            self.failure = error
            return np.zeros((malicious, request.dimension))
        self.view = replace(self.view, sent=np.concatenate([self.view.sent, sent[None]]))
        return sent

    def _honest(self, request: Request, index: int) -> np.ndarray:
        question = request.question
        client = ClientInfo(index, question.population, seed=question.seed)
        return super().update(request, self._task, client).astype(np.float64)


def within_range(update: np.ndarray, request: Request) -> np.ndarray:
    """Cut an update to the range before the encoding does, and counts it: the same integers."""
    limit = request.question.encoding.range
    if request.question.privacy.clip is not None or limit is None:
        return update
    cut: np.ndarray = np.clip(update, -limit, limit)
    return cut


def unclipped(update: np.ndarray, envelope: Envelope, malicious: int) -> np.ndarray:
    """Return an update as integers, neither clipped nor within the range of a coordinate.

    What is left is the server's check of the sum, within n times the range: half of that is shared
    among the malicious, and the other half left to honest updates, which are far below it.
    """
    limit = envelope.cohort * envelope.encoding.bound // (2 * malicious)
    steps = np.rint(update / envelope.encoding.step)
    sent = np.zeros(envelope.length, dtype=np.int64)  # a liar counts none of its cuts
    sent[: len(steps)] = np.clip(steps, -limit, limit)
    return sent
