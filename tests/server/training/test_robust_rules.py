"""Robust rules: what the papers say, by slow loops; no order of clients that shows."""

import math
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from flwr.app import ArrayRecord, RecordDict
from flwr.serverapp.strategy.bulyan import aggregate_n_closest_weights
from flwr.serverapp.strategy.fedtrimmedavg import trim_mean
from flwr.serverapp.strategy.multikrum import select_multikrum
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from zerosum.server.training import robust_rules

RULES: dict[str, Callable[..., np.ndarray]] = {
    "mean": robust_rules.mean,
    "median": robust_rules.median,
    "trimmed-mean": partial(robust_rules.trimmed_mean, malicious=2),
    "krum": partial(robust_rules.krum, malicious=2),
    "multi-krum": partial(robust_rules.multi_krum, malicious=2),
    "bulyan": partial(robust_rules.bulyan, malicious=2),
    "geometric-median": robust_rules.geometric_median,
    "fltrust": partial(robust_rules.fltrust, reference=[1.0, 2.0, -1.0]),
    "norm-bound": partial(robust_rules.norm_bound, bound=3.0),
}


def draw(n=13, d=3, seed=0):
    """Return contributions around (1, 2, -1, ...), none far off."""
    centre = np.resize([1.0, 2.0, -1.0], d)
    return centre + 0.3 * np.random.default_rng(seed).normal(size=(n, d))


def squared(a, b):
    return sum((x - y) ** 2 for x, y in zip(a, b, strict=True))


def slow_krum_order(rows, f, among):
    """Return indices by Krum's score within ``among``, by loops."""
    scores = {}
    for i in among:
        away = sorted(squared(rows[i], rows[j]) for j in among if j != i)
        scores[i] = sum(away[: max(1, len(among) - f - 2)])
    return sorted(among, key=scores.__getitem__)


def slow_picks(rows, f):
    # Where one neighbour makes a score, the nearest two always tie: the first by bytes is picked.
    rows = sorted(rows, key=np.ndarray.tobytes)
    left = list(range(len(rows)))
    picked: list[np.ndarray] = []
    while len(picked) < len(rows) - 2 * f:
        best = slow_krum_order(rows, f, left)[0]
        left.remove(best)
        picked.append(rows[best])
    return picked


def slow_bulyan(rows, f):
    picked, result = slow_picks(rows, f), []
    for values in zip(*picked, strict=True):
        middle = np.median(values)
        nearest = sorted(values, key=lambda value: abs(value - middle))
        result.append(np.mean(nearest[: len(picked) - 2 * f]))
    return result


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("f", [0, 1, 3])
def test_a_trimmed_mean_leaves_out_the_f_ends_of_each_coordinate(seed, f):
    rows = draw(seed=seed)
    kept = [sorted(column)[f : len(rows) - f] for column in rows.T]
    expected = [sum(values) / len(values) for values in kept]
    np.testing.assert_allclose(robust_rules.trimmed_mean(rows, f), expected, rtol=1e-12)


def test_a_trimmed_mean_leaves_out_f_whatever_n_is():
    """49 times 1/49 is below 1 in float64: scipy and Flower would trim nothing of 49."""
    rows = np.zeros((49, 1))
    rows[7] = 49.0
    assert trim_mean(rows, 1 / 49) == 1.0
    for n in range(3, 200):
        f = (n - 1) // 2
        rows = np.concatenate([np.full((f, 1), 1e30), np.full((n - f, 1), 2.0)])
        assert robust_rules.trimmed_mean(rows, f) == 2.0
        assert n == 2 * f + 1 or robust_rules.trimmed_mean(rows, f - 1) > 2.0 or f == 0


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("f", [0, 1, 4])
def test_krum_returns_the_contribution_with_the_least_score(seed, f):
    rows = draw(seed=seed, d=6)
    best = slow_krum_order(rows, f, list(range(len(rows))))
    np.testing.assert_array_equal(robust_rules.krum(rows, f), rows[best[0]])
    for selected in (1, 4, len(rows) - f):
        expected = rows[best[:selected]].mean(axis=0)
        np.testing.assert_allclose(robust_rules.multi_krum(rows, f, selected), expected, rtol=1e-12)
    np.testing.assert_array_equal(
        robust_rules.multi_krum(rows, f), robust_rules.multi_krum(rows, f, len(rows) - f)
    )


