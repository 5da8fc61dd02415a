"""What malicious clients are after, ruin or a backdoor: what is scored, and where it is played.

Masks do nothing here: they protect clients from the server, not the server from clients, and keep
it from seeing who sent what. So each rule but the mean is refused under masks, and what is left is
each client's own clip. It binds a client that lies about its data, its training or its update and
runs this library's code; one whose code is its own sends what it likes, within the server's check
of the sum: no coordinate beyond n times the encoding's range.
"""

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

MAIN = Metric("main accuracy", higher=False)
SUCCESS = Metric("attack success")

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
    """The mean, over seeds, of a part of all records: no end of its interval leaves [0, 1]."""

    def figure(self) -> Figure:
        """Return the mean and Student's interval, cut to what is possible."""
        found = super().figure()
        return Figure(found.value, max(0.0, found.low), min(1.0, found.high))


@dataclass(frozen=True)
class Poisoning:
    """What all attacks by malicious clients share.

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

    def baseline(self, view: View, rng: np.random.Generator) -> Guess:
        """Do nothing: the same run, had these clients been honest, is scored."""
        return Guess({})

    def run(self, view: PoisonView, rng: np.random.Generator) -> Guess:
        """Return the model that came of it."""
        refused = f"the server refused {view.abandoned} of {view.rounds} sums"
        values = {} if view.final is None else {"model": view.final}
        return Guess(values, refused if view.abandoned else "")

    def protections(self, suite: str) -> tuple[Defense, ...]:
        """Return the columns: code of one's own matters where there is a clip."""
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
    """Attacks after which a model is good for nothing."""

    metrics: ClassVar[tuple[Metric, ...]] = (MAIN,)

    def score(self, guess: Guess, truth: Mapping[str, np.ndarray]) -> Mapping[str, Share]:
        """Return the accuracy on test records."""
        return {MAIN.name: accuracy(guess, truth)}


def honest_updates(view: PoisonView) -> np.ndarray:
    """Return what malicious clients would have sent, float64, shape (k, d).

    Raises
    ------
    ValueError
        After the run: there is none.
    """
    if view.honest is None:
        raise ValueError("the run is over: nothing is sent any more")
    return view.honest


def accuracy(guess: Guess, truth: Mapping[str, np.ndarray]) -> Share:
    """Return the accuracy of the model that came of an attack, or of the one without it."""
    right = classes(guess, truth, truth["inputs"]) == truth["labels"]
    return Share(np.array([right.mean()]))


def classes(guess: Guess, truth: Mapping[str, np.ndarray], inputs: np.ndarray) -> np.ndarray:
    """Return the class that the model gives each record, int64, shape (n,)."""
    model = guess.values.get("model", truth["without"])
    return predicted(model, inputs, int(truth["hidden"]), int(truth["classes"]))
