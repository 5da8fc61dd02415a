"""Compare all the noise of a run with all that its rounds can learn, and say where none is left.

Noise of T rounds has sqrt(T) times the norm of one round's; their signals have at most T clips, for
each is an average of vectors that are clipped. So a run is judged whole: more rounds at the same
noise help, and what a round looks like alone says little.

Two quotients are compared with measured runs (docs/privacy.md has the table):

* in one direction, the largest signal over the noise's deviation, sqrt(T) clip / std. A prediction
  is read off few directions, so it decides, whatever the number of parameters;
* over all coordinates, the noise's norm over the largest signal, norm / (clip sqrt(T)): many small
  parts of noise add up in layers, and end a wide model that each direction alone would let learn.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from zerosum.client.protocol.protection import Protection
from zerosum.client.spec import PrivacySpec
from zerosum.server.config import ConfigError
from zerosum.server.privacy.protections import planned_protections
from zerosum.server.sampling import expected_cohort
from zerosum.server.spec import Experiment

LEAST_SIGNAL: Final[Mapping[str, float]] = {"client": 25.0, "example": 75.0}
"""Deviations of the noise that the largest signal must be in one direction, by unit of privacy.

Measured: clients' updates learn at 38 and lose most at 19. Single gradients learn at 158 and lose
most at 60: their average is a small part of the clip, where whole updates are cut to it.
"""

MOST_NOISE: Final = 2.5
"""Norm of a run's noise, over the largest signal's, above which wide models were measured to fail.

Measured: models learn at 1.5 and 2.3, and a convolutional one fails at 3.0."""


@dataclass(frozen=True)
class RoundNoise:
    """Noise of one round's average.

    Attributes
    ----------
    std_contribution : float
        Deviation of a coordinate of one contribution's noise.
    std_sum, std_average : float
        Of the sum's; of the average's.
    norm_average : float
        Expected norm of the average's noise.
    clip : float
        Bound of one contribution's norm, and so of the average's signal.
    """

    std_contribution: float
    std_sum: float
    std_average: float
    norm_average: float
    clip: float

    def document(self) -> dict[str, float]:
        """Return what ``zerosum plan --json`` writes of it."""
        return {
            "std_contribution": self.std_contribution,
            "std_sum": self.std_sum,
            "std_average": self.std_average,
            "norm_average": self.norm_average,
            "norm_over_clip": self.norm_average / self.clip,
            "coordinate_over_clip": self.std_average / self.clip,
        }


@dataclass(frozen=True)
class WholeRun:
    """All rounds' noise beside the largest signal that they can have.

    Attributes
    ----------
    rounds : int
    direction : float
        Largest signal in one direction, in deviations of the noise.
    noise : float
        Norm of the noise over that of the largest signal.
    least : float
        Of ``direction``, with which something was seen to be learnt.
    """

    rounds: int
    direction: float
    noise: float
    least: float

    @property
    def margin(self) -> float:
        """Return how much more than needed the signal is, in the worse of the two quotients."""
        return min(self.direction / self.least, MOST_NOISE / self.noise if self.noise else math.inf)

    @property
    def hopeless(self) -> bool:
        """Return whether nothing, or little, is to be expected of the run."""
        return self.margin < 1

    @property
    def why_hopeless(self) -> str:
        """Say why; empty where there is hope."""
        if not self.hopeless:
            return ""
        rounds = f"{self.rounds:,} round{'s' * (self.rounds != 1)}"
        if self.direction < self.least:
            why = (
                f"if every update of all {rounds} pulled the same way, the model would move by "
                f"{_digits(self.direction)} deviations of its noise, and below {self.least:g} "
                "models were seen to fail"
            )
        else:
            why = (
                f"the noise of all {rounds} is {_digits(self.noise)} times as long as all they can "
                f"learn, and above {MOST_NOISE:g} times models were seen to fail"
            )
        return f"hopeless: {why}. Expect to learn little or nothing"


def round_noise(experiment: Experiment, population: int, dimension: int) -> RoundNoise:
    """Compute the noise of a round's average.

    Parameters
    ----------
    experiment : Experiment
        Checked, its noise resolved.
    population, dimension : int
        Clients; trainable parameters.

    Returns
    -------
    RoundNoise

    Raises
    ------
    ConfigError
        If nothing is clipped.
    """
    protection = planned_protections(experiment, population, dimension)["train"]
    return noise_of(experiment, protection, expected_cohort(experiment, population), dimension)


def noise_of(
    experiment: Experiment, protection: Protection, expected: int, dimension: int
) -> RoundNoise:
    """Compute the noise of a round's average from its protection.

    Parameters
    ----------
    experiment : Experiment
        Checked, its noise resolved.
    protection : Protection
        Of the training sum.
    expected, dimension : int
        Clients of a round; trainable parameters.

    Returns
    -------
    RoundNoise

    Raises
    ------
    ConfigError
        If nothing is clipped.
    """
    clip = experiment.privacy.clip
    if clip is None:
        raise ConfigError("privacy.clip = none: without a norm there is no noise to plan")
    groups = 1 if experiment.privacy.model == "central" else experiment.secagg.groups
    # Where nothing is topped up, the noise of those who are expected to be left.
    left = protection.cohort * (1 - experiment.secagg.dropout)
    whole = protection.std_of(left) * math.sqrt(groups)
    parts = experiment.privacy.lot if experiment.privacy.sums_gradients else None
    average = whole / (parts or expected)
    return RoundNoise(
        std_contribution=protection.std_contribution,
        std_sum=whole,
        std_average=average,
        norm_average=average * math.sqrt(dimension),
        clip=clip,
    )


def whole_run(noise: RoundNoise, rounds: int, privacy: PrivacySpec) -> WholeRun:
    """Judge a run by the noise of one of its rounds.

    Parameters
    ----------
    noise : RoundNoise
        The same in every round: a clip that adapts takes its noise along.
    rounds : int
    privacy : PrivacySpec
        Says whether single gradients are summed, or whole updates.

    Returns
    -------
    WholeRun
    """
    unit = "example" if privacy.sums_gradients else "client"
    return WholeRun(
        rounds=rounds,
        direction=math.inf
        if noise.std_average == 0
        else math.sqrt(rounds) * noise.clip / noise.std_average,
        noise=noise.norm_average / noise.clip / math.sqrt(rounds),
        least=LEAST_SIGNAL[unit],
    )


def planned_whole_run(experiment: Experiment, population: int, dimension: int) -> WholeRun | None:
    """Judge an experiment; None without noise.

    Parameters
    ----------
    experiment : Experiment
        Checked, its noise resolved.
    population, dimension : int
        Clients; trainable parameters.

    Returns
    -------
    WholeRun or None
    """
    if not experiment.privacy.private:
        return None
    noise = round_noise(experiment, population, dimension)
    return whole_run(noise, experiment.rounds, experiment.privacy)


def _digits(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
