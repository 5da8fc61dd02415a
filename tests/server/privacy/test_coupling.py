"""Integer noise accounted as a Gaussian: against closed forms, exact laws and other accountants."""

import math

import numpy as np
import pytest
from dp_accounting import ComposedDpEvent, GaussianDpEvent, LaplaceDpEvent, PoissonSampledDpEvent
from dp_accounting.pld.privacy_loss_distribution import (
    from_gaussian_mechanism,
    from_two_probability_mass_functions,
)
from narrowed import present
from scipy.special import ive, ndtr, xlogy
from scipy.stats import norm, skellam

from zerosum.client.privacy.events import (
    DistributedDiscreteGaussianDpEvent,
    MaybeAbandonedDpEvent,
    SkellamDpEvent,
    hashable,
)
from zerosum.client.privacy.pmf import BinnedGaussianLaw, SkellamLaw
from zerosum.server.privacy.accountant import Ledger
from zerosum.server.privacy.coupling import (
    Closeness,
    closeness,
    coupled,
    coupled_run,
    noise_closeness,
)
from zerosum.server.privacy.event_costs import doubled

WIDE = SkellamDpEvent(1e5, 1e6, 1e10, dimension=100)
"""Noise multiplier 1, far above the rounding."""


def of_skellam(variance: float) -> Closeness:
    noise = present(SkellamDpEvent(1.0, 1.0, variance, dimension=1).integer_noise())
    return noise_closeness(noise.law, noise.least_divergence)


def of_discrete_gaussian(variance: float) -> Closeness:
    event = DistributedDiscreteGaussianDpEvent(1.0, 1.0, math.sqrt(variance), 1, 1)
    noise = present(event.integer_noise())
    return noise_closeness(noise.law, noise.least_divergence)


def analytic_epsilon(multiplier: float, delta: float) -> float:
    """Solve Balle and Wang (2018), Theorem 8, by bisection: shares no code with the ledger."""
    mu, low, high = 1 / multiplier, 0.0, 100.0
    for _ in range(200):
        middle = (low + high) / 2
        spent = norm.cdf(mu / 2 - middle / mu) - math.exp(middle) * norm.cdf(-mu / 2 - middle / mu)
        low, high = (middle, high) if spent > delta else (low, middle)
    return high


# How far the two laws are apart.


@pytest.mark.parametrize(
    ("variance", "part"),
    [
        (1.0, 0.796),
        (4.0, 0.862),
        (25.0, 0.965),
        (100.0, 0.990),
        (1e3, 0.9990),
        (1e4, 0.9999),
        (1e7, 1.0),
        (1e10, 1.0),
    ],
)
def test_the_summed_divergence_of_skellam_noise_nears_its_closed_form_from_below(
    variance: float, part: float
) -> None:
    closed = 1 / (48 * variance**2)
    law, reference = SkellamLaw(variance), BinnedGaussianLaw(math.sqrt(variance - 1 / 12))
    summed = closeness(law, reference).divergence
    assert summed / closed == pytest.approx(part, abs=5e-4 if part < 0.999 else 5e-5)
    assert summed <= closed
    assert of_skellam(variance).divergence == closed


@pytest.mark.parametrize("variance", [1.0, 4.0, 25.0])
def test_the_divergence_is_that_of_plain_floats_where_these_suffice(variance: float) -> None:
    k = np.arange(-80, 81)
    p = ive(np.abs(k), variance)
    sigma = math.sqrt(variance - 1 / 12)
    q = ndtr((k + 0.5) / sigma) - ndtr((k - 0.5) / sigma)
    inside = (p > 0) & (q > 0)
    p, q = p[inside] / p.sum(), q[inside] / q.sum()
    found = float(np.sum(xlogy(p, p / q)))
    assert found == pytest.approx(1 / (48 * variance**2), rel=0.25)
    assert found <= of_skellam(variance).divergence


def test_a_gaussian_of_the_whole_variance_would_be_farther_away() -> None:
    # The control: without the 1/12 of rounding the second moments differ.
    right, wrong = (
        closeness(SkellamLaw(1e4), BinnedGaussianLaw(math.sqrt(1e4 - less))).divergence
        for less in (1 / 12, 0.0)
    )
    assert wrong > 1.08 * right


def test_a_discrete_gaussian_is_closer_than_skellam_noise() -> None:
    for variance in (1.0, 9.0, 1e4):
        found = of_discrete_gaussian(variance).divergence
        assert found == pytest.approx(1 / (691_200 * variance**4), rel=0.05)
        assert found < of_skellam(variance).divergence


# What follows for an epsilon.


