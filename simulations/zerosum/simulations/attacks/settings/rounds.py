"""Play rounds of training, asked of real clients over the simulator's grid.

The server's view is what its own grid and coordinator hand it: the sum where contributions are
masked, each contribution where they are not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from zerosum.client.protocol.noise_source import SeededEntropy
from zerosum.client.spec import ModelSpec, TrainSpec
from zerosum.client.training.flat_parameters import parameters_to_vector
from zerosum.secagg.randomness import numpy_generator
from zerosum.server.private_sum.aggregate import Aggregate
from zerosum.server.private_sum.coordinator import RoundAbandoned
from zerosum.server.spec import SamplingSpec
from zerosum.simulations.attacks.harness.interface import Defense, Scene, ThreatModel
from zerosum.simulations.attacks.harness.sealed_view import sealed
from zerosum.simulations.attacks.harness.to_specs import DELTA, SUMS, check_played, secagg_of
from zerosum.simulations.attacks.settings.malicious_server import PolicyClients, TargetingGrid
from zerosum.simulations.attacks.settings.model_view import LearningView
from zerosum.simulations.attacks.settings.private_sums import PrivateSums, SumRequest
from zerosum.simulations.attacks.settings.records import RecordsTask
from zerosum.simulations.attacks.settings.task_model import TaskModel
from zerosum.simulations.engine.grid import InProcessGrid


@dataclass(frozen=True)
class RoundsView(LearningView):
    """A server's view of some rounds of training.

    Attributes
    ----------
    vectors : ndarray
        float32, shape (rounds, d): the global model sent in each round.
    clients : int
        That were asked in the first round.
    totals : ndarray or None
        float64, shape (rounds, d): the opened sums, noise included. None before the rounds.
    contributions : ndarray or None
        float64, shape (rounds, n, d): each client's own, where the server sees them; of the clients
        that contributed in every round.
    noise_std : float
        Of each coordinate of a sum.
    labels : ndarray or None
        int64, shape (n, records): where the threat model knows labels.
    auxiliary_inputs, auxiliary_labels : ndarray or None
        Records of the same population that no client holds, where the threat model has them.
    """

    vectors: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    clients: int = 0
    totals: np.ndarray | None = None
    contributions: np.ndarray | None = None
    noise_std: float = 0.0
    labels: np.ndarray | None = None
    auxiliary_inputs: np.ndarray | None = None
    auxiliary_labels: np.ndarray | None = None


@dataclass(frozen=True)
class Crafted:
    """A model that a malicious server sends in place of the global one.

    Attributes
    ----------
    model : ModelSpec
        The architecture that it asks for.
    vector : ndarray
        float32, shape (d,): its weights.
    target : int or None
        The one client that is sent them; all others get ``blank``. None: everybody is.
    blank : ndarray or None
        float32, shape (d,).
    """

    model: ModelSpec
    vector: np.ndarray
    target: int | None = None
    blank: np.ndarray | None = None


@dataclass(frozen=True)
class RoundsSetting:
    """Rounds of federated training among clients with some records each.

    An attack with a method ``craft(view, rng) -> Crafted`` is asked for the model that is sent.

    Attributes
    ----------
    clients, records : int
        PolicyClients, all of which take part in each round; records of each.
    rounds : int
        Each asks about the same model: an attacker who repeats a question.
    steps : int
        Local steps, each on all records of the client.
    lr : float
    model : ModelSpec
    task : str
        "mnist5k" or "digits".
    auxiliary : int
        Records that the attacker may have, if the threat model says so.
    """

    clients: int = 2
    records: int = 1
    rounds: int = 1
    steps: int = 1
    lr: float = 0.1
    model: ModelSpec = field(default_factory=ModelSpec)
    task: str = "mnist5k"
    auxiliary: int = 1000

    @property
    def name(self) -> str:
        """Return the name in the table's rows."""
        what = "1 image" if self.records == 1 else f"{self.records} images"
        how = "" if self.steps == 1 else f", {self.steps} local steps"
        again = "" if self.rounds == 1 else f", asked {self.rounds} times"
        kind = "" if self.model.name == "mlp" else f", {self.model.name}"
        data = "" if self.task == "mnist5k" else f", {self.task}"
        return f"{self.clients} clients, {what} each{how}{again}{kind}{data}"

    def cohort(self, number: int) -> tuple[int, ...]:
        """Return the clients that are asked in a round, the first of which is number 1."""
        return tuple(range(self.clients))

    def play(self, attack: Any, protection: Defense, seed: int) -> Scene:
        """Play the rounds; see :class:`~.interface.Setting`."""
        check_played(protection, (*SUMS, "budget", "request_hash"))
        task = self.drawn(seed)
        sent = self._sent(attack, task, protection, seed)
        played = _Rounds(self, task, sent, protection, seed)
        view = played.view(attack.threat)
        truth = {"inputs": task.inputs, "labels": task.labels}
        return Scene(view, truth, played.epsilon(), DELTA)

    def drawn(self, seed: int) -> RecordsTask:
        """Return the clients' records and the model, as the seed draws them."""
        shape = (self.clients, self.records)
        return RecordsTask.drawn(self.task, self.model, shape, self.auxiliary, seed)

    def own_model(self, sent: ModelSpec, seed: int) -> TaskModel | None:
        """Return the model of a user's task; None of the built-in records.

        Parameters
        ----------
        sent : ModelSpec
            Which the server asks for.
        seed : int
            Of its initialisation.

        Returns
        -------
        TaskModel or None
        """
        return None

    def _sent(self, attack: Any, task: RecordsTask, protection: Defense, seed: int) -> Crafted:
        first = parameters_to_vector(task.model())
        craft = getattr(attack, "craft", None)
        if craft is None:
            return Crafted(self.model, first)
        view = _offer(self, task, Crafted(self.model, first), protection, attack.threat)
        crafted: Crafted = craft(sealed(view), numpy_generator(seed, "craft"))
        return crafted


