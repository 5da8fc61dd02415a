"""Infer pixels of a few discrete levels from noise, given each level's frequency."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from zerosum.simulations.attacks.inversion.denoising import Images

LEVELS = 16
"""Of a pixel, above zero: "digits" has integer levels, so that a pixel is right or wrong."""

VALUES = np.arange(LEVELS + 1) / LEVELS
"""Pixel values of the levels, in [0, 1]."""

BORROWED = 10.0
"""Weight, in images, of all classes' frequencies in those of one class: some have few images."""


def levels_of(images: np.ndarray) -> np.ndarray:
    """Return each pixel's level, int64, in the images' shape."""
    levels: np.ndarray = np.rint(images * LEVELS).astype(np.int64)
    return levels


@dataclass(frozen=True)
class Frequencies:
    """Estimate how often a pixel has each level.

    Attributes
    ----------
    chances : ndarray
        float64, shape (levels, p): each column sums to 1.
    """

    chances: np.ndarray

    @classmethod
    def of(cls, images: np.ndarray) -> Self:
        """Estimate frequencies from images of shape (m, p).

        Half an image is spread over all levels, so that no level has the probability zero.
        """
        counts = _counts(images)
        return cls((counts + 0.5 / len(counts)) / (len(images) + 0.5))

    def of_class(self, images: np.ndarray) -> Self:
        """Estimate a class' frequencies from its images (m, p) and, with a weight, all classes'."""
        counts = _counts(images) + BORROWED * self.chances
        return type(self)(counts / (len(images) + BORROWED))

    def usual(self) -> np.ndarray:
        """Return each pixel's most frequent level, int64, shape (p,)."""
        levels: np.ndarray = self.chances.argmax(axis=0)
        return levels

    def given(self, like: Images, image: np.ndarray, noise_std: float) -> np.ndarray:
        """Return the posterior probability of each level of each pixel of a noisy image.

        The Gaussian prior says what a pixel's neighbours reveal about it. Its statement about the
        pixel alone is replaced by the level's frequency: p(level | image) is the Gaussian's
        posterior over its prior, times the frequency.

        Parameters
        ----------
        like : Images
            The Gaussian prior.
        image : ndarray of float64
            Shape (p,), noise included.
        noise_std : float
            Of each pixel.

        Returns
        -------
        ndarray of float64
            Shape (levels, p): each column sums to 1.
        """
        means, variances = like.pixels(image, noise_std)
        alone = np.maximum(like.directions**2 @ like.variances, 1e-4)
        # A posterior variance above the prior's, by rounding, would turn the quotient round: it
        # would prefer the levels furthest from the mean.
        variances = np.minimum(np.maximum(variances, 1e-6), 0.98 * alone)
        values = VALUES[:, None]
        logs = np.log(self.chances) - (values - means) ** 2 / (2 * variances)
        logs += (values - like.mean) ** 2 / (2 * alone)
        weights = np.exp(logs - logs.max(axis=0))
        posterior: np.ndarray = weights / weights.sum(axis=0)
        return posterior


def _counts(images: np.ndarray) -> np.ndarray:
    levels = levels_of(images)
    return np.stack([(levels == level).sum(axis=0) for level in range(LEVELS + 1)]).astype(float)
