"""A setting: a whole run of federated training in which some clients send what an attack crafts.

Everything else is an ordinary run: the simulator's clients, coordinator, protocol, rule and ledger.
A malicious client knows what a client knows, and its accomplices' data: nothing of honest ones.
"""

import logging
import tempfile
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Context, RecordDict
from torch import nn

from zerosum.client.contribution import Protection as Envelope
from zerosum.client.entropy import SeededEntropy
from zerosum.client.lean import choose_trainer
from zerosum.client.request import Request
from zerosum.client.spec import DataSpec, ModelSpec, TrainSpec
from zerosum.client.stages import protection_for
from zerosum.client.task import ClientInfo, Task, resolve_task
from zerosum.client.training import LocalTrainer, initial_vector
from zerosum.client.vectors import load_vector
from zerosum.secagg import Session
from zerosum.secagg.randomness import derive_seed, numpy_generator
from zerosum.server.averaging import held_out
from zerosum.server.checks import prepare
from zerosum.server.config import ConfigError
from zerosum.server.results import Result
from zerosum.server.runs import RunFolder
from zerosum.server.spec import Experiment
from zerosum.server.training import FederatedTraining
from zerosum.simulations.attacks.interface import NotApplicable, Protection, Scene, View
from zerosum.simulations.attacks.rounds import collection_of
from zerosum.simulations.attacks.sealing import sealed
from zerosum.simulations.attacks.sections import DELTA, encoding_of, privacy_of, secagg_of
from zerosum.simulations.config import load_experiment
from zerosum.simulations.environment import SimulatedEnvironment
from zerosum.simulations.models import make_model

ROOT_RECORDS = 200
"""Records that the server trusts, under FLTrust."""


@dataclass(frozen=True)
class PoisonView(View):
    """What malicious clients have, all of them together, in one round; and after the last.

    Attributes
    ----------
    clients : int
        All of them, n; all take part in each round.
    server_lr : float
        eta: what the server does with the average.
    model : ModelSpec
    training : TrainSpec
        Local steps, batch size, learning rate.
    input_shape : tuple of int
        Of one record.
    classes : int
    round, rounds : int
        This one, from 1; how many there are.
    vectors : ndarray
        float32, shape (rounds so far, d): the global models that were sent, the last one now.
    inputs, labels : ndarray
        float32 (k, records, ...), int64 (k, records): the malicious clients' own records.
    honest : ndarray or None
        float64, shape (k, d): what they would have sent, had they been honest. None after the run.
    final : ndarray or None
        float32, shape (d,): the model that the run ended with. None before.
    abandoned : int
        Rounds whose sum the server refused.
    """

    clients: int = 0
    server_lr: float = 1.0
    model: ModelSpec = field(default_factory=ModelSpec)
    training: TrainSpec = field(default_factory=TrainSpec)
    input_shape: tuple[int, ...] = ()
    classes: int = 0
    round: int = 0
    rounds: int = 0
    vectors: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    inputs: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    labels: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    honest: np.ndarray | None = None
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
    task: Any = _OwnRecords(ModelSpec.model_validate_json(model), shape, classes)
    return choose_trainer(task, TrainSpec.model_validate_json(training))


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


