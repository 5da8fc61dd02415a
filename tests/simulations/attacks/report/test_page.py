"""The page of a suite: pictures where their data are, every figure, nothing unescaped."""

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from zerosum.simulations.attacks.harness.interface import Case, Defense, Metric, ThreatModel
from zerosum.simulations.attacks.harness.metrics import Mean, Proportion, Ranking
from zerosum.simulations.attacks.harness.play import Cell, Outcome
from zerosum.simulations.attacks.harness.results import rows_of
from zerosum.simulations.attacks.report.page import grid_of, render, write_attack_report
from zerosum.simulations.attacks.report.pictures import roc_points

HOSTILE = '<script>alert("$x_{")</script> & "$'


SERVER = ThreatModel("curious server")


@dataclass(frozen=True)
class _Named:
    """Stands for an attack, or for a setting."""

    name: str
    metrics: tuple = ()
    adaptive: str = "knows all"
    threat: ThreatModel = SERVER


Named: Any = _Named
"""Neither plays, so it is neither to a type checker."""


def page(attack, cases, units, pictures=None, epsilon=math.inf):
    """Return the page of a suite of one attack, two seeds."""
    cells = [Cell(attack, case) for case in cases]
    outcomes = [
        Outcome(n, seed, "value", "", units(n), units(n), epsilon, 1e-5, 0.1, pictures or {})
        for n in range(len(cells))
        for seed in (0, 1)
    ]
    return render(rows_of(cells, outcomes), outcomes, cells)


def case(at, setting="2 clients", protection="plain", **values):
    return Case(Named(setting), Defense(protection, **values), at)


def values(n, metric="PSNR"):
    return {metric: Mean(np.array([10.0, 11.0, 12.0]) + n)}


PSNR = Named("inversion", (Metric("PSNR", "dB"),))


@pytest.mark.parametrize(
    ("at", "title"),
    [
        ("sigma", "PSNR against noise"),
        ("cohort", "Recovery against cohort size"),
        ("noise", "Bits right against noise"),
    ],
)
def test_a_curve_is_drawn_where_cells_lie_on_its_axis_alone(at, title):
    drawn = page(PSNR, [case({at: 1.0}, "a"), case({at: 10.0}, "a", "b")], values)
    assert f"<h3>{title}: inversion</h3>" in drawn
    assert drawn.count('class="chart"') == 1
    assert page(PSNR, [case({}), case({}, "b")], values).count("<svg") == 0


def test_accuracy_and_success_are_drawn_against_scale_though_the_table_has_one_line():
    attack = Named("replacement", (Metric("main accuracy"), Metric("attack success")))
    both = {name: Proportion(np.array([True, False])) for name in ("main accuracy",)}
    both["attack success"] = Proportion(np.array([True, True]))
    drawn = page(attack, [case({"scale": s}) for s in (1.0, 5.0)], lambda n: both)
    assert "Accuracy and attack success against scale: replacement" in drawn


def test_a_curve_says_the_epsilon_of_its_points():
    noised = case({"sigma": 0.1}, noise="local", sigma=0.1, clip=1.0, protection="local")
    drawn = page(PSNR, [case({"sigma": 0.0}), noised], values, epsilon=3.25)
    assert "not masked, local noise: 3.25 at 0, 3.25 at 0.1" in drawn


def test_rankings_become_curves_of_members_found():
    labels = np.arange(40) % 2 == 0
    units = {"AUC": Ranking(np.arange(40.0), labels)}
    drawn = page(Named("membership", (Metric("AUC"),)), [case({})], lambda n: units)
    assert "<h3>Members found: membership</h3>" in drawn


def test_points_of_a_curve_take_equal_scores_together():
    scores = np.array([3.0, 2.0, 2.0, 1.0])
    false, true = roc_points(Ranking(scores, np.array([True, True, False, False])))
    assert false.tolist() == [0, 0, 0.5, 1]
    assert true.tolist() == [0, 0.5, 1, 1]


def test_images_are_shown_truth_above_guess_one_grid_a_cell():
    pairs = np.zeros((3, 2, 4, 4))
    pairs[:, 0] = 1.0
    drawn = page(PSNR, [case({}), case({}, "b")], values, {"reconstruction": pairs})
    assert drawn.count("data:image/png;base64,") == 2
    assert "Above the true image, below the guess" in drawn
    grid = grid_of(pairs)
    height = grid.shape[0] // 2
    assert grid.dtype == np.uint8
    assert grid[:height].max() == 255
    assert grid[height:].min() == 0
    assert (grid[height:] != 255).all()


def test_values_outside_of_an_image_are_clipped_and_gaps_are_grey():
    pairs = np.full((1, 2, 2, 2), np.nan)
    pairs[0, 0] = [[-5.0, 9.0], [0.0, 1.0]]
    assert set(np.unique(grid_of(pairs))) == {0, 128, 255}


def test_every_figure_is_in_the_table_with_interval_baseline_and_epsilon():
    drawn = page(PSNR, [case({})], values, epsilon=2.5)
    assert "at baseline (11 dB [10.1, 11.9])" in drawn
    assert re.search(r'data-label="Epsilon"[^>]*><div>2.5</div>', drawn)


def test_a_cell_without_a_value_says_why():
    cell = Cell(PSNR, case({"sigma": 1.0}))
    outcomes = [Outcome(0, seed, "not applicable", "the view holds no totals") for seed in (0, 1)]
    drawn = render(rows_of([cell], outcomes), outcomes, [cell])
    assert "not applicable: the view holds no totals" in drawn
    assert "<svg" not in drawn


def test_hostile_names_are_text_everywhere():
    attack = Named(HOSTILE, (Metric(HOSTILE, HOSTILE),), adaptive=HOSTILE)
    pairs = {"reconstruction": np.zeros((1, 2, 3, 3))}
    cases = [case({"cohort": c}, HOSTILE, HOSTILE + str(c)) for c in (1.0, 2.0)]
    drawn = page(attack, cases, lambda n: values(n, HOSTILE), pairs)
    assert drawn.count("<script") == 1  # the page's own, which its policy names by a hash
    assert "&lt;script&gt;" in drawn
    labels = np.arange(4) % 2 == 0
    ranked = {HOSTILE: Ranking(np.arange(4.0), labels)}
    assert page(attack, cases, lambda n: ranked).count("<script") == 1


def test_the_page_is_one_file_that_loads_nothing(tmp_path):
    cells = [Cell(PSNR, case({"sigma": s}, protection=str(s))) for s in (0.0, 1.0)]
    outcomes = [Outcome(n, 0, "value", "", values(n), values(n), 1.0, 1e-5) for n in (0, 1)]
    path = write_attack_report(tmp_path, rows_of(cells, outcomes), outcomes, cells)
    text = path.read_text(encoding="utf-8")
    assert path.name == "report.html"
    assert "default-src 'none'" in text
    assert not re.search(r'(?:src|href)="(?!data:|#)', text)
