"""Least squares on trees: against numpy's dense solver, and what no tree may do."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from zerosum.server.analytics.consistency import combine_upwards, least_squares

RNG = np.random.default_rng


def random_tree(rng: np.random.Generator, ragged: bool) -> list[NDArray[np.int64]]:
    """Return parents of a tree of two to four levels, three nodes and more a parent or ragged."""
    sizes = [int(rng.integers(1, 4))]
    parents = []
    for _ in range(int(rng.integers(1, 4))):
        if ragged:
            count = int(rng.integers(1, 4 * sizes[-1]))
            parent = np.sort(rng.integers(0, sizes[-1], count))
        else:
            parent = np.repeat(np.arange(sizes[-1]), 3)
        parents.append(parent.astype(np.int64))
        sizes.append(parent.size)
    return parents


def sizes_of(parents: list[NDArray[np.int64]], roots: int) -> list[int]:
    return [roots, *(parent.size for parent in parents)]


def leaves_to_nodes(parents: list[NDArray[np.int64]], roots: int) -> list[NDArray[np.float64]]:
    """Return, for each level, the matrix from childless nodes ("leaves") to that level's sums."""
    sizes = sizes_of(parents, roots)
    childless = [np.bincount(p, minlength=s) == 0 for p, s in zip(parents, sizes, strict=False)]
    childless.append(np.ones(sizes[-1], dtype=bool))
    total = sum(int(c.sum()) for c in childless)
    matrices: list[NDArray[np.float64]] = []
    column = total
    for level in range(len(sizes) - 1, -1, -1):
        matrix = np.zeros((sizes[level], total))
        places = np.flatnonzero(childless[level])
        column -= places.size
        matrix[places, column + np.arange(places.size)] = 1
        if level < len(sizes) - 1:
            np.add.at(matrix, parents[level], matrices[0])
        matrices.insert(0, matrix)
    return matrices


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_estimates_equal_dense_weighted_least_squares(seed: int, ragged: bool) -> None:
    rng = RNG(seed)
    parents = random_tree(rng, ragged)
    roots = int(parents[0].max()) + 1
    sizes = sizes_of(parents, roots)
    levels = [rng.normal(size=n) * 10 for n in sizes]
    variances = [rng.uniform(0.1, 9, n) if ragged else rng.uniform(0.1, 9) for n in sizes]
    matrices = leaves_to_nodes(parents, roots)
    weights = np.concatenate(
        [1 / np.sqrt(np.broadcast_to(v, n)) for v, n in zip(variances, sizes, strict=True)]
    )
    dense = np.linalg.lstsq(
        np.concatenate(matrices) * weights[:, None], np.concatenate(levels) * weights, rcond=None
    )[0]
    seen = least_squares(levels, parents, variances)
    for values, matrix in zip(seen, matrices, strict=True):
        np.testing.assert_allclose(values, matrix @ dense, atol=1e-9)


def test_known_total_equals_constrained_dense_solution() -> None:
    rng = RNG(5)
    parents = [np.repeat(np.arange(4), 3), np.repeat(np.arange(12), 2)]
    levels = [rng.normal(size=n) for n in (4, 12, 24)]
    variances = [2.0, 1.0, 5.0]
    matrices = leaves_to_nodes(parents, 4)
    # A total that weighs 10^12 times as much as anything else: the constraint, to 10^-9.
    weights = np.concatenate(
        [np.full(n, v**-0.5) for n, v in zip((4, 12, 24), variances, strict=True)]
    )
    rows = np.concatenate([np.concatenate(matrices) * weights[:, None], np.full((1, 24), 1e6)])
    right = np.concatenate([np.concatenate(levels) * weights, [100e6]])
    dense = np.linalg.lstsq(rows, right, rcond=None)[0]
    seen = least_squares(levels, parents, variances, total=100)
    np.testing.assert_allclose(seen[2], dense, atol=1e-6)
    assert seen[0].sum() == pytest.approx(100)


def test_unmeasured_levels_and_exact_nodes_are_the_limits_of_large_and_small_variances() -> None:
    rng = RNG(6)
    parents = [np.repeat(np.arange(3), 4), np.repeat(np.arange(12), 2)]
    levels = [rng.normal(size=n) for n in (3, 12, 24)]
    limit = least_squares(levels, parents, [0.0, math.inf, 1.0])
    close = least_squares(levels, parents, [1e-12, 1e12, 1.0])
    for exact, near in zip(limit, close, strict=True):
        np.testing.assert_allclose(exact, near, atol=1e-9)
    np.testing.assert_array_equal(limit[0], levels[0])
    # What is said of an unmeasured level is not read.
    broken = [levels[0], np.full(12, np.nan), levels[2]]
    for exact, same in zip(
        limit, least_squares(broken, parents, [0.0, math.inf, 1.0]), strict=True
    ):
        np.testing.assert_array_equal(exact, same)


