"""Train a target model with the simulator's own federated training, and reference models like it.

An outsider has the released model. It trains reference models as the target was trained: by the
same procedure under the same protection, on records of its own choice.
"""

import math
import shutil
import tempfile
import time
import weakref
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import nn

from zerosum.client.spec import DataSpec, ModelSpec, TrainSpec
from zerosum.client.task import Task
from zerosum.client.training.flat_parameters import Layout, from_state_dict, load_vector
from zerosum.client.training.initial_model import build_model, initial_vector
from zerosum.secagg.randomness import derive_seed, numpy_generator
from zerosum.server.planning.preflight import prepare
from zerosum.server.runs.run_folder import RunFolder
from zerosum.server.spec import Experiment, SamplingSpec
from zerosum.simulations import api
from zerosum.simulations.attacks.harness.interface import Defense, Scene
from zerosum.simulations.attacks.harness.to_specs import (
    DELTA,
    check_played,
    encoding_of,
    privacy_of,
    secagg_of,
)
from zerosum.simulations.attacks.inference.references import (
    References,
    read_references,
    write_references,
)
from zerosum.simulations.attacks.settings.model_view import LearningView
from zerosum.simulations.attacks.settings.records import RecordsTask, collection_of
from zerosum.simulations.attacks.settings.task_model import TaskModel
from zerosum.simulations.data import datasets
from zerosum.simulations.data.datasets import Records


@dataclass(frozen=True)
class TrainedView(LearningView):
    """Hold what an outsider has of a trained model.

    Attributes
    ----------
    clients, records, rounds : int
        Clients, all of which took part in each round; records of each.
    vector : ndarray
        float32, shape (d,): the released model.
    candidate_inputs, candidate_labels : ndarray
        float32, shape (n, ...), and int64, shape (n,): records, half of which were trained on, in
        random order.
    auxiliary_inputs, auxiliary_labels : ndarray or None
        float32, shape (m, ...), and int64, shape (m,): other records of the same population, where
        the threat model has "auxiliary data".
    mean_image : ndarray or None
        float32, shape (...): the mean of such records over all classes, where the threat model has
        a "mean image".
    blind_scores : ndarray or None
        float64, shape (n,): of a model's run that others trained, each candidate's score under
        models that it is no member of. None where members were drawn at random from the candidates.
    references : ndarray or None
        float32, shape (r, d): models trained as the target was, on other halves of the candidates.
        None where the attack requires none.
    reference_holds : ndarray or None
        bool, shape (r, n): which candidates each was trained on.
    reference_seconds : float
        CPU time of training them, which the attack's own time does not include.
    """

    clients: int = 0
    records: int = 0
    rounds: int = 0
    vector: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    candidate_inputs: np.ndarray | None = None
    candidate_labels: np.ndarray | None = None
    auxiliary_inputs: np.ndarray | None = None
    auxiliary_labels: np.ndarray | None = None
    mean_image: np.ndarray | None = None
    blind_scores: np.ndarray | None = None
    references: np.ndarray | None = None
    reference_holds: np.ndarray | None = None
    reference_seconds: float = 0.0

    def loaded(self, vector: np.ndarray | None = None) -> nn.Module:
        """Build the released model, or another of its kind, in evaluation mode.

        Parameters
        ----------
        vector : ndarray of float32, optional
            Shape (d,): parameters; default those of the released model.

        Returns
        -------
        torch.nn.Module

        Raises
        ------
        TaskError
            If it moves running statistics, which the released vector does not contain.
        """
        model = self.build()
        load_vector(model, self.vector if vector is None else vector)
        return model.eval()


