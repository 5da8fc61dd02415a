"""Price a query by the client's own count: for the unit that it names, and for one record.

The sum is charged at the noise that the session guarantees. A query of unit `record` promises
nothing of the client as a whole. One of unit `client` costs a record what it costs the client
under replacement: one record can turn a vector into any other that the client may send.
"""

import math
from fractions import Fraction

from zerosum.client.privacy import renyi_curves
from zerosum.client.privacy.block_noise import BlockNoise
from zerosum.client.privacy.counts import counting_mechanism
from zerosum.client.privacy.mechanism import Divergences
from zerosum.client.privacy.samplers import TAU
from zerosum.client.privacy.spending import UNBOUNDED, Price, UnitPrice
from zerosum.client.protocol.protection import Protection
from zerosum.client.protocol.sum_request import SumRequest
from zerosum.client.queries.moves import moves
from zerosum.client.request import QueryRequest
from zerosum.client.spec.query_privacy import QueryPrivacy


def query_price(
    request: QueryRequest | SumRequest, protection: Protection, shares: Fraction
) -> Price:
    """Return what answering a query costs.

    Parameters
    ----------
    request : QueryRequest or SumRequest
        What is asked; not without noise.
    protection : Protection
        How the answer is protected.
    shares : Fraction
        Shares of noise that no observer of the sum drew.

    Returns
    -------
    Price
        Of the client, without bound where the unit is a record; and of one record.

    Raises
    ------
    ValueError
        If so few shares have no receipt.
    """
    privacy = request.question.privacy
    if isinstance(privacy, QueryPrivacy) and privacy.noise_inside:
        report = _report_price(privacy.scale)
        return Price(client=report, record=report)
    mechanism = protection.mechanism
    if not isinstance(mechanism, BlockNoise):
        raise TypeError(f"{type(mechanism).__name__} is no noise of a query's blocks")
    integers = protection.length * protection.cohort
    asked = _sum_price(mechanism, shares, integers)
    if privacy.unit == "record":
        return Price(client=UNBOUNDED, record=asked)
    whole = counting_mechanism(
        privacy.noise,
        privacy.scale or 0.0,
        protection.cohort,
        privacy.honest_fraction,
        _replaced(request),
    )
    return Price(client=asked, record=_sum_price(whole, shares, integers))


def _replaced(request: QueryRequest | SumRequest) -> tuple[int, ...]:
    """Return how far the client's vector moves where it becomes any other."""
    if isinstance(request, SumRequest):
        return request.replaced()
    cap = request.question.privacy.cap
    return moves(request.blocks, unit="client", adjacency="replace", cap=cap)


def _sum_price(mechanism: BlockNoise, shares: Fraction, integers: int) -> UnitPrice:
    """Return the cost of a sum of so many noise integers; pure where the noise is geometric."""
    from zerosum.client.privacy.events import IntegerNoiseDpEvent

    event = mechanism.event(shares)
    if not isinstance(event, IntegerNoiseDpEvent):
        raise TypeError(f"{type(event).__name__} is no receipt of a query")
    pure = event.pure_epsilon()
    # Log-ratios of a drawn integer are within tau of the law's on either side, and 3 tau cover
    # what that adds at any order: see own_budget.
    drawn = max(TAU, mechanism.tau) * integers
    row = event.divergences() + 3 * drawn
    return UnitPrice(_as_tuple(row), pure + 2 * drawn if math.isfinite(pure) else None)


def _report_price(epsilon: float) -> UnitPrice:
    """Return the cost of one randomised report: its epsilon is pure, under replacement."""
    return UnitPrice(_as_tuple(renyi_curves.pure(epsilon)), epsilon)


def _as_tuple(row: Divergences) -> tuple[float, ...]:
    return tuple(map(float, row))
