"""Receipts that `dp_accounting` lacks, and their Renyi divergences.

An event is frozen data that describes a mechanism fully enough to account for it with no other
knowledge. Divergences are given at integer orders.
"""

import math
from functools import lru_cache

import attr
import numpy as np
from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from zerosum.client import renyi_filter

ORDERS: tuple[int, ...] = renyi_filter.ORDERS
"""Integer orders at which everything of ours is accounted."""


class UnsupportedEventError(ValueError):
    """No bound is known for an event in this setting."""


@attr.s(frozen=True, slots=True, auto_attribs=True)
class SkellamDpEvent(DpEvent):  # type: ignore[misc]
    """An integer vector under Skellam noise.

    Attributes
    ----------
    l2_sensitivity, l1_sensitivity : float
        Sensitivities in integer units, under the adjacency that is meant.
    variance : float
        Total variance of the noise in a coordinate.
    dimension : int or None
        Coordinates, over which the distance from a Gaussian adds up; None where that is not known,
        and Renyi divergences are all there is.
    """

    l2_sensitivity: float
    l1_sensitivity: float
    variance: float
    dimension: int | None = None


@attr.s(frozen=True, slots=True, auto_attribs=True)
class DistributedDiscreteGaussianDpEvent(DpEvent):  # type: ignore[misc]
    """An integer vector under a sum of discrete Gaussian shares.

    Attributes
    ----------
    l2_sensitivity, l1_sensitivity : float
        Sensitivities in integer units.
    sigma : float
        Parameter of one share.
    num_shares, dimension : int
        Shares in the sum; coordinates.
    """

    l2_sensitivity: float
    l1_sensitivity: float
    sigma: float
    num_shares: int
    dimension: int


@attr.s(frozen=True, slots=True, auto_attribs=True)
class MaybeAbandonedDpEvent(DpEvent):  # type: ignore[misc]
    """A Poisson-sampled event that is released only if enough clients take part.

    Attributes
    ----------
    event : PoissonSampledDpEvent
        What is released.
    p : float
        P(released only because of this client | released).
    """

    event: DpEvent
    p: float


def is_own(event: DpEvent) -> bool:
    """Return whether this module, not `dp_accounting`, accounts for an event."""
    if isinstance(event, ComposedDpEvent):
        return bool(event.events) and all(is_own(part) for part in event.events)
    if isinstance(event, PoissonSampledDpEvent | SelfComposedDpEvent | MaybeAbandonedDpEvent):
        return is_own(event.event)
    return isinstance(event, SkellamDpEvent | DistributedDiscreteGaussianDpEvent)


def is_sampled(event: DpEvent) -> bool:
    """Return whether an event of ours is amplified by sampling: not valid for replacement."""
    return isinstance(event, PoissonSampledDpEvent | MaybeAbandonedDpEvent)


def rdp(event: DpEvent) -> NDArray[np.float64]:
    """Return the Renyi divergence of one of our events at :data:`ORDERS` (read-only, cached).

    Raises
    ------
    UnsupportedEventError
        If the event, or what it wraps, is not one of ours.
    """
    if not is_own(event):
        raise UnsupportedEventError(f"no Renyi bound of ours for {event}")
    result: NDArray[np.float64] = _rdp(hashable(event))
    return result


def hashable(event: DpEvent) -> DpEvent:
    """Return an equal event whose compositions are tuples, so that it can be a key."""
    if isinstance(event, ComposedDpEvent):
        return ComposedDpEvent(tuple(hashable(part) for part in event.events))
    inner = getattr(event, "event", None)
    return attr.evolve(event, event=hashable(inner)) if isinstance(inner, DpEvent) else event


@lru_cache(maxsize=512)
def _rdp(event: DpEvent) -> NDArray[np.float64]:
    if isinstance(event, SkellamDpEvent):
        result = skellam_rdp(event.l2_sensitivity, event.l1_sensitivity, event.variance)
    elif isinstance(event, DistributedDiscreteGaussianDpEvent):
        result = _discrete_gaussian_rdp(event)
    elif isinstance(event, ComposedDpEvent):
        result = np.sum([rdp(part) for part in event.events], axis=0)
    elif isinstance(event, SelfComposedDpEvent):
        result = event.count * rdp(event.event)
    elif isinstance(event, PoissonSampledDpEvent):
        result = _sampled_rdp(event)
    elif isinstance(event, MaybeAbandonedDpEvent):
        sampled = event.event
        if not isinstance(sampled, PoissonSampledDpEvent):
            raise UnsupportedEventError(f"abandonment is bounded for Poisson sampling: {event}")
        result = _with_abandonment(rdp(sampled), rdp(sampled.event), event.p)
    else:
        raise UnsupportedEventError(f"no Renyi bound of ours for {event}")
    result.flags.writeable = False
    return result


def _sampled_rdp(event: PoissonSampledDpEvent) -> NDArray[np.float64]:
    inner = event.event
    if isinstance(inner, PoissonSampledDpEvent):
        # Two independent coins are one: the tight form does not hold for what is sampled already.
        q = event.sampling_probability * inner.sampling_probability
        return rdp(PoissonSampledDpEvent(q, inner.event)).copy()
    if not _symmetric(inner):
        raise UnsupportedEventError(f"the amplification by sampling is not known for {event}")
    return poisson_amplified(event.sampling_probability, rdp(inner))


