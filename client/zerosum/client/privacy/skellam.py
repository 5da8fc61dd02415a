"""Skellam noise: shares that clients add and that sum to Skellam noise."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from zerosum.client.privacy.adaptive_bit import BIT_UNITS, bit_values
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
from zerosum.client.privacy.samplers import TAU, skellam_sampler
from zerosum.secagg.randomness import Keystream
from zerosum.secagg.vectors.encoding import Encoding
from zerosum.secagg.vectors.wrapping import skellam_log_tail


@dataclass(frozen=True)
class DistributedSkellam:
    """A client's share of Skellam noise; shares add up to Skellam noise.

    Formal guarantees: a sum of integer vectors in which one client's part changes by at most
    ``l2_sensitivity`` and ``l1_sensitivity``, with shares of total variance mu in each coordinate,
    has the Renyi divergence of Agarwal, Kairouz, Liu, "The Skellam mechanism for differentially
    private federated learning" (2021), Theorem 3.5.

    Why Skellam: the difference of two Poisson variables is closed under sums, so that shares of
    any number of clients, and a top-up of any size, have exactly the law that is charged.

    Attributes
    ----------
    l2_sensitivity, l1_sensitivity : float
        Delta2 and Delta1 of one client's vector, in integer units.
    share_variance : float
        Variance of one client's noise in a coordinate.
    dimension : int or None
        Coordinates: the distance of their noise from a Gaussian adds up over them. None where that
        is not known.
    """

    l2_sensitivity: float
    l1_sensitivity: float
    share_variance: float
    dimension: int | None = None
    added_by: ClassVar[AddedBy] = "share"
    norm: ClassVar[Norm] = "l2"
    takes_records: ClassVar[bool] = True
    takes_bit: ClassVar[bool] = True
    takes_exact: ClassVar[bool] = False
    summary: ClassVar[str] = "shares that add up exactly"
    drawn: ClassVar[Drawn] = "table"
    tau: ClassVar[float] = TAU
    caveat: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_positive(
            l2_sensitivity=self.l2_sensitivity,
            l1_sensitivity=self.l1_sensitivity,
            share_variance=self.share_variance,
        )
        check_noise("a Skellam share's deviation", math.sqrt(self.share_variance))

    @classmethod
    def from_spec(
        cls, privacy: NoiseSettings, code: Encoding, multiplier: float, shares: float
    ) -> Mechanism:
        """Build shares of V = (z Delta2)^2; with adaptive clipping, those of its bit beside them.

        See :meth:`Mechanism.from_spec`.
        """
        l2 = code.l2_sensitivity
        variance = (multiplier * l2) ** 2 / shares
        update = cls(l2, code.l1_sensitivity, variance, code.length)
        return SkellamWithBit(update, _bit(privacy, shares)) if privacy.adaptive else update

    def apply(self, vector: NDArray[np.int64], rng: Keystream) -> NDArray[np.int64]:
        """Add one share."""
        return vector + self.noise(1, vector.size, rng).reshape(vector.shape)

    def noise(self, shares: float, count: int, rng: Keystream) -> NDArray[np.int64]:
        """Draw the sum of so many shares (any positive real) at once."""
        return skellam_sampler(self.variance(shares)).sample(count, rng)

    def variance(self, shares: float) -> float:
        """Return the variance of ``shares`` shares."""
        return self.share_variance * shares

    def std(self, shares: float) -> float:
        """Return the standard deviation of ``shares`` shares."""
        return math.sqrt(self.variance(shares))

    def bit_std(self, shares: float) -> float:
        """Return 0: there is no bit here, see :class:`SkellamWithBit`."""
        return 0.0

    def bound(self, code: Encoding) -> int:
        """Return the encoding's bound."""
        return code.bound

    def log_tail(self, shares: int, margin: float) -> float:
        """Return Chernoff's bound for Skellam noise."""
        return skellam_log_tail(margin, self.variance(shares))

    def slack(self, cohort: int) -> int:
        """Return 0: shares are integers from the start."""
        return 0

    def event(self, shares: float) -> DpEvent:
        """Describe a sum with ``shares`` shares (any positive real) of noise."""
        from zerosum.client.privacy.events import SkellamDpEvent

        return SkellamDpEvent(
            l2_sensitivity=self.l2_sensitivity,
            l1_sensitivity=self.l1_sensitivity,
            variance=self.variance(shares),
            dimension=self.dimension,
        )

    def divergences(self, shares: float, *, doubled: bool) -> Divergences | None:
        """Return the divergences of a sum with ``shares`` shares."""
        from zerosum.client.privacy.events import share_divergences

        return share_divergences(self.event(shares), doubled=doubled)


