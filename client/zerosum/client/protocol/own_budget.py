"""What a client's own contributions cost it, by its own count: nothing here is the server's word.

A cost is a row of Renyi divergences at the orders of :mod:`zerosum.client.privacy.events`, so that
costs add up in the durable record, run after run. The figure is what a run reports as epsilon_sum:
what a server that sees masked sums, or a fellow client, learns of this client, at the noise that
the session *guarantees* (V, from the honest fraction, whoever drops out), unamplified by the choice
of cohorts. Under the local model it is epsilon_local, under replacement; under the distributed one
the client's vector is compared with zero plus its share. Where examples are the unit, the figure is
for one of them, and the client's own drawing of examples amplifies it. A vector that says nothing
of single examples, of an evaluation, is charged at twice its sensitivity, so that it holds for
either unit.

Sums of Renyi divergences at integer orders give a little more than the ledger's privacy-loss
distributions: the client's figure is never below what is true.
"""

import logging
import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from zerosum.client.privacy.float_slack import FLOAT_SLACK
from zerosum.client.privacy.laplace import DiscreteLaplace
from zerosum.client.privacy.mechanisms import (
    BinnedGaussian,
    DistributedDiscreteGaussian,
    DistributedSkellam,
    Mechanism,
    SkellamWithBit,
)
from zerosum.client.privacy.privunit import PrivUnit
from zerosum.client.privacy.registry import guaranteed_shares
from zerosum.client.privacy.samplers import TAU
from zerosum.client.protocol.protection import Protection
from zerosum.client.request import Request

log = logging.getLogger("zerosum.client")

Row = NDArray[np.float64]


def cost(request: Request, protection: Protection, colluders: int) -> Row | None:
    """Return the Renyi divergences of one contribution; None where nothing bounds them.

    Parameters
    ----------
    request : Request
        What is asked.
    protection : Protection
        How the answer is protected.
    colluders : int
        How many of the session's clients are assumed to work with the server.

    Returns
    -------
    numpy.ndarray or None
        At the orders of ``events.ORDERS``. None without noise, or with noise of a trusted server.
    """
    question = request.question
    if question.privacy.noise_inside:
        z, steps = question.privacy.noise_multiplier or 0.0, question.training.steps or 1
        drawn = protection.length * steps
        return _with_sampler(local_training(z, question.privacy.example_rate, steps), drawn)
    if protection.mechanism is None:
        return None
    shares = float(unknown_shares(protection, colluders)) * FLOAT_SLACK
    try:
        row = _of_mechanism(protection.mechanism, shares, doubled=question.kind == "evaluate")
    except ValueError as error:  # of an event that no bound is known for
        log.warning("the cost of this contribution has no bound: %s", error)
        return None
    # Principal components are read from all examples at once, and nothing amplifies them.
    if row is not None and question.privacy.sums_gradients and question.kind == "train":
        from zerosum.client.privacy.events import poisson_amplified

        row = poisson_amplified(question.privacy.example_rate, row)
    return None if row is None else _with_sampler(row, protection.length * protection.cohort)


def unknown_shares(protection: Protection, colluders: int) -> Fraction:
    """Return the shares of noise in an opened sum that no observer of it drew itself.

    The server faces f n shares, and colluders omit theirs beside those. Where none is assumed, a
    fellow client is an observer too, and knows its own share: of the constant total of n shares it
    faces n - 1, and without top-up one less than there are survivors: at least ceil(f n), and two
    where this client and its fellow are both in the sum.
    """
    n = protection.cohort
    promised = guaranteed_shares(protection.honest_fraction, n)
    if colluders or n == 1:
        return promised
    present = n if protection.topped_up else max(2, math.ceil(promised))
    return min(promised, Fraction(present - 1))


def local_training(z: float, q: float, steps: int) -> Row:
    """Return the divergences of so many noised steps, each on a Poisson sample at rate q."""
    from zerosum.client.privacy.events import poisson_amplified

    return steps * poisson_amplified(q, gaussian(z))


def gaussian(z: float) -> Row:
    """Return the divergences alpha / (2 z^2) of Gaussian noise of z sensitivities."""
    with np.errstate(divide="ignore"):
        row: Row = _orders() / (2 * np.float64(z) ** 2)
    return row


def epsilon(spent: Row, delta: float) -> float:
    """Return the least epsilon of costs that were fixed beforehand, at ``delta``.

    Not for a budget that is spent request by request: see :mod:`zerosum.client.renyi_filter`. It is
    inf where the costs bound nothing.
    """
    from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon

    if not np.isfinite(spent).any():
        return math.inf
    return float(compute_epsilon(_orders(), spent, delta)[0])


def _of_mechanism(mechanism: Mechanism, shares: float, *, doubled: bool) -> Row | None:
    """Return the divergences of one vector, at twice its sensitivity or against zero."""
    match mechanism:
        case DistributedSkellam() | DistributedDiscreteGaussian() | SkellamWithBit():
            return _of_shares(mechanism, shares, doubled=doubled)
        case BinnedGaussian():
            return gaussian(mechanism.sigma / (2 * mechanism.l2_sensitivity))
        case DiscreteLaplace() | PrivUnit():
            # Pure epsilon is a divergence of at most min(epsilon, alpha epsilon^2 / 2): Bun and
            # Steinke, "Concentrated differential privacy" (2016), Proposition 3.3.
            pure = mechanism.epsilon
            row: Row = np.minimum(pure, _orders() * pure**2 / 2)
            return row
    return None


def _of_shares(mechanism: Mechanism, shares: float, *, doubled: bool) -> Row:
    import attr
    from dp_accounting import ComposedDpEvent

    from zerosum.client.privacy import events

    event = mechanism.event(shares)
    parts = event.events if isinstance(event, ComposedDpEvent) else [event]
    scale = 2 if doubled else 1
    rows = [
        events.rdp(
            attr.evolve(
                part,
                l2_sensitivity=scale * part.l2_sensitivity,
                l1_sensitivity=scale * part.l1_sensitivity,
            )
        )
        for part in parts
    ]
    total: Row = np.sum(rows, axis=0)
    return total


def _with_sampler(row: Row, integers: int) -> Row:
    """Add what the table sampler's distance costs: every integer's log-ratio is within TAU.

    (alpha + alpha - 1) / (alpha - 1) is at most 3.
    """
    with_it: Row = row + 3 * TAU * integers
    return with_it


def _orders() -> Row:
    from zerosum.client.privacy.events import ORDERS

    return np.array(ORDERS, dtype=np.float64)
