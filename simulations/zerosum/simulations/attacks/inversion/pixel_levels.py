"""Pixels of a few levels: what noise leaves of them, given how frequent each level is."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from zerosum.simulations.attacks.inversion.denoising import Images

LEVELS = 16
"""Of a pixel, above zero. "digits" has whole numbers of them, so that a pixel is right or wrong."""

VALUES = np.arange(LEVELS + 1) / LEVELS
"""Of the levels, as pixels have them."""

BORROWED = 10.0
"""Images of all classes that are counted with those of one class."""


def levels_of(images: np.ndarray) -> np.ndarray:
    """Return each pixel's level, int64."""
    found: np.ndarray = np.rint(images * LEVELS).astype(np.int64)
    return found


@dataclass(frozen=True)
class Frequencies:
    """How often a pixel has each level.

    Attributes
    ----------
    chances : ndarray
        Shape (levels, p), each column's sum 1.
    """

    chances: np.ndarray

    @classmethod
    def of(cls, images: np.ndarray) -> Self:
        """Count images of shape (m, p); a level that none has is counted as half an image."""
        counts = _counts(images)
        return cls((counts + 0.5 / len(counts)) / (len(images) + 0.5))

    def of_class(self, images: np.ndarray) -> Self:
        """Return those of a class's images, to which some of all are added."""
        counts = _counts(images) + BORROWED * self.chances
        return type(self)(counts / (len(images) + BORROWED))

    def usual(self) -> np.ndarray:
        """Return each pixel's most frequent level, shape (p,)."""
        found: np.ndarray = self.chances.argmax(axis=0)
        return found

    def given(self, like: Images, image: np.ndarray, noise_std: float) -> np.ndarray:
        """Return how probable each level is of each pixel of an image seen in noise, (levels, p).

        A Gaussian says what a pixel's neighbours tell of it; what it says of the pixel alone gives
        way to the frequencies: p(level | image) is the Gaussian's posterior over its prior, times
        the level's frequency.

        Parameters
        ----------
        like : Images
        image : ndarray
            Shape (p,), noise included.
        noise_std : float
            Of each pixel.
        """
        means, variances = like.pixels(image, noise_std)
        alone = np.maximum(like.directions**2 @ like.variances, 1e-4)
        variances = np.minimum(np.maximum(variances, 1e-6), 0.98 * alone)  # never less is known
        at = VALUES[:, None]
        logs = np.log(self.chances) - (at - means) ** 2 / (2 * variances)
        logs += (at - like.mean) ** 2 / (2 * alone)
        weights = np.exp(logs - logs.max(axis=0))
        found: np.ndarray = weights / weights.sum(axis=0)
        return found


def _counts(images: np.ndarray) -> np.ndarray:
    levels = levels_of(images)
    return np.stack([(levels == each).sum(axis=0) for each in range(LEVELS + 1)]).astype(float)