@pytest.mark.parametrize("seed", range(3))
def test_multi_krum_is_flowers_where_nothing_cancels(seed):
    rows = draw(seed=seed, d=6)
    records = [RecordDict({"arrays": ArrayRecord([row])}) for row in rows]
    chosen = select_multikrum(records, num_malicious_nodes=3, num_nodes_to_select=5)
    expected = np.mean(
        [cast(ArrayRecord, r["arrays"]).to_numpy_ndarrays()[0] for r in chosen], axis=0
    )
    np.testing.assert_allclose(robust_rules.multi_krum(rows, 3, 5), expected, rtol=1e-12)


def test_krum_tells_contributions_apart_that_lie_far_from_zero():
    """Of squares near 2^60 a difference of squares near 2^-20 would have nothing left."""
    near = np.round(draw(n=9, d=4) * 2**10) / 2**10
    far = near + 2.0**30
    np.testing.assert_array_equal(far - 2.0**30, near)
    np.testing.assert_array_equal(robust_rules.krum(far, 2), robust_rules.krum(near, 2) + 2.0**30)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("n", "f"), [(7, 0), (7, 1), (11, 2), (17, 3)])
def test_bulyan_picks_by_krum_anew_and_averages_the_middle(n, f, seed):
    rows = draw(n=n, seed=seed)
    np.testing.assert_allclose(robust_rules.bulyan(rows, f), slow_bulyan(rows, f), rtol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_the_second_step_of_bulyan_is_flowers(seed):
    rows = draw(n=11, seed=seed)
    picked = [[row] for row in slow_picks(rows, 2)]
    middle = [np.median([row for (row,) in picked], axis=0)]
    (expected,) = aggregate_n_closest_weights(middle, picked, 3)
    np.testing.assert_allclose(robust_rules.bulyan(rows, 2), expected, rtol=1e-12)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_the_geometric_median_has_the_least_sum_of_distances(seed, scale):
    rows = draw(n=9, seed=seed)
    rows[:3] += 50.0

    def total(point):
        return np.linalg.norm(rows - point, axis=1).sum()

    best = minimize(total, rows.mean(axis=0), method="Nelder-Mead", tol=1e-12).x
    found = robust_rules.geometric_median(scale * rows) / scale
    np.testing.assert_allclose(found, best, atol=1e-5)
    assert total(found) <= total(best) + 1e-9
    assert total(rows.mean(axis=0)) > total(found) + 1.0


def test_a_geometric_median_on_a_contribution_is_found():
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    np.testing.assert_allclose(robust_rules.geometric_median(corners + 3.0), [3.0, 3.0], atol=1e-9)
    majority = np.array([[1.0, 2.0]] * 3 + [[1e20, -1e20]] * 2)
    np.testing.assert_array_equal(robust_rules.geometric_median(majority), [1.0, 2.0])


def test_fltrust_weighs_by_cosine_and_scales_to_the_servers_norm():
    rows, own = draw(n=6, seed=4), np.array([0.5, 0.1, -0.2])
    rows[2] *= -100.0  # against the reference: no weight
    rows[4] = 0.0  # no direction
    weighed, weights = np.zeros(3), 0.0
    for row in rows:
        size = math.sqrt(sum(row**2))
        if size == 0:
            continue
        trust = max(0.0, sum(row * own) / (size * math.sqrt(sum(own**2))))
        weighed += trust * row / size * math.sqrt(sum(own**2))
        weights += trust
    np.testing.assert_allclose(robust_rules.fltrust(rows, own), weighed / weights, rtol=1e-12)


def test_fltrust_stays_where_nobody_is_like_the_server():
    own = np.array([1.0, 2.0, -1.0])
    for rows, reference in ((-draw(), own), (np.zeros((4, 3)), own), (draw(), 0 * own)):
        np.testing.assert_array_equal(robust_rules.fltrust(rows, reference), np.zeros(3))


def test_a_norm_bound_scales_down_and_never_up():
    rows = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    np.testing.assert_allclose(robust_rules.norm_bound(rows, 1.0), [0.3, 0.4], rtol=1e-12)
    np.testing.assert_allclose(robust_rules.norm_bound(rows, 5.0), rows.mean(axis=0), rtol=1e-12)


few_values = st.integers(-2, 2).map(float)
rows_with_ties = st.lists(st.tuples(few_values, few_values, few_values), min_size=11, max_size=13)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(RULES))
@given(data=st.data(), rows=rows_with_ties)
def test_no_order_of_contributions_changes_a_bit(name, data, rows):
    other = data.draw(st.permutations(rows))
    assert RULES[name](rows).tobytes() == RULES[name](other).tobytes()


