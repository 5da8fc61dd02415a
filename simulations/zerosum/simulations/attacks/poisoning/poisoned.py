"""Play a whole run of federated training in which some clients send crafted updates.

All else is an ordinary run: the simulator's clients, coordinator, protocol, rule and ledger.
"""

import math
import tempfile
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from zerosum.client.protocol.noise_source import SeededEntropy
from zerosum.client.spec import DataSpec, ModelSpec, PrivacySpec, SecAggSpec
from zerosum.client.task import ClientInfo, Task, resolve_task
from zerosum.client.training.flat_parameters import Layout, from_state_dict, load_vector
from zerosum.client.training.initial_model import build_model, initial_vector
from zerosum.secagg.randomness import derive_seed
from zerosum.server.config import ConfigError
from zerosum.server.planning.preflight import prepare
from zerosum.server.runs.results import Result
from zerosum.server.runs.run_folder import RunFolder
from zerosum.server.runs.run_outcome import NothingLearntError
from zerosum.server.spec import Experiment
from zerosum.server.training.averaging import held_out
from zerosum.server.training.loop import FederatedTraining
from zerosum.simulations.attacks.harness.interface import Defense, NotApplicable, Scene
from zerosum.simulations.attacks.harness.to_specs import (
    DELTA,
    SUMS,
    check_played,
    encoding_of,
    privacy_of,
    secagg_of,
)
from zerosum.simulations.attacks.poisoning.malicious import MaliciousClients, PoisonView
from zerosum.simulations.attacks.settings.records import collection_of
from zerosum.simulations.config import load_experiment
from zerosum.simulations.engine.simulated_clients import SimulatedEnvironment


@dataclass(frozen=True)
class PoisonedSetting:
    """Train a model with the first clients malicious.

    The setting asks the attack for its moves, ``craft(view, rng) -> ndarray`` of shape (k, d), in
    each round. The library's client code sends them: it clips and encodes them. Where the attack
    has ``own_code`` set, the clients leave out the clip and the range.

    Attributes
    ----------
    malicious, clients : int
    rounds : int
    before : int
        Honest rounds before those, which give the model that the attack starts from. They have no
        protection, so no epsilon is finite.
    hidden : int
        Width of the one hidden layer.
    lr, epochs, batch_size
        Of local training.
    server_lr : float
    partition : str
        "iid" or "dirichlet", with a concentration of 0.5.
    bound : float
        L2 norm to which the rule "norm-bound" scales contributions down.
    root : int
        Records that the server holds, under "fltrust": as many as a client has.
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
    root: int = 200
    task: str = "mnist5k"

    @property
    def name(self) -> str:
        """Return the name in the table's rows."""
        rounds = "1 round" if self.rounds == 1 else f"{self.rounds} rounds"
        start = "from scratch" if not self.before else f"after {self.before} honest ones"
        uneven = "" if self.partition == "iid" else ", uneven data"
        return f"{self.malicious} of {self.clients} clients malicious, {rounds} {start}{uneven}"

    def play(self, attack: Any, protection: Defense, seed: int) -> Scene:
        """Train with and without the attack; see :class:`~.interface.Setting`.

        Raises
        ------
        NotApplicable
            If the library refuses such a run, with its reason.
        """
        check_played(protection, (*SUMS, "rule"))
        try:
            run = _Run(self, protection, seed)
        except ConfigError as refused:
            raise NotApplicable(str(refused)) from None
        view = run.attacked(attack)
        inputs, labels = run.tested_on
        truth = {
            "inputs": inputs,
            "labels": labels,
            "classes": np.array(view.classes),
            "hidden": np.array(self.hidden),
            "without": _without(self, replace(protection, name=""), seed),
        }
        return Scene(view, truth, run.epsilon, DELTA)


@lru_cache(maxsize=64)
def _without(setting: PoisonedSetting, protection: Defense, seed: int) -> np.ndarray:
    """Return the model of the same run, had all clients been honest."""
    return _Run(setting, protection, seed).honest()


@lru_cache(maxsize=8)
def _start(setting: PoisonedSetting, seed: int) -> np.ndarray:
    """Return the model after the honest rounds that come before an attack."""
    earlier = replace(setting, rounds=setting.before, before=0, malicious=0)
    return _without(earlier, Defense(""), seed)


