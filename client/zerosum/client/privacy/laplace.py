"""Discrete Laplace noise: pure epsilon for vectors of bounded L1 norm."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from zerosum.client.privacy import renyi_curves
from zerosum.client.privacy.mechanism import (
    AddedBy,
    Divergences,
    DpEvent,
    Drawn,
    Mechanism,
    NoiseSettings,
    Norm,
)
from zerosum.client.privacy.noise_range import check_noise, check_positive
from zerosum.client.privacy.samplers import TAU, discrete_laplace_sampler
from zerosum.secagg.randomness import Keystream
from zerosum.secagg.vectors.encoding import Encoding

SMALLEST_SCALE = 1 / 128
"""Below it, in integer units, the noise is 0 with probability 1 - 2^-180."""


@dataclass(frozen=True)
class DiscreteLaplace:
    """Full-strength discrete Laplace noise on every contribution, for vectors of bounded L1 norm.

    Formal guarantees: pure epsilon-DP, Delta1/scale against zero and twice that under
    replacement; and the trade-off curve of one coordinate that moves by all of Delta1. (Along a
    path that moves one coordinate at a time, optimal tests are thresholds, so the curves of the
    steps chain to exactly that one; group privacy says that the path's end is no easier to tell.)

    Attributes
    ----------
    scale : float
        p(k) is proportional to exp(-|k| / scale).
    l1_sensitivity : int
        Delta1 of one client's vector against zero, exact: the encoding's integer check.
    exact : bool
        Draw with OpenDP's sampler, from operating-system entropy.
    """

    scale: float
    l1_sensitivity: int
    exact: bool = False
    added_by: ClassVar[AddedBy] = "client"
    norm: ClassVar[Norm] = "l1"
    takes_records: ClassVar[bool] = False
    takes_bit: ClassVar[bool] = False
    takes_exact: ClassVar[bool] = True
    summary: ClassVar[str] = "pure epsilon on the L1 norm"
    caveat: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_positive(scale=self.scale, l1_sensitivity=self.l1_sensitivity)
        check_noise("discrete Laplace noise's scale", self.scale, SMALLEST_SCALE)

    @classmethod
    def from_spec(
        cls, privacy: NoiseSettings, code: Encoding, multiplier: float, shares: float
    ) -> Mechanism:
        """Build noise of scale z Delta1. See :meth:`Mechanism.from_spec`."""
        l1 = code.l1_sensitivity
        return cls(multiplier * l1, int(l1), privacy.exact)

    @property
    def drawn(self) -> Drawn:
        """OpenDP's sampler or a table."""
        return "exact" if self.exact else "table"

    @property
    def tau(self) -> float:
        """Total-variation distance of one drawn integer from the discrete Laplace."""
        return 0.0 if self.exact else TAU

    @property
    def epsilon(self) -> float:
        """Pure epsilon of one contribution under replacement."""
        return 2 * self.l1_sensitivity / self.scale

    def apply(self, vector: NDArray[np.int64], rng: Keystream) -> NDArray[np.int64]:
        """Add noise."""
        if self.exact:
            from zerosum.client.privacy.opendp import discrete_laplace

            noise = discrete_laplace(self.scale, vector.size)
        else:
            noise = discrete_laplace_sampler(self.scale).sample(vector.size, rng)
        return vector + noise.reshape(vector.shape)

    def noise(self, shares: float, count: int, rng: Keystream) -> NDArray[np.int64]:
        """Raise ValueError: a sum of Laplace noise is not Laplace noise."""
        raise ValueError("discrete Laplace noise is drawn by each client, not for a sum at once")

    def variance(self, shares: float) -> float:
        """Return the variance of ``shares`` contributions' noise."""
        return self.std(shares) ** 2

    def std(self, shares: float) -> float:
        """Return the standard deviation of ``shares`` contributions' noise."""
        return math.sqrt(shares / 2) / math.sinh(0.5 / self.scale)

    def bit_std(self, shares: float) -> float:
        """Return 0: there is no bit here."""
        return 0.0

    def bound(self, code: Encoding) -> int:
        """Return the encoding's bound."""
        return code.bound

    def slack(self, cohort: int) -> int:
        """Return 0: the noise is integer from the start."""
        return 0

    def event(self, shares: float) -> DpEvent:
        """Describe one contribution, against zero.

        Under replace adjacency the ledger doubles the sensitivity. More than one share is charged
        as one: further noise is post-processing.
        """
        from dp_accounting.dp_event import DiscreteLaplaceDpEvent

        if shares < 1:
            raise ValueError("discrete Laplace noise cannot be divided into shares")
        return DiscreteLaplaceDpEvent(1 / self.scale, self.l1_sensitivity)

    def divergences(self, shares: float, *, doubled: bool) -> Divergences | None:
        """Return the divergences of one contribution's pure epsilon under replacement."""
        return renyi_curves.pure(self.epsilon)

    def log_tail(self, shares: int, margin: float) -> float:
        """Return ln of a bound on P(noise of so many contributions > margin), in one coordinate.

        Not by Skellam's bound: Laplace tails are heavier than those of its variance.
        """
        return laplace_log_tail(self.scale, shares, margin)


def laplace_log_tail(scale: float, count: float, margin: float) -> float:
    """Bound the tail of a sum of discrete Laplace noise, by Chernoff.

    exp(-theta margin) (E e^(theta X))^count with theta = x / scale and
    E e^(theta X) = sinh^2(1/(2 scale)) / (sinh^2(1/(2 scale)) - sinh^2(theta/2)).

    Parameters
    ----------
    scale : float
        In integer units.
    count : float
        How many are added; any real above 0, since every real power of the law is one.
    margin : float
        Integer units, above 0.

    Returns
    -------
    float
        ln of a bound on P(sum > margin); at most 0.
    """
    half = math.sinh(0.5 / scale) ** 2

    def bound(x: float) -> float:
        moved = math.sinh(0.5 * x / scale) ** 2
        return -x * margin / scale - count * math.log1p(-moved / half)

    return min(0.0, *(bound(i / 200) for i in range(1, 200)))
