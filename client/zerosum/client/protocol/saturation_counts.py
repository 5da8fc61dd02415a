"""Encode counts of cut coordinates as four integers of the same sum, under the same mask.

Only where there is no noise: beside a noised vector a plain count would be a release that nobody
accounts for.

A count of up to d coordinates has to fit where a coordinate of the update fits, so that the ring
is no larger for it. It is sent in units of ceil(d / bound) coordinates, rounded up, so that no
count is rounded to nothing: exact where d is within the encoding's bound (32,767 at sixteen bits).
Otherwise each client overstates it by less than a unit. Rounding takes no coins: the other
coordinates are rounded as ever.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.vectors.encoding import Encoding
from zerosum.secagg.vectors.saturation import FOLDS, Cut

COUNTS = len(FOLDS)
"""Coordinates that follow a vector whose cuts are counted."""


@dataclass(frozen=True)
class CutCounts:
    """Numbers of cut coordinates in a sum over clients.

    Attributes
    ----------
    most, least : tuple of int
        Coordinates beyond each of FOLDS times the range: at most and at least so many.
    coordinates : int
        Those of all clients in the sum.
    clients : int
        In the sum.
    limit : float
        The range.
    """

    most: tuple[int, ...]
    least: tuple[int, ...]
    coordinates: int
    clients: int
    limit: float

    def __bool__(self) -> bool:
        """Return whether anything was cut."""
        return any(self.most)


def count_unit(code: Encoding) -> int:
    """Return how many coordinates one integer unit of a count stands for."""
    return -(-code.length // code.bound)


def encoded_counts(code: Encoding, cut: Cut | None) -> NDArray[np.int64]:
    """Encode a client's counts.

    Parameters
    ----------
    code : Encoding
        Of the vectors.
    cut : Cut or None
        What was cut; None if nothing was.

    Returns
    -------
    ndarray of int64, shape (COUNTS,)
        From 0 to at most ``code.bound``.
    """
    if cut is None:
        return np.zeros(COUNTS, dtype=np.int64)
    unit = count_unit(code)
    return np.array([-(-count // unit) for count in cut.beyond], dtype=np.int64)


def decoded_counts(code: Encoding, sums: NDArray[np.int64], clients: int) -> CutCounts:
    """Decode the sums of clients' counts.

    Parameters
    ----------
    code : Encoding
        Of the vectors.
    sums : ndarray of int64, shape (COUNTS,)
        Plausible.
    clients : int
        In the sums.

    Returns
    -------
    CutCounts
        Bounds on the coordinates cut.
    """
    unit = count_unit(code)
    units = [int(value) for value in sums]
    return CutCounts(
        most=tuple(min(unit * n, clients * code.length) for n in units),
        # As many clients as can be have rounded up from one.
        least=tuple(unit * n - (unit - 1) * min(clients, n) for n in units),
        coordinates=clients * code.length,
        clients=clients,
        limit=code.limit,
    )


def are_plausible(code: Encoding, sums: NDArray[np.int64], clients: int) -> bool:
    """Test whether honest clients can have these sums of counts.

    Parameters
    ----------
    code : Encoding
        Of the vectors.
    sums : ndarray of int64, shape (COUNTS,)
        Centred.
    clients : int
        In the sums.

    Returns
    -------
    bool
        False if one is negative or above the coordinates there are, or more lie beyond a larger
        bound than beyond a smaller one.
    """
    units = [int(value) for value in sums]
    most = clients * -(-code.length // count_unit(code))
    return most >= units[0] and sorted(units, reverse=True) == units and units[-1] >= 0
