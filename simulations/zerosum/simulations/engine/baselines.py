"""Train what a federation is compared with: clients alone, and all records without privacy.

Each baseline is the run itself with one client in it: the same local training, server optimizer and
learning rates, without noise, clip, masks, sampling of clients or weights. Alone, that client is
one of the roster; pooled, it holds the records of all. No epsilon covers these figures.
"""

import hashlib
import logging
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import torch
from torch.utils.data import ConcatDataset, TensorDataset

from zerosum.client.spec import TrainSpec
from zerosum.client.task import ClientInfo, Task, error_line
from zerosum.client.task_errors import FAILURES
from zerosum.client.training.examples import Examples, SubsetExamples, TensorExamples, as_examples
from zerosum.client.training.fast import choose_trainer
from zerosum.client.training.seeded_task import client_records, public_records
from zerosum.client.training.torch_seed import seeded
from zerosum.secagg.randomness import derive_seed, numpy_generator
from zerosum.server.config import ConfigError
from zerosum.server.privacy.protections import fixed_part
from zerosum.server.runs.results import Result
from zerosum.server.runs.run_folder import RunFolder
from zerosum.server.sampling import expected_cohort
from zerosum.server.spec import Experiment
from zerosum.server.training.averaging import held_out
from zerosum.server.training.global_model import GlobalModel
from zerosum.server.training.public_test import PublicTest
from zerosum.simulations.engine.choice import workers_of
from zerosum.simulations.engine.processes import Answering, Failure, WorkerProcesses

if TYPE_CHECKING:
    from zerosum.client.task import Dataset

log = logging.getLogger("zerosum.simulations")

MOST_ALONE: Final = 20
"""Clients that are trained alone, at most: a sample of more, drawn by the seed."""

BASELINES: Final = "baselines.jsonl"
"""A line for each model that was trained, so that none is trained twice."""

_CPU = torch.device("cpu")


@dataclass(frozen=True)
class _Order:
    """One model: of a client alone, or of all records where there is none."""

    client: int | None
    answers: ClassVar[int] = 1


@dataclass(frozen=True)
class Setting:
    """The run that baselines belong to.

    Attributes
    ----------
    task : Task
        What is trained.
    experiment : Experiment
        With its noise resolved.
    population : int
        Clients.
    rounds : int
        That were run.
    components : numpy.ndarray
        Public principal components that the run found, float32; empty where the model has none.
    """

    task: Task
    experiment: Experiment
    population: int
    rounds: int
    components: np.ndarray

    @property
    def digest(self) -> str:
        """Return what lines of another setting differ in."""
        fixed = fixed_part(self.experiment).canonical()
        planned = self.experiment.rounds
        data = b"%b\0%d\0%d\0%d" % (fixed, planned, self.rounds, self.population)
        return hashlib.sha256(data + self.components.tobytes()).hexdigest()[:16]


def check_baselines(experiment: Experiment, task: Task) -> None:
    """Refuse baselines that nothing could test.

    Parameters
    ----------
    experiment : Experiment
        Checked.
    task : Task
        What is trained.

    Raises
    ------
    ConfigError
        If they are asked for and there are no public test data.
    """
    if experiment.baselines and public_records(task, experiment.seed) is None:
        raise ConfigError(
            "baselines = true needs public test data, and the task has none: give it test_data(), "
            "or write baselines=false"
        )


def with_baselines(result: Result, setting: Setting, folder: RunFolder) -> Result:
    """Train the baselines of a finished run and write them into its summary.

    Parameters
    ----------
    result : Result
        Of the run, whose summary is written.
    setting : Setting
    folder : RunFolder
        Whose ``baselines.jsonl`` keeps each model's figures as it is trained.

    Returns
    -------
    Result
        With ``summary.baselines``.
    """
    lines = _known(folder, setting)
    missing = deque(order for order in _orders(setting) if order.client not in lines)
    for line in _trained(setting, missing):
        lines[line["client"]] = line
        folder.append_line(BASELINES, line)
    ordered = [lines[order.client] for order in _orders(setting)]
    folder.rewrite_lines(BASELINES, ordered)  # in one order, whoever was done first
    summary = result.summary | {"baselines": summarised(ordered, setting)}
    folder.write_summary(summary)
    return replace(result, summary=summary)


