"""The first layer's slope gives images away: of one client exactly, of a sum those at its corners.

However many local steps a client makes and whatever it is clipped to, its change of a fully
connected first layer is an outer product with its one image: Phong et al. 2018, section 3; for sums
see :mod:`~.separation`, for noise :mod:`~.denoising`.
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
    """Return the first layer's part of a change, biases last: shape (width, pixels + 1).

    Raises
    ------
    ValueError
        If the first layer is not fully connected.
    """
    if view.model.name not in ("linear", "mlp"):
        raise ValueError(f"model.name = {view.model.name!r}: its first layer sees patches")
    pixels = int(np.prod(view.input_shape))
    width = [*view.model.hidden, view.classes][0] if view.model.name == "mlp" else view.classes
    cut = width * pixels
    weights = vector[:cut].reshape(width, pixels)
    return np.concatenate([weights, vector[cut : cut + width, None]], axis=1)


def images_in(
    view: RoundsView, seen: Observed, like: Images, turns: int, rng: np.random.Generator
) -> np.ndarray:
    """Return an image for each client in a sum: of all candidates, those that explain most of it.

    Each is charged for what so many free pixels explain of noise: Akaike 1974, "A new look at the
    statistical model identification", section V. The blind guess has none.

    Returns
    -------
    ndarray of float64
        Shape (clients, pixels), in [0, 1].
    """
    slopes = slopes_of(view, seen.vector)
    blind = typical(view, seen.clients, rng)
    solved = [
        np.concatenate([each, blind])[: seen.clients]
        for each in candidates(slopes, seen.clients, seen.noise_std, rng)
    ]
    fitted = [refined(slopes, each, seen.noise_std, like, turns) for each in (blind, *solved)]

    def charged(images: np.ndarray, free: float) -> float:
        return unexplained(slopes, images) + 2 * free * seen.noise_std**2

    tried = [(charged(blind, 0.0), blind)]
    tried += [(charged(each, each.size), each) for each in solved]
    for each in fitted:
        free = like.freedom(parts_of(slopes, each), seen.noise_std)
        tried.append((charged(each, free), each))
    return min(tried, key=lambda pair: pair[0])[1]


@dataclass(frozen=True)
class FirstLayer(Reconstruction):
    """Solves for the first layer's inputs.

    Attributes
    ----------
    turns : int
        In which images and their parts are fitted to a noisy slope; 0 does not.
    """

    turns: int = 10

    @property
    def adaptive(self) -> str:
        """What the attacker uses."""
        noise = ", expects the noise" if self.turns else ""
        return f"first layer's inputs within pixels' bounds{noise}"

    def cases(self, suite: str) -> Iterable[Case]:
        """Return one client's updates and sums of several."""
        return cases_of(suite)

    def run(self, view: RoundsView, rng: np.random.Generator) -> Guess:
        """Solve for the images of each update that was seen."""
        like = Images.like(auxiliary(view))
        found = [images_in(view, each, like, self.turns, rng) for each in observed(view)]
        return guessed(view, np.concatenate(found))


ATTACKS = (FirstLayer(),)
"""As the table has them."""
