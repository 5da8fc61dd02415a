"""Privacy losses of moves under integer noise, on `dp_accounting`'s grid."""

import math
from collections import Counter
from typing import Any

import numpy as np
from dp_accounting.pld.pld_pmf import DensePLDPmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from numpy.typing import NDArray

from zerosum.client.privacy.integer_laws import CUT_BITS, Geometric, Skellam

WIDEST_STD = 2.0**14
"""Standard deviation above which no table of losses is made of noise other than one discrete
Laplace, whose losses are as many as its move has steps."""

FINEST_SHIFT = 1 << 15
"""Integer steps of discrete Laplace noise that are accounted one by one: its distribution has a
point for each, so memory and time grow with them."""

LARGEST_PURE = 100.0
"""Pure epsilon of one event above which nothing else is asked about it: e^100 protects nobody, and
its losses would take millions of points to say a little less."""

LARGEST_RATIO = 8.0
"""Length of the moves over the standard deviation above which Skellam noise has no distribution:
epsilon is above 32 there, and its losses take millions of points."""

NEGLIGIBLE = 2.0**-80
"""Mass of the largest losses that goes to infinity, and of the least that goes up to the next: the
tails are as long as what lies between, and a composition loses 1e-15 of both."""


def composed_losses(
    noise: Geometric | Skellam, moves: tuple[int, ...], interval: float
) -> Any | None:
    """Return the composition of the pairs (noise, noise + move), one a move.

    Parameters
    ----------
    noise : Geometric or Skellam
        Log-concave.
    moves : tuple of int
        Above 0, in integer units.
    interval : float
        Step of the grid of privacy losses.

    Returns
    -------
    dp_accounting.pld.PrivacyLossDistribution or None
        Pessimistic. None above :data:`LARGEST_PURE` and :data:`LARGEST_RATIO`, and for Skellam
        noise above :data:`WIDEST_STD`.
    """
    if not _has_losses(noise, moves):
        return None
    total: Any = None
    for move, count in sorted(Counter(moves).items()):
        part = _on_grid(*_pair(noise, move), interval)
        part = part if count == 1 else part.self_compose(count)
        total = part if total is None else total.compose(part)
    return total


def _has_losses(noise: Geometric | Skellam, moves: tuple[int, ...]) -> bool:
    if isinstance(noise, Geometric):
        return noise.pure_epsilon(sum(moves)) <= LARGEST_PURE
    return math.hypot(*moves) <= LARGEST_RATIO * noise.std and noise.std <= WIDEST_STD


def _pair(noise: Geometric | Skellam, move: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return losses ln p(k)/p(k - D) and ln p(k), of all mass but 2^-140; each shape (n,)."""
    if isinstance(noise, Geometric) and (noise.r == 1 or noise.std > WIDEST_STD):
        return _laplace_pair(noise.scale, move)
    last = noise.extent()
    logs = noise.log_probabilities(last + move)
    k = np.arange(-last, last + 1)
    here = logs[np.abs(k)]
    return here - logs[np.abs(k - move)], here


def _laplace_pair(scale: float, move: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the D + 1 losses of one discrete Laplace and the logarithms of their masses.

    More shares are charged as one: further noise is post-processing. Above :data:`FINEST_SHIFT`
    steps on a coarser lattice: a geometric variable is k times a geometric one of k times the rate
    plus an independent rest, so noise on the finer lattice is post-processing of the coarser one.
    """
    step = -(-move // FINEST_SHIFT)
    scale, move = scale / step, -(-move // step)
    k = np.arange(move + 1)
    one = math.log1p(math.exp(-1 / scale))
    logs = math.log(math.tanh(0.5 / scale)) - k / scale
    logs[0], logs[-1] = -one, -move / scale - one
    return (move - 2 * k) / scale, logs


def _on_grid(losses: NDArray[np.float64], logs: NDArray[np.float64], interval: float) -> Any:
    """Round losses to a grid so that no hockey-stick divergence falls.

    Doroshenko, Ghazi, Kamath, Kumar, Manurangsi, "Connect the dots: tighter discrete
    approximations of privacy loss distributions" (2022), atom by atom: the mass of a loss is
    divided among its two neighbours on the grid so that its probability stays the same under
    *both* distributions. That is a test more: the curve between is a chord of a convex one.
    """
    places = losses / interval
    below = np.floor(places)
    masses = np.exp(logs)
    above = masses * (np.expm1((below - places) * interval) / math.expm1(-interval))
    first = int(below.min())
    at = (below - first).astype(np.int64)
    size = int(at.max()) + 2
    whole = np.bincount(at, masses - above, size) + np.bincount(at + 1, above, size)
    low = int(np.searchsorted(whole.cumsum(), NEGLIGIBLE))
    tail = whole[::-1].cumsum()
    cut = int(np.searchsorted(tail, NEGLIGIBLE))
    whole[low] += whole[:low].sum()
    infinite = 2.0**-CUT_BITS + (float(tail[cut - 1]) if cut else 0.0)
    # The pair is its own mirror, k -> D - k: adding and removing have the same losses.
    return PrivacyLossDistribution(
        DensePLDPmf(interval, first + low, whole[low : size - cut], infinite, True)
    )
