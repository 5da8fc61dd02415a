"""Average repeated answers: fresh noise falls with the square root of their number.

A server asks each client the same question again and again and averages the answers. The noise of k
answers has the standard deviation sigma C / sqrt(k) (Dwork and Roth 2014, "The algorithmic
foundations of differential privacy", section 1.2: overly accurate answers to too many questions).
A client's budget ends the averaging; the noise decides what the given answers reveal.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from zerosum.client.spec import ModelSpec
from zerosum.simulations.attacks.harness.interface import (
    Case,
    Defense,
    Guess,
    Metric,
    ThreatModel,
)
from zerosum.simulations.attacks.harness.metrics import Mean, Proportion, Units, psnr
from zerosum.simulations.attacks.inversion.first_layer import slopes_of
from zerosum.simulations.attacks.inversion.gradient_cases import CLIP
from zerosum.simulations.attacks.inversion.label_and_image import Classes, image_in
from zerosum.simulations.attacks.inversion.pixel_levels import LEVELS, Frequencies, levels_of
from zerosum.simulations.attacks.inversion.reconstruction import CLEAR_DB, auxiliary
from zerosum.simulations.attacks.settings.rounds import RoundsSetting, RoundsView

SURE = 3.3
"""Standard deviations of a Gaussian that contain 999 of 1,000 pixels."""


def local_noise(sigma: float, budget: int | None = None) -> Defense:
    """Return local noise, and a client's budget of answers.

    Parameters
    ----------
    sigma : float
        Standard deviation in a coordinate of each answer, in clips.
    budget : int, optional
        Answers after which a client declines; default no end.

    Returns
    -------
    Defense
    """
    ends = "" if budget is None else f", budget of {budget}"
    name = f"local noise {sigma:g} C{ends}"
    return Defense(name, clip=CLIP, noise="local", sigma=sigma, budget=budget)


def repeated_question(count: int) -> RoundsSetting:
    """Return two clients with one image each, asked so many times."""
    return RoundsSetting(clients=2, rounds=count, task="digits", model=ModelSpec(name="linear"))


@dataclass(frozen=True)
class Repetition:
    """Average each client's answers, and solve for its label and image.

    Attributes
    ----------
    turns : int
        Alternations in which an image and its update are fitted to the average, for each label.
    """

    turns: int = 5

    name: ClassVar[str] = "averaging repeated answers"
    adaptive: ClassVar[str] = (
        "solves for the first layer's input, expects the noise and pixels' levels"
    )
    threat: ClassVar[ThreatModel] = ThreatModel(
        "malicious server", knows=frozenset({"clip", "sigma", "auxiliary data"}), rounds=1000
    )
    requires: ClassVar[tuple[str, ...]] = (
        "contributions",
        "auxiliary_inputs",
        "auxiliary_labels",
    )
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("pixels recovered"),
        Metric("PSNR", "dB", whole=CLEAR_DB),
    )

    def cases(self, suite: str) -> Iterable[Case]:
        """Yield more and more answers, and a budget that ends them, with more and more noise."""
        full = suite == "full"
        for count in (1, 20, 100, 500, 2000, 10_000) if full else (1, 20, 1000):
            for sigma in (0.1, 1.0) if full else (0.1,):
                yield Case(
                    repeated_question(count), local_noise(sigma), {"rounds": count, "sigma": sigma}
                )
        most = 2000 if full else 1000
        for sigma in (0.1, 1.0, 3.0, 10.0) if full else (0.1, 1.0, 10.0):
            yield Case(
                repeated_question(most),
                local_noise(sigma, budget=20),
                {"rounds": most, "sigma": sigma},
            )

    def baseline(self, view: RoundsView, rng: np.random.Generator) -> Guess:
        """Guess each pixel's most frequent level, and the mean image."""
        images = auxiliary(view)
        blind = Frequencies.of(images).usual(), images.mean(axis=0)
        levels, means = (np.tile(values, (view.clients, 1)) for values in blind)
        return Guess({"levels": levels, "images": means})

    def run(self, view: RoundsView, rng: np.random.Generator) -> Guess:
        """Average the answers, solve for the images, and decode pixels."""
        if view.contributions is None:
            raise ValueError("the view holds no contributions: the server sees sums alone")
        answers = len(view.contributions)
        noise = view.noise_std / (view.clients * answers) ** 0.5
        classes = Classes.of(view)
        every = [
            image_in(view, slopes_of(view, average), noise, self.turns, classes)
            for average in view.contributions.mean(axis=0)
        ]
        levels, images, errors = (np.array(column) for column in zip(*every, strict=True))
        notes = _outlook(answers, float(np.median(errors)))
        return Guess({"levels": levels, "images": images}, notes)

    def score(self, guess: Guess, truth: Mapping[str, np.ndarray]) -> Mapping[str, Units]:
        """Return which pixels have exactly their level, and the image's PSNR."""
        true = truth["inputs"].reshape(guess["levels"].shape)
        hits = guess["levels"] == levels_of(true)
        decibels = psnr(guess["images"], true.astype(np.float64))
        return {"pixels recovered": Proportion(hits.ravel()), "PSNR": Mean(decibels)}


def _outlook(answers: int, error: float) -> str:
    """Return after how many answers nearly all pixels are right, as a note; empty if too far.

    A pixel is right where its error, ``error`` times a standard Gaussian, is below half a level.
    Extrapolated by more than tenfold, the estimate would be of the noise: it is left out.
    """
    needed = answers * (SURE * 2 * LEVELS * error) ** 2
    if needed > 10 * answers:
        return ""
    return (
        f"by 1/sqrt(k), 999 of 1,000 pixels are right after about {round(needed, -2):,.0f} answers"
    )


ATTACKS = (Repetition(),)
"""As the table lists them."""
