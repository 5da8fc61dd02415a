"""Build what a run leaves to read: its result, its summary, the facts of a round's line."""

import platform
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from zerosum.client.files.operating_system import peak_bytes
from zerosum.client.task import ClientInfo, Task, population
from zerosum.client.training.fast import choose_trainer
from zerosum.client.training.model_file import as_arrays
from zerosum.client.training.seeded_task import client_records
from zerosum.secagg.stages import Stage
from zerosum.server.config import ConfigError
from zerosum.server.privacy.epsilon_bound import EpsilonBound
from zerosum.server.privacy.observers import ObserverName
from zerosum.server.privacy.protections import noise_draw
from zerosum.server.private_sum.aggregate import Sample
from zerosum.server.private_sum.transport import Traffic
from zerosum.server.runs.records import Best, EndedBy, RoundRecord, Summary
from zerosum.server.runs.reference_words import reference_of
from zerosum.server.runs.result_display import Weights, result_html, result_line
from zerosum.server.runs.run_folder import BEST, MODEL, TEST_SET, RunFolder
from zerosum.server.runs.run_outcome import (
    NothingLearntError,
    failures_summary,
    is_untrained,
    nothing_learnt,
)
from zerosum.server.runs.saved_model import load_whole, read_model
from zerosum.server.spec import Experiment

DEPLOYED: Mapping[str, Any] = {"name": "nodes"}
"""Engine of a run whose clients are on nodes of their own."""

MOST_PAIRS = 100
"""Pairs of dealer and holder in a line of metrics."""


@dataclass(frozen=True, repr=False)
class Result:
    """The result of a run; a notebook shows it as a table.

    Parameters
    ----------
    folder : Path
        The run folder.
    summary : Summary
        What ``summary.json`` holds, typed; ``summary["epsilon"]`` reads it by the file's keys.
    rounds : list of RoundRecord
        What ``metrics.jsonl`` holds, likewise.
    model : dict of str to numpy.ndarray
        The final model's whole state dict: trained parameters in float32, frozen ones and buffers
        as the task's model has them.
    """

    folder: Path
    summary: Summary
    rounds: list[RoundRecord]
    model: Mapping[str, np.ndarray]

    def __post_init__(self) -> None:
        """Let the model be displayed by its shapes."""
        object.__setattr__(self, "model", Weights(self.model))

    @property
    def metrics(self) -> Mapping[str, float]:
        """Final metrics, as ``test_accuracy``."""
        return dict(self.summary.metrics)

    @property
    def reference(self) -> Mapping[str, float]:
        """What a predictor that looks at nothing gives on the same test data, by metric."""
        return reference_of(self.summary)

    @property
    def test_set(self) -> Mapping[str, Any]:
        """What ``test-set.json`` holds: the final model's confusion matrix, classes, calibration.

        Empty where there are no public test data.
        """
        return RunFolder(self.folder).read_json(TEST_SET)

    @property
    def best(self) -> Best | None:
        """Round and value of ``evaluation.best``, whose model is ``best.safetensors``, if any."""
        return self.summary.best

    @classmethod
    def open(cls, folder: str | Path) -> "Result":
        """Read the result of a finished run from its folder.

        Parameters
        ----------
        folder : str or Path
            The run folder.

        Returns
        -------
        Result
            What the run returned.

        Raises
        ------
        ConfigError
            If the folder holds no run, an unfinished one, or damaged files.
        """
        found = RunFolder.open(Path(folder))
        summary, rounds = found.read_summary(), found.read_rounds()
        if not summary or summary.rounds != len(rounds):
            raise ConfigError(
                f"{folder}: the run has no result yet; go on with it: zerosum run --resume {folder}"
            )
        return cls(found.path, summary, rounds, as_arrays(read_model(found.path / MODEL)))

    def load_into(self, model: nn.Module, *, best: bool = False) -> nn.Module:
        """Load the run's model into a module, strictly: every entry, or nothing.

        Parameters
        ----------
        model : torch.nn.Module
            As the task's ``model()`` makes it; overwritten. Its mode (train or eval) stays.
        best : bool
            Whether to load the best model (``evaluation.best``) in place of the last.

        Returns
        -------
        torch.nn.Module
            The same.

        Raises
        ------
        ConfigError
            If names or shapes differ, which the message names; if the run kept no best model.
        """
        if not best:
            state = {name: torch.from_numpy(value) for name, value in self.model.items()}
        elif self.best is None:
            raise ConfigError(
                f"{self.folder}: the run kept no best model: write evaluation.best=accuracy, or "
                "another metric of its tests, and run it again"
            )
        else:
            state = read_model(self.folder / BEST)
        load_whole(model, state, self.folder)
        return model

    def __repr__(self) -> str:
        """Return one line: the model alone would be pages."""
        return result_line(self.folder, self.summary, self.rounds)

    def _repr_html_(self) -> str:
        return result_html(self.folder, self.summary, self.rounds)


