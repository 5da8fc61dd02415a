"""Discrete Gaussian noise: shares that clients add and that sum to nearly such noise."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

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
from zerosum.client.privacy.samplers import TAU, discrete_gaussian_sampler
from zerosum.secagg.randomness import Keystream
from zerosum.secagg.vectors.encoding import Encoding
from zerosum.secagg.vectors.wrapping import skellam_log_tail

SMALLEST_SIGMA = 1.0
"""Integer units. Below it the distance of a sum of shares from a discrete Gaussian, at least
10 exp(-pi^2 sigma^2) a coordinate, makes the bound vacuous: epsilon 492.9 where it is 7.95."""

SMALLEST_SHARE = 3.0
"""Sigma of a share, in integer units, below which no run is started: above it the distance of their
sum from a discrete Gaussian, which depends on the cohort's size, is below 10^-37 a coordinate and
share, so that one figure holds for every cohort."""

_PART_OF_A_SHARE = 1e-12
"""Relative rounding of a number of shares that makes no further share of it."""


@dataclass(frozen=True)
class DistributedDiscreteGaussian:
    """A client's share of discrete Gaussian noise; shares add up to nearly such noise.

    Formal guarantees: Kairouz, Liu, Steinke, "The distributed discrete Gaussian mechanism for
    federated learning with secure aggregation" (2021), Proposition 14. Not closed under sums: a
    top-up is drawn share by share, as clients would have drawn them.

    Attributes
    ----------
    l2_sensitivity, l1_sensitivity : float
        Delta2 and Delta1 of one client's vector, in integer units.
    sigma : float
        Parameter of one share, at least 1.
    dimension : int
        Coordinates: the distance between the sum and a discrete Gaussian adds up over them.
    exact : bool
        Draw with OpenDP's sampler, from operating-system entropy.

    Raises
    ------
    ValueError
        If sigma is below 1, where the bound is vacuous.
    """

    l2_sensitivity: float
    l1_sensitivity: float
    sigma: float
    dimension: int
    exact: bool = False
    added_by: ClassVar[AddedBy] = "share"
    norm: ClassVar[Norm] = "l2"
    takes_records: ClassVar[bool] = True
    takes_bit: ClassVar[bool] = False
    takes_exact: ClassVar[bool] = True
    summary: ClassVar[str] = "shares that nearly do"
    caveat: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_positive(
            l2_sensitivity=self.l2_sensitivity,
            l1_sensitivity=self.l1_sensitivity,
            sigma=self.sigma,
            dimension=self.dimension,
        )
        if self.sigma < SMALLEST_SIGMA:
            raise ValueError(
                f"discrete Gaussian shares of sigma = {self.sigma:.3g} integer units have no "
                f"useful bound: at least {SMALLEST_SIGMA:g} is needed; raise encoding.bits or "
                'write privacy.mechanism = "skellam"'
            )
        check_noise("a discrete Gaussian share's sigma", self.sigma)

    @classmethod
    def from_spec(
        cls, privacy: NoiseSettings, code: Encoding, multiplier: float, shares: float
    ) -> Mechanism:
        """Build shares of sigma = z Delta2 / sqrt(f n).

        See :meth:`Mechanism.from_spec`.

        Raises
        ------
        ValueError
            If sigma is below :data:`SMALLEST_SHARE`.
        """
        l2 = code.l2_sensitivity
        sigma = multiplier * l2 / math.sqrt(shares)
        if sigma < SMALLEST_SHARE:
            raise ValueError(
                f"discrete Gaussian shares of sigma = {sigma:.3g} integer units are too small "
                f"(at least {SMALLEST_SHARE:g}): raise encoding.bits, or write "
                'privacy.mechanism = "skellam"'
            )
        return cls(l2, code.l1_sensitivity, sigma, code.length, privacy.exact)

    @property
    def drawn(self) -> Drawn:
        """OpenDP's sampler or a table."""
        return "exact" if self.exact else "table"

    @property
    def tau(self) -> float:
        """Total-variation distance of one share's integer from the discrete Gaussian."""
        return 0.0 if self.exact else TAU

    def apply(self, vector: NDArray[np.int64], rng: Keystream) -> NDArray[np.int64]:
        """Add one share."""
        return vector + self.noise(1, vector.size, rng).reshape(vector.shape)

    def noise(self, shares: float, count: int, rng: Keystream) -> NDArray[np.int64]:
        """Draw the sum of so many shares, a whole number; time grows with it."""
        if shares != int(shares):
            raise ValueError(f"discrete Gaussian shares are whole, not {shares}")
        total = np.zeros(count, dtype=np.int64)
        for _ in range(int(shares)):
            total += self._share(count, rng)
        return total

    def variance(self, shares: float) -> float:
        """Return the variance of ``shares`` shares, to a relative 1e-7 from above."""
        return self.std(shares) ** 2

    def std(self, shares: float) -> float:
        """Return the standard deviation of ``shares`` shares, to a relative 1e-7 from above."""
        return self.sigma * math.sqrt(shares)

    def bit_std(self, shares: float) -> float:
        """Return 0: there is no bit here."""
        return 0.0

    def bound(self, code: Encoding) -> int:
        """Return the encoding's bound."""
        return code.bound

    def log_tail(self, shares: int, margin: float) -> float:
        """Return Skellam's bound at this variance: a discrete Gaussian's tails are lighter."""
        return skellam_log_tail(margin, self.variance(shares))

    def slack(self, cohort: int) -> int:
        """Return 0: shares are integers from the start."""
        return 0

    def event(self, shares: float) -> DpEvent:
        """Describe a sum with ``shares`` shares (any positive real) of noise.

        A part of a share is stated as one more, of all of them smaller ones: the same variance,
        and no smaller a distance from the discrete Gaussian.
        """
        from zerosum.client.privacy.events import DistributedDiscreteGaussianDpEvent

        whole = max(1, math.ceil(shares * (1 - _PART_OF_A_SHARE)))
        return DistributedDiscreteGaussianDpEvent(
            l2_sensitivity=self.l2_sensitivity,
            l1_sensitivity=self.l1_sensitivity,
            sigma=self.sigma * math.sqrt(shares / whole),
            num_shares=whole,
            dimension=self.dimension,
        )

    def divergences(self, shares: float, *, doubled: bool) -> Divergences | None:
        """Return the divergences of a sum with ``shares`` shares."""
        from zerosum.client.privacy.events import share_divergences

        return share_divergences(self.event(shares), doubled=doubled)

    def _share(self, count: int, rng: Keystream) -> NDArray[np.int64]:
        if self.exact:
            from zerosum.client.privacy.opendp import discrete_gaussian

            return discrete_gaussian(self.sigma, count)
        return discrete_gaussian_sampler(self.sigma).sample(count, rng)