@dataclass(frozen=True)
class PoisonedSetting:
    """A run of training in which the first clients are malicious.

    The setting asks an attack for its moves: ``craft(view, rng) -> ndarray`` of shape (k, d), in
    each round. They are sent through the client code as it is, which clips and encodes them; where
    the attack has ``own_code`` set, by clients that leave the clip and the range out.

    Attributes
    ----------
    malicious, clients : int
    rounds : int
    before : int
        Honest rounds before those, without any protection: the model that an attack starts from.
    hidden : int
        Width of the one hidden layer.
    lr, epochs, batch_size
        Of local training.
    server_lr : float
    partition : str
        "iid" or "dirichlet", with its concentration of 0.5.
    bound : float
        Norm that the rule "norm-bound" scales contributions down to.
    task : str
    """

    malicious: int = 4
    clients: int = 20
    rounds: int = 10
    before: int = 0
    hidden: int = 32
    lr: float = 0.1
    epochs: int = 1
    batch_size: int = 20
    server_lr: float = 1.0
    partition: str = "iid"
    bound: float = 1.0
    task: str = "mnist5k"

    @property
    def name(self) -> str:
        """As the table says."""
        rounds = "1 round" if self.rounds == 1 else f"{self.rounds} rounds"
        start = "from scratch" if not self.before else f"after {self.before} honest ones"
        uneven = "" if self.partition == "iid" else ", uneven data"
        return f"{self.malicious} of {self.clients} clients malicious, {rounds} {start}{uneven}"

    def play(self, attack: Any, protection: Protection, seed: int) -> Scene:
        """Play the run; see :class:`Setting`.

        Raises
        ------
        NotApplicable
            If the library refuses such a run, with its reason.
        """
        try:
            run = _Run(self, protection, seed)
        except ConfigError as refused:
            raise NotApplicable(str(refused)) from None
        view = run.attacked(attack)
        inputs, labels = run.tested_on
        truth = {
            "inputs": inputs,
            "labels": labels,
            "classes": np.int64(view.classes),
            "hidden": np.int64(self.hidden),
            "without": _without(self, replace(protection, name=""), seed),
        }
        return Scene(view, truth, run.epsilon, DELTA)


@lru_cache(maxsize=64)
def _without(setting: PoisonedSetting, protection: Protection, seed: int) -> np.ndarray:
    """Return the model of the same run, had all clients been honest."""
    return _Run(setting, protection, seed).honest()


@lru_cache(maxsize=8)
def _start(setting: PoisonedSetting, seed: int) -> np.ndarray:
    """Return the model after the honest rounds that come before an attack."""
    earlier = replace(setting, rounds=setting.before, before=0, malicious=0)
    return _without(earlier, Protection(""), seed)


class _Run:
    """One run, with malicious clients or without."""

    def __init__(self, setting: PoisonedSetting, protection: Protection, seed: int) -> None:
        self._setting, self._protection, self._seed = setting, protection, seed
        data = DataSpec.model_validate(
            {"clients": setting.clients, "partition": setting.partition, "pool": 2}
        )
        spec = ModelSpec(hidden=[setting.hidden])
        task = resolve_task(setting.task, data, spec, seed)
        start = _start(setting, seed) if setting.before else initial_vector(task, seed)
        self.task: Task = _Started(task, start)
        self._dimension = len(start)
        self._experiment = self._checked(data, spec)
        self.epsilon: float | None = None
        self.abandoned = 0

    def _checked(self, data: DataSpec, model: ModelSpec) -> Experiment:
        setting, protection = self._setting, self._protection
        privacy = privacy_of(protection, setting.clients, self._dimension)
        values = {
            "task": setting.task,
            "seed": self._seed,
            "rounds": setting.rounds,
            "data": data.model_dump(),
            "model": model.model_dump(),
            "training": {k: getattr(setting, k) for k in ("lr", "epochs", "batch_size")},
            "privacy": privacy.model_dump(),
            "encoding": encoding_of(protection).model_dump(),
            "secagg": secagg_of(protection).model_dump(),
            "sampling": {"kind": "everyone"},
            "server": {"lr": setting.server_lr, "rule": protection.rule} | self._rule(),
            "evaluation": {"every": setting.rounds},
        }
        experiment = load_experiment(values)
        return prepare(experiment, population=setting.clients, dimension=self._dimension)

    def _rule(self) -> dict[str, Any]:
        """Return what a rule is told: how many are malicious, which is more than servers know."""
        setting, rule = self._setting, self._protection.rule
        if rule in ("trimmed-mean", "krum", "multi-krum", "bulyan"):
            return {"rule_malicious": setting.malicious}
        given: dict[str, dict[str, Any]] = {
            "norm-bound": {"rule_bound": setting.bound},
            "fltrust": {"rule_examples": ROOT_RECORDS},
        }
        return given.get(rule, {})

    @cached_property
    def tested_on(self) -> tuple[np.ndarray, np.ndarray]:
        """Test records that the server does not train on."""
        experiment = self._experiment
        rest, _ = held_out(self.task.test_data(), experiment.server, experiment.seed)
        inputs, labels = rest  # type: ignore[misc]
        return inputs.numpy(), labels.numpy()

    def honest(self) -> np.ndarray:
        """Return the model of a run without malicious clients."""
        return self._trained(SimulatedEnvironment.of(*self._parts()))

    def attacked(self, attack: Any) -> PoisonView:
        """Return what malicious clients have when the run is over."""
        setting = self._setting
        clients = MaliciousClients.of(*self._parts())
        clients.attack, clients.seed = attack, self._seed
        clients.view = PoisonView(
            threat=replace(attack.threat, colluders=setting.malicious, rounds=setting.rounds),
            protection=self._protection,
            clients=setting.clients,
            server_lr=setting.server_lr,
            model=self._experiment.model,
            training=self._experiment.training,
            input_shape=tuple(self.tested_on[0].shape[1:]),
            classes=collection_of(setting.task).classes or 1,
            rounds=setting.rounds,
            vectors=np.zeros((0, self._dimension), np.float32),
            **_records(self.task, setting.malicious, setting.clients, self._seed),
        )
        final = self._trained(clients)
        if clients.failure is not None:
            raise clients.failure
        return replace(clients.view, honest=None, final=final, abandoned=self.abandoned)

    def _parts(self) -> tuple[Task, SeededEntropy, Any, int]:
        secagg, clients = self._experiment.secagg, self._setting.clients
        return self.task, SeededEntropy(self._seed), secagg, clients

    def _trained(self, clients: SimulatedEnvironment) -> np.ndarray:
        """Run the experiment among these clients, in a folder that nobody keeps."""
        experiment, population = self._experiment, self._setting.clients
        run_id = derive_seed(self._seed, "poisoned run")[:16]
        coordinator = clients.coordinator(experiment, population, run_id)
        with tempfile.TemporaryDirectory(prefix="zerosum-poisoned-") as path:
            folder = RunFolder.create(Path(path) / "run", experiment)
            training = FederatedTraining(
                experiment, self.task, population, coordinator, clients.entropy, folder
            )
            result = training.run()
        return self._read(result)

    def _read(self, result: Result) -> np.ndarray:
        released = result.summary["epsilon"]["release"]["value"]
        self.epsilon = float("inf") if released is None else float(released)
        self.abandoned = int(result.summary["rounds_abandoned"])
        return np.concatenate([value.ravel() for value in result.model.values()])