@dataclass(frozen=True)
class TrainedSetting:
    """Train on few records for many epochs, until the model overfits.

    Attributes
    ----------
    clients, records : int
        Clients, all of which take part in each round; records of each. There are twice as many
        candidates as the target's clients hold.
    rounds, epochs, batch_size : int
    lr : float
        Of local training.
    hidden : tuple of int
        Widths of the model's hidden layers; without any it is linear.
    task : str
        "mnist5k" or "digits".
    pool : int
        Average pooling of images before training.
    references : int
        Reference models, an even number: each candidate is in half of them.
    auxiliary : int
        Auxiliary records, where the threat model has them.
    """

    clients: int = 10
    records: int = 20
    rounds: int = 12
    epochs: int = 5
    batch_size: int = 10
    lr: float = 0.3
    hidden: tuple[int, ...] = (32,)
    task: str = "mnist5k"
    pool: int = 2
    references: int = 24
    auxiliary: int = 1000

    def __post_init__(self) -> None:
        if self.references % 2 or self.references < 4:
            raise ValueError(
                f"references = {self.references}: give an even number from 4; each candidate is "
                "in half of the reference models"
            )

    @property
    def name(self) -> str:
        """Return the row's name in the table."""
        return f"model trained on {self.held} records of {self.task}, {self.clients} clients"

    @property
    def held(self) -> int:
        """Return the number of records that a model is trained on."""
        return self.clients * self.records

    @property
    def model(self) -> ModelSpec:
        """Return the architecture."""
        if not self.hidden:
            return ModelSpec(name="linear")
        return ModelSpec(hidden=list(self.hidden))

    @property
    def training(self) -> TrainSpec:
        """Return the local training."""
        return TrainSpec(epochs=self.epochs, batch_size=self.batch_size, lr=self.lr)

    def own_model(self, seed: int) -> TaskModel | None:
        """Return the model of a user's task; None of the built-in records."""
        return None

    def pool_of(self, seed: int) -> "RecordPool":
        """Draw candidates, and half of them as members."""
        return RecordPool.drawn(self, seed)

    def task_of(self, records: Records, seed: int) -> Task:
        """Return the task of clients that hold these records, dealt in their order.

        Parameters
        ----------
        records : Records
            As many as all clients hold.
        seed : int
            Of the model's initialisation.

        Returns
        -------
        Task
        """
        shape = (self.clients, self.records)
        return RecordsTask(
            self.model,
            records.inputs.reshape(*shape, *records.inputs.shape[1:]),
            records.targets.reshape(shape),
            records.take(np.arange(0)),
            len(np.unique(collection_of(self.task).train.targets)),
            seed,
        )

    def play(self, attack: Any, protection: Defense, seed: int) -> Scene:
        """Train the target and, where an attack requires them, reference models."""
        pool = self.pool_of(seed)
        target = _target(self, protection, seed)
        required = "references" in attack.requires
        models = references_of(self, protection, seed) if required else None
        auxiliary = "auxiliary data" in attack.threat.knows
        candidates = "candidates" in attack.threat.knows
        mean = "mean image" in attack.threat.knows
        view = TrainedView(
            threat=attack.threat,
            protection=protection,
            model=self.model,
            input_shape=tuple(pool.candidates.inputs.shape[1:]),
            classes=pool.classes,
            training=self.training,
            own=self.own_model(seed),
            clients=self.clients,
            records=self.records,
            rounds=self.rounds,
            vector=target.vector,
            candidate_inputs=pool.candidates.inputs if candidates else None,
            candidate_labels=pool.candidates.targets if candidates else None,
            auxiliary_inputs=pool.spare.inputs if auxiliary else None,
            auxiliary_labels=pool.spare.targets if auxiliary else None,
            mean_image=pool.spare.inputs.mean(axis=0) if mean else None,
            references=None if models is None else models.vectors,
            reference_holds=None if models is None else models.holds,
            reference_seconds=0.0 if models is None else models.cpu_seconds,
        )
        truth = {"members": pool.members, "class_means": pool.class_means()}
        return Scene(view, truth, target.epsilon, DELTA)


