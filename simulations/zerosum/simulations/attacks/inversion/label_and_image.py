"""Infer one client's label and image from a noisy update, by likelihood.

A label and an image determine the direction of an update. Clipping leaves nothing of its size. The
scale of the image's parts relative to the bias is therefore estimated too, by the likelihood of all
images.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from scipy.optimize import minimize_scalar

from zerosum.simulations.attacks.inversion.denoising import Images, parts_of
from zerosum.simulations.attacks.inversion.first_layer import slopes_of
from zerosum.simulations.attacks.inversion.local_updates import Updates, updates_of
from zerosum.simulations.attacks.inversion.pixel_levels import VALUES, Frequencies
from zerosum.simulations.attacks.inversion.reconstruction import auxiliary
from zerosum.simulations.attacks.settings.rounds import RoundsView


@dataclass(frozen=True)
class Classes:
    """Hold a model of the images of each class.

    Attributes
    ----------
    likes : sequence of Images
        One a class.
    frequencies : sequence of Frequencies
        Of pixels' levels, one a class.
    """

    likes: Sequence[Images]
    frequencies: Sequence[Frequencies]

    @classmethod
    def of(cls, view: RoundsView) -> Self:
        """Estimate the models from the auxiliary images.

        Parameters
        ----------
        view : RoundsView

        Returns
        -------
        Classes

        Raises
        ------
        ValueError
            If the view holds no auxiliary images or labels.
        """
        images, labels = auxiliary(view), view.auxiliary_labels
        if labels is None:
            raise ValueError("the view holds no auxiliary labels: add auxiliary data to the threat")
        every = Frequencies.of(images)
        own = [every.of_class(images[labels == label]) for label in range(view.classes)]
        return cls(Images.of_classes(images, labels, view.classes), own)


def image_in(
    view: RoundsView, slopes: np.ndarray, noise_std: float, turns: int, classes: Classes
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return an image's likeliest levels, its posterior mean, and the noise of a pixel.

    Parameters
    ----------
    view : RoundsView
    slopes : ndarray of float64
        Of the first layer, shape (width, p + 1).
    noise_std : float
        Of each entry.
    turns : int
        Alternations in which an image and its update's direction are fitted, for each label.
    classes : Classes

    Returns
    -------
    levels : ndarray of int64
        Shape (p,).
    mean : ndarray of float64
        Shape (p,), in [0, 1].
    error : float
        Standard deviation of a pixel before any prior.
    """
    updates = updates_of(view, view.training.steps or 1, view.protection.clip)
    evidence, errors, posteriors = [], [], []
    for label, like in enumerate(classes.likes):
        parts = _parts(view, updates, slopes, noise_std, like, label, turns)
        evidence.append(like.evidence(slopes, parts, noise_std))
        power = float(parts @ parts)
        errors.append(noise_std / power**0.5)
        noisy = (parts @ slopes)[:-1] / power
        posteriors.append(classes.frequencies[label].given(like, noisy, errors[-1]))
    weights = np.exp(np.array(evidence) - max(evidence))
    chances = np.tensordot(weights / weights.sum(), np.array(posteriors), axes=1)
    return chances.argmax(axis=0), VALUES @ chances, errors[int(np.argmax(evidence))]


def _parts(
    view: RoundsView,
    updates: Updates,
    slopes: np.ndarray,
    noise_std: float,
    like: Images,
    label: int,
    turns: int,
) -> np.ndarray:
    """Return the parts in the slopes of a label's likeliest image, shape (width,)."""
    chosen = torch.zeros((1, view.classes), dtype=torch.float64)
    chosen[0, label] = 1.0
    parts, image = np.zeros(len(slopes)), like.mean[None]
    for _ in range(turns):
        update = updates(torch.tensor(image.reshape(1, *view.input_shape)), chosen)[0].numpy()
        parts = parts_of(slopes_of(view, update), image)[0]
        parts = parts * _size(slopes, parts, noise_std, like)
        image = like.posterior(slopes, parts[None], noise_std)
    return parts


def _size(slopes: np.ndarray, parts: np.ndarray, noise_std: float, like: Images) -> float:
    """Return the factor, between 1/e and e, that makes parts likeliest."""
    solved = minimize_scalar(
        lambda log: -like.evidence(slopes, parts * math.exp(log), noise_std),
        bounds=(-1.0, 1.0),
        method="bounded",
        options={"xatol": 1e-4},
    )
    return math.exp(float(solved.x))
