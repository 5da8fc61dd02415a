"""Quantiles of noisy trees: against numpy without noise, dense covariances, and at the extremes."""

import math

import numpy as np
import pytest
from released_queries import STILL, exact

from zerosum.client.queries.query import Quantile
from zerosum.client.queries.schema import IntegerColumn, NumberColumn, Schema
from zerosum.client.queries.table import Table
from zerosum.server.analytics.consistency import combine_upwards
from zerosum.server.analytics.noise_law import ReleasedNoise
from zerosum.server.analytics.quantiles import (
    LeafCounts,
    excess_rank_deviations,
    excess_ranks,
    leaf_counts,
    leaf_ends,
    likeliest_leaf,
    possible_leaves,
)

QS = (0.001, 0.1, 0.25, 0.5, 0.75, 0.9, 0.999)
CELLS = 16 + 256 + 4096


def tree(
    column: IntegerColumn | NumberColumn, values: list[float], noise: ReleasedNoise = STILL
) -> LeafCounts:
    schema = Schema(columns={"x": column})
    query = Quantile(column="x", q=(0.5,))
    return leaf_counts(exact(query, Table.of({"x": values}, schema)), noise, column)


@pytest.mark.parametrize("q", QS)
def test_integers_without_noise_are_numpys_quantiles(q: float) -> None:
    x = np.random.default_rng(1).integers(17, 91, 5000)
    leaves = tree(IntegerColumn(low=17, high=90), x.tolist())
    expected = np.quantile(x, q, method="inverted_cdf")
    assert leaves.quantile(q) == expected
    assert leaves.interval(q, 0.95) == (expected, expected)


@pytest.mark.parametrize("q", QS)
def test_numbers_without_noise_are_within_half_a_leaf(q: float) -> None:
    x = np.random.default_rng(2).normal(size=5000)
    leaves = tree(NumberColumn(low=-5.0, high=5.0), x.tolist())
    expected = np.quantile(x, q, method="inverted_cdf")
    assert abs(leaves.quantile(q) - expected) <= 5 / 4096
    low, high = leaves.interval(q, 0.95)
    assert low <= expected <= high <= low + 10 / 4096 + 1e-12


@pytest.mark.parametrize("size", [2, 74, 4096, 4097, 10_000, 2**53])
def test_leaves_of_integers_hold_each_integer_once(size: int) -> None:
    column = IntegerColumn(low=-size // 2, high=-size // 2 + size - 1)
    lows, highs = leaf_ends(column, 4096)
    filled = np.isfinite(lows)
    assert lows[filled][0] == column.low
    assert highs[filled][-1] == column.high
    np.testing.assert_array_equal(lows[filled][1:], highs[filled][:-1] + 1)
    assert filled.sum() == min(size, 4096)


def test_known_empty_leaves_take_no_noise() -> None:
    """74 ages fill 74 of 4,096 leaves; noise in the others is known to be noise."""
    noise = ReleasedNoise("geometric", 30.0)
    rng = np.random.default_rng(3)
    noisy = rng.integers(-50, 50, CELLS)
    leaves = leaf_counts(noisy, noise, IntegerColumn(low=17, high=90))
    assert leaves.counts.size == 74
    again = noisy.copy()
    again[16 + 256 + 74 :] += rng.integers(-50, 50, 4096 - 74)
    np.testing.assert_array_equal(
        leaf_counts(again, noise, IntegerColumn(low=17, high=90)).counts, leaves.counts
    )
    # 4,096 integers have no such leaves, and N is less certain.
    whole = leaf_counts(noisy, noise, IntegerColumn(low=0, high=4095))
    assert leaves.records_std < 0.6 * whole.records_std


@pytest.mark.parametrize("q", [0.1, 0.5, 0.8])
def test_deviations_of_ranks_are_those_of_the_dense_covariance(q: float) -> None:
    parents = [np.repeat(np.arange(3), 2), np.array([0, 0, 0, 1, 2, 2, 3, 4, 4, 5, 5, 5])]
    leaves = np.array([1.0, 3, 1, 1, 0, 2, 1, 1, 1, 0, 0, 0])
    levels = [np.zeros(3), np.zeros(6), np.zeros(12)]
    _, spreads = combine_upwards(levels, parents, [2.0, 1.0, leaves])
    seen = excess_rank_deviations(parents, spreads, q)
    # Dense: exact leaves get a variance of 10^-9; the covariance is (A^T W A)^-1.
    middle = (parents[1] == np.arange(6)[:, None]).astype(float)
    top = (parents[0] == np.arange(3)[:, None]) @ middle
    rows = np.concatenate([top, middle, np.eye(12)])
    weights = 1 / np.concatenate([np.full(3, 2.0), np.ones(6), np.maximum(leaves, 1e-9)])
    covariance = np.linalg.inv(rows.T @ (rows * weights[:, None]))
    functions = np.tril(np.ones((13, 12)), -1) - q
    dense = np.sqrt(np.einsum("ij,jk,ik->i", functions, covariance, functions))
    np.testing.assert_allclose(seen, dense, atol=1e-4)


def test_least_squares_ranks_are_surer_than_summed_leaves() -> None:
    leaves = leaf_counts(np.zeros(CELLS, dtype=np.int64), STILL, IntegerColumn(low=0, high=4095))
    tree_sd = excess_rank_deviations(leaves.parents, leaves.spreads, 0.5)
    flat_sd = np.sqrt(np.arange(4097) * 0.25 + (4096 - np.arange(4097)) * 0.25)
    assert tree_sd.max() < 0.2 * flat_sd.max()


def test_likeliest_leaf_is_where_most_ranks_are_passed() -> None:
    assert likeliest_leaf(excess_ranks(np.array([1.0, 1, 1, 1]), 0.5)) == 1
    assert likeliest_leaf(excess_ranks(np.array([1.0, 1, 1, 1]), 0.51)) == 2
    # One rank above 0 among many below is noise, and so is one below 0 among many above.
    assert likeliest_leaf(np.array([-9.0, -8, 1, -8, -7, 3, 9])) == 4
    assert likeliest_leaf(np.array([-9.0, -8, 7, 8, -1, 8, 9])) == 1


def test_possible_leaves_are_all_that_are_not_ruled_out() -> None:
    excess = np.array([-9.0, -6, -1, 1, 2, 9])
    assert possible_leaves(excess, np.zeros(6)) == (2, 2)
    assert possible_leaves(excess, np.full(6, 1.5)) == (1, 3)
    assert possible_leaves(excess, np.full(6, 100.0)) == (0, 4)
    # One beyond a leaf that is ruled out counts too: noise may have passed 0 before the records do.
    dented = np.array([-9.0, 1, 5, 0, 0, 9])
    assert possible_leaves(dented, np.full(6, 1.5)) == (0, 4)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [3.0, 30.0])
