"""Rounds that open only because of one client, and dropout rates bounded from what was seen."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import betainc
from scipy.stats import binom

MISSED = 1e-6
"""Probability that a bound on a dropout rate lies below it, at any look."""
REFUTED = 1e-3
"""Probability of as many dropouts at the assumed rate, below which it is not believed."""
ENOUGH = 100
"""Client-rounds below which nothing is read from dropouts."""
SPARSE = 500
"""Cohorts from here on may have sparse graphs, whose threshold is of neighbours alone."""


def opened_by_one(
    population: int, rate: float, dropout: float, needed: Callable[[int], int]
) -> float:
    """P(the round opened only because of this client | it opened), summed over the others.

    Of the others m are in the cohort and s survive; the client itself is there with probability
    `rate` and, as one who never drops out does, survives.
    """
    m = np.arange(population)
    weight = binom.pmf(m, population - 1, rate)
    keep = weight > 1e-22
    m, weight = m[keep], weight[keep]
    alone = np.array([needed(int(k)) for k in m])
    joined = np.array([needed(int(k) + 1) for k in m]) - 1

    def survive(at_least: np.ndarray) -> np.ndarray:
        return binom.sf(at_least - 1, m, 1 - dropout)

    only = rate * np.sum(weight * np.maximum(survive(joined) - survive(alone), 0.0))
    opened = np.sum(weight * ((1 - rate) * survive(alone) + rate * survive(joined)))
    return float(only / opened) if opened > 0 else 1.0


@dataclass(frozen=True)
class Opening:
    """When a round opens: what its survivors must reach, and how its cohort comes about."""

    population: int
    rate: float
    fraction: float
    assumed: float
    colluders: int = 0
    groups: int = 1

    def needed(self, cohort: int) -> int:
        """The guaranteed fraction beside colluders, and one client with the shares of t others.

        t on a complete graph: two thirds of the neighbours, no more than survive the assumed
        dropouts, and more than half of them and the colluders. Nobody is an abandoned round,
        and one alone is no sum of several.
        """
        if cohort < 2:
            return cohort + 1
        guaranteed = math.ceil(round(self.fraction * cohort, 9)) + self.colluders
        if cohort >= SPARSE:
            return guaranteed
        neighbours = cohort - 1
        most = neighbours - math.floor(round(self.assumed * cohort, 9))
        threshold = min(most, 2 * neighbours // 3 + 1)
        threshold = max(threshold, (neighbours + min(self.colluders, neighbours)) // 2 + 1)
        return max(guaranteed, min(threshold, neighbours) + 1)


def told_at(opening: Opening, dropout: float) -> float:
    """Summed over the groups, whose clients are drawn at their part of the rate."""
    rate = opening.rate / opening.groups
    each = opened_by_one(opening.population, rate, dropout, opening.needed)
    return min(1.0, opening.groups * each)


@lru_cache(maxsize=64)
def most_told(opening: Opening, dropout: float) -> float:
    """The largest over all dropout rates up to `dropout`: it need not grow with them."""
    rates = np.linspace(0, dropout, 41)
    values = [told_at(opening, float(each)) for each in rates]
    best = int(np.argmax(values))
    nearby = np.linspace(rates[max(best - 1, 0)], rates[min(best + 1, 40)], 21)
    return max(*values, *(told_at(opening, float(each)) for each in nearby))


def upper_bound(dropped: int, seen: int, missed: float = MISSED) -> float:
    """Clopper and Pearson's: the rate at which so few dropouts have probability `missed`."""
    if dropped >= seen:
        return 1.0
    return float(brentq(lambda r: betainc(seen - dropped, dropped + 1, 1 - r) - missed, 0.0, 1.0))


def rate_charged(assumed: float, sessions: list[tuple[int, int]]) -> float:
    """The rate that p is charged at, from what was assumed and sessions of (dropped, rostered).

    What was assumed, until it is refuted; from then on the largest bound after any session. The
    k-th look misses the rate with probability 1e-6/(k (k + 1)): these add up to 1e-6.
    """
    charged, dropped, seen, looks = assumed, 0, 0, 0
    for lost, cohort in sessions:
        dropped, seen = dropped + lost, seen + cohort
        if seen < ENOUGH:
            continue
        looks += 1
        if charged > assumed or binom.sf(dropped - 1, seen, assumed) < REFUTED:
            charged = max(charged, upper_bound(dropped, seen, MISSED / (looks * (looks + 1))))
    return charged
