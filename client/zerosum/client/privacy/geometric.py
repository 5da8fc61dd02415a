"""Geometric noise for counts, whole or in shares that add up to it exactly."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from zerosum.client.privacy.block_noise import BlockNoise, Shares, check_moves, not_above
from zerosum.client.privacy.float_slack import FLOAT_SLACK
from zerosum.client.privacy.jumps import jump_sampler
from zerosum.client.privacy.laplace import SMALLEST_SCALE, laplace_log_tail
from zerosum.client.privacy.mechanism import AddedBy, Divergences, DpEvent
from zerosum.client.privacy.noise_range import LARGEST_STD, NoiseOutOfRangeError, check_positive
from zerosum.client.privacy.samplers import discrete_laplace_sampler
from zerosum.secagg.randomness import Keystream


class GeometricNoise(BlockNoise):
    """The discrete Laplace of scale s and its real powers P(r), of a mechanism that adds it.

    With a = exp(-1/s) and r = 1, p(k) = (1-a)/(1+a) a^|k|: the geometric mechanism (Ghosh,
    Roughgarden, Sundararajan, "Universally utility-maximizing privacy mechanisms", 2009). P(r) has
    its characteristic function to the power r, for any real r above 0: it is the difference of two
    negative binomials NB(r, 1-a) (Goryczka and Xiong 2017; Balle, Bell, Gascon, Nissim 2020).

    Formal guarantees: where r is 1 or more, P(r) is P(1) and independent noise, so that a move of m
    in the L1 norm is (m/s)-DP, purely.
    """

    scale: float

    def __post_init__(self) -> None:
        check_scale(self.scale)
        check_moves(self.moves)

    @abstractmethod
    def ratio(self, shares: Shares) -> Fraction:
        """Return r, exactly: so many shares are P(r)."""

    def noise(self, shares: Shares, count: int, rng: Keystream) -> NDArray[np.int64]:
        """Draw P(r) at once: floor(r) times P(1) from a table, the rest by its jumps.

        Parameters
        ----------
        shares : float or Fraction
            Shares, above 0; their number times a share is r.
        count : int
            Coordinates.
        rng : Keystream

        Returns
        -------
        ndarray of int64, shape (count,)
            In integer units.
        """
        whole, rest = divmod(self.ratio(shares), 1)
        result = np.zeros(count, dtype=np.int64)
        for _ in range(whole):
            result += discrete_laplace_sampler(self.scale).sample(count, rng)
        if rest:
            jump_sampler(self.scale, rest).add_to(result, rng)
        return result

    def variance(self, shares: Shares) -> float:
        """Return r 2a / (1-a)^2."""
        return float(self.ratio(shares)) / 2 / math.sinh(0.5 / self.scale) ** 2

    def log_tail(self, shares: int, margin: float) -> float:
        """Return Chernoff's bound for P(r). See :meth:`BlockNoise.log_tail`."""
        return laplace_log_tail(self.scale, float(self.ratio(shares)), margin)

    def event(self, shares: Shares) -> DpEvent:
        """Describe a sum that is guaranteed to hold so many shares.

        Raises
        ------
        ValueError
            If r is below 1: P(r) is then not log-concave, so that a move spread over coordinates
            may be told apart better than the same move in one.
        """
        from zerosum.client.privacy.events import IntegerNoiseDpEvent

        r = self.ratio(shares)
        # Callers shorten float numbers of shares, of which f n would otherwise exceed f n. Here the
        # parts are exact, and 1 that was shortened twice means 1.
        if r < 1 and r >= Fraction(FLOAT_SLACK) ** 2:
            r = Fraction(1)
        if r < 1:
            raise ValueError(
                f"{float(r):.3g} of geometric noise has no receipt: a sum needs all of it, so "
                "more clients have to survive, or honest_fraction has to be lower"
            )
        return IntegerNoiseDpEvent("geometric", (self.scale, not_above(r)), self.moves)


