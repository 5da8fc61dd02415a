"""What a node's policy would refuse of a planned run: by which key, and what cures it."""

import math
import re
import tomllib

import pytest
from policies import policy_of

from zerosum.client.protocol.admission import Declined, check_within_budget
from zerosum.client.protocol.decision_store import MemoryStore
from zerosum.client.protocol.own_budget import price
from zerosum.client.spec import ClientPolicy
from zerosum.server.config import apply_overrides, parse_experiment
from zerosum.server.planning.policy_fit import PlannedRun, refusals
from zerosum.server.planning.preflight import prepare

NODES, DIMENSION = 4, 60

WRITTEN = {
    "name": "mine",
    "task": "mine.task:Task",
    "rounds": 10,
    "privacy": {
        "model": "distributed",
        "unit": "example",
        "examples": 700,
        "lot": 700,
        "clip": 1.0,
        "epsilon": 3.0,
        "epsilon_for": "sum",
        "delta": 1e-4,
        "honest_fraction": 1.0,
    },
    "encoding": {"range": 512.0},
    "secagg": {"server": "malicious", "dropout": 0.0},
    "sampling": {"kind": "everyone"},
}

FITS = {
    "tasks": ["mine.task:Task"],
    "models": ["distributed"],
    "units": ["example"],
    "min_noise_multiplier": 4.4,
    "max_clip": 1.0,
    "min_cohort": 3,
    "max_epsilon": 3.5,
    "budget_delta": 1e-4,
}


def planned(*overrides: str) -> PlannedRun:
    asked = parse_experiment(apply_overrides(WRITTEN, overrides))
    experiment = prepare(asked, population=NODES, dimension=DIMENSION)
    return PlannedRun(experiment, NODES, DIMENSION, asked)


@pytest.mark.slow
def test_a_policy_that_fits_its_experiment_refuses_nothing():
    assert refusals(planned(), policy_of(**FITS)) == []


ONE_KEY = {
    "models": ["local"],
    "mechanisms": ["privunit"],
    "units": ["client"],
    "min_noise_multiplier": 4.6,
    "max_clip": 0.5,
    "min_cohort": 5,
    "corruption": 0.3,
    "servers": ["semi-honest"],
    "tasks": ["other.task:Task"],
    "max_vector_length": 10,
    "max_contributions": 9,
    "max_openings_per_run": 9,
    "max_openings_per_day": 9,
    "max_epsilon": 2.0,
    "budget_rule": "sum",
}


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize("key", ONE_KEY)
def test_the_one_key_that_refuses_a_run_is_named_with_its_value(key):
    found = refusals(planned(), policy_of(**FITS | {key: ONE_KEY[key]}))
    assert [(each.key, each.value) for each in found] == [(key, ONE_KEY[key])]


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("key", sorted(ONE_KEY.keys() - {"corruption"}))
def test_what_is_to_be_written_into_the_policy_cures_it(key):
    content = FITS | {key: ONE_KEY[key]}
    (found,) = refusals(planned(), policy_of(**content))
    line = re.search(r"write (.*) there", found.cure)
    assert line is not None
    cured = policy_of(**content | tomllib.loads(line[1]))
    assert refusals(planned(), cured) == []


def test_every_key_that_refuses_is_named():
    content = FITS | {"max_clip": 0.5, "tasks": ["other.task:Task"], "max_epsilon": 2.0}
    found = refusals(planned(), policy_of(**content))
    assert [each.key for each in found] == ["max_clip", "tasks", "max_epsilon"]


def test_fewer_rounds_at_one_epsilon_have_too_little_noise_and_the_cure_keeps_it():
    policy = policy_of(**FITS)
    (found,) = refusals(planned("rounds=2"), policy)
    assert found.key == "min_noise_multiplier"
    assert "rounds = 2 at epsilon 3 needs a noise multiplier of only" in str(found)
    setting = re.search(r"set (privacy.noise_multiplier) = (\S+)", found.cure)
    assert setting is not None
    assert refusals(planned("rounds=2", f"{setting[1]}={setting[2]}"), policy) == []


def test_without_an_epsilon_the_noise_itself_is_named():
    (found,) = refusals(
        planned("privacy.noise_multiplier=4.0"), policy_of(**FITS | {"max_epsilon": math.inf})
    )
    assert "the run's noise multiplier is 4;" in str(found)
    assert "epsilon" not in str(found)


def answered(run: PlannedRun, policy: ClientPolicy) -> int:
    """Rounds that a node answers, one by one, by its own record."""
    store, protection = MemoryStore(), run.protections["train"]
    cost = price(run.request("train"), protection, 0)
    for done in range(run.experiment.rounds):
        try:
            check_within_budget(store, policy, cost)
        except Declined:
            return done
        store.count_contribution(cost)
    return run.experiment.rounds


@pytest.mark.quick_one_in(2)
@pytest.mark.parametrize("epsilon", [0.9, 1.0, 1.7, 2.6, 3.0, 3.3])
def test_a_budget_ends_after_as_many_rounds_as_a_nodes_own_record_admits(epsilon):
    run, policy = planned(), policy_of(**FITS | {"max_epsilon": epsilon})
    found, rounds = refusals(run, policy), answered(run, policy)
    if rounds == run.experiment.rounds:
        assert found == []
    else:
        assert [each.key for each in found] == ["max_epsilon"]
        assert f"it answers {rounds};" in str(found[0])


def test_noise_of_nobody_has_no_cost_that_a_limit_bounds():
    found = refusals(
        planned("privacy.model=none", "privacy.clip=none"),
        policy_of(**FITS | {"models": ["none"], "max_clip": None}),
    )
    assert [each.key for each in found] == ["max_epsilon"]
    assert "max_epsilon = inf" in found[0].cure


def test_where_not_every_round_asks_all_one_contribution_is_judged():
    """How often a node is drawn is chance; that it may be drawn once is not."""
    drawn = ["privacy.unit=client", "privacy.examples=none", "privacy.lot=none"]
    drawn += ["sampling.kind=fixed", "sampling.cohort=3", "privacy.noise_multiplier=4.5"]
    content = FITS | {"units": ["client"], "max_contributions": 1, "max_epsilon": 1.5}
    assert refusals(planned(*drawn), policy_of(**content)) == []
    found = refusals(planned(*drawn), policy_of(**content | {"max_epsilon": 0.5}))
    assert [each.key for each in found] == ["max_epsilon"]
