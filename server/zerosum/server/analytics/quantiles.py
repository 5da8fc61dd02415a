"""Quantiles from the consistent leaves of one tree, and the leaves that could hold them.

Below j leaves lie F(j) records, F is 0 at j = 0 and the number of records N at the last. A quantile
is the leaf at which G(j) = F(j) - q N reaches 0. G is a linear function of the noisy cells, so that
its standard deviation is known without data.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zerosum.client.queries.coding import edges
from zerosum.client.queries.query import FAN_OUT, LEVELS
from zerosum.client.queries.schema import IntegerColumn, NumberColumn
from zerosum.server.analytics.consistency import Places, Reals, combine_upwards, least_squares
from zerosum.server.analytics.intervals import deviation_half_widths, too_few
from zerosum.server.analytics.noise_law import ReleasedNoise

_ROUNDING = 1e-9
"""Part of N by which a rank may miss q N for float rounding alone."""


@dataclass(frozen=True, eq=False)
class LeafCounts:
    """Consistent counts of a tree's leaves, and what each leaf stands for.

    Attributes
    ----------
    counts : ndarray of float64, shape (leaves,)
        Consistent numbers of records.
    lows, highs : ndarray of float64, shape (leaves,)
        Ends of each leaf in the column's unit; of an integer column its first and last integer.
    integers : bool
        Whether the column has integers alone.
    parents : tuple of ndarray of int64
        Of the tree, without the empty leaves.
    spreads : tuple of ndarray of float64
        Variances of each node's estimate from its subtree, in variances of a cell.
    noise : ReleasedNoise
        Of a cell.
    """

    counts: Reals
    lows: Reals
    highs: Reals
    integers: bool
    parents: tuple[Places, ...]
    spreads: tuple[Reals, ...]
    noise: ReleasedNoise

    @property
    def records(self) -> float:
        """Estimate of the number of records."""
        return float(self.counts.sum())

    @property
    def records_std(self) -> float:
        """Standard deviation of that estimate."""
        return self.noise.std * math.sqrt(float(self.spreads[0].sum()))

    @property
    def too_few(self) -> bool:
        """Whether there are too few records to speak of their ranks."""
        return too_few(self.records, self.records_std)

    def quantile(self, q: float) -> float:
        """Return the value at which a part q of the records is reached.

        Parameters
        ----------
        q : float
            In (0, 1).

        Returns
        -------
        float
            The middle of the leaf, an integer for an integer column; NaN with too few records.
        """
        if self.too_few:
            return math.nan
        leaf = likeliest_leaf(excess_ranks(self.counts, q))
        middle = (self.lows[leaf] + self.highs[leaf]) / 2
        return math.floor(middle) if self.integers else float(middle)

    def interval(self, q: float, level: float) -> tuple[float, float]:
        """Return the ends of the leaves that could hold a quantile.

        Parameters
        ----------
        q, level : float
            In (0, 1).

        Returns
        -------
        low, high : float
            NaN with too few records.
        """
        if self.too_few:
            return math.nan, math.nan
        first, last = possible_leaves(excess_ranks(self.counts, q), self._half_widths(q, level))
        return float(self.lows[first]), float(self.highs[last])

    def atom(self, q: float, level: float) -> tuple[float, float, float] | None:
        """Return the leaf of a quantile where it holds more records than the interval is wide.

        Parameters
        ----------
        q, level : float
            In (0, 1).

        Returns
        -------
        share, low, high : float, or None
            The part of the records that the leaf holds, and its ends.
        """
        if self.too_few:
            return None
        excess, half = excess_ranks(self.counts, q), self._half_widths(q, level)
        leaf = likeliest_leaf(excess)
        if possible_leaves(excess, half) != (leaf, leaf):
            return None
        if self.counts[leaf] <= half[leaf] + half[leaf + 1]:
            return None
        share = min(1.0, float(self.counts[leaf]) / self.records)
        return share, float(self.lows[leaf]), float(self.highs[leaf])

    def _half_widths(self, q: float, level: float) -> Reals:
        deviations = excess_rank_deviations(self.parents, self.spreads, q) * self.noise.std
        return deviation_half_widths(self.noise, deviations, level)


def leaf_counts(
    noisy: NDArray[np.int64], noise: ReleasedNoise, column: IntegerColumn | NumberColumn
) -> LeafCounts:
    """Return the consistent leaves of a query's noisy tree.

    Leaves that no integer of the column falls into are known to be empty: their variance is 0.

    Parameters
    ----------
    noisy : ndarray of int64, shape (16 + 256 + 4096,)
        The levels one after another.
    noise : ReleasedNoise
        Of a cell.
    column : IntegerColumn or NumberColumn
        Its domain.

    Returns
    -------
    LeafCounts
    """
    sizes = [FAN_OUT**level for level in range(1, LEVELS + 1)]
    levels = np.split(noisy.astype(np.float64), np.cumsum(sizes)[:-1])
    parents = [np.arange(size, dtype=np.int64) // FAN_OUT for size in sizes[1:]]
    lows, highs = leaf_ends(column, sizes[-1])
    filled = np.isfinite(lows)
    levels[-1] = np.where(filled, levels[-1], 0.0)
    variances = [np.ones(size) for size in sizes[:-1]] + [filled.astype(np.float64)]
    counts = least_squares(levels, parents, variances)[-1][filled]
    _, spreads = combine_upwards(levels, parents, variances)
    return LeafCounts(
        counts,
        lows[filled],
        highs[filled],
        isinstance(column, IntegerColumn),
        (*parents[:-1], parents[-1][filled]),
        (*spreads[:-1], spreads[-1][filled]),
        noise,
    )


def leaf_ends(column: IntegerColumn | NumberColumn, leaves: int) -> tuple[Reals, Reals]:
    """Return the ends of each leaf; NaN where no value of the column falls into it.

    Parameters
    ----------
    column : IntegerColumn or NumberColumn
        Its domain.
    leaves : int
        Of the tree.

    Returns
    -------
    lows, highs : ndarray of float64, shape (leaves,)
        In the column's unit; of an integer column the first and last integer of a leaf.
    """
    ends = edges(column, leaves).astype(np.float64)
    if isinstance(column, NumberColumn):
        return ends[:-1], ends[1:]
    empty = ends[1:] == ends[:-1]
    return np.where(empty, np.nan, ends[:-1]), np.where(empty, np.nan, ends[1:] - 1)


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
    below: Reals = np.concatenate(([0.0], np.cumsum(leaves)))
    return below - q * float(below[-1])


def excess_rank_deviations(parents: Sequence[Places], spreads: Sequence[Reals], q: float) -> Reals:
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
        # Children that are known exactly leave nothing to share: any a is right.
        a = np.divide(sums, whole, out=np.zeros_like(sums), where=whole > 0)
        b = b + squares - a * sums
    first = spreads[0]
    roots = np.zeros(first.size, dtype=np.int64)
    _, squares, _ = _over_siblings(first, roots, node, a, q)
    start = q**2 * float(first.sum())
    return np.sqrt(np.concatenate(([start], np.maximum(0.0, squares + b))))


def likeliest_leaf(excess: Reals) -> int:
    """Return the leaf at which G passes 0, if it is made to ascend by least squares.

    True ranks ascend, noisy ones do not: over many leaves that are nearly empty one of them passes
    0 by its noise, far from where most of them do. The ascending fit passes 0 where the running sum
    of G is least, which one such leaf does not move.

    Parameters
    ----------
    excess : ndarray of float64, shape (n + 1,)
        G at the boundaries, with more than 0 records in all.

    Returns
    -------
    int
        A leaf, from 0.
    """
    rounding = _ROUNDING * float(excess[-1] - excess[0])
    return int(np.argmin(np.cumsum(excess[:-1] + rounding)))


def possible_leaves(excess: Reals, half_widths: Reals) -> tuple[int, int]:
    """Return the first and the last leaf that could hold the quantile.

    A leaf holds it if G is below 0 at its beginning and 0 or more at its end. A leaf is ruled out
    where noise within the half widths cannot have hidden that: G less the half width is 0 or more
    at its beginning, or G plus the half width below 0 at its end. The leaf that holds it is ruled
    out by either with half of what the level leaves, wherever it is: so all leaves count that are
    not ruled out, and not only those next to each other.

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
    rounding = _ROUNDING * float(excess[-1] - excess[0])
    possible = excess[:-1] < half_widths[:-1] - rounding
    possible &= excess[1:] >= -half_widths[1:] - rounding
    possible[likeliest_leaf(excess)] = True
    leaves = np.flatnonzero(possible)
    return int(leaves[0]), int(leaves[-1])


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
