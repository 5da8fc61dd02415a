"""Couple integer noise to a rounded Gaussian, whose composition has exact accounting.

Skellam noise of variance mu and a Gaussian of variance mu - 1/12, rounded to integers, agree in
their first three moments: rounding adds 1/12. Rounding is post-processing of the Gaussian
mechanism. So a run is compared with one whose noise is the rounded Gaussian: sampling, abandonment
and top-ups are the same in both, and the likelihood ratio of the two transcripts is that of the
noise alone, a product over independent integers, however the rounds depend on each other. Two
bounds follow, for a transcript with the client and for one without it.

Total variation. The Kullback-Leibler divergence is 1/(48 mu^2) a coordinate or less, 1e-21 at the
usual scales. Divergences add up, and by Pinsker's inequality the transcripts lie within tau =
sqrt(sum / 2) of each other. What is (epsilon, delta) for the Gaussian composition is
(epsilon, delta + (1 + e^epsilon) tau) for the run.

Log-ratio. Where e^epsilon tau is not small beside delta, the ratio itself is bounded: by
Chernoff's inequality it leaves e^(+-r) with probability beta at most, in either run. Then what is
(epsilon, delta) for the Gaussian composition is (epsilon + 2 r, e^r delta + beta + e^(epsilon + r)
beta) for the run: from one run to the other, across the Gaussian's guarantee, and back. As beta
falls like a Gaussian tail in r, both cost next to nothing.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import attr
import numpy as np
from dp_accounting import ComposedDpEvent, DpEvent, GaussianDpEvent, SelfComposedDpEvent
from numpy.typing import NDArray

from zerosum.client.privacy import events
from zerosum.client.privacy.events import IntegerNoise, NoiseDpEvent
from zerosum.client.privacy.pmf import BinnedGaussianLaw, NoiseLaw
from zerosum.server.privacy.event_costs import Adjacency

ROUNDING = 1 / 12
"""Variance that rounding adds to a Gaussian, in integer units."""

SMALLEST_VARIANCE = 1.0
"""In integer units. Below it the distance exceeds every delta, and the Gaussian may not exist."""

SMALLEST_BOUNDED = 1000.0
"""Variance from which log-ratios are bounded: below, they are too large to be worth it."""

_WEIGHT_BITS = 256
"""Weights at 12 standard deviations, of 2^-104, are then right to 2^-120 as the others are."""

_REACH = 12
"""Standard deviations that are summed. What lies beyond has probability 1e-31 an integer, and
would add less than 1e-28 to a divergence's share of 1."""

_STEPS_PER_SIGMA = 10
"""Integers that are summed within a standard deviation. The integrand is entire and decays like a
Gaussian, so the trapezoid rule errs by exp(-2 pi^2 10^2) relatively."""

_CHERNOFF = 2.0 ** (np.arange(121) / 2)
"""Exponents of Chernoff's inequality: one is within a factor of 2^(1/4) of the best."""

_STEEPEST = 36.0
"""Largest exponent times log-ratio, within the reach, at which moments are summed: the integrand
then falls to e^-36 at its end, and what the lattice misses there is nothing."""


@dataclass(frozen=True)
class Closeness:
    """Distance of noise integers from rounded Gaussians; it adds up over integers.

    Attributes
    ----------
    divergence : float
        Kullback-Leibler divergence of the one from the other.
    moments : ndarray
        Bound on ln E[e^(c ln ratio)] at each exponent c of Chernoff's inequality, of either law to
        the other and under it, noise beyond the reach left out. Infinite if not known.
    beyond : float
        Probability of such noise.
    always : float
        Log-ratio that always holds beside it: of a sum of shares to one law.
    """

    divergence: float = 0.0
    moments: NDArray[np.float64] = field(default_factory=lambda: np.zeros_like(_CHERNOFF))
    beyond: float = 0.0
    always: float = 0.0

    def __add__(self, other: "Closeness") -> "Closeness":
        """Return the closeness of both."""
        return Closeness(
            self.divergence + other.divergence,
            self.moments + other.moments,
            self.beyond + other.beyond,
            self.always + other.always,
        )

    def times(self, count: float) -> "Closeness":
        """Return the closeness of ``count`` equal integers, or of a fraction of one."""
        return Closeness(
            count * self.divergence, count * self.moments, count * self.beyond, count * self.always
        )

    @property
    def total_variation(self) -> float:
        """The tau that Pinsker's inequality gives."""
        return math.sqrt(self.divergence / 2) + self.always

    def log_ratio(self, log_probability: float) -> float:
        """Return r: ln ratio exceeds it with at most this probability; inf if not known.

        Half of the probability is for noise beyond the reach, half for Chernoff's inequality.
        """
        if not self.beyond <= math.exp(log_probability) / 2:
            return math.inf
        chernoff = (self.moments + math.log(2) - log_probability) / _CHERNOFF
        return float(np.min(chernoff)) + self.always


