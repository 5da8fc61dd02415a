"""Decide whether one more contribution fits into a privacy budget that a server spends adaptively.

A server chooses its next request by the answers before it. Sums of Renyi divergences stay a valid
bound then, at any *one* order that was fixed beforehand: Feldman and Zrnic, "Individual privacy
accounting via a Renyi filter" (2021), Theorem 3.1, with the conversion of Canonne, Kamath and
Steinke, "The discrete Gaussian for differential privacy" (2020), Proposition 12. No proof is known
for the least epsilon over all orders, taken after the fact: the server's choices decide which
order that is. So the order is a function of the policy alone.

This module imports no numpy and no accountant: a policy is read in every message of a deployed
client.
"""

import math
from typing import Final

ORDERS: Final = tuple(range(2, 513))
"""Integer orders at which everything of ours is accounted."""


def divergence_limit(epsilon: float, delta: float, order: int) -> float:
    """Return the Renyi divergence B at an order that implies (epsilon, delta).

    B = epsilon + (ln delta + ln order) / (order - 1) - ln((order - 1) / order). At most 0 where
    the order is too small for this delta.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee.
    order : int
        Above 1.

    Returns
    -------
    float
        In nats; at most 0 where the order is too small.
    """
    return epsilon - conversion(delta, order)


def conversion(delta: float, order: int) -> float:
    """Return what an order adds to a divergence to make it an epsilon at ``delta``.

    Parameters
    ----------
    delta : float
        In (0, 1).
    order : int
        Above 1.

    Returns
    -------
    float
        In nats.
    """
    return math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)


def fixed_order(epsilon: float, delta: float) -> int:
    """Return the order alpha that maximises B(alpha) / alpha: most Gaussian contributions fit.

    The divergence of Gaussian noise is proportional to the order.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee; epsilon is finite.

    Returns
    -------
    int
        Above 1.

    Raises
    ------
    ValueError
        If no order has a positive B: every contribution would be declined.
    """
    best = max(ORDERS, key=lambda order: divergence_limit(epsilon, delta, order) / order)
    if divergence_limit(epsilon, delta, best) <= 0:
        raise ValueError(
            f"max_epsilon = {epsilon:g} at budget_delta = {delta:g} admits no contribution, "
            f"however noisy: at this delta it must be above {least_epsilon(delta):.2g}; raise "
            "max_epsilon, or budget_delta"
        )
    return best


def least_epsilon(delta: float) -> float:
    """Return the epsilon below which no order has a positive B, rounded up to two figures."""
    least = max(0.0, min(conversion(delta, order) for order in ORDERS))
    if not least:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(least)) - 1)
    return math.ceil(least / unit) * unit
