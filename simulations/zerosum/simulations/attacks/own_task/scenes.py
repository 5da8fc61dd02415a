"""Play scenes on a user's task: rounds as a server sees them, and models trained on its records."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from zerosum.client.spec import ModelSpec, TrainSpec
from zerosum.client.task import ClientInfo, Task
from zerosum.client.training.flat_parameters import parameters_to_vector
from zerosum.client.training.local import LocalTrainer
from zerosum.secagg.randomness import numpy_generator
from zerosum.simulations.attacks.harness.interface import Defense, NotApplicable, Scene
from zerosum.simulations.attacks.inference.trained import RecordPool, TrainedSetting, half_of
from zerosum.simulations.attacks.inversion.two_cohorts import all_but_one, without_one
from zerosum.simulations.attacks.own_task.facts import facts_of, task_model
from zerosum.simulations.attacks.own_task.subject import (
    Pool,
    Subject,
    loaded,
    pool_of,
)
from zerosum.simulations.attacks.settings.rounds import RoundsSetting, training_of
from zerosum.simulations.attacks.settings.task_model import (
    TaskModel,
    drawn_model,
    lend,
    of_unit_inputs,
)
from zerosum.simulations.data.datasets import Records
from zerosum.simulations.data.models import make_model

if TYPE_CHECKING:
    from zerosum.client.task import Dataset


NOBODY = Subject("", number=-1)
"""Default of a field that follows others with defaults; it is always given."""


@dataclass(frozen=True)
class OwnRecords:
    """A user's task with other records: some for each client, inputs on the scale [0, 1].

    Attributes
    ----------
    task : Task
        Whose model and loss these are.
    usual, spec : ModelSpec
        The experiment's model, and the one that a server asks for.
    inputs, labels : sequence of ndarray
        Of each client, shapes (records, ...).
    spare : Records
        Public ones.
    classes, seed, fixed_seed : int
        Seeds of the model's initialisation, and of its frozen parameters and buffers.
    lowest, scale : float
        Of the task's inputs, as of :class:`TaskModel`.
    """

    task: Task
    usual: ModelSpec
    spec: ModelSpec
    inputs: Any
    labels: Any
    spare: Records
    classes: int
    seed: int
    fixed_seed: int
    lowest: float
    scale: float

    def model(self) -> nn.Module:
        """Return the task's model, or the one that is asked for, its weights drawn by the seed."""
        if self.spec != self.usual:
            model = make_model(self.spec, self.inputs[0].shape[1:], self.classes, self.seed)
        else:
            model = drawn_model(self.task, self.seed, self.fixed_seed)
        return of_unit_inputs(model, self.lowest, self.scale)

    def data(self, client: ClientInfo) -> "Dataset":
        """Return a client's records."""
        inputs, labels = self.inputs[client.index], self.labels[client.index]
        return torch.tensor(inputs), torch.tensor(labels)

    def test_data(self) -> None:
        """Return nothing: no model is tested here."""

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the task's loss of each record, shape (n,).

        Parameters
        ----------
        outputs : torch.Tensor
            Of the model.
        targets : torch.Tensor
            Shape (n, ...).
        """
        return self.task.loss(outputs, targets)


def own_records(subject: Subject, inputs: Any, labels: Any, seed: int) -> OwnRecords:
    """Return a subject's task with these records for its clients.

    Parameters
    ----------
    subject : Subject
    inputs, labels : sequence of ndarray
        Of each client; inputs on the scale [0, 1].
    seed : int
        Of the model's initialisation.

    Returns
    -------
    OwnRecords
    """
    found, pool = loaded(subject), pool_of(subject)
    lend(found.key, found.task)
    return OwnRecords(
        found.task,
        found.experiment.model,
        found.experiment.model,
        inputs,
        labels,
        public(pool),
        facts_of(subject).classes,
        seed,
        found.experiment.seed,
        pool.lowest,
        pool.scale,
    )


def check_trains(task: OwnRecords, training: TrainSpec, clients: Iterable[int]) -> None:
    """Train some clients once: one that fails in a round would look like one that is protected.

    Parameters
    ----------
    task : OwnRecords
    training : TrainSpec
    clients : iterable of int

    Raises
    ------
    ValueError
        If an update is not finite; and whatever the task raises.
    """
    trainer = LocalTrainer(task, training, seed=task.seed)
    start = parameters_to_vector(task.model())
    for index in clients:
        update = trainer.train(start, task.data(ClientInfo(index, len(task.inputs))), 0)
        if not np.isfinite(update).all():
            raise ValueError(f"the update of client {index} is not finite: lower training.lr")


def public(pool: Pool) -> Records:
    """Return a pool's public records on the scale [0, 1]; none where it has none."""
    if pool.spare is None:
        return Records(pool.records.inputs[:0], pool.records.targets[:0])
    return Records(pool.unit(pool.spare.inputs), pool.spare.targets)


