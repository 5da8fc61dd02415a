"""Figures and their intervals, against other ways of computing them."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score, roc_curve

from zerosum.simulations.attacks.measures import Mean, Proportion, Ranking, psnr, rate


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_the_area_is_that_of_an_independent_library(rng):
    labels = rng.random(200) < 0.4
    scores = np.round(rng.normal(size=200) + labels, 1)  # with ties
    figure = Ranking(scores, labels).figure(rng)
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
    assert Ranking(np.zeros(10), labels).figure(rng).value == 0.5
    assert Ranking(np.zeros(10), labels, at=0.01).figure(rng).value == pytest.approx(0.01)


def test_a_proportion_that_never_came_true_still_has_an_upper_end(rng):
    figure = Proportion(np.zeros(30, dtype=bool)).figure(rng)
    assert (figure.value, figure.low) == (0, 0)
    assert figure.high == pytest.approx(1 - 0.025 ** (1 / 30))  # Clopper and Pearson, k = 0


@pytest.mark.statistical
def test_intervals_hold_the_truth_as_often_as_they_say(rng):
    held = {"proportion": 0, "mean": 0, "area": 0}
    labels = np.arange(60) < 30
    for _ in range(300):
        figure = Proportion(rng.random(40) < 0.3).figure(rng)
        held["proportion"] += figure.low <= 0.3 <= figure.high
        figure = Mean(rng.normal(size=8)).figure(rng)
        held["mean"] += figure.low <= 0 <= figure.high
        figure = Ranking(rng.normal(size=60) + labels, labels).figure(rng)
        held["area"] += figure.low <= 0.7602499 <= figure.high  # Phi(1 / sqrt 2)
    for name, count in held.items():
        assert count > 0.88 * 300, name
    assert held["mean"] < 0.995 * 300  # an interval that always holds it would be too wide


def test_units_of_several_seeds_are_pooled_before_anything_is_computed(rng):
    one, two = Mean(np.array([1.0])), Mean(np.array([3.0]))
    assert one.figure(rng).high == np.inf
    pooled = one.pooled([two]).figure(rng)
    assert pooled.value == 2
    assert np.isfinite(pooled.high)
    first = Ranking(np.array([1.0, 0.0]), np.array([True, False]))
    second = Ranking(np.array([5.0, 6.0]), np.array([True, False]))
    assert first.pooled([second]).figure(rng).value == 0.5  # members 1, 5; others 0, 6


def test_psnr_of_known_errors():
    truth = np.zeros((2, 1, 4, 4))
    guess = truth + np.array([0.1, 1.0])[:, None, None, None]
    np.testing.assert_allclose(psnr(guess, truth), [20, 0], atol=1e-12)
    assert psnr(truth, truth)[0] == 150
