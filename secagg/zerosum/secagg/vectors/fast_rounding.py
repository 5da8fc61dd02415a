"""Stochastic rounding in cache-sized pieces, for float32 vectors of at most sixteen bits.

The same law as :mod:`zerosum.secagg.vectors.encoding`'s, to 2^-15 of an integer unit or 2^-24 of
the value, whichever is more, some ten times faster: fixed-point numbers with fifteen binary places,
a random fraction added, the places cut off.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.randomness import Keystream

LARGEST_BOUND = (1 << 15) - 1
SMALLEST_NORM = 1e-12
"""Below, squares of entries are lost to float32's range."""
NORM_MARGIN = 1.001
"""Factor on a norm before it is compared: more than the norm may be off."""
# An int32 holds 15 bits of magnitude, 15 binary places, a sign, and a bit for the coin's carry.
_PLACES = 15
# Three arrays of 128 KiB: they stay in a core's own cache.
_PIECE = 1 << 15
# Far below float32's largest, so that an entry times it is infinite only where it is clamped.
_LARGEST_SCALE = 1e30


def finite_norm(vector: NDArray[np.float32]) -> float | None:
    """Return a float32 vector's L2 norm; None where a square is NaN or overflows float32.

    Squares are added in pieces, so that a norm of at least SMALLEST_NORM is within 0.1 %.
    """
    squares = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, len(vector), _PIECE):
            part = vector[start : start + _PIECE]
            squares += float(np.dot(part, part))
    return math.sqrt(squares) if math.isfinite(squares) else None


def can_round(scale: float, bound: int) -> bool:
    """Return whether results up to a bound fit the fixed-point numbers of :func:`rounded`.

    Parameters
    ----------
    scale : float
        Integer units in one.
    bound : int
        Largest magnitude of a result.

    Returns
    -------
    bool
    """
    return bound <= LARGEST_BOUND and scale * 2**_PLACES < _LARGEST_SCALE


def rounded(
    vector: NDArray[np.float32], scale: float, bound: int | None, rounding: Keystream
) -> NDArray[np.int32]:
    """Scale, clamp and round a finite vector, each entry up or down without bias.

    Parameters
    ----------
    vector : ndarray of float32, shape (d,)
        Finite.
    scale : float
        Integer units in one.
    bound : int or None
        Largest magnitude of a result, at most 2^15 - 1; None where no scaled entry exceeds that.
    rounding : Keystream
        Two bytes an entry are taken.

    Returns
    -------
    ndarray of int32, shape (d,)
    """
    length = len(vector)
    factor = np.float32(scale * 2**_PLACES)
    limit = None if bound is None else np.float32(bound << _PLACES)
    size = min(length, _PIECE)
    real, fixed, coins = (np.empty(size, kind) for kind in (np.float32, np.int32, np.int32))
    result = np.empty(length, np.int32)
    with np.errstate(over="ignore", under="ignore"):
        for start in range(0, length, _PIECE):
            part = slice(start, min(start + _PIECE, length))
            size = part.stop - start
            x, k, c = real[:size], fixed[:size], coins[:size]
            np.multiply(vector[part], factor, out=x)
            if limit is not None:
                np.clip(x, -limit, limit, out=x)
            np.rint(x, out=x)
            np.copyto(k, x, casting="unsafe")
            np.copyto(c, rounding.words(size, np.uint16))  # numpy adds one type, and fast
            np.right_shift(c, 1, out=c)
            np.add(k, c, out=k)
            np.right_shift(k, _PLACES, out=result[part])
    return result


def squared_norm(vector: NDArray[np.signedinteger[Any]]) -> int:
    """Return the exact sum of squares of integers of at most sixteen bits."""
    real = np.empty(min(len(vector), _PIECE), np.float64)
    squares = 0
    for start in range(0, len(vector), _PIECE):
        part = vector[start : start + _PIECE]
        x = real[: len(part)]
        np.copyto(x, part)
        squares += int(np.dot(x, x))  # of integers below 2^45: exact
    return squares
