"""Stochastic rounding in cache-sized pieces, for float32 vectors of at most sixteen bits.

The same law as :mod:`zerosum.secagg.encoding`'s, to 2^-15 of an integer unit or 2^-24 of the
value, whichever is more, some ten times faster: fixed-point numbers with fifteen binary places, a
random fraction added, the places cut off.
"""

import math

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.randomness import Keystream

LARGEST_BOUND = (1 << 15) - 1
_PLACES = 15
_PIECE = 1 << 15
_LARGEST_SCALE = 1e30


def finite_norm(vector: NDArray[np.float32]) -> float | None:
    """Return a float32 vector's L2 norm; None where its square is NaN or overflows float32."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = float(np.dot(vector, vector))
    return math.sqrt(squares) if math.isfinite(squares) else None


def can_round(scale: float, bound: int) -> bool:
    """Return whether integers up to ``bound``, ``scale`` to the unit, fit what is computed here."""
    return bound <= LARGEST_BOUND and scale * 2**_PLACES < _LARGEST_SCALE


def rounded(
    vector: NDArray[np.float32], scale: float, bound: int, rounding: Keystream
) -> tuple[NDArray[np.int64], int]:
    """Scale, clamp and round a finite vector, each entry up or down without bias.

    Parameters
    ----------
    vector : ndarray of float32, shape (d,)
        Finite.
    scale : float
        Integer units in one.
    bound : int
        Largest magnitude of a result, at most 2^15 - 1.
    rounding : Keystream
        Two bytes an entry are taken.

    Returns
    -------
    ndarray of int64, shape (d,); int
        The integers, and the exact sum of their squares.
    """
    length = len(vector)
    words = rounding.words(length, np.uint16)
    factor, limit = np.float32(scale * 2**_PLACES), np.float32(bound << _PLACES)
    real, square = np.empty(_PIECE, np.float32), np.empty(_PIECE, np.float64)
    fixed = np.empty(_PIECE, np.int32)
    found = np.empty(length, np.int64)
    squares = 0
    with np.errstate(over="ignore", under="ignore"):
        for start in range(0, length, _PIECE):
            part = slice(start, min(start + _PIECE, length))
            size = part.stop - start
            x, k, s = real[:size], fixed[:size], square[:size]
            np.multiply(vector[part], factor, out=x)
            np.clip(x, -limit, limit, out=x)
            np.rint(x, out=x)
            np.copyto(k, x, casting="unsafe")
            np.add(k, words[part] >> 1, out=k)
            np.right_shift(k, _PLACES, out=k)
            np.copyto(s, k)
            squares += int(np.dot(s, s))  # of integers below 2^45: exact
            np.copyto(found[part], k)
    return found, squares
