"""A client that knows its own share of the noise faces less of it than the server does."""

import math
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import pytest
from narrowed import present
from scipy.stats import norm

from zerosum.client.protocol.protection import Protection
from zerosum.client.spec import EncodingSpec, PrivacySpec, SecAggSpec
from zerosum.server.privacy.calibration import (
    PlannedRun,
    find_noise_multiplier,
    planned_figures,
    planned_smallest,
)
from zerosum.server.privacy.guarantees import Guarantee
from zerosum.server.privacy.observers import ObserverName
from zerosum.server.privacy.run_ledger import RunLedger
from zerosum.server.spec import SamplingSpec

POPULATION = 20
Z = 3.0


def analytic_epsilon(multiplier: float, delta: float) -> float:
    """Solve Balle and Wang (2018), Theorem 8, by bisection: shares no code with the ledger."""
    mu, low, high = 1 / multiplier, 0.0, 100.0
    for _ in range(200):
        middle = (low + high) / 2
        spent = norm.cdf(mu / 2 - middle / mu)
        spent -= math.exp(middle) * norm.cdf(-mu / 2 - middle / mu)
        low, high = (middle, high) if spent > delta else (low, middle)
    return high


def book(
    path: Path | None = None,
    *,
    kinds: tuple[str, ...] = ("train",),
    secagg: dict | None = None,
    **privacy,
) -> RunLedger:
    values: dict[str, Any] = {"noise_multiplier": Z, "honest_fraction": 1.0, "delta": 1e-2}
    values |= privacy
    spec = PrivacySpec(**values)
    protection = Protection.build(
        spec, EncodingSpec(), cohort=4, dimension=16, rotation_seed=bytes(32)
    )
    return RunLedger(
        path,
        privacy=spec,
        secagg=SecAggSpec(**{"dropout": 0.0} | (secagg or {})),
        sampling=SamplingSpec(kind="everyone"),
        population=POPULATION,
        protections=dict.fromkeys(kinds, protection),
    )


def asked(ledger: RunLedger, *sizes: int, first: int = 0, kind: str = "train") -> RunLedger:
    for number, size in enumerate(sizes, start=first):
        ledger.charge_contributions((number, 0, kind, 0), range(size), cohort=size)
        ledger.charge_sum((number, 0, kind, 0))
    return ledger


def epsilon(ledger: RunLedger, observer: ObserverName = "sum") -> float:
    value = ledger.figures()[observer].value
    assert value is not None
    return float(value)


def of_noise(part: float, rounds: int = 10) -> float:
    """Return the epsilon of so many sums that hold a part of V."""
    return analytic_epsilon(Z * math.sqrt(part / rounds), 1e-2)


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize(("cohort", "part"), [(2, 1 / 2), (4, 3 / 4), (10, 9 / 10)])
def test_a_fellow_client_faces_all_shares_but_its_own(cohort: int, part: float) -> None:
    found = epsilon(asked(book(), *[cohort] * 10))
    assert found == pytest.approx(of_noise(part), rel=2e-3)
    assert found >= of_noise(part)
    # The control: V itself, as it was charged.
    assert of_noise(1.0) < 0.98 * found


def test_four_hospitals_are_charged_three_shares() -> None:
    figures = asked(book(), *[4] * 10).figures()
    told = figures["sum"].assumptions
    assert any("fellow client" in note and "0.75 V" in note and "of 4" in note for note in told)
    # Outsiders know no share: the whole total.
    assert figures["release"].value == pytest.approx(of_noise(1.0), rel=2e-3)


@pytest.mark.parametrize("fraction", [0.5, 0.75])
def test_a_guarantee_of_no_more_than_the_others_shares_costs_nothing_more(fraction) -> None:
    found = asked(book(honest_fraction=fraction), *[4] * 10).figures()["sum"]
    assert found.value == pytest.approx(of_noise(1.0), rel=2e-3)
    assert not any("fellow client knows" in note for note in found.assumptions)


def test_the_smallest_cohort_decides_whatever_comes_after_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    large = epsilon(asked(book(path), *[20] * 4))
    small = epsilon(asked(book(path), 3, first=4))
    assert small > large
    # Read again from the file, and asked of larger cohorts: still that of three.
    again = asked(book(path), *[20] * 5, first=5)
    assert epsilon(again) == pytest.approx(of_noise(2 / 3), rel=2e-3)
    assert any("of 3" in note for note in again.figures()["sum"].assumptions)


def test_every_kind_of_sum_has_its_own_smallest_cohort() -> None:
    ledger = asked(book(kinds=("train", "evaluate")), *[20] * 9)
    before = epsilon(ledger)
    assert before == pytest.approx(of_noise(0.95, 9), rel=2e-3)
    asked(ledger, 2, kind="evaluate")
    # Precisions add up: nine sums of 0.95 V and one of V / 2.
    whole = 9 / 0.95 + 1 / 0.5
    assert epsilon(ledger) == pytest.approx(of_noise(1 / whole, 1), rel=2e-3)


