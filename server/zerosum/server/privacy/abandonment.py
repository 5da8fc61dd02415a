"""Bound what the opening of a round says about one client.

A round with too few clients is abandoned, and outsiders see that no model was released. Given that
a round was opened, a client's presence is a little likelier than the sampling probability: with
probability p the round opened only because of it, and then it is there for certain.
"""

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

_TAIL = 1e-30
"""Probability of the sizes of a cohort that are left out of the sums. It is added to p, and
is far below it: 2.5e-4 in the default run."""

_TOLERANCE = 1e-3
"""Relative distance from the maximum over dropout rates: 1e-5 of an epsilon."""


@dataclass(frozen=True)
class OpeningRule:
    """The rule by which a Poisson-sampled round is opened, and the dropout that is assumed.

    Attributes
    ----------
    population : int
        Clients N, each sampled with probability ``q``.
    q : float
        Sampling probability.
    dropout : float
        Probability that a sampled client does not survive, each on its own.
    needed : callable
        From the size of a cohort, the survivors that open it; more than its size if nothing does.
    """

    population: int
    q: float
    dropout: float
    needed: Callable[[int], int]


def opened_only_because_of_one(rule: OpeningRule) -> float:
    """Return p = P(opened only because of this client | opened), by exact binomial sums.

    The client itself is taken never to drop out, the worst it can do. The others number
    n' ~ Bin(N-1, q), of whom s' ~ Bin(n', 1-dropout) survive. Without it the round opens if
    s' >= needed(n'); with it if s' + 1 >= needed(n' + 1).

    Returns
    -------
    float
        In [0, 1]; 1 if no round can ever be opened.
    """
    return _Others.of(rule).share(rule.dropout, rule.dropout)


def largest_opened_only_because_of_one(rule: OpeningRule) -> float:
    """Return the largest p at any dropout up to the rule's, from above, to a relative 1e-3.

    p is not monotone: where hardly anybody drops out rounds open without this client, and where
    nearly everybody does they do not open with it either. Nor has it one peak only, as the sizes
    of cohorts mix. So intervals of rates are bounded as wholes, by :meth:`_Others.share`, and the
    one with the largest bound is halved, until no bound exceeds what was found by more than the
    tolerance: a maximum cannot hide in an interval whose bound is lower. Bounds shrink with their
    intervals to the values themselves, which ends it.
    """
    others = _Others.of(rule)
    best = max(others.share(0.0, 0.0), others.share(rule.dropout, rule.dropout))
    bounds = [(-others.share(0.0, rule.dropout), 0.0, rule.dropout)]
    while -bounds[0][0] > best * (1 + _TOLERANCE):
        _, low, high = heapq.heappop(bounds)
        middle = (low + high) / 2
        best = max(best, others.share(middle, middle))
        for first, last in ((low, middle), (middle, high)):
            heapq.heappush(bounds, (-others.share(first, last), first, last))
    return max(best, -bounds[0][0])


@dataclass(frozen=True)
class _Others:
    """The sizes that the rest of a cohort may have, and what opens the round for each.

    Attributes
    ----------
    q : float
        Sampling probability.
    sizes, weights : ndarray
        n' and its probability.
    alone, joined : ndarray
        Survivors s' that open the round without this client, and with it.
    """

    q: float
    sizes: NDArray[np.int64]
    weights: NDArray[np.float64]
    alone: NDArray[np.int64]
    joined: NDArray[np.int64]

    @classmethod
    def of(cls, rule: OpeningRule) -> "_Others":
        sizes = _likely_counts(rule.population - 1, rule.q)
        needed = [rule.needed(int(n)) for n in range(int(sizes[0]), int(sizes[-1]) + 2)]
        return cls(
            rule.q,
            sizes,
            binom.pmf(sizes, rule.population - 1, rule.q),
            alone=np.array(needed[:-1]),
            joined=np.array(needed[1:]) - 1,
        )

    def share(self, low: float, high: float) -> float:
        """Bound p at every dropout from ``low`` to ``high``; p itself where they are one.

        Fewer dropouts open more rounds, with this client and without. So rounds that it opens
        number at most those that open with it at ``low`` less those that open alone at ``high``,
        and rounds that open at least those at ``high``.
        """
        alone = binom.sf(self.alone - 1, self.sizes, 1 - high)
        joined = binom.sf(self.joined - 1, self.sizes, 1 - low)
        fewest = joined if low == high else binom.sf(self.joined - 1, self.sizes, 1 - high)
        # Opened with it but not without: joined <= s' < alone.
        only = np.where(self.joined < self.alone, np.maximum(joined - alone, 0.0), 0.0)
        opened = float(np.sum(self.weights * ((1 - self.q) * alone + self.q * fewest)))
        if opened <= 0:
            return 1.0
        # What was left out of the sums counts against us.
        return min(1.0, (self.q * float(np.sum(self.weights * only)) + _TAIL) / opened)


def _likely_counts(trials: int, q: float) -> NDArray[np.int64]:
    """Return the counts outside of which Bin(trials, q) has mass at most 1e-30, by Bernstein."""
    mean, exponent = trials * q, math.log(2 / _TAIL)
    reach = exponent / 3 + math.sqrt(exponent**2 / 9 + 2 * exponent * mean)
    return np.arange(max(0, math.floor(mean - reach)), min(trials, math.ceil(mean + reach)) + 1)
