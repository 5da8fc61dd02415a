"""Compose a privacy-loss distribution with itself, as dp_accounting does, bit for bit.

What depends on the one distribution alone is kept: a run composes the same event once more each
round, and three quarters of each composition were the same logarithms of moments.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np
from dp_accounting.pld.pld_pmf import DensePLDPmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from numpy.typing import NDArray
from scipy import fft
from scipy.special import logsumexp

TRUNCATED_MASS = 1e-15
"""Of both tails, which goes to infinity: dp_accounting's default."""

_ORDERS = np.concatenate((np.arange(-20, 0), np.arange(1, 21)))
"""Of the Chernoff bounds, times the length of a distribution: dp_accounting's own."""


def self_composed(distribution: Any, times: int) -> Any:
    """Return ``distribution.self_compose(times)``.

    Parameters
    ----------
    distribution : dp_accounting.pld.PrivacyLossDistribution
        Not changed later.
    times : int
        1 or more.

    Returns
    -------
    dp_accounting.pld.PrivacyLossDistribution
        The same to the last bit.
    """
    remove, add = distribution._pmf_remove, distribution._pmf_add
    composed = _composed(remove, times)
    if distribution._symmetric:
        return PrivacyLossDistribution(composed)
    return PrivacyLossDistribution(composed, _composed(add, times))


def _composed(pmf: Any, times: int) -> Any:
    if not isinstance(pmf, DensePLDPmf) or times < 1:
        return pmf.self_compose(times)
    probabilities = pmf._probs
    low, high = _kept(pmf, times)
    size = fft.next_fast_len(max(high - low + 1, len(probabilities)))
    whole = np.real(fft.ifft(fft.fft(probabilities, size) ** times))
    return DensePLDPmf(
        pmf._discretization,
        pmf._lower_loss * times + low,
        np.roll(whole, -low)[: high - low + 1],
        TRUNCATED_MASS - math.expm1(times * math.log1p(-pmf._infinity_mass)),
        pmf._pessimistic_estimate,
    )


def _kept(pmf: Any, times: int) -> tuple[int, int]:
    """Return the first and the last place outside of which at most the truncated mass lies."""
    size = len(pmf._probs)
    low, high = 0, (size - 1) * times
    for order, moment in zip(_ORDERS / size, _log_moments(pmf), strict=True):
        bound = (times * moment + math.log(2 / TRUNCATED_MASS)) / order
        if not math.isfinite(bound):
            continue
        if order > 0:
            high = min(high, math.ceil(bound))
        else:
            low = max(low, math.floor(bound))
    return low, high


@lru_cache(maxsize=8)
def _log_moments(pmf: Any) -> list[NDArray[np.float64]]:
    """Return logarithms of the moment generating function of places, one an order."""
    size = len(pmf._probs)
    return [logsumexp(np.arange(size) * order, b=pmf._probs) for order in _ORDERS / size]
