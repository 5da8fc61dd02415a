"""Measure how far a vector lies beyond the range of its encoding, which cuts it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

FOLDS: Final = (1, 10, 100, 1000)
"""Multiples of the range beyond which coordinates are counted."""

_EDGE = 1 + 2**-20
"""A coordinate this close to the range is at it: float32 rounds 0.1 to more than 0.1."""


@dataclass(frozen=True)
class Cut:
    """Coordinates of one vector beyond the range of its encoding.

    Attributes
    ----------
    beyond : tuple of int
        Coordinates beyond each of FOLDS times the range; the first are those that are cut.
    coordinates : int
        All coordinates, cut or not, padding included.
    largest : float
        Largest magnitude, before the cut.
    limit : float
        The range: no magnitude is larger after it.
    """

    beyond: tuple[int, ...]
    coordinates: int
    largest: float
    limit: float

    def __str__(self) -> str:
        return (
            f"{self.beyond[0]:,} of {self.coordinates:,} coordinates were cut to {self.limit:.6g}; "
            f"the largest was {self.largest:.6g}"
        )


OnCut = Callable[[Cut], None]
"""Called with what is cut of a vector, where anything is."""


def measure(vector: NDArray[np.floating[Any]], limit: float, unit: float = 1.0) -> Cut | None:
    """Measure what a range cuts of a vector.

    Parameters
    ----------
    vector : ndarray of float
        Shape (d,), finite.
    limit : float
        The range, above 0.
    unit : float
        What one in ``vector`` stands for: it is clipped by this factor before it is cut.

    Returns
    -------
    Cut or None
        None where every coordinate is within the range.
    """
    largest = unit * largest_magnitude(vector)
    if largest <= limit * _EDGE:
        return None
    magnitudes = np.abs(vector)
    beyond = tuple(
        int(np.count_nonzero(magnitudes > fold * limit * _EDGE / unit)) for fold in FOLDS
    )
    return Cut(beyond, vector.size, largest, limit)


def largest_magnitude(vector: NDArray[np.floating[Any]]) -> float:
    """Return the largest magnitude of a finite vector of shape (d,); 0 of none."""
    return max(float(vector.max(initial=0)), -float(vector.min(initial=0)))
