"""PrivUnit: a vector's direction under pure local privacy, drawn in floats, then rounded."""

import math
from dataclasses import dataclass
from functools import cached_property
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
from zerosum.client.privacy.noise_range import NoiseOutOfRangeError
from zerosum.secagg.randomness import Keystream
from zerosum.secagg.vectors.encoding import Encoding

_SPLITS = 400
"""Ways to divide epsilon between the cap and its coin that are tried. The mean is flat at its
maximum, so that a finer search gains nothing."""

SMALLEST_EPSILON, LARGEST_EPSILON = 1e-6, 700.0
"""Outside, the cap's mean or e^epsilon leaves float64."""


SMALLEST_MISS = 2.0**-100
"""Least probability of missing the cap. A coin of two uniform floats has 106 bits: it falls within
this probability to a relative 10^-2, and within a smaller one not at all as claimed."""

SMALLEST_CAP = 1e-280
"""Below it, parts of a cap leave float64."""


@dataclass(frozen=True)
class _Cap:
    """A cap {v : <u, v> >= height} of the sphere, and how it is used.

    ``inside`` is the part 1 - q of the sphere within the cap, ``miss`` the probability 1 - p with
    which the output is drawn beyond it, ``mean`` E<u, output>: the small sides of both, which
    their complements would lose.
    """

    height: float
    inside: float
    miss: float
    mean: float

    @property
    def outside(self) -> float:
        """The part of the sphere beyond the cap."""
        return 1 - self.inside

    @property
    def chance(self) -> float:
        """The probability with which the output is drawn from the cap."""
        return 1 - self.miss


_NO_CAP = _Cap(0.0, 0.5, 0.5, 0.0)