@pytest.mark.parametrize("name", list(RULES))
def test_where_all_agree_the_average_is_what_they_say(name):
    rows = np.tile([0.5, 1.0, -0.5], (11, 1))
    expected = 2 * rows[0] if name == "fltrust" else rows[0]  # the server's own is twice as long
    np.testing.assert_allclose(RULES[name](rows), expected, rtol=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", list(RULES))
def test_two_of_thirteen_ruin_the_mean_and_nothing_else(name, seed):
    rows = draw(seed=seed)
    honest = rows[2:].mean(axis=0)
    rows[0], rows[1] = -1e25, 1e24
    if name == "mean":
        assert np.linalg.norm(RULES[name](rows) - honest) > 1e23
    else:
        # A norm bound lets two clients of norm 3 each move an average of thirteen by 6/13 a part.
        assert np.linalg.norm(RULES[name](rows) - honest) < 1.2


@pytest.mark.parametrize("name", ["trimmed-mean", "krum", "multi-krum", "bulyan"])
def test_a_rule_refuses_fewer_contributions_than_it_needs(name):
    needed = robust_rules.fewest(name, 2)
    assert RULES[name](draw(n=needed)).shape == (3,)
    with pytest.raises(ValueError, match=f"needs {needed}"):
        RULES[name](draw(n=needed - 1))


def test_what_each_rule_needs_is_what_its_paper_says():
    assert [robust_rules.fewest(name, 3) for name in ("trimmed-mean", "krum", "bulyan")] == [
        7,
        9,
        15,
    ]
    assert robust_rules.fewest("multi-krum", 3, 2) == 9
    assert robust_rules.fewest("multi-krum", 3, 20) == 23
    assert {robust_rules.fewest(name) for name in ("median", "geometric-median", "norm-bound")} == {
        1
    }


@pytest.mark.parametrize("name", list(RULES))
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused(name, bad):
    rows = draw()
    rows[4, 1] = bad
    with pytest.raises(ValueError, match="not finite"):
        RULES[name](rows)


@pytest.mark.parametrize("name", list(RULES))
@pytest.mark.parametrize("rows", [np.zeros((0, 3)), np.zeros(3), np.zeros((4, 0))])
def test_what_is_no_table_of_contributions_is_refused(name, rows):
    with pytest.raises(ValueError, match="contributions"):
        RULES[name](rows)


@pytest.mark.parametrize("bound", [0.0, -1.0, math.nan])
def test_a_norm_bound_is_above_zero(bound):
    with pytest.raises(ValueError, match="not above 0"):
        robust_rules.norm_bound(draw(), bound)


@pytest.mark.parametrize("reference", [np.zeros(2), np.full(3, math.nan)])
def test_a_reference_that_does_not_fit_is_refused(reference):
    with pytest.raises(ValueError, match="reference"):
        robust_rules.fltrust(draw(), reference)


def test_the_code_of_the_page_runs_and_shows_no_liar(capsys):
    page = Path(__file__).parents[3] / "docs" / "robust-rules.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    exec(compile(code, str(page), "exec"), {})  # noqa: S102
    assert capsys.readouterr().out == "[1.  2.1] [1.  2.1]\n"
