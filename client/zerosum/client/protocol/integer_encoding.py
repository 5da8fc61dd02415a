"""Encode what is integers already: cells of a query, at step 1."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zerosum.secagg.randomness import Keystream
from zerosum.secagg.vectors.encoding import Encoding
from zerosum.secagg.vectors.saturation import OnCut
from zerosum.secagg.vectors.vector_sum import VectorSum


@dataclass(frozen=True)
class IntegerEncoding(Encoding):
    """Identity on integers of at most ``bound``: nothing is clipped, cut, scaled or rounded.

    The sensitivity is not of a norm here, but of the blocks that a query is made of.

    Attributes
    ----------
    signed : bool
        Whether they may be negative, down to minus ``bound``; else they are 0 or more.
    """

    signed: bool = False

    @classmethod
    def up_to(cls, bound: int, dimension: int, *, signed: bool = False) -> "IntegerEncoding":
        """Return the encoding of so many integers, each from 0 to ``bound``.

        Parameters
        ----------
        bound : int
            Largest integer of one contribution, below 2^63.
        dimension : int
            Integers.
        signed : bool
            Whether they may be as far below 0.

        Returns
        -------
        IntegerEncoding
            With a step of 1.
        """
        return cls(dimension=dimension, limit=float(bound), bound=bound, signed=signed)

    @property
    def step(self) -> float:
        """One: a unit is a unit."""
        return 1.0

    @property
    def can_cut(self) -> bool:
        """Return False: what is beyond the bound is refused."""
        return False

    def encode(
        self, vector: ArrayLike, rounding: Keystream, on_cut: OnCut | None = None
    ) -> NDArray[np.int64]:
        """Check a vector of integers, and return a copy.

        Parameters
        ----------
        vector : array_like
            int64, shape (dimension,).
        rounding, on_cut
            Not used.

        Returns
        -------
        ndarray of int64
            Shape (dimension,).

        Raises
        ------
        ValueError
            If it is anything else than integers within these bounds.
        """
        given = np.asarray(vector)
        if given.dtype != np.int64 or given.shape != (self.dimension,):
            raise ValueError(
                f"int64 of shape ({self.dimension},) are encoded, not {given.dtype} of shape "
                f"{given.shape}"
            )
        least, most = int(given.min()), int(given.max())
        lowest = -self.bound if self.signed else 0
        if least < lowest or most > self.bound:
            raise ValueError(
                f"cells from {least} to {most} are not within {lowest} to {self.bound}"
            )
        return given.copy()

    def add_clipped(
        self,
        vector: NDArray[np.float32],
        rounding: Keystream,
        total: VectorSum,
        on_cut: OnCut | None = None,
    ) -> bool:
        """Add nothing: integers take :meth:`encode`.

        Parameters
        ----------
        vector, rounding, total, on_cut
            Not used.

        Returns
        -------
        bool
            False.
        """
        return False

    def decode(self, total: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return a centred sum as it is: float64 has no integers beyond 2^53.

        Parameters
        ----------
        total : ndarray of int64, shape (dimension,)

        Returns
        -------
        ndarray of int64, shape (dimension,)

        Raises
        ------
        ValueError
            If it is of another type or shape.
        """
        if total.dtype != np.int64 or total.shape != (self.dimension,):
            raise ValueError(f"int64 of shape ({self.dimension},) are decoded")
        return total.copy()
