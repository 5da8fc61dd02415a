"""Average contributions by robust rules, for a server that sees each of them.

A mean follows a single malicious client wherever it wants; each of these bounds what a few can do.
All take float64 vectors of shape (n, d), one row a client, and return shape (d,) in the scale of
one client's contribution. The order of the rows never changes a bit of the result: they are sorted
by their bytes first, which also breaks ties between equal scores.

Flower's strategies have four of these rules, on its own records of parameters, not on arrays; its
Krum takes squared distances as differences of large float32 numbers, and skips each row's smallest
as the distance to itself, which rounding need not leave smallest.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import pdist, squareform
from scipy.stats import trim_mean

Vectors = NDArray[np.float64]

SMOOTHING = 1e-6
"""Distances below this, times the typical one, count as this: a point on a contribution has no
direction to it."""
_CONVERGED = 1e-10
_MOST_STEPS = 1000


def fewest(rule: str, malicious: int | None = None, selected: int | None = None) -> int:
    """Return the contributions below which a rule promises nothing.

    Parameters
    ----------
    rule : str
        As ``server.rule`` names it.
    malicious : int, optional
        Contributions f that may be malicious: n >= 2f + 1 for the trimmed mean (Yin et al. 2018,
        definition 2), 2f + 3 for Krum (Blanchard et al. 2017, proposition 4.2), 4f + 3 for Bulyan
        (El Mhamdi et al. 2018, section 4).
    selected : int, optional
        Contributions that Multi-Krum averages, beside f others.

    Returns
    -------
    int
        At least 1.
    """
    f = malicious or 0
    needed = {"trimmed-mean": 2 * f + 1, "krum": 2 * f + 3, "bulyan": 4 * f + 3}
    needed["multi-krum"] = max(2 * f + 3, (selected or 1) + f)
    return needed.get(rule, 1)


def mean(vectors: ArrayLike) -> Vectors:
    """Return the mean: no defence.

    Raises
    ------
    ValueError
        As of every rule here: if there is no contribution, or one is not finite.
    """
    average: Vectors = _ordered(vectors).mean(axis=0)
    return average


def median(vectors: ArrayLike) -> Vectors:
    """Return the median of each coordinate (Yin et al. 2018, definition 1): numpy's."""
    middle: Vectors = np.median(_ordered(vectors), axis=0)
    return middle


def trimmed_mean(vectors: ArrayLike, malicious: int) -> Vectors:
    """Return the mean of each coordinate without its f smallest and f largest (scipy's).

    Yin et al. 2018, definition 2.

    Parameters
    ----------
    vectors : array_like
        Shape (n, d).
    malicious : int
        f, below n / 2.

    Returns
    -------
    numpy.ndarray
        float64, shape (d,).
    """
    rows = _ordered(vectors, fewest("trimmed-mean", malicious))
    # The half keeps scipy's product with n from being rounded down to f - 1.
    trimmed: Vectors = trim_mean(rows, (malicious + 0.5) / len(rows), axis=0)
    return trimmed


def krum(vectors: ArrayLike, malicious: int) -> Vectors:
    """Return the contribution that is nearest to its n - f - 2 nearest others.

    Blanchard et al. 2017, section 4; of squared distances, by difference.

    Parameters
    ----------
    vectors : array_like
        Shape (n, d), n >= 2f + 3.
    malicious : int
        f.

    Returns
    -------
    numpy.ndarray
        float64, shape (d,).
    """
    return multi_krum(vectors, malicious, 1)


def multi_krum(vectors: ArrayLike, malicious: int, selected: int | None = None) -> Vectors:
    """Return the mean of the contributions with the best of Krum's scores.

    Blanchard et al. 2017, section 4.

    Parameters
    ----------
    vectors : array_like
        Shape (n, d), n >= 2f + 3.
    malicious : int
        f.
    selected : int, optional
        How many, at most n - f. Default: n - f.

    Returns
    -------
    numpy.ndarray
        float64, shape (d,).
    """
    rows = _ordered(vectors, fewest("multi-krum", malicious, selected))
    scores = _krum_scores(_squared_distances(rows), malicious)
    best = np.argsort(scores, kind="stable")[: selected or len(rows) - malicious]
    average: Vectors = rows[best].mean(axis=0)
    return average


def bulyan(vectors: ArrayLike, malicious: int) -> Vectors:
    """Return, of n - 2f contributions that Krum picks one by one, each coordinate's middle mean.

    El Mhamdi et al. 2018, section 4: each pick is made among what is left (by one neighbour, where
    f + 2 or fewer are left), and a coordinate is the mean of the n - 4f picked values nearest to
    their median. Flower's takes Krum's scores once.

    Parameters
    ----------
    vectors : array_like
        Shape (n, d), n >= 4f + 3.
    malicious : int
        f.

    Returns
    -------
    numpy.ndarray
        float64, shape (d,).
    """
    rows = _ordered(vectors, fewest("bulyan", malicious))
    distances, left = _squared_distances(rows), np.arange(len(rows))
    picked = []
    for _ in range(len(rows) - 2 * malicious):
        best = int(np.argmin(_krum_scores(distances[np.ix_(left, left)], malicious)))
        picked.append(left[best])
        left = np.delete(left, best)
    chosen = rows[sorted(picked)]
    away = np.abs(chosen - np.median(chosen, axis=0))
    nearest = np.argsort(away, axis=0, kind="stable")[: len(chosen) - 2 * malicious]
    average: Vectors = np.take_along_axis(chosen, nearest, axis=0).mean(axis=0)
    return average


