"""Quantiles from the consistent leaves of one tree, and the leaves that could hold them.

Below j leaves lie F(j) records, F is 0 at j = 0 and the number of records N at the last. A quantile
is the leaf at which G(j) = F(j) - q N reaches 0. G is a linear function of the noisy cells, so that
its standard deviation is known without data.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from zerosum.server.analytics.consistency import Places, Reals

_ROUNDING = 1e-9
"""Part of N by which a rank may miss q N for float rounding alone."""


def excess_ranks(leaves: Reals, q: float) -> Reals:
    """Return G at every boundary between leaves.

    Parameters
    ----------
    leaves : ndarray of float64, shape (n,)
        Consistent counts.
    q : float
        In (0, 1).

    Returns
    -------
    ndarray of float64, shape (n + 1,)
        In records; the first is -q N, the last (1 - q) N.
    """
    below = np.concatenate(([0.0], np.cumsum(leaves)))
    return below - q * below[-1]


def excess_rank_deviations(
    parents: Sequence[Places], spreads: Sequence[Reals], q: float
) -> Reals:
    """Return the standard deviation of G at every boundary, exactly.

    The least squares estimate of a linear function of the leaves has the variance that the function
    has under independent normal leaves, given the noisy cells. Given its node's total, a child's is
    normal around its share, and the function is the total times a plus a remainder of variance b.
    Upwards from a boundary all children but one are wholly below or above it: their a is 1 - q or
    -q and their b is 0, so that one path is enough.

    Parameters
    ----------
    parents : sequence of ndarray of int64
        As for :func:`~zerosum.server.analytics.consistency.least_squares`; each ascends.
    spreads : sequence of ndarray of float64
        Variances of :func:`~zerosum.server.analytics.consistency.combine_upwards`.
    q : float
        In (0, 1).

    Returns
    -------
    ndarray of float64, shape (n + 1,)
        Square roots of the unit of ``spreads``.
    """
    node = np.arange(spreads[-1].size)
    a, b = np.full(node.size, 1 - q), np.zeros(node.size)
    for spread, parent in zip(spreads[:0:-1], parents[::-1], strict=True):
        sums, squares, whole = _over_siblings(spread, parent, node, a, q)
        node = parent[node]
        a, b = sums / whole, b + squares - sums**2 / whole
    first = spreads[0]
    roots = np.zeros(first.size, dtype=np.int64)
    _, squares, _ = _over_siblings(first, roots, node, a, q)
    start = q**2 * float(first.sum())
    return np.sqrt(np.concatenate(([start], np.maximum(0.0, squares + b))))


def first_crossing(excess: Reals) -> int:
    """Return the first leaf at whose end G is 0 or more.

    Parameters
    ----------
    excess : ndarray of float64, shape (n + 1,)
        G at the boundaries, with more than 0 records in all.

    Returns
    -------
    int
        A leaf, from 0.
    """
    records = excess[-1] - excess[0]
    return int(np.argmax(excess[1:] >= -_ROUNDING * records))


def possible_leaves(excess: Reals, half_widths: Reals) -> tuple[int, int]:
    """Return the run of leaves, around the crossing, that could hold the quantile.

    A leaf holds it if G is below 0 at its beginning and 0 or more at its end. A leaf is ruled out
    where G is above 0 by more than the half width at its beginning, or below by more at its end.

    Parameters
    ----------
    excess : ndarray of float64, shape (n + 1,)
        G at the boundaries.
    half_widths : ndarray of float64, shape (n + 1,)
        Of the noise in G at the boundaries.

    Returns
    -------
    first, last : int
        Leaves, both included.
    """
    leaf = first_crossing(excess)
    possible = (excess[:-1] <= half_widths[:-1]) & (excess[1:] >= -half_widths[1:])
    possible[leaf] = True
    ruled_out = np.flatnonzero(~possible)
    place = int(np.searchsorted(ruled_out, leaf))
    first = int(ruled_out[place - 1]) + 1 if place else 0
    last = int(ruled_out[place]) - 1 if place < ruled_out.size else possible.size - 1
    return first, last


def _over_siblings(
    spread: Reals, parent: Places, node: NDArray[np.int64], a: Reals, q: float
) -> tuple[Reals, Reals, Reals]:
    """Return sums of spread x a, spread x a^2 and spread over a node and its siblings."""
    before = np.concatenate(([0.0], np.cumsum(spread)))
    family = parent[node]
    begin = np.searchsorted(parent, family, side="left")
    end = np.searchsorted(parent, family, side="right")
    left, own, right = before[node] - before[begin], spread[node], before[end] - before[node + 1]
    sums = left * (1 - q) + own * a - right * q
    squares = left * (1 - q) ** 2 + own * a**2 + right * q**2
    return sums, squares, left + own + right
