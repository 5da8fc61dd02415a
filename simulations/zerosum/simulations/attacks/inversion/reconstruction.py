"""Images guessed from updates: what all such attacks see, guess blindly, and are scored by."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans

from zerosum.simulations.attacks.harness.interface import Guess, Metric, ThreatModel
from zerosum.simulations.attacks.harness.metrics import Mean, Proportion, Units, psnr
from zerosum.simulations.attacks.harness.to_specs import UNCLIPPED_RANGE
from zerosum.simulations.attacks.settings.rounds import RoundsView

PICTURES = 8
"""Reconstructions that are drawn."""

RECOGNISED = 20.0
"""dB from which an image counts as recognised."""


@dataclass(frozen=True)
class Observed:
    """A vector that the server saw, and whose updates are in it.

    Attributes
    ----------
    vector : ndarray
        float64, shape (d,): the sum of ``clients`` updates, or one client's own.
    clients : int
    noise_std : float
        Of a coordinate: of noise and of rounding.
    """

    vector: np.ndarray
    clients: int
    noise_std: float


def observed(view: RoundsView) -> list[Observed]:
    """Return each client's update where the server sees it, else the sum of all; of one round."""
    count, rounding = view.clients, rounding_std(view)
    if view.contributions is not None:
        own = np.hypot(view.noise_std / count**0.5, rounding)
        return [Observed(vector, 1, float(own)) for vector in view.contributions[0]]
    if view.totals is None:
        raise ValueError("the view holds no totals")
    noise = np.hypot(view.noise_std, rounding * count**0.5)
    return [Observed(view.totals[0], count, float(noise))]


def rounding_std(view: RoundsView) -> float:
    """Return the standard deviation of one contribution's stochastic rounding: step / sqrt(6).

    Of a fractional part u, uniform, the variance is u (1 - u), whose mean is 1/6.
    """
    protection = view.protection
    limit = UNCLIPPED_RANGE if protection.clip is None else protection.clip
    return float(2 * limit / (2**protection.bits - 2) / 6**0.5)


def auxiliary(view: RoundsView) -> np.ndarray:
    """Return the auxiliary images, float64, shape (m, pixels)."""
    if view.auxiliary_inputs is None:
        raise ValueError("the view holds no auxiliary data")
    return view.auxiliary_inputs.reshape(len(view.auxiliary_inputs), -1).astype(np.float64)


def typical(view: RoundsView, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return images that guess ``count`` unseen ones best: of one the mean, of more the centroids.

    Guesses at a sum are matched to clients afterwards, which favours images that differ: copies of
    the mean image would be a baseline that anything beats.

    Returns
    -------
    ndarray of float64
        Shape (count, pixels).
    """
    images = auxiliary(view)
    state = int(rng.integers(2**31))
    found = KMeans(min(count, len(images)), n_init=1, random_state=state).fit(images)
    return np.resize(found.cluster_centers_, (count, images.shape[1])).astype(np.float64)


def guessed(view: RoundsView, images: np.ndarray) -> Guess:
    """Return a guess of one image a client, shape (n, ...), and whether it says whose each is."""
    shaped = np.clip(images.reshape(-1, *view.input_shape), 0.0, 1.0)
    return Guess({"images": shaped, "named": np.array(view.contributions is not None)})


def matched(guess: Guess, truth: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return guesses and true images, one pair a client, each of shape (n, pixels).

    What came of a sum has no names: it is matched to the clients so that errors are least.
    """
    images = guess["images"].reshape(len(guess["images"]), -1)
    true = truth["inputs"].reshape(-1, images.shape[1]).astype(np.float64)
    return (images, true) if guess["named"] else paired(images, true)


def paired(images: np.ndarray, true: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return guesses and true images, one pair a true image, as :func:`matching` has them."""
    guesses, places = matching(images, true)
    return images[guesses], true[places]


def matching(images: np.ndarray, true: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which guess is which true image's, int64, shape (min(m, n),): errors are least.

    Of errors the logarithm is added up: a few images that are found weigh more than many that are
    not quite.

    Parameters
    ----------
    images, true : ndarray of float64
        Shapes (m, pixels) and (n, pixels).

    Returns
    -------
    tuple of ndarray
        Places of guesses, and of true images, ascending: of fewer guesses not all are there.
    """
    errors = ((true**2).sum(1)[:, None] - 2 * true @ images.T) + (images**2).sum(1)[None]
    rows, columns = linear_sum_assignment(np.log(np.maximum(errors, 1e-12)))
    return columns, rows


@dataclass(frozen=True)
class Reconstruction:
    """What the attackers that guess images from updates have in common."""

    name: ClassVar[str] = "gradient inversion"
    threat: ClassVar[ThreatModel] = ThreatModel(
        "curious server",
        knows=frozenset({"learning rate", "steps", "clip", "sigma", "auxiliary data"}),
    )
    requires: ClassVar[tuple[str, ...]] = ("totals", "auxiliary_inputs")
    metrics: ClassVar[tuple[Metric, ...]] = (Metric("PSNR", "dB"), Metric("images above 20 dB"))

    def baseline(self, view: RoundsView, rng: np.random.Generator) -> Guess:
        """Guess the auxiliary images' mean for a client, or their centroids for a sum's clients."""
        if view.contributions is not None:
            return guessed(view, np.tile(typical(view, 1, rng), (view.clients, 1)))
        return guessed(view, typical(view, view.clients, rng))

    def score(self, guess: Guess, truth: Mapping[str, np.ndarray]) -> Mapping[str, Units]:
        """Return the mean PSNR of the clients' images, and how many are recognised.

        A mean over many clients says little of the few whose image is out.
        """
        decibels = psnr(*matched(guess, truth))
        return {"PSNR": Mean(decibels), "images above 20 dB": Proportion(decibels > RECOGNISED)}

    def pictures(self, guess: Guess, truth: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Return the first few images above what was guessed of them."""
        found, true = matched(guess, truth)
        side = guess["images"].shape[-2:]
        pairs = np.stack([true[:PICTURES], found[:PICTURES]], axis=1)
        return {"reconstruction": pairs.reshape(len(pairs), 2, *side)}
