"""Probabilities of integer noise in float64: geometric noise of any count of shares, and Skellam.

For receipts and for quantiles of answers, which need the tails to a small *relative* error. The
samplers' fixed-point weights (:mod:`~zerosum.client.privacy.pmf`) are right to 120 bits, and too
slow for arrays of a million. Numpy alone: clients charge their own budget by the same numbers.
"""

import math
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

IntegerLaw = Literal["geometric", "skellam"]

CUT_BITS = 140
"""A probability function ends where less than 2^-140 of its mass is left."""

Floats = NDArray[np.float64]
Pmf = tuple[NDArray[np.int64], Floats]

LONGEST = 1 << 23
"""Most values of one sign that an array is made for: 64 MiB, and a second's recurrence."""

_SETTLING_BITS = 60
"""Bits by which a backward recurrence forgets the guess that it starts from."""


def standard_deviation(law: IntegerLaw, parameters: tuple[float, ...]) -> float:
    """Return the standard deviation of the noise in a coordinate.

    Parameters
    ----------
    law : {"geometric", "skellam"}
        See :func:`log_probabilities`.
    parameters : tuple of float
        (scale, r) of geometric noise; (variance,) of Skellam noise.

    Returns
    -------
    float
        sqrt(r 2a)/(1 - a) with a = exp(-1/scale); sqrt(variance).
    """
    if law == "skellam":
        return math.sqrt(parameters[0])
    scale, r = parameters
    # exp overflows below a scale of 1/700, where the deviation is 0 to the last bit.
    return math.sqrt(r / 2) / math.sinh(min(0.5 / scale, 700.0))


@lru_cache(maxsize=8)
def geometric_pmf(scale: float, r: float = 1.0) -> Pmf:
    """Return the law P(r, s): r shares of which one alone would be the discrete Laplace.

    Its characteristic function is that of the discrete Laplace to the power r; it is the difference
    of two negative binomial variables NB(r, 1 - a), a = exp(-1/scale).

    Parameters
    ----------
    scale : float
        s, in integer units, above 0.
    r : float
        Any real above 0.

    Returns
    -------
    values : ndarray of int64, shape (2 m + 1,)
        -m to m.
    probabilities : ndarray of float64, shape (2 m + 1,)
        Read-only, right to a relative 1e-10 in the tails too; what is cut off is below 2^-140.

    Raises
    ------
    ValueError
        If more than :data:`LONGEST` values of one sign are needed: scales above some 80,000.
    """
    return _two_sided("geometric", (scale, r))


@lru_cache(maxsize=8)
def skellam_pmf(variance: float) -> Pmf:
    """Return the law of the difference of two Poisson variables of mean variance / 2.

    Parameters
    ----------
    variance : float
        mu, above 0.

    Returns
    -------
    values : ndarray of int64, shape (2 m + 1,)
        -m to m.
    probabilities : ndarray of float64, shape (2 m + 1,)
        exp(-mu) I_k(mu), read-only, right to a relative 1e-10 in the tails too; what is cut off is
        below 2^-140.
    """
    return _two_sided("skellam", (variance,))


def extent(law: IntegerLaw, parameters: tuple[float, ...], bits: int = CUT_BITS) -> int:
    """Return an m with P(|Z| > m) <= 2^-bits, by Chernoff's bound.

    Parameters
    ----------
    law : {"geometric", "skellam"}
        See :func:`log_probabilities`.
    parameters : tuple of float
        (scale, r) of geometric noise; (variance,) of Skellam noise.
    bits : int
        0 or more.

    Returns
    -------
    int
        A few per cent above the least.
    """
    nats = (bits + 1) * math.log(2)  # one bit for the two sides
    if law == "skellam":
        theta = np.geomspace(1e-6, 50, 2000)
        cumulants = parameters[0] * 2 * np.sinh(theta / 2) ** 2
    else:
        scale, r = parameters
        part = np.arange(1, 400) / 400
        theta = part / scale
        # sinh(x/2s)/sinh(1/2s) without overflow at small scales.
        ratio = np.exp((part - 1) / (2 * scale)) * np.expm1(-theta) / np.expm1(-1 / scale)
        cumulants = -r * np.log1p(-(ratio**2))
    return math.ceil(float(np.min((nats + cumulants) / theta)))


