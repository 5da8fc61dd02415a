"""What noise leaves of images that a first layer's slope was made of: their posterior mean."""

from dataclasses import dataclass
from typing import Self

import numpy as np


@dataclass(frozen=True)
class Images:
    """What images look like: a Gaussian with the moments of auxiliary ones.

    Attributes
    ----------
    mean : ndarray
        Shape (p,).
    variances, directions : ndarray
        Of the principal directions: shapes (p,) and (p, p), a direction a column.
    """

    mean: np.ndarray
    variances: np.ndarray
    directions: np.ndarray

    @classmethod
    def like(cls, images: np.ndarray) -> Self:
        """Return the moments of images of shape (m, p)."""
        variances, directions = np.linalg.eigh(np.cov(images.T))
        return cls(images.mean(0), np.maximum(variances, 1e-6), directions)

    @classmethod
    def of_classes(cls, images: np.ndarray, labels: np.ndarray, classes: int) -> list[Self]:
        """Return each class's mean, and the variances that images have beside their classes' means.

        Parameters
        ----------
        images : ndarray
            Shape (m, p).
        labels : ndarray of int
            Shape (m,). Of a class that none has, the mean is that of all.
        classes : int
        """
        means = np.tile(images.mean(0), (classes, 1))
        present = np.unique(labels)
        for label in present:
            means[label] = images[labels == label].mean(0)
        beside = images - means[labels]
        shared = beside.T @ beside / max(len(images) - len(present), 1)
        variances, directions = np.linalg.eigh(shared)
        return [cls(mean, np.maximum(variances, 1e-6), directions) for mean in means]

    def pixels(self, image: np.ndarray, noise_std: float) -> tuple[np.ndarray, np.ndarray]:
        """Return each pixel's posterior mean and variance, of an image seen once, each (p,)."""
        kept = self.variances / (self.variances + noise_std**2)
        moved = self.directions @ (kept * (self.directions.T @ (image - self.mean)))
        return self.mean + moved, self.directions**2 @ (kept * noise_std**2)

    def evidence(self, slopes: np.ndarray, parts: np.ndarray, noise_std: float) -> float:
        """Return log p(slopes | one image) - log p(slopes | noise), of parts (width,)."""
        power = float(parts @ parts) / noise_std**2
        seen = parts @ slopes / noise_std**2
        turned, mean = seen[:-1] @ self.directions, self.mean @ self.directions
        gain = 1 + power * self.variances
        exponent = (turned * mean + self.variances * turned**2 / 2 - power * mean**2 / 2) / gain
        return float((exponent - np.log(gain) / 2).sum() + seen[-1] - power / 2)

    def posterior(self, slopes: np.ndarray, parts: np.ndarray, noise_std: float) -> np.ndarray:
        """Return the posterior mean of images, given each one's part in the slopes.

        Slopes are parts' (x, 1) plus Gaussian noise: in the principal directions the images' n
        coordinates have the prior N(0, e), and the posterior mean
        (A A' / s^2 + I / e)^-1 A y / s^2 (Bishop 2006, "Pattern recognition", equation 3.53).

        Parameters
        ----------
        slopes : ndarray
            Shape (width, p + 1).
        parts : ndarray
            A, shape (n, width).
        noise_std : float
            s, of each entry of the slopes.

        Returns
        -------
        ndarray
            Shape (n, p), in [0, 1].
        """
        rest = slopes[:, :-1] - parts.sum(0)[:, None] * self.mean
        seen = parts @ rest @ self.directions
        sizes, frame = np.linalg.eigh(parts @ parts.T)
        shrunk = sizes[:, None] + noise_std**2 / self.variances
        coordinates = frame @ ((frame.T @ seen) / np.maximum(shrunk, 1e-30))
        clipped: np.ndarray = np.clip(self.mean + coordinates @ self.directions.T, 0.0, 1.0)
        return clipped

    def freedom(self, parts: np.ndarray, noise_std: float) -> float:
        """Return how many pixels a posterior is free to choose, of parts (n, width).

        The trace of its influence, as of ridge regression: Hastie, Tibshirani, Friedman 2009, "The
        elements of statistical learning", equation 3.50.
        """
        sizes = np.maximum(np.linalg.eigvalsh(parts @ parts.T), 0.0)[:, None]
        return float((sizes / (sizes + noise_std**2 / self.variances)).sum())


def parts_of(slopes: np.ndarray, images: np.ndarray) -> np.ndarray:
    """Return the parts that images have in slopes, least squares, shape (n, width)."""
    rows = np.concatenate([images, np.ones((len(images), 1))], axis=1)
    found: np.ndarray = np.linalg.lstsq(rows.T, slopes.T, rcond=None)[0]
    return found


def unexplained(slopes: np.ndarray, images: np.ndarray) -> float:
    """Return the squares that images leave of slopes, whatever their parts are."""
    rows = np.concatenate([images, np.ones((len(images), 1))], axis=1)
    return float(np.sum((slopes - parts_of(slopes, images).T @ rows) ** 2))


def refined(
    slopes: np.ndarray, images: np.ndarray, noise_std: float, like: Images, turns: int
) -> np.ndarray:
    """Return images and their parts fitted in turn, from the images of shape (n, p) on."""
    for _ in range(turns):
        images = like.posterior(slopes, parts_of(slopes, images), noise_std)
    return images
