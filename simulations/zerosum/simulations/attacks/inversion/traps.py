"""Set traps: a crafted first layer whose rows few images move, read out of noise.

A clip bounds a client's whole update. An imprint's bins are moved by half of all images each, and
spend the clip on sums that cancel when neighbours are subtracted. A row that a single image moves
is that image (Boenisch et al. 2023, "When the curious abandon honesty: federated learning is not
private", whose trap weights such rows are). :mod:`~.row_contents` infers which rows a single image
moved, and which of them the same one. The image's posterior mean removes the noise.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from zerosum.simulations.attacks.harness.interface import Case, Guess, ThreatModel
from zerosum.simulations.attacks.inversion.denoising import Images
from zerosum.simulations.attacks.inversion.first_layer import slopes_of
from zerosum.simulations.attacks.inversion.imprint_cases import RECORDS, cases_of
from zerosum.simulations.attacks.inversion.imprinted import FAINT, Imprinted, crafted, width_of
from zerosum.simulations.attacks.inversion.reconstruction import auxiliary, rounding_std, typical
from zerosum.simulations.attacks.inversion.row_contents import Rows, parts_in
from zerosum.simulations.attacks.settings.rounds import Crafted, RoundsView

BLUNT = 0.1
"""Variance added to each direction of images before its weight in a row is chosen.

Without it a row would look for its image mainly in the directions of least variance, which
auxiliary images estimate worst.
"""


@dataclass(frozen=True)
class Traps(Imprinted):
    """Send rows that few images move, and read those that a single image moved.

    Attributes
    ----------
    rows : int
        The layer's width.
    records : int
        Images of each client, known or expected.
    held : float
        Images of the whole cohort that a row holds on average.
    """

    rows: int = 1024
    records: int = RECORDS
    held: float = 0.4

    name: ClassVar[str] = "imprint"
    threat: ClassVar[ThreatModel] = ThreatModel(
        "malicious server", knows=frozenset({"auxiliary data", "sigma", "records"})
    )

    @property
    def adaptive(self) -> str:
        """Return what the attacker sends, and expects."""
        return f"{self.rows} rows that few images move, expects the noise"

    def cases(self, suite: str) -> Iterable[Case]:
        """Return masked sums of few and of many clients, with and without noise."""
        return [case for case in cases_of(suite, False, self.rows) if case.protection.masked]

    def craft(self, view: RoundsView, rng: np.random.Generator) -> Crafted:
        """Craft a model each row of which looks for an auxiliary image.

        A row's direction is that of Fisher's discriminant between its image and all others. Its
        bias lets only a small part of them through, its own image aside.

        Parameters
        ----------
        view : RoundsView
        rng : numpy.random.Generator
            Orders the auxiliary images.

        Returns
        -------
        Crafted
        """
        images = auxiliary(view)
        like = Images.like(images)
        sought = np.resize(rng.permutation(len(images)), width_of(view, self.rows))
        centred = (images[sought] - like.mean) @ like.directions
        directions = centred / (like.variances + BLUNT)
        directions /= np.sqrt((directions**2 * like.variances).sum(axis=1, keepdims=True))
        weights = directions @ like.directions.T
        rare = min(self.held / self._expected(view) + 1 / len(images), 1.0)
        biases = -np.quantile(images @ weights.T, 1 - rare, axis=0)
        return Crafted(*crafted(view, FAINT * weights, FAINT * biases))

    def _expected(self, view: RoundsView) -> int:
        return view.clients * self.records

    def baseline(self, view: RoundsView, rng: np.random.Generator) -> Guess:
        """Guess as many of the auxiliary images' centroids as there are images."""
        return Guess({"images": typical(view, self._expected(view), rng)})

    def run(self, view: RoundsView, rng: np.random.Generator) -> Guess:
        """Return the images of rows, the strongest first, and blind guesses for the rest."""
        if view.totals is None:
            raise ValueError("the view holds no totals: no sum was opened")
        slopes, count = slopes_of(view, view.totals[0]), self._expected(view)
        noise = float(np.hypot(view.noise_std, rounding_std(view) * view.clients**0.5))
        like = Images.like(auxiliary(view))
        parts = parts_in(Rows.of(slopes, like, noise, self.held), count)
        parts = parts[np.argsort(-(parts**2).sum(axis=1), kind="stable")][:count]
        blind = typical(view, count, rng)[len(parts) :]
        return Guess({"images": np.concatenate([like.posterior(slopes, parts, noise), blind])})
