"""Noise has the distribution that is claimed, and the tests would notice if it had not."""

import math

import numpy as np
import pytest
from scipy.stats import beta, chi2, kstwobign, norm, skellam

from zerosum.client.privacy.binned_gaussian import BinnedGaussian
from zerosum.client.privacy.discrete_gaussian import DistributedDiscreteGaussian
from zerosum.client.privacy.laplace import DiscreteLaplace
from zerosum.client.privacy.privunit import PrivUnit
from zerosum.client.privacy.samplers import (
    binned_gaussian_sampler,
    discrete_gaussian_sampler,
    discrete_laplace_sampler,
    skellam_sampler,
)
from zerosum.client.privacy.skellam import DistributedSkellam
from zerosum.secagg.randomness import insecure_keystream, system_keystream

pytestmark = pytest.mark.statistical

COUNT = 400_000
ALPHA = 1e-6
SIGMAS = [1.0, 30.0, 254.0, 7690.0, 1e6]
FAMILIES = ["skellam", "binned gaussian", "discrete gaussian", "discrete laplace"]


def laplace_scale(sigma: float) -> float:
    """Return the scale at which discrete Laplace noise has this standard deviation."""
    return 0.5 / math.asinh(1 / (math.sqrt(2) * sigma))


def draw(family: str, sigma: float, count: int = COUNT, *indices: int) -> np.ndarray:
    stream = insecure_keystream(1, "noise", *indices)
    if family == "skellam":
        return skellam_sampler(sigma**2).sample(count, stream)
    if family == "discrete gaussian":
        return discrete_gaussian_sampler(sigma).sample(count, stream)
    if family == "discrete laplace":
        return discrete_laplace_sampler(laplace_scale(sigma)).sample(count, stream)
    return binned_gaussian_sampler(sigma).sample(count, stream)


def cumulative(family: str, sigma: float, at: np.ndarray) -> np.ndarray:
    if family == "skellam" and sigma < 200:
        return skellam.cdf(at, sigma**2 / 2, sigma**2 / 2)
    if family == "discrete gaussian" and sigma < 200:
        ks = np.arange(-12 * math.ceil(sigma), 12 * math.ceil(sigma) + 1)
        masses = np.exp(-(ks**2) / (2 * sigma**2))
        return np.interp(at, ks, np.cumsum(masses) / masses.sum())
    if family == "discrete laplace":
        a = math.exp(-1 / laplace_scale(sigma))
        below = np.exp(-np.abs(at + (at >= 0)) / laplace_scale(sigma)) / (1 + a)
        return np.where(at >= 0, 1 - below, below)
    # Above, Skellam is within 1e-6 of a Gaussian read half a step further on.
    return norm.cdf((at + 0.5) / sigma)


def chi_square_p(family: str, sigma: float, drawn: np.ndarray) -> float:
    """Return the p-value of the draws against the claimed sigma, in about 64 bins."""
    edges = np.unique(np.floor(norm.ppf(np.arange(1, 64) / 64) * sigma))
    masses = np.diff(cumulative(family, sigma, edges), prepend=0, append=1)
    found = np.bincount(np.searchsorted(edges, drawn), minlength=masses.size)
    expected = masses * drawn.size
    return float(chi2.sf(np.sum((found - expected) ** 2 / expected), masses.size - 1))


def kolmogorov_p(family: str, sigma: float, drawn: np.ndarray) -> float:
    values, counts = np.unique(drawn, return_counts=True)
    distance = np.abs(np.cumsum(counts) / drawn.size - cumulative(family, sigma, values)).max()
    return float(kstwobign.sf(distance * math.sqrt(drawn.size)))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("test", [chi_square_p, kolmogorov_p])
def test_the_right_deviation_is_accepted_and_wrong_ones_rejected(family, sigma, test) -> None:
    drawn = draw(family, sigma)
    assert test(family, sigma, drawn) > ALPHA
    assert test(family, sigma * 2 / 3, drawn) < ALPHA
    assert test(family, sigma * 3 / 2, drawn) < ALPHA


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("sigma", SIGMAS)
def test_mean_and_variance_are_within_two_percent(family: str, sigma: float) -> None:
    drawn = draw(family, sigma)
    rounding = 1 / 12 if family == "binned gaussian" else 0
    assert drawn.var() == pytest.approx(sigma**2 + rounding, rel=0.02)
    assert abs(drawn.mean()) < 0.02 * sigma


