"""Model inversion: what a class looks like, from the released model alone.

Fredrikson et al. 2015, section 4 (Algorithm 1): gradient descent on the input until the model is
sure of the class. It shows what a class has in common, which is no secret of any one record; and
of that only what tells it from other classes: the mean of all digits, had the attacker any, comes
closer to a class' mean (0.81 on MNIST) than these images do.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
from annotated_types import Ge
from torch import nn

from zerosum.simulations.attacks.inference.trained import TrainedSetting, TrainedView, protected
from zerosum.simulations.attacks.interface import Case, Guess, Metric, Protection, ThreatModel
from zerosum.simulations.attacks.measures import Mean, Units

OWN = Metric("correlation with the class mean")


@dataclass(frozen=True)
class ModelInversion:
    """Descends from a grey image, class by class, within the range of pixels.

    Attributes
    ----------
    steps : int
    lr : float
        Of the descent along the gradient.
    smooth : float
        Weight of the squared differences of neighbouring pixels, the prior that images are smooth.
    """

    steps: int = 200
    lr: float = 0.5
    smooth: Annotated[float, Ge(0)] = 0.02

    name: ClassVar[str] = "model inversion"
    adaptive: ClassVar[str] = "white box, smooth images"
    threat: ClassVar[ThreatModel] = ThreatModel("outsider")
    requires: ClassVar[tuple[str, ...]] = ("vector",)
    metrics: ClassVar[tuple[Metric, ...]] = (OWN,)

    def cases(self, suite: str) -> Iterable[Case]:
        """Return the target of membership inference and, in full, one of more records."""
        full = suite == "full"
        sigmas = (0.01, 0.03, 0.1, 0.3, 1.0) if full else (0.1, 1.0)
        more = [TrainedSetting(records=100, rounds=5)] if full else []
        for setting in (TrainedSetting(), *more):
            yield Case(setting, protected("none"), {"sigma": 0.0})
            yield Case(setting, Protection("masked", masking="double"), {"sigma": 0.0})
            for sigma in sigmas:
                yield Case(setting, protected("local", sigma), {"sigma": sigma})

    def baseline(self, view: TrainedView, rng: np.random.Generator) -> Guess:
        """Give each class the images of all others: what is no class' own."""
        images = self._images(view)
        turned = [np.roll(images, shift, axis=0) for shift in range(1, view.classes)]
        return Guess({"images": np.stack(turned)})

    def run(self, view: TrainedView, rng: np.random.Generator) -> Guess:
        """Return one image a class, shape (1, classes, ...)."""
        return Guess({"images": self._images(view)[None]})

    def _images(self, view: TrainedView) -> np.ndarray:
        model = view.loaded().requires_grad_(False)
        images = torch.full((view.classes, *view.input_shape), 0.5, requires_grad=True)
        labels = torch.arange(view.classes)
        for _ in range(self.steps):
            loss = nn.functional.cross_entropy(model(images), labels, reduction="sum")
            (gradient,) = torch.autograd.grad(loss + self.smooth * _roughness(images), images)
            with torch.no_grad():
                images.sub_(self.lr * gradient).clamp_(0, 1)
        return images.detach().numpy()

    def score(self, guess: Guess, truth: Mapping[str, np.ndarray]) -> Mapping[str, Units]:
        """Return the correlation of each class' image, or images, with the mean of its members."""
        means = truth["class_means"]
        own = [np.diagonal(correlations(images, means)) for images in guess["images"]]
        return {OWN.name: Mean(np.mean(own, axis=0))}

    def pictures(self, guess: Guess, truth: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Return each class' mean above its image."""
        pair = np.stack([truth["class_means"], guess["images"][0]], axis=1)
        return {"reconstruction": pair[:, :, 0]}


def _roughness(images: torch.Tensor) -> torch.Tensor:
    down, across = images.diff(dim=-2), images.diff(dim=-1)
    return down.square().sum() + across.square().sum()


def correlations(images: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Return Pearson's correlation of each image with each mean, over pixels; a flat image's is 0.

    Parameters
    ----------
    images, means : ndarray
        Shape (k, ...).

    Returns
    -------
    ndarray of float
        Shape (k, k).
    """
    rows = [_standardised(each) for each in (images, means)]
    return np.asarray(rows[0] @ rows[1].T)


def _standardised(images: np.ndarray) -> np.ndarray:
    flat = np.asarray(images, dtype=np.float64).reshape(len(images), -1)
    centred = flat - flat.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(centred, axis=1, keepdims=True)
    found: np.ndarray = np.divide(centred, norms, out=np.zeros_like(centred), where=norms > 0)
    return found


ATTACKS = (ModelInversion(),)
"""As the table has them."""
