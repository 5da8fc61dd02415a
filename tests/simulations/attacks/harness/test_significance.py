"""At baseline: an attack without an advantage is seldom above it, one that has some is."""

import numpy as np
import pytest
from scipy import stats

from zerosum.simulations.attacks.harness.metrics import Mean, Proportion, Ranking
from zerosum.simulations.attacks.harness.significance import FEWEST, is_above


def coins():
    return np.random.default_rng(0)


def above(guess, blind, higher=True):
    """Return whether one seed's units, or several seeds', are above those of the baseline."""
    guesses, baselines = (x if isinstance(x, list) else [x] for x in (guess, blind))
    return is_above(guesses, baselines, higher, coins())


def mean(*values):
    return Mean(np.array(values, dtype=float))


def hits(*values):
    return Proportion(np.array(values, dtype=bool))


def ranking(members, others, at=None):
    labels = np.arange(len(members) + len(others)) < len(members)
    return Ranking(np.concatenate([members, others]).astype(float), labels, at)


@pytest.mark.parametrize(
    "units",
    [
        mean(0.5, 0.5, 0.5),
        mean(0.0, 0.0),
        mean(10.0, 12.0, 9.0),
        hits(True, True, True, True),
        ranking(np.arange(10.0), np.arange(10.0) - 3),
    ],
)
@pytest.mark.parametrize("higher", [True, False])
def test_the_same_units_are_at_baseline(units, higher):
    assert not above(units, units, higher)


def test_what_only_rounding_tells_apart_is_at_baseline():
    values = np.full(30, 0.3)
    assert not above(Mean(values + 1e-15), Mean(values))


def test_a_difference_without_spread_is_an_advantage():
    assert above(mean(0.6, 0.6, 0.6), mean(0.5, 0.5, 0.5))
    assert above([mean(150.0)] * 3, [mean(12.0)] * 3)


@pytest.mark.parametrize("size", [1, 2])
def test_one_unit_says_nothing(size):
    assert not above(mean(100.0), mean(*[0.0] * size))


def test_a_small_gain_on_every_unit_is_seen_though_units_differ_widely():
    hard = np.random.default_rng(1).normal(20, 10, 60)
    gain = 0.5 + 0.1 * np.sin(np.arange(60))
    assert above(Mean(hard + gain), Mean(hard))
    assert not above(Mean(hard + gain), Mean(np.append(hard, hard.mean())))  # not the same units


def test_the_baselines_own_spread_counts():
    guess = Mean(np.array([10.0, 10.1, 9.9, 10.0]))
    assert not above(guess, Mean(np.array([2.0, 17.0, 9.0])))
    assert above(guess, Mean(np.array([9.0, 9.1, 8.9])))


def test_a_metric_of_which_less_is_better_counts_downwards():
    few, many = mean(1.0, 1.1, 0.9), mean(2.0, 2.1, 2.2)
    assert above(few, many, higher=False)
    assert not above(many, few, higher=False)
    assert not above(few, many)


@pytest.mark.parametrize(("won", "wanted"), [(4, False), (5, True)])
def test_fractions_of_the_same_units_are_compared_by_the_units_that_differ(won, wanted):
    blind = np.zeros(100, dtype=bool)
    guess = np.arange(100) < won
    assert (0.5 ** (won + 1) <= 0.025) == wanted  # half of the chance of so many heads alone
    assert above(Proportion(guess), Proportion(blind)) == wanted


def test_fractions_of_other_units_are_compared_as_two_samples():
    guess = Proportion(np.arange(40) < 30)
    assert above(guess, Proportion(np.arange(41) < 20))
    assert not above(guess, Proportion(np.arange(3) < 2))


@pytest.mark.parametrize(("units", "wanted"), [(2, False), (3, True)])
def test_what_always_happens_and_never_without_the_attack_takes_three_units(units, wanted):
    always, never = np.ones(units, dtype=bool), np.zeros(units, dtype=bool)
    assert (0.25**units <= 0.025) == wanted  # the likeliest of all equal rates is a half
    assert above([Proportion(always[:1])] * units, [Proportion(never[:1])] * units) == wanted


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize("n", [3, 4, 5, 6])
@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.7])
def test_few_fractions_without_an_advantage_are_above_baseline_seldom(n, rate):
    ends = [np.arange(n) < k for k in range(n + 1)]
    odds = stats.binom.pmf(range(n + 1), n, rate)
    called = [[above(Proportion(one), Proportion(two)) for two in ends] for one in ends]
    assert 0 < odds @ np.array(called, dtype=float) @ odds <= 0.025


