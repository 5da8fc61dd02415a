"""Compute lower bounds on epsilon from guesses, and plan the guesses of an audit.

Steinke, Nasr, Jagielski, "Privacy auditing with one (1) training run" (2023), Theorem 5.2: m
independent coins decide which of m records are in; whoever sees an (epsilon, delta)-private output
and guesses r of the coins is seldom right more often than r biased coins would be.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr
from scipy.stats import binom


def p_value(slots: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Bound the probability of at least so many correct guesses under (epsilon, delta)-DP.

    P[B >= v] + 2 m delta max_i P[v > B >= v - i] / i, with B binomial of r trials at
    e^epsilon / (1 + e^epsilon): Steinke et al. (2023), Theorem 5.2.

    Parameters
    ----------
    slots : int
        Records m, each included with probability 1/2.
    guesses : int
        Guesses r, at most m; which slots are guessed may depend on what is observed, r may not.
    correct : int
        Correct guesses v.
    epsilon, delta : float
        The guarantee that is put to the test, of adding or removing a record.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    ValueError
        If there are more correct guesses than guesses, or more guesses than slots.
    """
    if not 0 <= correct <= guesses <= slots:
        raise ValueError(f"{correct} of {guesses} guesses right, of {slots} slots")
    q = 1 / (1 + math.exp(-epsilon))
    chance = float(binom.sf(correct - 1, guesses, q))
    if correct:
        i = np.arange(1, correct + 1)
        below = np.cumsum(binom.pmf(correct - i, guesses, q))
        chance += 2 * slots * delta * float(np.max(below / i))
    return min(1.0, chance)


def epsilon_lower_bound(
    slots: int, guesses: int, correct: int, *, delta: float, confidence: float = 0.95
) -> float:
    """Compute a lower confidence bound on epsilon; 0 where nothing can be said.

    Parameters
    ----------
    slots, guesses, correct : int
        As in :func:`p_value`.
    delta : float
        At which delta; above about 1e-4 with a thousand slots nothing can be shown.
    confidence : float
        Probability, over coins and noise, that the bound is true.

    Returns
    -------
    float
        Not negative.

    Examples
    --------
    >>> round(epsilon_lower_bound(1000, 100, 90, delta=1e-5), 2)
    1.62
    >>> epsilon_lower_bound(1000, 100, 50, delta=1e-5)
    0.0
    """
    p = 1 - confidence
    if p_value(slots, guesses, correct, 0.0, delta) >= p:
        return 0.0
    low, high = 0.0, 1.0
    while p_value(slots, guesses, correct, high, delta) < p:
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        if p_value(slots, guesses, correct, middle, delta) < p:
            low = middle
        else:
            high = middle
    return low


@dataclass(frozen=True)
class Guesses:
    """Counts of guesses that a record is in, and that it is out, fixed before any observation.

    Attributes
    ----------
    included, excluded : int
        Slots with the highest, and with the lowest scores.
    """

    included: int
    excluded: int

    @property
    def total(self) -> int:
        """All guesses."""
        return self.included + self.excluded

    def correct(self, scores: ArrayLike, included: ArrayLike) -> int:
        """Count the right guesses.

        Parameters
        ----------
        scores : array_like
            Shape (slots,): the higher, the likelier a slot is in.
        included : array_like of bool
            Shape (slots,): the coins.

        Returns
        -------
        int
            Of ``total``.
        """
        coins: NDArray[np.bool_] = np.asarray(included, dtype=bool)
        order = np.argsort(np.asarray(scores, dtype=np.float64), kind="stable")
        lowest, highest = order[: self.excluded], order[len(order) - self.included :]
        return int(coins[highest].sum() + (~coins[lowest]).sum())


def plan_guesses(
    slots: int, deviation: float, *, delta: float, confidence: float = 0.95, dropped: float = 0.0
) -> Guesses:
    """Choose guess counts for noise as claimed: the best bound met in 19 of 20 audits.

    From the settings alone: scores are 1 or 0 plus Gaussian noise.

    Parameters
    ----------
    slots : int
        Canaries.
    deviation : float
        Standard deviation of a score's noise, where a canary counts 1.
    delta, confidence : float
        As in :func:`epsilon_lower_bound`.
    dropped : float
        Fraction of slots that will be missing, whatever their coin.

    Returns
    -------
    Guesses
        As many on either side.
    """
    best, chosen = -1.0, 1
    for half in sorted({max(1, round(slots / 2 * 1.25**-step)) for step in range(28)}):
        right = _accuracy(half / slots, deviation) * (1 - dropped) + dropped / 2
        correct = int(binom.ppf(0.05, 2 * half, right))
        bound = epsilon_lower_bound(slots, 2 * half, correct, delta=delta, confidence=confidence)
        if bound >= best:
            best, chosen = bound, half
    return Guesses(chosen, chosen)


@dataclass(frozen=True)
class Disproof:
    """Guesses that could contradict an upper bound, fixed before anything is seen.

    Attributes
    ----------
    guesses : Guesses
        Enough of them that all right would exceed the upper bound, where any number is.
    largest : float
        The lower bound if all of them are right: no audit shows more.
    detects : float or None
        Part of the claimed noise below which 19 of 20 audits fail; None where none would.
    """

    guesses: Guesses
    largest: float
    detects: float | None