@pytest.mark.parametrize("family", FAMILIES[:3])
def test_far_tails_have_their_mass(family: str) -> None:
    drawn = np.abs(draw(family, 7690.0, 4_000_000))
    for multiple in (3.0, 4.0, 4.5):
        expected = 2 * norm.sf(multiple) * drawn.size
        assert np.sum(drawn > multiple * 7690) == pytest.approx(expected, abs=5 * expected**0.5)


def correlation(one: np.ndarray, two: np.ndarray) -> float:
    return abs(float(np.corrcoef(one, two)[0, 1])) * math.sqrt(one.size)


@pytest.mark.parametrize("family", FAMILIES)
def test_coordinates_clients_and_rounds_are_independent(family: str) -> None:
    drawn = draw(family, 7690.0)
    assert correlation(drawn[:-1], drawn[1:]) < 5
    assert correlation(np.abs(drawn[:-1]), np.abs(drawn[1:])) < 5
    for other in ((0, 1), (1, 0)):
        again = draw(family, 7690.0, COUNT, *other)
        first = draw(family, 7690.0, COUNT, 0, 0)
        assert correlation(first, again) < 5
        assert correlation(np.abs(first), np.abs(again)) < 5
    # The control: a stream that is used twice.
    assert correlation(drawn, draw(family, 7690.0)) > 100


def test_low_digits_are_uniform() -> None:
    sampler = skellam_sampler(7690.0**2)
    digits = draw("skellam", 7690.0) & ((1 << sampler.shift) - 1)
    found = np.bincount(digits, minlength=1 << sampler.shift)
    expected = COUNT / found.size
    assert chi2.sf(np.sum((found - expected) ** 2) / expected, found.size - 1) > ALPHA


def test_shares_add_up_to_the_whole() -> None:
    share = DistributedSkellam(1.0, 1.0, 900.0)
    zero = np.zeros(100_000, dtype=np.int64)
    total = sum(share.apply(zero, insecure_keystream(2, "noise", i)) for i in range(16))
    assert chi_square_p("skellam", 120.0, np.asarray(total)) > ALPHA
    assert chi_square_p("skellam", 30.0, np.asarray(total)) < ALPHA


def test_discrete_gaussian_shares_add_up_to_nearly_such_noise() -> None:
    share = DistributedDiscreteGaussian(1.0, 1.0, 30.0, 100)
    total = share.noise(16, 100_000, insecure_keystream(2, "noise"))
    assert chi_square_p("discrete gaussian", 120.0, total) > ALPHA
    assert chi_square_p("discrete gaussian", 30.0, total) < ALPHA


@pytest.mark.parametrize(
    "mechanism",
    [
        DistributedSkellam(1.0, 1.0, 1e8),
        BinnedGaussian(1e4, 1.0),
        DistributedDiscreteGaussian(1.0, 1.0, 1e4, 100),
        DiscreteLaplace(laplace_scale(1e4), 1),
    ],
    ids=["s", "g", "dg", "dl"],
)
def test_two_draws_from_the_operating_system_differ(mechanism) -> None:
    zero = np.zeros(50_000, dtype=np.int64)
    one, two = (mechanism.apply(zero, system_keystream()) for _ in range(2))
    assert np.mean(one == two) < 0.01
    assert correlation(one, two) < 6
    assert one.std() == pytest.approx(1e4, rel=0.02)


def test_privunit_lies_in_its_cap_as_often_as_it_says() -> None:
    """And, within the cap and beyond it, uniformly: its height above the equator has that law."""
    dimension, count = 40, 20_000
    mechanism = PrivUnit(2.0, 1e6, dimension)
    cap, a = mechanism._cap, (dimension - 1) / 2
    vector = np.zeros(dimension, dtype=np.int64)
    vector[5] = 1_000_000
    drawn = [mechanism.apply(vector, insecure_keystream(7, "unit", i)) for i in range(count)]
    heights = np.array(drawn)[:, 5] / mechanism._length
    inside = heights >= cap.height
    assert inside.mean() == pytest.approx(cap.chance, abs=5 * 0.5 / math.sqrt(count))
    places = beta.cdf((1 + heights) / 2, a, a)
    for part, low, high in ((inside, cap.outside, 1.0), (~inside, 0.0, cap.outside)):
        uniform = np.sort((places[part] - low) / (high - low))
        distance = np.abs(uniform - np.arange(uniform.size) / uniform.size).max()
        assert kstwobign.sf(distance * math.sqrt(uniform.size)) > ALPHA
