"""Define what attackers that guess images from updates share: observations and scores."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans

from zerosum.simulations.attacks.harness.interface import Guess, Metric, ThreatModel
from zerosum.simulations.attacks.harness.metrics import Mean, Proportion, Units, psnr
from zerosum.simulations.attacks.harness.to_specs import UNCLIPPED_RANGE
from zerosum.simulations.attacks.settings.picture_pairs import picture_pairs
from zerosum.simulations.attacks.settings.rounds import RoundsSetting, RoundsView

PICTURES = 8
"""Largest number of reconstructions in a picture."""

RECOGNISED = 20.0
"""dB from which an image counts as recognised."""

CLEAR_DB = 40.0
"""PSNR that counts as all of an image: what differs beyond it is seen by no eye."""


def recognised(truth: Mapping[str, np.ndarray]) -> float:
    """Return the PSNR, in dB, from which a guess counts: of a user's table its scene says it."""
    return float(truth["recognised"][0]) if "recognised" in truth else RECOGNISED


@dataclass(frozen=True)
class Observed:
    """Hold a vector that the server saw, and the number of updates in it.

    Attributes
    ----------
    vector : ndarray
        float64, shape (d,): the sum of ``clients`` updates, or one client's own.
    clients : int
        Updates in it.
    noise_std : float
        Standard deviation of a coordinate, from noise and rounding.
    """

    vector: np.ndarray
    clients: int
    noise_std: float


def observed(view: RoundsView) -> list[Observed]:
    """Return each client's update of one round where the server sees it, else their sum.

    Parameters
    ----------
    view : RoundsView

    Returns
    -------
    list of Observed

    Raises
    ------
    ValueError
        If the view holds neither contributions nor totals.
    """
    count, rounding = view.clients, rounding_std(view)
    if view.contributions is not None:
        own = np.hypot(view.noise_std / count**0.5, rounding)
        return [Observed(vector, 1, float(own)) for vector in view.contributions[0]]
    if view.totals is None:
        raise ValueError("the view holds no totals: no sum was opened")
    noise = np.hypot(view.noise_std, rounding * count**0.5)
    return [Observed(view.totals[0], count, float(noise))]


def rounding_std(view: RoundsView) -> float:
    """Return the standard deviation of one contribution's stochastic rounding: step / sqrt(6).

    Given a fractional part u, the variance is u (1 - u), whose mean over uniform u is 1/6.
    """
    protection = view.protection
    limit = UNCLIPPED_RANGE if protection.clip is None else protection.clip
    return float(2 * limit / (2**protection.bits - 2) / 6**0.5)


def auxiliary(view: RoundsView) -> np.ndarray:
    """Return the auxiliary images.

    Parameters
    ----------
    view : RoundsView

    Returns
    -------
    ndarray of float64
        Shape (m, pixels).

    Raises
    ------
    ValueError
        If the view holds none.
    """
    if view.auxiliary_inputs is None:
        raise ValueError("the view holds no auxiliary data: add it to what the threat knows")
    return view.auxiliary_inputs.reshape(len(view.auxiliary_inputs), -1).astype(np.float64)


