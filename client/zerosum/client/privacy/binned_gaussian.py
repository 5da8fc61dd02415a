"""Gaussian noise of full strength on every contribution, rounded to integers."""

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
from zerosum.client.privacy.noise_range import SMALLEST_ROUNDED, check_noise, check_positive
from zerosum.client.privacy.samplers import TAU, binned_gaussian_sampler
from zerosum.secagg.randomness import Keystream
from zerosum.secagg.vectors.encoding import Encoding
from zerosum.secagg.vectors.wrapping import skellam_log_tail


@dataclass(frozen=True)
class BinnedGaussian:
    """Full-strength Gaussian noise, rounded to integers, on every contribution.

    Formal guarantees: for an integer vector x, x + round(N) = round(x + N), a function of the
    Gaussian mechanism's output; so every guarantee of that mechanism holds, exactly. It is not
    closed under sums: whatever the number of contributions added, one is all that is claimed.

    Attributes
    ----------
    sigma : float
        Standard deviation of the Gaussian, before rounding.
    l2_sensitivity : float
        Delta2 of one client's vector against zero; replacing one vector by another changes it by
        twice this.
    """

    sigma: float
    l2_sensitivity: float
    added_by: ClassVar[AddedBy] = "client"
    norm: ClassVar[Norm] = "l2"
    takes_records: ClassVar[bool] = True
    takes_bit: ClassVar[bool] = False
    takes_exact: ClassVar[bool] = False
    summary: ClassVar[str] = "a Gaussian rounded to integers"
    drawn: ClassVar[Drawn] = "table"
    tau: ClassVar[float] = TAU
    caveat: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_positive(sigma=self.sigma, l2_sensitivity=self.l2_sensitivity)
        check_noise("a rounded Gaussian's sigma", self.sigma, SMALLEST_ROUNDED)

    @classmethod
    def from_spec(
        cls, privacy: NoiseSettings, code: Encoding, multiplier: float, shares: float
    ) -> Mechanism:
        """Build noise of sigma = z Delta2. See :meth:`Mechanism.from_spec`."""
        return cls(sigma=multiplier * code.l2_sensitivity, l2_sensitivity=code.l2_sensitivity)

    def apply(self, vector: NDArray[np.int64], rng: Keystream) -> NDArray[np.int64]:
        """Add noise."""
        return vector + self.noise(1, vector.size, rng).reshape(vector.shape)

    def noise(self, shares: float, count: int, rng: Keystream) -> NDArray[np.int64]:
        """Draw a Gaussian of the sum's variance, rounded once: simulations only.

        Clients would each round theirs, which one contribution's noise is.
        """
        return binned_gaussian_sampler(self.std(shares)).sample(count, rng)

    def variance(self, shares: float) -> float:
        """Return the variance of ``shares`` contributions' noise, rounding aside."""
        return self.std(shares) ** 2

    def std(self, shares: float) -> float:
        """Return the standard deviation of ``shares`` contributions' noise, rounding aside."""
        return self.sigma * math.sqrt(shares)

    def bit_std(self, shares: float) -> float:
        """Return 0: there is no bit here."""
        return 0.0

    def bound(self, code: Encoding) -> int:
        """Return the encoding's bound."""
        return code.bound

    def log_tail(self, shares: int, margin: float) -> float:
        """Return Skellam's bound at this variance: its cumulants exceed a Gaussian's."""
        return skellam_log_tail(margin, self.variance(shares))

    def slack(self, cohort: int) -> int:
        """Return one unit a client: rounding moves each by half, and the bound is for the Gaussian.

        Half a unit would do; a whole one keeps the margin an integer.
        """
        return cohort

    def event(self, shares: float) -> DpEvent:
        """Describe one contribution by a Gaussian, its noise in units of Delta2.

        Under replace adjacency the ledger doubles the sensitivity. More than one share is charged
        as one: further noise is post-processing.
        """
        from dp_accounting import GaussianDpEvent

        if shares < 1:
            raise ValueError("rounded Gaussian noise cannot be divided into shares")
        return GaussianDpEvent(self.sigma / self.l2_sensitivity)

    def divergences(self, shares: float, *, doubled: bool) -> Divergences | None:
        """Return the divergences of one contribution under replacement."""
        return renyi_curves.gaussian(self.sigma / (2 * self.l2_sensitivity))
