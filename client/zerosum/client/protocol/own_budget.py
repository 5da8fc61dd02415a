"""Charge a client's contributions to its own budget, by its own count.

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

from zerosum.client.privacy import renyi_curves
from zerosum.client.privacy.float_slack import FLOAT_SLACK
from zerosum.client.privacy.mechanism import Divergences, DpEvent
from zerosum.client.privacy.registry import guaranteed_shares
from zerosum.client.privacy.samplers import TAU
from zerosum.client.privacy.spending import Price, UnitPrice
from zerosum.client.protocol.protection import Protection
from zerosum.client.protocol.query_cost import query_price
from zerosum.client.protocol.sum_request import SumRequest
from zerosum.client.renyi_filter import ORDERS
from zerosum.client.request import ModelRequest, QueryRequest, Request, about_model

log = logging.getLogger("zerosum.client")


def cost(request: Request, protection: Protection, colluders: int) -> Divergences | None:
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
        float64, shape (511,), at :data:`~zerosum.client.renyi_filter.ORDERS`. None without noise,
        or with noise of a trusted server.
    """
    return _cost(about_model(request), protection, colluders, doubled=False)


def price(request: Request, protection: Protection, colluders: int) -> Price:
    """Return what one contribution costs its client as a whole, and one record of it.

    Where examples are the unit, the figure is for one of them, and stands for both. An update is
    charged to a record under replacement: one record can turn it into any other.

    Parameters
    ----------
    request, protection, colluders
        As for :func:`cost`; a query too, or sums of an app's values.

    Returns
    -------
    Price
        Without pure epsilons, but for queries.
    """
    if isinstance(request, QueryRequest | SumRequest):
        if not request.question.privacy.private:
            return Price()
        shares = unknown_shares(protection, colluders)
        try:
            return query_price(request, protection, shares)
        except ValueError as error:  # of a sum that has no receipt
            log.warning("the cost of this contribution has no bound: %s", error)
            return Price()
    asked = about_model(request)
    whole = _cost(asked, protection, colluders, doubled=False)
    replaced = whole
    if whole is not None and not asked.question.privacy.by_example:
        replaced = _cost(asked, protection, colluders, doubled=True)
    return Price(_unit_price(whole), _unit_price(replaced))


def _unit_price(row: Divergences | None) -> UnitPrice:
    return UnitPrice(None if row is None else tuple(map(float, row)))


def _cost(
    request: ModelRequest, protection: Protection, colluders: int, *, doubled: bool
) -> Divergences | None:
    """Return the divergences of one contribution, at twice its sensitivity where asked."""
    question = request.question
    if question.privacy.noise_inside:
        z, steps = question.privacy.noise_multiplier or 0.0, question.training.steps or 1
        drawn = protection.length * steps
        return _with_sampler(local_training(z, question.privacy.example_rate, steps), drawn)
    mechanism = protection.mechanism
    if mechanism is None:
        return None
    shares = float(unknown_shares(protection, colluders)) * FLOAT_SLACK
    try:
        row = mechanism.divergences(shares, doubled=doubled or question.kind == "evaluate")
        # Principal components are read from all examples at once, and nothing amplifies them.
        if row is not None and question.privacy.sums_gradients and question.kind == "train":
            row = _on_sample(mechanism.event(shares), question.privacy.example_rate)
    except ValueError as error:  # of an event that no bound is known for
        log.warning("the cost of this contribution has no bound: %s", error)
        return None
    if row is None:
        return None
    if np.shape(row) != (len(ORDERS),) or not (np.asarray(row) >= 0).all():  # NaN is not
        # NaN passes every comparison with a limit, and a negative cost would give budget back.
        log.warning(
            "the cost of this contribution has no bound: %s.divergences has to give %d numbers of "
            "0 or more",
            type(mechanism).__name__,
            len(ORDERS),
        )
        return None
    return _with_sampler(row, protection.length * protection.cohort, mechanism.tau)


def unknown_shares(protection: Protection, colluders: int) -> Fraction:
    """Return the shares of noise in an opened sum that no observer of it drew.

    The server faces f n shares, and colluders omit theirs beside those. Where none is assumed, a
    fellow client is an observer too, and knows its own share: of the constant total of n shares it
    faces n - 1, and without top-up one less than there are survivors: at least ceil(f n), and two
    where this client and its fellow are both in the sum.

    Parameters
    ----------
    protection : Protection
        Of the session.
    colluders : int
        Clients that are assumed to work with the server.

    Returns
    -------
    Fraction
        At most f n.
    """
    n = protection.cohort
    promised = guaranteed_shares(protection.honest_fraction, n)
    if colluders or n == 1:
        return promised
    present = n if protection.topped_up else max(2, math.ceil(promised))
    return min(promised, Fraction(present - 1))


def local_training(z: float, q: float, steps: int) -> Divergences:
    """Return the divergences of noised steps, each on a Poisson sample of the examples.

    Parameters
    ----------
    z : float
        Noise multiplier of a step.
    q : float
        Probability with which a step draws an example.
    steps : int
        How many.

    Returns
    -------
    ndarray of float64, shape (511,)
        At :data:`~zerosum.client.renyi_filter.ORDERS`.
    """
    from zerosum.client.privacy.amplification import poisson_amplified

    return steps * poisson_amplified(q, renyi_curves.gaussian(z))


def epsilon(spent: Divergences, delta: float) -> float:
    """Return the least epsilon of costs that were fixed beforehand, at ``delta``.

    Not for a budget that is spent request by request: see :mod:`zerosum.client.renyi_filter`.

    Parameters
    ----------
    spent : ndarray of float64, shape (511,)
        Summed Renyi divergences.
    delta : float
        In (0, 1).

    Returns
    -------
    float
        inf where the costs bound nothing.
    """
    from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon

    if not np.isfinite(spent).any():
        return math.inf
    return float(compute_epsilon(renyi_curves.orders(), spent, delta)[0])


def _on_sample(event: DpEvent, rate: float) -> Divergences:
    """Return the divergences of an event on a Poisson sample of a client's examples.

    Raises
    ------
    UnsupportedEventError
        If the event is not known to be symmetric, which the amplification needs.
    """
    from dp_accounting import PoissonSampledDpEvent

    from zerosum.client.privacy import events

    return events.rdp(PoissonSampledDpEvent(rate, event))


def _with_sampler(row: Divergences, integers: int, tau: float = TAU) -> Divergences:
    """Add what the sampler's distance costs: every integer's log-ratio is within tau.

    A log-ratio of tau on either side adds tau (alpha + alpha - 1) / (alpha - 1) to a divergence,
    which is at most 3 tau, at alpha = 2. Exact samplers are charged as the table is: one figure for
    both, and next to nothing.
    """
    with_it: Divergences = row + 3 * max(TAU, tau) * integers
    return with_it
