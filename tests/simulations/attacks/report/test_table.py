"""A row's words: its number of units, and whether so few could show anything."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from zerosum.simulations.attacks.harness.interface import (
    Case,
    Defense,
    Guess,
    Metric,
    Scene,
    ThreatModel,
    View,
)
from zerosum.simulations.attacks.harness.metrics import Proportion
from zerosum.simulations.attacks.harness.play import Cell
from zerosum.simulations.attacks.harness.play_all import play_all
from zerosum.simulations.attacks.harness.results import rows_of
from zerosum.simulations.attacks.report.table import count_text, figure_text, to_markdown


@dataclass(frozen=True)
class Nothing:
    name: str = "nothing"

    def play(self, attack, protection, seed):
        return Scene(View(attack.threat, protection), {}, None)


@dataclass(frozen=True)
class Certain:
    """Is right of so many units of whom the blind guess is right of none."""

    units: int = 2

    name: ClassVar[str] = "certain"
    adaptive: ClassVar[str] = ""
    threat: ClassVar[ThreatModel] = ThreatModel("outsider")
    requires: ClassVar[tuple[str, ...]] = ()
    metrics: ClassVar[tuple[Metric, ...]] = (Metric("right"),)

    def cases(self, suite):
        return [Case(Nothing(), Defense("plain"))]

    def baseline(self, view, rng):
        return Guess({"right": np.zeros(self.units, bool)})

    def run(self, view, rng):
        return Guess({"right": np.ones(self.units, bool)})

    def score(self, guess, truth):
        return {"right": Proportion(guess["right"])}


def pooled(units, seeds=1):
    attack = Certain(units)
    cells = [Cell(attack, case) for case in attack.cases("quick")]
    return rows_of(cells, play_all(cells, range(seeds), 1))[-1]


@pytest.mark.parametrize(("units", "starts"), [(1, "too few"), (2, "too few"), (3, "1 [")])
def test_two_units_are_too_few_to_tell_and_not_at_baseline(units, starts):
    assert figure_text(pooled(units)).startswith(starts)


def test_units_of_all_seeds_are_counted():
    row = pooled(400, seeds=3)
    assert count_text(row) == "1,200"
    assert "| 1,200 | 0 |" in to_markdown([row], "Attacks", "")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"masking": "triple"}, "masking\n.*'none', 'single' or 'double'.*'triple'"),
        ({"masking": "None"}, "masking\n.*'None'"),
        ({"noise": 0.1}, "noise\n.*'none', 'local', 'distributed' or 'central'.*0.1"),
        ({"noise": "Local"}, "noise\n.*'Local'"),
    ],
)
def test_a_protection_of_unknown_words_is_refused(given, said):
    with pytest.raises(ValueError, match=said):
        Defense("x", **given)