def geometric_median(vectors: ArrayLike) -> Vectors:
    """Return the point whose distances to all contributions have the least sum (RFA).

    Pillutla et al. 2022, algorithm 2 (smoothed Weiszfeld), from the median of each coordinate
    until a step is 1e-10 of the typical distance, where theirs takes three steps; neither scipy
    nor Flower has it. The smoothing follows the scale of the contributions.
    """
    rows = _ordered(vectors)
    point: Vectors = np.median(rows, axis=0)
    typical = float(np.median(np.linalg.norm(rows - point, axis=1)))
    if typical == 0.0:  # half of them or more are this point
        return point
    for _ in range(_MOST_STEPS):
        distances = np.linalg.norm(rows - point, axis=1)
        weights = 1 / np.maximum(distances, SMOOTHING * typical)
        before, point = point, weights @ rows / weights.sum()
        if np.linalg.norm(point - before) <= _CONVERGED * typical:
            break
    return point


def fltrust(vectors: ArrayLike, reference: ArrayLike) -> Vectors:
    """Return the mean of contributions scaled to the server's own, weighed by likeness to it.

    A weight is the cosine to the reference, or 0 where that is negative (Cao et al. 2021,
    section IV-B). Where nobody has a weight the result is zero: the model stays.

    Parameters
    ----------
    vectors : array_like
        Shape (n, d).
    reference : array_like
        Shape (d,): the server's own update, from records that it trusts.

    Returns
    -------
    numpy.ndarray
        float64, shape (d,).

    Raises
    ------
    ValueError
        If the reference has another shape than a contribution, or is not finite.
    """
    rows, own = _ordered(vectors), np.asarray(reference, dtype=np.float64)
    if own.shape != rows.shape[1:] or not np.isfinite(own).all():
        raise ValueError(f"a reference of shape {own.shape} for contributions of {rows.shape[1:]}")
    size, norms = float(np.linalg.norm(own)), np.linalg.norm(rows, axis=1)
    present = norms > 0
    if size == 0.0 or not present.any():
        return np.zeros_like(own)
    directions = rows[present] / norms[present, None]
    trust = np.maximum(directions @ (own / size), 0.0)
    if trust.sum() == 0.0:
        return np.zeros_like(own)
    average: Vectors = size * (trust @ directions) / trust.sum()
    return average


def norm_bound(vectors: ArrayLike, bound: float) -> Vectors:
    """Return the mean of contributions scaled down to an L2 norm of at most ``bound``.

    Sun et al. 2019, section 4. This is a client's own clipping, done by the server.

    Parameters
    ----------
    vectors : array_like
        Shape (n, d).
    bound : float
        Above 0.

    Returns
    -------
    numpy.ndarray
        float64, shape (d,).

    Raises
    ------
    ValueError
        If the bound is not above 0.
    """
    if not bound > 0:
        raise ValueError(f"a bound of {bound} is not above 0")
    rows = _ordered(vectors)
    norms = np.linalg.norm(rows, axis=1)
    average: Vectors = (rows * (bound / np.maximum(norms, bound))[:, None]).mean(axis=0)
    return average


def _ordered(vectors: ArrayLike, needed: int = 1) -> Vectors:
    """Return the rows by their bytes, and raise ValueError unless they can be used."""
    rows = np.ascontiguousarray(vectors, dtype=np.float64)
    if rows.ndim != 2 or not rows.shape[1]:
        raise ValueError(f"contributions have shape (n, d), not {rows.shape}")
    if len(rows) < needed:
        raise ValueError(f"{len(rows)} contributions where the rule needs {needed}")
    if not np.isfinite(rows).all():
        raise ValueError("a contribution is not finite")
    whole = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
    return rows[np.argsort(whole, kind="stable")]


def _squared_distances(rows: Vectors) -> Vectors:
    """Return shape (n, n), infinite between a row and itself: it is not its own neighbour."""
    distances: Vectors = squareform(pdist(rows, "sqeuclidean"))
    np.fill_diagonal(distances, np.inf)
    return distances


def _krum_scores(distances: Vectors, malicious: int) -> Vectors:
    """Return for each row the sum of its n - f - 2 smallest squared distances, or of one."""
    neighbours = max(1, len(distances) - malicious - 2)
    scores: Vectors = np.sort(distances, axis=1)[:, :neighbours].sum(axis=1)
    return scores
