"""Intervals about linear functions of cells: against convolution, at the extremes too."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from numpy.typing import NDArray

from zerosum.client.privacy.integer_laws import Geometric, two_sided
from zerosum.server.analytics.intervals import (
    cell_interval,
    combination_half_width,
    deviation_half_widths,
    too_few,
)
from zerosum.server.analytics.noise_law import ReleasedNoise

LEVELS = [0.5, 0.95]


def covered(noise: ReleasedNoise, weights: tuple[float, float], half: float) -> float:
    """Return P(|w0 z0 + w1 z1| <= half) by enumerating both cells."""
    values, mass = two_sided(Geometric(noise.scale, noise.shares_ratio))
    kept = mass > 1e-12
    values, mass = values[kept], mass[kept]
    sums = np.add.outer(weights[0] * values, weights[1] * values)
    joint = np.multiply.outer(mass, mass)
    return float(joint[np.abs(sums) <= half + 1e-9].sum())


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("scale", [0.3, 2.0, 25.0])
def test_two_unequal_cells_are_covered_as_claimed(scale: float, level: float) -> None:
    noise = ReleasedNoise("geometric", scale, 1.25)
    weights = (1.0, -0.37)
    half = combination_half_width(noise, weights, level)
    # The law is a lattice's, and a grid's step is a 64th of its deviation, a 256th at least.
    step = max(noise.std * math.hypot(*weights), 0.25) / 64
    assert covered(noise, weights, half + step) >= level
    assert covered(noise, weights, half - 2 * step) <= level


@pytest.mark.parametrize("weights", [(3.0, 3.0), (-2.0, 2.0, 0.0), (0.5,) * 5])
def test_equal_cells_have_the_exact_quantile_of_their_sum(weights: tuple[float, ...]) -> None:
    noise = ReleasedNoise("geometric", 4.0, 1.25)
    used = [abs(w) for w in weights if w]
    exact = used[0] * noise.summed(len(used)).half_width(0.95)
    assert combination_half_width(noise, weights, 0.95) == pytest.approx(exact)


def test_one_cell_is_exact_and_not_normal() -> None:
    noise = ReleasedNoise("geometric", 10.0)
    half = combination_half_width(noise, [1.0], 0.99)
    assert half == noise.half_width(0.99)
    assert half > 1.2 * 2.5758 * noise.std  # what a normal law would claim


def test_many_cells_are_normal() -> None:
    noise = ReleasedNoise("geometric", 10.0)
    weights = np.linspace(0.5, 1.5, 40)
    half = combination_half_width(noise, weights, 0.95)
    assert half == pytest.approx(1.959964 * noise.std * np.linalg.norm(weights))


def test_many_cells_of_rare_noise_are_not_normal() -> None:
    """At scale 0.2 a cell is 0 in 98 of 100 cases: eight cells together are no normal variable."""
    noise = ReleasedNoise("geometric", 0.2, 1.25)
    half = combination_half_width(noise, np.ones(8), 0.95)
    normal = 1.959964 * noise.std * math.sqrt(8)
    law = noise.summed(8)
    assert half == law.half_width(0.95) >= 1
    assert 1 - 2 * law.upper_tail(math.floor(normal) + 1) < 0.95  # the control: too narrow


def test_no_cells_have_no_noise() -> None:
    noise = ReleasedNoise("skellam", 3.0)
    assert combination_half_width(noise, [0.0, 0.0], 0.95) == 0


@pytest.mark.parametrize("level", [0.0, 1.0, math.nan])
def test_levels_outside_are_refused(level: float) -> None:
    noise = ReleasedNoise("skellam", 3.0)
    with pytest.raises(ValueError, match="between 0 and 1"):
        combination_half_width(noise, [1.0], level)
    with pytest.raises(ValueError, match="between 0 and 1"):
        deviation_half_widths(noise, [1.0], level)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("scale", [0.15, 1.0, 30.0])
def test_deviations_of_sums_of_cells_get_their_width_or_the_normal(
    scale: float, level: float
) -> None:
    noise = ReleasedNoise("geometric", scale, 1.25)
    cells = np.array([0.0, 1, 2, 4, 500])
    deviations = noise.std * np.sqrt(cells)
    seen = deviation_half_widths(noise, deviations, level)
    exact = np.array([noise.summed(m).half_width(level) if m else 0 for m in cells])
    normal = deviations * NormalDist().inv_cdf((1 + level) / 2)
    assert np.all(seen[:4] >= np.maximum(exact, normal)[:4] - 1e-12)
    # The number of cells is rounded up by a twelfth at most.
    np.testing.assert_allclose(seen, np.maximum(exact, normal), rtol=0.06, atol=1.01)


def test_a_part_of_a_cell_has_a_part_of_its_width() -> None:
    """Not the width of a rarer noise: a tenth of one cell is not one cell in a hundred."""
    noise = ReleasedNoise("geometric", 30.0, 1.25)
    (seen,) = deviation_half_widths(noise, [0.1 * noise.std], 0.95)
    assert seen == pytest.approx(0.1 * noise.half_width(0.95), rel=0.03)
    assert noise.summed(0.01).half_width(0.95) < 0.3 * seen  # the control


def test_deviations_of_many_cells_are_normal() -> None:
    noise = ReleasedNoise("geometric", 30.0, 1.25)
    seen = deviation_half_widths(noise, [20 * noise.std], 0.95)
    np.testing.assert_allclose(seen, 1.959964 * 20 * noise.std)


def test_intervals_are_cut_to_what_is_possible() -> None:
    low, high = cell_interval([-50.0, -3, 7, 99, math.nan], 10, low=0, high=100)
    np.testing.assert_array_equal(low, [0, 0, 0, 89, math.nan])
    np.testing.assert_array_equal(high, [0, 7, 17, 100, math.nan])


@pytest.mark.parametrize(
    ("records", "std", "expected"),
    [
        (0, 0, True),
        (-4, 1, True),
        (4.9, 1, True),
        (5.1, 1, False),
        (1, 0, False),
        (math.nan, 1, True),
    ],
)
def test_few_records_are_those_below_five_deviations(
    records: float, std: float, expected: bool
) -> None:
    assert too_few(records, std) is expected


def test_grid_is_symmetric_about_zero() -> None:
    noise = ReleasedNoise("geometric", 7.0, 1.25)
    weights: NDArray[np.float64] = np.array([1.0, 0.3, -0.2])
    halves = [combination_half_width(noise, w, 0.9) for w in (weights, -weights, weights[::-1])]
    np.testing.assert_allclose(halves, halves[0])
