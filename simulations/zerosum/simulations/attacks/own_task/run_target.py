"""Attack the model that a run released, with reference models that were trained as it was.

Members are records of clients who took part. Each stands beside a record that the run was not
trained on. A reference model is trained on one of the two, by a coin, in the member's place: the
same clients with as many records of the same classes, in the same cohorts, under the same
protection, with noise and initial weights of its own. Records that are not asked about are the
same in all of them, so that the attacker knows these: a strong one.
"""

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from zerosum.client.protocol.noise_source import SeededEntropy
from zerosum.client.task import ClientInfo
from zerosum.client.training.flat_parameters import Layout, from_state_dict, parameters_to_vector
from zerosum.secagg.randomness import Keystream, derive_seed, numpy_generator
from zerosum.server.planning.preflight import prepare
from zerosum.server.runs.records import RoundRecord
from zerosum.server.runs.run_folder import RunFolder
from zerosum.server.spec import EvaluationSpec, Experiment
from zerosum.server.training.loop import FederatedTraining
from zerosum.simulations.attacks.harness.interface import Defense, NotApplicable, Scene
from zerosum.simulations.attacks.harness.metrics import Ranking
from zerosum.simulations.attacks.inference.membership import scores_of
from zerosum.simulations.attacks.inference.references import References
from zerosum.simulations.attacks.inference.trained import RecordPool, TrainedView
from zerosum.simulations.attacks.own_task.facts import facts_of, task_model
from zerosum.simulations.attacks.own_task.released import Pairs, pairs_of, release_of
from zerosum.simulations.attacks.own_task.scenes import public
from zerosum.simulations.attacks.own_task.subject import (
    Loaded,
    Subject,
    loaded,
    pool_of,
    records_of,
)
from zerosum.simulations.attacks.settings.task_model import drawn_model, lend
from zerosum.simulations.data.datasets import Records
from zerosum.simulations.engine.simulated_clients import SimulatedEnvironment

if TYPE_CHECKING:
    from zerosum.client.task import Dataset

_SAMPLING = ("cohort", "groups", "order")
"""Purposes of coins that decide who takes part."""


@dataclass(frozen=True)
class RunTarget:
    """Hand out the model that a run released, or as a control one that nothing was trained on.

    Attributes
    ----------
    subject : Subject
        With a run.
    references : int
        Reference models, an even number: each candidate is in half of them.
    untrained : bool
        Whether target and references are models before their first round.
    """

    subject: Subject
    references: int = 8
    untrained: bool = False

    @property
    def name(self) -> str:
        """Return the row's name in the table."""
        return f"{self.subject.label}, {'untrained control' if self.untrained else 'released'}"

    @property
    def released(self) -> str:
        """Return what a sentence of the report calls the model."""
        return "untrained control" if self.untrained else "released model"

    @property
    def control(self) -> bool:
        """Return whether nothing can be learnt here: a sentence of the report counts it apart."""
        return self.untrained

    def play(self, attack: Any, protection: Defense, seed: int) -> Scene:
        """Draw members and others, and train reference models, where the attack asks for them."""
        found, release, pairs = (
            loaded(self.subject),
            release_of(self.subject),
            pairs_of(self.subject),
        )
        lend(found.key, found.task)
        rows = np.arange(seed * pairs.each, (seed + 1) * pairs.each)
        if rows[-1] >= len(pairs.members):
            raise NotApplicable(f"seed {seed} has no records left: each asks about others")
        asked = _Asked.of(self.subject, pairs, rows, seed)
        known = attack.threat.knows
        candidates = "candidates" in known
        auxiliary = public(pool_of(self.subject))
        view = TrainedView(
            threat=attack.threat,
            protection=protection,
            model=found.experiment.model,
            input_shape=facts_of(self.subject).shape,
            classes=facts_of(self.subject).classes,
            training=found.experiment.training,
            own=task_model(self.subject, found.experiment.seed),
            clients=len(release.took_part),
            records=len(pairs.all_members) // len(release.took_part),
            rounds=0 if self.untrained else release.rounds,
            vector=_initial(found, seed) if self.untrained else release.vector,
            candidate_inputs=asked.candidates.inputs if candidates else None,
            candidate_labels=asked.candidates.targets if candidates else None,
            auxiliary_inputs=auxiliary.inputs if "auxiliary data" in known else None,
            auxiliary_labels=auxiliary.targets if "auxiliary data" in known else None,
            mean_image=auxiliary.inputs.mean(axis=0) if "mean image" in known else None,
        )
        if candidates:
            view = _with_references(view, _references(self, seed), asked)
        truth = {"members": asked.members, "class_means": self._class_means(pairs)}
        epsilon = 0.0 if self.untrained else release.epsilon
        return Scene(view, truth, epsilon, release.delta)

    def _class_means(self, pairs: Pairs) -> np.ndarray:
        pool, held = pool_of(self.subject), pairs.all_members
        unit = Records(pool.unit(held.inputs), held.targets)
        everyone = np.ones(len(unit), dtype=bool)
        return RecordPool(unit, everyone, unit, facts_of(self.subject).classes).class_means()


