"""How far a Skellam variable is from a rounded Gaussian, by sums of many digits."""

from __future__ import annotations

import math

import mpmath
from mpmath import mp, mpf


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


def divergence(mu: float, digits: int = 50) -> float:
    """KL(Skellam of variance mu || Gaussian of variance mu - 1/12, rounded), one coordinate.

    Every half of a standard deviation: the summand is a Gaussian times a polynomial, for which
    the coarse sum is as good as the whole one: by Poisson's summation they differ by e^-79.
    """
    with mpmath.workdps(digits):
        stride = max(1, math.floor(math.sqrt(mu) / 2))
        reach = math.ceil(9 * math.sqrt(mu) + 9)
        points = [0, *range(stride, reach, stride)]
        total = mpf(0)
        for k, p, b in zip(
            points,
            skellam_mass(mu, points),
            binned_mass(mpf(mu) - mpf(1) / 12, points),
            strict=True,
        ):
            total += (1 if k == 0 else 2) * (p * mp.log(p / b) - p + b)
        return float(stride * total)


def total_variation(coordinates: list[tuple[float, float, int]]) -> float:
    """Of the transcripts: `(d, mu, rounds)` each, by the chain rule and Pinsker's inequality."""
    return math.sqrt(sum(d * count / (96 * mu**2) for d, mu, count in coordinates))