@dataclass(frozen=True)
class Coupling:
    """A Gaussian event that stands for one of integer noise, and how far the two are apart.

    Attributes
    ----------
    event : DpEvent
        Gaussian, sampled and abandoned as the event that it stands for.
    closeness : Closeness
        Of the two outputs, over all coordinates.
    """

    event: DpEvent
    closeness: Closeness


@dataclass(frozen=True)
class CoupledRun:
    """A composition of Gaussian events close to a run's.

    Attributes
    ----------
    counts : mapping of DpEvent to float
        The Gaussian events, and how often each is composed.
    closeness : Closeness
        Of the two transcripts.
    """

    counts: Mapping[DpEvent, float]
    closeness: Closeness


def coupled_run(counts: Mapping[DpEvent, float], adjacency: Adjacency) -> CoupledRun | None:
    """Couple a whole composition to one of Gaussians.

    Parameters
    ----------
    counts : mapping of DpEvent to float
        Events and how often each occurs.
    adjacency : {"add_remove", "replace", "zero_out"}
        That of the ledger.

    Returns
    -------
    CoupledRun or None
        None where some event has no Gaussian near it.
    """
    gaussian: dict[DpEvent, float] = {}
    closeness = Closeness()
    for event, count in counts.items():
        coupling = coupled(event, adjacency)
        if coupling is None:
            return None
        gaussian[coupling.event] = gaussian.get(coupling.event, 0) + count
        closeness += coupling.closeness.times(count)
    return CoupledRun(gaussian, closeness)


def coupled(event: DpEvent, adjacency: Adjacency) -> Coupling | None:
    """Couple one event; events without integer noise of ours stand for themselves.

    Parameters
    ----------
    event : DpEvent
        Hashable.
    adjacency : {"add_remove", "replace", "zero_out"}
        That of the ledger.

    Returns
    -------
    Coupling or None
        None where the variance is too small, or the number of coordinates is not known.
    """
    if not events.is_own(event):
        return Coupling(event, Closeness())
    if isinstance(event, NoiseDpEvent):
        return _of_noise(event.integer_noise(), adjacency)
    if isinstance(event, ComposedDpEvent):
        return _of_composition(event, adjacency)
    inner = coupled(event.event, adjacency)
    if inner is None:
        return None
    times = event.count if isinstance(event, SelfComposedDpEvent) else 1
    return Coupling(attr.evolve(event, event=inner.event), inner.closeness.times(times))


@lru_cache(maxsize=1024)
def noise_closeness(law: NoiseLaw, least_divergence: float) -> Closeness:
    """Return how close integer noise is to a Gaussian of its variance less 1/12, rounded.

    Parameters
    ----------
    law : NoiseLaw
        Hashable.
    least_divergence : float
        The closed form of the divergence: the one that is summed from exact weights counts as no
        less, so that neither has to be believed alone.

    Returns
    -------
    Closeness
        Of one integer.
    """
    summed = closeness(law, BinnedGaussianLaw(math.sqrt(law.variance - ROUNDING)))
    return replace(summed, divergence=max(summed.divergence, least_divergence))


def closeness(law: NoiseLaw, reference: NoiseLaw) -> Closeness:
    """Measure how close one integer of two laws of nearly one variance is.

    Sums q ((1 + x) ln(1 + x) - x) with x = p/q - 1: its terms are not negative, so nothing cancels,
    where p ln(p/q) would lose all but the last of some forty digits.

    Parameters
    ----------
    law, reference : NoiseLaw
        The noise, and what it is compared with.

    Returns
    -------
    Closeness
        Of one integer.
    """
    sigma = math.sqrt(law.variance)
    step = max(1, math.floor(sigma / _STEPS_PER_SIGMA))
    magnitudes = range(0, math.ceil(_REACH * sigma) + 1, step)
    upper = law.weights(magnitudes, _WEIGHT_BITS)
    lower = reference.weights(magnitudes, _WEIGHT_BITS)
    first = _ratios(upper, lower)
    if law.variance < SMALLEST_BOUNDED:
        return Closeness(first.divergence, np.full_like(_CHERNOFF, math.inf), 1.0)
    second = _ratios(lower, upper)
    moments = np.maximum(first.log_moments(), second.log_moments())
    return Closeness(first.divergence, moments, _beyond(law.variance, magnitudes[-1]))