def _symmetric(event: DpEvent) -> bool:
    """Return whether exchanging two neighbours mirrors the pair of distributions."""
    if isinstance(event, ComposedDpEvent):
        return all(_symmetric(part) for part in event.events)
    if isinstance(event, SelfComposedDpEvent):
        return _symmetric(event.event)
    return isinstance(event, SkellamDpEvent | DistributedDiscreteGaussianDpEvent)


def skellam_rdp(l2: float, l1: float, variance: float) -> NDArray[np.float64]:
    """Return the bound of Agarwal, Kairouz, Liu (2021), Theorem 3.5, at :data:`ORDERS`.

    alpha l2^2/(2 mu) + min( ((2 alpha - 1) l2^2 + 6 l1)/(4 mu^2), 3 l1/(2 mu) ).
    """
    alpha = np.array(ORDERS, dtype=np.float64)
    if variance <= 0:
        return np.full_like(alpha, math.inf)
    second = ((2 * alpha - 1) * l2**2 + 6 * l1) / (4 * variance**2)
    result: NDArray[np.float64] = alpha * l2**2 / (2 * variance) + np.minimum(
        second, 3 * l1 / (2 * variance)
    )
    return result


def discrete_gaussian_distance(sigma: float, shares: int) -> float:
    """Return the largest log-ratio, in a coordinate, of summed shares to one discrete Gaussian.

    Kairouz, Liu, Steinke (2021), Theorem 10; it bounds the total variation too.

    Raises
    ------
    UnsupportedEventError
        If sigma is below 1, where the bound is vacuous.
    """
    if sigma < 1:
        raise UnsupportedEventError(
            f"discrete Gaussian shares of sigma = {sigma} < 1 have no useful bound"
        )
    k = np.arange(1, shares)
    return 10 * float(np.sum(np.exp(-2 * math.pi**2 * sigma**2 * k / (k + 1))))


def _discrete_gaussian_rdp(event: DistributedDiscreteGaussianDpEvent) -> NDArray[np.float64]:
    """Return the bound of Kairouz, Liu, Steinke (2021), Proposition 14."""
    tau = discrete_gaussian_distance(event.sigma, event.num_shares)
    alpha = np.array(ORDERS, dtype=np.float64)
    noise, l2, d = math.sqrt(event.num_shares) * event.sigma, event.l2_sensitivity, event.dimension
    ratio = l2 / noise
    bounds = (
        alpha * ratio**2 / 2 + tau * d,
        alpha / 2 * (ratio**2 + 2 * event.l1_sensitivity * tau / noise + tau**2 * d),
        alpha / 2 * (ratio + math.sqrt(d) * tau) ** 2,
    )
    result: NDArray[np.float64] = np.minimum.reduce(bounds)
    return result


def poisson_amplified(q: float, unsampled: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the divergence under Poisson sampling, from the unsampled one at :data:`ORDERS`.

    ln[ sum_k C(alpha,k) (1-q)^(alpha-k) q^k e^{(k-1) RDP(k)} ] / (alpha-1): the tight form of Zhu
    and Wang, "Poisson subsampled Renyi differential privacy" (2019), Theorem 6. It needs noise
    for which the pair in the reversed direction is a mirror image: symmetric noise and integer
    shifts are. Never above the unsampled value.

    Parameters
    ----------
    q : float
        Sampling probability in [0, 1].
    unsampled : ndarray
        Renyi divergences at :data:`ORDERS`.
    """
    if not 0 <= q <= 1:
        raise ValueError(f"a sampling probability lies in [0, 1], not at {q}")
    if q == 0:
        return np.zeros_like(unsampled)
    if q == 1:
        return unsampled.copy()
    terms = _log_binomials() + _exponents(unsampled)
    orders = np.array(ORDERS)
    k = np.arange(ORDERS[-1] + 1)
    weights = k[None, :] * math.log(q) + (orders[:, None] - k[None, :]) * math.log1p(-q)
    amplified = logsumexp(terms + weights, axis=1) / (orders - 1)
    # The sum is at least 1; rounding may leave it a hair below.
    result: NDArray[np.float64] = np.minimum(np.maximum(amplified, 0), unsampled)
    return result


def _with_abandonment(
    sampled: NDArray[np.float64], unsampled: NDArray[np.float64], p: float
) -> NDArray[np.float64]:
    """Return ln[(1-p) e^{(a-1) RDP'} + p e^{(a-1) RDP}]/(a-1): quasi-convexity over what opened."""
    if not 0 <= p <= 1:
        raise ValueError(f"a probability lies in [0, 1], not at {p}")
    if p in (0, 1):
        return (unsampled if p else sampled).copy()
    scale = np.array(ORDERS, dtype=np.float64) - 1
    result: NDArray[np.float64] = (
        np.logaddexp(math.log1p(-p) + scale * sampled, math.log(p) + scale * unsampled) / scale
    )
    return result


def _exponents(unsampled: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (k-1) RDP(k) for k = 0..512: zero at 0 and 1."""
    return np.concatenate([[0.0, 0.0], (np.array(ORDERS) - 1) * unsampled])


@lru_cache(maxsize=1)
def _log_binomials() -> NDArray[np.float64]:
    orders = np.array(ORDERS)[:, None]
    k = np.arange(ORDERS[-1] + 1)[None, :]
    inside = k <= orders
    below = np.where(inside, orders - k, 0)
    values = gammaln(orders + 1) - gammaln(k + 1) - gammaln(below + 1)
    return np.where(inside, values, -np.inf)