def exact_epsilon(shift: int, variance: float, q: float, rounds: int, delta: float) -> float:
    """Return the epsilon of one-dimensional Skellam noise itself, the worse of both directions."""
    k = np.arange(-int(9 * math.sqrt(variance)), int(9 * math.sqrt(variance)) + shift + 1)
    base = skellam.logpmf(k, variance / 2, variance / 2)
    moved = skellam.logpmf(k - shift, variance / 2, variance / 2)
    mixed = np.logaddexp(math.log1p(-q) + base if q < 1 else -np.inf, math.log(q) + moved)
    one, two = dict(zip(k, base, strict=True)), dict(zip(k, mixed, strict=True))
    found = []
    for upper, lower in ((one, two), (two, one)):
        pld = from_two_probability_mass_functions(
            lower, upper, value_discretization_interval=1e-3, pessimistic_estimate=False
        )
        found.append(pld.self_compose(rounds).get_epsilon_for_delta(delta))
    return max(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("multiplier", "variance", "q", "rounds"),
    [(1.5, 4e5, 0.15, 40), (2.0, 1e6, 0.25, 20), (3.0, 1e6, 1.0, 5)],
)
def test_a_coupled_epsilon_lies_above_the_exact_one_and_close_to_it(
    multiplier: float, variance: float, q: float, rounds: int
) -> None:
    shift = round(math.sqrt(variance) / multiplier)
    plain = SkellamDpEvent(shift, shift, variance, dimension=1)
    event = plain if q == 1 else PoissonSampledDpEvent(q, plain)
    found = Ledger("zero_out").compose(event, rounds).accounted(1e-3)
    exact = exact_epsilon(shift, variance, q, rounds, 1e-3)
    assert found.accountant.endswith("coupled")
    assert exact < found.value < 1.02 * exact
    # The control: Renyi divergences alone lie well above.
    assert Ledger("zero_out", "rdp").compose(event, rounds).epsilon(1e-3) > 1.1 * exact


def test_a_run_of_the_default_preset_costs_what_its_gaussian_does_beside_the_slack() -> None:
    # z 1.28, f 0.8: 42 rounds of 60 in 400 clients over 2,048 coordinates at 16 bits.
    p, q, multiplier = 2.4656e-4, 0.15, 1.28 / math.sqrt(0.8)
    plain = SkellamDpEvent(32_800.0, 1e6, (multiplier * 32_800.0) ** 2, dimension=2048)
    event = MaybeAbandonedDpEvent(PoissonSampledDpEvent(q, plain), p)
    found = Ledger("zero_out").compose(event, 42).accounted(1e-3)
    mixed = from_gaussian_mechanism(
        multiplier, sampling_prob=1.0, value_discretization_interval=1e-3
    ).compute_mixture(
        from_gaussian_mechanism(multiplier, sampling_prob=q, value_discretization_interval=1e-3), p
    )
    independent = mixed.self_compose(42).get_epsilon_for_delta(1e-3 - found.slack)
    assert found.accountant == "pld, coupled"
    assert found.value == pytest.approx(independent, rel=1e-3)
    assert found.value == pytest.approx(2.553, abs=2e-3)
    assert 0 < found.slack < 3e-7
    unsampled = Ledger("zero_out", "rdp").compose(event, 42).epsilon(1e-3)
    assert unsampled == pytest.approx(3.05, abs=0.01)


@pytest.mark.parametrize(("adjacency", "times"), [("zero_out", 1), ("replace", 2)])
def test_the_sensitivity_of_an_adjacency_is_counted_once(adjacency, times: int) -> None:
    event = WIDE if times == 1 else doubled(WIDE)
    found = Ledger(adjacency).compose(event, 2).accounted(1e-5)
    by_hand = analytic_epsilon(1 / (times * math.sqrt(2)), 1e-5)
    assert found.value == pytest.approx(by_hand, rel=1e-4)
    assert found.value >= by_hand
    assert found.accountant == "exact gaussian, coupled"


def test_the_bit_of_adaptive_clipping_is_sampled_with_its_update() -> None:
    bit = SkellamDpEvent(1024.0, 1024.0, 1e8, dimension=1)
    pair = PoissonSampledDpEvent(0.15, ComposedDpEvent([WIDE, bit]))
    joint = (1.0 + 1024.0**2 / 1e8) ** -0.5
    gaussian = PoissonSampledDpEvent(0.15, GaussianDpEvent(joint))
    found = Ledger("zero_out").compose(pair, 10).accounted(1e-5)
    assert found.accountant == "pld, coupled"
    expected = Ledger("zero_out").compose(gaussian, 10).epsilon(1e-5)
    assert found.value == pytest.approx(expected, rel=1e-3)
    assert found.value >= expected
    # The distances of both add up, the bit's being the larger.
    run = coupled_run({hashable(pair): 10}, "zero_out")
    assert run is not None
    squares = 100 / (48 * 1e10**2) + 1 / (48 * 1e8**2)
    assert run.closeness.total_variation == pytest.approx(math.sqrt(10 * squares / 2), rel=1e-6)


