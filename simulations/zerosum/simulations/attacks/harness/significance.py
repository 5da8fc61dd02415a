"""Test whether an attack is better than its baseline by more than chance explains.

The advantage is a difference of figures, and an attack is above its baseline where the interval
that holds the difference with 95 % excludes zero: an attack that has no advantage is called above
its baseline once in forty times. Where guess and baseline are scored on equally many units in each
seed, the units are the same and their differences are looked at, one by one: what both of them owe
to an easy unit is no advantage. Else the two figures are independent estimates. As for the figures'
own intervals, units count, not scenes.
"""

import math
import warnings
from collections.abc import Sequence

import numpy as np
from scipy import stats

from zerosum.simulations.attacks.harness.metrics import (
    TAIL,
    Mean,
    Proportion,
    Ranking,
    Units,
    area,
    rate,
)

RESAMPLED = 400
"""Bootstrap samples of a difference: a 2.5 % quantile of them has ten below it."""

FEWEST = 4
"""Members, and others, below which any ranking may be chance: 1 in 20 for three of each."""

FEW = 100
"""Units of two samples together up to which Boschloo's test, the more powerful one, is quick."""

ROUNDING = 1e-9
"""An advantage that is a smaller part of the figures than this is rounding."""


def is_above(
    guesses: Sequence[Units], baselines: Sequence[Units], higher: bool, rng: np.random.Generator
) -> bool:
    """Return whether guesses are better than those of the baseline.

    Parameters
    ----------
    guesses, baselines : sequence of Units
        Of one metric: one a seed, in the same order.
    higher : bool
        Whether more is a better attack.
    rng : numpy.random.Generator
        Of bootstrap samples.

    Returns
    -------
    bool

    Raises
    ------
    TypeError
        If they are not all of one kind.
    """
    paired = all(_same(one, other) for one, other in zip(guesses, baselines, strict=True))
    pooled = guesses[0].pooled(guesses[1:]), baselines[0].pooled(baselines[1:])
    better, worse = pooled if higher else pooled[::-1]
    if isinstance(better, Proportion) and isinstance(worse, Proportion):
        return _more_often(better.hits, worse.hits, paired)
    if isinstance(better, Mean) and isinstance(worse, Mean):
        return _larger(better.values, worse.values, paired)
    if isinstance(better, Ranking) and isinstance(worse, Ranking):
        return _ranked_better(better, worse, paired, rng)
    raise TypeError(f"units of two kinds: {type(better).__name__}, {type(worse).__name__}")


def _same(one: Units, other: Units) -> bool:
    """Return whether two lots of units are of the same things."""
    if isinstance(one, Proportion) and isinstance(other, Proportion):
        return len(one.hits) == len(other.hits)
    if isinstance(one, Mean) and isinstance(other, Mean):
        return len(one.values) == len(other.values)
    return (
        isinstance(one, Ranking)
        and isinstance(other, Ranking)
        and np.array_equal(one.labels, other.labels)
    )


def _more_often(hits: np.ndarray, others: np.ndarray, paired: bool) -> bool:
    """Test fractions: McNemar's mid-p if paired; else Boschloo's exact test, Fisher's of many.

    Fagerland, Lydersen, Laake 2013, "The McNemar test for binary matched-pairs data"; Boschloo
    1970. Of so few pairs that the first could call none of them significant, the units are taken
    for independent: three of three against none of three is 1 in 64.
    """
    if paired and 0.5 ** (len(hits) + 1) <= TAIL:
        won, lost = int(np.sum(hits & ~others)), int(np.sum(others & ~hits))
        coin = stats.binom(won + lost, 0.5)
        return won > lost and bool(coin.sf(won) + coin.pmf(won) / 2 <= TAIL)
    counts = [[int(np.sum(hits)), int(np.sum(others))], [int(np.sum(~hits)), int(np.sum(~others))]]
    if counts[0][0] * len(others) <= counts[0][1] * len(hits):
        return False
    exact = stats.boschloo_exact if len(hits) + len(others) <= FEW else stats.fisher_exact
    return bool(exact(counts, alternative="greater").pvalue <= TAIL)


def _larger(values: np.ndarray, others: np.ndarray, paired: bool) -> bool:
    """Test means: Student's test of the differences if paired; else Welch's (1947)."""
    largest = max(float(np.abs(values).max()), float(np.abs(others).max()))
    if min(len(values), len(others)) < 2:
        return False
    if np.mean(values) - np.mean(others) <= ROUNDING * largest:
        return False
    with warnings.catch_warnings():
        # scipy warns of values that are all alike, and is right: then an advantage is certain.
        warnings.simplefilter("ignore", RuntimeWarning)
        if paired:
            test = stats.ttest_1samp(values - others, 0, alternative="greater")
        else:
            test = stats.ttest_ind(values, others, equal_var=False, alternative="greater")
    return bool(test.pvalue <= TAIL)


def _ranked_better(better: Ranking, worse: Ranking, paired: bool, rng: np.random.Generator) -> bool:
    """Test rankings: members and others are drawn anew, the same for both if paired.

    The interval is the percentiles', expanded as few units need it (Hesterberg 2015, "What teachers
    should know about the bootstrap", section 5.3); of a rate whose threshold hangs on few others,
    whom no bootstrap follows, Student's with the bootstrap's error.
    """
    fewest = min(len(each) for one in (better, worse) for each in _places(one))
    whole = better.figure().value - worse.figure().value
    if fewest < FEWEST or whole <= ROUNDING:
        return False
    drawn = np.empty(RESAMPLED)
    for number in range(RESAMPLED):
        chosen = _drawn(better, rng)
        beside = chosen if paired else _drawn(worse, rng)
        drawn[number] = _figure(better, *chosen) - _figure(worse, *beside)
    quantile = float(stats.t.ppf(1 - TAIL, fewest - 1))
    if better.at is not None and better.at * fewest < FEWEST:
        return whole > quantile * float(drawn.std(ddof=1))
    tail = float(stats.norm.cdf(-quantile * math.sqrt(fewest / (fewest - 1))))
    return float(np.quantile(drawn, tail, method="lower")) > 0


def _places(units: Ranking) -> tuple[np.ndarray, np.ndarray]:
    return np.flatnonzero(units.labels), np.flatnonzero(~units.labels)


def _drawn(units: Ranking, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    members, others = _places(units)
    return rng.choice(members, len(members)), rng.choice(others, len(others))


def _figure(units: Ranking, members: np.ndarray, others: np.ndarray) -> float:
    scores = units.scores
    if units.at is None:
        return area(scores[members], scores[others])
    return rate(scores[members], scores[others], units.at)