class _Rounds:
    """The rounds of one scene, once they were played."""

    def __init__(
        self,
        setting: RoundsSetting,
        task: RecordsTask,
        sent: Crafted,
        protection: Defense,
        seed: int,
    ) -> None:
        self._setting, self._task, self._sent = setting, task, sent
        self._protection = protection
        clients = PolicyClients.with_rules(
            replace(task, spec=sent.model),
            SeededEntropy(seed),
            secagg_of(protection),
            setting.clients,
            budget=protection.budget,
            bound=protection.request_hash,
        )
        self._sums = PrivateSums(
            SumRequest(setting.task, sent.model, training_of(setting), sent.vector),
            protection,
            clients,
            self._grid(clients),
            population=setting.clients,
            cohort=setting.clients,
            sampling=SamplingSpec(kind="everyone"),
            seed=seed,
            purpose="attacked rounds",
        )
        self._stopped = ""
        self._opened = self._play()

    def _play(self) -> Sequence[Aggregate]:
        opened = []
        for number in range(1, self._setting.rounds + 1):
            try:
                opened.append(self._sums.open(number, self._setting.cohort(number)))
            except RoundAbandoned as abandoned:
                self._stopped = str(abandoned)
                break
        return opened

    def _grid(self, environment: PolicyClients) -> InProcessGrid:
        sent, clients = self._sent, self._setting.clients
        if sent.target is not None and sent.target not in range(clients):
            raise ValueError(f"target = {sent.target}: clients are 0 to {clients - 1}")
        if sent.target is None or sent.blank is None:
            return InProcessGrid(environment.app, clients)
        return TargetingGrid(
            environment.app,
            clients,
            sent.target,
            sent.blank,
            masked=self._protection.masked,
            bound=self._protection.request_hash,
        )

    def view(self, threat: ThreatModel) -> RoundsView:
        """Return what the server received."""
        before = _offer(self._setting, self._task, self._sent, self._protection, threat)
        if not self._opened:
            return replace(before, stopped=self._stopped)
        return replace(
            before,
            totals=np.stack([each.total for each in self._opened]),
            contributions=_stacked([each.contributions for each in self._opened]),
            noise_std=self._opened[0].noise_std,
            stopped=self._stopped,
        )

    def epsilon(self) -> float:
        """Return what the ledger says of these rounds, for a server that sees what this one does.

        Without noise, infinite.
        """
        return self._sums.epsilon()


def training_of(setting: RoundsSetting) -> TrainSpec:
    """Return local training: full-batch steps."""
    return TrainSpec.model_validate({"steps": setting.steps, "batch_size": "all", "lr": setting.lr})


def _offer(
    setting: RoundsSetting,
    task: RecordsTask,
    sent: Crafted,
    protection: Defense,
    threat: ThreatModel,
) -> RoundsView:
    """Return what the server knows before it asks."""
    auxiliary = "auxiliary data" in threat.knows
    return RoundsView(
        threat=threat,
        protection=protection,
        model=sent.model,
        input_shape=tuple(task.inputs.shape[2:]),
        classes=task.classes,
        training=training_of(setting),
        own=setting.own_model(sent.model, task.seed),
        vectors=np.tile(sent.vector, (setting.rounds, 1)),
        clients=setting.clients,
        labels=task.labels if "labels" in threat.knows else None,
        auxiliary_inputs=task.spare.inputs if auxiliary else None,
        auxiliary_labels=task.spare.targets if auxiliary else None,
    )


def _stacked(contributions: Sequence[Mapping[int, np.ndarray] | None]) -> np.ndarray | None:
    """Return contributions as (rounds, n, d), n those of whoever contributed in every round."""
    seen = [each for each in contributions if each is not None]
    if len(seen) < len(contributions):
        return None
    always = sorted(set(seen[0]).intersection(*seen))
    return np.stack([np.stack([each[i] for i in always]) for each in seen])