@dataclass(frozen=True)
class _Asked:
    """The candidates of a seed, in random order.

    Attributes
    ----------
    candidates : Records
        Shape (2 n, ...), on the scale [0, 1].
    members : ndarray
        bool, shape (2 n,).
    order : ndarray
        int64, shape (2 n,): place of each candidate among first the members, then the others.
    rows : ndarray
        int64, shape (n,): of the pairs.
    """

    candidates: Records
    members: np.ndarray
    order: np.ndarray
    rows: np.ndarray

    @classmethod
    def of(cls, subject: Subject, pairs: Pairs, rows: np.ndarray, seed: int) -> "_Asked":
        pool, mine, theirs = pool_of(subject), pairs.members.take(rows), pairs.others.take(rows)
        inputs = np.concatenate([mine.inputs, theirs.inputs])
        targets = np.concatenate([mine.targets, theirs.targets])
        order = numpy_generator(seed, "candidates of a run").permutation(2 * len(rows))
        candidates = Records(pool.unit(inputs[order]), targets[order])
        return cls(candidates, order < len(rows), order, rows)

    def holds(self, coins: np.ndarray) -> np.ndarray:
        """Return which candidates models hold: of each pair the member or the other, by a coin.

        Parameters
        ----------
        coins : ndarray
            bool, shape (r, n).

        Returns
        -------
        ndarray
            bool, shape (r, 2 n).
        """
        held: np.ndarray = np.concatenate([coins, ~coins], axis=1)[:, self.order]
        return held


def _with_references(view: TrainedView, models: References, asked: _Asked) -> TrainedView:
    """Return a view with references, and what they tell of records that they do not hold."""
    holds = asked.holds(models.holds)
    fits = np.stack(
        [
            scores_of(view, vector, asked.candidates.inputs, asked.candidates.targets)
            for vector in models.vectors
        ]
    )
    blind = np.where(holds, 0.0, fits).sum(axis=0) / (~holds).sum(axis=0)
    # Where such models fit the others better than the members, a guess that takes nobody for one
    # is the better baseline: an attack has to be above both.
    if Ranking(blind, asked.members).figure().value <= 0.5:
        blind = np.zeros_like(blind)
    values: dict[str, Any] = {
        "blind_scores": blind,
        "references": models.vectors,
        "reference_holds": holds,
        "reference_seconds": models.cpu_seconds,
    }
    return TrainedView(**{**vars(view), **values})


@lru_cache(maxsize=8)
def _references(target: RunTarget, seed: int) -> References:
    """Return the reference models of a seed, once in this process; ``holds`` is of the coins."""
    found, pairs = loaded(target.subject), pairs_of(target.subject)
    rows = np.arange(seed * pairs.each, (seed + 1) * pairs.each)
    rng, started = numpy_generator(seed, "reference coins"), time.process_time()
    coins: list[np.ndarray] = []
    vectors: list[np.ndarray] = []
    for number in range(target.references):
        # Every second model holds what the one before does not, so that each record is in half.
        coins.append(~coins[-1] if number % 2 else rng.random(len(rows)) < 0.5)
        own = int.from_bytes(derive_seed(seed, "reference of a run", number)[:7], "little")
        if target.untrained:
            vectors.append(_initial(found, own))
        else:
            vectors.append(_trained(target.subject, rows, coins[-1], own))
    return References(np.stack(vectors), np.stack(coins), time.process_time() - started)


