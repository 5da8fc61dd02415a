"""Renyi divergences under Poisson sampling, and of releases that may be abandoned."""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from zerosum.client.renyi_filter import ORDERS


def poisson_amplified(q: float, unsampled: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the divergences under Poisson sampling.

    ln[ sum_k C(alpha,k) (1-q)^(alpha-k) q^k e^{(k-1) RDP(k)} ] / (alpha-1): the tight form of Zhu
    and Wang, "Poisson subsampled Renyi differential privacy" (2019), Theorem 6. It needs noise
    for which the pair in the reversed direction is a mirror image: symmetric noise and integer
    shifts are. (The general form, with its factor 3, would cost epsilon 4.8 instead of 3.1 at
    z = 2, q = 0.25 and 40 rounds.) Never above the unsampled value.

    Parameters
    ----------
    q : float
        Sampling probability in [0, 1].
    unsampled : ndarray of float64, shape (511,)
        Renyi divergences at :data:`~zerosum.client.renyi_filter.ORDERS`.

    Returns
    -------
    ndarray of float64, shape (511,)
        At the same orders.

    Raises
    ------
    ValueError
        If ``q`` is no probability.
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


def with_abandonment(
    sampled: NDArray[np.float64], unsampled: NDArray[np.float64], p: float
) -> NDArray[np.float64]:
    """Return the divergences of a sampled release that tells whether it took place.

    ln[(1-p) e^{(alpha-1) RDP'} + p e^{(alpha-1) RDP}]/(alpha-1). With probability p the release
    took place only because of one client, which is then in it for certain; the exponential of a
    divergence is jointly convex over these two cases.

    Parameters
    ----------
    sampled, unsampled : ndarray of float64, shape (511,)
        RDP' and RDP, with the client sampled and with it there for certain.
    p : float
        P(released only because of this client | released).

    Returns
    -------
    ndarray of float64, shape (511,)
        At the same orders.

    Raises
    ------
    ValueError
        If ``p`` is no probability.
    """
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
    """Return ln C(alpha, k), shape (511, 513); -inf where k > alpha."""
    orders = np.array(ORDERS)[:, None]
    k = np.arange(ORDERS[-1] + 1)[None, :]
    inside = k <= orders
    below = np.where(inside, orders - k, 0)
    values = gammaln(orders + 1) - gammaln(k + 1) - gammaln(below + 1)
    return np.where(inside, values, -np.inf)
