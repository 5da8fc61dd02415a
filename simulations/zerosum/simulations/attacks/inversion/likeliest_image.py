"""One client's image by likelihood: noise that ends matching still leaves a class and its shape.

Where an update's noise is as large as what an image moves, no image matches it better than another;
auxiliary images of each class say which of those that match there are: see
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
    """Weighs labels, and images of each, by the noisy slope of the first layer.

    Attributes
    ----------
    turns : int
        In which an image and where its update points are fitted, for each label.
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
        """Weigh the images of each update that was seen."""
        classes = Classes.of(view)
        found = [
            image_in(view, slopes_of(view, each.vector), each.noise_std, self.turns, classes)[1]
            for each in observed(view)
        ]
        return guessed(view, np.array(found))


ATTACKS = (LikeliestImage(),)
"""As the table has them, beside the others of gradient inversion."""
