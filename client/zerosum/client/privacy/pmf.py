"""Exact noise laws on the integers, evaluated in integer arithmetic.

A law gives unnormalised weights as fixed-point integers, with a relative error far below any
sampler's needs, and float64 logarithms for the cheap comparisons that nearly always decide.
Everything here is integer arithmetic on exact rationals: the same bits on every machine.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

GUARD_BITS = 64
"""Bits beyond those asked for, in which the arithmetic is done: its roundings add up below them."""

_SERIES_VARIANCE = 2**22
"""Variance above which Skellam's weights are expanded: the recurrence below takes a step for every
integer within some twenty standard deviations."""

_SERIES_ORDER = 28
"""Terms of that expansion. Term m is 16^m mu^(1 - m/2) at sixteen standard deviations, before its
coefficient: the first that is left out is 2^-181 at the least variance."""


class NoiseLaw(Protocol):
    """A symmetric, log-concave distribution on the integers: a value, which can be a key."""

    def __hash__(self) -> int: ...

    @property
    def variance(self) -> float:
        """Nominal variance in integer units."""
        ...

    def weights(self, magnitudes: Sequence[int], bits: int) -> list[int]:
        """Return unnormalised probabilities, about 2^bits at k = 0.

        Parameters
        ----------
        magnitudes : sequence of int
            Values k of 0 or more.
        bits : int
            Bits behind the point.

        Returns
        -------
        list of int
            Fixed-point integers proportional to p(k), right to a relative 2^-120 down to 2^-60
            of the largest.
        """
        ...

    def log_weights(self, values: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return ln p(k) up to a constant, in float64; used above variance 2^16 only."""
        ...


