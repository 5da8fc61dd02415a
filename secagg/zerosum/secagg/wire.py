"""Canonical bytes: a strict reader, and sets of cohort positions as bitmaps."""

import struct
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.errors import MalformedMessage

_U64 = struct.Struct(">Q")


def u64(value: int) -> bytes:
    """Return a 64-bit integer as eight big-endian bytes."""
    return _U64.pack(value)


def prefixed(data: bytes) -> bytes:
    """Return ``data`` after its length, so that parts cannot run into each other."""
    return _U64.pack(len(data)) + data


class Reader:
    """Reads a byte string from front to back and never past its end.

    A length is compared with what is left before anything is taken, so that nothing is ever
    allocated that the message does not hold.
    """

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        self._offset = 0

    @property
    def remaining(self) -> int:
        """Bytes not read yet."""
        return len(self._data) - self._offset

    def take(self, count: int) -> bytes:
        """Return the next ``count`` bytes.

        Raises
        ------
        MalformedMessage
            If fewer are left.
        """
        if count > self.remaining:
            raise MalformedMessage(f"{count} bytes expected, {self.remaining} left")
        start = self._offset
        self._offset += count
        return bytes(self._data[start : self._offset])

    def u64(self) -> int:
        """Return the next 64-bit integer."""
        value: int = _U64.unpack(self.take(8))[0]
        return value

    def prefixed(self) -> bytes:
        """Return the next length-prefixed part."""
        return self.take(self.u64())

    def finish(self) -> None:
        """Refuse bytes after the end.

        Raises
        ------
        MalformedMessage
            If there are any.
        """
        if self.remaining:
            raise MalformedMessage(f"{self.remaining} bytes after the end of the message")


def position_bytes(size: int) -> int:
    """Return how many bytes one position in a cohort of ``size`` takes."""
    return 2 if size <= 1 << 16 else 4


def to_positions(positions: NDArray[np.intp], size: int) -> bytes:
    """Write ascending positions as fixed-width little-endian integers.

    Parameters
    ----------
    positions : ndarray of int, shape (m,)
    size : int
        The cohort's.

    Returns
    -------
    bytes
        2 for each, or 4 in a cohort above 65,536.
    """
    return positions.astype(f"<u{position_bytes(size)}").tobytes()


def from_positions(data: bytes, size: int) -> NDArray[np.intp]:
    """Read the positions that :func:`to_positions` wrote.

    Parameters
    ----------
    data : bytes
    size : int
        The cohort's.

    Returns
    -------
    ndarray of int, shape (m,)
    """
    return np.frombuffer(data, f"<u{position_bytes(size)}").astype(np.intp)


def bitmap_bytes(size: int) -> int:
    """Return how many bytes a bitmap over ``size`` positions takes."""
    return (size + 7) // 8


def to_bitmap(positions: Iterable[int] | NDArray[np.intp], size: int) -> bytes:
    """Write a set of positions as bits in cohort order, least significant first.

    Parameters
    ----------
    positions : iterable of int, or ndarray of int
    size : int
        The cohort's.

    Returns
    -------
    bytes
    """
    bits = np.zeros(size, bool)
    bits[positions if isinstance(positions, np.ndarray) else list(positions)] = True
    return np.packbits(bits, bitorder="little").tobytes()


def check_bitmap(bitmap: bytes, size: int) -> None:
    """Refuse a bitmap of the wrong length or with a bit past the cohort's end.

    Parameters
    ----------
    bitmap : bytes
    size : int
        The cohort's.

    Raises
    ------
    MalformedMessage
        If it is one.
    """
    if len(bitmap) != bitmap_bytes(size) or int.from_bytes(bitmap, "little") >> size:
        raise MalformedMessage("a set of clients is not a bitmap of the cohort")


def bitmap_count(bitmap: bytes) -> int:
    """Return how many positions a bitmap holds."""
    return int.from_bytes(bitmap, "little").bit_count()


def bitmap_has(bitmap: bytes, position: int) -> bool:
    """Return whether a bitmap holds a position.

    Parameters
    ----------
    bitmap : bytes
    position : int

    Returns
    -------
    bool
    """
    return bool(bitmap[position >> 3] >> (position & 7) & 1)


def to_mask(bitmap: bytes, size: int) -> NDArray[np.bool_]:
    """Read a bitmap as a mask over all positions.

    Parameters
    ----------
    bitmap : bytes
    size : int
        The cohort's.

    Returns
    -------
    ndarray of bool, shape (size,)
        Whether the bitmap holds each position.
    """
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), count=size, bitorder="little")
    return bits.view(bool)


def from_bitmap(bitmap: bytes) -> NDArray[np.intp]:
    """Return the positions in a bitmap, ascending."""
    return np.flatnonzero(np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little"))