def test_the_bit_of_adaptive_clipping_loses_its_share_too() -> None:
    adaptive: dict[str, Any] = {"clipping": "adaptive", "clip": 0.5}
    found = epsilon(asked(book(**adaptive), *[4] * 10))
    assert found == pytest.approx(of_noise(3 / 4), rel=3e-3)
    terms = book(**adaptive).terms["train"]
    whole, less = (terms.guaranteed(n).events for n in (0, 4))
    for one, other in zip(whole, less, strict=True):
        assert other.variance == pytest.approx(0.75 * one.variance)


def test_groups_leave_a_fellow_client_the_noise_of_the_others() -> None:
    ledger = book(secagg={"groups": 2})
    for number in range(10):
        for group in range(2):
            members = range(4 * group, 4 * group + 4)
            ledger.charge_contributions((number, 0, "train", group), members, cohort=4)
            ledger.charge_sum((number, 0, "train", group))
    # It sees (2 - 1/4) V; the server sees V of each group.
    assert epsilon(ledger) == pytest.approx(of_noise(1.0), rel=2e-3)


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize(
    ("fraction", "cohort", "colluders", "shares"),
    [(1.0, 4, False, 3), (0.5, 4, False, 1), (0.6, 4, False, 2), (0.5, 4, True, 2)],
)
def test_without_top_up_it_faces_the_guaranteed_survivors_but_itself(
    fraction: float, cohort: int, colluders: bool, shares: int
) -> None:
    secagg = {"corruption": 0.05} if colluders else {}
    ledger = book(honest_fraction=fraction, top_up=False, secagg=secagg)
    terms = ledger.terms["train"]
    part = min(Fraction(1), Fraction(shares) / (Fraction(str(fraction)) * cohort))
    assert terms.faced(cohort) == part
    assert epsilon(asked(ledger, *[cohort] * 10)) == pytest.approx(of_noise(float(part)), rel=2e-3)


def test_one_guaranteed_share_hides_nobody_from_a_fellow() -> None:
    told = asked(book(honest_fraction=0.5, top_up=False), 2).figures()["sum"]
    assert told.value == math.inf
    assert "fellow client of a cohort of 2" in present(told.reason)
    assert "top_up" in present(told.reason)
    # With top-up the server's noise is there: 2 V less V/2 of f = 1/2.
    assert epsilon(asked(book(honest_fraction=0.5), 2)) < 2
    alone = asked(book(), 1).figures()["sum"]
    assert alone.value == math.inf
    assert "cohort of 1" in present(alone.reason)


def test_full_strength_noise_is_not_reduced_for_fellow_clients() -> None:
    local: dict[str, Any] = {"model": "local", "mechanism": "binned-gaussian"}
    found = asked(book(**local), *[2] * 5).figures()
    assert found["sum"].value == found["local"].value
    assert found["local"].value == pytest.approx(
        analytic_epsilon(Z / 2 / math.sqrt(5), 1e-2), rel=1e-6
    )
    central = Guarantee(None, "central", 2, 1.0, 16, False)
    assert central.faced(2) == 1


def planned(
    kind: Literal["everyone", "fixed", "once", "poisson"],
    population: int,
    cohort: int | None = None,
    **secagg,
) -> PlannedRun:
    return PlannedRun(
        sampling=SamplingSpec(kind=kind, cohort=cohort),
        secagg=SecAggSpec(**{"dropout": 0.0} | secagg),
        encoding=EncodingSpec(),
        population=population,
        rounds=10,
        dimension=16,
    )


def test_a_plan_charges_and_finds_the_noise_for_fellow_clients() -> None:
    run = planned("everyone", 4)
    values: dict[str, Any] = {"honest_fraction": 1.0, "delta": 1e-2, "allow_large_delta": True}
    figures = planned_figures(PrivacySpec(noise_multiplier=Z, **values), run)
    assert figures["sum"].value == pytest.approx(of_noise(3 / 4), rel=2e-3)
    target = of_noise(1.0)
    z = find_noise_multiplier(PrivacySpec(epsilon=target, epsilon_for="sum", **values), run)
    # Four thirds of the variance.
    assert z == pytest.approx(Z * math.sqrt(4 / 3), rel=3e-3)


def test_the_smallest_planned_cohort_is_one_that_opens() -> None:
    assert planned_smallest(SamplingSpec(kind="fixed", cohort=11), 100, 5, groups=2) == 5
    assert planned_smallest(SamplingSpec(kind="everyone"), 7, 5) == 7
    sampling = SamplingSpec(cohort=60)
    assert 25 < planned_smallest(sampling, 400, 40) < 45
    assert planned_smallest(SamplingSpec(cohort=3), 400, 40) == 2
