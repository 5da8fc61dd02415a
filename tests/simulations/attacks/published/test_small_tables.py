"""Small tables: all consistent data sets, against brute force."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from narrowed import hits_of, values_of, view_of
from scipy.optimize import brentq
from scipy.stats import norm
from view_parts import parts

from zerosum.simulations.attacks.harness.interface import Case, Defense
from zerosum.simulations.attacks.harness.play import Cell, play
from zerosum.simulations.attacks.harness.sealed_view import sealed
from zerosum.simulations.attacks.published.ages import TablesSetting
from zerosum.simulations.attacks.published.consistent import Limits, consistent, figures_of
from zerosum.simulations.attacks.published.people import ages_of_groups, dealt
from zerosum.simulations.attacks.published.small_tables import ConsistentRecords

FREE = Limits((-math.inf,) * 4, (math.inf,) * 4)
SMALL = TablesSetting(tables=3, youngest=30, oldest=70)
"""Of fewer ages, that are listed sooner."""

COUNT = "consistent data sets"
PINNED = "ages pinned to 2 years"


def brute_force(groups, together, ages):
    """Return all pairs of multisets of two and three people that agree."""
    rows = []
    for first in itertools.combinations_with_replacement(ages, 2):
        for second in itertools.combinations_with_replacement(ages, 3):
            every = (first, second, first + second)
            if all(_within(one, of) for one, of in zip(every, (*groups, together), strict=True)):
                rows.append(first + second)
    return np.array(rows)


def _within(ages, limits):
    figures = figures_of(np.array(ages))
    return all(
        low - 1e-9 <= f <= high + 1e-9
        for f, low, high in zip(figures, limits.low, limits.high, strict=True)
    )


def around(ages, mean, median):
    figures = figures_of(np.array(ages))
    wide = np.array([mean, median, np.inf, np.inf])
    return Limits(tuple(figures - wide), tuple(figures + wide))


@pytest.mark.slow
@pytest.mark.parametrize("mean", [0.0, 0.7, np.inf])
@pytest.mark.parametrize("median", [0.0, 1.0, np.inf])
def test_count_and_marginals_match_brute_force(mean, median):
    first, second = (21, 26), (20, 23, 25)
    groups = (around(first, mean, np.inf), around(second, mean, median))
    together = around(first + second, mean, median)
    wanted = brute_force(groups, together, range(20, 28))
    listed = consistent((2, 3), groups, together, 20, 27)
    assert listed.count == len(wanted) > 0
    assert (np.concatenate(listed.marginals).argmax(axis=1) > 0).all()
    for i, marginal in enumerate(np.concatenate(listed.marginals)):
        assert (marginal == np.bincount(wanted[:, i], minlength=28)).all()


@pytest.mark.slow
def test_the_common_median_alone_narrows_the_list():
    wide = consistent((2, 3), (FREE, FREE), FREE, 20, 27).count
    assert wide == math.comb(9, 2) * math.comb(10, 3)
    alone = around((21, 26, 20, 23, 25), np.inf, 0.0)
    listed = consistent((2, 3), (FREE, FREE), alone, 20, 27)
    assert listed.count == len(brute_force((FREE, FREE), alone, range(20, 28))) < wide


def test_contradictory_figures_have_no_data_set():
    old = Limits((26.0, 26.0, -math.inf, -math.inf), (27.0, 27.0, math.inf, math.inf))
    young = Limits((20.0, 20.0, -math.inf, -math.inf), (21.0, 21.0, math.inf, math.inf))
    assert consistent((2, 3), (old, old), young, 20, 27).count == 0


def scored(setting, protection=None, seed=0):
    protection = protection or Defense("plain")
    outcome = play(0, Cell(ConsistentRecords(), Case(setting, protection)), seed)
    assert outcome.status == "value", outcome.note
    return outcome


@pytest.mark.slow
def test_medians_shorten_the_list_and_rounding_lengthens_it():
    mean = scored(replace(SMALL, figures=("mean",)))
    both = scored(SMALL)
    rounded = scored(replace(SMALL, rounding=5.0))
    counts = [values_of(outcome.units, COUNT).mean() for outcome in (mean, both, rounded)]
    assert counts[1] < counts[0] - 2
    assert counts[1] < counts[2] - 2
    assert hits_of(both.units, PINNED).mean() > 0.1
    assert not hits_of(rounded.units, PINNED).any()
    assert not hits_of(both.baseline, PINNED).any()
    assert mean.epsilon == np.inf


def test_noise_before_tabulating_keeps_the_list_long():
    noise = Defense("noise", clip=20.0, noise="local", sigma=2.5)
    outcome = scored(SMALL, noise)
    attacked, blind = values_of(outcome.units, COUNT), values_of(outcome.baseline, COUNT)
    assert (attacked > blind - 0.5).all()
    assert not hits_of(outcome.units, PINNED).any()
    # Two ages are 40 years apart at most, and the noise is of 50.
    assert outcome.epsilon == pytest.approx(epsilon_of_gaussian(40 / 50, 1e-5), rel=0.01)


def epsilon_of_gaussian(mu, delta):
    """Balle and Wang (2018), theorem 8, solved for epsilon."""

    def beyond(e):
        return norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu) - delta

    return brentq(beyond, 0, 500)


def test_a_list_without_the_truth_counts_as_all_data_sets():
    attack = ConsistentRecords()
    scene = SMALL.play(attack, Defense("plain"), 0)
    guess = attack.run(view_of(scene), np.random.default_rng(0))
    other = {name: np.sort(values + 5, axis=1) for name, values in scene.truth.items()}
    units = attack.score(guess, other)
    assert (values_of(units, COUNT) == guess["log10 of all"]).all()
    assert not hits_of(units, PINNED).any()


def test_the_view_holds_figures_and_no_ages():
    scene = TablesSetting(tables=3).play(ConsistentRecords(), Defense("plain"), 0)
    arrays = [part for part in parts(sealed(scene.view)) if isinstance(part, np.ndarray)]
    assert [array.shape for array in arrays] == [(3, 3, 4)]
    assert np.isnan(arrays[0][:, :, 2:]).all()


def test_two_seeds_share_no_people():
    setting, groups = TablesSetting(), ages_of_groups()
    for group, size in zip(groups, (4, 3), strict=True):
        taken = [dealt("people of small tables", len(group), 10 * size, seed) for seed in range(5)]
        assert len(np.unique(taken)) == 50 * size
    assert (setting._ages(0) != setting._ages(1)).any()
    outcome = play(0, Cell(ConsistentRecords(), Case(setting, Defense("plain"))), 9)
    assert outcome.status == "not applicable"
    assert "nobody is counted twice" in outcome.note


def test_masked_ages_are_refused():
    masked = Defense("m", masking="double", clip=36.0, noise="distributed", sigma=1.0)
    with pytest.raises(ValueError, match="a median is no sum"):
        TablesSetting(tables=2).play(ConsistentRecords(), masked, 0)
