"""Figures and their intervals, against other ways of computing them."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score, roc_curve

from zerosum.simulations.attacks.harness.metrics import (
    Mean,
    Proportion,
    Ranking,
    area_within,
    correlations,
    psnr,
    rate,
    rate_within,
)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_the_area_is_that_of_an_independent_library(rng):
    labels = rng.random(200) < 0.4
    scores = np.round(rng.normal(size=200) + labels, 1)  # with ties
    figure = Ranking(scores, labels).figure()
    assert figure.value == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    assert figure.low < figure.value < figure.high


def test_the_rate_is_the_curves_at_that_point(rng):
    labels = rng.random(5000) < 0.5
    scores = rng.normal(size=5000) + labels
    false, true, _ = roc_curve(labels, scores, drop_intermediate=False)
    wanted = true[np.searchsorted(false, 0.01, side="right") - 1]
    found = rate(scores[labels], scores[~labels], 0.01)
    assert found == pytest.approx(wanted, abs=1e-12)


def test_equal_scores_tell_nothing(rng):
    labels = np.arange(10) < 5
    assert Ranking(np.zeros(10), labels).figure().value == 0.5
    assert Ranking(np.zeros(10), labels, at=0.01).figure().value == pytest.approx(0.01)


def test_a_proportion_that_never_came_true_still_has_an_upper_end(rng):
    figure = Proportion(np.zeros(30, dtype=bool)).figure()
    assert (figure.value, figure.low) == (0, 0)
    assert figure.high == pytest.approx(1 - 0.025 ** (1 / 30))  # Clopper and Pearson, k = 0


def test_the_interval_of_an_area_is_the_wider_of_two_on_either_side(rng):
    """By hand, of scores of equal shapes Newcombe's, and of a few far off the logit's."""
    labels = np.arange(60) < 30
    scores = rng.normal(size=60) + labels
    figure = Ranking(scores, labels).figure()
    # Newcombe's equation at its own ends: the distance is z deviations of an area that lies there.
    for end in (figure.low, figure.high):
        assert abs(figure.value - end) / hanley_and_mcneil(end, 30) >= 1.9599
    far = np.where(np.arange(30) < 3, -9.0, 9.0) + rng.random(30)
    low, _ = area_within(far, rng.random(30))
    assert abs(0.9 - low) / hanley_and_mcneil(low, 30) > 2.5
    jackknifed = 0.3 / np.sqrt(29)  # what is left of DeLong's variance: three of 30 members
    assert low == pytest.approx(1 / (1 + np.exp(-np.log(9) + 1.96 * jackknifed / 0.09)), abs=1e-3)


def hanley_and_mcneil(area, n):
    q1, q2 = area / (2 - area), 2 * area**2 / (1 + area)
    variance = area * (1 - area) + (n - 1) * (q1 - area**2) + (n - 1) * (q2 - area**2)
    return np.sqrt(variance) / n


@pytest.mark.parametrize("at", [None, 0.01])
def test_telling_all_apart_is_no_certainty(rng, at):
    labels = np.arange(2000) < 1000
    few, many = (Ranking(1.0 * labels[s], labels[s], at) for s in (slice(970, 1030), slice(None)))
    assert few.figure().value == 1 == few.figure().high
    assert few.figure().low < 0.9  # 0.025^(1 / 30) of 30 pairs
    assert 0.98 < many.figure().low < 1
    if at is None:
        assert few.figure().low == pytest.approx(0.025 ** (1 / 30))
        none = Ranking(-1.0 * few.scores, few.labels).figure()
        assert (none.value, none.low) == (0, 0)
        assert none.high == pytest.approx(1 - 0.025 ** (1 / 30))


def test_too_few_others_say_nothing_of_a_false_alarm_in_a_hundred():
    """Of 367 others none need be above the true threshold (0.99^367 > 2.5 %); of 368 one is."""
    members = np.full(400, 2.0)
    assert rate_within(members, np.linspace(0, 1, 367), 0.01)[0] == 0
    assert rate_within(members, np.linspace(0, 1, 368), 0.01)[0] > 0.98


def test_scores_that_say_nothing_are_within_what_coins_give(rng):
    labels = np.arange(1200) < 600
    figure = Ranking(np.zeros(1200), labels, at=0.01).figure()
    assert figure.low <= 0.01 <= figure.high
    area = Ranking(np.zeros(1200), labels).figure()
    assert 0.46 < area.low < 0.5 < area.high < 0.54


def draws(rng, shape, n):
    """Return scores of n members and of n others, and the area that they are drawn from."""
    others = rng.normal(size=n)
    if shape == "alike":
        return rng.normal(size=n) + 1, others, stats.norm.cdf(1 / np.sqrt(2))
    if shape == "wide":
        return 3 * rng.normal(size=n) + 3, others, stats.norm.cdf(3 / np.sqrt(10))
    if shape == "nearly all":
        return rng.normal(size=n) + 3, others, stats.norm.cdf(3 / np.sqrt(2))
    return np.where(rng.random(n) < 0.05, -99, 99) + others, others, 0.95


@pytest.mark.statistical
@pytest.mark.parametrize("shape", ["alike", "wide", "nearly all", "a few far off"])
@pytest.mark.parametrize("n", [30, 200])
def test_an_area_s_interval_holds_it_whatever_the_shape(rng, shape, n):
    held = narrow = 0
    for _ in range(1000):
        members, others, truth = draws(rng, shape, n)
        low, high = area_within(members, others)
        held += low <= truth <= high
        middle, half = (low + high) / 2, (high - low) / 4
        narrow += middle - half <= truth <= middle + half
    assert held > 925  # 3.5 deviations below 95 %
    assert narrow < 925  # half as wide it would not do


@pytest.mark.statistical
@pytest.mark.parametrize("moved", [0.0, 1.0, 2.3, 4.0])
@pytest.mark.parametrize("n", [30, 600])
def test_a_rate_s_interval_holds_it_though_its_threshold_is_an_estimate(rng, moved, n):
    truth = stats.norm.sf(stats.norm.isf(0.01) - moved)
    held = known = 0
    for _ in range(1000):
        members, others = rng.normal(size=n) + moved, rng.normal(size=n)
        low, high = rate_within(members, others, 0.01)
        held += low <= truth <= high
        found = Proportion(members > np.sort(others)[-1 - int(0.01 * n)]).figure()
        known += found.low <= truth <= found.high
    assert held > 925
    if moved in (1.0, 2.3):
        assert known < 900  # Clopper and Pearson's, as if the threshold were known


@pytest.mark.statistical
def test_intervals_hold_the_truth_as_often_as_they_say(rng):
    held = {"proportion": 0, "mean": 0}
    for _ in range(300):
        figure = Proportion(rng.random(40) < 0.3).figure()
        held["proportion"] += figure.low <= 0.3 <= figure.high
        figure = Mean(rng.normal(size=8)).figure()
        held["mean"] += figure.low <= 0 <= figure.high
    for name, count in held.items():
        assert count > 0.88 * 300, name
    assert held["mean"] < 0.995 * 300  # an interval that always holds it would be too wide


def test_units_of_several_seeds_are_pooled_before_anything_is_computed(rng):
    one, two = Mean(np.array([1.0])), Mean(np.array([3.0]))
    assert one.figure().high == np.inf
    pooled = one.pooled([two]).figure()
    assert pooled.value == 2
    assert np.isfinite(pooled.high)
    first = Ranking(np.array([1.0, 0.0]), np.array([True, False]))
    second = Ranking(np.array([5.0, 6.0]), np.array([True, False]))
    assert first.pooled([second]).figure().value == 0.5  # members 1, 5; others 0, 6


def test_psnr_of_known_errors():
    truth = np.zeros((2, 1, 4, 4))
    guess = truth + np.array([0.1, 1.0])[:, None, None, None]
    np.testing.assert_allclose(psnr(guess, truth), [20, 0], atol=1e-12)
    assert psnr(truth, truth)[0] == 150


def test_correlations_are_pearson_s_and_zero_of_a_flat_image(rng):
    images, means = rng.random((3, 1, 4, 4)), rng.random((3, 1, 4, 4))
    images[2] = 0.5
    found = correlations(images, means)
    expected = np.corrcoef(images[0].ravel(), means[1].ravel())[0, 1]
    assert found[0, 1] == pytest.approx(expected)
    assert (found[2] == 0).all()