def _initial(found: Loaded, seed: int) -> np.ndarray:
    return parameters_to_vector(drawn_model(found.task, seed, found.experiment.seed))


def _trained(subject: Subject, rows: np.ndarray, coins: np.ndarray, seed: int) -> np.ndarray:
    """Train a model as the run was, on the members of coins that fell so, and others' partners."""
    found, release, pairs = loaded(subject), release_of(subject), pairs_of(subject)
    swapped: dict[int, list[tuple[int, int]]] = {}
    for pair in rows[~coins].tolist():
        client, row = pairs.places[pair].tolist()
        swapped.setdefault(client, []).append((row, pair))
    task = _Swapped(found, pairs.others, swapped, seed)
    experiment = _experiment(found, len(release.vector), seed)
    entropy = _OtherNoise(found.experiment.seed, seed)
    clients = SimulatedEnvironment.of(task, entropy, experiment.secagg, found.population)
    run_id = derive_seed(seed, "reference of a run")[:16]
    coordinator = clients.coordinator(experiment, found.population, run_id)

    def ends(record: RoundRecord) -> bool:
        return record.round >= release.rounds

    with tempfile.TemporaryDirectory(prefix="zerosum-reference-") as temporary:
        folder = RunFolder.create(Path(temporary) / "run", experiment)
        training = FederatedTraining(
            experiment, task, found.population, coordinator, entropy, folder, ends
        )
        model = training.run().model
    return from_state_dict(model, Layout.of(task.model()))


def _experiment(found: Loaded, dimension: int, seed: int) -> Experiment:
    """Return a run's experiment with another seed, and without what changes no model."""
    before = found.experiment
    protocol = "none" if before.secagg.protocol == "none" else "ideal"  # the same sum, bit for bit
    update = {
        "seed": seed,
        "engine": "serial",
        "log": [],
        "baselines": False,
        "evaluation": EvaluationSpec(every=before.rounds),
        "secagg": before.secagg.model_copy(update={"protocol": protocol}),
    }
    experiment = before.model_copy(update=update)
    return prepare(experiment, population=found.population, dimension=dimension)


class _OtherNoise(SeededEntropy):
    """Draw the cohorts of a run again, and all noise anew.

    Parameters
    ----------
    run_seed : int
        Whose cohorts are drawn.
    seed : int
        Of the noise.
    """

    def __init__(self, run_seed: int, seed: int) -> None:
        super().__init__(seed)
        self._run = SeededEntropy(run_seed)

    def keystream(self, purpose: str, *indices: int) -> Keystream:
        """Return the run's own coins of who takes part, and others of everything else."""
        if purpose.split()[0] in _SAMPLING:
            return self._run.keystream(purpose, *indices)
        return super().keystream(purpose, *indices)


class _Swapped:
    """A run's task in which some members' places are taken by records that are no members."""

    def __init__(
        self,
        found: Loaded,
        others: Records,
        swapped: Mapping[int, list[tuple[int, int]]],
        seed: int,
    ) -> None:
        self._found, self._others, self._swapped, self._seed = found, others, swapped, seed
        self._held: dict[int, Dataset] = {}
        self.loss = found.task.loss  # with the marks that say how it may be computed

    def model(self) -> nn.Module:
        return drawn_model(self._found.task, self._seed, self._found.experiment.seed)

    def data(self, client: ClientInfo) -> "Dataset":
        if client.index not in self._held:
            self._held[client.index] = self._records(client.index)
        return self._held[client.index]

    def _records(self, index: int) -> "Dataset":
        records = records_of(self._found, index)
        if records is None:  # as in the run: it fails, or trains on nothing
            return self._found.task.data(ClientInfo(index, self._found.population))
        inputs, targets = records.inputs.copy(), records.targets.copy()
        for row, pair in self._swapped.get(index, ()):
            inputs[row], targets[row] = self._others.inputs[pair], self._others.targets[pair]
        return torch.from_numpy(inputs), torch.from_numpy(targets)

    def test_data(self) -> "Dataset | None":
        if self._found.experiment.server.rule_examples is None:
            return None
        return self._found.task.test_data()