class _Started:
    """A task whose model starts from given weights."""

    def __init__(self, task: Task, start: np.ndarray) -> None:
        self._start = start
        self._of = task
        self.data, self.test_data, self.loss = task.data, task.test_data, task.loss

    def model(self) -> nn.Module:
        made = self._of.model()
        load_vector(made, self._start)
        return made


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
            sent: np.ndarray = self._sent[client.index]
            return sent
        return super().update(request, task, client)

    def computed(self, session: Session, context: Context) -> np.ndarray | None:
        """Return what a client sends whose code is its own; None for all others."""
        index, asked = self.index(context), self._asked
        own = getattr(self.attack, "own_code", False) and index < len(self._sent)
        if not own or asked is None:
            return super().computed(session, context)
        return unclipped(self._sent[index], protection_for(asked, session), len(self._sent))

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
        return sent

    def _honest(self, request: Request, index: int) -> np.ndarray:
        question = request.question
        client = ClientInfo(index, question.population, seed=question.seed)
        return super().update(request, self._task, client).astype(np.float64)


def unclipped(update: np.ndarray, envelope: Envelope, malicious: int) -> np.ndarray:
    """Return an update as integers, neither clipped nor within the range of a coordinate.

    What is left is the server's check of the sum, within n times the range: half of that is shared
    among the malicious, and the other half left to honest updates, which are far below it.
    """
    limit = envelope.cohort * envelope.encoding.bound // (2 * malicious)
    steps = np.rint(update / envelope.encoding.step)
    return np.clip(steps, -limit, limit).astype(np.int64)


def _records(task: Task, malicious: int, count: int, seed: int) -> dict[str, np.ndarray]:
    """Return the malicious clients' own records, as many of each as the fewest of one."""
    pairs: list[Any] = [task.data(ClientInfo(i, count, seed=seed)) for i in range(malicious)]
    fewest = min(len(labels) for _, labels in pairs)
    return {
        "inputs": np.stack([inputs[:fewest].numpy() for inputs, _ in pairs]),
        "labels": np.stack([labels[:fewest].numpy() for _, labels in pairs]),
    }