@dataclass(frozen=True)
class PrivUnit:
    """An unbiased unit vector that is likelier near the true direction; its length is fixed.

    A vector x of norm at most R stands for the direction x/|x|, turned round with probability
    (1 - |x|/R)/2 (of zero: any direction), so that the mean of R times it is x. The output is
    uniform in a cap around it with probability p, else outside, divided by its mean and rounded
    without bias.

    Formal guarantees, in real arithmetic: epsilon-DP under replacement, since a density on the
    sphere is p/(1-q) or (1-p)/q and their ratio e^epsilon; rounding is post-processing. Bhowmick,
    Duchi, Freudiger, Kapoor, Rogers, "Protection against reconstruction and its applications in
    private federated learning" (2018), Algorithm 1; the split of epsilon between p and q that
    maximises the mean: Asi, Feldman, Talwar, "Optimal algorithms for mean estimation under local
    differential privacy" (2022). Float sampling is not covered by the proof.

    Attributes
    ----------
    epsilon : float
        Of one contribution, under replacement.
    l2_sensitivity : float
        R: the largest norm of a vector, in integer units.
    dimension : int
        Coordinates, at least 2.
    """

    epsilon: float
    l2_sensitivity: float
    dimension: int
    added_by: ClassVar[AddedBy] = "client"
    norm: ClassVar[Norm] = "l2"
    takes_records: ClassVar[bool] = False
    takes_bit: ClassVar[bool] = False
    takes_exact: ClassVar[bool] = False
    summary: ClassVar[str] = "pure epsilon on a direction, its float sampling unproved"
    drawn: ClassVar[Drawn] = "float"
    tau: ClassVar[float] = 0.0  # no distance is known of float sampling, which the caveat says
    caveat: ClassVar[str] = (
        "PrivUnit is sampled in floating point: unproved; the figure is that of real arithmetic"
    )

    def __post_init__(self) -> None:
        for name in ("epsilon", "l2_sensitivity"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise ValueError(f"{name} must be positive and finite, not {value}")
        if not SMALLEST_EPSILON <= self.epsilon <= LARGEST_EPSILON:
            raise NoiseOutOfRangeError(
                f"PrivUnit's epsilon would be {self.epsilon:.3g}, and has to lie between "
                f"{SMALLEST_EPSILON:g} and {LARGEST_EPSILON:g}: it is 2/privacy.noise_multiplier"
            )
        if self.dimension < 2:
            raise ValueError("PrivUnit needs a sphere: at least 2 coordinates")
        if self._cap.mean == 0:
            raise NoiseOutOfRangeError(
                f"PrivUnit's epsilon would be {self.epsilon:.3g}, at which no cap of a sphere in "
                f"{self.dimension} dimensions is one of float64: it is 2/privacy.noise_multiplier"
            )

    @classmethod
    def from_spec(
        cls, privacy: NoiseSettings, code: Encoding, multiplier: float, shares: float
    ) -> Mechanism:
        """Build PrivUnit of epsilon 2 / z. See :meth:`Mechanism.from_spec`."""
        return cls(2 / multiplier, code.l2_sensitivity, code.length)

    def apply(self, vector: NDArray[np.int64], rng: Keystream) -> NDArray[np.int64]:
        """Draw what stands for the vector: its mean is the vector, its norm always the same."""
        norm = math.sqrt(float(np.square(vector.astype(np.float64)).sum()))
        true = rng.uniform(1)[0] < (1 + min(1.0, norm / self.l2_sensitivity)) / 2
        direction = vector / norm if norm else _normal(self.dimension, rng)
        direction = direction / np.linalg.norm(direction)
        output = self._near(direction if true else -direction, rng)
        floor = np.floor(output)
        return floor.astype(np.int64) + (rng.uniform(self.dimension) < output - floor)

    def noise(self, shares: float, count: int, rng: Keystream) -> NDArray[np.int64]:
        """Raise ValueError: an output is not a vector plus noise."""
        raise ValueError("PrivUnit is drawn by each client, not for a sum at once")

    def event(self, shares: float) -> DpEvent:
        """Describe one contribution: at worst randomized response, under replacement.

        More than one share is charged as one: further vectors are post-processing.
        """
        from dp_accounting.dp_event import RandomizedResponseDpEvent

        if shares < 1:
            raise ValueError("PrivUnit cannot be divided into shares")
        return RandomizedResponseDpEvent(2 / (1 + math.exp(self.epsilon)), 2)

    def divergences(self, shares: float, *, doubled: bool) -> Divergences | None:
        """Return the divergences of one contribution's pure epsilon under replacement."""
        return renyi_curves.pure(self.epsilon)

    def variance(self, shares: float) -> float:
        """Return the mean square of a coordinate in ``shares`` outputs of zero vectors.

        Rounding adds f (1 - f), 1/6 on average over fractions f.
        """
        return shares * (self._length**2 / self.dimension + 1 / 6)

    def std(self, shares: float) -> float:
        """Return the root mean square of a coordinate in ``shares`` outputs of zero vectors."""
        return math.sqrt(self.variance(shares))

    def bit_std(self, shares: float) -> float:
        """Return 0: there is no bit here."""
        return 0.0

    def bound(self, code: Encoding) -> int:
        """Return the largest magnitude of a coordinate of an output."""
        return math.ceil(self._length) + 1

    def log_tail(self, shares: int, margin: float) -> float:
        """Return -inf: all of an output is within :meth:`bound`."""
        return -math.inf

    def slack(self, cohort: int) -> int:
        """Return 0: rounding is within :meth:`bound`."""
        return 0

    @property
    def _length(self) -> float:
        return self.l2_sensitivity / self._cap.mean

    @cached_property
    def _cap(self) -> _Cap:
        caps = (self._cap_at(self.epsilon * i / _SPLITS) for i in range(_SPLITS + 1))
        return max(caps, key=lambda cap: cap.mean)

    def _cap_at(self, part: float) -> _Cap:
        """Return the cap with logit(q) = part and logit(p) = epsilon - part."""
        from scipy.special import betainc, betaincinv, betaln, expit

        a = (self.dimension - 1) / 2
        # (1 - <u, v>)/2 of a uniform v is Beta(a, a); the cap is its lower tail.
        edge = float(betaincinv(a, a, expit(-part)))
        inside = float(betainc(a, a, edge))
        if not SMALLEST_CAP <= inside < 1 or not 0 < edge <= 0.5:
            return _NO_CAP
        logit = self.epsilon + math.log(inside) - math.log1p(-inside)
        miss, chance = float(expit(-logit)), float(expit(logit))
        if miss < SMALLEST_MISS:
            return _NO_CAP
        # Integral of <u, v> over the cap: (1 - h^2)^a / ((d - 1) B(1/2, a)), h = 1 - 2 edge.
        squared = math.log(4 * edge) + math.log1p(-edge)
        moment = math.exp(a * squared - float(betaln(0.5, a)) - math.log(2 * a))
        mean = moment * (chance / inside - miss / (1 - inside))
        return _Cap(1 - 2 * edge, inside, miss, mean)

    def _near(self, direction: NDArray[np.float64], rng: Keystream) -> NDArray[np.float64]:
        from scipy.special import betaincinv

        cap, a = self._cap, (self.dimension - 1) / 2
        coarse, fine, place = rng.uniform(3)
        missed = coarse + 2.0**-53 * fine < cap.miss
        part = (place + 2.0**-54) * (cap.outside if missed else cap.inside)
        away = float(betaincinv(a, a, part))
        cosine = 2 * away - 1 if missed else 1 - 2 * away
        across = _normal(self.dimension, rng)
        across -= direction * float(across @ direction)
        across *= 2 * math.sqrt(away * (1 - away)) / float(np.linalg.norm(across))
        result: NDArray[np.float64] = self._length * (cosine * direction + across)
        return result


def _normal(count: int, rng: Keystream) -> NDArray[np.float64]:
    """Return normal floats by inversion of uniform ones, which are never 0."""
    from scipy.special import ndtri

    result: NDArray[np.float64] = ndtri(rng.uniform(count) + 2.0**-54)
    return result
