"""Estimate attack metrics with 95 % confidence intervals.

The units of several seeds are pooled before a figure is estimated, so that a ROC curve has as many
points as all seeds together have targets.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from scipy import optimize, stats
from scipy.special import expit, logit

CONFIDENCE = 0.95
"""Of every interval."""

TAIL = (1 - CONFIDENCE) / 2
"""Probability on either side of an interval."""

_EDGE = 1e-12
"""From 0 and 1, where the equation of Newcombe's interval has roots that are no ends of it."""


@dataclass(frozen=True)
class Figure:
    """A value and its confidence interval, infinite where the data give no bound."""

    value: float
    low: float
    high: float


class Units(Protocol):
    """The observations that a figure is estimated from."""

    @property
    def count(self) -> int:
        """Return the number of units."""
        ...

    def figure(self) -> Figure:
        """Return the figure of these units."""
        ...

    def pooled(self, others: Sequence[Self]) -> Self:
        """Return these units and others as one."""
        ...


@dataclass(frozen=True)
class Proportion:
    """Estimate a fraction: how often something came true.

    Attributes
    ----------
    hits : ndarray of bool
        Shape (n,), one a unit.
    """

    hits: np.ndarray

    def __post_init__(self) -> None:
        if self.hits.ndim != 1 or self.hits.dtype != np.bool_ or not len(self.hits):
            raise ValueError(f"hits are one truth value a unit, not {_shaped(self.hits)}")

    def figure(self) -> Figure:
        """Return the fraction with the interval of Clopper and Pearson (1934)."""
        n, k = len(self.hits), int(np.count_nonzero(self.hits))
        return Figure(k / n, *clopper_pearson(k, n))

    @property
    def count(self) -> int:
        """Units."""
        return len(self.hits)

    def pooled(self, others: Sequence[Self]) -> Self:
        """Return all units."""
        return type(self)(np.concatenate([self.hits, *(other.hits for other in others)]))


@dataclass(frozen=True)
class Mean:
    """Estimate a mean of real values.

    Attributes
    ----------
    values : ndarray of float
        Shape (n,), one a unit.
    """

    values: np.ndarray

    def __post_init__(self) -> None:
        if self.values.ndim != 1 or not len(self.values) or not _are_finite(self.values):
            raise ValueError(f"values are one finite number a unit, not {_shaped(self.values)}")
        # Differences of small integers wrap around, and sums of short floats overflow.
        object.__setattr__(self, "values", self.values.astype(np.float64))

    def figure(self) -> Figure:
        """Return the mean with Student's interval; of a single unit it has no bounds."""
        mean = float(np.mean(self.values))
        if len(self.values) < 2:
            return Figure(mean, -math.inf, math.inf)
        # Not stats.t.interval, which is undefined for values that are all alike.
        half = float(stats.sem(self.values) * stats.t.isf(TAIL, len(self.values) - 1))
        return Figure(mean, mean - half, mean + half)

    @property
    def count(self) -> int:
        """Units."""
        return len(self.values)

    def pooled(self, others: Sequence[Self]) -> Self:
        """Return all units."""
        return type(self)(np.concatenate([self.values, *(other.values for other in others)]))


@dataclass(frozen=True)
class Ranking:
    """Estimate how well scores tell members from others.

    Scores of several scenes are compared with each other. They have to be on one scale, as ranks
    and likelihood ratios are.

    Attributes
    ----------
    scores : ndarray of float
        Shape (n,): more says member.
    labels : ndarray of bool
        Shape (n,): the truth.
    at : float or None
        None: the area under the curve. Else the true-positive rate at this false-positive rate.
    """

    scores: np.ndarray
    labels: np.ndarray
    at: float | None = None

    def __post_init__(self) -> None:
        if self.scores.ndim != 1 or not _are_finite(self.scores):
            raise ValueError(f"scores are one finite number a unit, not {_shaped(self.scores)}")
        if self.labels.shape != self.scores.shape or self.labels.dtype != np.bool_:
            raise ValueError(f"labels are one truth value a unit, not {_shaped(self.labels)}")
        if self.labels.all() or not self.labels.any():
            raise ValueError("of members and others there has to be one each, at least")
        if self.at is not None and not 0 <= self.at <= 1:
            raise ValueError(f"at = {self.at}: a false-positive rate is between 0 and 1")

    @property
    def count(self) -> int:
        """Units, members and others."""
        return len(self.scores)

    def figure(self) -> Figure:
        """Return the figure with :func:`area_within` or :func:`rate_within`."""
        members, others = self.scores[self.labels], self.scores[~self.labels]
        if self.at is None:
            return Figure(area(members, others), *area_within(members, others))
        within = rate_within(members, others, self.at)
        return Figure(rate(members, others, self.at), *within)

    def pooled(self, others: Sequence[Self]) -> Self:
        """Return all units."""
        every = [self, *others]
        return type(self)(
            np.concatenate([one.scores for one in every]),
            np.concatenate([one.labels for one in every]),
            self.at,
        )


