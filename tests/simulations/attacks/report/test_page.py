"""The page of a suite: pictures where their data are, every figure, nothing unescaped."""

import itertools
import math
import re
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
import pytest

from zerosum.simulations.attacks.harness.interface import Case, Defense, Metric, ThreatModel
from zerosum.simulations.attacks.harness.metrics import Mean, Proportion, Ranking
from zerosum.simulations.attacks.harness.play import Cell, Outcome
from zerosum.simulations.attacks.harness.results import rows_of
from zerosum.simulations.attacks.report.page import render, write_attack_report
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
    assert drawn.count('class="chart named"') == 1
    assert 'class="chart' not in page(PSNR, [case({}), case({}, "b")], values)


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


def test_the_true_images_stand_once_before_all_guesses_of_them():
    pairs = np.zeros((3, 2, 4, 4))
    pairs[:, 0] = 1.0
    drawn = page(PSNR, [case({}), case({}, protection="b")], values, {"reconstruction": pairs})
    assert drawn.count('alt="target"') == 3
    assert drawn.count("data:image/png;base64,") == 3 * (1 + 2)


def test_an_attack_of_ones_own_gets_sentence_matrix_forest_and_picture():
    pairs = {"labels held": np.zeros((1, 2, 3, 5))}
    drawn = page(Named("mine", (Metric("hits"),)), [case({})], lambda n: values(n, "hits"), pairs)
    for heading in ("In a sentence", "Attack by protection", "What is reconstructed",
                    "How sure the figures are"):  # fmt: skip
        assert f"<h2>{heading}</h2>" in drawn
    assert "<h3>mine: labels held <small>2 clients</small></h3>" in drawn
    assert drawn.count('<figure class="plot forest"><h3>mine</h3>') == 1
    assert re.search(r'rowheader">mine<small>curious server', drawn)


def test_every_figure_is_in_the_table_with_interval_baseline_and_epsilon():
    drawn = page(PSNR, [case({})], values, epsilon=2.5)
    assert "at baseline in 2 seeds (11 dB [10.1, 11.9])" in drawn
    assert re.search(r'data-label="Epsilon"[^>]*><div>2.5</div>', drawn)


def test_a_cell_without_a_value_says_why():
    cell = Cell(PSNR, case({"sigma": 1.0}))
    outcomes = [Outcome(0, seed, "not applicable", "the view holds no totals") for seed in (0, 1)]
    drawn = render(rows_of([cell], outcomes), outcomes, [cell])
    assert "not applicable: the view holds no totals" in drawn
    assert '<circle cx="12"' in drawn  # the legend's
    assert not re.search(r'<circle cx="[^"]*%', drawn)
    assert '<span class="chip na"' in drawn


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


def light(colour):
    """Return the relative luminance of a colour (WCAG 2.2)."""
    part = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def ratio(one, other):
    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


def test_steps_of_the_matrix_are_told_apart_by_lightness_and_their_text_is_read():
    """Lightness is what every kind of colour vision sees."""
    style = resources.files("zerosum.simulations.attacks.report") / "templates" / "attacks.css"
    lines = [x for x in style.read_text(encoding="utf-8").split("\n") if ":root {" in x]
    assert len(lines) == 2  # light and dark
    for line in lines:
        ink = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", line))
        steps = [ink[f"adv{n}"] for n in (1, 2, 3, 4)]
        order = [light(each) for each in steps]
        assert order in (sorted(order), sorted(order, reverse=True))
        assert min(ratio(a, b) for a, b in itertools.pairwise(steps)) > 1.25
        assert min(ratio(ink["adv-ink"], each) for each in steps[:3]) >= 4.5
        assert ratio(ink["adv4-ink"], steps[3]) >= 4.5
        assert ratio(ink["adv-ink"], steps[3]) < ratio(ink["adv4-ink"], steps[3])  # the control
