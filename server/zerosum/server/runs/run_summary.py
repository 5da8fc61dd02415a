"""Summarise a run: what its rounds come to, what computed it, which versions."""

import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from typing import Any

from zerosum.client.files.operating_system import peak_bytes
from zerosum.client.task import ClientInfo, Task, population
from zerosum.client.training.devices import described
from zerosum.client.training.fast import choose_trainer
from zerosum.client.training.seeded_task import client_records
from zerosum.secagg.stages import Stage
from zerosum.server.privacy.epsilon_bound import EpsilonBound
from zerosum.server.privacy.observers import ObserverName
from zerosum.server.privacy.protections import noise_draw
from zerosum.server.runs.records import Best, EndedBy, RoundRecord, Summary
from zerosum.server.runs.round_line import mean
from zerosum.server.runs.run_outcome import (
    failures_summary,
    is_untrained,
    nothing_learnt,
)
from zerosum.server.spec import Experiment

DEPLOYED: Mapping[str, Any] = {"name": "nodes"}
"""Engine of a run whose clients are on nodes of their own."""


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


def computed_by(experiment: Experiment, task: Task, *, nodes: bool) -> dict[str, Any]:
    """Return device, training and precision of the clients.

    Parameters
    ----------
    experiment : Experiment
        Checked.
    task : Task
        What is trained.
    nodes : bool
        Whether they are nodes of a deployment, which have devices of their own.

    Returns
    -------
    dict of str to any
        For the summary's ``engine``.
    """
    device = described(experiment.device)
    if nodes:
        experiment = experiment.model_copy(update={"device": "cpu", "trainer": "auto"})
    precision = "float64" if experiment.privacy.by_example else experiment.training.precision
    trainer = trainer_name(experiment, task)
    facts = {"trainer": trainer, "device": device, "precision": precision}
    other = experiment.training.optimizer != "SGD"
    return facts | ({"optimizer": experiment.training.optimizer} if other else {})


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