def _are_finite(values: np.ndarray) -> bool:
    return values.dtype.kind in "buif" and bool(np.isfinite(values).all())


def _shaped(array: np.ndarray) -> str:
    return f"{array.dtype} of shape {array.shape}"


def area(members: np.ndarray, others: np.ndarray) -> float:
    """Return the area under the ROC curve: P(member's score is larger), a tie counting half.

    Mann and Whitney (1947): the rank sum of the members, in ranks that ties share.

    Parameters
    ----------
    members, others : ndarray
        Scores, shapes (n,) and (m,).

    Returns
    -------
    float
    """
    # Not stats.mannwhitneyu: a bootstrap asks 800 times, and its p-value costs more than the ranks.
    ranks = stats.rankdata(np.concatenate([members, others]))
    n = len(members)
    return float((ranks[:n].sum() - n * (n + 1) / 2) / (n * len(others)))


def area_within(members: np.ndarray, others: np.ndarray) -> tuple[float, float]:
    """Return the confidence interval of an area under the ROC curve.

    On either side, the wider end of two intervals. Newcombe's uses sample sizes alone, and is too
    narrow where a few members score far off. The other is of the logit of the area, with the
    variance of DeLong, DeLong and Clarke-Pearson (1988), which uses the scores. At an area of 1 or
    0 that variance is 0. Clopper and Pearson's interval takes its place: it is of as many disjoint
    pairs as the smaller sample has, all of which came true.

    Parameters
    ----------
    members, others : ndarray
        Scores, shapes (n,) and (m,).

    Returns
    -------
    tuple of (float, float)
    """
    # scipy has no interval of this area. Its bootstrap has no width where the area is 1 or 0.
    value = area(members, others)
    low, high = _newcombe(value, len(members), len(others))
    if value in (0, 1):
        pairs = min(len(members), len(others))
        least, most = clopper_pearson(int(value) * pairs, pairs)
        return min(low, least), max(high, most)
    error = math.sqrt(_delong(members, others)) / (value * (1 - value))
    ends = logit(value) + error * stats.norm.ppf([TAIL, 1 - TAIL])
    return min(low, float(expit(ends[0]))), max(high, float(expit(ends[1])))


def _newcombe(value: float, members: int, others: int) -> tuple[float, float]:
    r"""Return between which areas A lies \|value - A\| <= z sqrt(V(A)).

    Newcombe 2006, "Confidence intervals for an effect size measure based on the Mann-Whitney
    statistic. Part 2", method 5, with Hanley and McNeil's variance (1982) of equal sizes:

    V(A) = A (1 - A) (1 + N (1 - A) / (2 - A) + N A / (1 + A)) / (members others),

    N = (members + others) / 2 - 1.
    """
    z, n = stats.norm.ppf(1 - TAIL), (members + others) / 2 - 1

    def beyond(a: float) -> float:
        factor = 1 + n * (1 - a) / (2 - a) + n * a / (1 + a)
        return float((value - a) ** 2 - z**2 * a * (1 - a) * factor / (members * others))

    inside = min(max(value, _EDGE), 1 - _EDGE)
    low = optimize.brentq(beyond, 0.0, inside) if value > 0 else 0.0
    high = optimize.brentq(beyond, inside, 1.0) if value < 1 else 1.0
    return float(low), float(high)


def _delong(members: np.ndarray, others: np.ndarray) -> float:
    """Return the variance of an area, DeLong, DeLong and Clarke-Pearson (1988), by ranks.

    A sample of one has no variance; a fair coin's, the largest there is, takes its place.
    """
    ranks = stats.rankdata(np.concatenate([members, others]))
    n = len(members)
    own = (ranks[:n] - stats.rankdata(members)) / len(others)
    their = 1 - (ranks[n:] - stats.rankdata(others)) / n
    return sum(
        float(parts.var(ddof=1)) / len(parts) if len(parts) > 1 else 0.25 for parts in (own, their)
    )