def log_probabilities(law: IntegerLaw, parameters: tuple[float, ...], last: int) -> Floats:
    """Return ln P(Z = k) for k = 0 to ``last``.

    Parameters
    ----------
    law : {"geometric", "skellam"}
        Geometric noise P(r, s), see :func:`geometric_pmf`, or Skellam noise.
    parameters : tuple of float
        (scale, r) of geometric noise; (variance,) of Skellam noise.
    last : int
        0 or more; tails are right far beyond :func:`extent`.

    Returns
    -------
    ndarray of float64, shape (last + 1,)
        Right to an absolute 1e-10.
    """
    if law == "geometric" and parameters[1] == 1:
        scale = parameters[0]
        # p(k) = (1-a)/(1+a) a^k: Ghosh, Roughgarden, Sundararajan (2009).
        logs: Floats = math.log(math.tanh(0.5 / scale)) - np.arange(last + 1) / scale
        return logs
    needed = max(last, extent(law, parameters))
    steps = _geometric_steps if law == "geometric" else _skellam_steps
    logs = np.concatenate(([0.0], np.cumsum(steps(needed, *parameters))))
    # All mass lies within the extent but for 2^-140: the sum is the normalisation.
    logs -= math.log(1 + 2 * math.fsum(np.exp(logs[1:])))
    return logs[: last + 1]


def _two_sided(law: IntegerLaw, parameters: tuple[float, ...]) -> Pmf:
    last = extent(law, parameters)
    if last > LONGEST:
        deviation = standard_deviation(law, parameters)
        raise ValueError(
            f"{law} noise of standard deviation {deviation:.3g} takes {last} probabilities of one "
            f"sign; {LONGEST} are made at most"
        )
    half = np.exp(log_probabilities(law, parameters, last))
    probabilities = np.concatenate((half[:0:-1], half))
    probabilities.flags.writeable = False
    values = np.arange(-last, last + 1, dtype=np.int64)
    values.flags.writeable = False
    return values, probabilities


def _geometric_steps(last: int, scale: float, r: float) -> Floats:
    """Return ln p(k)/p(k-1) for k = 1 to last, shape (last,).

    G(z) = sum p(k) z^k = ((1-a)^2 / ((1 - a z)(1 - a/z)))^r obeys z (1 - a z)(z - a) G' =
    r a (z^2 - 1) G, so that (k + 1 - r) p(k+1) = (a + 1/a) k p(k) - (k - 1 + r) p(k-1). The p(k)
    are its minimal solution: backward, as Miller's algorithm goes (DLMF 3.6(iii)). It runs on
    u(k) = 1 - p(k)/(a p(k-1)), which is 0 at r = 1 and small beside: the ratio itself would lose as
    many digits as the scale has, and overflow at small scales.
    """
    small = -math.expm1(-2 / scale)
    settling = math.ceil(_SETTLING_BITS * math.log(2) / 2 * scale) + 50
    excess, left = small * (1 - r), 1 - small
    u = 0.0
    losses = [0.0] * last
    for k in range(last + settling, 0, -1):
        w = excess + left * (k + 1 - r) * u
        u = w / (k - 1 + r + w)
        if k <= last:
            losses[k - 1] = u
    steps: Floats = np.log1p(-np.array(losses)) - 1 / scale
    return steps


def _skellam_steps(last: int, variance: float) -> Floats:
    """Return ln I_k(mu)/I_{k-1}(mu) for k = 1 to last, shape (last,).

    Miller's backward recurrence in ratios, 1/z_k = 2k/mu + z_{k+1} (DLMF 3.6(iii), 10.29.1): all
    terms are positive and errors alternate.
    """
    # A start's error decays like exp(-2 asinh(k / mu)) a step: 60 bits at 8 sigma.
    start = last + math.ceil(8 * math.sqrt(variance)) + 50
    z, double = 0.0, 2 / variance
    ratios = [0.0] * last
    for k in range(start, 0, -1):
        z = 1 / (k * double + z)
        if k <= last:
            ratios[k - 1] = z
    steps: Floats = np.log(np.array(ratios))
    return steps
