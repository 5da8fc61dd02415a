"""Load the task that is attacked: its clients' records, its public ones, and its experiment."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import torch

from zerosum.client.given_task import GivenTask, is_object_name
from zerosum.client.task import ClientInfo, Task, TaskError, error_line, population, resolve_task
from zerosum.client.task_errors import FAILURES
from zerosum.client.training.examples import Examples, as_examples
from zerosum.client.training.seeded_task import client_records, public_records, seeded_resolution
from zerosum.secagg.randomness import numpy_generator
from zerosum.server.config import ConfigError
from zerosum.server.runs.run_folder import RunFolder
from zerosum.server.spec import Experiment
from zerosum.simulations.attacks.inversion.reconstruction import RECOGNISED
from zerosum.simulations.attacks.own_task.run_home import found_path, importable_from
from zerosum.simulations.config import Source, load_experiment, with_task
from zerosum.simulations.data.datasets import Records
from zerosum.simulations.data.edited_modules import read_again

TRAINING = ("lr", "epochs", "batch_size")
"""Keys of training that attacks play: plain SGD, which they know how to model."""

MOST_CLIENTS, MOST_RECORDS, MOST_IN_ALL = 100, 500, 10_000
"""Clients whose records are read, records of each, and of all: seconds, and some megabytes."""

PUBLIC = 1000
"""Public records that an attacker has, at most."""

MARGIN = 0.25
"""Part of the public records' range by which the range of all is wider, at both ends: clients'
records may lie beyond it, and a guess is held within."""

_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Subject:
    """Name what is attacked.

    Attributes
    ----------
    task : str
        A name, or a ``GivenTask``.
    settings : tuple of str
        As ``data.path=...``: of the sections data, model and training.
    seeds : int
        How many scenes share the records, so that none is a unit of two.
    run : str
        A run folder; empty where the task alone is attacked.
    number : int
        Tells this task from another of the same name, and from itself before it was edited.
    """

    task: str
    settings: tuple[str, ...] = ()
    seeds: int = 3
    run: str = ""
    number: int = field(default_factory=lambda: next(_NUMBERS))

    @property
    def label(self) -> str:
        """Return the name in the table's rows."""
        return f"run {Path(self.run).resolve().name}, {self.task}" if self.run else self.task

    @property
    def caption(self) -> str:
        """Return the sentence of the files that says what was attacked."""
        how = f", with {', '.join(self.settings)}" if self.settings else ""
        where = f"the run in {self.run}, whose task is {self.task}" if self.run else self.task
        return (
            f"Attacked was {where}{how}. Records are the task's own; what the attacker has beside "
            "is its public test data."
        )

    @cached_property
    def training(self) -> dict[str, float | int | str]:
        """Return what the settings say of training, by key."""
        given = (each.partition("=") for each in self.settings)
        named = {key.removeprefix("training."): text for key, _, text in given
                 if key.startswith("training.")}  # fmt: skip
        spec = loaded(self).experiment.training if named else None
        return {key: getattr(spec, key) for key in named}


def subject_of_run(folder: str, settings: Sequence[str], seeds: int, task: str) -> Subject:
    """Return the subject that a run folder holds.

    Parameters
    ----------
    folder : str
        Of the run, which is only read.
    settings : sequence of str
        ``data.path`` alone: all else is the run's.
    seeds : int
        Of each figure.
    task : str
        Of a run that was given an object; empty for any other.

    Returns
    -------
    Subject

    Raises
    ------
    ConfigError
        If the folder holds no run, or one whose task nothing leads to.
    """
    experiment = RunFolder.open(Path(folder)).experiment
    for setting in settings:
        if not setting.startswith("data.path="):
            raise ConfigError(
                f"--set {setting}: the setting is that of the run in {folder}; data.path alone may "
                "be given, where its data lie elsewhere now"
            )
    name: str = experiment.task
    if task:
        if not is_object_name(name):
            raise ConfigError(f"--task {task} and --run {folder}: the run has its own task, {name}")
        name = GivenTask(task.given, name) if isinstance(task, GivenTask) else task
    elif is_object_name(name):
        raise ConfigError(
            f"--run {folder}: its task was given as an object, {name}, which no name leads to: "
            "attack it from Python, as attack(run=..., task=MyTask())"
        )
    return Subject(name, tuple(settings), seeds, folder)


