"""Vectors over the integers modulo 2^b, in the narrowest machine words that hold them."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.errors import LocalProtocolError, MalformedMessage
from zerosum.secagg.packing import pack_words, packed_bytes, unpack_words


@dataclass(frozen=True)
class Ring:
    """The ring Z_2^b.

    Arithmetic runs modulo the container's own 2^16, 2^32 or 2^64, of which 2^b is a divisor, so
    that values need reducing only at the end.

    Parameters
    ----------
    bits : int
        b, from 1 to 64.

    Raises
    ------
    LocalProtocolError
        If ``bits`` is outside 1 to 64.
    """

    bits: int

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 64:
            raise LocalProtocolError(f"a ring has 1 to 64 bits, not {self.bits}")

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The container: uint16, uint32 or uint64."""
        if self.bits <= 16:
            return np.dtype(np.uint16)
        return np.dtype(np.uint32) if self.bits <= 32 else np.dtype(np.uint64)

    @cached_property
    def modulus(self) -> int:
        """2^b."""
        return 1 << self.bits

    def zeros(self, length: int) -> NDArray[Any]:
        """Return ``length`` zeros in the container."""
        return np.zeros(length, self.dtype)

    def encode(self, values: NDArray[np.signedinteger[Any]]) -> NDArray[Any]:
        """Return integers of any sign modulo 2^b, as a new array in the container."""
        return self.reduce(values.astype(self.dtype))

    def contain(self, vector: NDArray[Any], length: int) -> NDArray[Any]:
        """Return a fresh reduced copy, in the container, of a caller's vector.

        Raises
        ------
        LocalProtocolError
            If the vector is neither int64, int32 nor in the container, or has not ``length``
            coordinates.
        """
        if vector.shape != (length,):
            raise LocalProtocolError(
                f"a vector of {length} coordinates is needed, not one of shape {vector.shape}"
            )
        if vector.dtype in (np.int64, np.int32):
            return self.encode(vector)
        if vector.dtype != self.dtype:
            raise LocalProtocolError(
                f"a vector is int64, int32 or {self.dtype}, not {vector.dtype}"
            )
        return self.reduce(np.array(vector))

    def centre(self, vector: NDArray[Any]) -> NDArray[np.int64]:
        """Return the representatives in [-2^(b-1), 2^(b-1)) of a container vector, as int64."""
        spare = 64 - self.bits
        lifted = vector.astype(np.uint64) << np.uint64(spare)
        signed: NDArray[np.int64] = lifted.view(np.int64) >> np.int64(spare)
        return signed

    def reduce(self, vector: NDArray[Any]) -> NDArray[Any]:
        """Reduce a container vector modulo 2^b in place, and return it."""
        if self.bits < 8 * self.dtype.itemsize:
            vector &= self.dtype.type(self.modulus - 1)
        return vector

    def add_into(self, total: NDArray[Any], vector: NDArray[Any]) -> None:
        """Add ``vector`` to ``total`` in place, modulo the container's size."""
        np.add(total, vector, out=total)

    def sub_into(self, total: NDArray[Any], vector: NDArray[Any]) -> None:
        """Subtract ``vector`` from ``total`` in place, modulo the container's size."""
        np.subtract(total, vector, out=total)

    def packed_bytes(self, length: int) -> int:
        """Return how many bytes a packed vector of ``length`` words takes."""
        return packed_bytes(length, self.bits)

    def pack(self, vector: NDArray[Any]) -> bytes:
        """Pack a reduced container vector into b-bit words for the wire.

        Raises
        ------
        LocalProtocolError
            If the vector is not in the container.
        """
        if vector.dtype != self.dtype:
            raise LocalProtocolError(f"pack takes {self.dtype}, not {vector.dtype}")
        return pack_words(vector, self.bits)

    def unpack(self, data: bytes, length: int) -> NDArray[Any]:
        """Unpack ``length`` b-bit words.

        Raises
        ------
        MalformedMessage
            If ``data`` is not exactly as long as it must be, or a bit past the end is set.
        """
        size = self.packed_bytes(length)
        if len(data) != size:
            raise MalformedMessage(
                f"{length} words of {self.bits} bits take {size} bytes, not {len(data)}"
            )
        used = length * self.bits % 8
        if used and data[-1] >> used:
            raise MalformedMessage("a bit after the last word is set")
        return unpack_words(data, length, self.bits, self.dtype)
