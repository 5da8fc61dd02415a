"""Words of b bits, one after another, least significant bit first.

The words of one 64-bit machine word are first moved together within it, all at once, which makes
units of some width; units are then written across 64-bit words. The pattern of both repeats after
at most 64 units, so that each step is one operation on all repetitions, which a transposition
has put side by side.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.errors import LocalProtocolError

_WORD = 64
CONTAINERS = tuple(map(np.dtype, (np.uint16, np.uint32, np.uint64)))
"""Types of words, in the order of bytes of this machine."""

# 256 KiB of units: a piece and its transposition stay in a core's own cache.
_UNITS_AT_ONCE = 1 << 15


def packed_bytes(length: int, bits: int) -> int:
    """Return the bytes that packed words take.

    Parameters
    ----------
    length : int
        Words.
    bits : int
        Of each.

    Returns
    -------
    int
    """
    return (length * bits + 7) // 8


def pack_words(words: NDArray[Any], bits: int) -> bytes:
    """Pack unsigned words, all below 2^bits, into bytes.

    Parameters
    ----------
    words : ndarray of unsigned integers, shape (d,)
        A value of 2^bits or more would corrupt its neighbours.
    bits : int
        1 to 64.

    Returns
    -------
    bytes
        ``packed_bytes(d, bits)`` bytes; the unused top bits of the last one are zero.

    Raises
    ------
    LocalProtocolError
        If the words are not unsigned integers of this machine, or one has more than ``bits`` bits.
    """
    if words.ndim != 1 or words.dtype not in CONTAINERS:
        raise LocalProtocolError(f"unsigned words are packed, not {words.dtype.str}")
    if bits < 8 * words.itemsize and words.size and int(words.max()) >> bits:
        raise LocalProtocolError(f"a word of {int(words.max())} has more than {bits} bits")
    if bits in (8, 16, 32, 64):
        return words.astype(f"<u{bits // 8}", copy=False).tobytes()
    shape = _shape(8 * words.itemsize, bits)
    out = np.empty((-(-len(words) // shape.words), shape.packed), "<u8")
    for start in range(0, len(out), shape.at_once):
        rows = out[start : start + shape.at_once]
        chunk = words[start * shape.words : (start + len(rows)) * shape.words]
        units = _filled(chunk, words.dtype, len(rows), shape.units)
        _move_together(units, 8 * words.itemsize, bits)
        rows[...] = _pack_units(units, shape).T
    return out.reshape(-1).view(np.uint8)[: packed_bytes(len(words), bits)].tobytes()


def unpack_words(data: bytes, length: int, bits: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Undo :func:`pack_words`.

    Parameters
    ----------
    data : bytes
        ``packed_bytes(length, bits)`` of them, unused top bits zero: the caller has checked both.
    length : int
        Words d.
    bits : int
        1 to 64.
    dtype : dtype
        The container, of at least ``bits`` bits.

    Returns
    -------
    ndarray of dtype, shape (d,)
    """
    if bits in (8, 16, 32, 64):
        return np.frombuffer(data, f"<u{bits // 8}").astype(dtype)
    shape = _shape(8 * dtype.itemsize, bits)
    raw = np.frombuffer(data, np.uint8)
    out = np.empty(length, dtype)
    period = 8 * shape.packed
    for start in range(0, -(-length // shape.words), shape.at_once):
        piece = out[start * shape.words : (start + shape.at_once) * shape.words]
        some = raw[start * period : (start + shape.at_once) * period]
        packed = _filled(some, raw.dtype, -(-len(piece) // shape.words), shape.packed)
        units = _unpack_units(packed, shape)
        _move_apart(units, 8 * dtype.itemsize, bits)
        words = np.ascontiguousarray(units.T).reshape(-1).view(dtype.newbyteorder("<"))
        piece[...] = words[: len(piece)]
    return out


@dataclass(frozen=True)
class _Shape:
    """Period of packed words: ``units`` units of ``width`` bits fill ``packed`` 64-bit words."""

    width: int
    units: int
    packed: int
    words: int
    at_once: int


@lru_cache(maxsize=256)
def _shape(container: int, bits: int) -> _Shape:
    count = _WORD // container
    width = count * bits
    common = gcd(width, _WORD)
    units = _WORD // common
    return _Shape(width, units, width // common, units * count, max(1, _UNITS_AT_ONCE // units))


def _filled(
    data: NDArray[Any], dtype: np.dtype[Any], rows: int, columns: int
) -> NDArray[np.uint64]:
    """Return ``data``, with zeros after it, as 64-bit words: (columns, rows), a period a column."""
    words = np.zeros((rows, columns), "<u8")
    words.reshape(-1).view(dtype.newbyteorder("<"))[: len(data)] = data
    return np.ascontiguousarray(words.T)


def _repeated(bits: int, offset: int, period: int) -> np.uint64:
    """Return the 64-bit mask with ``bits`` ones at ``offset`` of every ``period`` bits."""
    ones = ((1 << bits) - 1) << offset
    return np.uint64(sum(ones << place for place in range(0, _WORD, period)))


def _move_together(units: NDArray[np.uint64], field: int, bits: int) -> None:
    """Close the gaps between the words of each unit, in place: pairs, then pairs of pairs."""
    while field < _WORD:
        moved = units >> np.uint64(field - bits)
        moved &= _repeated(bits, bits, 2 * field)
        units &= _repeated(bits, 0, 2 * field)
        units |= moved
        field, bits = 2 * field, 2 * bits


def _move_apart(units: NDArray[np.uint64], container: int, bits: int) -> None:
    """Undo :func:`_move_together`."""
    field, width = _WORD // 2, bits * _WORD // container // 2
    while field >= container:
        moved = units << np.uint64(field - width)
        moved &= _repeated(width, field, 2 * field)
        units &= _repeated(width, 0, 2 * field)
        units |= moved
        field, width = field // 2, width // 2


def _pack_units(units: NDArray[np.uint64], shape: _Shape) -> NDArray[np.uint64]:
    """Write units, each a row, across 64-bit words, each a row."""
    out = np.empty((shape.packed, units.shape[1]), np.uint64)
    spare = np.empty_like(out[0])
    for place, unit in enumerate(units):
        word, shift = divmod(place * shape.width, _WORD)
        if shift:
            out[word] |= np.left_shift(unit, np.uint64(shift), out=spare)
        else:
            out[word] = unit
        if shift + shape.width > _WORD:
            np.right_shift(unit, np.uint64(_WORD - shift), out=out[word + 1])
    return out


def _unpack_units(packed: NDArray[np.uint64], shape: _Shape) -> NDArray[np.uint64]:
    """Undo :func:`_pack_units`."""
    out = np.empty((shape.units, packed.shape[1]), np.uint64)
    spare = np.empty_like(out[0])
    for place, unit in enumerate(out):
        word, shift = divmod(place * shape.width, _WORD)
        np.right_shift(packed[word], np.uint64(shift), out=unit)
        if shift + shape.width > _WORD:
            unit |= np.left_shift(packed[word + 1], np.uint64(_WORD - shift), out=spare)
    out &= np.uint64((1 << shape.width) - 1)
    return out
