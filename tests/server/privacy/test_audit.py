"""Bounds from guesses: valid against mechanisms whose epsilon is known, and zero for no guess."""

import math

import numpy as np
import pytest
from narrowed import present
from scipy.stats import binom

from zerosum.server.privacy.audit import (
    Guesses,
    TwoTests,
    epsilon_lower_bound,
    p_value,
    plan_guesses,
)


def test_without_delta_guesses_are_biased_coins() -> None:
    for epsilon in (0.0, 0.5, 2.0):
        q = math.exp(epsilon) / (1 + math.exp(epsilon))
        assert p_value(100, 60, 45, epsilon, 0.0) == pytest.approx(binom.sf(44, 60, q))


def test_delta_costs_confidence() -> None:
    # 2 m delta max_i P[v > B >= v - i] / i, by its definition.
    m, r, v, epsilon, delta = 50, 20, 15, 1.0, 1e-4
    q = math.exp(epsilon) / (1 + math.exp(epsilon))
    parts = [sum(binom.pmf(k, r, q) for k in range(v - i, v)) / i for i in range(1, v + 1)]
    expected = binom.sf(v - 1, r, q) + 2 * m * delta * max(parts)
    assert p_value(m, r, v, epsilon, delta) == pytest.approx(expected)


def test_the_bound_is_where_the_p_value_is_what_is_left_of_confidence() -> None:
    bound = epsilon_lower_bound(1000, 100, 85, delta=1e-5)
    assert p_value(1000, 100, 85, bound, 1e-5) == pytest.approx(0.05, rel=1e-3)
    assert epsilon_lower_bound(1000, 100, 85, delta=1e-5, confidence=0.999) < bound
    assert epsilon_lower_bound(1000, 100, 86, delta=1e-5) > bound


def test_half_right_says_nothing_and_a_large_delta_neither() -> None:
    assert epsilon_lower_bound(1000, 100, 50, delta=1e-5) == 0
    assert epsilon_lower_bound(1000, 142, 127, delta=1e-5) > 1.5
    assert epsilon_lower_bound(1000, 142, 127, delta=1e-3) < 0.9


def test_all_right_says_the_more_the_more_guesses() -> None:
    bounds = [epsilon_lower_bound(10_000, r, r, delta=0.0) for r in (10, 100, 1000)]
    assert bounds == sorted(bounds)
    # r coins of bias q are all right with probability q^r = 0.05.
    q = 0.05 ** (1 / 100)
    assert bounds[1] == pytest.approx(math.log(q / (1 - q)), rel=1e-6)


@pytest.mark.parametrize("arguments", [(10, 11, 5), (10, 5, 6), (10, 5, -1)])
def test_impossible_counts_are_refused(arguments: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="guesses right"):
        p_value(*arguments, 1.0, 1e-5)


def test_guesses_take_the_highest_and_the_lowest_scores() -> None:
    guesses = Guesses(included=2, excluded=1)
    scores = [0.9, 0.1, 0.5, 0.8, 0.2]
    assert guesses.total == 3
    assert guesses.correct(scores, [True, False, True, True, False]) == 3
    assert guesses.correct(scores, [False, True, True, False, True]) == 0
    # Slots in the middle are not guessed.
    assert guesses.correct(scores, [True, False, False, True, True]) == 3


@pytest.mark.slow
def test_counts_are_planned_from_the_settings_alone() -> None:
    one, two = (plan_guesses(1000, 1.0, delta=1e-5) for _ in range(2))
    assert one == two
    assert one.included == one.excluded
    assert 60 <= one.total <= 400
    # Where nothing is hidden everything is guessed.
    assert plan_guesses(1000, 0.01, delta=1e-9).total > 900


@pytest.mark.slow
def test_a_second_count_could_contradict_the_upper_bound() -> None:
    test = TwoTests.of(1000, 1.0, 4.753, delta=1e-5)
    # As planned for honest noise, all guesses right show less than is allowed.
    few = epsilon_lower_bound(1000, test.guesses.total, test.guesses.total, delta=1e-5)
    assert few < 4.753 < test.disproof.largest == test.largest
    assert test.disproof.guesses.total > test.guesses.total
    assert 0.2 < present(test.disproof.detects) < 0.4


@pytest.mark.slow
def test_too_few_slots_cannot_contradict_it() -> None:
    test = TwoTests.of(100, 1.0, 4.753, delta=1e-5)
    assert test.largest < 4.753
    assert test.disproof.detects is None


@pytest.mark.slow
def test_two_bounds_at_half_the_risk_each_hold_together() -> None:
    test = TwoTests.of(400, 2.0, 2.0, delta=1e-5, confidence=0.9)
    scores = np.arange(400.0)
    coins = scores >= 200
    bound, correct = test.bound(scores, coins)
    assert correct == (test.guesses.total, test.disproof.guesses.total)
    each = [
        epsilon_lower_bound(400, count, count, delta=1e-5, confidence=0.95) for count in correct
    ]
    assert bound == max(each) == test.largest


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_randomised_response_is_not_overstated(epsilon: float) -> None:
    """Each coin is told rightly with probability e^epsilon/(1+e^epsilon): the worst case itself."""
    rng = np.random.default_rng(7)
    q = math.exp(epsilon) / (1 + math.exp(epsilon))
    bounds = []
    for _ in range(300):
        coins = rng.random(400) < 0.5
        told = np.where(rng.random(400) < q, coins, ~coins)
        correct = Guesses(50, 50).correct(told + 0.01 * rng.random(400), coins)
        bounds.append(epsilon_lower_bound(400, 100, correct, delta=0.0))
    # 95 % confidence: about 15 of 300 exceed it; 40 would happen once in ten million times.
    assert sum(bound > epsilon for bound in bounds) < 40
    assert np.median(bounds) > 0.8 * epsilon - 0.4
