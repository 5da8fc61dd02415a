"""Vectors over the integers modulo 2^b, in the narrowest machine words that hold them."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.errors import LocalProtocolError, MalformedMessage
from zerosum.secagg.vectors.packing import pack_words, packed_bytes, unpack_words

_SIGNED = (np.dtype(np.int64), np.dtype(np.int32))


def _kind(value: object) -> str:
    return value.dtype.str if isinstance(value, np.ndarray) else type(value).__name__


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
        """Return integers of any sign modulo 2^b, as a new array in the container.

        The one place that wraps, for callers who mean it: noise is not bounded, and what is
        released is a function of the sum's residue alone.

        Parameters
        ----------
        values : ndarray of int32 or int64, shape (d,)

        Returns
        -------
        ndarray in the container, shape (d,)
            Reduced.

        Raises
        ------
        LocalProtocolError
            If ``values`` is no array of int32 or int64.
        """
        masked = isinstance(values, np.ma.MaskedArray)
        if not isinstance(values, np.ndarray) or masked or values.dtype not in _SIGNED:
            raise LocalProtocolError(
                f"integers of any sign are an array of int32 or int64, not {_kind(values)}"
            )
        return self.reduce(values.astype(self.dtype, subok=False))

    def contain(self, vector: NDArray[Any], length: int) -> NDArray[Any]:
        """Return a fresh copy, in the container, of a caller's vector; nothing is wrapped.

        A vector outside the ring is a mistake of its caller's: wrapped, it would be a wrong sum
        that nobody notices. Who means a remainder calls :meth:`encode`.

        Parameters
        ----------
        vector : ndarray, shape (length,)
            Of the container's type with values from 0 to 2^b - 1, or centred: int64 or int32 with
            values from -2^(b-1) to 2^(b-1) - 1. In the machine's byte order; strides are free.
        length : int

        Returns
        -------
        ndarray in the container, shape (length,)
            Reduced.

        Raises
        ------
        LocalProtocolError
            If the vector is anything else.
        """
        if isinstance(vector, np.ndarray) and vector.dtype in _SIGNED:
            self._check_array(vector, length)
            half = self.modulus >> 1
            self._check_values(vector, -half, half - 1)
            return self.encode(vector)
        self.check(vector, length)
        return np.array(vector)

    def check(self, vector: NDArray[Any], length: int) -> None:
        """Refuse what is not a reduced vector of the container with ``length`` coordinates.

        Parameters
        ----------
        vector : ndarray, shape (length,)
        length : int

        Raises
        ------
        LocalProtocolError
            If the shape or type is another, or a value is 2^b or more.
        """
        self._check_array(vector, length)
        if vector.dtype != self.dtype:
            raise LocalProtocolError(
                f"a vector of a {self.bits}-bit ring is {self.dtype}, or centred int64 or int32 at "
                f"contribute, not {vector.dtype.str}: convert it where its values are known to fit"
            )
        if self.bits < 8 * self.dtype.itemsize:
            self._check_values(vector, 0, self.modulus - 1)

    @staticmethod
    def _check_array(vector: NDArray[Any], length: int) -> None:
        # The values under a mask would count, which is not what a masked array means.
        if not isinstance(vector, np.ndarray) or isinstance(vector, np.ma.MaskedArray):
            raise LocalProtocolError(f"a vector is a numpy array, not {_kind(vector)}")
        if vector.shape != (length,):
            raise LocalProtocolError(
                f"a vector of {length} coordinates is needed, not one of shape {vector.shape}"
            )

    def _check_values(self, vector: NDArray[Any], low: int, high: int) -> None:
        if not vector.size:
            return
        least, most = int(vector.min()), int(vector.max())
        if not low <= least <= most <= high:
            worst = most if most > high else least
            raise LocalProtocolError(
                f"a coordinate of {worst} is outside the {self.bits}-bit ring, which takes "
                f"{low} to {high}: a larger ring_bits holds it, and Ring.encode takes remainders"
            )

    def centre(self, vector: NDArray[Any]) -> NDArray[np.int64]:
        """Return the representatives in [-2^(b-1), 2^(b-1)) of a container vector, as int64.

        Raises
        ------
        LocalProtocolError
            If the vector is not in the container.
        """
        self._check_container(vector)
        # In the container, which reads and writes half of int64's memory where it is narrower.
        spare = self.dtype.type(8 * self.dtype.itemsize - self.bits)
        signed: NDArray[Any] = (vector << spare).view(f"i{self.dtype.itemsize}")
        signed >>= spare.astype(signed.dtype)
        return signed.astype(np.int64, copy=False)

    def reduce(self, vector: NDArray[Any]) -> NDArray[Any]:
        """Reduce a container vector modulo 2^b in place, and return it.

        Raises
        ------
        LocalProtocolError
            If the vector is not in the container.
        """
        self._check_container(vector)
        if self.bits < 8 * self.dtype.itemsize:
            vector &= self.dtype.type(self.modulus - 1)
        return vector

    def add_into(self, total: NDArray[Any], vector: NDArray[Any]) -> None:
        """Add ``vector`` to ``total`` in place, modulo the container's size.

        Parameters
        ----------
        total, vector : ndarray in the container, of one shape

        Raises
        ------
        LocalProtocolError
            If one is not in the container, or they have not the same shape.
        """
        self._check_container(total, vector)
        np.add(total, vector, out=total)

    def _check_container(self, *vectors: NDArray[Any]) -> None:
        # numpy would widen, or repeat a vector of one coordinate, without a word.
        for vector in vectors:
            if not isinstance(vector, np.ndarray) or isinstance(vector, np.ma.MaskedArray):
                raise LocalProtocolError(f"a vector is a numpy array, not {_kind(vector)}")
            if vector.dtype != self.dtype or vector.shape != vectors[0].shape:
                raise LocalProtocolError(
                    f"vectors of a {self.bits}-bit ring are {self.dtype} of one shape, not "
                    f"{vector.dtype.str} of shape {vector.shape} beside {vectors[0].shape}"
                )

    def packed_bytes(self, length: int) -> int:
        """Return how many bytes a packed vector of ``length`` words takes."""
        return packed_bytes(length, self.bits)

    def pack(self, vector: NDArray[Any]) -> bytes:
        """Pack a reduced container vector into b-bit words for the wire.

        Raises
        ------
        LocalProtocolError
            If the vector is not in the container, or not reduced: it would corrupt its neighbours.
        """
        self._check_container(vector)
        return pack_words(vector, self.bits)

    def unpack(self, data: bytes, length: int) -> NDArray[Any]:
        """Unpack b-bit words from the wire.

        Parameters
        ----------
        data : bytes
        length : int
            Words d.

        Returns
        -------
        ndarray in the container, shape (d,)
            Reduced.

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
