"""One client's image in a noisy update: for each label the likeliest, and each as likely as it is.

A label and an image determine where an update points. Of an update that was clipped the size says
nothing of the image: what its part is, beside the bias', is judged by the likelihood of all images.
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
    """What images of each class look like.

    Attributes
    ----------
    likes : sequence of Images
    frequencies : sequence of Frequencies
        Of pixels' levels.
    """

    likes: Sequence[Images]
    frequencies: Sequence[Frequencies]

    @classmethod
    def of(cls, view: RoundsView) -> Self:
        """Return those of the auxiliary images."""
        images, labels = auxiliary(view), view.auxiliary_labels
        if labels is None:
            raise ValueError("the view holds no auxiliary labels")
        every = Frequencies.of(images)
        own = [every.of_class(images[labels == label]) for label in range(view.classes)]
        return cls(Images.of_classes(images, labels, view.classes), own)


def image_in(
    view: RoundsView, slopes: np.ndarray, noise_std: float, turns: int, classes: Classes
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return an image's likeliest levels, its mean, each (p,), and the noise of a pixel.

    Parameters
    ----------
    view : RoundsView
    slopes : ndarray
        Of the first layer, shape (width, p + 1).
    noise_std : float
        Of each entry.
    turns : int
        In which an image and where its update points are fitted, for each label.
    classes : Classes
    """
    updates = updates_of(view, view.training.steps or 1, view.protection.clip)
    evidence, errors, given = [], [], []
    for label, like in enumerate(classes.likes):
        parts = _parts(view, updates, slopes, noise_std, like, label, turns)
        evidence.append(like.evidence(slopes, parts, noise_std))
        power = float(parts @ parts)
        errors.append(noise_std / power**0.5)
        seen = (parts @ slopes)[:-1] / power
        given.append(classes.frequencies[label].given(like, seen, errors[-1]))
    weights = np.exp(np.array(evidence) - max(evidence))
    chances = np.tensordot(weights / weights.sum(), np.array(given), axes=1)
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
    """Return the parts that the image of a label has in slopes, shape (width,)."""
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
    """Return by how much parts are to be multiplied to be likeliest, between 1/e and e."""
    solved = minimize_scalar(
        lambda log: -like.evidence(slopes, parts * math.exp(log), noise_std),
        bounds=(-1.0, 1.0),
        method="bounded",
        options={"xatol": 1e-4},
    )
    return math.exp(float(solved.x))
