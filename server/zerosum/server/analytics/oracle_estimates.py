"""Counts from the summed reports of a local oracle, with the variance of their coins.

Each of n clients reports the cells that its answer supports: the cell of its value with probability
p, every other with probability q. A cell's sum S is Binomial(c, p) + Binomial(n - c, q), c the
count (Wang, Blocki, Li, Jha, "Locally differentially private protocols for frequency estimation",
USENIX Security 2017). No noise is added to the sum: the coins are the noise.
"""

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray


def oracle_counts(sums: ArrayLike, clients: int, p: float, q: float) -> NDArray[np.float64]:
    """Return the unbiased estimates (S - n q) / (p - q).

    Parameters
    ----------
    sums : array of int, shape (k,)
        Clients whose report supports each cell.
    clients : int
        n, those who reported.
    p, q : float
        Probabilities that a report supports the cell of its value, and any other.

    Returns
    -------
    ndarray of float64, shape (k,)
        In clients; they may be below 0 or above n.
    """
    return (np.asarray(sums, dtype=np.float64) - clients * q) / (p - q)


def oracle_variances(counts: ArrayLike, clients: int, p: float, q: float) -> NDArray[np.float64]:
    """Return the variance of the estimate of each count.

    n q (1 - q) / (p - q)^2 + c (p (1 - p) - q (1 - q)) / (p - q)^2.

    Parameters
    ----------
    counts : array of float, shape (k,)
        c, cut to [0, n].
    clients : int
        n.
    p, q : float
        As for :func:`oracle_counts`.

    Returns
    -------
    ndarray of float64, shape (k,)
        In square clients.
    """
    held = np.clip(np.asarray(counts, dtype=np.float64), 0, clients)
    return (held * p * (1 - p) + (clients - held) * q * (1 - q)) / (p - q) ** 2


def oracle_interval(
    sums: ArrayLike, clients: int, p: float, q: float, level: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the counts at which a sum is no more than z of its standard deviations away.

    A score interval (Wilson, 1927): the variance is taken at the count that is tried, not at the
    estimate, so that it holds where few or all clients have a value. The condition
    (S - n q - c (p - q))^2 <= z^2 (n q (1 - q) + c (p (1 - p) - q (1 - q))) is quadratic in c.

    Parameters
    ----------
    sums : array of int, shape (k,)
        As for :func:`oracle_counts`.
    clients : int
        n.
    p, q : float
        As for :func:`oracle_counts`.
    level : float
        In (0, 1).

    Returns
    -------
    lower, upper : ndarray of float64, shape (k,)
        In clients, within [0, n].
    """
    counts = oracle_counts(sums, clients, p, q)
    z = NormalDist().inv_cdf((1 + level) / 2) / (p - q)
    slope = z**2 * (p * (1 - p) - q * (1 - q))
    offset = z**2 * clients * q * (1 - q)
    # (estimate - c)^2 <= offset + slope c.
    middle = counts + slope / 2
    half = np.sqrt(np.maximum(0.0, slope * counts + slope**2 / 4 + offset))
    if math.isclose(p, 1) and q == 0:
        half = np.zeros_like(counts)
    return np.clip(middle - half, 0, clients), np.clip(middle + half, 0, clients)
