"""Renyi divergences of noisy sums, and the epsilon that they give, by formulas written out here."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

Floats = NDArray[np.float64]

ORDERS: Floats = np.array([*range(2, 257), 288, 320, 384, 448, 512, 640, 768, 1024], dtype=float)


def skellam(l2: float, l1: float, mu: float, orders: Floats = ORDERS) -> Floats:
    """Agarwal, Kairouz, Liu (2021): Skellam noise of total variance `mu` on shifts of l2 and l1."""
    excess = np.minimum(((2 * orders - 1) * l2**2 + 6 * l1) / (4 * mu**2), 3 * l1 / (2 * mu))
    return orders * l2**2 / (2 * mu) + excess


def gaussian(multiplier: float, orders: Floats = ORDERS) -> Floats:
    return orders / (2 * multiplier**2)


def sampled(rate: float, at: Floats) -> Floats:
    """Poisson sampling (Zhu and Wang 2019): `at[j]` bounds order ORDERS[j], the answer too.

    A sum over k = 0..a of C(a, k) (1 - q)^(a - k) q^k e^((k - 1) D(k)); where D is known at some
    orders only, the next higher one stands for it, since D grows with its order.
    """
    if rate == 1:
        return at
    largest = int(ORDERS[-1])
    known = np.searchsorted(ORDERS, np.arange(largest + 1))
    exponent = np.arange(largest + 1) - 1.0
    weight = np.where(np.arange(largest + 1) < 2, 0.0, exponent * at[known])
    found = np.empty_like(at)
    for position, order in enumerate(ORDERS):
        k = np.arange(int(order) + 1)
        terms = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
        terms = terms + (order - k) * np.log1p(-rate) + k * np.log(rate) + weight[k]
        found[position] = logsumexp(terms) / (order - 1)
    return np.minimum(found, at)


def told_with(p: float, hidden: Floats, plain: Floats) -> Floats:
    """With probability p the round's opening tells that the client was in it."""
    if p == 0:
        return hidden
    a = ORDERS - 1
    return np.logaddexp(np.log1p(-p) + a * hidden, np.log(p) + a * plain) / a


def epsilon(divergence: Floats, delta: float) -> float:
    """Canonne, Kamath, Steinke (2020), Proposition 12, the least over the orders."""
    found = divergence + np.log1p(-1 / ORDERS) - np.log(delta * ORDERS) / (ORDERS - 1)
    return max(0.0, float(np.min(found)))
