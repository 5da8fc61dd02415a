"""Protections of an experiment's private sums, before anything runs."""

import math

import pytest

from zerosum.server.privacy.calibration import planned_run
from zerosum.server.privacy.protections import (
    configuration_digest,
    evaluation_protection,
    example_units,
    noise_draw,
    planned_protections,
    question_of,
)
from zerosum.simulations.config import load_experiment

EXAMPLES = ["privacy.unit=example", "privacy.examples=1000", "privacy.lot=100",
            "encoding.range=50", "sampling.kind=everyone", "sampling.cohort=unset"]  # fmt: skip
EVALUATED = [
    "evaluation.federated_every=1",
    "evaluation.federated_noise_multiplier=5",
    "evaluation.federated_max_loss=5",
]


def test_digest_ignores_keys_that_may_change() -> None:
    base = configuration_digest(load_experiment("digits", []))
    assert configuration_digest(load_experiment("digits", ["rounds=77", "workers=1"])) == base
    assert configuration_digest(load_experiment("digits", ["privacy.clip=0.7"])) != base


def test_every_kind_of_sum_has_a_protection_of_its_own() -> None:
    experiment = load_experiment("digits", EVALUATED)
    kinds = planned_protections(experiment, 100, 50)
    assert set(kinds) == {"train", "evaluate"}
    assert kinds["train"].encoding.dimension == 50
    assert kinds["evaluate"].noise_multiplier == 5
    larger = planned_protections(experiment, 100, 50, cohort=30)
    assert larger["train"].cohort == 30


@pytest.mark.parametrize(("mechanism", "clip"), [("binned-gaussian", 1), ("discrete-laplace", 3)])
def test_an_evaluation_is_clipped_in_the_mechanisms_norm(mechanism: str, clip: int) -> None:
    settings = [*EVALUATED, "privacy.model=local", f"privacy.mechanism={mechanism}"]
    privacy, _ = evaluation_protection(load_experiment("digits", settings))
    assert privacy.clip == pytest.approx(math.sqrt(clip), rel=1e-12)


def test_an_evaluation_without_noise_is_not_clipped() -> None:
    privacy, encoding = evaluation_protection(load_experiment("digits", ["privacy.model=none"]))
    assert privacy.clip is None
    assert encoding.bits == 32


def test_examples_are_drawn_at_the_rate_of_the_lot() -> None:
    assert example_units(load_experiment("digits", [])) == {}
    shared = example_units(load_experiment("digits", EXAMPLES))
    assert shared["train"].q == pytest.approx(0.1)
    inside = [*EXAMPLES, "privacy.model=local", "training.steps=3", "privacy.noise_multiplier=2"]
    unit = example_units(load_experiment("digits", inside))["train"]
    assert (unit.steps, unit.noise_multiplier) == (3, 2.0)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["secagg.protocol=ideal"], "summed"),
        (["secagg.protocol=pairwise"], "per_client"),
        (["secagg.protocol=ideal", "privacy.noise_draw=per_client"], "per_client"),
    ],
)
def test_noise_is_drawn_once_for_a_trusted_sum_alone(settings, expected) -> None:
    assert noise_draw(load_experiment("digits", settings)) == expected


def test_a_question_carries_the_protection_of_its_kind() -> None:
    experiment = load_experiment("digits", EVALUATED)
    asked = question_of(experiment, 3, 100, "evaluate", noise_draw="per_client")
    assert (asked.round, asked.kind, asked.privacy.noise_multiplier) == (3, "evaluate", 5.0)
    assert set(asked.metrics) == {"accuracy"}
    assert question_of(experiment, 3, 100, noise_draw="per_client").metrics == {}


def test_components_are_a_sum_of_records_without_a_sample() -> None:
    settings = [*EXAMPLES, "model.components=5", "model.inputs=64", "privacy.components_noise=2"]
    experiment = load_experiment("digits", settings)
    components = planned_protections(experiment, 100, 50)["components"]
    assert components.encoding.rule == "records"
    assert components.noise_multiplier == 2
    assert example_units(experiment)["components"].q == 1
    asked = question_of(experiment, 1, 100, "components", noise_draw="per_client")
    assert (asked.privacy.clip, asked.encoding.range) == (1.0, 1000.0)


def test_a_plan_leaves_room_for_the_other_sums() -> None:
    run = planned_run(load_experiment("digits", [*EVALUATED, "rounds=6"]), 100, 50)
    assert {kind: other.count for kind, other in run.others.items()} == {"evaluate": 6}
    assert run.examples(load_experiment("digits", []).privacy) == {}
