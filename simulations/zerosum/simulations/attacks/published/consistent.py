"""Enumerate all data sets that agree with published figures of two groups and of both together.

The count is exact: nothing is sampled, and no pairs are formed. Of both groups' multisets those
that agree with their own figures are kept. The number of the other group's multisets that go with
each follows from its sum and from how many of its ages lie below the common median.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

FIGURES = ("mean", "median", "youngest", "oldest")

_SLACK = 1e-9
"""By which a figure may miss a limit: of rounding in means, far below any published precision."""


@dataclass(frozen=True)
class Limits:
    """Bound the figures of one group, or of all.

    Attributes
    ----------
    low, high : tuple of float
        Four each: of mean, median, youngest, oldest; infinite where not published.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class Consistent:
    """Summarise the consistent data sets.

    Attributes
    ----------
    count : int
        Number of pairs of multisets, one of each group.
    marginals : tuple of ndarray
        For each group int64, shape (size, oldest + 1): the number of data sets in which the group's
        i-th youngest has this age.
    """

    count: int
    marginals: tuple[np.ndarray, np.ndarray]


@lru_cache(maxsize=8)
def multisets(size: int, youngest: int, oldest: int) -> np.ndarray:
    """List all multisets of ages.

    Parameters
    ----------
    size : int
        People.
    youngest, oldest : int
        In years, both included.

    Returns
    -------
    ndarray of int16
        Shape (multisets, size), each row ascending; read-only, for it is cached.
    """
    ages = range(youngest, oldest + 1)
    rows = np.array(list(itertools.combinations_with_replacement(ages, size)), dtype=np.int16)
    rows.setflags(write=False)
    return rows


@lru_cache(maxsize=8)
def _figures_of_multisets(size: int, youngest: int, oldest: int) -> np.ndarray:
    return figures_of(multisets(size, youngest, oldest))


def figures_of(ages: np.ndarray) -> np.ndarray:
    """Return mean, median, youngest and oldest of ages, shape (..., n), as (..., 4)."""
    ordered = np.sort(ages, axis=-1).astype(np.float64)
    n = ordered.shape[-1]
    middle = (ordered[..., (n - 1) // 2] + ordered[..., n // 2]) / 2
    means = ordered.sum(axis=-1) / n
    return np.stack([means, middle, ordered[..., 0], ordered[..., -1]], axis=-1)


def agrees(figures: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return whether all figures lie within the limits.

    Parameters
    ----------
    figures : ndarray of float64
        Shape (..., 4).
    low, high : ndarray of float64
        Shape (..., 4).

    Returns
    -------
    ndarray of bool
        Shape (...).
    """
    within = (figures >= low - _SLACK) & (figures <= high + _SLACK)
    return np.asarray(within.all(axis=-1))


@lru_cache(maxsize=64)
def consistent(
    sizes: tuple[int, int],
    groups: tuple[Limits, Limits],
    together: Limits,
    youngest: int,
    oldest: int,
) -> Consistent:
    """Enumerate the data sets that agree with all figures.

    Parameters
    ----------
    sizes : tuple of int
        People in each group; an odd number together, so that their median is one person's age.
    groups : tuple of Limits
        Of each group's figures.
    together : Limits
        Of mean and median of both; youngest and oldest of both follow from the groups'.
    youngest, oldest : int
        Ages that are possible.

    Returns
    -------
    Consistent
    """
    agreeing = [
        _agreeing(size, limits, youngest, oldest)
        for size, limits in zip(sizes, groups, strict=True)
    ]
    rank = (sum(sizes) + 1) // 2
    sums = _sums_between(together, sum(sizes))
    weights = [
        _partners(agreeing[i], agreeing[1 - i], together, sums, rank)
        if len(agreeing[i])
        else np.zeros(0)
        for i in (0, 1)
    ]
    marginals = [_marginals(rows, w, oldest) for rows, w in zip(agreeing, weights, strict=True)]
    return Consistent(int(weights[0].sum()), (marginals[0], marginals[1]))


def _agreeing(size: int, limits: Limits, youngest: int, oldest: int) -> np.ndarray:
    figures = _figures_of_multisets(size, youngest, oldest)
    rows: np.ndarray = multisets(size, youngest, oldest)[
        agrees(figures, np.array(limits.low), np.array(limits.high))
    ]
    return rows


def _sums_between(together: Limits, people: int) -> tuple[float, float]:
    low, high = together.low[0] * people, together.high[0] * people
    return float(np.ceil(low - _SLACK)), float(np.floor(high + _SLACK))


def _partners(
    own: np.ndarray, other: np.ndarray, together: Limits, sums: tuple[float, float], rank: int
) -> np.ndarray:
    """Return how many of the other group's multisets agree with each of this one's, int64.

    The median of both is at most t where at least ``rank`` ages are at most t.
    """
    at_most = float(np.floor(together.high[1] + _SLACK))
    below = float(np.ceil(together.low[1] - _SLACK) - 1)
    upper = _with_rank(own, other, at_most, sums, rank)
    fewer = _with_rank(own, other, below, sums, rank)
    return np.asarray(upper - fewer)


def _with_rank(
    own: np.ndarray, other: np.ndarray, at: float, sums: tuple[float, float], rank: int
) -> np.ndarray:
    """Count the others with which ``rank`` ages are at most ``at``, within the limits of sums."""
    size, most = other.shape[1], int(other.max(initial=0)) * other.shape[1]
    # A two-dimensional cumulative count answers all rows at once; pairs would be millions.
    # table[k, s]: others with at least k ages at most `at`, and with a sum below s.
    cells = (other <= at).sum(axis=1) * (most + 2) + other.sum(axis=1, dtype=np.int64) + 1
    exactly = np.bincount(cells, minlength=(size + 2) * (most + 2)).reshape(size + 2, most + 2)
    table = np.cumsum(np.cumsum(exactly[::-1], axis=0)[::-1], axis=1)
    needed = np.clip(rank - (own <= at).sum(axis=1), 0, size + 1)
    total = own.sum(axis=1, dtype=np.int64)
    first = np.clip(sums[0] - total, 0, most + 1).astype(np.int64)
    after = np.clip(sums[1] - total + 1, 0, most + 1).astype(np.int64)
    counted: np.ndarray = table[needed, after] - table[needed, np.minimum(first, after)]
    return counted


def _marginals(rows: np.ndarray, weights: np.ndarray, oldest: int) -> np.ndarray:
    # Counts stay below 2^53: floats hold them exactly.
    columns: Sequence[np.ndarray] = [
        np.bincount(column, weights=weights, minlength=oldest + 1) for column in rows.T
    ]
    return np.stack(columns).astype(np.int64)
