"""Sums of a strategy are foreseen, as long as what is foreseen comes true."""

from types import SimpleNamespace
from typing import Any

import pytest

from zerosum.client.protocol.noise_source import SeededEntropy
from zerosum.server.config import parse_experiment
from zerosum.server.flower.app_schedule import AppSchedule
from zerosum.server.private_sum.coordinator import Nodes

CLIENTS, ROUNDS = 6, 40


@pytest.fixture
def schedule():
    """A schedule whose cohorts are everybody."""
    experiment = parse_experiment(
        {
            "name": "schedule",
            "task": "mnist",
            "rounds": ROUNDS,
            "privacy": {"model": "none", "clip": "none"},
            "encoding": {"range": 1.0},
            "secagg": {"server": "semi-honest"},
            "sampling": {"kind": "everyone"},
        }
    )
    run: Any = SimpleNamespace(
        experiment=experiment,
        nodes=Nodes(dict(enumerate(range(CLIENTS)))),
        entropy=SeededEntropy(1),
        ledger=SimpleNamespace(last_round=0),
        left_out=SimpleNamespace(without=lambda drawn, round: drawn),
        coordinator=SimpleNamespace(pipelined=True),
        rounds=ROUNDS,
        metrics={},
        own_cohorts=False,
    )
    return AppSchedule(run, ROUNDS)


def prepared(schedule, succeeds):
    """Go through all rounds, and return in how many of them a sum was prepared."""
    shape: Any = "the same"
    count = 0
    for round in range(1, ROUNDS + 1):
        asked = schedule.asked([], round, "train")
        now = schedule.plan("train", asked.cohort, shape)
        if now.prepared and not succeeds:
            now = schedule.instead(now)
        count += schedule.foreseen(now, round, lambda kind: shape) is not None
    return count


def test_every_sum_but_the_first_is_prepared(schedule):
    assert prepared(schedule, succeeds=True) == ROUNDS - 1


def test_preparations_that_fail_time_after_time_are_given_up(schedule):
    """Each begins a session at the nodes, whose policies bound how many there may be."""
    assert prepared(schedule, succeeds=False) == 3