def test_intervals_cover_where_few_records_lie(scale: float) -> None:
    # In the tails hundreds of leaves are empty: an interval that ended at the first leaf that noise
    # rules out held the first percentile in none of these trees.
    rng, column = np.random.default_rng(8), NumberColumn(low=-5.0, high=5.0)
    x = rng.normal(size=1000)
    truth = exact(
        Quantile(column="x", q=(0.5,)),
        Table.of({"x": x.tolist()}, Schema(columns={"x": column})),
    )
    noise = ReleasedNoise("geometric", scale)
    ends = []
    for _ in range(40):
        drawn = rng.geometric(1 - math.exp(-1 / scale), (2, CELLS))
        leaves = leaf_counts(truth + drawn[0] - drawn[1], noise, column)
        ends.append([leaves.interval(q, 0.95) for q in QS])
    low, high = np.moveaxis(np.array(ends), 2, 0)
    held = np.quantile(x, QS, method="inverted_cdf")
    spoken = np.isfinite(low[:, 0])
    assert spoken.sum() >= 20
    covered = ((low <= held) & (held <= high))[spoken].mean(axis=0)
    assert covered.min() >= 0.9


@pytest.mark.slow
def test_intervals_cover_where_few_records_lie_in_many_leaves() -> None:
    """442 records in 351 leaves: noise passes the rank of a quantile far below the least record."""
    noise = ReleasedNoise("geometric", 12.0, 1.5)
    column = IntegerColumn(low=50, high=400)
    rng = np.random.default_rng(5)
    x = np.clip(rng.normal(187, 35, 442).astype(np.int64), 97, 301)
    query = Quantile(column="x", q=(0.5,))
    cells = exact(query, Table.of({"x": x.tolist()}, Schema(columns={"x": column})))
    truth, inside, errors = np.quantile(x, 0.25, method="inverted_cdf"), 0, []
    for _ in range(200):
        added, taken = rng.negative_binomial(1.5, 1 - math.exp(-1 / 12), (2, CELLS))
        leaves = leaf_counts(cells + added - taken, noise, column)
        low, high = leaves.interval(0.25, 0.95)
        inside += bool(low <= truth <= high)
        errors.append(abs(leaves.quantile(0.25) - truth))
    assert inside >= 0.95 * 200
    assert np.mean(errors) < 12


def test_no_records_have_no_quantiles() -> None:
    noise = ReleasedNoise("geometric", 3.0, 1.25)
    for noisy in (np.zeros(CELLS), np.full(CELLS, -40), 0 * np.ones(CELLS)):
        leaves = leaf_counts(noisy.astype(np.int64), noise, NumberColumn(low=0.0, high=1.0))
        assert leaves.too_few
        assert math.isnan(leaves.quantile(0.5))
        assert all(math.isnan(end) for end in leaves.interval(0.5, 0.95))
        assert leaves.atom(0.5, 0.95) is None


def test_one_record_is_all_quantiles_without_noise_and_none_with_it() -> None:
    column = IntegerColumn(low=0, high=9)
    still = tree(column, [7])
    assert [still.quantile(q) for q in QS] == [7] * len(QS)
    assert tree(column, [7], ReleasedNoise("geometric", 3.0)).too_few


@pytest.mark.parametrize("value", [0, 9])
def test_all_records_at_an_end_of_the_domain_are_found_there(value: int) -> None:
    leaves = tree(IntegerColumn(low=0, high=9), [value] * 500, ReleasedNoise("geometric", 3.0))
    assert leaves.quantile(0.5) == value
    assert leaves.interval(0.5, 0.95) == (value, value)
    share, low, high = leaves.atom(0.5, 0.95) or (0, 0, 0)
    assert (round(share, 3), low, high) == (1, value, value)


def test_an_atom_is_named_and_a_crowd_is_not() -> None:
    noise = ReleasedNoise("geometric", 3.0, 1.25)
    rng = np.random.default_rng(4)
    spread = rng.integers(1, 100, 1_600)
    column = IntegerColumn(low=1, high=99)
    heaped = tree(column, [*spread.tolist(), *([40] * 1_400)], noise)
    share, low, high = heaped.atom(0.5, 0.95) or (0, 0, 0)
    assert share == pytest.approx(14 / 30, abs=0.01)
    assert (low, high) == (40, 40)
    assert tree(column, spread.tolist(), ReleasedNoise("geometric", 30.0)).atom(0.5, 0.95) is None
