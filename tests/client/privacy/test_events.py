import csv
import math
from pathlib import Path

import dp_accounting
import numpy as np
import pytest
from dp_accounting import (
    ComposedDpEvent,
    GaussianDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.pld.privacy_loss_distribution import from_two_probability_mass_functions
from dp_accounting.rdp import compute_epsilon
from scipy.stats import skellam

from zerosum.client.privacy.amplification import poisson_amplified, with_abandonment
from zerosum.client.privacy.events import (
    ORDERS,
    DistributedDiscreteGaussianDpEvent,
    MaybeAbandonedDpEvent,
    SkellamDpEvent,
    UnsupportedEventError,
    rdp,
    twice,
)
from zerosum.secagg.vectors.sensitivity import l1_sensitivity, l2_sensitivity

VECTORS = Path(__file__).parents[2] / "vectors" / "epsilons.csv"
CASES = {row["id"]: row for row in csv.DictReader(VECTORS.read_text().splitlines())}
ONE = SkellamDpEvent(l2_sensitivity=1.0, l1_sensitivity=1.0, variance=100.0)


def epsilon(event: dp_accounting.DpEvent, rounds: int, delta: float) -> float:
    return float(compute_epsilon(ORDERS, rounds * rdp(event), delta)[0])


def encoded(scaled_clip: float, dimension: int) -> tuple[float, float]:
    l2 = l2_sensitivity(scaled_clip, dimension)
    return l2, l1_sensitivity(l2, dimension)


@pytest.mark.parametrize(
    ("case", "column", "event"),
    [
        ("skellam_1d_v100", "eps_second", ONE),
        (
            "skellam_vec_n100",
            "eps_primary",
            SkellamDpEvent(*encoded(1000, 2**20), variance=100 * 600.0**2),
        ),
        ("ddg_1d_n100_s1", "eps_second", DistributedDiscreteGaussianDpEvent(1, 1, 1.0, 100, 1)),
        ("ddg_1d_n80of100_s1", "eps_second", DistributedDiscreteGaussianDpEvent(1, 1, 1.0, 80, 1)),
        (
            "ddg_vec_n100",
            "eps_primary",
            DistributedDiscreteGaussianDpEvent(*encoded(1000, 2**20), 600.0, 100, 2**20),
        ),
    ],
)
def test_reference_epsilons_are_met(case: str, column: str, event: dp_accounting.DpEvent) -> None:
    row = CASES[case]
    found = epsilon(event, 50, float(row["delta"]))
    assert found == pytest.approx(float(row[column]), rel=1e-6)


def test_the_renyi_bound_lies_above_the_exact_distribution() -> None:
    row = CASES["skellam_1d_v100"]
    assert epsilon(ONE, 50, float(row["delta"])) > float(row["eps_primary"])


@pytest.mark.parametrize(("z", "expected"), [(2.0, 3.1336), (2.08, 2.9860), (2.1, 2.9525)])
def test_amplified_epsilons_match_the_design_page(z: float, expected: float) -> None:
    # N = 400, q = 0.25, 40 rounds, delta 1e-3, at z / sqrt(f).
    l2, l1 = encoded(32767, 13_000)
    event = PoissonSampledDpEvent(0.25, SkellamDpEvent(l2, l1, (z * l2) ** 2))
    assert epsilon(event, 40, 1e-3) == pytest.approx(expected, abs=1e-4)


def exact_pair(variance: float, shift: int, q: float) -> tuple[dict, dict]:
    reach = int(12 * math.sqrt(variance)) + 2 * shift
    ks = range(-reach, reach + shift + 1)
    half = variance / 2
    base = {k: float(skellam.pmf(k, half, half)) for k in ks}
    moved = {k: (1 - q) * base[k] + q * float(skellam.pmf(k - shift, half, half)) for k in ks}
    return base, moved


@pytest.mark.parametrize(("variance", "shift", "q"), [(100.0, 1, 0.25), (9.0, 2, 0.1)])
def test_both_directions_of_the_amplified_divergence_are_bounded(
    variance: float, shift: int, q: float
) -> None:
    event = PoissonSampledDpEvent(q, SkellamDpEvent(shift, shift**2, variance))
    bound = dict(zip(ORDERS, rdp(event), strict=True))
    base, moved = (np.array(list(p.values())) for p in exact_pair(variance, shift, q))
    for alpha in (2, 3, 5, 8, 16, 32):
        for one, two in ((moved, base), (base, moved)):
            used = (one > 1e-290) & (two > 1e-290)
            terms = alpha * np.log(one[used]) - (alpha - 1) * np.log(two[used])
            exact = float(np.logaddexp.reduce(terms)) / (alpha - 1)
            assert exact <= bound[alpha] * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("reverse", [False, True])
def test_both_directions_of_the_amplified_epsilon_are_bounded(reverse: bool) -> None:
    base, moved = exact_pair(100.0, 3, 0.25)
    one, two = (base, moved) if reverse else (moved, base)
    logs = [{k: math.log(max(p, 1e-320)) for k, p in pair.items()} for pair in (two, one)]
    exact = from_two_probability_mass_functions(
        *logs, value_discretization_interval=1e-3, symmetric=True
    ).self_compose(40)
    event = PoissonSampledDpEvent(0.25, SkellamDpEvent(3.0, 9.0, 100.0))
    found = exact.get_epsilon_for_delta(1e-3)
    assert 0.75 * epsilon(event, 40, 1e-3) < found < epsilon(event, 40, 1e-3)


def test_sampling_never_costs_more_and_is_exact_at_rates_zero_and_one() -> None:
    unsampled = rdp(ONE)
    assert (rdp(PoissonSampledDpEvent(0.3, ONE)) <= unsampled).all()
    assert (rdp(PoissonSampledDpEvent(1.0, ONE)) == unsampled).all()
    assert not rdp(PoissonSampledDpEvent(0.0, ONE)).any()


@pytest.mark.slow
def test_amplified_skellam_nears_dp_accountings_gaussian() -> None:
    # With a huge variance and sensitivity Skellam's bound is the Gaussian's alpha / (2 z^2).
    event = PoissonSampledDpEvent(0.05, SkellamDpEvent(1e6, 1e6, 1e12))
    accountant = dp_accounting.rdp.RdpAccountant(list(ORDERS))
    accountant.compose(PoissonSampledDpEvent(0.05, GaussianDpEvent(1.0)))
    assert rdp(event)[:60] == pytest.approx(accountant.rdp[:60], rel=1e-4)


def test_abandonment_lies_between_sampled_and_unsampled() -> None:
    sampled = PoissonSampledDpEvent(0.25, ONE)
    between = rdp(MaybeAbandonedDpEvent(sampled, 1e-3))
    assert (rdp(sampled) < between).all()
    assert (between < rdp(ONE)).all()
    assert (rdp(MaybeAbandonedDpEvent(sampled, 0.0)) == rdp(sampled)).all()
    assert (rdp(MaybeAbandonedDpEvent(sampled, 1.0)) == rdp(ONE)).all()


def test_compositions_inside_a_sample_are_amplified_together() -> None:
    pair = ComposedDpEvent([ONE, SkellamDpEvent(1.0, 1.0, 50.0)])
    joint = rdp(PoissonSampledDpEvent(0.1, pair))
    apart = np.sum([rdp(PoissonSampledDpEvent(0.1, part)) for part in pair.events], axis=0)
    assert (joint[:20] > apart[:20]).all()
    assert (rdp(SelfComposedDpEvent(ONE, 3)) == 3 * rdp(ONE)).all()


def test_discrete_gaussian_shares_below_one_are_refused() -> None:
    with pytest.raises(UnsupportedEventError, match="no useful bound"):
        rdp(DistributedDiscreteGaussianDpEvent(1.0, 1.0, 0.5, 100, 1))


def test_events_of_dp_accounting_have_no_divergences_here() -> None:
    with pytest.raises(UnsupportedEventError, match="Gaussian"):
        rdp(GaussianDpEvent(1.0))


def test_divergences_are_cached_and_read_only() -> None:
    assert rdp(ONE) is rdp(SkellamDpEvent(1.0, 1.0, 100.0))
    with pytest.raises(ValueError, match="read-only"):
        rdp(ONE)[0] = 0.0


def test_events_are_doubled_through_compositions_alone() -> None:
    doubled = SkellamDpEvent(2.0, 2.0, 100.0)
    assert twice(ComposedDpEvent([ONE, SelfComposedDpEvent(ONE, 3)])) == ComposedDpEvent(
        (doubled, SelfComposedDpEvent(doubled, 3))
    )
    for event in (PoissonSampledDpEvent(0.1, ONE), GaussianDpEvent(1.0)):
        with pytest.raises(UnsupportedEventError, match="no sensitivity to double"):
            twice(event)


def test_two_samples_are_amplified_as_one() -> None:
    both = PoissonSampledDpEvent(0.5, PoissonSampledDpEvent(0.2, ONE))
    assert (rdp(both) == rdp(PoissonSampledDpEvent(0.1, ONE))).all()


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan])
def test_probabilities_outside_the_unit_interval_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="lies in"):
        poisson_amplified(bad, rdp(ONE))
    with pytest.raises(ValueError, match="lies in"):
        with_abandonment(rdp(ONE), rdp(ONE), bad)


def test_noise_without_dimension_or_bound_has_no_law_to_couple() -> None:
    assert ONE.integer_noise() is None
    assert DistributedDiscreteGaussianDpEvent(1.0, 1.0, 0.5, 100, 1).integer_noise() is None
    noise = SkellamDpEvent(1.0, 1.0, 100.0, dimension=4).integer_noise()
    assert noise is not None
    assert noise.dimension == 4
