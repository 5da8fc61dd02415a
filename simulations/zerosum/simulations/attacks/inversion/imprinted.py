"""Images read out of a crafted first layer: what such attackers send, and how they are scored."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from zerosum.simulations.attacks.harness.interface import Guess, Metric
from zerosum.simulations.attacks.harness.metrics import Proportion, Units
from zerosum.simulations.attacks.inversion.reconstruction import RECOGNISED, matching, paired

FAINT = 1e-4
"""Scale of the first layer: outputs stay almost as even as those of a model of zeros."""


@dataclass(frozen=True)
class Imprinted:
    """What attackers that craft a first layer have in common."""

    requires: ClassVar[tuple[str, ...]] = ("totals", "auxiliary_inputs")
    metrics: ClassVar[tuple[Metric, ...]] = (Metric("images above 20 dB"),)

    def score(self, guess: Guess, truth: Mapping[str, np.ndarray]) -> Mapping[str, Units]:
        """Return whose images were recovered: each matched to a guess of its own."""
        true = self._attacked(truth)
        guesses, images = matching(guess["images"], true)
        errors = np.mean((guess["images"][guesses] - true[images]) ** 2, axis=1)
        # Of fewer guesses than images some images have none.
        hits = np.zeros(len(true), dtype=bool)
        hits[images] = errors < 10 ** (-RECOGNISED / 10)
        return {"images above 20 dB": Proportion(hits)}

    def pictures(self, guess: Guess, truth: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Return the first few images above the guesses that are theirs."""
        found, true = paired(guess["images"], self._attacked(truth))
        pairs = np.stack([true[:8], found[:8]], axis=1)
        return {"reconstruction": pairs.reshape(len(pairs), 2, *truth["inputs"].shape[-2:])}

    def _attacked(self, truth: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the images that the model is meant for, shape (n, pixels): of all clients."""
        pixels = int(np.prod(truth["inputs"].shape[2:]))
        return truth["inputs"].reshape(-1, pixels).astype(np.float64)


def vector_of(weights: np.ndarray, biases: np.ndarray, classes: int) -> np.ndarray:
    """Return a perceptron whose first layer is this, float32: all of it moves alike with outputs.

    Outputs weigh every unit by 1 or, of every second class, by -1, and have no biases.

    Parameters
    ----------
    weights, biases : ndarray
        Shapes (width, pixels) and (width,).
    classes : int
    """
    signs = np.where(np.arange(classes) % 2 == 0, 1.0, -1.0)
    outputs = np.repeat(signs[:, None], len(biases), axis=1)
    parts = [weights.ravel(), biases, outputs.ravel(), np.zeros(classes)]
    return np.concatenate(parts).astype(np.float32)
