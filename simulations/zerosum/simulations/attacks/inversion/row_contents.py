"""Infer by likelihood which rows of a noisy gradient hold one image, and which share one.

A row is noise, or holds parts of one or two images. Rows of one image are found by merging the
likeliest pair again and again: Heller and Ghahramani 2005, "Bayesian hierarchical clustering",
section 2, with the Gaussian of auxiliary images as the prior.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from zerosum.simulations.attacks.inversion.denoising import Images

SPREAD = 0.15
"""Standard deviation of parts, relative to their mean: clips depend on a client's other images."""

FINEST = 8.0
"""Largest size of a part, in standard deviations of noise.

Images are not quite Gaussian. With less noise than this, the model's error would count as evidence.
"""

GUESSES = np.geomspace(0.4, 2.0, 12)
"""Factors to try on the mean part that the gradient's power suggests."""


@dataclass(frozen=True)
class Rows:
    """Hold rows with parts of images, in the images' principal directions, biases last.

    Attributes
    ----------
    values : ndarray
        float64, shape (width, d + 1).
    mean, variances : ndarray
        Of images: float64, shape (d,).
    std, part : float
        Standard deviation of the noise; mean size of a part.
    held : float
        Images that a row holds on average.
    """

    values: np.ndarray
    mean: np.ndarray
    variances: np.ndarray
    std: float
    part: float
    held: float

    @classmethod
    def of(cls, slopes: np.ndarray, like: Images, noise_std: float, held: float) -> "Rows":
        """Return the rows of a gradient, with the likeliest size of a part.

        Parameters
        ----------
        slopes : ndarray of float64
            Shape (width, p + 1).
        like : Images
        noise_std : float
            Of each entry.
        held : float
            Images that a row holds on average.

        Returns
        -------
        Rows
        """
        values = np.concatenate([slopes[:, :-1] @ like.directions, slopes[:, -1:]], axis=1)
        mean = like.mean @ like.directions
        energy = mean**2 + like.variances
        power = max(float(np.mean(values**2)) - noise_std**2, (0.01 * noise_std) ** 2)
        part = (power * values.shape[1] / held / (energy.sum() + 1)) ** 0.5
        std = max(noise_std, part / FINEST)
        # Directions in which an image moves a row far less than noise does are no evidence.
        informative = energy * (part / std) ** 2 > 0.1
        values = values[:, np.append(informative, True)]
        first = cls(values, mean[informative], like.variances[informative], std, part, held)
        tried = [replace(first, part=part * factor) for factor in GUESSES]
        return max(tried, key=lambda rows: float(np.logaddexp.reduce(rows.cases()).sum()))

    def cases(self) -> np.ndarray:
        """Return log-likelihoods, relative to noise, of what rows may hold, shape (6, width).

        Nothing; one image, its part positive or negative; two images: both positive, both negative,
        or of different signs.
        """
        ones = np.ones(len(self.values))
        alike: list[tuple[int, ...]] = [(1,), (-1,), (1, 1), (-1, -1), (1, -1)]
        evidence = [self.evidence(self.values, ones, signs) for signs in alike]
        # Poisson: exp(-held) held^k / k!, times the probability of the signs.
        chances = np.array([1, 1 / 2, 1 / 2, 1 / 8, 1 / 8, 1 / 4])
        chances = np.log(chances * self.held ** np.array([0, 1, 1, 2, 2, 2])) - self.held
        return np.array([0 * ones, *evidence]) + chances[:, None]

    def parts(self, sums: np.ndarray, rows: np.ndarray, level: int = 1) -> np.ndarray:
        """Return the likeliest part, given the biases of sums of rows that share an image.

        Parameters
        ----------
        sums : ndarray of float64
            Shape (n, d + 1): sums of rows.
        rows : ndarray
            Shape (n,): how many rows each is of.
        level : int
            Sum of the signs of the images' parts.

        Returns
        -------
        ndarray of float64
            Shape (n,).
        """
        known, prior = 1 / self.std**2, 1 / (SPREAD * self.part) ** 2
        biases = level * sums[:, -1] * known + self.part * prior
        parts: np.ndarray = biases / (rows * level**2 * known + prior)
        return parts

    def evidence(self, sums: np.ndarray, rows: np.ndarray, signs: Sequence[int]) -> np.ndarray:
        """Return log p(rows | the same images in all) - log p(rows | noise).

        Parameters
        ----------
        sums : ndarray of float64
            Shape (n, d + 1): sums of rows, a sufficient statistic.
        rows : ndarray
            Shape (n,): how many rows each is of.
        signs : sequence of int
            Of the images' parts.

        Returns
        -------
        ndarray of float64
            Shape (n,), in nats.
        """
        level, count, noise = sum(signs), len(signs), self.std**2
        part = self.parts(sums, rows, level)[:, None]
        shift, sharp = part * sums[:, :-1] / noise, rows[:, None] * part**2 / noise
        mean, variances = level * self.mean, count * self.variances
        gain = 1 + sharp * variances
        exponent = (shift * mean + variances * shift**2 / 2 - sharp * mean**2 / 2) / gain
        pixels: np.ndarray = (exponent - np.log(gain) / 2).sum(axis=1)
        alone = rows * noise
        spread = alone + rows**2 * count * (SPREAD * self.part) ** 2
        off = sums[:, -1] - rows * level * self.part
        biases = sums[:, -1] ** 2 / alone - off**2 / spread - np.log(spread / alone)
        return pixels + biases / 2


def parts_in(rows: Rows, images: int) -> np.ndarray:
    """Return the parts of single images in rows.

    Parameters
    ----------
    rows : Rows
    images : int
        Expected in all: the prior that two rows hold the same image is one over it.

    Returns
    -------
    ndarray of float64
        Shape (groups, width): zero where a row does not hold the image.
    """
    holds = rows.cases().argmax(axis=0)
    signs = np.select([holds == 1, holds == 2], [1.0, -1.0])
    turned = rows.values * signs[:, None]
    groups = _merged(rows, turned, signs, images)
    parts = np.zeros((len(groups), len(holds)))
    for part, group in zip(parts, groups, strict=True):
        total = turned[group].sum(axis=0, keepdims=True)
        part[group] = signs[group] * rows.parts(total, np.array([len(group)]))
    return parts


def _merged(rows: Rows, turned: np.ndarray, signs: np.ndarray, images: int) -> list[list[int]]:
    """Return groups of rows of single images, merged while one image is likelier than two."""
    single = np.flatnonzero(signs)
    groups, sums, counts = [[int(row)] for row in single], turned[single], np.ones(len(single))
    alone = rows.evidence(sums, counts, (1,))
    gains = np.full((len(groups), len(groups)), -np.inf)

    def weigh(one: int, others: np.ndarray) -> None:
        both = rows.evidence(sums[one] + sums[others], counts[one] + counts[others], (1,))
        gains[one, others] = both - alone[one] - alone[others] - np.log(images)
        gains[others, one] = gains[one, others]

    for one in range(len(groups)):
        weigh(one, one + 1 + np.flatnonzero(signs[single][one + 1 :] == signs[single[one]]))
    while len(groups) > 1 and gains.max() > 0:
        one, other = (int(place) for place in np.unravel_index(gains.argmax(), gains.shape))
        sums[one] += sums[other]
        counts[one] += counts[other]
        groups[one], groups[other] = groups[one] + groups[other], []
        gains[other], gains[:, other] = -np.inf, -np.inf
        alone[one] = rows.evidence(sums[[one]], counts[[one]], (1,))[0]
        weigh(one, np.flatnonzero(np.isfinite(gains[one])))
    return [group for group in groups if group]
