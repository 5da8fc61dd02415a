"""What a run leaves to read: its result, the lines of its metrics, its summary."""

import platform
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from zerosum.client.files.operating_system import peak_bytes
from zerosum.client.task import ClientInfo, Task, population
from zerosum.client.training.fast import choose_trainer
from zerosum.client.training.seeded_task import client_records
from zerosum.server.privacy.protections import noise_draw
from zerosum.server.private_sum.aggregate import Sample
from zerosum.server.private_sum.transport import Traffic
from zerosum.server.runs.run_outcome import (
    NothingLearntError,
    failures_summary,
    is_untrained,
    nothing_learnt,
)
from zerosum.server.spec import Experiment

DEPLOYED: Mapping[str, Any] = {"name": "nodes"}
"""Engine of a run whose clients are on nodes of their own."""

MOST_PAIRS = 100
"""Pairs of dealer and holder in a line of metrics."""

Record = dict[str, Any]
"""One line of metrics.jsonl."""


@dataclass(frozen=True)
class Result:
    """What a run produced.

    Parameters
    ----------
    folder : Path
        The run folder.
    summary : dict
        What ``summary.json`` holds.
    rounds : list of dict
        What ``metrics.jsonl`` holds.
    model : dict of str to numpy.ndarray
        The final model's whole state dict: trained parameters in float32, frozen ones and buffers
        as the task's model has them.
    """

    folder: Path
    summary: Mapping[str, Any]
    rounds: list[Record]
    model: Mapping[str, np.ndarray]

    @property
    def metrics(self) -> Mapping[str, float]:
        """Final metrics, as ``test_accuracy``."""
        return dict(self.summary["metrics"])


@dataclass(frozen=True)
class Opened:
    """What the server saw of a round: one masked contribution as received, the opened average."""

    contribution: Sample | None
    average: np.ndarray


def summarise(experiment: Experiment, records: list[Record], facts: Record) -> Record:
    """Return what ``summary.json`` holds.

    Parameters
    ----------
    experiment : Experiment
    records : list of dict
        Of all rounds.
    facts : dict
        What neither of them says.
    """
    completed = [r for r in records if r["status"] == "completed"]
    stages = {name for r in records for name in r.get("dropouts", {})}
    return {
        "name": experiment.name,
        "metrics": final_metrics(records),
        "rounds": len(records),
        "rounds_abandoned": len(records) - len(completed),
        "epsilon": facts["epsilon"],
        "dropouts": {s: sum(r["dropouts"].get(s, 0) for r in records) for s in sorted(stages)},
        "bytes_up_per_client": mean(r["bytes_up_per_client"] for r in completed),
        "bytes_down_per_client": mean(r["bytes_down_per_client"] for r in completed),
        "seconds": sum(r["seconds"] for r in records),
        "peak_memory_mb": peak_memory_mb(),
        "population": facts["population"],
        "dimension": facts["dimension"],
        "noise_multiplier": experiment.privacy.noise_multiplier,
        "noise_from_seed": facts["noise_from_seed"],
        "noise_draw": noise_draw(experiment),
        "wrap_probability_log2": facts["wrap_probability_log2"],
        "protocol": experiment.secagg.protocol,
        "server": experiment.secagg.server,
        "rule": experiment.server.rule,
        "groups": experiment.secagg.groups,
        "left_out": facts["left_out"],
        "wrong_shares": sum(r.get("wrong_shares", 0) for r in records),
        "cut": facts["cut"],
        "groups_failed": sum(len(r.get("failed_groups", ())) for r in records),
        "failures": failures_summary(records),
        "untrained": is_untrained(records),
        "nothing_learnt": nothing_learnt(records),
        "engine": facts["engine"],
        "shared_cache": facts["shared_cache"],
        "seed": experiment.seed,
        "versions": versions(),
        "data": facts["data"],
        **({"no_accuracy": facts["unscored"]} if facts["unscored"] else {}),
        **({"lost_tests": facts["lost_tests"]} if facts["lost_tests"] else {}),
        **({"earlier_metrics": earlier} if (earlier := earlier_metrics(records)) else {}),
    }


def no_accuracy(why: str) -> str:
    """Return why tests have no accuracy, and what gives them a figure."""
    return f"no accuracy: {why}; give the task metrics(outputs, targets)"


def check_learnt(result: Result, reasons: str | None) -> None:
    """Refuse to end well without a client's training in the model; everything is written by now.

    Parameters
    ----------
    result : Result
    reasons : str or None
        Where the reasons of clients that failed or fell away are to be read; None where none is:
        clients without records, say, write nothing.

    Raises
    ------
    NothingLearntError
        If all rounds were abandoned, or no client trained. It carries the result.
    """
    if why := result.summary["nothing_learnt"]:
        said = why if reasons is None else f"{why}; the clients' reasons are in {reasons}"
        raise NothingLearntError(f"{said}, the run folder is {result.folder}", result)


def data_summary(task: Task) -> Record | None:
    """Return what a task says of the records that it read, if it does."""
    found = getattr(task, "data_summary", None)
    return None if found is None else found()


def trainer_name(experiment: Experiment, task: Task) -> str:
    """Return which local training an experiment's clients do."""
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


def final_metrics(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the last value of every metric."""
    final: dict[str, float] = {}
    for record in records:
        for name, value in record.items():
            if name.startswith(("test_", "federated_")) and isinstance(value, float):
                final[name] = value
    return final


def earlier_metrics(records: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the round of every final metric that is not of the last: it is of another model.

    Clients evaluate in some rounds only, and an evaluation may be abandoned or drown in noise.
    """
    final = final_metrics(records)
    last = {name: r["round"] for r in records for name in final if isinstance(r.get(name), float)}
    return {name: round for name, round in last.items() if round != records[-1]["round"]}


def traffic_record(traffic: Traffic) -> Record:
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


def lies_record(traffic: Traffic) -> Record:
    """Return what a line of metrics says of wrong shares; nothing where none were found.

    Of the pairs it has those without a liar that is named, which are for people to look into, and
    no more than a hundred: one liar in a large cohort is in hundreds.
    """
    found: Record = {}
    if traffic.wrong_shares:
        found["wrong_shares"] = len(traffic.wrong_shares)
    if traffic.liars:
        found["liars"] = list(traffic.liars)
    liars = set(traffic.liars)
    if open_ones := [list(p) for p in traffic.wrong_shares if liars.isdisjoint(p)]:
        found["wrong_pairs"] = open_ones[:MOST_PAIRS]
    return found


def lies_in_words(record: Record) -> str:
    """Return what a round's line says of liars, after a comma; nothing where there are none."""
    parts = []
    if liars := record.get("liars"):
        parts.append(f"proved to lie: {', '.join(map(str, liars))}")
    elif count := record.get("wrong_shares"):
        parts.append(f"wrong shares: {count}")
    if out := record.get("left_out"):
        parts.append(f"left out: {out}")
    return "".join(f", {part}" for part in parts)


def mean(values: Iterable[float]) -> float:
    """Return the mean; zero of nothing."""
    found = list(values)
    return sum(found) / len(found) if found else 0.0
