"""Attack experiments: what leaks, what each protection stops, and what it does not.

``docs/attacks.md`` says how to read the table, and how an attack of one's own is written.
"""

from zerosum.simulations.attacks.harness import play_all
from zerosum.simulations.attacks.interface import (
    Attack,
    Case,
    Guess,
    Metric,
    Protection,
    Scene,
    Setting,
    ThreatModel,
    View,
)
from zerosum.simulations.attacks.measures import Figure, Mean, Proportion, Ranking, Units, psnr
from zerosum.simulations.attacks.playing import Cell, Outcome, play
from zerosum.simulations.attacks.results import Row, rows_of
from zerosum.simulations.attacks.rounds import Crafted, RoundsSetting, RoundsView
from zerosum.simulations.attacks.sealing import UnsealedView, sealed

__all__ = [
    "Attack",
    "Case",
    "Cell",
    "Crafted",
    "Figure",
    "Guess",
    "Mean",
    "Metric",
    "Outcome",
    "Proportion",
    "Protection",
    "Ranking",
    "RoundsSetting",
    "RoundsView",
    "Row",
    "Scene",
    "Setting",
    "ThreatModel",
    "Units",
    "UnsealedView",
    "View",
    "play",
    "play_all",
    "psnr",
    "rows_of",
    "sealed",
]