class _Run:
    """One run, with malicious clients or without."""

    def __init__(self, setting: PoisonedSetting, protection: Defense, seed: int) -> None:
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
        self._nothing_learnt: str | None = None

    def _checked(self, data: DataSpec, model: ModelSpec) -> Experiment:
        setting, protection = self._setting, self._protection
        privacy, secagg = self._colluding()
        values = {
            "task": setting.task,
            "seed": self._seed,
            "rounds": setting.rounds,
            "data": data.model_dump(),
            "model": model.model_dump(),
            "training": {k: getattr(setting, k) for k in ("lr", "epochs", "batch_size")},
            "privacy": privacy.model_dump(),
            "encoding": encoding_of(protection).model_dump(),
            "secagg": secagg.model_dump(),
            "sampling": {"kind": "everyone"},
            "server": {"lr": setting.server_lr, "rule": protection.rule} | self._rule(),
            "evaluation": {"every": setting.rounds},
        }
        experiment = load_experiment(values)
        return prepare(experiment, population=setting.clients, dimension=self._dimension)

    def _colluding(self) -> tuple[PrivacySpec, SecAggSpec]:
        """Return both sections; under distributed noise, with the malicious as its colluders.

        They know their shares of the noise, and with own code leave them out. Only the noise of
        honest clients is guaranteed, (n - k) / n of it. The total, V / f, stays as configured.
        """
        setting, protection = self._setting, self._protection
        privacy = privacy_of(protection, setting.clients, self._dimension)
        secagg = secagg_of(protection)
        if protection.noise != "distributed":
            return privacy, secagg
        # Rounded up, so that the fraction covers all k of them at the precision of a configuration.
        colluding = math.ceil(setting.malicious / setting.clients * 1e9) / 1e9
        honest = round(1 - colluding, 9)
        noise = (privacy.noise_multiplier or 0.0) * math.sqrt(honest)
        update = {"honest_fraction": honest, "noise_multiplier": noise}
        return (
            privacy.model_copy(update=update),
            secagg.model_copy(update={"corruption": colluding}),
        )

    def _rule(self) -> dict[str, Any]:
        """Return a rule's parameters: the true number of malicious clients, which servers lack."""
        setting, rule = self._setting, self._protection.rule
        if rule in ("trimmed-mean", "krum", "multi-krum", "bulyan"):
            return {"rule_malicious": setting.malicious}
        given: dict[str, dict[str, Any]] = {
            "norm-bound": {"rule_bound": setting.bound},
            "fltrust": {"rule_examples": setting.root},
        }
        return given.get(rule, {})

    @cached_property
    def tested_on(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the test records that the server does not train on."""
        experiment = self._experiment
        rest, _ = held_out(self.task.test_data(), experiment.server, experiment.seed)
        inputs, labels = rest  # type: ignore[misc]
        return inputs.numpy(), labels.numpy()

    def honest(self) -> np.ndarray:
        """Return the model of a run without malicious clients.

        Raises
        ------
        NothingLearntError
            If it was never trained: no attack does more harm than that.
        """
        trained = self._trained(SimulatedEnvironment.of(*self._parts()))
        if self._nothing_learnt is not None:
            raise NothingLearntError(f"the model under attack: {self._nothing_learnt}")
        return trained

    def attacked(self, attack: Any) -> PoisonView:
        """Return the malicious clients' view at the end of the run."""
        setting = self._setting
        inputs, labels = _records(self.task, setting.malicious, setting.clients, self._seed)
        clients = MaliciousClients.of(*self._parts())
        clients.attack, clients.seed = attack, self._seed
        clients.view = PoisonView(
            threat=replace(attack.threat, colluders=setting.malicious, rounds=setting.rounds),
            protection=self._protection,
            clients=setting.clients,
            server_lr=setting.server_lr,
            server=self._experiment.server if "rule" in attack.threat.knows else None,
            model=self._experiment.model,
            training=self._experiment.training,
            input_shape=tuple(inputs.shape[2:]),
            classes=collection_of(setting.task).classes or 1,
            rounds=setting.rounds,
            vectors=np.zeros((0, self._dimension), np.float32),
            sent=np.zeros((0, setting.malicious, self._dimension)),
            inputs=inputs,
            labels=labels,
        )
        final = self._trained(clients)
        if clients.failure is not None:
            raise clients.failure
        return replace(clients.view, honest=None, final=final, abandoned=self.abandoned)

    def _parts(self) -> tuple[Task, SeededEntropy, SecAggSpec, int]:
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
        # Malicious clients see the released model and know their own shares of its noise: that is
        # the ledger's observer "sum".
        observer = "sum" if self._protection.noise == "distributed" else "release"
        seen = result.summary["epsilon"][observer]["value"]
        unprotected = seen is None or self._setting.before > 0
        self.epsilon = math.inf if unprotected else float(seen)
        self.abandoned = int(result.summary["rounds_abandoned"])
        self._nothing_learnt = result.summary["nothing_learnt"]
        return from_state_dict(result.model, Layout.of(build_model(self.task, self._seed)))


class _Started:
    """A task whose model starts from given weights."""

    def __init__(self, task: Task, start: np.ndarray) -> None:
        self._start = start
        self._of = task
        self.data, self.test_data, self.loss = task.data, task.test_data, task.loss

    def model(self) -> nn.Module:
        model = self._of.model()
        load_vector(model, self._start)
        return model


def _records(task: Task, malicious: int, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the malicious clients' own records, truncated to the fewest of one client."""
    pairs: list[Any] = [task.data(ClientInfo(i, count, seed=seed)) for i in range(malicious)]
    fewest = min(len(labels) for _, labels in pairs)
    inputs = np.stack([inputs[:fewest].numpy() for inputs, _ in pairs])
    return inputs, np.stack([labels[:fewest].numpy() for _, labels in pairs])
