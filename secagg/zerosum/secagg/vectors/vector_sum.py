"""Sum vectors of integers as they are rounded, in int32 for as long as it holds them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.randomness import Keystream
from zerosum.secagg.vectors.fast_rounding import OFFSET, Scratch, add_rounded, rounded

_MOST_NARROW = 1 << 15
"""Vectors that one int32 sum holds. An int32 vector's entries are below 2^16 in magnitude, and
2^15 of them below 2^31. Adding in int32 reads and writes half the memory of int64."""


class VectorSum:
    """Sum of some vectors of integers; that of none is zero.

    A vector that is rounded into the sum stands nowhere else: what is written once and read once
    would cost as much as its rounding.

    Parameters
    ----------
    length : int
        Entries.
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._wide: NDArray[np.int64] | None = None
        self._narrow: NDArray[np.int32] | None = None
        self._in_narrow = 0
        self._offset_entries, self._offsets = 0, 0
        self._scratch: Scratch | None = None

    def add(
        self, vector: NDArray[np.signedinteger[Any]], start: int = 0, *, keep: bool = False
    ) -> None:
        """Add a vector.

        Parameters
        ----------
        vector : ndarray of int64 or int32
            Shape (n,); the entries of int32 are below 2^16 in magnitude.
        start : int
            Entry of the sum that its first one is added to.
        keep : bool
            Whether the sum may keep the vector and write to it: nobody else has it.
        """
        if keep and len(vector) == self._length and self._kept(vector):
            return
        part = slice(start, start + len(vector))
        if vector.dtype == np.int32:
            total: NDArray[np.signedinteger[Any]] = self._counted()[part]
        else:
            if self._wide is None:
                self._wide = np.zeros(self._length, np.int64)
            total = self._wide[part]
        np.add(total, vector, out=total)

    def add_rounded(
        self, vector: NDArray[np.float32], scale: float, bound: int | None, rounding: Keystream
    ) -> None:
        """Add what :func:`~.fast_rounding.rounded` gives of the arguments, to the first entries.

        Parameters
        ----------
        vector : ndarray of float32, shape (n,)
            Finite.
        scale : float
            Integer units in one.
        bound : int or None
            Largest magnitude of an entry; None where none exceeds what int32 is for.
        rounding : Keystream
            Coins.
        """
        entries = len(vector)
        if self._narrow is None:
            self._narrow, self._in_narrow = np.empty(self._length, np.int32), 1
            self._narrow[entries:] = 0
            rounded(vector, scale, bound, rounding, self._narrow[:entries])
            return
        if self._offset_entries != entries:
            self._take_out_offsets()
            self._offset_entries = entries
        self._scratch = self._scratch or Scratch(self._length)
        add_rounded(vector, scale, bound, rounding, self._counted()[:entries], self._scratch)
        self._offsets += 1

    def integers(self) -> NDArray[np.signedinteger[Any]]:
        """Return the sum: int32 if all that was added is, at most 2^15 of them; else int64.

        Nothing may be added after it.
        """
        if self._wide is None and self._narrow is not None:
            self._take_out_offsets()
            return self._narrow
        total = np.zeros(self._length, np.int64) if self._wide is None else self._wide
        self.add_to(total)
        return total

    def add_to(self, total: NDArray[np.int64]) -> None:
        """Add the sum to another, and forget it.

        Parameters
        ----------
        total : ndarray of int64, shape (length,)
            Added to, in place.
        """
        self._take_out_offsets()
        for part in (self._wide, self._narrow):
            if part is not None and part is not total:
                np.add(total, part, out=total)
        self._wide = self._narrow = None
        self._in_narrow = 0

    def _kept(self, vector: NDArray[np.signedinteger[Any]]) -> bool:
        """Begin with a vector what has none of its type yet; return whether that was so."""
        if vector.dtype == np.int32 and self._narrow is None:
            self._narrow, self._in_narrow = vector, 1
        elif vector.dtype == np.int64 and self._wide is None:
            self._wide = vector
        else:
            return False
        return True

    def _counted(self) -> NDArray[np.int32]:
        """Return the int32 part, where it has room for one more vector, and count that."""
        if self._narrow is not None and self._in_narrow == _MOST_NARROW:
            wide = np.zeros(self._length, np.int64) if self._wide is None else self._wide
            self.add_to(wide)
            self._wide = wide
        if self._narrow is None:
            self._narrow = np.zeros(self._length, np.int32)
        self._in_narrow += 1
        return self._narrow

    def _take_out_offsets(self) -> None:
        """Take out what :func:`add_rounded` adds too much, modulo 2^32 as it was added."""
        if self._narrow is not None and self._offsets:
            surplus = np.array(self._offsets * OFFSET % 2**32, np.uint32).view(np.int32)
            part = self._narrow[: self._offset_entries]
            np.subtract(part, surplus, out=part)
        self._offsets = 0
