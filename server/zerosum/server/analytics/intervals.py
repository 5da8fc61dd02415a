"""Intervals about single cells and linear functions of cells."""

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zerosum.server.analytics.noise_law import ReleasedNoise

NORMAL_KURTOSIS = 0.375
"""Excess kurtosis up to which noise is called normal: that of eight cells of discrete Laplace noise
added up. At 95 % the normal quantile is then within 1 % of the exact one."""

FEWEST_STDS = 5.0
"""Standard deviations that a number of records is above zero at least, for a ratio to it."""

_GRID_STEPS = 64
"""Steps of the grid of a sum of unequal cells in one of its standard deviations, or in a quarter of
the largest weight where that is more: the law is on a lattice then."""

_GRID_MISS = 1e-10
"""Probability that a cell's noise leaves its part of that grid."""


def combination_half_width(noise: ReleasedNoise, weights: ArrayLike, level: float) -> float:
    """Return the h for which the noise of sum w_j z_j is within +-h with this probability.

    Exact for cells of one weight, normal where the sum's excess kurtosis is at most
    :data:`NORMAL_KURTOSIS`; between them the cells' laws are convolved on a grid.

    Parameters
    ----------
    noise : ReleasedNoise
        Of each cell; cells are independent.
    weights : array of float, shape (cells,)
        Any reals; zeros are left out.
    level : float
        In (0, 1).

    Returns
    -------
    float
        In units of the weights times a cell's.

    Raises
    ------
    ValueError
        If the level is not between 0 and 1.
    """
    _check_level(level)
    sizes = np.abs(np.asarray(weights, dtype=np.float64))
    sizes = sizes[sizes > 0]
    if not sizes.size:
        return 0.0
    largest = float(sizes.max())
    sizes = sizes / largest
    squares = float(np.sum(sizes**2))
    if noise.excess_kurtosis * float(np.sum(sizes**4)) / squares**2 <= NORMAL_KURTOSIS:
        return largest * math.sqrt(squares) * noise.std * _z(level)
    if np.all(sizes == 1):
        return largest * noise.summed(sizes.size).half_width(level)
    return largest * _on_grid(noise, sizes, level)


def deviation_half_widths(
    noise: ReleasedNoise, deviations: ArrayLike, level: float
) -> NDArray[np.float64]:
    """Return half widths of linear functions of which only the standard deviations are known.

    Each is taken for a normal variable, or for a sum of as many cells as give its variance,
    m = sd^2 / std^2, where that is wider. Of functions with this deviation, and no weight above 1,
    that sum has the heaviest tails; below one cell it is a part of a cell.

    Parameters
    ----------
    noise : ReleasedNoise
        Of each cell.
    deviations : array of float, shape (n,)
        Of the functions, in a cell's unit, 0 or more.
    level : float
        In (0, 1).

    Returns
    -------
    ndarray of float64, shape (n,)
        In a cell's unit.

    Raises
    ------
    ValueError
        If the level is not between 0 and 1.
    """
    _check_level(level)
    sd = np.asarray(deviations, dtype=np.float64)
    widths = sd * _z(level)
    cells = (sd / noise.std) ** 2
    heavy = noise.excess_kurtosis > NORMAL_KURTOSIS * np.maximum(cells, 1)
    if not np.any(heavy):
        return widths
    # A width rises with the number of cells: rounded up to a few numbers, it is never too small.
    steps = np.ceil(np.log2(np.maximum(cells[heavy], 1)) * 8)
    values = {step: noise.summed(2.0 ** (step / 8)).half_width(level) for step in np.unique(steps)}
    sums = np.array([values[step] for step in steps]) * np.sqrt(np.minimum(cells[heavy], 1))
    widths[heavy] = np.maximum(widths[heavy], sums)
    return widths


def cell_interval(
    values: ArrayLike, half_width: ArrayLike, *, low: float = -math.inf, high: float = math.inf
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return values less and plus a half width, cut to what the truth can be.

    A cut loses no coverage: the truth is within the bounds. An interval wholly outside them becomes
    the bound that is nearest.

    Parameters
    ----------
    values, half_width : array of float, shapes that broadcast
        In one unit; NaN stays NaN.
    low, high : float
        Bounds of the truth.

    Returns
    -------
    lower, upper : ndarray of float64
        In the unit of the values.
    """
    centre = np.asarray(values, dtype=np.float64)
    width = np.asarray(half_width, dtype=np.float64)
    return np.clip(centre - width, low, high), np.clip(centre + width, low, high)


def too_few(records: float, std: float) -> bool:
    """Return whether a number of records is too uncertain to divide by.

    Parameters
    ----------
    records : float
        Its estimate.
    std : float
        Standard deviation of the estimate.

    Returns
    -------
    bool
        True below :data:`FEWEST_STDS` standard deviations, and for no records at all.
    """
    return not records > 0 or records < FEWEST_STDS * std


def _on_grid(noise: ReleasedNoise, sizes: NDArray[np.float64], level: float) -> float:
    """Convolve the laws of cells of several weights, and read off the two-sided quantile."""
    unit, values, probabilities = noise.table()
    reach = noise.half_width(1 - _GRID_MISS)
    middle, side = values.size // 2, -(-reach // unit)
    kept = slice(max(0, middle - side), middle + side + 1)
    values, probabilities = values[kept], probabilities[kept]
    std = noise.std * math.sqrt(float(np.sum(sizes**2)))
    step = max(std, 0.25) / _GRID_STEPS
    span = reach * float(np.sum(sizes)) + 1
    length = 1 << math.ceil(math.log2(2 * span / step))
    transform = np.ones(length // 2 + 1, dtype=np.complex128)
    for size in sizes:
        # Mass between two points of the grid is shared so that its mean is kept.
        place = values * (unit * size / step)
        first = np.floor(place).astype(np.int64)
        right = (place - first) * probabilities
        masses = np.bincount(first % length, probabilities - right, length)
        masses += np.bincount((first + 1) % length, right, length)
        transform *= np.fft.rfft(masses)
    total = np.fft.irfft(transform, length)
    half = length // 2
    # P(|Z| <= i steps), from the middle outward; both sides are the same.
    inside = np.cumsum(np.concatenate((total[:1], 2 * total[1:half])))
    place = int(np.searchsorted(inside, level * (1 - 1e-12)))
    return min(place, half - 1) * step


def _z(level: float) -> float:
    return NormalDist().inv_cdf((1 + level) / 2)


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"a level of confidence is between 0 and 1, not {level}")
