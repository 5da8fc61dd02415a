"""Renyi divergences of Gaussian noise and of pure epsilon, at the integer orders of this project.

Without scipy or an accountant: a client's own budget is checked by every deployed client.
"""

import numpy as np

from zerosum.client.privacy.mechanism import Divergences
from zerosum.client.renyi_filter import ORDERS


def orders() -> Divergences:
    """Return the orders as floats, shape (511,)."""
    return np.array(ORDERS, dtype=np.float64)


def gaussian(z: float) -> Divergences:
    """Return the divergences alpha / (2 z^2) of Gaussian noise of z sensitivities."""
    with np.errstate(divide="ignore"):
        row: Divergences = orders() / (2 * np.float64(z) ** 2)
    return row


def pure(epsilon: float) -> Divergences:
    """Return the divergences min(epsilon, alpha epsilon^2 / 2) that pure epsilon implies.

    Bun and Steinke, "Concentrated differential privacy" (2016), Proposition 3.3.
    """
    row: Divergences = np.minimum(epsilon, orders() * epsilon**2 / 2)
    return row