@dataclass(frozen=True)
class RecordPool:
    """Hold candidates, which of them were trained on, and other records.

    Attributes
    ----------
    candidates : Records
        Shape (n, ...).
    members : ndarray
        bool, shape (n,): the half that was trained on.
    spare : Records
        Auxiliary ones.
    classes : int
    """

    candidates: Records
    members: np.ndarray
    spare: Records
    classes: int

    @classmethod
    def drawn(cls, setting: TrainedSetting, seed: int) -> "RecordPool":
        """Draw twice as many candidates as are trained on, and half of them as members.

        Parameters
        ----------
        setting : TrainedSetting
        seed : int

        Returns
        -------
        RecordPool

        Raises
        ------
        ValueError
            If the data have too few records.
        """
        collection = datasets.prepare(
            collection_of(setting.task), DataSpec(pool=setting.pool), seed
        )
        rng = numpy_generator(seed, "membership candidates")
        count = 2 * setting.held
        if count > len(collection.train):
            raise ValueError(
                f"{count} candidates of {setting.task}: there are {len(collection.train)} records; "
                "lower clients or records"
            )
        chosen = collection.train.take(rng.permutation(len(collection.train))[:count])
        spare = collection.test.take(np.arange(min(setting.auxiliary, len(collection.test))))
        return cls(chosen, half_of(count, rng), spare, collection.classes or 1)

    def class_means(self) -> np.ndarray:
        """Return each class' mean over members, float64, shape (classes, ...); NaN for none."""
        inputs = self.candidates.inputs[self.members].astype(np.float64)
        labels = self.candidates.targets[self.members]
        means = np.full((self.classes, *inputs.shape[1:]), np.nan)
        if labels.dtype.kind not in "iu" or labels.ndim != 1 or self.classes < 2:
            return means  # of a user's task whose targets are no class labels
        for label in np.unique(labels):
            means[label] = inputs[labels == label].mean(axis=0)
        return means


def half_of(count: int, rng: np.random.Generator) -> np.ndarray:
    """Choose a random half.

    Parameters
    ----------
    count : int
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of bool
        Shape (count,), of which count // 2 are true.
    """
    chosen: np.ndarray = rng.permutation(count) < count // 2
    return chosen


@dataclass(frozen=True)
class ReleasedModel:
    """Hold a released model and the ledger's epsilon of its release.

    Attributes
    ----------
    vector : ndarray
        float32, shape (d,).
    epsilon : float
        Infinite without noise.
    """

    vector: np.ndarray
    epsilon: float


def train(
    setting: TrainedSetting,
    protection: Defense,
    records: Records,
    seed: int,
    *,
    protocol: str | None = None,
) -> ReleasedModel:
    """Run federated training on records, dealt to clients in their order.

    Parameters
    ----------
    setting : TrainedSetting
    protection : Defense
    records : Records
        As many as all clients hold.
    seed : int
        Of the model's initialisation, batches and noise.
    protocol : str, optional
        In place of the protection's: "ideal" gives the same model bit for bit, in less time.

    Returns
    -------
    ReleasedModel

    Raises
    ------
    NotApplicable
        If the protection is one that this setting does not play.
    """
    check_played(protection)
    task = setting.task_of(records, seed)
    dimension = len(initial_vector(task, seed))
    secagg = secagg_of(protection)
    if protocol is not None:
        secagg = secagg.model_copy(update={"protocol": protocol})
    experiment = Experiment(
        task="attacked",
        seed=seed,
        rounds=setting.rounds,
        engine="serial",
        model=setting.model,
        training=setting.training,
        privacy=privacy_of(protection, setting.clients, dimension),
        encoding=encoding_of(protection),
        secagg=secagg,
        sampling=SamplingSpec(kind="everyone"),
    )
    experiment = prepare(experiment, population=setting.clients, dimension=dimension)
    planned = api.Plan(experiment, task, setting.clients, dimension)
    with tempfile.TemporaryDirectory() as temporary:
        folder = RunFolder.create(Path(temporary) / "run", experiment)
        result = api.simulate(planned, folder, report=False)
    vector = from_state_dict(result.model, Layout.of(build_model(task, seed)))
    released = result.summary["epsilon"]["release"]["value"]
    return ReleasedModel(vector, math.inf if released is None else float(released))


