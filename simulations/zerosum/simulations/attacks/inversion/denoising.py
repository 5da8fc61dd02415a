"""Denoise images that a first layer's gradient contains: compute their posterior mean.

A first layer's change is called "slopes" here: shape (width, p + 1), the bias' change in the last
column. It is a sum over images of an outer product: the image's "parts", one a unit, times (x, 1).
"""

from dataclasses import dataclass
from typing import Self

import numpy as np


@dataclass(frozen=True)
class Images:
    """Model images as a Gaussian with the moments of auxiliary ones.

    Attributes
    ----------
    mean : ndarray
        float64, shape (p,), pixels in [0, 1].
    variances, directions : ndarray
        Of the principal directions: float64, shapes (p,) and (p, p), a direction a column.
    """

    mean: np.ndarray
    variances: np.ndarray
    directions: np.ndarray

    @classmethod
    def like(cls, images: np.ndarray) -> Self:
        """Estimate mean and covariance from images of shape (m, p).

        Variances are at least 1e-6: dark border pixels have none, and would be divided by.
        """
        variances, directions = np.linalg.eigh(np.cov(images.T))
        return cls(images.mean(0), np.maximum(variances, 1e-6), directions)

    @classmethod
    def of_classes(cls, images: np.ndarray, labels: np.ndarray, classes: int) -> list[Self]:
        """Estimate each class' mean, and the covariance that all classes share.

        Parameters
        ----------
        images : ndarray of float64
            Shape (m, p).
        labels : ndarray of int64
            Shape (m,). A class without images has the mean of all.
        classes : int

        Returns
        -------
        list of Images
            One a class; the covariance is of deviations from class means.
        """
        means = np.tile(images.mean(0), (classes, 1))
        present = np.unique(labels)
        for label in present:
            means[label] = images[labels == label].mean(0)
        deviations = images - means[labels]
        shared = deviations.T @ deviations / max(len(images) - len(present), 1)
        variances, directions = np.linalg.eigh(shared)
        return [cls(mean, np.maximum(variances, 1e-6), directions) for mean in means]

    def pixels(self, image: np.ndarray, noise_std: float) -> tuple[np.ndarray, np.ndarray]:
        """Return each pixel's posterior mean and variance, for one noisy image.

        Parameters
        ----------
        image : ndarray of float64
            Shape (p,), noise included.
        noise_std : float
            Of each pixel.

        Returns
        -------
        means, variances : ndarray of float64
            Shape (p,) each.
        """
        gain = self.variances / (self.variances + noise_std**2)
        change = self.directions @ (gain * (self.directions.T @ (image - self.mean)))
        return self.mean + change, self.directions**2 @ (gain * noise_std**2)

    def evidence(self, slopes: np.ndarray, parts: np.ndarray, noise_std: float) -> float:
        """Return log p(slopes | one image) - log p(slopes | noise).

        Parameters
        ----------
        slopes : ndarray of float64
            Shape (width, p + 1).
        parts : ndarray of float64
            Shape (width,): of the one image.
        noise_std : float
            Of each entry of the slopes.

        Returns
        -------
        float
            In nats.
        """
        power = float(parts @ parts) / noise_std**2
        # The slopes' projection on the parts is all that depends on the image.
        projected = parts @ slopes / noise_std**2
        turned, mean = projected[:-1] @ self.directions, self.mean @ self.directions
        gain = 1 + power * self.variances
        exponent = (turned * mean + self.variances * turned**2 / 2 - power * mean**2 / 2) / gain
        return float((exponent - np.log(gain) / 2).sum() + projected[-1] - power / 2)

    def posterior(self, slopes: np.ndarray, parts: np.ndarray, noise_std: float) -> np.ndarray:
        """Return the posterior mean of images, given their parts in the slopes.

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
        projected = parts @ rest @ self.directions
        sizes, frame = np.linalg.eigh(parts @ parts.T)
        shrunk = sizes[:, None] + noise_std**2 / self.variances
        coordinates = frame @ ((frame.T @ projected) / np.maximum(shrunk, 1e-30))
        clipped: np.ndarray = np.clip(self.mean + coordinates @ self.directions.T, 0.0, 1.0)
        return clipped

    def freedom(self, parts: np.ndarray, noise_std: float) -> float:
        """Return the effective number of pixels that a posterior fits.

        The trace of its influence matrix, as of ridge regression: Hastie, Tibshirani, Friedman
        2009, "The elements of statistical learning", equation 3.50.

        Parameters
        ----------
        parts : ndarray of float64
            Shape (n, width).
        noise_std : float
            Of each entry of the slopes.

        Returns
        -------
        float
            Between 0 and n p.
        """
        sizes = np.maximum(np.linalg.eigvalsh(parts @ parts.T), 0.0)[:, None]
        return float((sizes / (sizes + noise_std**2 / self.variances)).sum())


def parts_of(slopes: np.ndarray, images: np.ndarray) -> np.ndarray:
    """Return the parts that images have in slopes, by least squares.

    Parameters
    ----------
    slopes : ndarray of float64
        Shape (width, p + 1).
    images : ndarray of float64
        Shape (n, p).

    Returns
    -------
    ndarray of float64
        Shape (n, width).
    """
    rows = np.concatenate([images, np.ones((len(images), 1))], axis=1)
    parts: np.ndarray = np.linalg.lstsq(rows.T, slopes.T, rcond=None)[0]
    return parts


def unexplained(slopes: np.ndarray, images: np.ndarray) -> float:
    """Return the sum of squares that images leave of slopes, with their best parts.

    Parameters
    ----------
    slopes : ndarray of float64
        Shape (width, p + 1).
    images : ndarray of float64
        Shape (n, p).

    Returns
    -------
    float
    """
    rows = np.concatenate([images, np.ones((len(images), 1))], axis=1)
    return float(np.sum((slopes - parts_of(slopes, images).T @ rows) ** 2))


def refined(
    slopes: np.ndarray, images: np.ndarray, noise_std: float, like: Images, turns: int
) -> np.ndarray:
    """Fit images and their parts in turn.

    Parameters
    ----------
    slopes : ndarray of float64
        Shape (width, p + 1).
    images : ndarray of float64
        Shape (n, p): the start.
    noise_std : float
        Of each entry of the slopes.
    like : Images
        The prior.
    turns : int
        0 returns the start.

    Returns
    -------
    ndarray of float64
        Shape (n, p), in [0, 1].
    """
    for _ in range(turns):
        images = like.posterior(slopes, parts_of(slopes, images), noise_std)
    return images
