"""Distributions of the privacy loss of sampled Gaussians, on a grid, composed by FFT.

A bin's mass is split between the two ends so that both measures of the bin are kept: the
hockey-stick divergence is then exact at the grid's points and a chord between them, which lies
above it (it is convex in e^epsilon). Whatever is cut off counts as lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.fft import next_fast_len
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

Floats = NDArray[np.float64]

REACH = 9.5
"""Standard deviations on either side that a step's grid spans; 1e-21 lies beyond."""
CUT = 1e-14
"""What may lie beyond the composed grid, on either side; it is added to delta."""


@dataclass(frozen=True)
class Losses:
    """Mass `pmf[j]` at loss (first + j) step, and `infinite` at infinity."""

    first: int
    pmf: Floats
    infinite: float

    def end(self) -> int:
        return self.first + len(self.pmf)


def _between(low: Floats, high: Floats) -> Floats:
    """Normal mass between, from the side on which no digits cancel."""
    left = ndtr(high) - ndtr(low)
    right = ndtr(-low) - ndtr(-high)
    return np.where(low > 0, right, left)


def _where(loss: Floats, rate: float, sigma: float) -> Floats:
    """The x at which ln(1 - q + q e^((2 x - 1)/(2 sigma^2))) is `loss`: -inf where it never is."""
    if rate == 1:
        return sigma**2 * loss + 0.5
    ratio = np.expm1(loss) / rate + 1
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = np.where(ratio > 0, np.log(np.maximum(ratio, 0)), -np.inf)
    return sigma**2 * inside + 0.5


def sampled_gaussian(rate: float, sigma: float, step: float, present_first: bool) -> Losses:
    """The loss of one release: a client there with probability `rate`, or a zero in its place.

    `present_first`: the world with the client is the one that outcomes are drawn from.
    """

    def at(x: float) -> float:
        shift = (2 * x - 1) / (2 * sigma**2)
        return (
            shift if rate == 1 else float(np.logaddexp(math.log1p(-rate), math.log(rate) + shift))
        )

    low, high = at(-REACH * sigma), at(1 + REACH * sigma)
    if not present_first:
        low, high = -high, -low
    first, last = math.floor(low / step), math.ceil(high / step)
    grid: Floats = np.arange(first, last + 1, dtype=np.float64) * step
    x = _where(grid if present_first else -grid, rate, sigma)
    lower, upper = (x[:-1], x[1:]) if present_first else (x[1:], x[:-1])
    without = _between(lower / sigma, upper / sigma)
    mixed = (1 - rate) * without + rate * _between((lower - 1) / sigma, (upper - 1) / sigma)
    drawn, other = (mixed, without) if present_first else (without, mixed)
    # drawn = a + b and other = a e^-low + b e^-high: a stays at the lower end of the bin.
    lower_part = (other * np.exp(grid[1:]) - drawn) / math.expm1(step)
    lower_part = np.clip(lower_part, 0.0, drawn)
    pmf = np.zeros(len(grid))
    pmf[:-1] += lower_part
    pmf[1:] += drawn - lower_part
    pmf[0] += max(0.0, _beyond(x[0], rate, sigma, present_first, below=True))
    return Losses(first, pmf, max(0.0, _beyond(x[-1], rate, sigma, present_first, below=False)))


def _beyond(x: float, rate: float, sigma: float, present_first: bool, *, below: bool) -> float:
    """Mass of losses below (or above) the one at x."""
    sign = 1 if below == present_first else -1
    absent = math.exp(log_ndtr(sign * x / sigma))
    if not present_first:
        return absent
    return (1 - rate) * absent + rate * math.exp(log_ndtr(sign * (x - 1) / sigma))


def mixture(first: Losses, second: Losses, p: float) -> Losses:
    """`second` with probability p, and the outcome tells which of the two it was."""
    low, high = min(first.first, second.first), max(first.end(), second.end())
    pmf = np.zeros(high - low)
    for part, weight in ((first, 1 - p), (second, p)):
        pmf[part.first - low : part.end() - low] += weight * part.pmf
    return Losses(low, pmf, (1 - p) * first.infinite + p * second.infinite)


def composed(parts: list[tuple[Losses, int]], step: float) -> Losses:
    """Add independent losses, each as often as is said."""

    def log_moment(slope: float) -> float:
        total = 0.0
        for part, count in parts:
            exponent = slope * step * (part.first + np.arange(len(part.pmf)))
            top = float(exponent.max())
            total += count * (top + math.log(float(np.sum(part.pmf * np.exp(exponent - top)))))
        return total

    slopes = np.geomspace(0.05, 400, 20)
    # Chernoff: P(S >= top) <= E[e^(slope S)] e^(-slope top).
    high = min((log_moment(s) - math.log(CUT)) / s for s in slopes)
    low = max((math.log(CUT) - log_moment(-s)) / s for s in slopes)
    start, length = math.floor(low / step), next_fast_len(math.ceil((high - low) / step) + 2, True)
    spectrum: NDArray[np.complex128] | complex = 1.0
    offset, kept = 0, 1.0
    for part, count in parts:
        folded = np.zeros(-(-len(part.pmf) // length) * length)
        folded[: len(part.pmf)] = part.pmf
        spectrum = spectrum * np.fft.rfft(folded.reshape(-1, length).sum(0)) ** count
        offset += part.first * count
        kept *= (1 - part.infinite) ** count
    pmf = np.roll(np.fft.irfft(spectrum, length), (offset - start) % length)
    return Losses(start, np.maximum(pmf, 0.0), 1 - kept + 2 * CUT)


def delta_curve(losses: Losses, step: float) -> Callable[[float], float]:
    """delta as a function of epsilon >= 0: what lies above it, less e^epsilon times its twin."""
    values = (losses.first + np.arange(len(losses.pmf))) * step
    kept = values > 0
    values, pmf = values[kept], losses.pmf[kept]
    above = np.append(np.cumsum(pmf[::-1])[::-1], 0.0)
    twin = np.append(np.cumsum((pmf * np.exp(-values))[::-1])[::-1], 0.0)

    def delta(epsilon: float) -> float:
        start = int(np.searchsorted(values, epsilon, side="right"))
        return float(above[start] - math.exp(epsilon) * twin[start]) + losses.infinite

    return delta


def analytic_delta(epsilon: float, mean_square: float) -> float:
    """Balle and Wang (2018) for Gaussians whose squared shifts over noise sum to `mean_square`."""
    root = math.sqrt(mean_square)
    first = math.exp(log_ndtr(root / 2 - epsilon / root))
    return first - math.exp(epsilon + log_ndtr(-root / 2 - epsilon / root))


def least_epsilon(delta_at: Callable[[float], float], delta: float, top: float = 1e6) -> float:
    """The smallest epsilon >= 0 with delta_at(epsilon) <= delta, for a falling delta_at."""
    if delta_at(0.0) <= delta:
        return 0.0
    high = 1.0
    while delta_at(high) > delta:
        high *= 2
        if high > top:
            return math.inf
    return float(brentq(lambda e: delta_at(e) - delta, 0.0, high, xtol=1e-10))