def hands_of(pool: Pool, records: int) -> list[np.ndarray]:
    """Deal clients' records into hands of one size, each of one client's records.

    All clients' first hands come before any second one, so that a scene has as many clients as it
    can have.

    Parameters
    ----------
    pool : Pool
    records : int
        Of a hand.

    Returns
    -------
    list of ndarray
        int64, shape (records,) each: places in the pool. No record is in two hands.

    Raises
    ------
    ValueError
        If the records have no owners.
    """
    owners = pool.records.owners
    if owners is None:
        raise ValueError("records without owners")
    held = [np.flatnonzero(owners == client) for client in dict.fromkeys(owners.tolist())]
    most = max(len(rows) // records for rows in held)
    return [
        rows[number * records : (number + 1) * records]
        for number in range(most)
        for rows in held
        if len(rows) >= (number + 1) * records
    ]


@dataclass(frozen=True)
class OwnRounds(RoundsSetting):
    """Play rounds of training among clients with records of a user's task.

    Attributes
    ----------
    subject : Subject
    """

    subject: Subject = NOBODY

    @property
    def name(self) -> str:
        """Return the name in the table's rows."""
        what = "1 record" if self.records == 1 else f"{self.records} records"
        how = "" if self.steps == 1 else f", {self.steps} local steps"
        again = "" if self.rounds == 1 else f", asked {self.rounds} times"
        return f"{self.subject.label}: {self.clients} clients, {what} each{how}{again}"

    @property
    def most_seeds(self) -> int:
        """Return the number of seeds that have records of their own."""
        return len(hands_of(pool_of(self.subject), self.records)) // self.clients

    def play(self, attack: Any, protection: Defense, seed: int) -> Scene:
        """Play the rounds; see :class:`~.interface.Setting`."""
        check_trains(self.drawn(seed), training_of(self), range(self.clients))
        scene = super().play(attack, protection, seed)
        known = {"recognised": np.array([pool_of(self.subject).recognised])}
        return replace(scene, truth={**scene.truth, **known})

    def drawn(self, seed: int) -> Any:
        """Return the clients' records and the model, of which no two seeds share a record."""
        pool = pool_of(self.subject)
        hands = hands_of(pool, self.records)[seed * self.clients : (seed + 1) * self.clients]
        if len(hands) < self.clients:
            raise NotApplicable(
                f"seed {seed} has no records left: each has others, and {self.clients} clients "
                f"with {self.records} each take {self.clients * self.records}"
            )
        rows = np.stack(hands)
        inputs = pool.unit(pool.records.inputs[rows])
        return own_records(self.subject, inputs, pool.records.targets[rows], seed)

    def own_model(self, sent: ModelSpec, seed: int) -> TaskModel:
        """Return the task's model; of another that a server asks for, the scale of inputs alone.

        Parameters
        ----------
        sent : ModelSpec
        seed : int

        Returns
        -------
        TaskModel
        """
        own = task_model(self.subject, seed)
        if sent == loaded(self.subject).experiment.model:
            return own
        return replace(own, key="", first=None, outputs=None, chain=())


@dataclass(frozen=True)
class OwnTwoCohorts(OwnRounds):
    """Play rounds of a user's task of which the first asks all, and the others all but one."""

    @property
    def name(self) -> str:
        """Return the name in the table's rows."""
        clients = self.clients
        return f"{self.subject.label}: sums of {clients} clients and of {clients - 1} of them"

    def cohort(self, number: int) -> tuple[int, ...]:
        """Return the clients of a round; rounds count from 1."""
        return all_but_one(self.clients, number)

    def play(self, attack: Any, protection: Defense, seed: int) -> Scene:
        """Play the rounds; see :class:`~.interface.Setting`."""
        return without_one(self, super().play(attack, protection, seed), protection.clip, seed)


@dataclass(frozen=True)
class OwnTrained(TrainedSetting):
    """Train a user's task on some of its records; others, of the same clients, it never sees.

    Attributes
    ----------
    subject : Subject
    """

    subject: Subject = NOBODY

    @property
    def name(self) -> str:
        """Return the row's name in the table."""
        return f"{self.subject.label}: model trained on {self.held} records, {self.clients} clients"

    @property
    def model(self) -> ModelSpec:
        """Return the experiment's model, which a task of a user's own may leave unread."""
        return loaded(self.subject).experiment.model

    def own_model(self, seed: int) -> TaskModel:
        """Return the task's model.

        Parameters
        ----------
        seed : int
            Of its initialisation.
        """
        return task_model(self.subject, seed)

    def pool_of(self, seed: int) -> RecordPool:
        """Draw candidates, which no other seed has, and half of them as members.

        Parameters
        ----------
        seed : int

        Returns
        -------
        RecordPool

        Raises
        ------
        NotApplicable
            If earlier seeds have all records.
        """
        pool, count = pool_of(self.subject), 2 * self.held
        order = numpy_generator(0, "membership candidates of a task")
        chosen = order.permutation(len(pool.records))[seed * count : (seed + 1) * count]
        if len(chosen) < count:
            raise NotApplicable(
                f"seed {seed} has no records left: each has others, {count} of them"
            )
        held = pool.records.take(chosen)
        candidates = Records(pool.unit(held.inputs), held.targets)
        members = half_of(count, numpy_generator(seed, "membership candidates"))
        return RecordPool(candidates, members, public(pool), facts_of(self.subject).classes)

    def task_of(self, records: Records, seed: int) -> Any:
        """Return the task, its clients with these records in their order.

        Parameters
        ----------
        records : Records
        seed : int
            Of the model's initialisation.

        Returns
        -------
        OwnRecords
        """
        shape = (self.clients, self.records)
        inputs, targets = records.inputs, records.targets
        task = own_records(
            self.subject,
            inputs.reshape(*shape, *inputs.shape[1:]),
            targets.reshape(*shape, *targets.shape[1:]),
            seed,
        )
        check_trains(task, self.training, range(1))
        return task
