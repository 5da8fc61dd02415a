"""Stochastic rounding in cache-sized pieces, for float32 vectors of at most sixteen bits.

The same law as :mod:`zerosum.secagg.vectors.encoding`'s, to 2^-16 of an integer unit or 2^-24 of
the value, whichever is more, some ten times faster: a random fraction of sixteen binary places in
[-1/2, 1/2) is added, and the sum rounded to the nearest integer.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.randomness import SPARE_BYTES, Keystream

LARGEST_BOUND = (1 << 15) - 1
SMALLEST_NORM = 1e-12
"""Below, squares of entries are lost to float32's range."""
NORM_MARGIN = 1.001
"""Factor on a norm before it is compared: more than the norm may be off."""
# Binary places of a fraction: two bytes of coins an entry, read as an int16.
_PLACES = 16
# A buffer of 224 KiB and coins of 112 beside the vector and its sum: they stay in a core's own
# cache, and there are few pieces a vector, of 4 us of calls each.
_PIECE = 7 << 13
# Float32 adds so many squares, in any order, to 2^15 2^-24 = 0.2 %, and the norm to half of that.
_NORM_PIECE = 1 << 15
# A float32 between 2^39 and 2^40 has no place below 2^16. Adding this one rounds a number of fewer
# than 38 bits to whole units of 2^16, to even, and leaves how many there are in its last bits: read
# as an int32 it is this one's bits and so many. Two passes less than to convert and to shift.
_WHOLE = np.float32(3 * 2.0**38)
OFFSET = int(_WHOLE.view(np.int32))
"""What :func:`add_rounded` adds to each entry beside its integer, modulo 2^32."""
# Far below float32's largest, so that an entry times it is infinite only where it is clamped.
_LARGEST_SCALE = 1e30


class Scratch:
    """Memory for one piece, for vectors that are rounded one after another.

    Blocks this large, taken and given back for each vector, have the allocator tidy up all it has.

    Parameters
    ----------
    length : int
        Of the longest vector.
    """

    def __init__(self, length: int) -> None:
        entries = min(length, _PIECE)
        self.numbers = np.empty(entries, np.float32)
        self.coins = bytearray(2 * entries + SPARE_BYTES)


def finite_norm(vector: NDArray[np.float32]) -> float | None:
    """Return a float32 vector's L2 norm; None where a square is NaN or overflows float32.

    Squares are added in pieces, so that a norm of at least SMALLEST_NORM is within 0.1 %.
    """
    squares = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, len(vector), _NORM_PIECE):
            part = vector[start : start + _NORM_PIECE]
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
    vector: NDArray[np.float32],
    scale: float,
    bound: int | None,
    rounding: Keystream,
    out: NDArray[np.int32] | None = None,
    scratch: "Scratch | None" = None,
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
    out : ndarray of int32, shape (d,), optional
        Where to write.
    scratch : Scratch, optional
        Of at least d entries.

    Returns
    -------
    ndarray of int32, shape (d,)
        ``out``, or a new array.
    """
    result = np.empty(len(vector), np.int32) if out is None else out
    with np.errstate(over="ignore", under="ignore"):
        for part, bits in _pieces(vector, scale, bound, rounding, scratch):
            np.subtract(bits, OFFSET, out=result[part])
    return result


def add_rounded(
    vector: NDArray[np.float32],
    scale: float,
    bound: int | None,
    rounding: Keystream,
    total: NDArray[np.int32],
    scratch: "Scratch | None" = None,
) -> None:
    """Add to a sum what :func:`rounded` returns, and :data:`OFFSET` to each entry, modulo 2^32.

    Parameters
    ----------
    vector, scale, bound, rounding, scratch
        As for :func:`rounded`.
    total : ndarray of int32, shape (d,)
        Added to, in place. To take the offset out once a sum spares a pass a vector.
    """
    with np.errstate(over="ignore", under="ignore"):
        for part, bits in _pieces(vector, scale, bound, rounding, scratch):
            np.add(total[part], bits, out=total[part])


def _pieces(
    vector: NDArray[np.float32],
    scale: float,
    bound: int | None,
    rounding: Keystream,
    scratch: "Scratch | None",
) -> Iterator[tuple[slice, NDArray[np.int32]]]:
    """Yield each piece's place and its integers, OFFSET added; the next piece overwrites them."""
    length = len(vector)
    factor = np.float32(scale * 2**_PLACES)
    scratch = Scratch(length) if scratch is None else scratch
    for start in range(0, length, _PIECE):
        part = slice(start, min(start + _PIECE, length))
        count = part.stop - start
        x = scratch.numbers[:count]
        np.multiply(vector[part], factor, out=x)
        if bound is not None:
            limit = np.float32(bound << _PLACES)
            np.clip(x, -limit, limit, out=x)
        np.add(x, rounding.words(count, np.uint16, scratch.coins).view("<i2"), out=x)
        np.add(x, _WHOLE, out=x)
        bits = x.view(np.int32)
        if bound is not None:  # float32 may have rounded a coin's sum at the bound up to one half
            np.clip(bits, OFFSET - bound, OFFSET + bound, out=bits)
        yield part, bits


def squared_norm(vector: NDArray[np.signedinteger[Any]]) -> int:
    """Return the exact sum of squares of integers of at most sixteen bits."""
    real = np.empty(min(len(vector), _NORM_PIECE), np.float64)
    squares = 0
    for start in range(0, len(vector), _NORM_PIECE):
        part = vector[start : start + _NORM_PIECE]
        x = real[: len(part)]
        np.copyto(x, part)
        squares += int(np.dot(x, x))  # integers below 2^46: exact
    return squares
