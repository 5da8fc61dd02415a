"""Read images out of the first layer's gradient: one client's exactly, a sum's by its corners.

However many local steps a client makes and however it is clipped, its change of a fully connected
first layer is an outer product with its one image: Phong et al. 2018, section 3. For sums see
:mod:`~.separation`, for noise :mod:`~.denoising`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from zerosum.simulations.attacks.harness.interface import Case, Guess
from zerosum.simulations.attacks.inversion.denoising import (
    Images,
    parts_of,
    refined,
    unexplained,
)
from zerosum.simulations.attacks.inversion.gradient_cases import cases_of
from zerosum.simulations.attacks.inversion.reconstruction import (
    Observed,
    Reconstruction,
    auxiliary,
    guessed,
    observed,
    typical,
)
from zerosum.simulations.attacks.inversion.separation import candidates
from zerosum.simulations.attacks.settings.rounds import RoundsView


def slopes_of(view: RoundsView, vector: np.ndarray) -> np.ndarray:
    """Return the first layer's part of a change of all parameters.

    Parameters
    ----------
    view : RoundsView
        Whose model it is.
    vector : ndarray of float64
        Shape (d,).

    Returns
    -------
    ndarray of float64
        Shape (width, pixels + 1), biases last.

    Raises
    ------
    ValueError
        If the first layer is not fully connected.
    """
    own = view.own
    if own is not None and own.key:
        if own.first is None:
            raise ValueError("no fully connected layer takes the whole record")
        return own.unscaled(own.first.slopes(vector))
    if view.model.name not in ("linear", "mlp"):
        raise ValueError(f"model.name = {view.model.name!r}: its first layer sees patches")
    pixels = int(np.prod(view.input_shape))
    width = [*view.model.hidden, view.classes][0] if view.model.name == "mlp" else view.classes
    cut = width * pixels
    weights = vector[:cut].reshape(width, pixels)
    slopes = np.concatenate([weights, vector[cut : cut + width, None]], axis=1)
    return slopes if own is None else own.unscaled(slopes)


def images_in(
    view: RoundsView, seen: Observed, like: Images, turns: int, rng: np.random.Generator
) -> np.ndarray:
    """Return the images, one a client of a sum, that explain the sum best among all candidates.

    Each candidate is charged for the noise that its free pixels explain: Akaike 1974, "A new look
    at the statistical model identification", section V. The blind guess has no free pixel.

    Parameters
    ----------
    view : RoundsView
    seen : Observed
    like : Images
        The prior.
    turns : int
        Alternations in which images and their parts are fitted.
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of float64
        Shape (clients, pixels), in [0, 1].
    """
    slopes = slopes_of(view, seen.vector)
    blind = typical(view, seen.clients, rng)
    solved = [
        np.concatenate([images, blind])[: seen.clients]
        for images in candidates(slopes, seen.clients, seen.noise_std, rng)
    ]
    fitted = [refined(slopes, start, seen.noise_std, like, turns) for start in (blind, *solved)]

    def charged(images: np.ndarray, free: float) -> float:
        return unexplained(slopes, images) + 2 * free * seen.noise_std**2

    tried = [(charged(blind, 0.0), blind)]
    tried += [(charged(images, images.size), images) for images in solved]
    for images in fitted:
        free = like.freedom(parts_of(slopes, images), seen.noise_std)
        tried.append((charged(images, free), images))
    return min(tried, key=lambda pair: pair[0])[1]


@dataclass(frozen=True)
class FirstLayer(Reconstruction):
    """Solve for the first layer's inputs.

    Attributes
    ----------
    turns : int
        Alternations in which images and their parts are fitted to a noisy gradient.
    """

    turns: int = 10

    @property
    def adaptive(self) -> str:
        """Return how the attack reads an update."""
        noise = ", expects the noise" if self.turns else ""
        return f"first layer's inputs within pixels' bounds{noise}"

    def cases(self, suite: str) -> Iterable[Case]:
        """Return one client's updates and sums of several."""
        return cases_of(suite)

    def run(self, view: RoundsView, rng: np.random.Generator) -> Guess:
        """Solve for the images of each observed update."""
        like = Images.like(auxiliary(view))
        images = [images_in(view, seen, like, self.turns, rng) for seen in observed(view)]
        return guessed(view, np.concatenate(images))


ATTACKS = (FirstLayer(),)
"""As the table lists them."""
