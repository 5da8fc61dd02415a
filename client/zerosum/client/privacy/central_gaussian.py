"""Gaussian noise, rounded to integers, that a trusted server adds once to a sum."""

from dataclasses import dataclass
from typing import ClassVar

from zerosum.client.privacy.mechanism import AddedBy, Divergences, DpEvent
from zerosum.client.privacy.rounded_gaussian import RoundedGaussian


@dataclass(frozen=True)
class CentralGaussian(RoundedGaussian):
    """Gaussian noise, rounded to integers, added once to a sum by a trusted server.

    Formal guarantees: those of the Gaussian mechanism on the sum, as for
    :class:`~zerosum.client.privacy.binned_gaussian.BinnedGaussian`, against observers of what the
    server releases. None against the server, nor against whoever sees a contribution: clients add
    nothing.
    """

    added_by: ClassVar[AddedBy] = "server"
    caveat: ClassVar[str] = "the server is trusted: it sees sums before it adds the noise"

    def std(self, shares: float) -> float:
        """Return the standard deviation of a sum's noise, however many contributed."""
        return self.sigma

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