@dataclass(frozen=True)
class Opened:
    """The server's view of a round: one masked contribution as received, the opened average."""

    contribution: Sample | None
    average: np.ndarray


@dataclass(frozen=True)
class RunFacts:
    """Facts of a summary beside the experiment and its rounds.

    Attributes
    ----------
    epsilon : mapping of str to EpsilonBound
        By observer, of the whole run.
    population, dimension : int
        Clients; trainable parameters.
    noise_from_seed : bool
        Whether noise and cohorts can be drawn again from the seed.
    wrap_probability_log2 : float
        Logarithm of the probability that a sum wraps.
    engine : mapping
        What computed the clients.
    shared_cache : bool
        Whether clients of one process shared agreed keys and masks.
    left_out : list of int
        Clients who were proved to lie.
    cut : list of int or None
        Coordinates cut to the encoding's range; None where nobody counts them.
    data : mapping or None
        What a task says of the records that it read.
    lost_tests, unscored : str
        Why the last test came to NaN; why tests have no accuracy. Empty where neither holds.
    reference : mapping
        What a constant predictor gives on public test data; empty without any.
    ended_by : str
        What ended the run before its last planned round; empty where nothing did.
    best : Best or None
        The round whose model is kept, where there is one.
    """

    epsilon: Mapping[ObserverName, EpsilonBound]
    population: int
    dimension: int
    noise_from_seed: bool
    wrap_probability_log2: float
    engine: Mapping[str, Any]
    shared_cache: bool
    left_out: list[int]
    cut: list[int] | None
    data: Mapping[str, Any] | None
    lost_tests: str
    unscored: str
    ended_by: EndedBy
    best: Best | None
    reference: Mapping[str, Any] = field(default_factory=dict)


def summarise(experiment: Experiment, records: list[RoundRecord], facts: RunFacts) -> Summary:
    """Build the summary of a run.

    Parameters
    ----------
    experiment : Experiment
        With its noise resolved.
    records : list of RoundRecord
        Of all rounds.
    facts : RunFacts
        What neither of them says.

    Returns
    -------
    Summary
        What ``summary.json`` holds.
    """
    completed = [r for r in records if r.completed]
    # In a file only where they say something: most runs have an accuracy, and lose no test.
    remarks: dict[str, Any] = {
        "no_accuracy": facts.unscored,
        "lost_tests": facts.lost_tests,
        "earlier_metrics": earlier_metrics(records),
        "reference": dict(facts.reference),
        "best": facts.best,
        "ended_by": facts.ended_by,
        "planned_rounds": experiment.rounds if facts.ended_by else None,
    }
    return Summary(
        name=experiment.name,
        metrics=final_metrics(records),
        rounds=len(records),
        rounds_abandoned=len(records) - len(completed),
        epsilon=dict(facts.epsilon),
        dropouts={
            str(stage): sum(r.dropouts.get(stage, 0) for r in records)
            for stage in Stage
            if any(stage in r.dropouts for r in records)
        },
        bytes_up_per_client=mean(r.bytes_up_per_client for r in completed),
        bytes_down_per_client=mean(r.bytes_down_per_client for r in completed),
        seconds=sum(r.seconds for r in records),
        peak_memory_mb=peak_memory_mb(),
        population=facts.population,
        dimension=facts.dimension,
        noise_multiplier=experiment.privacy.noise_multiplier,
        noise_from_seed=facts.noise_from_seed,
        noise_draw=noise_draw(experiment),
        wrap_probability_log2=facts.wrap_probability_log2,
        protocol=experiment.secagg.protocol,
        server=experiment.secagg.server,
        rule=experiment.server.rule,
        groups=experiment.secagg.groups,
        left_out=facts.left_out,
        wrong_shares=sum(r.wrong_shares for r in records),
        cut=facts.cut,
        groups_failed=sum(len(r.failed_groups) for r in records),
        failures=failures_summary(records),
        untrained=is_untrained(records),
        nothing_learnt=nothing_learnt(records),
        engine=dict(facts.engine),
        shared_cache=facts.shared_cache,
        seed=experiment.seed,
        versions=versions(),
        data=None if facts.data is None else dict(facts.data),
        **{name: remark for name, remark in remarks.items() if remark},
    )


def no_accuracy(why: str) -> str:
    """Return why tests have no accuracy, and what gives them a figure."""
    return f"no accuracy: {why}; give the task metrics(outputs, targets)"


