"""Distance of a Skellam variable from a rounded Gaussian, by sums of many digits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import mpmath
import numpy as np
from mpmath import mp, mpf
from numpy.typing import NDArray
from scipy.special import log_ndtr

Floats = NDArray[np.float64]
Coordinates = list[tuple[int, float, int]]
"""So many coordinates, with noise of this variance, in so many rounds."""

CUTS = (6.0, 7.0, 8.0, 9.0, 10.0, 12.0)
"""Standard deviations at which sums may end; the likeliest to serve depends on what is asked."""


def skellam_mass(mu: int | float, points: list[int]) -> list[mpf]:
    """P(k) = e^-mu I_k(mu), the k-th Fourier coefficient of e^(mu (cos t - 1)).

    By the trapezoid rule, whose error is the mass that lies a whole turn of `nodes` away, 15
    standard deviations from the nearest point or more: below e^-100. Nodes at which the function
    itself is below that are left out.
    """
    sigma = math.sqrt(mu)
    nodes = max(64, math.ceil(15 * sigma) + max(abs(k) for k in points))
    turn = 2 * mp.pi / nodes
    half = min(nodes // 2, math.ceil(nodes * 16 / (2 * math.pi * sigma)))
    values = [mp.exp(mu * (mp.cos(turn * j) - 1)) for j in range(half + 1)]
    found = []
    for k in points:
        total = values[0]
        for j in range(1, half + 1):
            once = 1 if 2 * j == nodes else 2
            total += once * values[j] * mp.cos(turn * j * k)
        found.append(total / nodes)
    return found


def binned_mass(variance: mpf, points: list[int]) -> list[mpf]:
    root = mp.sqrt(2 * variance)
    half = mpf(1) / 2
    return [(mp.erfc((abs(k) - half) / root) - mp.erfc((abs(k) + half) / root)) / 2 for k in points]


def divergence(mu: float) -> float:
    """KL(Skellam of variance mu || Gaussian of variance mu - 1/12, rounded), one coordinate.

    A sum of p (x - 1 + e^-x), x = ln(p/b), every quarter of a standard deviation: a Gaussian times
    a polynomial, for which the coarse sum is as good as the whole one (by Poisson's summation they
    differ by e^-300).
    """
    one = ratio(mu)
    x = one.log
    small = x**2 / 2 - x**3 / 6 + x**4 / 24
    each = one.p * np.where(np.abs(x) < 1e-3, small, x + np.expm1(-x))
    return float(one.stride * (2 * np.sum(each) - each[0]))


def total_variation(coordinates: Coordinates) -> float:
    """Of the transcripts, by the chain rule and Pinsker's inequality: sqrt(KL / 2).

    With the sums where they exceed 1/(48 mu^2); from a variance of 1 on, 1 below.
    """
    if any(mu < 1 for _, mu, _ in coordinates):
        return 1.0
    each = (d * n * max(1 / (48 * mu**2), divergence(mu)) for d, mu, n in coordinates)
    return math.sqrt(sum(each) / 2)


# The ratio of the two laws.
#
# A round's output is a vector of integers x, which hangs on coins and on all that came before, and
# independent noise. Let S be the run with Skellam noise and R the one with rounded Gaussian noise
# and all else alike, coins included. Given coins and transcript, dS/dR is the product of p(k)/b(k)
# over the noise k that was met, whatever x: so E_S[(dS/dR)^l] = exp(sum of d T K(l)) at most, where
# K(l) = ln sum_k p(k) (p(k)/b(k))^l, round after round from the last to the first. Whoever does not
# see the coins (cohorts, the client's own presence, whether a round opens) sees a mixture, and
# s^(1 + l) / r^l is jointly convex: for a mixture it is no larger. K is never negative: rounds that
# did not take place cost nothing. The same holds with R and S exchanged, and in either of the two
# worlds, since data enter x alone.
#
# Hence S(A) <= e^r R(A) + beta for all events A, beta = E_S[(1 - e^r dR/dS)^+], and with
# 1 - 1/u <= u^l l^l / (1 + l)^(1 + l) Chernoff's bound holds for beta, smaller by that factor.
# Skellam's tails are heavier than a Gaussian's: summed over all integers K is infinite. What lies
# beyond a cut is left out of S as an event and added to beta; the inequalities hold for the rest.
# Then S <= e^r R + beta, R <= e^epsilon R' + delta', R' <= e^r S' + beta' are chained.


@dataclass(frozen=True)
class Ratio:
    """Skellam `p`, rounded Gaussian `b` and ln(p/b) at 0, stride, 2 stride, ..."""

    mu: float
    stride: int
    p: Floats
    b: Floats
    log: Floats

    def log_moment(self, power: Floats, cut: float, skellam_drawn: bool) -> Floats:
        """K of each power, within the cut; sums as in `divergence`.

        A sum that breaks off misses up to half a stride at either edge; both count twice more.
        """
        end = self.last(cut) + 1
        weight = np.full(end, 2.0 * self.stride)
        weight[0] = self.stride
        weight[-1] *= 3
        drawn, log = (self.p, self.log) if skellam_drawn else (self.b, -self.log)
        with np.errstate(over="ignore"):
            moved = np.expm1(np.outer(power, log[:end]))
            moved[:, -1] = np.abs(moved[:, -1]) + 1
            return np.log1p(moved @ (weight * drawn[:end]))

    def last(self, cut: float) -> int:
        return min(len(self.p) - 1, math.ceil(cut * math.sqrt(self.mu) / self.stride))

    def log_tail(self, cut: float, skellam_drawn: bool) -> float:
        """ln of what lies beyond the cut at most: Chernoff for Skellam's e^(mu (cosh t - 1))."""
        beyond = self.last(cut) * self.stride
        if not skellam_drawn:
            variance = self.mu - 1 / 12
            return math.log(2) + float(log_ndtr(-(beyond + 0.5) / math.sqrt(variance)))
        slope = math.asinh(beyond / self.mu)
        return math.log(2) + 2 * self.mu * math.sinh(slope / 2) ** 2 - slope * beyond


