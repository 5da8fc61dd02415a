"""Infer one client's image by likelihood, where noise is too large for gradient matching.

Where the noise of an update is as large as the image's effect, no image matches it better than
another. Auxiliary images of each class say which of the matching ones exist: see
:mod:`~.label_and_image`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from zerosum.simulations.attacks.harness.interface import Case, Guess
from zerosum.simulations.attacks.inversion.first_layer import slopes_of
from zerosum.simulations.attacks.inversion.gradient_cases import cases_of
from zerosum.simulations.attacks.inversion.label_and_image import Classes, image_in
from zerosum.simulations.attacks.inversion.reconstruction import Reconstruction, guessed, observed
from zerosum.simulations.attacks.settings.rounds import RoundsView


@dataclass(frozen=True)
class LikeliestImage(Reconstruction):
    """Weigh labels, and images of each, by the noisy gradient of the first layer.

    Attributes
    ----------
    turns : int
        Alternations in which an image and its update's direction are fitted, for each label.
    """

    turns: int = 3

    adaptive: ClassVar[str] = "label and image by likelihood, expects the noise"
    requires: ClassVar[tuple[str, ...]] = (
        "contributions",
        "auxiliary_inputs",
        "auxiliary_labels",
    )

    def cases(self, suite: str) -> Iterable[Case]:
        """Return one client's noisy updates."""
        return [case for case in cases_of(suite) if case.at["cohort"] == 1 and case.at["sigma"]]

    def run(self, view: RoundsView, rng: np.random.Generator) -> Guess:
        """Weigh the images of each observed update."""
        classes = Classes.of(view)
        images = [
            image_in(view, slopes_of(view, seen.vector), seen.noise_std, self.turns, classes)[1]
            for seen in observed(view)
        ]
        return guessed(view, np.array(images))


ATTACKS = (LikeliestImage(),)
"""As the table lists them, beside the others of gradient inversion."""