def check_learnt(result: Result, reasons: str | None) -> None:
    """Refuse to end well without a client's training in the model; everything is written by now.

    Parameters
    ----------
    result : Result
        With its summary.
    reasons : str or None
        Where the reasons of clients that failed or fell away are to be read; None where none is:
        clients without records, say, write nothing.

    Raises
    ------
    NothingLearntError
        If all rounds were abandoned, or no client trained. It carries the result.
    """
    if why := result.summary.nothing_learnt:
        message = why if reasons is None else f"{why}; the clients' reasons are in {reasons}"
        raise NothingLearntError(f"{message}, the run folder is {result.folder}", result)


def data_summary(task: Task) -> dict[str, Any] | None:
    """Return what a task says of the records that it read, if it does."""
    summary = getattr(task, "data_summary", None)
    return None if summary is None else summary()


def trainer_name(experiment: Experiment, task: Task) -> str:
    """Return which local training an experiment's clients do.

    Parameters
    ----------
    experiment : Experiment
        Checked.
    task : Task
        What is trained.

    Returns
    -------
    str
        As the summary names it.
    """
    if experiment.privacy.by_example:
        return "per example"
    trainer = choose_trainer(
        task,
        experiment.training,
        seed=experiment.seed,
        device=experiment.device,
        kind=experiment.trainer,
    )
    with suppress(Exception):  # client 0 has failed in every round, and its log says how
        count = population(task, experiment.data)
        client = ClientInfo(index=0, count=count, seed=experiment.seed)
        trainer.settle(trainer.initial_vector(), partial(client_records, task, client))
    return trainer.name


def versions() -> dict[str, str]:
    """Return the versions that a run's numbers depend on."""
    packages = ("zerosum", "torch", "numpy", "flwr", "cryptography", "dp-accounting")
    return {"python": platform.python_version()} | {name: version(name) for name in packages}


def peak_memory_mb() -> float | None:
    """Return the largest resident size of this process so far, in MiB; None if nothing tells it."""
    peak = peak_bytes()
    return None if peak is None else peak / (1 << 20)


def final_metrics(records: Sequence[RoundRecord]) -> dict[str, float]:
    """Return the last value of every metric."""
    return {name: value for record in records for name, value in record.metrics.items()}


def earlier_metrics(records: Sequence[RoundRecord]) -> dict[str, int]:
    """Return the round of every final metric that is not of the last: it is of another model.

    Clients evaluate in some rounds only, and an evaluation may be abandoned or drown in noise.
    """
    last = {name: record.round for record in records for name in record.metrics}
    return {name: round for name, round in last.items() if round != records[-1].round}


def traffic_record(traffic: Traffic) -> dict[str, Any]:
    """Return what a line of metrics says of a sum's messages."""
    return {
        "dropouts": {stage: len(who) for stage, who in traffic.dropouts.items()},
        "bytes_up_per_client": mean(traffic.up.values()),
        "bytes_down_per_client": mean(traffic.down.values()),
        "exchanges": traffic.exchanges,
        "stage_seconds": {stage: round(spent, 4) for stage, spent in traffic.seconds.items()},
        **({"refused": dict(traffic.refused)} if traffic.refused else {}),
        **lies_record(traffic),
    }


def rates_record(experiment: Experiment, number: int) -> dict[str, float]:
    """Return what a line of metrics says of the learning rates in force, where they change.

    Parameters
    ----------
    experiment : Experiment
    number : int
        The round.

    Returns
    -------
    dict of str to float
        Empty where nothing is scheduled.
    """
    names = {"training": "lr", "server": "server_lr"}
    return {
        names[section]: spec.lr_at(number, experiment.rounds)
        for section, spec in experiment.scheduled.items()
    }


def lies_record(traffic: Traffic) -> dict[str, Any]:
    """Return what a line of metrics says of wrong shares; nothing where none were found.

    Of the pairs it has those without a liar that is named, which are for people to look into, and
    no more than a hundred: one liar in a large cohort is in hundreds.
    """
    found: dict[str, Any] = {}
    if traffic.wrong_shares:
        found["wrong_shares"] = len(traffic.wrong_shares)
    if traffic.liars:
        found["liars"] = list(traffic.liars)
    liars = set(traffic.liars)
    if open_ones := [list(p) for p in traffic.wrong_shares if liars.isdisjoint(p)]:
        found["wrong_pairs"] = open_ones[:MOST_PAIRS]
    return found


def lies_in_words(record: RoundRecord) -> str:
    """Return what a round's line says of liars, after a comma; nothing where there are none."""
    parts = []
    if record.liars:
        parts.append(f"proved to lie: {', '.join(map(str, record.liars))}")
    elif record.wrong_shares:
        parts.append(f"wrong shares: {record.wrong_shares}")
    if record.left_out:
        parts.append(f"left out: {record.left_out}")
    return "".join(f", {part}" for part in parts)


def mean(values: Iterable[float]) -> float:
    """Return the mean; zero of nothing."""
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else 0.0
