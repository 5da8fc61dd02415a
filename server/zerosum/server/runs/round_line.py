"""Write what a line of metrics says of a round: messages, rates, lies."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from zerosum.server.private_sum.aggregate import Sample
from zerosum.server.private_sum.transport import Traffic
from zerosum.server.runs.records import RoundRecord
from zerosum.server.spec import Experiment

MOST_PAIRS = 100
"""Pairs of dealer and holder in a line of metrics."""


@dataclass(frozen=True)
class Opened:
    """The server's view of a round: one masked contribution as received, the opened average."""

    contribution: Sample | None
    average: np.ndarray


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
