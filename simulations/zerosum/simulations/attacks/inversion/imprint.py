"""Imprint images: a crafted first layer sorts them into bins, so that a sum holds single images.

Fowl et al., "Robbing the Fed: directly obtaining private data in federated learning with modified
models" (2022), section 4: all rows of a first layer take one measurement, and the biases are its
quantiles. The gradients of two neighbours differ by the images between their quantiles alone. The
ratio of the weights' to the bias' difference is the image, of whichever client, in a sum as in an
update.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from zerosum.simulations.attacks.harness.interface import Case, Guess, ThreatModel
from zerosum.simulations.attacks.inversion.first_layer import slopes_of
from zerosum.simulations.attacks.inversion.imprint_cases import cases_of
from zerosum.simulations.attacks.inversion.imprinted import FAINT, Imprinted, crafted, width_of
from zerosum.simulations.attacks.inversion.reconstruction import auxiliary
from zerosum.simulations.attacks.inversion.traps import Traps
from zerosum.simulations.attacks.settings.rounds import Crafted, RoundsView

KNOTS = 100
"""Quantiles estimated from auxiliary data; finer ones are interpolated linearly."""


@dataclass(frozen=True)
class Imprint(Imprinted):
    """Send a model that sorts images, to all or to one client, and read each bin.

    Attributes
    ----------
    bins : int
        Of all measurements together: the layer's width.
    measurements : int
        Independent ones, each with its share of the bins. An image is recovered if in any of them
        it has a bin to itself.
    target : int or None
        The one client that gets the model; all others get a model that no record moves. None sends
        the model to all.
    """

    bins: int = 512
    measurements: int = 4
    target: Annotated[int, Ge(0)] | None = None

    threat: ClassVar[ThreatModel] = ThreatModel(
        "malicious server", knows=frozenset({"auxiliary data"})
    )

    @property
    def name(self) -> str:
        """Return the name, which says who gets the model: defenses stop a targeted one alone."""
        return "imprint" if self.target is None else "imprint on one client"

    @property
    def adaptive(self) -> str:
        """Return what the attacker sends, and to whom."""
        to = "all" if self.target is None else "one client, to others a blank model"
        return f"{self.bins} bins of {self.measurements} measurements, to {to}"

    def cases(self, suite: str) -> Iterable[Case]:
        """Return sums of few and of many clients, with and without noise."""
        return cases_of(suite, self.target is not None, self.bins)

    def craft(self, view: RoundsView, rng: np.random.Generator) -> Crafted:
        """Craft the model that sorts images.

        Parameters
        ----------
        view : RoundsView
        rng : numpy.random.Generator
            Draws the measurements.

        Returns
        -------
        Crafted
        """
        images = auxiliary(view)
        share = width_of(view, self.bins) // self.measurements
        spread = rng.normal(size=(self.measurements, images.shape[1])) / images.shape[1] ** 0.5
        levels = np.linspace(0, 1, share + 2)[:-2]
        knots = np.linspace(0, 1, min(KNOTS, share) + 1)
        cuts = [
            np.interp(levels, knots, np.quantile(images @ measured, knots)) for measured in spread
        ]
        # The lowest cut lies far below all images, so that the first bin has a lower end too.
        cuts = [np.concatenate([[cut[0] - 10 * np.ptp(cut)], cut[1:]]) for cut in cuts]
        weights = FAINT * np.repeat(spread, share, axis=0)
        biases = -FAINT * np.concatenate(cuts)
        model, vector = crafted(view, weights, biases)
        if self.target is None:
            return Crafted(model, vector)
        # No unit of a blank model is ever active, so nothing but its last biases moves.
        _, blank = crafted(view, np.zeros_like(weights), np.full_like(biases, -1.0))
        return Crafted(model, vector, self.target, blank)

    def baseline(self, view: RoundsView, rng: np.random.Generator) -> Guess:
        """Guess as many auxiliary images as there are bins."""
        images = auxiliary(view)
        return Guess({"images": rng.permutation(images)[: width_of(view, self.bins)]})

    def run(self, view: RoundsView, rng: np.random.Generator) -> Guess:
        """Return the content of each bin, shape (bins, pixels)."""
        if view.totals is None:
            raise ValueError("the view holds no totals: no sum was opened")
        width = width_of(view, self.bins) // self.measurements * self.measurements
        slopes = slopes_of(view, view.totals[0])[:width]
        measured = slopes.reshape(self.measurements, -1, slopes.shape[1])
        inside = (measured - np.pad(measured, ((0, 0), (0, 1), (0, 0)))[:, 1:]).reshape(
            slopes.shape
        )
        # The bias' difference counts the bin's images; at zero the bin is empty, and guesses black.
        count = np.where(np.abs(inside[:, -1:]) < 1e-12, np.inf, inside[:, -1:])
        return Guess({"images": np.clip(inside[:, :-1] / count, 0.0, 1.0)})

    def _attacked(self, truth: Mapping[str, np.ndarray]) -> np.ndarray:
        if self.target is None:
            return super()._attacked(truth)
        return super()._attacked({"inputs": truth["inputs"][[self.target]]})


ATTACKS = (Imprint(), Imprint(measurements=1), Traps(), Imprint(target=0))
"""As the table lists them."""
