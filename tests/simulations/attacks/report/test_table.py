"""A row's words: its number of units, and whether so few could show anything."""

import csv
import io
from dataclasses import dataclass, replace
from typing import Any, ClassVar

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
from zerosum.simulations.attacks.harness.metrics import Mean, Proportion
from zerosum.simulations.attacks.harness.play import Cell, Outcome
from zerosum.simulations.attacks.harness.play_all import play_all
from zerosum.simulations.attacks.harness.results import rows_of, strongest, to_csv
from zerosum.simulations.attacks.harness.significance import is_above
from zerosum.simulations.attacks.report.table import (
    baseline_text,
    count_text,
    figure_text,
    notes_of,
    to_markdown,
    value_text,
)


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


@dataclass(frozen=True)
class Scored:
    """Stands for an attack of any metric."""

    metrics: tuple[Metric, ...]
    name: str = "scored"
    adaptive: str = ""
    threat: ClassVar[ThreatModel] = ThreatModel("outsider")


def pooled(units, seeds=1):
    attack = Certain(units)
    cells = [Cell(attack, case) for case in attack.cases("quick")]
    return rows_of(cells, play_all(cells, range(seeds), 1))[-1]


@pytest.mark.parametrize("units", [1, 2])
def test_fewer_than_three_units_say_nothing(units):
    row = pooled(units)
    assert figure_text(row) == row.verdict == "too few units"
    assert (value_text(row), baseline_text(row), count_text(row)) == ("", "–", str(units))
    (line,) = csv.DictReader(io.StringIO(to_csv([row])))
    assert (line["verdict"], line["at_baseline"], line["value"]) == ("too few units", "", "1")


def test_two_units_say_nothing_though_a_test_calls_them_significant():
    """Two images at 100.0 and 100.1 dB against 10 dB: Student's test alone is sure of them."""
    good, poor = Mean(np.array([100.0, 100.1])), Mean(np.array([10.0, 10.0]))
    assert is_above([good], [poor], True, np.random.default_rng(0))
    cell = Cell(Certain(), Case(Nothing(), Defense("plain")))
    units = {"right": good}, {"right": poor}
    two = [Outcome(0, 0, "value", "", *units)]
    assert {row.verdict for row in rows_of([cell], two)} == {"too few units"}
    four = [*two, Outcome(0, 1, "value", "", *units)]  # the control: two seeds are four units
    assert rows_of([cell], four)[-1].verdict == "above baseline"


def test_three_units_say_something():
    assert figure_text(pooled(3)).startswith("1 [")
    assert pooled(3).verdict == "above baseline"


def test_what_says_nothing_is_not_the_strongest():
    sure, few = pooled(3), replace(pooled(2), adaptive="other", value=5.0)
    assert strongest([few, sure], {("certain", "right"): True}) == [sure]
    assert strongest([replace(few, count=3), sure], {("certain", "right"): True})[0].value == 5.0


@pytest.mark.parametrize(
    ("status", "above", "verdict"),
    [
        ("failed", None, "failed"),
        ("not applicable", None, "not applicable"),
        ("stopped", False, "at baseline"),
        ("partly failed", True, "above baseline"),
        ("partly failed", False, "partly failed"),
        ("partly stopped", False, "at baseline"),
        ("partly not played", False, "partly not played"),
    ],
)
def test_a_cell_that_failed_in_part_is_never_called_protected(status, above, verdict):
    row = replace(pooled(3), status=status, at_baseline=above is False)
    row = row if above is not None else replace(row, value=None, count=0)
    assert row.verdict == verdict


@pytest.mark.parametrize(
    ("metric", "value", "baseline", "advantage"),
    [
        (Metric("right"), 0.75, 0.5, 0.5),
        (Metric("right", higher=False), 0.25, 0.5, 0.5),
        (Metric("right"), 0.25, 0.5, 0.0),
        (Metric("dB", whole=40.0), 26.0, 12.0, 0.5),
        (Metric("dB", whole=40.0), 113.0, 12.0, 1.0),
        (Metric("dB"), 26.0, 12.0, None),
        (Metric("accuracy", higher=False, whole=0.0), 0.2, 0.8, 0.75),
    ],
)
def test_advantage_is_the_part_of_the_way_to_complete_success(metric, value, baseline, advantage):
    fraction = metric.name == "right"

    def units(figure):
        if fraction:
            return Proportion(np.arange(100) < 100 * figure)
        return Mean(np.full(5, figure))

    attack: Any = Scored((metric,))
    cell = Cell(attack, Case(Nothing(), Defense("plain")))
    outcome = Outcome(
        0, 0, "value", "", {metric.name: units(value)}, {metric.name: units(baseline)}
    )
    found = rows_of([cell], [outcome])[-1].advantage
    assert found == (None if advantage is None else pytest.approx(advantage))


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


def noted(*notes):
    rows = pooled([Proportion(np.array([True] * 3))])
    return notes_of([replace(rows, note=note, status="value") for note in notes])


def test_notes_that_differ_in_their_cost_alone_stand_once():
    cost = "LiRA: a seed's reference models were trained in {} CPU s, which are not in it"
    seconds = ("5", "1,041", "12")
    assert noted(*map(cost.format, seconds)) == [cost.format("5 to 1,041")]
    assert noted(cost.format("5"), cost.format("5")) == [cost.format("5")]
    # What differs in anything else is another note.
    assert noted("28 bits: 4 CPU s", "32 bits: 4 CPU s", "") == [
        "28 bits: 4 CPU s",
        "32 bits: 4 CPU s",
    ]