def test_sums_of_discrete_gaussian_shares_are_coupled_by_way_of_one() -> None:
    event = DistributedDiscreteGaussianDpEvent(1e4, 1e5, 1e3, 100, 500)
    found = Ledger("zero_out").compose(event, 3).accounted(1e-5)
    assert found.accountant == "exact gaussian, coupled"
    assert found.value == pytest.approx(analytic_epsilon(1 / math.sqrt(3), 1e-5), rel=1e-6)
    small = DistributedDiscreteGaussianDpEvent(1.0, 1.0, 1.0, 100, 1)
    one = coupled(small, "zero_out")
    assert one is not None
    # The sum's distance from one discrete Gaussian is no longer nothing.
    assert one.closeness.always == pytest.approx(5.478e-4, rel=1e-3)
    assert Ledger("zero_out").compose(small, 50).accounted(1e-6).accountant == "rdp"


@pytest.mark.slow
def test_other_events_of_a_ledger_are_composed_with_a_coupled_one() -> None:
    ledger = Ledger("zero_out").compose(WIDE, 3).compose(GaussianDpEvent(1.0), 2)
    assert ledger.epsilon(1e-5) == pytest.approx(analytic_epsilon(5**-0.5, 1e-5), rel=1e-4)
    mixed = Ledger("zero_out").compose(WIDE, 3).compose(LaplaceDpEvent(10.0))
    assert mixed.accounted(1e-5).accountant == "pld, coupled"


@pytest.mark.slow
def test_more_events_never_cost_less_through_the_end_of_a_coupling() -> None:
    # Few integer units: the distance grows past a tenth of delta on the way.
    event = PoissonSampledDpEvent(0.15, SkellamDpEvent(2e3, 4e4, 8e6, dimension=200))
    found = [Ledger("zero_out").compose(event, count).accounted(1e-5) for count in range(1, 60)]
    values = [one.value for one in found]
    assert values == sorted(values)
    renyi = [Ledger("zero_out", "rdp").compose(event, n).epsilon(1e-5) for n in range(1, 60)]
    assert all(value <= bound for value, bound in zip(values, renyi, strict=True))


def test_an_unknown_dimension_leaves_renyi_divergences() -> None:
    unknown = SkellamDpEvent(1e5, 1e6, 1e10)
    assert Ledger("zero_out").compose(unknown).accounted(1e-5).accountant == "rdp"
    small = SkellamDpEvent(1.0, 1.0, 0.5, dimension=1)
    assert coupled(small, "zero_out") is None
    asked = Ledger("zero_out", "rdp").compose(WIDE)
    assert asked.accounted(1e-5).accountant == "rdp"


def test_delta_and_epsilon_of_a_coupled_ledger_agree() -> None:
    ledger = Ledger("zero_out").compose(PoissonSampledDpEvent(0.15, WIDE), 20)
    epsilon = ledger.epsilon(1e-5)
    assert ledger.delta(epsilon) == pytest.approx(1e-5, rel=1e-3)
    assert ledger.epsilon(0.0) == math.inf


@pytest.mark.slow
def test_likelihood_ratios_of_drawn_noise_stay_within_their_bound() -> None:
    # At variance 1e3 ratios are large enough to be seen in floats.
    variance, coordinates = 1e3, 20_000
    bound = of_skellam(variance).times(coordinates).log_ratio(math.log(1e-3))
    k = np.arange(-400, 401)
    p = ive(np.abs(k), variance)
    sigma = math.sqrt(variance - 1 / 12)
    q = ndtr((0.5 - np.abs(k)) / sigma) - ndtr((-0.5 - np.abs(k)) / sigma)
    logs = np.log(p / p.sum()) - np.log(q / q.sum())
    coins = np.random.default_rng(0)
    for law, sign in ((p, 1), (q, -1)):
        ratios = sign * coins.multinomial(coordinates, law / law.sum(), size=10_000) @ logs
        assert np.mean(ratios > bound) <= 1e-3
        # The control: a third of the bound is exceeded.
        assert np.mean(ratios > bound / 3) > 1e-2


def test_a_sum_whose_variation_is_too_large_for_its_epsilon_is_coupled_by_its_ratio() -> None:
    # e^12 times the total variation of 13 sums of the default preset is more than delta.
    event = SkellamDpEvent(32_800.0, 1e6, (1.28 * 32_800.0) ** 2, dimension=2048)
    run = coupled_run({event: 13}, "zero_out")
    assert run is not None
    assert run.closeness.total_variation * math.exp(12) > 1e-3
    found = Ledger("zero_out").compose(event, 13).accounted(1e-3)
    exact = analytic_epsilon(1.28 / math.sqrt(13), 1e-3)
    assert exact < found.value < 1.0005 * exact
    assert found.value == pytest.approx(12.0, abs=0.01)
    assert 0 < found.margin < 1e-4
    assert Ledger("zero_out", "rdp").compose(event, 13).epsilon(1e-3) == pytest.approx(13.46, 1e-3)


def test_small_integer_noise_falls_back_to_renyi_divergences() -> None:
    event = SkellamDpEvent(10.0, 100.0, 400.0, dimension=2048)
    found = Ledger("zero_out").compose(event, 13).accounted(1e-3)
    assert (found.accountant, found.slack, found.margin) == ("rdp", 0.0, 0.0)
    assert found.value == Ledger("zero_out", "rdp").compose(event, 13).epsilon(1e-3)
