"""Recognise a task that a run is given again as an object, by its records and its model."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from zerosum.client.given_task import GivenTask, is_object_name
from zerosum.client.task import ClientInfo, Task
from zerosum.client.task_errors import FAILURES
from zerosum.client.training.examples import as_examples
from zerosum.client.training.seeded_task import client_records, public_records
from zerosum.client.training.threads import one_thread
from zerosum.client.training.torch_seed import seeded
from zerosum.secagg.randomness import derive_seed
from zerosum.server.config import ConfigError
from zerosum.server.runs.run_folder import RunFolder
from zerosum.server.spec import Experiment

if TYPE_CHECKING:
    from zerosum.client.task import Dataset

FINGERPRINT = "checkpoint/task.sha256"

MOST_CLIENTS, MOST_RECORDS = 100, 1000
"""Clients, and records of each, that a fingerprint reads, spread over all: a second or two."""


def given_again(before: Experiment, task: object | None) -> object | None:
    """Return the task that a run goes on with, under the name that the run has for it.

    Parameters
    ----------
    before : Experiment
        Of the run folder.
    task : object, optional
        A task, or a class or function that makes one.

    Returns
    -------
    object or None
        For :func:`zerosum.simulations.config.with_task`.
    """
    if task is None or isinstance(task, str) or not is_object_name(before.task):
        return task
    return GivenTask(task, before.task)


def keep_fingerprint(folder: RunFolder, experiment: Experiment, task: Task, count: int) -> None:
    """Write down what a run was given, if it was given an object; a name speaks for itself.

    Parameters
    ----------
    folder : RunFolder
        New.
    experiment : Experiment
        With the task's name.
    task : Task
        Resolved.
    count : int
        Clients.
    """
    if is_object_name(experiment.task):
        folder.write(FINGERPRINT, fingerprint(task, count, experiment.seed).encode())


def check_fingerprint(folder: RunFolder, experiment: Experiment, task: Task, count: int) -> None:
    """Refuse to go on with a task object other than the one that a run began with.

    Parameters
    ----------
    folder, experiment, task, count
        As for :func:`keep_fingerprint`, of the run that goes on.

    Raises
    ------
    ConfigError
        If its records or the shapes of its model are others.
    """
    file = folder.path / FINGERPRINT
    if not is_object_name(experiment.task):
        return
    if not file.is_file():  # a crash before the first round: nothing was asked of anybody
        keep_fingerprint(folder, experiment, task, count)
    elif file.read_bytes() != fingerprint(task, count, experiment.seed).encode():
        raise ConfigError(
            f"task = {experiment.task!r}: its records or its model are not those that the run in "
            f"{folder.path} began with; give it that task again, or begin a new run"
        )


def fingerprint(task: Task, count: int, seed: int) -> str:
    """Return SHA-256 of the shapes of a task's model, its public records and clients' records.

    What its code computes of them is not seen. Of many clients a hundred are read, and of many
    records of one a thousand.

    Parameters
    ----------
    task : Task
    count : int
        Clients.
    seed : int
        The experiment's: it decides what records a task draws.

    Returns
    -------
    str
        Hexadecimal.
    """
    whole = hashlib.sha256()
    # Seeded, for records may be augmented as they are read.
    with one_thread(), seeded(derive_seed(seed, "fingerprint")):
        for name, values in task.model().state_dict().items():
            whole.update(f"{name} {tuple(values.shape)} {values.dtype}\0".encode())
        _add(whole, public_records(task, seed))
        for index in range(0, count, -(-count // MOST_CLIENTS)):
            whole.update(f"client {index} of {count}\0".encode())
            try:
                _add(whole, client_records(task, ClientInfo(index=index, count=count, seed=seed)))
            except FAILURES as error:  # such a client fails in each round, and is counted there
                whole.update(type(error).__name__.encode())
    return whole.hexdigest()


def _add(whole: "hashlib._Hash", records: "Dataset | None") -> None:
    if records is None:
        whole.update(b"none\0")
        return
    examples = as_examples(records, torch.float32, torch.device("cpu"))
    length = len(examples)
    whole.update(f"{length} records\0".encode())
    if length:
        for part in examples.take(torch.arange(0, length, -(-length // MOST_RECORDS))):
            _add_values(whole, part)


def _add_values(whole: "hashlib._Hash", values: object) -> None:
    """Add tensors, in whatever mappings and sequences they stand."""
    if isinstance(values, torch.Tensor):
        whole.update(f"{tuple(values.shape)} {values.dtype}\0".encode())
        whole.update(values.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    elif isinstance(values, Mapping):
        for key in values:
            whole.update(f"{key}\0".encode())
            _add_values(whole, values[key])
    elif isinstance(values, Sequence) and not isinstance(values, str):
        for value in values:
            _add_values(whole, value)
    else:
        whole.update(f"{values}\0".encode())
