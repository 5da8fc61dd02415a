"""Noise mechanisms: one frozen object that adds the noise, describes it, and measures it.

No other place computes a noise scale. All numbers are in integer units, those of the encoding.
Which mechanism an experiment asks for is decided in :mod:`zerosum.client.privacy.registry`; Laplace
noise and PrivUnit have modules of their own.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from zerosum.client.privacy.noise_range import check_noise, check_positive
from zerosum.client.privacy.samplers import (
    TAU,
    binned_gaussian_sampler,
    discrete_gaussian_sampler,
    skellam_sampler,
)
from zerosum.secagg.randomness import Keystream

if TYPE_CHECKING:
    from dp_accounting import DpEvent
else:
    DpEvent = Any


SMALLEST_SIGMA = 1.0
"""Below it, in integer units, no useful bound is known of sums of discrete Gaussians."""

SMALLEST_ROUNDED = 0.03
"""Below it, in integer units, a Gaussian rounds to 0 with probability 1 - 2^-200."""


Drawn = Literal["table", "exact", "float"]
"""How noise is drawn: from a table at a known distance, by OpenDP without any, or in floats."""


class Mechanism(Protocol):
    """What the client applies, the ledger charges and the report prints."""

    @property
    def drawn(self) -> Drawn:
        """How the noise is drawn."""
        ...

    @property
    def tau(self) -> float:
        """Total-variation distance of one noise integer as drawn from one as claimed."""
        ...

    @property
    def caveat(self) -> str:
        """What every figure has to say beside its value; mostly empty."""
        ...

    def apply(self, vector: NDArray[np.int64], rng: Keystream) -> NDArray[np.int64]:
        """Return the vector plus one contribution's noise, shape and dtype unchanged."""
        ...

    def event(self, shares: float) -> DpEvent:
        """Return the receipt of a sum that is guaranteed to hold so many shares of noise."""
        ...

    def std(self, shares: float) -> float:
        """Return the standard deviation, in a coordinate, of so many shares of noise."""
        ...