def subject_of_task(task: str, settings: Sequence[str], seeds: int) -> Subject:
    """Return the subject that a task is.

    Parameters
    ----------
    task : str
        A name, or a ``GivenTask``.
    settings : sequence of str
        Of the task.
    seeds : int
        Of each figure.

    Returns
    -------
    Subject

    Raises
    ------
    ConfigError
        If a setting is not one that attacks play.
    """
    for setting in settings:
        section, _, key = setting.partition("=")[0].partition(".")
        if section == "training" and key not in TRAINING:
            keys = ", ".join(f"training.{each}" for each in TRAINING)
            raise ConfigError(f"--set {setting}: clients train by plain SGD here; give {keys}")
    return Subject(task, tuple(settings), seeds)


@dataclass(frozen=True)
class Loaded:
    """A task that was resolved, and the experiment that it belongs to.

    Attributes
    ----------
    experiment : Experiment
        The run's, or defaults with the task's settings.
    task : Task
    population : int
        Clients.
    key : str
        Under which views find its model.
    """

    experiment: Experiment
    task: Task
    population: int
    key: str


@lru_cache(maxsize=4)
def loaded(subject: Subject) -> Loaded:
    """Resolve a subject's task, once in this process.

    Parameters
    ----------
    subject : Subject

    Returns
    -------
    Loaded

    Raises
    ------
    ConfigError, TaskError
        One line that names what cannot be had.
    """
    source: Source = RunFolder.open(Path(subject.run)).experiment if subject.run else {}
    experiment = load_experiment(with_task(source, subject.task), subject.settings)
    if subject.run and (path := found_path(subject.run, experiment.data.path)) is not None:
        data = experiment.data.model_copy(update={"path": path})
        experiment = experiment.model_copy(update={"data": data})
    seed = experiment.seed
    beside = importable_from(subject.run, experiment.task)
    with seeded_resolution(seed), beside, read_again(experiment.task):
        task = resolve_task(experiment.task, experiment.data, experiment.model, seed)
    count = population(task, experiment.data)
    return Loaded(experiment, task, count, f"{subject.task} {subject.number}")


@dataclass(frozen=True)
class Pool:
    """Records of clients, on the task's own scale.

    Attributes
    ----------
    records : Records
        Of some clients, the owner of each among them.
    spare : Records or None
        Public test records, at most :data:`PUBLIC`.
    lowest, scale : float
        Inputs less ``lowest``, over ``scale``, are in [0, 1].
    """

    records: Records
    spare: Records | None
    lowest: float
    scale: float

    def unit(self, inputs: np.ndarray) -> np.ndarray:
        """Return floating-point inputs on the scale [0, 1], others as they are."""
        if inputs.dtype.kind != "f" or (self.lowest == 0.0 and self.scale == 1.0):
            return inputs
        scaled: np.ndarray = ((inputs - self.lowest) / self.scale).astype(np.float32)
        return scaled

    @cached_property
    def recognised(self) -> float:
        """PSNR, in dB, from which a guess counts as a record.

        Of images in [0, 1] the usual one. Other records lie closer together on their scale: there,
        nearer than 99 of 100 public records have any other public record.
        """
        if self.spare is None or (self.lowest == 0.0 and self.scale == 1.0):
            return RECOGNISED
        flat = self.unit(self.spare.inputs).reshape(len(self.spare), -1).astype(np.float64)
        squares = (flat**2).sum(axis=1)
        errors = (squares[:, None] + squares[None] - 2 * flat @ flat.T) / flat.shape[1]
        np.fill_diagonal(errors, np.inf)
        nearest = np.maximum(errors.min(axis=1), 1e-6)
        return max(RECOGNISED, float(-10 * np.log10(np.quantile(nearest, 0.01))))

    @cached_property
    def sizes(self) -> np.ndarray:
        """Records of each client that holds any, int64, descending."""
        return np.sort(np.unique(_owners(self.records), return_counts=True)[1])[::-1]


