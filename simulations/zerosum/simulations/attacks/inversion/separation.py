"""Images out of a first layer's summed gradient: each is a corner of what the sum allows.

A fully connected layer's slope for one record is an outer product a (x, 1), bias last: the input is
the ratio of the two (Phong et al. 2018, "Privacy-preserving deep learning via additively
homomorphic encryption", section 3). A sum's n images thus span its row space, and none but affine
combinations of them lie in it. Where each image has a pixel that no other has, the combinations
with pixels in [0, 1] are exactly the mixtures of the n, whose corners are the images: Donoho and
Stodden 2003, "When does non-negative matrix factorization give a correct decomposition into
parts?", whose condition this is. Kariyappa et al. 2023, "Cocktail party attack", separates the same
sums by independence.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

TOLERANCES = (1e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)
"""By how much a pixel may miss [0, 1]."""

TRIED = 3
"""Tolerances that are tried, from the least that leaves any image at all."""

NEGLIGIBLE = 1e-5
"""Noise of an entry, beside the norm of all, below which the least tolerance does."""


def row_space(slopes: np.ndarray, count: int, noise_std: float) -> np.ndarray:
    """Return the directions of at most ``count`` images that stand out of the noise.

    Noise alone has singular values of at most about std (sqrt(rows) + sqrt(columns)).

    Parameters
    ----------
    slopes : ndarray of float64
        Shape (width, pixels + 1), biases last.

    Returns
    -------
    ndarray of float64
        Shape (rank, pixels + 1), orthonormal rows; at least one.
    """
    _, sizes, rows = np.linalg.svd(slopes, full_matrices=False)
    floor = 1.1 * noise_std * sum(side**0.5 for side in slopes.shape)
    rank = int(np.count_nonzero(sizes[:count] > floor))
    found: np.ndarray = rows[: max(rank, 1)]
    return found


@dataclass(frozen=True)
class Corners:
    """Images in a row space, their pixels in [0, 1] but for a tolerance.

    Attributes
    ----------
    rows : ndarray of float64
        Shape (rank, pixels + 1).
    tolerance : float
    """

    rows: np.ndarray
    tolerance: float

    def furthest(self, direction: np.ndarray) -> np.ndarray | None:
        """Return the weights, shape (rank,), of the image that lies furthest; None without any."""
        pixels = self.rows[:, :-1].T
        pixels = pixels[np.linalg.norm(pixels, axis=1) > 1e-4]
        upper = np.full(len(pixels), 1 + self.tolerance)
        lower = np.full(len(pixels), self.tolerance)
        solved = linprog(
            -direction,
            A_ub=np.concatenate([pixels, -pixels]),
            b_ub=np.concatenate([upper, lower]),
            A_eq=self.rows[:, -1:].T,
            b_eq=[1.0],
            bounds=(None, None),
            method="highs",
        )
        return np.asarray(solved.x) if solved.status == 0 else None

    def images(self, rng: np.random.Generator) -> np.ndarray:
        """Return as many corners as there are dimensions, shape (k, pixels): none is another's.

        Each is sought in a direction in which those found before have no extent.
        """
        weights: list[np.ndarray] = []
        for _ in self.rows:
            direction = _beside(rng.normal(size=len(self.rows)), weights)
            ends = [self.furthest(sign * direction) for sign in (1.0, -1.0)]
            there = [end for end in ends if end is not None]
            if not there:
                break
            weights.append(max(there, key=lambda end: abs(float(end @ direction))))
        found: np.ndarray = np.reshape(weights, (-1, len(self.rows))) @ self.rows[:, :-1]
        return found


def _beside(vector: np.ndarray, others: Sequence[np.ndarray]) -> np.ndarray:
    """Return a vector less its part in the space of others."""
    if not others:
        return vector
    basis, _ = np.linalg.qr(np.stack(others, axis=1))
    rest: np.ndarray = vector - basis @ (basis.T @ vector)
    return rest


def candidates(
    slopes: np.ndarray, count: int, noise_std: float, rng: np.random.Generator
) -> list[np.ndarray]:
    """Return guesses at a sum's images, each of shape (k, pixels) with k <= count.

    Of several tolerances: too small a one cuts true images off, too large a one lets others in.
    """
    rows = row_space(slopes, count, noise_std)
    sized = noise_std / float(np.linalg.norm(slopes) or 1.0)
    found: list[np.ndarray] = []
    for tolerance in TOLERANCES:
        images = Corners(rows, tolerance).images(rng)
        if len(images):
            found.append(np.clip(images, 0.0, 1.0))
        if len(found) == (TRIED if sized > NEGLIGIBLE else 1):
            break
    return found
