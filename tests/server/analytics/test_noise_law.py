"""The noise of a released sum: against characteristic functions, scipy and known figures."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from zerosum.client.privacy.integer_laws import Geometric, IntegerLaw, Skellam, two_sided
from zerosum.server.analytics.noise_law import ReleasedNoise

LAWS = [
    ReleasedNoise("geometric", 1.0, 1.25),
    ReleasedNoise("geometric", 10.0, 1.25),
    ReleasedNoise("geometric", 0.2, 1.25),
    ReleasedNoise("geometric", 50.0, 1.0),
    ReleasedNoise("skellam", 3.77, 1.25),
    ReleasedNoise("skellam", 13.4, 1.0),
    ReleasedNoise("skellam", 0.3, 2.0),
]


def by_fourier(noise: ReleasedNoise) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Invert the characteristic function on a circle of 2^12 points: absolute error about 1e-15."""
    size = 1 << 12
    t = 2 * math.pi * np.arange(size) / size
    if noise.law == "skellam":
        phi = np.exp(noise.scale**2 * noise.shares_ratio * (np.cos(t) - 1))
    else:
        a = math.exp(-1 / noise.scale)
        phi = ((1 - a) ** 2 / np.abs(1 - a * np.exp(1j * t)) ** 2) ** noise.shares_ratio
    mass = np.fft.fftshift(np.fft.fft(phi).real / size)
    return np.arange(-size // 2, size // 2), mass


@pytest.mark.parametrize("noise", LAWS, ids=str)
def test_moments_are_those_of_the_characteristic_function(noise: ReleasedNoise) -> None:
    values, mass = by_fourier(noise)
    mass = np.where(mass > 1e-14, mass, 0)  # the transform's rounding, times 2048^4
    variance = float(np.sum(values**2 * mass))
    assert noise.variance == pytest.approx(variance, rel=1e-6)
    fourth = float(np.sum(values.astype(np.float64) ** 4 * mass))
    assert noise.excess_kurtosis == pytest.approx(fourth / variance**2 - 3, rel=2e-3, abs=1e-5)
    assert noise.std**2 == noise.variance


@pytest.mark.parametrize("noise", LAWS, ids=str)
def test_quantile_is_the_least_integer_of_the_level(noise: ReleasedNoise) -> None:
    values, mass = by_fourier(noise)
    cumulative = np.cumsum(mass)
    for level in (0.001, 0.3, 0.5, 0.8, 0.975, 0.9999):
        assert noise.quantile(level) == values[np.searchsorted(cumulative, level)]


@pytest.mark.parametrize("noise", LAWS, ids=str)
def test_half_width_covers_and_one_less_does_not(noise: ReleasedNoise) -> None:
    values, mass = by_fourier(noise)
    for level in (0.5, 0.9, 0.95, 0.99):
        half = noise.half_width(level)
        assert mass[np.abs(values) <= half].sum() >= level - 1e-12
        assert mass[np.abs(values) <= half - 1].sum() < level


@pytest.mark.parametrize("noise", LAWS, ids=str)
def test_upper_tail_adds_up_probabilities(noise: ReleasedNoise) -> None:
    values, mass = by_fourier(noise)
    for threshold in (-3, 0, 1, 5, 40):
        expected = mass[values >= threshold].sum()
        assert noise.upper_tail(threshold) == pytest.approx(expected, rel=1e-6, abs=1e-13)


def test_small_tails_are_exact_where_subtraction_from_one_has_nothing_left() -> None:
    scale = 2.0
    a = math.exp(-1 / scale)
    laplace = ReleasedNoise("geometric", scale)
    for threshold in (10, 60, 150):
        exact = a**threshold / (1 + a)
        assert laplace.upper_tail(threshold) == pytest.approx(exact, rel=1e-9)
    skellam = ReleasedNoise("skellam", math.sqrt(8))
    assert skellam.upper_tail(40) == pytest.approx(stats.skellam.pmf(range(40, 99), 4, 4).sum())
    assert 1 - skellam.upper_tail(-40) < 1e-15 < 1
    assert laplace.upper_tail(10**6) == 0
    assert laplace.upper_tail(-(10**6)) == pytest.approx(1)


@pytest.mark.parametrize("scale", [2.0e3, 4096.0, 1e7, 2.0**40])
def test_wide_laws_are_scaled_copies(scale: float) -> None:
    """Against the continuous law: a Laplace at r = 1, a normal law for Skellam noise."""
    laplace = ReleasedNoise("geometric", scale)
    assert laplace.half_width(0.95) == pytest.approx(scale * math.log(20), rel=2e-3)
    assert laplace.upper_tail(round(5 * scale)) == pytest.approx(math.exp(-5) / 2, rel=2e-3)
    skellam = ReleasedNoise("skellam", scale)
    assert skellam.half_width(0.95) == pytest.approx(1.95996 * scale, rel=2e-3)
    # Rounded up, so that an interval is never too narrow.
    assert laplace.half_width(0.95) >= math.floor(scale * math.log(20))


@pytest.mark.parametrize("law", ["geometric", "skellam"])
def test_coarse_tables_are_never_too_narrow(law: IntegerLaw) -> None:
    """Just above the deviation at which units grow, against the law in single integers."""
    noise = ReleasedNoise(law, 1800.0, 1.5)
    unit, _, _ = noise.table()
    assert unit > 1
    exact = Geometric(1800.0, 1.5) if law == "geometric" else Skellam(1800.0**2 * 1.5)
    values, mass = two_sided(exact)
    above = np.cumsum(mass[::-1])[::-1]
    for level in (0.9, 0.975, 0.9999):
        least = int(values[np.searchsorted(-above[1:], -(1 - level))])
        assert least <= noise.quantile(level) <= least + unit
    for threshold in (100, 5_003, 20_000):
        tail = float(above[values == threshold][0])
        assert tail * (1 - 1e-5) <= noise.upper_tail(threshold) <= tail * 1.02


def test_sum_of_cells_is_one_law_of_more_shares() -> None:
    noise = ReleasedNoise("geometric", 3.0, 1.25)
    _, mass = by_fourier(noise)
    both = np.convolve(mass, mass)
    doubled = noise.summed(2)
    assert doubled.variance == pytest.approx(2 * noise.variance)
    _, direct = by_fourier(doubled)
    # The convolution of two grids from -n to n - 1 begins at -2 n.
    size = mass.size
    np.testing.assert_allclose(both[size // 2 : size // 2 + size], direct, atol=1e-13)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 2.0, math.nan])
def test_levels_outside_are_refused(level: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        ReleasedNoise("geometric", 1.0).quantile(level)


@pytest.mark.parametrize(
    ("law", "scale", "ratio", "words"),
    [
        ("gaussian", 1.0, 1.0, "geometric or skellam, not 'gaussian'"),
        ("geometric", 0.0, 1.0, "scale"),
        ("geometric", math.nan, 1.0, "scale"),
        ("skellam", 1.0, 0.0, "shares_ratio"),
        ("skellam", 1.0, math.inf, "shares_ratio"),
    ],
)
def test_impossible_noise_is_refused(law: str, scale: float, ratio: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ReleasedNoise(law, scale, ratio)  # type: ignore[arg-type]