@lru_cache(maxsize=4)
def pool_of(subject: Subject) -> Pool:
    """Read a subject's records, in an order that no seed changes.

    Parameters
    ----------
    subject : Subject

    Returns
    -------
    Pool

    Raises
    ------
    TaskError
        If no client's records are tensors of one shape.
    """
    found = loaded(subject)
    parts = list(itertools.islice(_clients(found, subject), MOST_CLIENTS))
    if not parts:
        raise TaskError(
            f'task = "{subject.task}": none of its clients has records; check data(client)'
        )
    records = joined(parts)
    if len(records) > MOST_IN_ALL:
        records = records.take(np.arange(MOST_IN_ALL))
    spare = public_of(found, PUBLIC)
    return Pool(records, spare, *_range_of(spare))


def _clients(found: Loaded, subject: Subject) -> Iterator[Records]:
    """Yield the records of clients that hold any, in an order of the subject's own."""
    order = numpy_generator(found.experiment.seed, "attacked clients").permutation(found.population)
    total = 0
    for index in order.tolist():
        if total >= MOST_IN_ALL:
            return
        held = records_of(found, index)
        if held is None or not len(held):
            continue
        rng = numpy_generator(found.experiment.seed, "records read", index)
        held = held.take(rng.permutation(len(held))[:MOST_RECORDS])
        total += len(held)
        yield Records(held.inputs, held.targets, np.full(len(held), index))


def records_of(found: Loaded, index: int) -> Records | None:
    """Return all records of a client; None where its task fails at them.

    Parameters
    ----------
    found : Loaded
    index : int
        Of the client.

    Returns
    -------
    Records or None

    Raises
    ------
    TaskError
        If they are no single tensors.
    """
    client = ClientInfo(index=index, count=found.population, seed=found.experiment.seed)
    try:
        examples = as_examples(
            client_records(found.task, client), torch.float32, torch.device("cpu")
        )
    except TaskError:
        raise
    except FAILURES as error:
        if index == 0:
            raise TaskError(f"data: client 0 fails with {error_line(error)}") from error
        return None  # such a client drops out of each round
    return _as_records(examples) if len(examples) else None


def public_of(found: Loaded, most: int) -> Records | None:
    """Return the task's public test records, some of them where there are more.

    Parameters
    ----------
    found : Loaded
    most : int
        Records.

    Returns
    -------
    Records or None
        None where the task has none.
    """
    data = public_records(found.task, found.experiment.seed)
    if data is None:
        return None
    examples = as_examples(data, torch.float32, torch.device("cpu"))
    if not len(examples):
        return None
    rng = numpy_generator(found.experiment.seed, "public records")
    chosen = rng.permutation(len(examples))[:most]
    inputs, targets = examples.take(torch.from_numpy(np.sort(chosen)))
    return _records(inputs, targets)


def _as_records(examples: Examples) -> Records:
    return _records(*examples.all())


def _records(inputs: object, targets: torch.Tensor) -> Records:
    if not isinstance(inputs, torch.Tensor):
        raise TaskError(
            f"attacks need records that are one tensor each, and these are a "
            f"{type(inputs).__name__} of several"
        )
    return Records(inputs.numpy(), targets.numpy())


def joined(parts: Sequence[Records]) -> Records:
    """Return records one after another.

    Parameters
    ----------
    parts : sequence of Records

    Returns
    -------
    Records
        With owners where all have them.

    Raises
    ------
    TaskError
        If they are not of one shape.
    """
    shapes = {each.inputs.shape[1:] for each in parts}
    if len(shapes) > 1:
        listed = " and ".join(sorted(str(shape) for shape in shapes)[:2])
        raise TaskError(f"attacks need records of one shape, and clients hold {listed}")
    owners = [_owners(each) for each in parts if each.owners is not None]
    return Records(
        np.concatenate([each.inputs for each in parts]),
        np.concatenate([each.targets for each in parts]),
        np.concatenate(owners) if len(owners) == len(parts) else None,
    )


def _owners(records: Records) -> np.ndarray:
    if records.owners is None:
        raise ValueError("records without owners")
    return records.owners


def _range_of(spare: Records | None) -> tuple[float, float]:
    """Return the least and the range of public numbers; 0 and 1 where these hold them."""
    if spare is None or spare.inputs.dtype.kind != "f" or not spare.inputs.size:
        return 0.0, 1.0
    low, high = float(spare.inputs.min()), float(spare.inputs.max())
    if (low >= 0.0 and high <= 1.0) or not np.isfinite(high - low) or high == low:
        return 0.0, 1.0
    return low - MARGIN * (high - low), (1 + 2 * MARGIN) * (high - low)
