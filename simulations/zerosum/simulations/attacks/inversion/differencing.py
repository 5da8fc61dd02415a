"""Recover one client's update as the difference of two sums that differ by that client.

Masks hide the terms of a sum, not the difference of two sums: Pejo and Biczok 2023, "Quality
inference in federated learning with secure aggregation", section 3, use the same difference. The
update reveals its image as any update does: see :mod:`~.first_layer`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from zerosum.simulations.attacks.harness.interface import Case, Guess, Metric, ThreatModel
from zerosum.simulations.attacks.harness.metrics import Mean, Proportion, Units, psnr
from zerosum.simulations.attacks.inversion.denoising import Images
from zerosum.simulations.attacks.inversion.first_layer import images_in
from zerosum.simulations.attacks.inversion.gradient_cases import MASKED, PLAIN, distributed, local
from zerosum.simulations.attacks.inversion.reconstruction import (
    CLEAR_DB,
    Observed,
    auxiliary,
    rounding_std,
    typical,
)
from zerosum.simulations.attacks.inversion.two_cohorts import TwoCohorts
from zerosum.simulations.attacks.settings.picture_pairs import picture_pairs
from zerosum.simulations.attacks.settings.rounds import RoundsView

EXACT = 0.01
"""Relative error below which an update counts as recovered.

An update that only stochastic rounding disturbs stays below it.
"""


@dataclass(frozen=True)
class Differencing:
    """Subtract the sum without a client from the sum with it.

    Attributes
    ----------
    turns : int
        Alternations in which the image and its parts are fitted to a noisy update.
    """

    turns: int = 10

    name: ClassVar[str] = "differencing"
    adaptive: ClassVar[str] = "solves for the first layer's input, expects the noise"
    threat: ClassVar[ThreatModel] = ThreatModel(
        "malicious server", knows=frozenset({"clip", "sigma", "auxiliary data"}), rounds=2
    )
    requires: ClassVar[tuple[str, ...]] = ("totals", "auxiliary_inputs")
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("updates recovered"),
        Metric("relative error", higher=False),
        Metric("PSNR", "dB", whole=CLEAR_DB),
    )

    def cases(self, suite: str) -> Iterable[Case]:
        """Yield sums of ten, with and without noise; in full, of more."""
        full = suite == "full"
        for count in (10, 50) if full else (10,):
            setting = TwoCohorts(clients=count)
            noised = [distributed(s) for s in ((1e-3, 1e-2, 1e-1, 1.0) if full else (1e-3, 1e-1))]
            for protection in (PLAIN, MASKED, *noised, local(1e-3, masking="double")):
                yield Case(setting, protection, {"cohort": count, "sigma": protection.sigma})

    def units_of_seed(self, setting: TwoCohorts) -> int:
        """Return how many units a seed has: the update of the one client."""
        return 1

    def baseline(self, view: RoundsView, rng: np.random.Generator) -> Guess:
        """Guess an equal share of the sum, shrunk by its noise, and the mean image."""
        share = np.zeros(view.vectors.shape[1])
        if view.totals is not None:
            share = _shrunk(view.totals[0], view.noise_std) / view.clients
        return _guess(view, share, typical(view, 1, rng))

    def run(self, view: RoundsView, rng: np.random.Generator) -> Guess:
        """Subtract the sums, and solve for the image."""
        if view.totals is None or len(view.totals) < 2:
            raise ValueError("the view holds fewer than two sums: a difference needs two")
        update = view.totals[0] - view.totals[1]
        # Both sums carry their own noise, hence sqrt(2). Each of the n + (n - 1) contributions is
        # rounded on its own.
        rounding = rounding_std(view) * (2 * view.clients - 1) ** 0.5
        noise = float(np.hypot(view.noise_std * 2**0.5, rounding))
        like = Images.like(auxiliary(view))
        image = images_in(view, Observed(update, 1, noise), like, self.turns, rng)
        return _guess(view, _shrunk(update, noise), image)

    def score(self, guess: Guess, truth: Mapping[str, np.ndarray]) -> Mapping[str, Units]:
        """Return the error of the update and of the image."""
        update = truth["update"]
        error = np.linalg.norm(guess["update"] - update) / np.linalg.norm(update)
        return {
            "updates recovered": Proportion(np.array([error < EXACT])),
            "relative error": Mean(np.array([error])),
            "PSNR": Mean(psnr(guess["image"], truth["inputs"][0])),
        }

    def pictures(self, guess: Guess, truth: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Draw the client's image above the guess.

        Parameters
        ----------
        guess : Guess
            Of :meth:`run` or :meth:`baseline`.
        truth : mapping of str to ndarray
            The scene's.

        Returns
        -------
        mapping of str to ndarray
            "reconstruction": shape (1, 2, height, width).
        """
        true, image = truth["inputs"][0].reshape(1, -1), guess["image"].reshape(1, -1)
        return picture_pairs(true, image, guess["image"].shape[1:])


def _shrunk(update: np.ndarray, noise_std: float) -> np.ndarray:
    """Shrink an update by what noise alone would explain.

    The positive part of the estimator of James and Stein 1961: of pure noise, nothing is left.
    """
    power = max(float(update @ update), 1e-30)
    shrunk: np.ndarray = update * max(0.0, 1 - len(update) * noise_std**2 / power)
    return shrunk


def _guess(view: RoundsView, update: np.ndarray, images: np.ndarray) -> Guess:
    return Guess({"update": update, "image": images.reshape(1, *view.input_shape)})


ATTACKS = (Differencing(),)
"""As the table lists them."""
