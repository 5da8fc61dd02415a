"""Laws of integer noise in float64: geometric noise of any count of shares, and Skellam noise.

For receipts and for quantiles of answers, which need the tails to a small *relative* error. The
samplers' fixed-point weights (:mod:`~zerosum.client.privacy.pmf`) are right to 120 bits, and too
slow for arrays of a million. Numpy alone: clients charge their own budget by the same numbers.
"""

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from functools import lru_cache
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

IntegerLaw = Literal["geometric", "skellam"]
"""Names of laws, as a request and a receipt carry them."""

CUT_BITS = 140
"""A probability function ends where less than 2^-140 of its mass is left."""

Floats = NDArray[np.float64]
Pmf = tuple[NDArray[np.int64], Floats]

LONGEST = 1 << 23
"""Most values of one sign that an array is made for: 64 MiB, and a second's recurrence."""

_SETTLING_BITS = 60
"""Bits by which a backward recurrence forgets the guess that it starts from."""


@dataclass(frozen=True)
class Geometric:
    """P(r, s): r shares of noise of which one alone would be the discrete Laplace of scale s.

    Its characteristic function is that of the discrete Laplace to the power r: it is the difference
    of two negative binomial variables NB(r, 1 - a), a = exp(-1/s) (Goryczka and Xiong, 2017;
    Balle, Bell, Gascon, Nissim, 2020). Log-concave from r = 1 on, log-convex on k >= 0 below.

    Attributes
    ----------
    scale : float
        s, in integer units.
    r : float
        Any real above 0.

    Raises
    ------
    ValueError
        If a parameter is not finite and above 0.
    """

    scale: float
    r: float = 1.0

    def __post_init__(self) -> None:
        _check_positive("geometric", self.scale, self.r)

    @property
    def std(self) -> float:
        """sqrt(2 a r) / (1 - a)."""
        # sinh overflows below a scale of 1/1400, where the deviation is 0 but for 1e-300.
        return math.sqrt(self.r / 2) / math.sinh(min(0.5 / self.scale, 700.0))

    @property
    def is_log_concave(self) -> bool:
        """Whether there is at least one whole discrete Laplace in it."""
        return self.r >= 1

    def pure_epsilon(self, move: int) -> float:
        """Return move / scale: of one discrete Laplace, that more noise only processes.

        Parameters
        ----------
        move : int
            In integer units.

        Returns
        -------
        float
            inf below r = 1.
        """
        return move / self.scale if self.is_log_concave else math.inf

    def extent(self, bits: int = CUT_BITS) -> int:
        """Return an m with P(|Z| > m) <= 2^-bits, by Chernoff's bound.

        Parameters
        ----------
        bits : int
            0 or more.

        Returns
        -------
        int
            A few per cent above the least.
        """
        part = np.arange(1, 400) / 400
        theta = part / self.scale
        # sinh(x/2s) / sinh(1/2s), which squared is 1 - 1/(moment generating function of r = 1).
        ratio = np.exp((part - 1) / (2 * self.scale))
        ratio *= np.expm1(-theta) / math.expm1(-1 / self.scale)
        return _chernoff(theta, -self.r * np.log1p(-(ratio**2)), bits)

    def log_probabilities(self, last: int) -> Floats:
        """Return ln P(Z = k) for k = 0 to ``last``, right to 1e-10 far beyond :meth:`extent`.

        Parameters
        ----------
        last : int
            0 or more.

        Returns
        -------
        ndarray of float64, shape (last + 1,)
            In closed form for r = 1: p(k) = (1-a)/(1+a) a^k.
        """
        if self.r == 1:
            logs: Floats = math.log(math.tanh(0.5 / self.scale)) - np.arange(last + 1) / self.scale
            return logs
        return _normalised(self._steps(max(last, self.extent())))[: last + 1]

    def _steps(self, last: int) -> Floats:
        """Return ln p(k)/p(k-1) for k = 1 to last, shape (last,).

        G(z) = sum p(k) z^k = ((1-a)^2 / ((1 - a z)(1 - a/z)))^r obeys z (1 - a z)(z - a) G' =
        r a (z^2 - 1) G, so that (k + 1 - r) p(k+1) = (a + 1/a) k p(k) - (k - 1 + r) p(k-1). The
        p(k) are its minimal solution: backward, as Miller's algorithm goes (DLMF 3.6(iii)). It runs
        on u(k) = 1 - p(k)/(a p(k-1)), which is 0 at r = 1 and small beside: the ratio itself would
        lose as many digits as the scale has, and overflow at small scales.
        """
        r, small = self.r, -math.expm1(-2 / self.scale)
        settling = math.ceil(_SETTLING_BITS * math.log(2) / 2 * self.scale) + 50
        excess, left = small * (1 - r), math.exp(-2 / self.scale)
        u = 0.0
        losses = [0.0] * last
        for k in range(last + settling, 0, -1):
            w = excess + left * (k + 1 - r) * u
            u = w / (k - 1 + r + w)
            if k <= last:
                losses[k - 1] = u
        steps: Floats = np.log1p(-np.array(losses)) - 1 / self.scale
        return steps


