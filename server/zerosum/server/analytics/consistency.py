"""Make the noisy levels of one tree agree: the weighted least squares estimate, in two passes.

A tree is given by its levels, the highest first. ``parents[i]`` holds, for each node of level
i + 1, the place of its parent in level i; nodes may have any number of children, or none. The
first level may have several nodes: then the root above them was not measured.

Source of both passes: Hay, Rastogi, Miklau, Suciu, "Boosting the accuracy of differentially
private histograms through consistency" (VLDB 2010), here with a variance for each node.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Reals: TypeAlias = NDArray[np.float64]
Places: TypeAlias = NDArray[np.int64]


def least_squares(
    levels: Sequence[ArrayLike],
    parents: Sequence[Places],
    variances: Sequence[ArrayLike],
    *,
    total: float | None = None,
) -> list[Reals]:
    """Return the consistent values that are nearest to the noisy ones.

    They minimise the sum of squares, each over its variance, among all trees in which every node
    is the sum of its children. By the theorem of Gauss and Markov no other unbiased linear
    estimate has a smaller variance at any node.

    Parameters
    ----------
    levels : sequence of array of float, shapes (n_0,), (n_1,), ...
        Noisy values, in any unit.
    parents : sequence of ndarray of int64, shapes (n_1,), (n_2,), ...
        Place of each node's parent in the level above.
    variances : sequence of float or array, a level each
        Variance of the noise in the square of the unit. Zero is an exact value, ``inf`` a level
        that was not measured.
    total : float, optional
        What the first level must add up to, where it is known.

    Returns
    -------
    list of ndarray of float64, shapes of ``levels``
        Consistent values.

    Raises
    ------
    ValueError
        If levels, parents and variances do not fit together.
    """
    means, spreads = combine_upwards(levels, parents, variances)
    if total is None:
        result = [means[0]]
    else:
        root = np.zeros(means[0].size, dtype=np.int64)
        result = [_share_residual(means[0], spreads[0], root, np.array([float(total)]))]
    for mean, spread, parent in zip(means[1:], spreads[1:], parents, strict=True):
        result.append(_share_residual(mean, spread, parent, result[-1]))
    return result


def combine_upwards(
    levels: Sequence[ArrayLike], parents: Sequence[Places], variances: Sequence[ArrayLike]
) -> tuple[list[Reals], list[Reals]]:
    """Return each node's best estimate from its own value and those below it.

    Parameters
    ----------
    levels, parents, variances : sequence
        As for :func:`least_squares`.

    Returns
    -------
    means : list of ndarray of float64
        A node's estimate from its subtree alone.
    spreads : list of ndarray of float64
        Its variance.

    Raises
    ------
    ValueError
        If levels, parents and variances do not fit together.
    """
    values, noise = _checked(levels, parents, variances)
    means, spreads = [values[-1]], [noise[-1]]
    for value, own, parent in zip(values[-2::-1], noise[-2::-1], parents[::-1], strict=True):
        below = _sum_children(means[0], parent, value.size)
        spread = _sum_children(spreads[0], parent, value.size)
        spread[np.bincount(parent, minlength=value.size) == 0] = np.inf
        # Of the two estimates each is weighted by the other's share of both variances: this form
        # needs no reciprocal, so that zero and infinity are variances like any other.
        alone = np.isinf(spread) | (own + spread == 0)
        weight = np.ones_like(own)
        np.divide(spread, own + spread, out=weight, where=~alone)
        means.insert(0, weight * value + (1 - weight) * below)
        shared = (1 - weight) * np.where(alone, 0.0, spread)
        spreads.insert(0, np.where(alone, own, shared))
    return means, spreads


def _share_residual(mean: Reals, spread: Reals, parent: Places, above: Reals) -> Reals:
    """Give each parent's residual to its children, in proportion to their variances."""
    unmeasured = np.isinf(spread)
    # One child that was not measured takes all of a residual; several share it evenly.
    loose = _sum_children(unmeasured, parent, above.size)[parent] > 0
    weights = np.where(loose, unmeasured, spread)
    sums = _sum_children(weights, parent, above.size)[parent]
    residual = above - _sum_children(mean, parent, above.size)
    share = np.divide(weights, sums, out=np.zeros_like(mean), where=sums > 0)
    return mean + share * residual[parent]


def _sum_children(values: NDArray[Any], parent: Places, size: int) -> Reals:
    return np.bincount(parent, values, size).astype(np.float64)


def _checked(
    levels: Sequence[ArrayLike], parents: Sequence[Places], variances: Sequence[ArrayLike]
) -> tuple[list[Reals], list[Reals]]:
    values = [np.asarray(level, dtype=np.float64) for level in levels]
    if not values or len(parents) != len(values) - 1 or len(variances) != len(values):
        raise ValueError(
            f"a tree of {len(values)} levels needs {max(0, len(values) - 1)} arrays of parents "
            f"and {len(values)} variances, not {len(parents)} and {len(variances)}"
        )
    for number, (value, parent) in enumerate(zip(values[1:], parents, strict=True), start=1):
        if parent.shape != value.shape or not _within(parent, values[number - 1].size):
            raise ValueError(f"level {number} of a tree has a node without a parent above it")
    noise = [
        np.array(np.broadcast_to(np.asarray(variance, dtype=np.float64), value.shape))
        for variance, value in zip(variances, values, strict=True)
    ]
    if any(bool(np.any(~(spread >= 0))) for spread in noise):
        raise ValueError("a variance is at least 0")
    # An unmeasured level's values mean nothing; NaN or infinity in them must not spread.
    values = [
        np.where(np.isinf(spread), 0.0, value) for value, spread in zip(values, noise, strict=True)
    ]
    return values, noise


def _within(places: Places, size: int) -> bool:
    return not places.size or (int(places.min()) >= 0 and int(places.max()) < size)
