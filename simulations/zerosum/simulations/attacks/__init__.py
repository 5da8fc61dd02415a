"""Attack experiments: what leaks, what each protection stops, and what it does not.

``docs/attacks.md`` says how to read the table, and how an attack of one's own is written.
"""

from zerosum.simulations.attacks.harness.interface import (
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
from zerosum.simulations.attacks.harness.metrics import (
    Figure,
    Mean,
    Proportion,
    Ranking,
    Units,
    psnr,
)
from zerosum.simulations.attacks.harness.play import Cell, Outcome, play
from zerosum.simulations.attacks.harness.play_all import play_all
from zerosum.simulations.attacks.harness.results import Row, rows_of
from zerosum.simulations.attacks.harness.sealed_view import UnsealedView, sealed
from zerosum.simulations.attacks.settings.rounds import Crafted, RoundsSetting, RoundsView

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