def plan_disproof(
    slots: int,
    deviation: float,
    upper: float,
    *,
    delta: float,
    confidence: float = 0.95,
    dropped: float = 0.0,
) -> Disproof:
    """Choose guess counts for noise that is less than claimed: the least loss is detected.

    :func:`plan_guesses` mostly takes so few guesses that even all of them right prove less than the
    upper bound: such an audit could not fail.

    Parameters
    ----------
    slots, deviation, delta, confidence, dropped
        As for :func:`plan_guesses`.
    upper : float
        The bound that is to be contradicted.

    Returns
    -------
    Disproof
        With the least loss of noise that it detects.
    """
    # Slots that are missing look like those that are out: then only who is in is guessed.
    sides = 1 if dropped else 2
    sizes = {max(1, round(slots / 2 * 1.04**-step)) for step in range(100)}

    def shows(size: int, part: float) -> bool:
        right = _accuracy(size / slots, part * deviation, dropped)
        correct = int(binom.ppf(0.05, sides * size, right))
        return p_value(slots, sides * size, correct, upper, delta) < 1 - confidence

    def bound(size: int) -> float:
        count = sides * size
        return epsilon_lower_bound(slots, count, count, delta=delta, confidence=confidence)

    low, high = _LEAST, 1.0
    able = [size for size in sizes if shows(size, low)]
    detects = low if able else None
    for _ in range(8 if able else 0):
        middle = (low + high) / 2
        if detecting := [size for size in able if shows(size, middle)]:
            low, detects, able = middle, middle, detecting
        else:
            high = middle
    chosen = min(able) if able else max(sizes, key=bound)
    return Disproof(Guesses(chosen, chosen if sides == 2 else 0), bound(chosen), detects)


@dataclass(frozen=True)
class TwoTests:
    """Two sets of guesses, fixed beforehand, that share the risk of a wrong bound.

    The first is strongest where the noise is as claimed, the second where it is less. Each bound
    fails with half of the allowed probability, so that the larger one fails with all of it at most.

    Attributes
    ----------
    slots : int
        Records with a coin each.
    delta, confidence : float
        Of the bounds; of the larger of both.
    guesses : Guesses
        For noise as claimed.
    disproof : Disproof
        For less.
    """

    slots: int
    delta: float
    confidence: float
    guesses: Guesses
    disproof: Disproof

    @classmethod
    def of(
        cls,
        slots: int,
        deviation: float,
        upper: float,
        *,
        delta: float,
        confidence: float = 0.95,
        dropped: float = 0.0,
    ) -> "TwoTests":
        """Plan both: parameters as for :func:`plan_disproof`.

        Parameters
        ----------
        slots, deviation, upper, delta, confidence, dropped
            As for :func:`plan_disproof`.

        Returns
        -------
        TwoTests
            Each at half of the risk.
        """
        both = (1 + confidence) / 2  # the risk is shared: a union bound over two tests
        guesses = plan_guesses(slots, deviation, delta=delta, confidence=both, dropped=dropped)
        disproof = plan_disproof(
            slots, deviation, upper, delta=delta, confidence=both, dropped=dropped
        )
        return cls(slots, delta, confidence, guesses, disproof)

    @property
    def largest(self) -> float:
        """The lower bound if all guesses are right: no audit shows more."""
        return max(self._bound(self.guesses, self.guesses.total), self.disproof.largest)

    def bound(self, scores: ArrayLike, included: ArrayLike) -> tuple[float, tuple[int, int]]:
        """Return the lower bound on epsilon, and how many guesses of each set were right.

        Parameters
        ----------
        scores, included
            As for :meth:`Guesses.correct`.

        Returns
        -------
        tuple of (float, tuple of int)
            The larger bound; the right guesses of each set.
        """
        both = (self.guesses, self.disproof.guesses)
        first, second = (guesses.correct(scores, included) for guesses in both)
        return max(self._bound(both[0], first), self._bound(both[1], second)), (first, second)

    def _bound(self, guesses: Guesses, correct: int) -> float:
        both = (1 + self.confidence) / 2
        return epsilon_lower_bound(
            self.slots, guesses.total, correct, delta=self.delta, confidence=both
        )


_LEAST = 1e-3
"""Part of the claimed noise that counts as none: where no guesses show it, no audit can fail."""


def _accuracy(tail: float, deviation: float, dropped: float = 0.0) -> float:
    """Return P(in | score among the highest ``tail`` of all): of N(0, s) and N(1, s), mixed."""
    present = (1 - dropped) / 2
    low, high = -20 * deviation, 1 + 20 * deviation
    for _ in range(80):
        middle = (low + high) / 2
        ones, zeros = ndtr((1 - middle) / deviation), ndtr(-middle / deviation)
        above = present * ones + (1 - present) * zeros
        low, high = (middle, high) if above > tail else (low, middle)
    missing = dropped / 2 * ndtr(-low / deviation)
    return min(1.0, float((present * ndtr((1 - low) / deviation) + missing) / tail))
