import pytest

from zerosum.client.spec import EncodingSpec, PrivacySpec, SecAggSpec
from zerosum.server.calibration import (
    UnreachableEpsilonError,
    find_noise_multiplier,
    planned_figures,
    planned_participations,
)
from zerosum.server.spec import SamplingSpec

PLAN = {
    "sampling": SamplingSpec(cohort=100),
    "secagg": SecAggSpec(dropout=0.1),
    "encoding": EncodingSpec(),
    "population": 400,
    "rounds": 40,
    "dimension": 13_000,
}


@pytest.mark.parametrize(
    ("model", "observer", "target"),
    [
        ("distributed", "release", 3.0),
        ("distributed", "sum", 9.0),
        ("distributed", "local", 40.0),
        ("local", "local", 30.0),
    ],
)
def test_the_found_multiplier_meets_the_target_from_below(model, observer, target) -> None:
    privacy = PrivacySpec(model=model, epsilon=target, epsilon_for=observer)
    z = find_noise_multiplier(privacy, **PLAN)
    given = PrivacySpec(model=model, noise_multiplier=z)
    less = PrivacySpec(model=model, noise_multiplier=z * 0.998)
    assert planned_figures(given, **PLAN)[observer]["value"] <= target
    assert planned_figures(less, **PLAN)[observer]["value"] > target


def test_the_page_s_affordable_noise_is_found() -> None:
    # epsilon_release 3.0 needs z / sqrt(f) >= 2.08.
    privacy = PrivacySpec(epsilon=3.0, honest_fraction=0.8)
    z = find_noise_multiplier(privacy, **PLAN)
    assert z / 0.8**0.5 == pytest.approx(2.075, abs=0.01)


@pytest.mark.parametrize(("z", "expected"), [(2.0, 4.4), (4.0, 2.0)])
def test_the_page_s_local_orientation_is_met(z: float, expected: float) -> None:
    plan = PLAN | {"population": 6000, "sampling": SamplingSpec(kind="once", cohort=100)}
    privacy = PrivacySpec(model="local", noise_multiplier=z, delta=1e-5)
    assert planned_figures(privacy, **plan)["local"]["value"] == pytest.approx(expected, abs=0.05)


def test_participations_are_planned_by_the_kind_of_sampling() -> None:
    assert planned_participations(SamplingSpec(kind="everyone"), 10, 40) == 40
    assert planned_participations(SamplingSpec(kind="once", cohort=10), 1000, 40) == 1
    assert 17 <= planned_participations(SamplingSpec(cohort=100), 400, 40) <= 26
    assert planned_participations(SamplingSpec(cohort=400), 400, 40) == 40


def test_what_no_noise_can_buy_is_refused() -> None:
    off = PrivacySpec(epsilon=3.0, top_up=False)
    with pytest.raises(UnreachableEpsilonError, match="top_up"):
        find_noise_multiplier(off, **PLAN)
    with pytest.raises(ValueError, match=r"privacy\.epsilon"):
        find_noise_multiplier(PrivacySpec(noise_multiplier=1.0), **PLAN)
