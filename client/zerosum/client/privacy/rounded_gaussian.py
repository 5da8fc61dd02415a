"""Gaussian noise rounded to integers: all that does not depend on who adds it."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from zerosum.client.privacy.mechanism import Drawn, NoiseSettings, Norm
from zerosum.client.privacy.noise_range import SMALLEST_ROUNDED, check_noise, check_positive
from zerosum.client.privacy.samplers import TAU, binned_gaussian_sampler
from zerosum.secagg.randomness import Keystream
from zerosum.secagg.vectors.encoding import Encoding
from zerosum.secagg.vectors.wrapping import skellam_log_tail


@dataclass(frozen=True)
class RoundedGaussian(ABC):
    """A Gaussian rounded to integers, of a mechanism that says who adds it and what it costs.

    For an integer vector x, x + round(N) = round(x + N), a function of the Gaussian mechanism's
    output: rounding takes nothing from that mechanism's guarantees.

    Attributes
    ----------
    sigma : float
        Standard deviation of the Gaussian, before rounding.
    l2_sensitivity : float
        Delta2 of one client's vector against zero.
    """

    sigma: float
    l2_sensitivity: float
    norm: ClassVar[Norm] = "l2"
    takes_records: ClassVar[bool] = True
    takes_bit: ClassVar[bool] = False
    takes_exact: ClassVar[bool] = False
    summary: ClassVar[str] = "a Gaussian rounded to integers"
    drawn: ClassVar[Drawn] = "table"
    tau: ClassVar[float] = TAU

    def __post_init__(self) -> None:
        check_positive(sigma=self.sigma, l2_sensitivity=self.l2_sensitivity)
        check_noise("a rounded Gaussian's sigma", self.sigma, SMALLEST_ROUNDED)

    @classmethod
    def from_spec(
        cls, privacy: NoiseSettings, code: Encoding, multiplier: float, shares: float
    ) -> Self:
        """Build noise of sigma = z Delta2, as each mechanism builds its own."""
        return cls(sigma=multiplier * code.l2_sensitivity, l2_sensitivity=code.l2_sensitivity)

    def apply(self, vector: NDArray[np.int64], rng: Keystream) -> NDArray[np.int64]:
        """Add noise of one share."""
        return vector + self.noise(1, vector.size, rng).reshape(vector.shape)

    def noise(self, shares: float, count: int, rng: Keystream) -> NDArray[np.int64]:
        """Draw a Gaussian of the sum's variance, rounded once."""
        return binned_gaussian_sampler(self.std(shares)).sample(count, rng)

    @abstractmethod
    def std(self, shares: float) -> float:
        """Return the standard deviation of a sum's noise, rounding aside."""

    def variance(self, shares: float) -> float:
        """Return the variance of a sum's noise, rounding aside."""
        return self.std(shares) ** 2

    def bit_std(self, shares: float) -> float:
        """Return 0: there is no bit here."""
        return 0.0

    def bound(self, code: Encoding) -> int:
        """Return the encoding's bound."""
        return code.bound

    def log_tail(self, shares: int, margin: float) -> float:
        """Return Skellam's bound at this variance: its cumulants exceed a Gaussian's."""
        return skellam_log_tail(margin, self.variance(shares))