def _orders(setting: Setting) -> list[_Order]:
    """Return what is trained: all records first, which takes longest, then clients."""
    count, seed = setting.population, setting.experiment.seed
    clients = np.arange(count)
    if count > MOST_ALONE:
        generator = numpy_generator(seed, "clients alone")
        clients = np.sort(generator.choice(count, MOST_ALONE, replace=False))
    return [_Order(None), *(_Order(int(client)) for client in clients)]


def _known(folder: RunFolder, setting: Setting) -> dict[int | None, dict[str, Any]]:
    """Return figures of this very setting; what failed is tried again."""
    lines = folder.read_lines(BASELINES)
    own = [line for line in lines if line.get("setting") == setting.digest and "metrics" in line]
    folder.rewrite_lines(BASELINES, own)
    return {line["client"]: line for line in own}


def _trained(setting: Setting, orders: deque[_Order]) -> Iterator[dict[str, Any]]:
    """Yield a line for each order, as they are done: in worker processes where there are any."""
    count = min(workers_of(setting.experiment), len(orders))
    if count < 2:
        for order in orders:
            yield _line(setting, order.client)
        return
    processes: WorkerProcesses[_Order] = WorkerProcesses(
        partial(_prepared, setting), count, "fork", grace_seconds=0
    )
    with closing(processes), closing(processes.answers(orders)) as answers:
        for answered in answers:
            line = answered.answer
            if isinstance(line, Failure):
                line = _failed(setting, answered.order.client, line.reason)
            yield line


def _prepared(setting: Setting, place: int) -> Answering:
    return lambda shared, order: iter([_line(setting, order.client)])


def _failed(setting: Setting, client: int | None, reason: str) -> dict[str, Any]:
    return {"setting": setting.digest, "client": client, "error": reason}


def _line(setting: Setting, client: int | None) -> dict[str, Any]:
    """Train one model and return its figures, or why there are none."""
    try:
        figures = _figures(setting, client)
    except FAILURES as error:
        return _failed(setting, client, error_line(error))
    return {"setting": setting.digest, "client": client, **figures}


def _figures(setting: Setting, client: int | None) -> dict[str, Any]:
    task, experiment = setting.task, setting.experiment
    dataset = _pooled(setting) if client is None else _records(setting, client)
    records = len(as_examples(dataset, torch.float32, _CPU))
    if not records:
        return {"error": "there are no records"}
    rounds = rounds_of(setting, pooled=client is None)
    trainer = choose_trainer(
        task,
        _local(setting, records, 1, pooled=client is None),
        seed=experiment.seed,
        device=experiment.device,
        kind=experiment.trainer,
    )
    start = trainer.initial_vector()[trainer.public :]
    model = GlobalModel(experiment.server, start, trainer.layout)
    place = setting.population if client is None else client
    for turn in range(1, rounds + 1):
        number = 1 + (turn - 1) * setting.rounds // rounds
        trainer.set_rate(_local(setting, records, number, pooled=client is None))
        seed = derive_seed(experiment.seed, "baseline", turn, place)
        vector = np.concatenate([setting.components, model.model])
        delta = trainer.train(vector, dataset, seed).astype(np.float64)
        model.step(delta, experiment.server.lr_at(number, experiment.rounds))
    public = held_out(public_records(task, experiment.seed), experiment.server, experiment.seed)[0]
    test = PublicTest(task, trainer, public, experiment.evaluation.batch_size)
    metrics = test.figures(np.concatenate([setting.components, model.model]))
    if not math.isfinite(metrics.get("test_loss", 0.0)):
        return {"error": "its test gives NaN or infinity: the model has diverged"}
    # Another figure may have no value for a model that is sound, as a precision of no predictions.
    finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
    return {"records": records, "rounds": rounds, "metrics": finite}