def test_seeds_are_paired_one_by_one():
    # Equally many in all, and not the same in any seed: no pairs, and their spread counts.
    guesses = [mean(1.0, 9.0, 5.0), mean(5.1)]
    baselines = [mean(0.9), mean(8.9, 4.9, 5.0)]
    assert not above(guesses, baselines)
    assert above([mean(1.0, 9.0, 5.0), mean(5.1)], [mean(0.9, 8.9, 4.9), mean(5.0)])


def test_a_perfect_ranking_of_few_may_be_chance():
    few = FEWEST - 1
    constant = np.zeros(few)
    assert not above(ranking(np.ones(few), np.zeros(few)), ranking(constant, constant))
    enough = np.ones(FEWEST)
    assert above(ranking(enough, 0 * enough), ranking(enough, enough))


def test_a_rate_of_seven_times_the_false_alarms_is_above_a_constant_guess():
    others = np.linspace(0, 1, 600)
    found = ranking(np.concatenate([np.full(35, 2.0), others[:565]]), others, 0.01)
    constant = ranking(np.zeros(600), np.zeros(600), 0.01)
    assert constant.figure().value == 0.01
    assert above(found, constant)


def test_units_of_two_kinds_are_refused():
    with pytest.raises(TypeError, match="two kinds"):
        above(mean(1.0, 2.0), hits(True, False))


def means(rng, advantage, n, skewed):
    noise = rng.exponential(1.0, (2, n)) if skewed else rng.normal(0, 1, (2, n))
    shared = rng.normal(0, 2, n)
    return Mean(shared + noise[0] + advantage), Mean(shared + noise[1])


def fractions(rng, advantage, n):
    return Proportion(rng.random(n) < 0.3 + advantage / 5), Proportion(rng.random(n) < 0.3)


def rankings(rng, advantage, n, at, blind):
    labels = np.arange(2 * n) < n
    scores = rng.normal(0, 1, (2, 2 * n))
    scores[0, :n] += advantage
    guessed = scores[1] if blind == "random" else np.zeros(2 * n)
    return Ranking(scores[0], labels, at), Ranking(guessed, labels, at)


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize(
    ("draw", "arguments", "trials", "advantage"),
    [
        (means, (3, False), 2000, 6.0),
        (means, (30, False), 2000, 1.0),
        (means, (30, True), 2000, 1.0),
        (fractions, (60,), 2000, 1.5),
        (rankings, (10, None, "random"), 200, 3.0),
        (rankings, (60, None, "constant"), 200, 1.0),
        (rankings, (60, 0.01, "random"), 200, 3.0),
        (rankings, (500, 0.01, "constant"), 200, 1.0),
    ],
)
def test_an_attack_without_an_advantage_is_above_baseline_one_time_in_twenty_at_most(
    draw, arguments, trials, advantage
):
    rng = np.random.default_rng(7)
    null = sum(_called(draw, rng, 0.0, arguments) for _ in range(trials))
    assert stats.binomtest(null, trials, 0.05, "greater").pvalue > 1e-6
    power = np.mean([_called(draw, rng, advantage, arguments) for _ in range(40)])
    assert power > 0.8  # and this one, which has an advantage, is called so


def _called(draw, rng, advantage, arguments):
    guess, blind = draw(rng, advantage, *arguments)
    return is_above([guess], [blind], True, rng)


@pytest.mark.statistical
def test_a_comparison_with_the_baselines_figure_alone_would_be_wrong_too_often():
    # The control: the baseline's figure, taken for exact, lets twice as many pass.
    rng = np.random.default_rng(8)
    trials, wrong = 2000, 0
    for _ in range(trials):
        guess, blind = fractions(rng, 0.0, 60)
        wrong += guess.figure().low > blind.figure().value
    assert stats.binomtest(wrong, trials, 0.05, "greater").pvalue < 1e-2