def test_unmeasured_leaves_share_what_their_measured_parent_has() -> None:
    parents = [np.array([0, 0, 1, 1])]
    levels = least_squares([[10.0, 4.0], np.zeros(4)], parents, [1.0, [math.inf] * 2 + [1.0] * 2])
    np.testing.assert_allclose(levels[1][:2], [5, 5])
    np.testing.assert_allclose(levels[1][2:].sum(), levels[0][1])


def test_consistent_values_pass_unchanged() -> None:
    parents = [np.repeat(np.arange(2), 3)]
    leaves = np.array([1.0, 2, 3, 4, 5, 6])
    seen = least_squares([[6.0, 15.0], leaves], parents, [1.0, 1.0])
    np.testing.assert_allclose(seen[1], leaves)


def test_variance_of_estimates_is_that_of_the_dense_map() -> None:
    parents = [np.repeat(np.arange(2), 3), np.repeat(np.arange(6), 2)]
    matrices = leaves_to_nodes(parents, 2)
    weights = np.concatenate([np.full(n, 1 / v) for n, v in ((2, 3.0), (6, 1.0), (12, 2.0))])
    stacked = np.concatenate(matrices)
    covariance = np.linalg.inv(stacked.T @ (stacked * weights[:, None]))
    _, spreads = combine_upwards([np.zeros(2), np.zeros(6), np.zeros(12)], parents, [3.0, 1.0, 2.0])
    roots = matrices[0] @ covariance @ matrices[0].T
    np.testing.assert_allclose(np.diag(roots), spreads[0])


def weighted_error(
    values: list[NDArray[np.float64]], truth: list[NDArray[np.float64]], variances: list[float]
) -> float:
    parts = zip(values, truth, variances, strict=True)
    return sum(float(np.sum((v - t) ** 2)) / variance for v, t, variance in parts)


@pytest.mark.parametrize("seed", range(2))
def test_weighted_error_never_exceeds_the_noise(seed: int) -> None:
    """A projection moves no nearer point farther away; the control averages, and does."""
    rng = RNG(seed)
    worse_control = 0
    for _ in range(50):
        parents = random_tree(rng, ragged=True)
        roots = int(parents[0].max()) + 1
        matrices = leaves_to_nodes(parents, roots)
        leaves = rng.integers(0, 50, matrices[0].shape[1])
        truth = [matrix @ leaves for matrix in matrices]
        variances = [float(rng.uniform(0.5, 4)) for _ in truth]
        noisy = [
            t + rng.laplace(size=t.size) * math.sqrt(v / 2)
            for t, v in zip(truth, variances, strict=True)
        ]
        seen = least_squares(noisy, parents, variances)

        noise = weighted_error(noisy, truth, variances)
        assert weighted_error(seen, truth, variances) <= noise * (1 + 1e-12)
        flat = [level.mean() + 0 * level for level in noisy]
        worse_control += weighted_error(flat, truth, variances) > noise
    assert worse_control > 25


@pytest.mark.parametrize(
    ("levels", "parents", "variances", "words"),
    [
        ([[1.0], [1.0]], [], [1.0, 1.0], "needs 1 arrays of parents"),
        ([[1.0], [1.0]], [[1]], [1.0, 1.0], "without a parent"),
        ([[1.0], [1.0]], [[-1]], [1.0, 1.0], "without a parent"),
        ([[1.0], [1.0]], [[0, 0]], [1.0, 1.0], "without a parent"),
        ([[1.0], [1.0]], [[0]], [1.0, -1.0], "at least 0"),
        ([[1.0], [1.0]], [[0]], [1.0, math.nan], "at least 0"),
        ([], [], [], "needs 0 arrays"),
    ],
)
def test_wrong_trees_are_refused(
    levels: list[list[float]], parents: list[list[int]], variances: list[float], words: str
) -> None:
    places = [np.array(parent) for parent in parents]
    with pytest.raises(ValueError, match=words):
        least_squares(levels, places, variances)
