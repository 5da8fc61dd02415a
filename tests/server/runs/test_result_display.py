"""A result is a line in a terminal and a table in a notebook, whatever its figures and names."""

import math
import re
from dataclasses import fields
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from zerosum.server.privacy.epsilon_bound import EpsilonBound, no_bound
from zerosum.server.runs.displays import curve, grid, panel
from zerosum.server.runs.records import RoundRecord, Summary
from zerosum.server.runs.results import Result

HOSTILE = "<script>alert(1)</script>\" onload='x' $\\href{a}{b}$ &amp; \x1b[31m\n\udc80 https://e.vil/a.png"
BOUND = EpsilonBound(2.5, 1e-5, 1e-9, "zero_out", "client", "sum", "pld", 3, ("masks hold",))
RELEASE = EpsilonBound(0.5, 1e-5, 1e-9, "zero_out", "client", "release", "pld", 3, ("it holds",))
LOCAL = no_bound("local", 1e-5, "no noise of its own", unit="client")
VOID = {"br", "circle", "line", "polyline"}


def best(value):
    return {"metric": "accuracy", "mode": "max", "round": 2, "value": value}


class Tags(HTMLParser):
    """Collects tags, and checks that each is closed."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.open: list[str] = []
        self.attributes: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def rounds(values, name="test_accuracy"):
    return [
        RoundRecord(round=number, status="completed", metrics={name: value})
        for number, value in enumerate(values, 1)
    ]


def result(summary, records=(), folder="runs/mine"):
    return Result(Path(folder), summary, list(records), {"weight": np.zeros((500, 500))})


def summary(**more):
    bounds = {"release": RELEASE, "sum": BOUND, "local": LOCAL}
    given = {"name": "mine", "rounds": 3, "protocol": "pairwise", "epsilon": bounds, "seconds": 1.5}
    return Summary(**{**given, "metrics": {"test_accuracy": 0.75, "test_loss": 0.5}, **more})


def test_a_result_is_one_short_line_with_metrics_epsilons_and_folder():
    shown = repr(result(summary(rounds_abandoned=1), rounds([0.5, 0.75])))
    assert shown == (
        "Result('mine', 2 rounds (1 abandoned), test_accuracy=0.7500, test_loss=0.5000, "
        "epsilon_release=0.5, epsilon_sum=2.5, folder='runs/mine')"
    )


def test_the_table_says_who_is_protected_against_whom_and_where_everything_is():
    page = Tags(result(summary(population=9), rounds([0.5, math.nan, 0.75]))._repr_html_())
    for said in (
        "test accuracy0.7500",
        "epsilon, release0.5 at delta 1e-05 each client, against outsiders, who see the models",
        "epsilon, sum2.5 at delta 1e-05 each client, against the server and fellow clients",
        "epsilon, localnone: no noise of its own each client, against the server, masks broken",
        "rounds3 9 clients",
        "time1.5 s",
        "folderruns/mine",
    ):
        assert said in page.text
    assert page.tags.count("svg") == 1


def test_hostile_names_and_paths_are_text_and_nothing_is_loaded_or_run():
    hostile = summary(
        name=HOSTILE,
        no_accuracy=HOSTILE,
        lost_tests=HOSTILE,
        nothing_learnt=HOSTILE,
        metrics={f"test_{HOSTILE}": 0.5},
        reference={"predictor": HOSTILE, "metrics": {f"test_{HOSTILE}": 0.25}},
    )
    shown = result(hostile, rounds([0.1, 0.2], f"test_{HOSTILE}"), f"runs/{HOSTILE}")
    page = Tags(shown._repr_html_())
    assert set(page.tags) <= {
        *("div", "b", "table", "tr", "td", "span", "svg", "title", "polyline", "line")
    }
    assert not {"onload", "src", "href", "xlink:href"} & set(page.attributes)
    assert page.text.count("<script>alert(1)</script>") >= 5
    assert "\\x1b[31m\\n\\udc80" in page.text
    assert not set(shown._repr_html_()) & {"\x1b", "\udc80"}
    assert "mathjax_ignore" in shown._repr_html_()  # or a path with two dollars is a formula
    assert "\n" not in repr(shown)
    assert Tags(panel(HOSTILE, [(HOSTILE, HOSTILE, HOSTILE)], foot=HOSTILE)).tags.count("td") == 2
    assert Tags(grid(HOSTILE, [{HOSTILE: HOSTILE}], HOSTILE)).tags.count("td") == 1


def test_control_an_unescaped_name_is_seen_by_the_parser():
    assert "script" in Tags(f"<b>{HOSTILE}</b>").tags


def test_nothing_but_the_page_decides_on_colours():
    page = result(summary(), rounds([0.5, 0.75]))._repr_html_()
    assert set(re.findall(r"(?:color|background|fill|stroke)[:=]\"?([a-zA-Z#0-9]+)", page)) <= {
        *("inherit", "transparent", "none", "currentColor")
    }


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize(
    "broken",
    [
        Summary(),
        summary(metrics={}, no_accuracy="no accuracy: outputs are no classes"),
        summary(metrics={"test_loss": math.nan, "test_accuracy": math.inf}),
        summary(metrics={"federated_loss": 1e300, "federated_loss_noise_std": math.nan}),
        summary(epsilon={}, protocol=""),
        summary(seconds=math.inf, rounds_abandoned=3, nothing_learnt="every round was abandoned"),
        summary(reference={"reason": "none"}, best=None, untrained=True),
        summary(reference={"metrics": {"test_accuracy": math.nan}}, best=best(math.inf)),
    ],
    ids=lambda broken: ",".join(sorted(broken.model_fields_set))[:60] or "empty",
)
@pytest.mark.parametrize(
    "values", [[], [math.nan], [0.5], [0.5, math.nan, math.inf], [1e308, -1e308], [0.5, 0.5]]
)
def test_missing_figures_are_shown_as_such(broken, values):
    for name in ("test_accuracy", "federated_loss"):
        page = result(broken, rounds(values, name))._repr_html_()
        assert Tags(page).tags
        assert not re.search(r'="(nan|inf|-inf)', page)
        assert len(repr(result(broken, rounds(values, name)))) < 400


def test_without_privacy_three_equal_reasons_are_one_row():
    bounds = {
        name: no_bound(name, 1e-5, "no noise", unit="client")
        for name in ("release", "sum", "local")
    }
    page = Tags(result(summary(epsilon=bounds, noise_from_seed=True))._repr_html_()).text
    assert page.count("no noise") == 1
    assert "nobody is protected against anybody" in page
    assert "from the seed" not in page


def test_a_reference_and_the_best_round_stand_beside_the_figures():
    shown = summary(
        reference={"predictor": "majority class", "metrics": {"test_accuracy": 0.6}},
        best=best(0.8),
        baselines={
            "alone": {"metrics": {"test_accuracy": {"mean": 0.55, "min": 0.1}}},
            "pooled": {"metrics": {"test_accuracy": 0.9}},
        },
        earlier_metrics={"test_loss": 2},
        ended_by="patience",
        planned_rounds=9,
    )
    page = Tags(result(shown, rounds([0.5, 0.75]))._repr_html_())
    assert (
        "test accuracy0.7500 majority class 0.6000; each client alone, on average 0.5500; "
        "all records, no privacy 0.9000"
    ) in page.text
    assert "best accuracy0.8000 of round 2" in page.text
    assert "test loss0.5000 of round 2" in page.text
    assert "dashed: majority class, 0.6" in page.text
    assert "rounds2 3 of 9 planned, ended by evaluation.patience" in page.text


def test_a_curve_is_broken_where_a_figure_is_no_number_and_bounded_in_length():
    points = [(1, 0.1), (2, 0.2), (3, math.nan), (4, 0.4), (5, 0.5)]
    assert curve(points, "loss").count("<polyline") == 2
    assert curve([(1, 0.1), (2, math.nan)], "loss") == ""
    assert len(curve([(n, n / 1e5) for n in range(1, 100_001)], "loss")) < 10_000


def test_records_show_what_tells_them_apart():
    shown = repr(rounds([0.5])[0])
    assert shown == "RoundRecord(round=1, status='completed', metrics={'test_accuracy': 0.5})"
    assert len(repr(summary())) < 200
    assert len(RoundRecord.model_fields) > 30  # the control: all of them were shown
    assert [field.name for field in fields(Result)] == ["folder", "summary", "rounds", "model"]
