"""Renyi divergences of moves under integer noise, at the integer orders of this project.

Without scipy or an accountant: a client's own budget is checked by every deployed client.
"""

import math
from collections import Counter
from functools import lru_cache

import numpy as np

from zerosum.client.privacy import renyi_curves
from zerosum.client.privacy.integer_laws import Geometric, Skellam
from zerosum.client.privacy.mechanism import Divergences
from zerosum.client.renyi_filter import ORDERS

_SMALLEST_EXACT = 1e-4
"""Pure epsilon of a move below which its row is that which pure epsilon implies: that is larger by
a relative 1e-4 at the orders that matter, and the closed form has lost half of its digits."""

_EXACT_SKELLAM = (2**10, 16)
"""Largest variance and move whose row is summed term by term, in some 30 ms. Beyond either the
bound in closed form is within a relative 1e-3, or epsilon is beyond what anybody asks for."""


def moves_row(noise: Geometric | Skellam, moves: tuple[int, ...]) -> Divergences:
    """Return the divergences of independent moves: the sum of theirs.

    Parameters
    ----------
    noise : Geometric or Skellam
        Log-concave. More than one discrete Laplace is charged as one: further noise is
        post-processing.
    moves : tuple of int
        Above 0, in integer units.

    Returns
    -------
    ndarray of float64, shape (511,)
        At :data:`~zerosum.client.renyi_filter.ORDERS`.
    """
    rows = [count * _row(noise, move) for move, count in Counter(moves).items()]
    whole: Divergences = np.sum(rows, axis=0)
    return whole


def _row(noise: Geometric | Skellam, move: int) -> Divergences:
    if isinstance(noise, Geometric):
        return geometric_row(noise.scale, move)
    return skellam_row(noise.variance, move)


@lru_cache(maxsize=256)
def geometric_row(scale: float, move: int) -> Divergences:
    """Return the divergences of a discrete Laplace variable from itself moved, in closed form.

    (alpha-1) R(alpha) = ln (1-a)/(1+a) [ (a^((1-alpha)D) + a^(alpha D))/(1-a)
    + sum_{k=1}^{D-1} a^((1-alpha)D + (2 alpha-1)k) ], a = exp(-1/scale): the losses are D/scale at
    k <= 0, minus that at k >= D, and linear between. Never above what pure epsilon implies.

    Parameters
    ----------
    scale : float
        p(k) is proportional to exp(-|k| / scale).
    move : int
        D, above 0.

    Returns
    -------
    ndarray of float64, shape (511,)
        Read-only.
    """
    pure = renyi_curves.pure(move / scale)
    row = pure
    if move / scale >= _SMALLEST_EXACT:
        alpha = renyi_curves.orders()
        rate = (2 * alpha - 1) / scale
        ends = (1 + np.exp(-rate * move)) / (1 + math.exp(-1 / scale))
        between = np.exp(-rate) * np.expm1(-rate * (move - 1)) / np.expm1(-rate)
        whole = ends + math.tanh(0.5 / scale) * between
        row = np.minimum(pure, move / scale + np.log(whole) / (alpha - 1))
    row.flags.writeable = False
    return row


@lru_cache(maxsize=256)
def skellam_row(variance: float, move: int) -> Divergences:
    """Return the divergences of a Skellam variable from itself moved.

    The smaller of the sum over all integers and the bound of Agarwal, Kairouz, Liu (2021), Theorem
    3.5, which is all there is for large variances and moves.

    Parameters
    ----------
    variance : float
        mu, above 0.
    move : int
        D, above 0.

    Returns
    -------
    ndarray of float64, shape (511,)
        Read-only.
    """
    alpha = renyi_curves.orders()
    second = ((2 * alpha - 1) * move**2 + 6 * move) / (4 * variance**2)
    row = alpha * move**2 / (2 * variance) + np.minimum(second, 3 * move / (2 * variance))
    largest_variance, largest_move = _EXACT_SKELLAM
    if variance <= largest_variance and move <= largest_move:
        row = np.minimum(row, _summed_skellam(variance, move))
    row.flags.writeable = False
    return row


def _summed_skellam(variance: float, move: int) -> Divergences:
    """Return ln sum_k p(k)^alpha p(k + D)^(1 - alpha) over alpha - 1.

    With L = ln p, the exponent alpha L(k) - (alpha - 1) L(k + D) rises fastest to k > 0, where
    L(k) falls less than L(k + D). There it is concave, as L'' increases, and its peak is at no more
    than (alpha - 1) D: L' = -asinh(k/mu) to first order, which is concave. Sixteen deviations of L
    beyond that peak leave e^-128.
    """

    def end(alpha: int) -> int:
        peak = (alpha - 1) * move
        return peak + math.ceil(16 * math.sqrt(variance + peak + move)) + 64

    # To the left terms are below p(k): twenty deviations hold all of it.
    left = math.ceil(20 * math.sqrt(variance)) + 64
    logs = Skellam(variance).log_probabilities(left + end(ORDERS[-1]) + move)
    k = np.arange(-left, end(ORDERS[-1]) + 1)
    here, moved = logs[np.abs(k)], logs[np.abs(k + move)]
    row = np.empty(len(ORDERS))
    for place, alpha in enumerate(ORDERS):
        kept = slice(left + end(alpha) + 1)
        exponents = here[kept] + (alpha - 1) * (here[kept] - moved[kept])
        top = exponents.max()
        row[place] = (top + math.log(np.exp(exponents - top).sum())) / (alpha - 1)
    return row