def rate(members: np.ndarray, others: np.ndarray, at: float) -> float:
    """Return the true-positive rate at the threshold that at most this part of others exceeds.

    Scores that tie with the threshold count in part, so that constant scores give ``at``.

    Parameters
    ----------
    members, others : ndarray
        Scores, shapes (n,) and (m,).
    at : float
        False-positive rate.

    Returns
    -------
    float
    """
    ordered = np.sort(others)[::-1]
    threshold = ordered[min(int(at * len(others)), len(others) - 1)]
    above, tied = np.count_nonzero(others > threshold), np.count_nonzero(others == threshold)
    taken = (at * len(others) - above) / tied if tied > 1 else 0.0
    return float(np.mean(members > threshold) + taken * np.mean(members == threshold))


def rate_within(members: np.ndarray, others: np.ndarray, at: float) -> tuple[float, float]:
    """Return the confidence interval of a true-positive rate whose threshold is an estimate.

    For a known threshold the interval is Clopper and Pearson's. The true threshold lies between
    two of the others' scores, whatever their distribution (Hilgers 1991, "Distribution-free
    confidence bounds for ROC curves"). Members and others are independent, so that the distances
    of both from the rate add up in squares (Zou and Donner 2008, "Construction of confidence limits
    about effect measures: a general approach"). Too few others bound no threshold from above, and
    the lower end is then 0; at 1 % these are fewer than 368.

    Parameters
    ----------
    members, others : ndarray
        Scores, shapes (n,) and (m,).
    at : float
        False-positive rate.

    Returns
    -------
    tuple of (float, float)
    """
    n, value = len(others), rate(members, others, at)
    least, most = clopper_pearson(round(value * len(members)), len(members))
    ordered = np.sort(others)[::-1]
    # Order statistics that bound the true threshold: with probability 1 - TAIL each, more than
    # "few" of the n others exceed it, and fewer than "many" do.
    few = int(stats.binom.ppf(TAIL, n, at))
    few -= int(stats.binom.cdf(few, n, at) > TAIL)
    many = int(stats.binom.isf(TAIL, n, at)) + 1
    fewest = float(np.mean(members > ordered[few])) if few >= 0 else 0.0
    largest = float(np.mean(members >= ordered[many - 1])) if many <= n else 1.0
    low = math.hypot(value - least, value - fewest)
    high = math.hypot(most - value, largest - value)
    return max(0.0, value - low), min(1.0, value + high)


def clopper_pearson(hits: int, of: int) -> tuple[float, float]:
    """Return the exact interval of a fraction, Clopper and Pearson (1934).

    Parameters
    ----------
    hits, of : int
        Successes, and trials.

    Returns
    -------
    tuple of (float, float)
    """
    # scipy's binomtest searches for the same ends to 1e-12, which is too coarse for a few hits of
    # tens of thousands; as quantiles of beta distributions they are exact.
    low = float(stats.beta.ppf(TAIL, hits, of - hits + 1)) if hits else 0.0
    high = float(stats.beta.ppf(1 - TAIL, hits + 1, of - hits)) if hits < of else 1.0
    return low, high


def psnr(guess: np.ndarray, truth: np.ndarray, peak: float = 1.0) -> np.ndarray:
    """Return the peak signal-to-noise ratio of each image, 10 log10(peak^2 / MSE), in dB.

    Parameters
    ----------
    guess, truth : ndarray
        Shape (n, ...): images with values in [0, peak].
    peak : float
        Largest value of a pixel.

    Returns
    -------
    ndarray of float
        Shape (n,); at most 150, which a float32 reconstruction cannot exceed in earnest.
    """
    difference = np.asarray(guess, dtype=np.float64) - np.asarray(truth, dtype=np.float64)
    error = np.mean(difference.reshape(len(difference), -1) ** 2, axis=1)
    values: np.ndarray = 10 * np.log10(peak**2 / np.maximum(error, 1e-15 * peak**2))
    return values


def correlations(images: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Return Pearson's correlation of each image with each mean, over pixels; a flat image's is 0.

    Parameters
    ----------
    images, means : ndarray
        Shape (k, ...).

    Returns
    -------
    ndarray of float
        Shape (k, k).
    """
    rows = [_standardised(each) for each in (images, means)]
    return np.asarray(rows[0] @ rows[1].T)


def _standardised(images: np.ndarray) -> np.ndarray:
    flat = np.asarray(images, dtype=np.float64).reshape(len(images), -1)
    centred = flat - flat.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(centred, axis=1, keepdims=True)
    # Rounding to float32 leaves a flat image with a norm of this order, and no content.
    has_content = norms > 1e-6 * np.sqrt(flat.shape[1])
    rows: np.ndarray = np.divide(centred, norms, out=np.zeros_like(centred), where=has_content)
    return rows
