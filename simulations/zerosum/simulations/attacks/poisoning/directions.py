"""Which way an attack goes that hides: away from what honest updates do.

Source: Shejwalkar, Houmansadr, "Manipulating the Byzantine: optimizing model poisoning attacks and
defenses for federated learning" (2021), section IV-C: inverse unit vector, sign and deviation.
"""

from typing import Literal

import numpy as np

Direction = Literal["deviation", "unit", "sign"]
"""Against each coordinate's standard deviation, against the mean, or against its signs."""


def along(known: np.ndarray, direction: Direction) -> np.ndarray:
    """Return the direction as a vector of norm 1, shape (d,); zero where there is none.

    Parameters
    ----------
    known : ndarray
        Shape (k, d): updates of honest clients, as far as they are known.
    direction : str
    """
    mean = known.mean(axis=0)
    ways = {"deviation": spread(known), "unit": mean, "sign": np.sign(mean)}
    way = ways[direction]
    found: np.ndarray = -way / (np.linalg.norm(way) or 1.0)
    return found


def spread(known: np.ndarray) -> np.ndarray:
    """Return each coordinate's standard deviation, shape (d,); of a single update, none."""
    return known.std(axis=0, ddof=1) if len(known) > 1 else np.zeros(known.shape[1])
