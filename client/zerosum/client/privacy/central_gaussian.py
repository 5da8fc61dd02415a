"""Gaussian noise, rounded to integers, that a trusted server adds once to a sum."""

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
from zerosum.client.privacy.noise_range import SMALLEST_ROUNDED, check_noise, check_positive
from zerosum.client.privacy.samplers import TAU, binned_gaussian_sampler
from zerosum.secagg.randomness import Keystream
from zerosum.secagg.vectors.encoding import Encoding
from zerosum.secagg.vectors.wrapping import skellam_log_tail


@dataclass(frozen=True)
class CentralGaussian:
    """Gaussian noise, rounded to integers, added once to a sum by a trusted server.

    Formal guarantees: those of the Gaussian mechanism on the sum, as for
    :class:`~zerosum.client.privacy.binned_gaussian.BinnedGaussian`, against observers of what the
    server releases. None against the server, nor against whoever sees a contribution: clients add
    nothing.

    Attributes
    ----------
    sigma : float
        Standard deviation of the Gaussian, before rounding.
    l2_sensitivity : float
        Delta2 of one client's vector against zero.
    """

    sigma: float
    l2_sensitivity: float
    added_by: ClassVar[AddedBy] = "server"
    norm: ClassVar[Norm] = "l2"
    takes_records: ClassVar[bool] = True
    takes_bit: ClassVar[bool] = False
    takes_exact: ClassVar[bool] = False
    summary: ClassVar[str] = "a Gaussian rounded to integers"
    drawn: ClassVar[Drawn] = "table"
    tau: ClassVar[float] = TAU
    caveat: ClassVar[str] = "the server is trusted: it sees sums before it adds the noise"

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
        """Add a sum's noise: called by the server alone."""
        return vector + self.noise(1, vector.size, rng).reshape(vector.shape)

    def noise(self, shares: float, count: int, rng: Keystream) -> NDArray[np.int64]:
        """Draw the noise of a sum, whatever the number of contributions in it."""
        return binned_gaussian_sampler(self.sigma).sample(count, rng)

    def variance(self, shares: float) -> float:
        """Return the variance of a sum's noise, however many contributed."""
        return self.sigma**2

    def std(self, shares: float) -> float:
        """Return the standard deviation of a sum's noise, however many contributed."""
        return self.sigma

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
        """Return one unit a client, as for noise that each client rounds.

        One in all would do: the noise is rounded once. Rings keep the size that sessions have.
        """
        return cohort

    def event(self, shares: float) -> DpEvent:
        """Describe one sum by a Gaussian, however many contributed: zero-out adjacency."""
        from dp_accounting import GaussianDpEvent

        return GaussianDpEvent(self.sigma / self.l2_sensitivity)

    def divergences(self, shares: float, *, doubled: bool) -> Divergences | None:
        """Return None: to the server, whom the client's own count is about, nothing is hidden."""
        return None
