"""Invert features: the last layer's gradient reveals its input, and descent finds the image.

The first layer of a network that sees patches does not reveal the image. The output layer's
gradient, though, is an outer product with its one input (Phong et al. 2018, section 3): the
features of the image. An image with given features is found by descent (Mahendran, Vedaldi,
"Understanding deep image representations by inverting them" (2015), equation 1). Matching the whole
gradient gets stuck instead.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import nn

from zerosum.client.training.flat_parameters import load_vector
from zerosum.simulations.attacks.harness.interface import Case, Guess
from zerosum.simulations.attacks.inversion.descent import by_curvature, by_signs, variation
from zerosum.simulations.attacks.inversion.gradient_cases import convolved
from zerosum.simulations.attacks.inversion.reconstruction import (
    Observed,
    Reconstruction,
    guessed,
    observed,
    typical,
)
from zerosum.simulations.attacks.settings.rounds import RoundsView

SMOOTH = 1e-4
"""Weight of the total variation, beside a misfit of 1 for features that are all zero."""

SOLVED = 1e-8
"""Misfit at which an image counts as recovered."""

SHAKE = 0.3
"""Standard deviation of the noise added to each pixel before the next descent."""

HOPELESS = 0.3
"""Share of noise in the features' squared norm from which the mean image is the better guess.

With more noise than that, descent fits the noise.
"""


@dataclass(frozen=True)
class FeatureInversion(Reconstruction):
    """Solve for the last layer's input, then search for an image that gives it.

    Attributes
    ----------
    iterations : int
        Of each descent: by signs, then as many by curvature.
    tries : int
        Descents: from the mean image, then from the best image so far plus noise, until one
        succeeds (Wales and Doye 1997, "Global optimization by basin-hopping"). Pooling does not
        say where in a patch its largest value was, and a descent that starts elsewhere stays there.
    """

    iterations: int = 150
    tries: int = 12

    requires: ClassVar[tuple[str, ...]] = ("contributions", "auxiliary_inputs")

    @property
    def adaptive(self) -> str:
        """Return how the attack reads an update."""
        return "last layer's inputs, and an image that has them"

    def cases(self, suite: str) -> Iterable[Case]:
        """Return one client's updates of a convolutional model."""
        return convolved(suite)

    def run(self, view: RoundsView, rng: np.random.Generator) -> Guess:
        """Search for the image of each observed update."""
        inner, last = _parted(view)
        mean = typical(view, 1, rng).reshape(1, *view.input_shape)
        images = [
            self._nearest(inner, *inputs_of(last, seen), mean, rng) for seen in observed(view)
        ]
        return guessed(view, np.concatenate(images))

    def _nearest(
        self,
        inner: nn.Module,
        features: np.ndarray,
        noise_std: float,
        mean: np.ndarray,
        rng: np.random.Generator,
    ) -> np.ndarray:
        """Return the image with the nearest features, shape (1, ...)."""
        target = torch.tensor(features)
        size = target.square().sum().clamp_min(1e-30)
        noise = noise_std**2 * len(features) / float(size)
        if noise > HOPELESS:
            return mean

        def misfit(images: torch.Tensor) -> torch.Tensor:
            distance: torch.Tensor = (inner(images)[0] - target).square().sum() / size
            return distance

        best, least = self._descended(misfit, mean)
        for _ in range(self.tries - 1):
            if least < SOLVED + noise:
                break
            shaken = np.clip(best + SHAKE * rng.normal(size=best.shape), 0.0, 1.0)
            image, left = self._descended(misfit, shaken)
            if left < least:
                best, least = image, left
        return best

    def _descended(
        self, misfit: Callable[[torch.Tensor], torch.Tensor], first: np.ndarray
    ) -> tuple[np.ndarray, float]:
        """Return an image, shape (1, ...), and its misfit."""
        images = torch.tensor(first, requires_grad=True)
        by_signs(images, [], lambda: misfit(images) + SMOOTH * variation(images), self.iterations)
        by_curvature([images], lambda: misfit(images), self.iterations)
        clipped = images.detach().clamp(0.0, 1.0)
        image: np.ndarray = clipped.numpy()
        return image, float(misfit(clipped))


def inputs_of(last: nn.Linear, seen: Observed) -> tuple[np.ndarray, float]:
    """Solve for a last layer's one input, by least squares.

    Its change is the outer product of a gradient and the input, with 1 for the biases: the weights'
    change is projected on the biases'. Over several local steps the result is a mean.

    Parameters
    ----------
    last : torch.nn.Linear
        With biases.
    seen : Observed
        One client's change of all parameters, those of ``last`` at its end.

    Returns
    -------
    features : ndarray of float64
        Shape (features,).
    noise_std : float
        Of each of them.
    """
    outputs, features = last.weight.shape
    biases = seen.vector[-outputs:]
    weights = seen.vector[-outputs * (features + 1) : -outputs].reshape(outputs, features)
    size = max(float(np.linalg.norm(biases)), 1e-30)
    return biases @ weights / size**2, seen.noise_std / size


def _parted(view: RoundsView) -> tuple[nn.Sequential, nn.Linear]:
    """Return a model's features and its last layer, in double precision, weights fixed."""
    model = view.build().double()
    load_vector(model, view.vectors[0])
    *inner, last = model.requires_grad_(False).children()
    if not isinstance(last, nn.Linear) or last.bias is None:
        raise ValueError(f"model.name = {view.model.name!r}: its last layer has no biases")
    return nn.Sequential(*inner), last


ATTACKS = (FeatureInversion(),)
"""As the table lists them."""
