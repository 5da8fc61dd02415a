"""Score images read out of a crafted first layer, and build the model to send."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from zerosum.client.spec import ModelSpec
from zerosum.simulations.attacks.harness.interface import Guess, Metric
from zerosum.simulations.attacks.harness.metrics import Proportion, Units
from zerosum.simulations.attacks.inversion.reconstruction import RECOGNISED, matching, paired
from zerosum.simulations.attacks.settings.picture_pairs import picture_pairs
from zerosum.simulations.attacks.settings.rounds import RoundsView
from zerosum.simulations.attacks.settings.task_model import Place

FAINT = 1e-4
"""Scale of the crafted first layer.

Outputs stay almost uniform, as of a model of zeros. Then every image that moves a unit moves it by
the same amount, up to the sign of its class, and no image goes unseen for being classified well.
"""


@dataclass(frozen=True)
class Imprinted:
    """Define what attackers with a crafted first layer share: requirements and scores."""

    requires: ClassVar[tuple[str, ...]] = ("totals", "auxiliary_inputs")
    metrics: ClassVar[tuple[Metric, ...]] = (Metric("images above 20 dB"),)

    def score(self, guess: Guess, truth: Mapping[str, np.ndarray]) -> Mapping[str, Units]:
        """Return which images were recovered, each matched to a guess of its own."""
        true = self._attacked(truth)
        guesses, images = matching(guess["images"], true)
        errors = np.mean((guess["images"][guesses] - true[images]) ** 2, axis=1)
        # With fewer guesses than images, some images have none.
        hits = np.zeros(len(true), dtype=bool)
        hits[images] = errors < 10 ** (-RECOGNISED / 10)
        return {"images above 20 dB": Proportion(hits)}

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
            "reconstruction": shape (n, 2, height, width), n at most 8.
        """
        guesses, true = paired(guess["images"], self._attacked(truth))
        return picture_pairs(true[:8], guesses[:8], truth["inputs"].shape[2:])

    def _attacked(self, truth: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the images that the model targets, shape (n, pixels): of all clients."""
        pixels = int(np.prod(truth["inputs"].shape[2:]))
        return truth["inputs"].reshape(-1, pixels).astype(np.float64)


def width_of(view: RoundsView, asked: int) -> int:
    """Return the width of the first layer that a server crafts.

    Parameters
    ----------
    view : RoundsView
    asked : int
        Width of a model that the server chooses; a task's own model has the width that it has.

    Returns
    -------
    int
    """
    return view.own.chain[0].rows if view.own is not None and view.own.fixed else asked


def crafted(
    view: RoundsView, weights: np.ndarray, biases: np.ndarray
) -> tuple[ModelSpec, np.ndarray]:
    """Return the model to send: a perceptron with this first layer, or the task's own model.

    Rows of the task's own model that are left over are never active.

    Parameters
    ----------
    view : RoundsView
        Before the rounds.
    weights, biases : ndarray of float64
        Shapes (width, pixels) and (width,), for inputs in [0, 1].

    Returns
    -------
    model : ModelSpec
    vector : ndarray of float32
        Shape (d,).
    """
    own = view.own
    if own is None or not own.fixed:
        model = ModelSpec(name="mlp", hidden=[len(biases)])
        return model, vector_of(weights, biases, view.classes)
    vector = view.vectors[0].copy()
    first, *rest = own.chain
    # The layer takes a + s u for inputs u in [0, 1]: W u + b = (W / s) (a + s u) + b - a W 1 / s.
    scaled = np.zeros((first.rows, first.columns))
    shifted = np.full(first.rows, -1.0)
    scaled[: len(biases)] = weights / own.scale
    shifted[: len(biases)] = biases - own.lowest * scaled[: len(biases)].sum(axis=1)
    _put(vector, first, scaled, shifted)
    for place in rest[:-1]:  # means of all units: each has the same gradient there
        _put(vector, place, np.full((place.rows, place.columns), 1 / place.columns), 0.0)
    last = rest[-1]
    signs = np.where(np.arange(last.rows) % 2 == 0, 1.0, -1.0)[:, None]
    _put(vector, last, np.repeat(signs, last.columns, axis=1), 0.0)
    return view.model, vector


def _put(vector: np.ndarray, place: Place, weights: np.ndarray, biases: np.ndarray | float) -> None:
    vector[place.weights : place.weights + weights.size] = weights.ravel()
    vector[place.biases : place.biases + place.rows] = biases


def vector_of(weights: np.ndarray, biases: np.ndarray, classes: int) -> np.ndarray:
    """Return the parameters of a perceptron with this first layer.

    Outputs weigh every unit by 1 or, of every second class, by -1, and have no biases: all units of
    the first layer then have the same gradient at the outputs.

    Parameters
    ----------
    weights, biases : ndarray of float64
        Shapes (width, pixels) and (width,).
    classes : int

    Returns
    -------
    ndarray of float32
        Shape (d,).
    """
    signs = np.where(np.arange(classes) % 2 == 0, 1.0, -1.0)
    outputs = np.repeat(signs[:, None], len(biases), axis=1)
    parts = [weights.ravel(), biases, outputs.ravel(), np.zeros(classes)]
    return np.concatenate(parts).astype(np.float32)