@dataclass(frozen=True)
class SkellamLaw:
    """The difference of two Poisson variables of mean variance / 2; closed under sums.

    p(k) is proportional to I_k(variance). Up to variance 2^22 by Miller's backward recurrence
    I_{k-1} = I_{k+1} + (2k/mu) I_k (DLMF 3.6(iii), 10.29.1); above by the large-argument expansion
    of ln I_k(mu).
    """

    variance: float

    def weights(self, magnitudes: Sequence[int], bits: int) -> list[int]:
        """Return fixed-point weights.

        Parameters
        ----------
        magnitudes : sequence of int
            Values k of 0 or more.
        bits : int
            Bits behind the point.

        Returns
        -------
        list of int
            See :meth:`NoiseLaw.weights`.
        """
        if self.variance <= _SERIES_VARIANCE:
            return self._by_recurrence(magnitudes, bits)
        work = bits + GUARD_BITS
        coefficients = [_fixed(c, work) for c in _log_bessel_coefficients(self.variance)]
        inverse = _fixed(1 / Fraction(self.variance), 2 * work)
        result = []
        for k in magnitudes:
            t = (k * k * inverse) >> work
            total = 0
            for coefficient in reversed(coefficients):
                total = ((total + coefficient) * t) >> work
            result.append(exp_negative(-total, work) >> GUARD_BITS)
        return result

    def log_weights(self, values: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return ln p(k) up to a constant; error below 2^-45 of the value."""
        real = values.astype(np.float64)
        t = real * real / self.variance
        total = np.zeros_like(t)
        for coefficient in reversed(_float_coefficients(self.variance)):
            total = (total + coefficient) * t
        return total

    def _by_recurrence(self, magnitudes: Sequence[int], bits: int) -> list[int]:
        work = bits + GUARD_BITS
        sigma = math.sqrt(self.variance)
        largest = max(magnitudes)
        # The start's error decays like exp(-2 asinh(k / mu)) a step: 100 bits at 8 sigma.
        start = largest + math.ceil(8 * sigma) + 200
        double = _fixed(2 / Fraction(self.variance), work)
        asked = dict.fromkeys(magnitudes, 0)
        above, here = 0, 1 << work
        for k in range(start, 0, -1):
            if k in asked:
                asked[k] = here
            above, here = here, above + ((k * double * here) >> work)
        asked[0] = here
        return [(asked[k] << bits) // here for k in magnitudes]


@dataclass(frozen=True)
class BinnedGaussianLaw:
    """A Gaussian rounded to the nearest integer: p(k) = Phi((k+1/2)/s) - Phi((k-1/2)/s).

    Bins are cut into pieces of at most sigma / 16; over a piece of width h around c the density is
    integrated as phi(c/s) sum_j He_2j(c/s) (h/2s)^2j / (2j+1)! (Taylor's series of Phi).
    """

    sigma: float

    @property
    def variance(self) -> float:
        """Variance of the Gaussian before rounding."""
        return self.sigma**2

    def weights(self, magnitudes: Sequence[int], bits: int) -> list[int]:
        """Return fixed-point weights.

        Parameters
        ----------
        magnitudes : sequence of int
            Values k of 0 or more.
        bits : int
            Bits behind the point.

        Returns
        -------
        list of int
            See :meth:`NoiseLaw.weights`.
        """
        pieces = max(1, math.ceil(16 / self.sigma))
        work = bits + GUARD_BITS + pieces.bit_length()
        sigma = Fraction(self.sigma)
        # Centres are (2 k pieces + 2 i + 1 - pieces) / (2 pieces).
        unit = _fixed(1 / (2 * pieces * sigma), work)
        half_squared = (unit * unit) >> work
        result = []
        for k in magnitudes:
            total = 0
            for i in range(pieces):
                x = (2 * k * pieces + 2 * i + 1 - pieces) * unit
                density = exp_negative(((x * x) >> work) >> 1, work)
                total += (density * _hermite_mean(x, half_squared, work)) >> work
            result.append(total // pieces >> (work - bits))
        return result

    def log_weights(self, values: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return ln p(k) up to a constant; for sigma above 255 right to 2^-45 of the value."""
        x = values.astype(np.float64) / self.sigma
        square = x * x
        h = 1 / (4 * self.sigma**2)
        excess = h * (square - 1) / 6
        excess += h * h * (square * square - 6 * square + 3) / 120
        excess += h**3 * (square**3 - 15 * square**2 + 45 * square - 15) / 5040
        excess += h**4 * (square**4 - 28 * square**3 + 210 * square**2 - 420 * square) / 362880
        result: NDArray[np.float64] = np.log1p(excess) - square / 2
        return result


@dataclass(frozen=True)
class DiscreteGaussianLaw:
    """The discrete Gaussian: p(k) proportional to exp(-k^2 / (2 sigma^2)).

    Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy" (2020).
    """

    sigma: float

    @property
    def variance(self) -> float:
        """Sigma squared: above the variance, by a relative 2e-7 at sigma = 1 and less beyond."""
        return self.sigma**2

    def weights(self, magnitudes: Sequence[int], bits: int) -> list[int]:
        """Return fixed-point weights.

        Parameters
        ----------
        magnitudes : sequence of int
            Values k of 0 or more.
        bits : int
            Bits behind the point.

        Returns
        -------
        list of int
            See :meth:`NoiseLaw.weights`.
        """
        work = bits + GUARD_BITS
        inverse = _fixed(1 / (2 * Fraction(self.sigma) ** 2), work)
        return [exp_negative(k * k * inverse, work) >> GUARD_BITS for k in magnitudes]

    def log_weights(self, values: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return ln p(k) up to a constant; error below 2^-50 of the value."""
        x = values.astype(np.float64) / self.sigma
        result: NDArray[np.float64] = -(x * x) / 2
        return result


@dataclass(frozen=True)
class DiscreteLaplaceLaw:
    """The discrete Laplace, or two-sided geometric: p(k) proportional to exp(-|k| / scale)."""

    scale: float

    @property
    def variance(self) -> float:
        """2 a / (1 - a)^2 with a = exp(-1/scale)."""
        return 0.5 / math.sinh(0.5 / self.scale) ** 2

    def weights(self, magnitudes: Sequence[int], bits: int) -> list[int]:
        """Return fixed-point weights.

        Parameters
        ----------
        magnitudes : sequence of int
            Values k of 0 or more.
        bits : int
            Bits behind the point.

        Returns
        -------
        list of int
            See :meth:`NoiseLaw.weights`.
        """
        work = bits + GUARD_BITS
        inverse = _fixed(1 / Fraction(self.scale), work)
        return [exp_negative(k * inverse, work) >> GUARD_BITS for k in magnitudes]

    def log_weights(self, values: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return ln p(k) up to a constant; error below 2^-50 of the value."""
        result: NDArray[np.float64] = -np.abs(values.astype(np.float64)) / self.scale
        return result


def exp_negative(value: int, bits: int) -> int:
    """Return exp(-value / 2^bits) * 2^bits for a fixed-point value, rounded down.

    By ln 2, two tables of 256 entries for the next sixteen bits, and a series for the rest.

    Parameters
    ----------
    value : int
        In units of 2^-bits; below zero too, as long as the result is small.
    bits : int
        Bits behind the point.

    Returns
    -------
    int
        In the same units, right to a few of them.
    """
    ln2, first, second = _exp_tables(bits)
    halvings, rest = divmod(value, ln2)
    high = rest >> (bits - 8)
    middle = (rest >> (bits - 16)) & 255
    rest &= (1 << (bits - 16)) - 1
    total = one = 1 << bits
    for n in range(bits // 16 + 1, 0, -1):
        total = one - ((total * rest) >> bits) // n
    total = (total * first[high]) >> bits
    total = (total * second[middle]) >> bits
    return total >> halvings if halvings >= 0 else total << -halvings


@lru_cache(maxsize=8)
def _exp_tables(bits: int) -> tuple[int, list[int], list[int]]:
    guard = bits + 32
    one = 1 << guard
    # ln 2 = 2 artanh(1/3).
    ln2, power, n = 0, 2 * one // 3, 1
    while power:
        ln2 += power // n
        power //= 9
        n += 2

    def series(numerator: int, exponent: int) -> int:
        total, term, k = 0, one, 0
        while term:
            total += -term if k % 2 else term
            k += 1
            term = ((term * numerator) >> exponent) // k
        return total

    first = [series(i, 8) >> 32 for i in range(256)]
    second = [series(i, 16) >> 32 for i in range(256)]
    return ln2 >> 32, first, second


def _fixed(value: Fraction, bits: int) -> int:
    return round(value * (1 << bits))


def _hermite_mean(x: int, half_squared: int, bits: int) -> int:
    """Return sum_j He_2j(x) h^2j / (2j+1)!, everything fixed-point."""
    total = 0
    below, here = 0, 1 << bits
    scale, n = 1 << bits, 0
    negligible = 1 << (bits - 160) if bits > 160 else 1
    small = 0
    while small < 2:
        term = (here * scale) >> bits
        total += term
        small = small + 1 if abs(term) < negligible else 0
        for _ in range(2):
            below, here = here, ((x * here) >> bits) - n * below
            n += 1
        scale = ((scale * half_squared) >> bits) // (n * (n + 1))
    return total


@lru_cache(maxsize=1)
def _riccati() -> list[list[Fraction]]:
    """Coefficients of ln(sqrt(z) e^-z I_k(z)) in 1/z: polynomials in k^2.

    W = sqrt(z) I_k(z) solves W'' = (1 + (k^2 - 1/4)/z^2) W (DLMF 10.40.1 is its expansion); with
    W = e^S, S' = sum_m s_m z^-m obeys 2 s_m = [m=2](k^2 - 1/4) + (m-1) s_{m-1} - sum s_l s_{m-l}.
    """
    s: list[list[Fraction]] = [[Fraction(1)], [Fraction(0)]]
    for m in range(2, _SERIES_ORDER + 1):
        total = [Fraction(0)] * (m // 2 + 1)
        if m == 2:
            total[0], total[1] = Fraction(-1, 4), Fraction(1)
        for i, c in enumerate(s[m - 1]):
            total[i] += (m - 1) * c if m > 2 else 0
        for left in range(1, m):
            for i, a in enumerate(s[left]):
                for j, b in enumerate(s[m - left]):
                    if a and b:
                        total[i + j] -= a * b
        s.append([c / 2 for c in total])
    return s


@lru_cache(maxsize=64)
def _log_bessel_coefficients(variance: float) -> list[Fraction]:
    """Return b_i with ln(I_k(mu) / I_0(mu)) = sum_{i>=1} b_i (k^2/mu)^i."""
    inverse = 1 / Fraction(variance)
    result: list[Fraction] = [Fraction(0)] * (_SERIES_ORDER // 2)
    power = Fraction(1)
    for m, polynomial in enumerate(_riccati()):
        if m < 2:
            continue
        power *= inverse
        for i, c in enumerate(polynomial[1:], start=1):
            # k^2i z^-(m-1) / -(m-1), and k^2i = (k^2/mu)^i mu^i.
            result[i - 1] += -c / (m - 1) * power * Fraction(variance) ** i
    return result


@lru_cache(maxsize=256)
def _float_coefficients(variance: float) -> list[float]:
    """Return the coefficients that matter to a float64, up to 16 sigma."""
    result = [float(c) for c in _log_bessel_coefficients(variance)]
    while result and abs(result[-1]) * 256.0 ** len(result) < 2.0**-60:
        result.pop()
    return result