@dataclass(frozen=True)
class Skellam:
    """The difference of two Poisson variables of mean variance / 2: p(k) = exp(-mu) I_k(mu).

    Attributes
    ----------
    variance : float
        mu, in integer units.

    Raises
    ------
    ValueError
        If it is not finite and above 0.
    """

    variance: float

    def __post_init__(self) -> None:
        _check_positive("skellam", self.variance)

    @property
    def std(self) -> float:
        """Square root of the variance."""
        return math.sqrt(self.variance)

    @property
    def is_log_concave(self) -> bool:
        """True: Poisson laws are log-concave, and so are convolutions of such."""
        return True

    def pure_epsilon(self, move: int) -> float:
        """Return inf: tails fall faster than any exponential.

        Parameters
        ----------
        move : int
            In integer units.

        Returns
        -------
        float
        """
        return math.inf

    def extent(self, bits: int = CUT_BITS) -> int:
        """Return an m with P(|Z| > m) <= 2^-bits, by Chernoff's bound.

        Parameters
        ----------
        bits : int
            0 or more.

        Returns
        -------
        int
            A few per cent above the least.
        """
        theta = np.geomspace(1e-6, 50, 2000)
        return _chernoff(theta, self.variance * 2 * np.sinh(theta / 2) ** 2, bits)

    def log_probabilities(self, last: int) -> Floats:
        """Return ln P(Z = k) for k = 0 to ``last``, right to 1e-10 far beyond :meth:`extent`.

        Parameters
        ----------
        last : int
            0 or more.

        Returns
        -------
        ndarray of float64, shape (last + 1,)
        """
        return _normalised(self._steps(max(last, self.extent())))[: last + 1]

    def _steps(self, last: int) -> Floats:
        """Return ln I_k(mu)/I_{k-1}(mu) for k = 1 to last, shape (last,).

        Miller's backward recurrence in ratios, 1/z_k = 2k/mu + z_{k+1} (DLMF 3.6(iii), 10.29.1):
        all terms are positive and errors alternate.
        """
        # A start's error decays like exp(-2 asinh(k / mu)) a step: 60 bits at 8 sigma.
        start = last + math.ceil(8 * math.sqrt(self.variance)) + 50
        z, double = 0.0, 2 / self.variance
        ratios = [0.0] * last
        for k in range(start, 0, -1):
            z = 1 / (k * double + z)
            if k <= last:
                ratios[k - 1] = z
        steps: Floats = np.log(np.array(ratios))
        return steps


LAWS: Final[Mapping[str, type[Geometric] | type[Skellam]]] = {
    "geometric": Geometric,
    "skellam": Skellam,
}


def law_of(law: str, parameters: tuple[float, ...]) -> Geometric | Skellam:
    """Return a law by its name and parameters, as a receipt has them.

    Parameters
    ----------
    law : {"geometric", "skellam"}
        A key of :data:`LAWS`.
    parameters : tuple of float
        (scale, r), or (variance,).

    Returns
    -------
    Geometric or Skellam

    Raises
    ------
    ValueError
        If the name is unknown, or parameters are too many, too few or out of range.
    """
    known = LAWS.get(law)
    if known is None:
        raise ValueError(f"law is one of {', '.join(LAWS)}, not {law!r}")
    expected = len(known.__dataclass_fields__)
    if len(parameters) != expected:
        raise ValueError(f"{law} noise has {expected} parameters, not {parameters}")
    return known(*parameters)


@lru_cache(maxsize=8)
def two_sided(noise: Geometric | Skellam) -> Pmf:
    """Return the probability function of a law, both tails.

    Parameters
    ----------
    noise : Geometric or Skellam
        The law.

    Returns
    -------
    values : ndarray of int64, shape (2 m + 1,)
        -m to m.
    probabilities : ndarray of float64, shape (2 m + 1,)
        Read-only, right to a relative 1e-10 in the tails too; what is cut off is below 2^-140.

    Raises
    ------
    ValueError
        If more than :data:`LONGEST` values of one sign are needed: geometric scales above some
        80,000, Skellam deviations above 600,000.
    """
    last = noise.extent()
    if last > LONGEST:
        raise ValueError(
            f"{type(noise).__name__} noise of parameters {astuple(noise)} takes {last} "
            f"probabilities of one sign; {LONGEST} are made at most"
        )
    half = np.exp(noise.log_probabilities(last))
    probabilities = np.concatenate((half[:0:-1], half))
    probabilities.flags.writeable = False
    values = np.arange(-last, last + 1, dtype=np.int64)
    values.flags.writeable = False
    return values, probabilities


def _check_positive(law: str, *parameters: float) -> None:
    if not all(math.isfinite(one) and one > 0 for one in parameters):
        raise ValueError(f"parameters of {law} noise are finite and above 0, not {parameters}")


def _chernoff(theta: Floats, cumulants: Floats, bits: int) -> int:
    """Return the least m with 2 exp(cumulant - theta m) <= 2^-bits at one of the thetas."""
    nats = (bits + 1) * math.log(2)
    return math.ceil(float(np.min((nats + cumulants) / theta)))


def _normalised(steps: Floats) -> Floats:
    """Return ln p(k), k >= 0, from its steps, which hold all mass but 2^-140."""
    logs = np.concatenate(([0.0], np.cumsum(steps)))
    logs -= math.log(1 + 2 * math.fsum(np.exp(logs[1:])))
    return logs
