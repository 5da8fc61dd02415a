"""Randomise one value at home: reports whose sum estimates a histogram."""

import numpy as np
from numpy.typing import NDArray

from zerosum.client.queries.query import OracleKind
from zerosum.secagg.randomness import Keystream


def choose(k: int, epsilon: float) -> OracleKind:
    """Return the oracle with the smaller variance: k-RR where k < 3 e^epsilon + 2, else OUE."""
    raise NotImplementedError


def probabilities(kind: OracleKind, k: int, epsilon: float) -> tuple[float, float]:
    """Return the chances that a report supports its own value, and another one."""
    raise NotImplementedError


def report(
    kind: OracleKind, value: int, k: int, epsilon: float, coins: Keystream
) -> NDArray[np.int64]:
    """Return a report's support vector, of shape (k,)."""
    raise NotImplementedError
