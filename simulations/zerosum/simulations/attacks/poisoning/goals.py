"""Define the goals of malicious clients, ruin or backdoor: their scores, settings and defenses.

Masks do not help here. They protect clients from the server, not the server from clients, and they
hide who sent what. Every rule but the mean is therefore refused under masks, and each client's own
clip remains. The clip binds a client that runs this library's code and lies about its data, its
training or its update. A client with code of its own evades the clip. It is bounded only by the
server's check of the sum: no coordinate beyond n times the encoding's range.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from zerosum.simulations.attacks.harness.interface import (
    Case,
    Defense,
    Guess,
    Metric,
    ThreatModel,
    View,
)
from zerosum.simulations.attacks.harness.metrics import Figure, Mean
from zerosum.simulations.attacks.poisoning.malicious import PoisonView, predicted
from zerosum.simulations.attacks.poisoning.poisoned import PoisonedSetting

MAIN = Metric("main accuracy", higher=False, whole=0.0, counts=False)
SUCCESS = Metric("attack success", whole=1.0)

CLIP = 1.0
"""About the norm of an honest update in these settings."""

NO_DEFENSE = Defense("plain")
MASKED_SUM = Defense("masked", masking="double")
MASKED_AND_CLIPPED = Defense("masked + client clip", masking="double", clip=CLIP)
NOISED = Defense(
    "masked + distributed noise", masking="double", clip=CLIP, noise="distributed", sigma=0.1
)
LOCAL = Defense("local noise", clip=CLIP, noise="local", sigma=0.02)
RULES = tuple(
    Defense(name, rule=rule)
    for name, rule in {
        "median": "median",
        "trimmed mean": "trimmed-mean",
        "Krum": "krum",
        "multi-Krum": "multi-krum",
        "Bulyan": "bulyan",
        "geometric median": "geometric-median",
        "FLTrust": "fltrust",
        "norm bound": "norm-bound",
    }.items()
)
REFUSED = Defense("masked + median", masking="double", rule="median")

PROTECTIONS = (NO_DEFENSE, MASKED_SUM, MASKED_AND_CLIPPED, NOISED, *RULES, REFUSED)

IID_CLIENTS = PoisonedSetting(lr=0.3, bound=CLIP)
"""Four of twenty, in each of ten rounds, clients alike."""

DIRICHLET_CLIENTS = replace(IID_CLIENTS, partition="dirichlet")
"""Where honest updates differ there is more room to hide in."""

LARGER = (
    replace(IID_CLIENTS, malicious=1),
    replace(IID_CLIENTS, malicious=2),
    replace(IID_CLIENTS, clients=50, malicious=10, root=80),
)
"""For the full suite."""


MEANS = (NO_DEFENSE.name, MASKED_SUM.name, MASKED_AND_CLIPPED.name, NOISED.name, "norm bound")
"""Columns in which nothing is left out of a mean, at most cut."""

CLIPS = "clipped where clients clip"
"""What an attacker says of the clip that runs this library's code."""

OWN_CODE = "its own code leaves any clip out"


@dataclass(frozen=True)
class Share(Mean):
    """Estimate the mean, over seeds, of a fraction of records; its interval stays within [0, 1]."""

    def figure(self) -> Figure:
        """Return the mean and Student's interval, cut to what is possible."""
        found = super().figure()
        return Figure(found.value, max(0.0, found.low), min(1.0, found.high))