@dataclass(frozen=True)
class DistributedSkellam:
    """A client's share of Skellam noise; shares add up to Skellam noise.

    Formal guarantees: a sum of integer vectors in which one client's part changes by at most
    ``l2_sensitivity`` and ``l1_sensitivity``, with shares of total variance mu in each coordinate,
    has the Renyi divergence of Agarwal, Kairouz, Liu, "The Skellam mechanism for differentially
    private federated learning" (2021), Theorem 3.5.

    Attributes
    ----------
    l2_sensitivity, l1_sensitivity : float
        Delta2 and Delta1 of one client's vector.
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
    drawn: ClassVar[Drawn] = "table"
    caveat: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_positive(
            l2_sensitivity=self.l2_sensitivity,
            l1_sensitivity=self.l1_sensitivity,
            share_variance=self.share_variance,
        )
        check_noise("a Skellam share's deviation", math.sqrt(self.share_variance))

    @property
    def tau(self) -> float:
        """Total-variation distance of one drawn integer from Skellam."""
        return TAU

    def apply(self, vector: NDArray[np.int64], rng: Keystream) -> NDArray[np.int64]:
        """Return the vector plus one share."""
        return vector + self.noise(1, vector.size, rng).reshape(vector.shape)

    def noise(self, shares: float, count: int, rng: Keystream) -> NDArray[np.int64]:
        """Return the sum of so many shares (any positive real), drawn at once."""
        return skellam_sampler(self.share_variance * shares).sample(count, rng)

    def event(self, shares: float) -> DpEvent:
        """Return the receipt of a sum with ``shares`` shares (any positive real) of noise."""
        from zerosum.client.privacy.events import SkellamDpEvent

        return SkellamDpEvent(
            l2_sensitivity=self.l2_sensitivity,
            l1_sensitivity=self.l1_sensitivity,
            variance=self.share_variance * shares,
            dimension=self.dimension,
        )

    def std(self, shares: float) -> float:
        """Return the standard deviation of ``shares`` shares."""
        return math.sqrt(self.share_variance * shares)


@dataclass(frozen=True)
class DistributedDiscreteGaussian:
    """A client's share of discrete Gaussian noise; shares add up to nearly such noise.

    Formal guarantees: Kairouz, Liu, Steinke, "The distributed discrete Gaussian mechanism for
    federated learning with secure aggregation" (2021), Proposition 14. Not closed under sums: a
    top-up is drawn share by share, as clients would have drawn them.

    Attributes
    ----------
    l2_sensitivity, l1_sensitivity : float
        Delta2 and Delta1 of one client's vector.
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

    @property
    def drawn(self) -> Drawn:
        """OpenDP's sampler or a table."""
        return "exact" if self.exact else "table"

    @property
    def tau(self) -> float:
        """Total-variation distance of one share's integer from the discrete Gaussian."""
        return 0.0 if self.exact else TAU

    def apply(self, vector: NDArray[np.int64], rng: Keystream) -> NDArray[np.int64]:
        """Return the vector plus one share."""
        return vector + self.noise(1, vector.size, rng).reshape(vector.shape)

    def noise(self, shares: float, count: int, rng: Keystream) -> NDArray[np.int64]:
        """Return the sum of so many shares, a whole number; time grows with it."""
        if shares != int(shares):
            raise ValueError(f"discrete Gaussian shares are whole, not {shares}")
        total = np.zeros(count, dtype=np.int64)
        for _ in range(int(shares)):
            total += self._share(count, rng)
        return total

    def event(self, shares: float) -> DpEvent:
        """Return the receipt of a sum with ``shares`` shares (any positive real) of noise.

        A part of a share is stated as one more, of all of them smaller ones: the same variance,
        and no smaller a distance from the discrete Gaussian.
        """
        from zerosum.client.privacy.events import DistributedDiscreteGaussianDpEvent

        whole = max(1, math.ceil(shares * (1 - 1e-12)))
        return DistributedDiscreteGaussianDpEvent(
            l2_sensitivity=self.l2_sensitivity,
            l1_sensitivity=self.l1_sensitivity,
            sigma=self.sigma * math.sqrt(shares / whole),
            num_shares=whole,
            dimension=self.dimension,
        )

    def std(self, shares: float) -> float:
        """Return the standard deviation of ``shares`` shares, to a relative 1e-7 from above."""
        return self.sigma * math.sqrt(shares)

    def _share(self, count: int, rng: Keystream) -> NDArray[np.int64]:
        if self.exact:
            from zerosum.client.privacy.opendp import discrete_gaussian

            return discrete_gaussian(self.sigma, count)
        return discrete_gaussian_sampler(self.sigma).sample(count, rng)


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
    drawn: ClassVar[Drawn] = "table"
    caveat: ClassVar[str] = ""

    @property
    def tau(self) -> float:
        """Total-variation distance of one drawn integer from Skellam."""
        return TAU

    def apply(self, vector: NDArray[np.int64], rng: Keystream) -> NDArray[np.int64]:
        """Return the vector, the bit last, plus one share."""
        return vector + self.noise(1, vector.size, rng)

    def noise(self, shares: float, count: int, rng: Keystream) -> NDArray[np.int64]:
        """Return the sum of so many shares (any positive real), ``count`` with the bit's."""
        parts = (self.update.noise(shares, count - 1, rng), self.bit.noise(shares, 1, rng))
        return np.concatenate(parts)

    def event(self, shares: float) -> DpEvent:
        """Return the joint receipt of a sum with ``shares`` shares of noise."""
        from dp_accounting import ComposedDpEvent

        return ComposedDpEvent([self.update.event(shares), self.bit.event(shares)])

    def std(self, shares: float) -> float:
        """Return the standard deviation of ``shares`` shares in a coordinate of the update."""
        return self.update.std(shares)


