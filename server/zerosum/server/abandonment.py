"""How much a round's being opened at all says about one client.

A round with too few clients is abandoned, and outsiders see that no model was released. Given that
a round was opened, a client's presence is a little likelier than the sampling probability: with
probability p the round opened only because of it, and then it is there for certain.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

_TAIL = 1e-30


@dataclass(frozen=True)
class OpeningRule:
    """When a Poisson-sampled round is opened, and the dropout that is assumed.

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
    others = _likely_counts(rule.population - 1, rule.q)
    weight = binom.pmf(others, rule.population - 1, rule.q)
    alone = np.array([rule.needed(int(n)) for n in others])
    joined = np.array([rule.needed(int(n) + 1) - 1 for n in others])
    survive = 1 - rule.dropout
    opens_alone = binom.sf(alone - 1, others, survive)
    opens_joined = binom.sf(joined - 1, others, survive)
    # Opened with it but not without: joined <= s' < alone.
    only = np.where(joined < alone, opens_joined - opens_alone, 0.0)
    opened = float(np.sum(weight * ((1 - rule.q) * opens_alone + rule.q * opens_joined)))
    if opened <= 0:
        return 1.0
    # What was left out of the sums counts against us.
    return min(1.0, (rule.q * float(np.sum(weight * only)) + _TAIL) / opened)


def _likely_counts(trials: int, q: float) -> NDArray[np.int64]:
    """Return the counts outside of which Bin(trials, q) has mass at most 1e-30, by Bernstein."""
    mean, exponent = trials * q, math.log(2 / _TAIL)
    reach = exponent / 3 + math.sqrt(exponent**2 / 9 + 2 * exponent * mean)
    return np.arange(max(0, math.floor(mean - reach)), min(trials, math.ceil(mean + reach)) + 1)