@lru_cache(maxsize=64)
def ratio(mu: float, fineness: int = 4, digits: int = 50) -> Ratio:
    """Summed every quarter of a standard deviation or finer."""
    stride = max(1, math.floor(math.sqrt(mu) / fineness))
    points = list(range(0, math.ceil(CUTS[-1] * math.sqrt(mu)) + 2 * stride, stride))
    with mpmath.workdps(digits):
        p = skellam_mass(mu, points)
        b = binned_mass(mpf(mu) - mpf(1) / 12, points)
        log = [mp.log(one / other) for one, other in zip(p, b, strict=True)]
        return Ratio(mu, stride, *(np.array([float(x) for x in xs]) for xs in (p, b, log)))


def ratio_missed(coordinates: Coordinates, skellam_drawn: bool) -> Callable[[float], float]:
    """beta as a function of r: how much of one transcript lies above e^r of the other one."""
    scale = math.sqrt(sum(d * n / (48 * mu**2) for d, mu, n in coordinates))
    power = np.geomspace(0.05, 100, 400) / scale
    spared = power * np.log(power) - (1 + power) * np.log1p(power)
    tables = []
    for cut in CUTS:
        moment, tail = spared.copy(), 0.0
        for d, mu, n in coordinates:
            one = ratio(mu)
            moment += d * n * one.log_moment(power, cut, skellam_drawn)
            tail += d * n * math.exp(one.log_tail(cut, skellam_drawn))
        tables.append((moment, tail))

    def missed(r: float) -> float:
        return min(1.0, *(math.exp(min(0.0, np.min(m - power * r))) + tail for m, tail in tables))

    return missed
