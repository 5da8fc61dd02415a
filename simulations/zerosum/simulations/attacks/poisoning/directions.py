"""Choose the direction of a hidden attack: against the honest updates.

Source: Shejwalkar, Houmansadr, "Manipulating the Byzantine: optimizing model poisoning attacks and
defenses for federated learning" (2021), section IV-C: inverse unit vector, sign and deviation.
"""

from typing import Literal

import numpy as np

Direction = Literal["deviation", "unit", "sign"]
"""Against each coordinate's standard deviation, against the mean, or against its signs."""


def along(known: np.ndarray, direction: Direction) -> np.ndarray:
    """Return the direction as a unit vector; zero where the updates have none.

    Parameters
    ----------
    known : ndarray of float64
        Shape (k, d): updates of honest clients, as far as the attacker knows them.
    direction : str
        "deviation", "unit" or "sign"; see :data:`Direction`.

    Returns
    -------
    ndarray of float64
        Shape (d,), of norm 1 or 0.
    """
    mean = known.mean(axis=0)
    vectors = {"deviation": spread(known), "unit": mean, "sign": np.sign(mean)}
    vector = vectors[direction]
    opposite: np.ndarray = -vector / (np.linalg.norm(vector) or 1.0)
    return opposite


def spread(known: np.ndarray) -> np.ndarray:
    """Return each coordinate's standard deviation, shape (d,); zeros for a single update."""
    return known.std(axis=0, ddof=1) if len(known) > 1 else np.zeros(known.shape[1])
