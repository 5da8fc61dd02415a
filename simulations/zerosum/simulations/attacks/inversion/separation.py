"""Separate the images of a sum: each is a corner of the set that the first layer's gradient allows.

A fully connected layer's gradient for one record is an outer product a (x, 1), bias last: the input
is the ratio of the two (Phong et al. 2018, "Privacy-preserving deep learning via additively
homomorphic encryption", section 3). A sum's n images thus span its row space, and only affine
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
"""Distances by which a pixel may leave [0, 1]."""

TRIED = 3
"""Tolerances to try, from the least that admits any image."""

NEGLIGIBLE = 1e-5
"""Noise of an entry, relative to the norm of all, below which the least tolerance suffices."""


def row_space(slopes: np.ndarray, count: int, noise_std: float) -> np.ndarray:
    """Return the directions of at most ``count`` images that exceed the noise.

    Noise alone has singular values of at most about std (sqrt(rows) + sqrt(columns)); a tenth more
    leaves room for their fluctuation.

    Parameters
    ----------
    slopes : ndarray of float64
        Shape (width, pixels + 1), biases last.
    count : int
        Images in the sum.
    noise_std : float
        Of each entry.

    Returns
    -------
    ndarray of float64
        Shape (rank, pixels + 1), orthonormal rows; at least one.
    """
    _, sizes, rows = np.linalg.svd(slopes, full_matrices=False)
    floor = 1.1 * noise_std * sum(side**0.5 for side in slopes.shape)
    rank = int(np.count_nonzero(sizes[:count] > floor))
    basis: np.ndarray = rows[: max(rank, 1)]
    return basis


@dataclass(frozen=True)
class Corners:
    """Search a row space for images, whose pixels lie in [0, 1] within a tolerance.

    Attributes
    ----------
    rows : ndarray of float64
        Shape (rank, pixels + 1).
    tolerance : float
    """

    rows: np.ndarray
    tolerance: float

    def furthest(self, direction: np.ndarray) -> np.ndarray | None:
        """Return the weights of the image that lies furthest in a direction.

        Parameters
        ----------
        direction : ndarray of float64
            Shape (rank,).

        Returns
        -------
        ndarray of float64 or None
            Shape (rank,); None if no image is within the tolerance.
        """
        pixels = self.rows[:, :-1].T
        # A pixel that no row contains is zero in every combination: it constrains nothing.
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
        """Return as many corners as there are dimensions, shape (k, pixels), all different.

        Each is searched in a direction orthogonal to the corners before it: so it cannot be one of
        them.
        """
        weights: list[np.ndarray] = []
        for _ in self.rows:
            direction = _beside(rng.normal(size=len(self.rows)), weights)
            ends = [self.furthest(sign * direction) for sign in (1.0, -1.0)]
            feasible = [end for end in ends if end is not None]
            if not feasible:
                break
            weights.append(max(feasible, key=lambda end: abs(float(end @ direction))))
        images: np.ndarray = np.reshape(weights, (-1, len(self.rows))) @ self.rows[:, :-1]
        return images


def _beside(vector: np.ndarray, others: Sequence[np.ndarray]) -> np.ndarray:
    """Return a vector's component orthogonal to others."""
    if not others:
        return vector
    basis, _ = np.linalg.qr(np.stack(others, axis=1))
    rest: np.ndarray = vector - basis @ (basis.T @ vector)
    return rest


def candidates(
    slopes: np.ndarray, count: int, noise_std: float, rng: np.random.Generator
) -> list[np.ndarray]:
    """Return guesses at a sum's images, one for each of several tolerances.

    Too small a tolerance excludes true images; too large a one admits others.

    Parameters
    ----------
    slopes : ndarray of float64
        Shape (width, pixels + 1), biases last.
    count : int
        Images in the sum.
    noise_std : float
        Of each entry.
    rng : numpy.random.Generator
        Draws directions.

    Returns
    -------
    list of ndarray of float64
        Shape (k, pixels) each, with k <= count, in [0, 1].
    """
    rows = row_space(slopes, count, noise_std)
    relative = noise_std / float(np.linalg.norm(slopes) or 1.0)
    guesses: list[np.ndarray] = []
    for tolerance in TOLERANCES:
        images = Corners(rows, tolerance).images(rng)
        if len(images):
            guesses.append(np.clip(images, 0.0, 1.0))
        if len(guesses) == (TRIED if relative > NEGLIGIBLE else 1):
            break
    return guesses
