"""Figures from units: a value, an interval that holds it with 95 %, and pictures' curves.

Units of several seeds are pooled before anything is computed of them, so that a curve of members
and non-members has as many points as all seeds together have targets.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from scipy import stats

CONFIDENCE = 0.95

RESAMPLED = 1000
"""Bootstrap samples of an interval."""


@dataclass(frozen=True)
class Figure:
    """A value and the ends of its interval; an end that no data bound is the value's own limit."""

    value: float
    low: float
    high: float


class Units(Protocol):
    """What a figure is computed of."""

    def figure(self, rng: np.random.Generator) -> Figure:
        """Return the figure of these units."""
        ...

    def pooled(self, others: Sequence[Self]) -> Self:
        """Return these units and others as one."""
        ...


@dataclass(frozen=True)
class Proportion:
    """How often something came true.

    Attributes
    ----------
    hits : ndarray of bool
        Shape (n,), one a unit.
    """

    hits: np.ndarray

    def __post_init__(self) -> None:
        if self.hits.ndim != 1 or self.hits.dtype != np.bool_ or not len(self.hits):
            raise ValueError(f"hits are one truth value a unit, not {_shaped(self.hits)}")

    def figure(self, rng: np.random.Generator) -> Figure:
        """Return the fraction with the interval of Clopper and Pearson (1934)."""
        n, k = len(self.hits), int(np.count_nonzero(self.hits))
        tail = (1 - CONFIDENCE) / 2
        low = float(stats.beta.ppf(tail, k, n - k + 1)) if k else 0.0
        high = float(stats.beta.ppf(1 - tail, k + 1, n - k)) if k < n else 1.0
        return Figure(k / n, low, high)

    def pooled(self, others: Sequence[Self]) -> Self:
        """Return all units."""
        return type(self)(np.concatenate([self.hits, *(other.hits for other in others)]))


@dataclass(frozen=True)
class Mean:
    """A mean of real values.

    Attributes
    ----------
    values : ndarray of float
        Shape (n,), one a unit.
    """

    values: np.ndarray

    def __post_init__(self) -> None:
        if self.values.ndim != 1 or not len(self.values) or not np.isfinite(self.values).all():
            raise ValueError(f"values are one finite number a unit, not {_shaped(self.values)}")

    def figure(self, rng: np.random.Generator) -> Figure:
        """Return the mean with Student's interval; of a single unit it has no bounds."""
        mean = float(np.mean(self.values))
        if len(self.values) < 2:
            return Figure(mean, -math.inf, math.inf)
        error = float(stats.sem(self.values))
        half = error * float(stats.t.ppf((1 + CONFIDENCE) / 2, len(self.values) - 1))
        return Figure(mean, mean - half, mean + half)

    def pooled(self, others: Sequence[Self]) -> Self:
        """Return all units."""
        return type(self)(np.concatenate([self.values, *(other.values for other in others)]))


@dataclass(frozen=True)
class Ranking:
    """Scores of members and of others: how well the one can be told from the other.

    Scores are compared within one seed's scene and across scenes alike, so an attack's scores have
    to be on one scale: ranks, likelihood ratios.

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
        if self.scores.ndim != 1 or not np.isfinite(self.scores).all():
            raise ValueError(f"scores are one finite number a unit, not {_shaped(self.scores)}")
        if self.labels.shape != self.scores.shape or self.labels.dtype != np.bool_:
            raise ValueError(f"labels are one truth value a unit, not {_shaped(self.labels)}")
        if self.labels.all() or not self.labels.any():
            raise ValueError("of members and others there has to be one each, at least")

    def figure(self, rng: np.random.Generator) -> Figure:
        """Return the figure with a bootstrap interval over members and over others."""
        members, others = self.scores[self.labels], self.scores[~self.labels]
        drawn = [
            self._of(rng.choice(members, len(members)), rng.choice(others, len(others)))
            for _ in range(RESAMPLED)
        ]
        tail = 100 * (1 - CONFIDENCE) / 2
        low, high = np.percentile(drawn, [tail, 100 - tail])
        return Figure(self._of(members, others), float(low), float(high))

    def _of(self, members: np.ndarray, others: np.ndarray) -> float:
        return area(members, others) if self.at is None else rate(members, others, self.at)

    def pooled(self, others: Sequence[Self]) -> Self:
        """Return all units."""
        every = [self, *others]
        return type(self)(
            np.concatenate([one.scores for one in every]),
            np.concatenate([one.labels for one in every]),
            self.at,
        )


def _shaped(array: np.ndarray) -> str:
    return f"{array.dtype} of shape {array.shape}"


def area(members: np.ndarray, others: np.ndarray) -> float:
    """Return the area under the ROC curve: P(member's score is larger), a tie counting half.

    Mann and Whitney (1947): the rank sum of the members, in ranks that ties share.
    """
    ranks = stats.rankdata(np.concatenate([members, others]))
    n = len(members)
    return float((ranks[:n].sum() - n * (n + 1) / 2) / (n * len(others)))


def rate(members: np.ndarray, others: np.ndarray, at: float) -> float:
    """Return the true-positive rate at the threshold that at most this part of others exceeds.

    Among scores that tie with the threshold coins decide, so scores that say nothing give ``at``.
    """
    ordered = np.sort(others)[::-1]
    threshold = ordered[min(int(at * len(others)), len(others) - 1)]
    above, tied = np.count_nonzero(others > threshold), np.count_nonzero(others == threshold)
    taken = (at * len(others) - above) / tied if tied > 1 else 0.0
    return float(np.mean(members > threshold) + taken * np.mean(members == threshold))


def psnr(guess: np.ndarray, truth: np.ndarray, peak: float = 1.0) -> np.ndarray:
    """Return the peak signal-to-noise ratio of each image, 10 log10(peak^2 / MSE), in dB.

    Parameters
    ----------
    guess, truth : ndarray
        Shape (n, ...): images with values in [0, peak].

    Returns
    -------
    ndarray of float
        Shape (n,); at most 150, which a float32 reconstruction cannot exceed in earnest.
    """
    difference = np.asarray(guess, dtype=np.float64) - np.asarray(truth, dtype=np.float64)
    error = np.mean(difference.reshape(len(difference), -1) ** 2, axis=1)
    values: np.ndarray = 10 * np.log10(peak**2 / np.maximum(error, 1e-15 * peak**2))
    return values