@dataclass(frozen=True)
class _RoundedGaussian:
    """Gaussian noise of full strength, rounded to integers; whose it is, subclasses say."""

    sigma: float
    l2_sensitivity: float
    drawn: ClassVar[Drawn] = "table"

    def __post_init__(self) -> None:
        check_positive(sigma=self.sigma, l2_sensitivity=self.l2_sensitivity)
        check_noise("a rounded Gaussian's sigma", self.sigma, SMALLEST_ROUNDED)

    @property
    def tau(self) -> float:
        """Total-variation distance of one drawn integer from the rounded Gaussian."""
        return TAU

    def _receipt(self) -> DpEvent:
        from dp_accounting import GaussianDpEvent

        return GaussianDpEvent(self.sigma / self.l2_sensitivity)


@dataclass(frozen=True)
class BinnedGaussian(_RoundedGaussian):
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

    caveat: ClassVar[str] = ""

    def apply(self, vector: NDArray[np.int64], rng: Keystream) -> NDArray[np.int64]:
        """Return the vector plus noise."""
        noise = binned_gaussian_sampler(self.sigma).sample(vector.size, rng)
        return vector + noise.reshape(vector.shape)

    def event(self, shares: float) -> DpEvent:
        """Return the Gaussian receipt of one contribution, its noise in units of Delta2.

        Under replace adjacency the ledger doubles the sensitivity. More than one share is charged
        as one: further noise is post-processing.
        """
        if shares < 1:
            raise ValueError("rounded Gaussian noise cannot be divided into shares")
        return self._receipt()

    def std(self, shares: float) -> float:
        """Return the standard deviation of ``shares`` contributions' noise, rounding aside."""
        return self.sigma * math.sqrt(shares)


@dataclass(frozen=True)
class CentralGaussian(_RoundedGaussian):
    """Gaussian noise, rounded to integers, added once to a sum by a trusted server.

    Formal guarantees: those of the Gaussian mechanism on the sum, as for :class:`BinnedGaussian`,
    against observers of what the server releases. None against the server, nor against whoever
    sees a contribution: clients add nothing.

    Attributes
    ----------
    sigma : float
        Standard deviation of the Gaussian, before rounding.
    l2_sensitivity : float
        Delta2 of one client's vector against zero.
    """

    caveat: ClassVar[str] = "the server is trusted: it sees sums before it adds the noise"

    def apply(self, vector: NDArray[np.int64], rng: Keystream) -> NDArray[np.int64]:
        """Return a sum plus its noise: called by the server alone."""
        return vector + self.noise(1, vector.size, rng).reshape(vector.shape)

    def noise(self, shares: float, count: int, rng: Keystream) -> NDArray[np.int64]:
        """Return the noise of a sum, whatever the number of contributions in it."""
        return binned_gaussian_sampler(self.sigma).sample(count, rng)

    def event(self, shares: float) -> DpEvent:
        """Return the Gaussian receipt of one sum, however many contributed: zero-out adjacency."""
        return self._receipt()

    def std(self, shares: float) -> float:
        """Return the standard deviation of a sum's noise, however many contributed."""
        return self.sigma


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return delta of the Gaussian mechanism at sensitivity / sigma = mu.

    Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu): Balle and Wang, "Improving the Gaussian
    mechanism for differential privacy" (2018), Theorem 8.
    """
    from scipy.special import log_ndtr

    first = float(log_ndtr(mu / 2 - epsilon / mu))
    second = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    if second >= first:
        return 0.0
    return -math.exp(first) * math.expm1(second - first)


def analytic_gaussian_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """Return the smallest sigma that gives (epsilon, delta), to a relative 1e-9, from above.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee.
    sensitivity : float
        L2 sensitivity under the adjacency that is meant: 2 Delta2 for replace.

    Raises
    ------
    ValueError
        If an argument is not positive, or ``delta`` is not below 1.
    """
    check_positive(epsilon=epsilon, delta=delta, sensitivity=sensitivity)
    if delta >= 1:
        raise ValueError("delta must be below 1")
    low, high = 1e-9, 1.0
    while gaussian_delta(epsilon, 1 / high) > delta:
        high *= 2
    while high / low > 1 + 1e-9:
        middle = math.sqrt(low * high)
        if gaussian_delta(epsilon, 1 / middle) > delta:
            low = middle
        else:
            high = middle
    return high * sensitivity