@dataclass(frozen=True)
class DistributedGeometric(GeometricNoise):
    """A client's share of geometric noise; f n shares are exactly one discrete Laplace.

    Formal guarantees: those of :class:`GeometricNoise` for a sum with 1/share shares or more;
    further shares and top-ups only add to it. Against who sees one share alone, see
    :meth:`share_epsilon`.

    Attributes
    ----------
    scale : float
        s of the guaranteed noise, in integer units: at least 1/128, below 2^40.
    share : Fraction
        1/(f n): one share is P(share). No rounding, whatever f n.
    moves : tuple of int
        For each block what one unit moves in it at most.
    """

    scale: float
    share: Fraction
    moves: tuple[int, ...]
    added_by: ClassVar[AddedBy] = "share"
    summary: ClassVar[str] = "shares of discrete Laplace noise on counts, pure epsilon"
    caveat: ClassVar[str] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (isinstance(self.share, Fraction) and self.share > 0):
            raise ValueError(f"share must be a Fraction above 0, not {self.share!r}")

    @classmethod
    def of_query(cls, scale: float, shares: Fraction, moves: tuple[int, ...]) -> Self:
        """Build shares of noise of scale s. See :meth:`BlockNoise.of_query`."""
        return cls(scale, 1 / shares, moves)

    @classmethod
    def guaranteed_fraction(cls, honest_fraction: Fraction, cohort: int) -> Fraction:
        """Return min(f, 1 - 1/n), so that fellow clients face all of the noise.

        A client knows its own share: of n topped-up shares it faces (n-1)/(f n), and less than 1
        has no receipt. See :meth:`BlockNoise.guaranteed_fraction`. One client alone has no fellow.
        """
        return min(honest_fraction, Fraction(max(1, cohort - 1), cohort))

    def ratio(self, shares: Shares) -> Fraction:
        """Return ``shares`` times a share, exactly."""
        return Fraction(shares) * self.share

    def share_epsilon(self, moves: Sequence[int]) -> float:
        """Return the pure epsilon of one share, for whoever sees a contribution unmasked.

        l times all moves, l = ln(p(0)/p(1)) of P(share): for r below 1, p(k) is a moment sequence
        in k >= 0 (that of NB(r, .) is, by the Beta integral), hence log-convex, so that p(k)/p(k+1)
        is largest at 0. From r = 1 on it is largest far out, 1/s.

        Parameters
        ----------
        moves : sequence of int
            Of every block, under the adjacency that is meant.

        Returns
        -------
        float
            Rounded up. Beside it belongs :attr:`share_caveat`.
        """
        if self.share >= 1:
            return sum(moves) / self.scale
        # Two integrals (or series) right to some 1e-13.
        return sum(moves) * _about_zero(self.scale, float(self.share))[1] * (1 + 1e-9)

    @property
    def share_caveat(self) -> str:
        """Say how little a share of finite epsilon hides by itself."""
        zero = _about_zero(self.scale, float(self.share))[0]
        return f"one share of geometric noise is 0 with probability {math.floor(zero * 1e3) / 1e3}"


@dataclass(frozen=True)
class CentralGeometric(GeometricNoise):
    """Discrete Laplace noise that a trusted server adds once to a sum of counts.

    Formal guarantees: those of :class:`GeometricNoise` at r = 1, against observers of what the
    server releases. None against the server: clients add nothing.

    Attributes
    ----------
    scale : float
        s, in integer units: at least 1/128, below 2^40.
    moves : tuple of int
        For each block what one unit moves in it at most.
    """

    scale: float
    moves: tuple[int, ...]
    added_by: ClassVar[AddedBy] = "server"
    summary: ClassVar[str] = DistributedGeometric.summary
    caveat: ClassVar[str] = "the server is trusted: it sees sums before it adds the noise"

    @classmethod
    def of_query(cls, scale: float, shares: Fraction, moves: tuple[int, ...]) -> Self:
        """Build noise of scale s, undivided. See :meth:`BlockNoise.of_query`."""
        return cls(scale, moves)

    def ratio(self, shares: Shares) -> Fraction:
        """Return 1, however many contributed."""
        return Fraction(1)

    def divergences(self, shares: Shares, *, doubled: bool) -> Divergences | None:
        """Return None: to the server, whom the client's own count is about, nothing is hidden."""
        return None


def check_scale(scale: float) -> None:
    """Check that geometric noise protects somebody and fits into 64 bits.

    Parameters
    ----------
    scale : float
        s, in integer units.

    Raises
    ------
    NoiseOutOfRangeError
        With the cure, if it does not.
    """
    check_positive(scale=scale)
    if not SMALLEST_SCALE <= scale < LARGEST_STD:
        raise NoiseOutOfRangeError(
            f"geometric noise's scale would be {scale:.3g} integer units, and has to be at least "
            f"1/128 and below 2^40: {'lower' if scale < SMALLEST_SCALE else 'raise'} the query's "
            "epsilon"
        )


@lru_cache(maxsize=64)
def _about_zero(scale: float, r: float) -> tuple[float, float]:
    """Return p(0) and ln(p(0)/p(1)) of P(r), to some 1e-13 of each.

    Up to s = 1 by p(k) = sum_m q(m) q(m+k) of the negative binomial's q, whose terms fall as e^-2m.
    Above by Fourier inversion, p(k) = (1/pi) int_0^pi phi(t)^r cos(k t) dt, where with x = t/2
    phi = 1/(1 + sin^2 x / c), c = sinh^2(1/2s); both integrands of p(0) and p(0) - p(1) are
    positive, so that nothing cancels. Tanh-sinh quadrature (Takahasi and Mori 1974), because phi
    has all its mass in [0, 1/s].
    """
    if scale <= 1:
        a, m = math.exp(-1 / scale), np.arange(64)
        q = np.cumprod(np.concatenate(([1.0], (r + m) / (m + 1) * a)))
        square, zero = float(q @ q), (1 - a) ** (2 * r)
        return square * zero, -math.log(float(q[:-1] @ q[1:]) / square)
    u = np.arange(-4.5, 4.5, 2.0**-7)
    y = np.exp(-math.pi * np.sinh(u))  # (1 - tanh(pi/2 sinh u)) / (1 + tanh) on [0, 1]
    x = math.pi / 2 * y / (1 + y)
    width = math.pi**2 / 2 * np.cosh(u) * y / (1 + y) ** 2 * 2.0**-7
    square = np.sin(x) ** 2
    power = np.exp(-r * np.log1p(square / math.sinh(0.5 / scale) ** 2)) * width * 2 / math.pi
    zero = float(power.sum())
    return zero, -math.log1p(-2 * float(power @ square) / zero)
