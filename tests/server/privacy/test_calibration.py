from typing import Any

import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant

from zerosum.client.protocol.protection import Protection
from zerosum.client.spec import EncodingSpec, PrivacySpec, SecAggSpec
from zerosum.server.privacy.calibration import (
    Others,
    PlannedRun,
    UnreachableEpsilonError,
    find_noise_multiplier,
    planned_figures,
    planned_participations,
)
from zerosum.server.privacy.guarantees import ExampleUnit
from zerosum.server.spec import SamplingSpec

PLAN: dict[str, Any] = {
    "sampling": SamplingSpec(cohort=100),
    "secagg": SecAggSpec(dropout=0.1),
    "encoding": EncodingSpec(),
    "population": 400,
    "rounds": 40,
    "dimension": 13_000,
}


SLOW = pytest.mark.slow

EVALUATION = Others(
    Protection.build(
        PrivacySpec(clip=1.0, noise_multiplier=7.0),
        EncodingSpec(),
        cohort=100,
        dimension=3,
        rotation_seed=bytes(32),
    ),
    count=8,
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("privacy", "observer", "target", "changes"),
    [
        ({}, "release", 3.0, {}),
        ({}, "sum", 9.0, {}),
        ({}, "local", 40.0, {}),
        pytest.param({}, "release", 0.3, {}, marks=SLOW),
        ({}, "release", 3.0, {"others": {"evaluate": EVALUATION}}),
        pytest.param({}, "sum", 6.0, {"others": {"evaluate": EVALUATION}}, marks=SLOW),
        pytest.param(
            {},
            "release",
            1.5,
            {"secagg": SecAggSpec(dropout=0.0, groups=4)},
            marks=pytest.mark.slow,
        ),
        ({}, "sum", 9.0, {"secagg": SecAggSpec(dropout=0.0, groups=4)}),
        ({}, "release", 3.0, {"sampling": SamplingSpec(kind="fixed", cohort=100)}),
        pytest.param(
            {"mechanism": "discrete-gaussian"}, "release", 3.0, {}, marks=pytest.mark.slow
        ),
        pytest.param({"clipping": "adaptive"}, "release", 3.0, {}, marks=SLOW),
        ({"model": "local"}, "local", 30.0, {}),
        ({"model": "local"}, "release", 30.0, {}),
        ({"model": "local", "mechanism": "discrete-laplace"}, "local", 20.0, {}),
        ({"model": "local", "mechanism": "privunit"}, "local", 20.0, {"dimension": 64}),
        pytest.param({"model": "central"}, "release", 3.0, {}, marks=SLOW),
    ],
)
def test_the_found_multiplier_meets_the_target_from_below(
    privacy, observer, target, changes
) -> None:
    plan = PLAN | changes
    spec = PrivacySpec(**privacy, epsilon=target, epsilon_for=observer)
    z = find_noise_multiplier(spec, PlannedRun(**plan))

    def epsilon(noise: float) -> float:
        given = PrivacySpec(**privacy, noise_multiplier=noise)
        return planned_figures(given, PlannedRun(**plan))[observer].value

    assert 0.999 * target <= epsilon(z) <= target
    assert epsilon(z * 0.998) > target


@pytest.mark.slow
def test_the_noise_of_local_training_is_found_by_example() -> None:
    def units(privacy: PrivacySpec) -> dict[str, ExampleUnit]:
        return {"train": ExampleUnit(0.05, 20, privacy.noise_multiplier)}

    plan = PLAN | {"examples": units, "rounds": 5, "sampling": SamplingSpec(kind="everyone")}
    privacy = PrivacySpec(model="local", epsilon=2.0, epsilon_for="sum", delta=1e-5)
    z = find_noise_multiplier(privacy, PlannedRun(**plan))
    accountant = PLDAccountant()
    accountant.compose(PoissonSampledDpEvent(0.05, GaussianDpEvent(z)), 100)
    assert 1.99 <= accountant.get_epsilon(1e-5) <= 2.0 + 1e-6


@pytest.mark.slow
def test_the_noise_of_a_lot_is_found_by_example() -> None:
    units = {"train": ExampleUnit(0.07)}
    plan = PLAN | {"examples": lambda privacy: units, "sampling": SamplingSpec(kind="everyone")}
    privacy = PrivacySpec(epsilon=2.0, epsilon_for="sum", delta=1e-5)
    z = find_noise_multiplier(privacy, PlannedRun(**plan))
    given = PrivacySpec(noise_multiplier=z, delta=1e-5)
    figures = planned_figures(given, PlannedRun(**plan))
    assert 1.998 <= figures["sum"].value <= 2.0
    assert figures["sum"].unit == "example"
    assert figures["release"].value < figures["sum"].value < figures["local"].value


@pytest.mark.slow
def test_calibration_matches_the_design_page() -> None:
    # epsilon_release 3.0 needs z / sqrt(f) >= 1.86; by Renyi divergences alone it would be 2.08.
    privacy = PrivacySpec(epsilon=3.0, honest_fraction=0.8)
    z = find_noise_multiplier(privacy, PlannedRun(**PLAN))
    assert z / 0.8**0.5 == pytest.approx(1.855, abs=0.01)


@pytest.mark.parametrize(("z", "expected"), [(2.0, 4.4), (4.0, 2.0)])
def test_local_epsilons_match_the_design_page(z: float, expected: float) -> None:
    plan = PLAN | {"population": 6000, "sampling": SamplingSpec(kind="once", cohort=100)}
    privacy = PrivacySpec(model="local", noise_multiplier=z, delta=1e-5)
    assert planned_figures(privacy, PlannedRun(**plan))["local"].value == pytest.approx(
        expected, abs=0.05
    )


def test_participations_are_planned_by_the_kind_of_sampling() -> None:
    assert planned_participations(SamplingSpec(kind="everyone"), 10, 40) == 40
    assert planned_participations(SamplingSpec(kind="once", cohort=10), 1000, 40) == 1
    assert 17 <= planned_participations(SamplingSpec(cohort=100), 400, 40) <= 26
    assert planned_participations(SamplingSpec(cohort=400), 400, 40) == 40


def test_unreachable_epsilon_is_refused() -> None:
    off = PrivacySpec(epsilon=3.0, top_up=False)
    with pytest.raises(UnreachableEpsilonError, match="top_up"):
        find_noise_multiplier(off, PlannedRun(**PLAN))
    with pytest.raises(ValueError, match=r"privacy\.epsilon"):
        find_noise_multiplier(PrivacySpec(noise_multiplier=1.0), PlannedRun(**PLAN))