@dataclass(frozen=True)
class SkellamWithBit:
    """Shares of Skellam noise on an update, and others on the bit of adaptive clipping behind it.

    Formal guarantees: those of both parts, composed; a client's absence changes both at once, so
    sampling amplifies the composition and never the two apart. Andrew, Thakkar, McMahan,
    Ramaswamy, "Differentially private learning with adaptive clipping" (2021).

    Attributes
    ----------
    update : DistributedSkellam
        Of all coordinates but the last, at z_delta = (z^-2 - (s/sigma_b)^2)^(-1/2).
    bit : DistributedSkellam
        Of the last, whose sensitivity s, in clients, is 1/2 at the median.
    """

    update: DistributedSkellam
    bit: DistributedSkellam
    added_by: ClassVar[AddedBy] = "share"
    norm: ClassVar[Norm] = "l2"
    takes_records: ClassVar[bool] = False
    takes_bit: ClassVar[bool] = True
    takes_exact: ClassVar[bool] = False
    summary: ClassVar[str] = DistributedSkellam.summary
    drawn: ClassVar[Drawn] = "table"
    tau: ClassVar[float] = TAU
    caveat: ClassVar[str] = ""

    @classmethod
    def from_spec(
        cls, privacy: NoiseSettings, code: Encoding, multiplier: float, shares: float
    ) -> Mechanism:
        """Build it by way of :meth:`DistributedSkellam.from_spec`."""
        return DistributedSkellam.from_spec(privacy, code, multiplier, shares)

    def apply(self, vector: NDArray[np.int64], rng: Keystream) -> NDArray[np.int64]:
        """Add one share to a vector with the bit last."""
        return vector + self.noise(1, vector.size, rng)

    def noise(self, shares: float, count: int, rng: Keystream) -> NDArray[np.int64]:
        """Draw the sum of so many shares (any positive real), ``count`` with the bit's."""
        parts = (self.update.noise(shares, count - 1, rng), self.bit.noise(shares, 1, rng))
        return np.concatenate(parts)

    def variance(self, shares: float) -> float:
        """Return the larger of the variances of update and bit."""
        return max(self.update.variance(shares), self.bit.variance(shares))

    def std(self, shares: float) -> float:
        """Return the standard deviation of ``shares`` shares in a coordinate of the update."""
        return self.update.std(shares)

    def bit_std(self, shares: float) -> float:
        """Return the standard deviation of ``shares`` shares of the bit's noise."""
        return self.bit.std(shares)

    def bound(self, code: Encoding) -> int:
        """Return the larger of the encoding's bound and the bit's."""
        return max(code.bound, math.ceil(self.bit.l2_sensitivity))

    def log_tail(self, shares: int, margin: float) -> float:
        """Return Chernoff's bound in the noisier of update and bit."""
        return skellam_log_tail(margin, self.variance(shares))

    def slack(self, cohort: int) -> int:
        """Return 0: shares are integers from the start."""
        return 0

    def event(self, shares: float) -> DpEvent:
        """Describe update and bit jointly, in a sum with ``shares`` shares of noise."""
        from dp_accounting import ComposedDpEvent

        return ComposedDpEvent([self.update.event(shares), self.bit.event(shares)])

    def divergences(self, shares: float, *, doubled: bool) -> Divergences | None:
        """Return the divergences of both, in a sum with ``shares`` shares."""
        from zerosum.client.privacy.events import share_divergences

        return share_divergences(self.event(shares), doubled=doubled)


def _bit(privacy: NoiseSettings, shares: float) -> DistributedSkellam:
    """Return the noise of the bit: sigma_b = clip_noise z, in clients."""
    sigma = 2 * BIT_UNITS * privacy.clip_noise * (privacy.noise_multiplier or 0.0)
    largest = float(max(map(abs, bit_values(privacy.clip_quantile))))
    return DistributedSkellam(largest, largest, sigma**2 / shares, dimension=1)
