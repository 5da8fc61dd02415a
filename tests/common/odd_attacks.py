"""Attacks in whose way something comes: modules that other processes can import."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from zerosum.simulations.attacks import (
    Case,
    Defense,
    Guess,
    Metric,
    Proportion,
    Scene,
    ThreatModel,
    View,
)

BITS = 64
SETTINGS, PROTECTIONS = ("a", "b", "c"), ("first", "odd", "last")


@dataclass(frozen=True)
class BitsView(View):
    bits: np.ndarray | None = None
    where: str = ""


@dataclass(frozen=True)
class Bits:
    """Private bits, which are seen; the process may end where they are drawn."""

    name: str
    ends: bool = False

    def play(self, attack, protection, seed):
        if self.ends:
            os._exit(7)
        bits = np.random.default_rng(seed).random(BITS) < 0.5
        view = BitsView(attack.threat, protection, bits=bits, where=self.name)
        return Scene(view, {"bits": bits}, float("inf"))


class Unsendable(Proportion):
    def __reduce__(self):
        raise TypeError("this stays where it is")


class Unreadable(Proportion):
    def __reduce__(self):
        return _refuse, ()


def _refuse():
    raise LookupError("nobody reads this")


SAID = "\x1b[31mred |\n# <b> \u202e"


def _raise(words):
    raise RuntimeError(words)


def _once(what):
    """Do something the first time, wherever: a file in the current folder tells."""
    if not os.path.exists("done once"):
        open("done once", "w").close()
        what()


def _interrupt():
    raise KeyboardInterrupt


def _sleep_on() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(60)


ENDS: dict[str, Callable[[], object]] = {
    "interrupt once": lambda: _once(_interrupt),
    "raise once": lambda: _once(lambda: _raise("broken this once")),
    "raise": lambda: _raise("broken on purpose"),
    "escape": lambda: _raise(SAID),
    "sleep": lambda: time.sleep(600),
    "deaf": _sleep_on,
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exit": lambda: os._exit(3),
}
KINDS = {"unsendable": Unsendable, "unreadable": Unreadable}


@dataclass(frozen=True)
class Odd:
    """Reads bits; against the protection "odd", in some settings, what ``what`` says happens."""

    what: str = "sleep"
    where: str = "a b c"
    name: str = "odd"
    adaptive: str = "reads"
    threat: ThreatModel = field(default_factory=lambda: ThreatModel("curious server"))
    requires: tuple[str, ...] = ("bits",)
    metrics: tuple[Metric, ...] = (Metric("bits right"),)

    def cases(self, suite):
        return [Case(Bits(name), Defense(one)) for name in SETTINGS for one in PROTECTIONS]

    def baseline(self, view, rng):
        return Guess({"bits": rng.random(BITS) < 0.5})

    def run(self, view, rng):
        odd = view.protection.name == "odd" and view.where in self.where
        if odd and self.what in ENDS:
            ENDS[self.what]()
        values = {"bits": view.bits, "kind": np.array(self.what if odd else "")}
        return Guess(values, SAID if self.what == "escape" else "")

    def score(self, guess, truth):
        kind = KINDS.get(str(guess.values.get("kind", "")), Proportion)
        return {"bits right": kind(guess["bits"] == truth["bits"])}
