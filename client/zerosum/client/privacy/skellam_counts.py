"""Skellam noise for counts, in shares that add up to it."""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from zerosum.client.privacy.block_noise import (
    BlockNoise,
    Shares,
    check_moves,
    not_above,
    not_below,
)
from zerosum.client.privacy.mechanism import AddedBy, DpEvent
from zerosum.client.privacy.noise_range import LARGEST_STD, NoiseOutOfRangeError, check_positive
from zerosum.client.privacy.samplers import skellam_sampler
from zerosum.secagg.randomness import Keystream
from zerosum.secagg.vectors.wrapping import skellam_log_tail


@dataclass(frozen=True)
class SkellamCounts(BlockNoise):
    """A client's share of Skellam noise on counts, accounted by its exact law.

    Formal guarantees: Skellam noise is log-concave, so that a block whose L1 norm moves by m is
    told apart no better than one coordinate that moves by m; blocks compose.

    Attributes
    ----------
    sum_variance : float
        mu, the variance of the guaranteed f n shares in a coordinate.
    share : Fraction
        1/(f n): a share has that part of mu.
    moves : tuple of int
        For each block what one unit moves in it at most.
    """

    sum_variance: float
    share: Fraction
    moves: tuple[int, ...]
    added_by: ClassVar[AddedBy] = "share"
    summary: ClassVar[str] = "shares of Skellam noise on counts"
    caveat: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_positive(sum_variance=self.sum_variance)
        check_moves(self.moves)
        if not (isinstance(self.share, Fraction) and self.share > 0):
            raise ValueError(f"share must be a Fraction above 0, not {self.share!r}")
        if self.std(1) > LARGEST_STD:
            raise NoiseOutOfRangeError(
                f"a Skellam share's deviation would be {self.std(1):.3g} integer units, and has to "
                "be at most 2^40: raise the query's epsilon"
            )

    @classmethod
    def of_query(cls, scale: float, shares: Fraction, moves: tuple[int, ...]) -> Self:
        """Build shares of noise of standard deviation ``scale``. See BlockNoise.of_query."""
        return cls(scale**2, 1 / shares, moves)

    def _exact_variance(self, shares: Shares) -> Fraction:
        return Fraction(self.sum_variance) * Fraction(shares) * self.share

    def variance(self, shares: Shares) -> float:
        """Return the variance of so many shares, as it is drawn: rounded up."""
        return not_below(self._exact_variance(shares))

    def noise(self, shares: Shares, count: int, rng: Keystream) -> NDArray[np.int64]:
        """Draw the sum of so many shares (any positive real) at once."""
        return skellam_sampler(self.variance(shares)).sample(count, rng)

    def log_tail(self, shares: int, margin: float) -> float:
        """Return Chernoff's bound for Skellam noise."""
        return skellam_log_tail(margin, self.variance(shares))

    def event(self, shares: Shares) -> DpEvent:
        """Describe a sum with so many shares (any positive real), its variance rounded down."""
        from zerosum.client.privacy.events import IntegerNoiseDpEvent

        mu = not_above(self._exact_variance(shares))
        return IntegerNoiseDpEvent("skellam", (mu,), self.moves)
