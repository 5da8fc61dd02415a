"""Gaussian noise of full strength on every contribution, rounded to integers."""

import math
from dataclasses import dataclass
from typing import ClassVar

from zerosum.client.privacy import renyi_curves
from zerosum.client.privacy.mechanism import AddedBy, Divergences, DpEvent
from zerosum.client.privacy.rounded_gaussian import RoundedGaussian


@dataclass(frozen=True)
class BinnedGaussian(RoundedGaussian):
    """Full-strength Gaussian noise, rounded to integers, on every contribution.

    Formal guarantees: for an integer vector x, x + round(N) = round(x + N), a function of the
    Gaussian mechanism's output; so every guarantee of that mechanism holds, exactly. It is not
    closed under sums: whatever the number of contributions added, one is all that is claimed.

    Under replacement a vector changes by twice ``l2_sensitivity``.
    """

    added_by: ClassVar[AddedBy] = "client"
    caveat: ClassVar[str] = ""

    def std(self, shares: float) -> float:
        """Return the standard deviation of ``shares`` contributions' noise, rounding aside.

        A sum's noise is drawn as one Gaussian by simulations only. Clients would each round
        theirs, which one contribution's noise is.
        """
        return self.sigma * math.sqrt(shares)

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
