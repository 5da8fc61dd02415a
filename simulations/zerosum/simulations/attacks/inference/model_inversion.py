"""Invert a released model: reconstruct what a class looks like.

Fredrikson et al. 2015, section 5.2 (Algorithm 1): gradient descent on the input until the model is
sure of the class. The result shows what a class has in common, which is no secret of one record,
and of that only what tells the class from others.

What all digits have in common is no secret of the model either: the mean digit alone correlates
0.81 with the mean of a class on MNIST. The first figure therefore takes the mean over classes out.
An attacker that has the mean digit, which is public, adds to it what the model reveals.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
from annotated_types import Ge
from torch import nn

from zerosum.simulations.attacks.harness.interface import (
    Case,
    Defense,
    Guess,
    Metric,
    ThreatModel,
)
from zerosum.simulations.attacks.harness.metrics import Mean, Units, correlations
from zerosum.simulations.attacks.inference.trained import TrainedSetting, TrainedView, noise_defense
from zerosum.simulations.attacks.settings.picture_pairs import picture_pairs

BEYOND = Metric("correlation beyond the mean digit", whole=1.0)
OWN = Metric("correlation with the class mean")
OTHERS = Metric("correlation with other classes' means", higher=False, counts=False)


@dataclass(frozen=True)
class ModelInversion:
    """Descend from one image, class by class, within the range of pixels.

    Attributes
    ----------
    mean_known : bool
        Whether the attacker has the mean digit: it starts there and stays near it. Otherwise it
        starts from grey.
    steps : int
    lr : float
        Of the descent along the gradient.
    smooth : float
        Weight of the squared differences of neighbouring pixels' changes: a smoothness prior.
    near : float
        Weight of the squared changes, where the descent starts from the mean digit.
    """

    mean_known: bool = False
    steps: int = 200
    lr: float = 0.1
    smooth: Annotated[float, Ge(0)] = 0.02
    near: Annotated[float, Ge(0)] = 0.05

    name: ClassVar[str] = "model inversion"
    metrics: ClassVar[tuple[Metric, ...]] = (BEYOND, OWN, OTHERS)

    @property
    def adaptive(self) -> str:
        """Return where the descent starts."""
        return "white box, from the mean digit" if self.mean_known else "white box, from grey"

    @property
    def threat(self) -> ThreatModel:
        """Return an outsider with the model, and perhaps the mean digit."""
        return ThreatModel("outsider", knows=frozenset({"mean image"} if self.mean_known else ()))

    @property
    def requires(self) -> tuple[str, ...]:
        """Return the model, and the mean image where the descent starts from it."""
        return ("vector", "mean_image") if self.mean_known else ("vector",)

    def cases(self, suite: str) -> Iterable[Case]:
        """Yield the target of membership inference and, in full, one of more records."""
        full = suite == "full"
        sigmas = (0.01, 0.03, 0.1, 0.3, 1.0) if full else (0.1, 1.0)
        more = [TrainedSetting(records=100, rounds=5)] if full else []
        for setting in (TrainedSetting(), *more):
            yield Case(setting, noise_defense("none"), {"sigma": 0.0})
            yield Case(setting, Defense("masked", masking="double"), {"sigma": 0.0})
            for sigma in sigmas:
                yield Case(setting, noise_defense("local", sigma), {"sigma": sigma})

    def baseline(self, view: TrainedView, rng: np.random.Generator) -> Guess:
        """Give every class the image that the descent starts from."""
        return Guess({"images": self._start(view)})

    def run(self, view: TrainedView, rng: np.random.Generator) -> Guess:
        """Return one image a class, float32, shape (classes, ...)."""
        model = view.loaded().requires_grad_(False)
        start, labels = torch.tensor(self._start(view)), torch.arange(view.classes)
        images = start.clone().requires_grad_(True)
        for _ in range(self.steps):
            loss = nn.functional.cross_entropy(model(images), labels, reduction="sum")
            change = images - start
            loss = loss + self.smooth * _roughness(change)
            if self.mean_known:
                loss = loss + self.near * change.square().sum()
            (gradient,) = torch.autograd.grad(loss, images)
            with torch.no_grad():
                images.sub_(self.lr * gradient).clamp_(0, 1)
        return Guess({"images": images.detach().numpy()})

    def _start(self, view: TrainedView) -> np.ndarray:
        shape = (view.classes, *view.input_shape)
        if not self.mean_known:
            return np.full(shape, 0.5, dtype=np.float32)
        if view.mean_image is None:
            raise ValueError("the view holds no mean image: add it to what the threat knows")
        return np.broadcast_to(view.mean_image, shape).astype(np.float32)

    def score(self, guess: Guess, truth: Mapping[str, np.ndarray]) -> Mapping[str, Units]:
        """Correlate each class' image with the means of its members, and of others'.

        Beyond the mean digit: with the mean over classes taken out of images and means alike, so
        that one image for all classes scores nothing.
        """
        held = np.isfinite(truth["class_means"].reshape(len(guess["images"]), -1)).all(axis=1)
        images, means = guess["images"][held], truth["class_means"][held]
        correlation = correlations(images, means)
        own, classes = np.diagonal(correlation), len(correlation)
        beyond = correlations(images - images.mean(axis=0), means - means.mean(axis=0))
        return {
            BEYOND.name: Mean(np.diagonal(beyond)),
            OWN.name: Mean(own),
            OTHERS.name: Mean((correlation.sum(axis=1) - own) / (classes - 1)),
        }

    def pictures(self, guess: Guess, truth: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Draw each class' mean above its image.

        Parameters
        ----------
        guess : Guess
            Of :meth:`run` or :meth:`baseline`.
        truth : mapping of str to ndarray
            The scene's.

        Returns
        -------
        mapping of str to ndarray
            "reconstruction": shape (classes, 2, height, width).
        """
        means, images = truth["class_means"], guess["images"]
        flat = means.reshape(len(means), -1), images.reshape(len(images), -1)
        return picture_pairs(flat[0], flat[1], images.shape[1:])


def _roughness(images: torch.Tensor) -> torch.Tensor:
    down, across = images.diff(dim=-2), images.diff(dim=-1)
    return down.square().sum() + across.square().sum()


ATTACKS = (ModelInversion(), ModelInversion(mean_known=True))
"""As the table lists them."""