def typical(view: RoundsView, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return the best blind guesses at unseen images: the mean for one, centroids for more.

    Guesses at a sum are matched to clients afterwards, which favours images that differ. Copies of
    the mean image would be a baseline that anything beats.

    Parameters
    ----------
    view : RoundsView
    count : int
        Images to guess.
    rng : numpy.random.Generator
        Seeds the clustering.

    Returns
    -------
    ndarray of float64
        Shape (count, pixels).
    """
    images = auxiliary(view)
    state = int(rng.integers(2**31))
    clusters = KMeans(min(count, len(images)), n_init=1, random_state=state).fit(images)
    return np.resize(clusters.cluster_centers_, (count, images.shape[1])).astype(np.float64)


def guessed(view: RoundsView, images: np.ndarray) -> Guess:
    """Return a guess of one image a client, and whether the server knows whose each is.

    Parameters
    ----------
    view : RoundsView
    images : ndarray of float64
        Shape (n, pixels), or (n, ...).

    Returns
    -------
    Guess
        "images", shape (n, ...), in [0, 1]; "named", bool, shape ().
    """
    shaped = np.clip(images.reshape(-1, *view.input_shape), 0.0, 1.0)
    return Guess({"images": shaped, "named": np.array(view.contributions is not None)})


def matched(guess: Guess, truth: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return guesses and true images, one pair a client.

    Guesses at a sum have no names. They are matched to the clients with the least errors.

    Parameters
    ----------
    guess : Guess
        Of :func:`guessed`.
    truth : mapping of str to ndarray
        The scene's.

    Returns
    -------
    images, true : ndarray of float64
        Shape (n, pixels) each.
    """
    images = guess["images"].reshape(len(guess["images"]), -1)
    true = truth["inputs"].reshape(-1, images.shape[1]).astype(np.float64)
    return (images, true) if guess["named"] else paired(images, true)


def paired(images: np.ndarray, true: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return guesses and true images, one pair a true image, as :func:`matching` pairs them.

    Parameters
    ----------
    images, true : ndarray of float64
        Shapes (m, pixels) and (n, pixels).

    Returns
    -------
    images, true : ndarray of float64
        Shape (min(m, n), pixels) each.
    """
    guesses, places = matching(images, true)
    return images[guesses], true[places]


def matching(images: np.ndarray, true: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Match guesses to true images with the least errors.

    The sum of the errors' logarithms is minimised: a few recovered images weigh more than many that
    are slightly better than blind.

    Parameters
    ----------
    images, true : ndarray of float64
        Shapes (m, pixels) and (n, pixels).

    Returns
    -------
    guesses, places : ndarray of int64
        Shape (min(m, n),) each: indices of guesses and of true images, the latter ascending.
    """
    errors = ((true**2).sum(1)[:, None] - 2 * true @ images.T) + (images**2).sum(1)[None]
    rows, columns = linear_sum_assignment(np.log(np.maximum(errors, 1e-12)))
    return columns, rows


@dataclass(frozen=True)
class Reconstruction:
    """Define the threat, baseline and scores of attackers that guess images from updates."""

    name: ClassVar[str] = "gradient inversion"
    threat: ClassVar[ThreatModel] = ThreatModel(
        "curious server",
        knows=frozenset({"learning rate", "steps", "clip", "sigma", "auxiliary data"}),
    )
    requires: ClassVar[tuple[str, ...]] = ("totals", "auxiliary_inputs")
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("PSNR", "dB", whole=CLEAR_DB),
        Metric("images above 20 dB"),
    )

    def units_of_seed(self, setting: RoundsSetting) -> int:
        """Return how many units a seed has: an image a client."""
        return setting.clients

    def baseline(self, view: RoundsView, rng: np.random.Generator) -> Guess:
        """Guess the mean image for a client, or centroids for a sum's clients."""
        if view.contributions is not None:
            return guessed(view, np.tile(typical(view, 1, rng), (view.clients, 1)))
        return guessed(view, typical(view, view.clients, rng))

    def score(self, guess: Guess, truth: Mapping[str, np.ndarray]) -> Mapping[str, Units]:
        """Return the mean PSNR of the clients' images, and how many are recognised.

        A mean over many clients hides the few whose image is recognised.
        """
        decibels = psnr(*matched(guess, truth))
        return {
            "PSNR": Mean(decibels),
            "images above 20 dB": Proportion(decibels > recognised(truth)),
        }

    def pictures(self, guess: Guess, truth: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Draw the first few images above their guesses.

        Parameters
        ----------
        guess : Guess
            Of the attack or of its baseline.
        truth : mapping of str to ndarray
            The scene's.

        Returns
        -------
        mapping of str to ndarray
            "reconstruction": shape (n, 2, height, width), n at most PICTURES.
        """
        guesses, true = matched(guess, truth)
        return picture_pairs(true[:PICTURES], guesses[:PICTURES], guess["images"].shape[1:])