@dataclass(frozen=True)
class _Ratios:
    """One law's probabilities on a lattice, and their ratios to another's, less 1."""

    probabilities: NDArray[np.float64]
    excess: NDArray[np.float64]
    divergence: float

    def log_moments(self) -> NDArray[np.float64]:
        """Bound ln E[e^(c l)], noise beyond the reach left out, at every Chernoff exponent c.

        ln(1 + y) <= y, and y = c E[l] + E[e^(c l) - 1 - c l], whose terms are not negative.
        E[l] is the divergence.
        """
        scaled = _CHERNOFF[:, None] * np.log1p(self.excess)
        with np.errstate(over="ignore"):
            exact = np.expm1(scaled) - scaled
        series = scaled**2 / 2 * (1 + scaled / 3 + scaled**2 / 12)
        excess = np.where(np.abs(scaled) < 1e-3, series, exact) @ self.probabilities
        known = np.abs(scaled).max(axis=1) <= _STEEPEST
        bound = 1.001 * (_CHERNOFF * self.divergence + excess)
        result: NDArray[np.float64] = np.where(known, bound, math.inf)
        return result


def _ratios(upper: Sequence[int], lower: Sequence[int]) -> _Ratios:
    """Return one law's ratios to another, from unnormalised weights at magnitudes from 0 on."""
    p_total, q_total = (2 * sum(weights) - weights[0] for weights in (upper, lower))
    # Python divides integers of any length to the nearest float.
    excess = np.array(
        [(p * q_total - q * p_total) / (q * p_total) for p, q in zip(upper, lower, strict=True)]
    )
    sides = np.where(np.arange(len(excess)) == 0, 1, 2)
    p, q = (
        sides * np.array([weight / total for weight in weights])
        for weights, total in ((upper, p_total), (lower, q_total))
    )
    return _Ratios(p, excess, float(np.sum(q * _bregman(excess))))


def _bregman(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (1 + x) ln(1 + x) - x; by its series where the difference would cancel."""
    series = x * x * (1 / 2 - x * (1 / 6 - x * (1 / 12 - x / 20)))
    result: NDArray[np.float64] = np.where(np.abs(x) > 1e-3, (1 + x) * np.log1p(x) - x, series)
    return result


def _beyond(variance: float, reach: int) -> float:
    """Bound the probability of noise beyond ``reach``, by Chernoff's inequality for Skellam noise.

    2 exp(mu (cosh t - 1) - t reach) at sinh t = reach / mu; Gaussian tails are lighter.
    """
    ratio = reach / variance
    # cosh t - 1 = sqrt(1 + r^2) - 1, without its cancellation.
    above = ratio**2 / (1 + math.sqrt(1 + ratio**2))
    return 2 * math.exp(variance * above - math.asinh(ratio) * reach)


def _of_noise(noise: IntegerNoise | None, adjacency: Adjacency) -> Coupling | None:
    """Couple integer noise to a Gaussian, by way of its law."""
    if noise is None or noise.law.variance < SMALLEST_VARIANCE:
        return None
    one = noise_closeness(noise.law, noise.least_divergence)
    whole = replace(one, always=noise.log_ratio).times(noise.dimension)
    # A ledger of replace adjacency doubles a Gaussian's sensitivity. Ours are doubled already.
    sensitivities = 2 if adjacency == "replace" else 1
    sigma = math.sqrt(noise.law.variance - ROUNDING)
    return Coupling(GaussianDpEvent(sensitivities * sigma / noise.l2_sensitivity), whole)


def _of_composition(event: ComposedDpEvent, adjacency: Adjacency) -> Coupling | None:
    gaussian, total = [], Closeness()
    for part in event.events:
        coupling = coupled(part, adjacency)
        if coupling is None:
            return None
        gaussian.append(coupling.event)
        total += coupling.closeness
    return Coupling(ComposedDpEvent(tuple(gaussian)), total)