def rounds_of(setting: Setting, *, pooled: bool) -> int:
    """Return how often a baseline's local training is repeated.

    A client alone trains as if it were asked in every round. All records together are passed over
    as often as the run did on average, where local training is counted in epochs; where it is
    counted in steps, there are as many steps as one after another in the run.

    Parameters
    ----------
    setting : Setting
    pooled : bool
        Whether all records are trained on.

    Returns
    -------
    int
        At least 1.
    """
    experiment = setting.experiment
    if not pooled or experiment.training.steps is not None or experiment.privacy.by_example:
        return max(1, setting.rounds)
    part = expected_cohort(experiment, setting.population) / setting.population
    return max(1, round(setting.rounds * part))


def _local(setting: Setting, records: int, number: int, *, pooled: bool) -> TrainSpec:
    """Return the local training of a round, without what is for sums of many clients.

    Where single examples are protected, a step takes the expected lot of such records; where
    clients send gradients, the change is that of one step at rate 1, which the server's optimizer
    is then given.
    """
    experiment = setting.experiment
    privacy, training = experiment.privacy, experiment.training.at(number, experiment.rounds)
    update: dict[str, Any] = {"normalise": "none", "reference_steps": None}
    if privacy.by_example:
        lot, examples = privacy.lot or records, privacy.examples or records
        share = lot if pooled else lot * records / examples
        update |= {"epochs": None, "batch_size": min(records, max(1, round(share)))}
    if privacy.sums_gradients:
        update |= {"steps": 1, "lr": 1.0, "momentum": 0.0, "weight_decay": 0.0, "proximal": 0.0}
    return training.model_copy(update=update)


def _records(setting: Setting, client: int) -> "Dataset":
    info = ClientInfo(index=client, count=setting.population, seed=setting.experiment.seed)
    return client_records(setting.task, info)


def _pooled(setting: Setting) -> "Dataset":
    """Return the records of all clients; those whose data cannot be had have none in the run."""
    parts: list[Any] = []
    for client in range(setting.population):
        try:
            parts.append(_records(setting, client))
        except FAILURES as error:
            log.info("client %d is not among the pooled records: %s", client, error_line(error))
    with seeded(0):
        wrapped = [as_examples(part, torch.float32, _CPU) for part in parts]
        kept = [(part, one) for part, one in zip(parts, wrapped, strict=True) if len(one)]
        # Tensors as such: an item at a time would take many times as long.
        held = {n: TensorDataset(*one.all()) for n, (_, one) in enumerate(kept) if _in_memory(one)}
    if held and len(held) == len(kept):
        inputs, targets = zip(*(one.tensors for one in held.values()), strict=True)
        return torch.cat(inputs), torch.cat(targets)
    if not kept:
        return torch.zeros(0), torch.zeros(0)
    return ConcatDataset([held.get(n, part) for n, (part, _) in enumerate(kept)])


def _in_memory(examples: Examples) -> bool:
    return isinstance(examples, TensorExamples | SubsetExamples)


def summarised(lines: Sequence[Mapping[str, Any]], setting: Setting) -> dict[str, Any]:
    """Return what ``summary.json`` says of the baselines.

    Parameters
    ----------
    lines : sequence of mapping
        Of ``baselines.jsonl``: all records, then clients.
    setting : Setting

    Returns
    -------
    dict of str to any
        ``alone`` and ``pooled``.
    """
    pooled, *clients = lines
    done = [line for line in clients if "metrics" in line]
    errors = [f"client {line['client']}: {line['error']}" for line in clients if "error" in line]
    names = [
        n for n in (done[0]["metrics"] if done else ()) if all(n in d["metrics"] for d in done)
    ]
    alone: dict[str, Any] = {
        "clients": len(done),
        "of": setting.population,
        "rounds": rounds_of(setting, pooled=False),
        "metrics": {name: _spread([line["metrics"][name] for line in done]) for name in names},
    }
    if errors:
        alone |= {"failed": len(errors), "first_failure": errors[0]}
    own = {key: pooled[key] for key in ("records", "rounds", "metrics", "error") if key in pooled}
    return {"alone": alone, "pooled": own}


def _spread(values: Sequence[float]) -> dict[str, float]:
    least, lower, middle, upper, most = np.quantile(values, [0, 0.25, 0.5, 0.75, 1]).tolist()
    return {
        "mean": float(np.mean(values)),
        "min": least,
        "lower_quartile": lower,
        "median": middle,
        "upper_quartile": upper,
        "max": most,
    }
