"""Hypergeometric tails, and comparisons with a bound that are never wrong.

Hyp(population, good, draws) counts the good ones among ``draws`` drawn without replacement.
Probabilities are natural logarithms in float64, off by at most :func:`error_bound`. Whether a
tail is within a bound is decided by them where that is certain and in integers where it is not.
"""

import math
from fractions import Fraction
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_GRID = 2.0**20
# A term e^-60 times as large as the largest is below float64's last place even a million times.
_NEGLIGIBLE = 60.0
# Masses of a tail that are computed first: most tails have died out by then.
_FIRST_WIDTH = 256


@cache
def _factorials(limit: int) -> tuple[Floats, Floats]:
    """Return log(i!) for i = 0 .. limit in two addends.

    The first holds multiples of 2^-20, which add without rounding; the second is small. So only
    the rounding of each logarithm is left, and not that of sums of up to a million.
    """
    logs = np.log(np.arange(1, limit + 1, dtype=np.float64))
    coarse = np.round(logs * _GRID) / _GRID
    zero = np.zeros(1)
    return (
        np.concatenate([zero, np.cumsum(coarse)]),
        np.concatenate([zero, np.cumsum(logs - coarse)]),
    )


def error_bound(population: int) -> float:
    """Return how far a log probability over a population of this size may be off.

    A logarithm below 32 in float64 is off by at most 4 units of 2^-49 (numpy promises less), so
    log(i!) by i x 2^-47. A probability takes nine factorials whose arguments add up to at most
    four populations: population x 2^-45. Twice that leaves room for the other roundings.
    """
    return (population + 64) * 2.0**-44


def log_choose(top: Ints | int, bottom: Ints | int) -> Floats:
    """Compute log C(top, bottom) elementwise.

    Parameters
    ----------
    top, bottom : int or ndarray of int
        Of shapes that broadcast.

    Returns
    -------
    ndarray of float64
        Natural logarithms; -inf where ``bottom`` is not in 0 .. top.
    """
    above, below = np.broadcast_arrays(np.asarray(top), np.asarray(bottom))
    # Powers of two, so that few tables serve all sizes.
    coarse, fine = _factorials(1 << int(above.max(initial=1)).bit_length())
    inside = (below >= 0) & (below <= above)
    taken = np.where(inside, below, 0)
    left = above - taken
    value = (coarse[above] - coarse[taken] - coarse[left]) + (
        fine[above] - fine[taken] - fine[left]
    )
    return np.where(inside, value, -np.inf)


def log_sum(logs: Floats) -> float:
    """Return the log of the sum of exp(logs); -inf if there are none."""
    peak = float(logs.max(initial=-math.inf))
    if peak == -math.inf:
        return peak
    return peak + math.log(float(np.exp(logs - peak).sum()))


def log_of(value: float) -> float:
    """Return log(value), -inf at 0."""
    return math.log(value) if value > 0 else -math.inf


def _support(population: int, good: int, draws: int) -> tuple[int, int]:
    return max(0, draws - (population - good)), min(draws, good)


def _log_masses(population: int, good: int, draws: int, counts: Ints) -> Floats:
    """Return the log of each count's probability; all counts are in the support.

    The sum of three :func:`log_choose`, in a few operations on short arrays.
    """
    coarse, fine = _factorials(1 << population.bit_length())
    bad, misses = population - good, draws - counts
    value: Floats = np.zeros(len(counts))
    for table in (coarse, fine):
        whole = table[good] + table[bad] - table[population]
        whole += table[draws] + table[population - draws]
        value = value + (
            (whole - table[counts] - table[good - counts]) - (table[misses] + table[bad - misses])
        )
    return value


@lru_cache(maxsize=1 << 16)
def log_tail(population: int, good: int, draws: int, count: int) -> float:
    """Compute log P[Hyp(population, good, draws) >= count].

    Parameters
    ----------
    population, good, draws : int
        How many there are, how many of these are good, and how many are drawn.
    count : int

    Returns
    -------
    float
        Natural logarithm, at most 0.
    """
    lowest, highest = _support(population, good, draws)
    if count <= lowest:
        return 0.0
    width = _FIRST_WIDTH
    while True:
        last = min(highest, count + width)
        masses = _log_masses(population, good, draws, np.arange(count, last + 1))
        # Log-concave: once so far below the peak, what follows falls at least as fast.
        if last == highest or masses[-1] < masses.max() - _NEGLIGIBLE:
            return min(0.0, log_sum(masses))
        width *= 4


def exact_tail(population: int, good: int, draws: int, count: int) -> Fraction:
    """Compute P[Hyp(population, good, draws) >= count] as a fraction.

    Parameters
    ----------
    population, good, draws : int
        How many there are, how many of these are good, and how many are drawn.
    count : int

    Returns
    -------
    Fraction
    """
    lowest, highest = _support(population, good, draws)
    ways = sum(
        math.comb(good, x) * math.comb(population - good, draws - x)
        for x in range(max(count, lowest), highest + 1)
    )
    return Fraction(ways, math.comb(population, draws))


def compare(log_value: float, level: float, slack: float) -> bool | None:
    """Return whether exp(log_value) <= level.

    Parameters
    ----------
    log_value : float
        Natural logarithm of a probability.
    level : float
        The bound.
    slack : float
        How far ``log_value`` may be off.

    Returns
    -------
    bool or None
        None where ``slack`` leaves it open.
    """
    if log_value == -math.inf or level == 0:
        return log_value == -math.inf
    gap = log_value - math.log(level)
    return gap < 0 if abs(gap) > slack else None


def is_rare(
    population: int, good: int, draws: int, count: int, level: float, times: Fraction | int = 1
) -> bool:
    """Return whether times x P[Hyp(population, good, draws) >= count] <= level.

    Parameters
    ----------
    population, good, draws : int
        How many there are, how many of these are good, and how many are drawn.
    count : int
    level : float
        The bound.
    times : Fraction or int
        How many events are added up.

    Returns
    -------
    bool
        Certain: decided in integers where float64 leaves it open.
    """
    log_value = log_tail(population, good, draws, count) + math.log(times)
    verdict = compare(log_value, level, error_bound(population))
    if verdict is None:
        return times * exact_tail(population, good, draws, count) <= Fraction(level)
    return verdict


def rarely_exceeded(population: int, good: int, draws: int, level: float, times: int = 1) -> int:
    """Find the smallest x with times x P[Hyp(population, good, draws) > x] <= level.

    Parameters
    ----------
    population, good, draws : int
        How many there are, how many of these are good, and how many are drawn.
    level : float
        The bound, below ``times``.
    times : int
        How many events are added up.

    Returns
    -------
    int
        Between the least and the largest possible count.
    """
    lowest, highest = _support(population, good, draws)
    # Hoeffding (1963): P[X >= mean + d] <= exp(-2 d^2 / draws), here a negligible part of level.
    if level > 0:
        mean = good * draws // population
        reach = math.isqrt(int(draws * (math.log(times / level) + _NEGLIGIBLE) / 2)) + 2
        lowest, highest = max(lowest, mean - reach), min(highest, mean + reach)
    counts = np.arange(highest, lowest - 1, -1)
    tails = np.logaddexp.accumulate(_log_masses(population, good, draws, counts))[::-1]
    # Accumulating rounds once a step, so leave a wide margin and decide near the bound again.
    clearly_above = tails + math.log(times) > log_of(level) + 1e-3
    count = lowest + int(np.count_nonzero(clearly_above))
    while not is_rare(population, good, draws, count, level, times):
        count += 1
    return max(lowest, count - 1)