@dataclass(frozen=True)
class Poisoning(ABC):
    """Define what all attacks by malicious clients share: threat, columns, cells and baseline.

    Attributes
    ----------
    own_code : bool
        Whether the malicious clients' code is their own, and so nothing clips what they send.
    only : tuple of str
        Columns that the quick suite plays, by name; empty for all. Of variants that share a name
        each has those in which it did best on seeds 100 to 103, which are not reported.
    """

    own_code: bool = False
    only: tuple[str, ...] = ()

    quick: ClassVar[tuple[PoisonedSetting, ...]] = (IID_CLIENTS,)
    requires: ClassVar[tuple[str, ...]] = ("final",)
    threat: ClassVar[ThreatModel] = ThreatModel(
        "malicious client", colluders=4, knows=frozenset({"learning rate", "steps", "clip"})
    )

    def units_of_seed(self, setting: object) -> int:
        """Return how many units a seed has: one run."""
        return 1

    def baseline(self, view: View, rng: np.random.Generator) -> Guess:
        """Do nothing: the same run, had these clients been honest, is scored."""
        return Guess({})

    def run(self, view: PoisonView, rng: np.random.Generator) -> Guess:
        """Return the model at the end of the attacked run."""
        refused = f"the server refused {view.abandoned} of {view.rounds} sums"
        values = {} if view.final is None else {"model": view.final}
        return Guess(values, refused if view.abandoned else "")

    @abstractmethod
    def craft(self, view: PoisonView, rng: np.random.Generator) -> np.ndarray:
        """Craft the malicious clients' updates of one round.

        Parameters
        ----------
        view : PoisonView
            Sealed; ``honest`` holds what these clients would have sent.
        rng : numpy.random.Generator
            All randomness of the attack.

        Returns
        -------
        ndarray of float64
            Shape (k, d): a row a malicious client, before its own clip.
        """

    def protections(self, suite: str) -> tuple[Defense, ...]:
        """Return the columns; own code matters only where clients clip."""
        if self.own_code:
            return (replace(MASKED_AND_CLIPPED, name=f"{MASKED_AND_CLIPPED.name}, own code"),)
        if suite != "quick":
            return (*PROTECTIONS, LOCAL)
        return tuple(one for one in PROTECTIONS if not self.only or one.name in self.only)

    def cases(self, suite: str) -> Iterable[Case]:
        """Return the cells."""
        settings = self.quick if suite == "quick" else (IID_CLIENTS, DIRICHLET_CLIENTS, *LARGER)
        return [Case(where, one) for where in settings for one in self.protections(suite)]


@dataclass(frozen=True)
class Ruin(Poisoning):
    """Score attacks that destroy the model's accuracy."""

    metrics: ClassVar[tuple[Metric, ...]] = (MAIN,)

    def score(self, guess: Guess, truth: Mapping[str, np.ndarray]) -> Mapping[str, Share]:
        """Return the accuracy on test records."""
        return {MAIN.name: accuracy(guess, truth)}


def honest_updates(view: PoisonView) -> np.ndarray:
    """Return the updates that the malicious clients would have sent, had they been honest.

    Parameters
    ----------
    view : PoisonView

    Returns
    -------
    ndarray of float64
        Shape (k, d).

    Raises
    ------
    ValueError
        If the run is over: the view of its end holds none.
    """
    if view.honest is None:
        raise ValueError("the view holds no honest updates, for the run is over: craft during it")
    return view.honest


def accuracy(guess: Guess, truth: Mapping[str, np.ndarray]) -> Share:
    """Return the test accuracy of the attacked model, or of the unattacked one for a baseline.

    Parameters
    ----------
    guess : Guess
        With "model", float32, shape (d,); without it, the unattacked model of the truth is scored.
    truth : mapping of str to ndarray
        Of :class:`~.poisoned.PoisonedSetting`.

    Returns
    -------
    Share
    """
    right = classes(guess, truth, truth["inputs"]) == truth["labels"]
    return Share(np.array([right.mean()]))


def classes(guess: Guess, truth: Mapping[str, np.ndarray], inputs: np.ndarray) -> np.ndarray:
    """Return the class that the guessed model, or the unattacked one, predicts for each record.

    Parameters
    ----------
    guess : Guess
        As of :func:`accuracy`.
    truth : mapping of str to ndarray
        Of :class:`~.poisoned.PoisonedSetting`.
    inputs : ndarray of float32
        Shape (n, c, h, w).

    Returns
    -------
    ndarray of int64
        Shape (n,).
    """
    model = guess.values.get("model", truth["without"])
    return predicted(model, inputs, int(truth["hidden"]), int(truth["classes"]))