@lru_cache(maxsize=16)
def _target(setting: TrainedSetting, protection: Defense, seed: int) -> ReleasedModel:
    """Train the target, once for all attacks on it in this process."""
    pool = setting.pool_of(seed)
    dealt = numpy_generator(seed, "members dealt").permutation(np.flatnonzero(pool.members))
    return train(setting, protection, pool.candidates.take(dealt), seed)


class _Folder:
    """Own a temporary folder, removed when nothing refers to it or the process ends."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="zerosum-references-"))
        weakref.finalize(self, shutil.rmtree, self.path, True)


def references_of(setting: TrainedSetting, protection: Defense, seed: int) -> References:
    """Read the reference models of a scene, trained once in this process.

    They are read from files each time: fewer models in memory, and a deleted or changed one is
    found.

    Parameters
    ----------
    setting : TrainedSetting
    protection : Defense
    seed : int

    Returns
    -------
    models : References

    Raises
    ------
    ReferenceModelError
        If one of them was deleted or changed.
    """
    folder = reference_folder(setting, protection, seed)
    return read_references(folder, _procedure(setting, _unmasked(protection)))


def reference_folder(setting: TrainedSetting, protection: Defense, seed: int) -> Path:
    """Return the folder with the reference models of a scene, trained once in this process.

    Parameters
    ----------
    setting : TrainedSetting
    protection : Defense
        Those that differ only in their masks share a folder.
    seed : int

    Returns
    -------
    Path
    """
    return _trained_references(setting, _unmasked(protection), seed).path


def _unmasked(protection: Defense) -> Defense:
    """Return a protection without its masks: once sums are open, noise and clip remain."""
    return replace(protection, name="", masking="none", confirm=True, threshold=None)


@lru_cache(maxsize=16)
def _trained_references(setting: TrainedSetting, protection: Defense, seed: int) -> _Folder:
    pool, started = setting.pool_of(seed), time.process_time()
    vectors: list[np.ndarray] = []
    halves: list[np.ndarray] = []
    rng = numpy_generator(seed, "reference halves")
    for number in range(setting.references):
        # Every second half is the complement of the one before: each candidate is in exactly half
        # of the references, so that neither of its two Gaussians is estimated from fewer models.
        holds = ~halves[-1] if number % 2 else half_of(len(pool.members), rng)
        dealt = rng.permutation(np.flatnonzero(holds))
        own = int.from_bytes(derive_seed(seed, "reference model", number)[:7], "little")
        model = train(setting, protection, pool.candidates.take(dealt), own, protocol="ideal")
        vectors.append(model.vector)
        halves.append(holds)
    folder = _Folder()
    spent = time.process_time() - started
    references = References(np.stack(vectors), np.stack(halves), spent)
    write_references(folder.path, references, _procedure(setting, protection))
    return folder


def _procedure(setting: TrainedSetting, protection: Defense) -> str:
    return f"{setting} under {protection}"


def noise_defense(noise: Literal["none", "local", "distributed"], sigma: float = 0.0) -> Defense:
    """Return plain training, local noise without masks, or masked sums with distributed noise.

    Parameters
    ----------
    noise : str
        "none", "local" or "distributed".
    sigma : float
        Standard deviation of the noise in a coordinate, in clips.

    Returns
    -------
    Defense
    """
    if noise == "none":
        return Defense("plain")
    masked = noise == "distributed"
    return Defense(
        f"{'masked + distributed' if masked else 'local'} noise {sigma:g} C",
        masking="double" if masked else "none",
        clip=1.0,
        noise=noise,
        sigma=sigma,
    )
