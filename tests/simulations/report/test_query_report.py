"""The page of queries says what its folder says: all of it, nothing else, whatever is missing."""

import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from narrowed import present
from report_pages import Page

from zerosum.analytics import BudgetExceeded, Federation, count
from zerosum.client.queries.schema import Schema
from zerosum.server.analytics.query_files import ANSWERS, QUERIES, QUERY_LEDGER, REFUSED
from zerosum.server.analytics.released_answer import LEVEL
from zerosum.server.config import ConfigError
from zerosum.simulations.report import html, queries_curve, queries_words
from zerosum.simulations.report.places import Scale, number_at, ticks
from zerosum.simulations.report.queries import _COLOURS, render_queries, write_query_report
from zerosum.simulations.report.queries_figures import BARS_SHOWN, figures
from zerosum.simulations.report.queries_record import AnswerRecord, read_queries
from zerosum.simulations.report.queries_shapes import Bars, Columns, Strips

GOLDEN = Path("tests/vectors/report/queries")
TEMPLATES = Path("simulations/zerosum/simulations/report/templates")
HOSTILE = '"><script>alert(1)</script>{{ 7 * 7 }}&amp;\u202e'
Change = Callable[[Path], None]


def folder_of(path: Path, change: Change = lambda folder: None) -> Path:
    """Copy the golden folder, changed."""
    folder = path / "queries"
    shutil.copytree(GOLDEN, folder)
    change(folder)
    return folder


def page_of(path: Path, change: Change = lambda folder: None) -> Page:
    written = write_query_report(folder_of(path, change))
    return Page(written.read_text(encoding="utf-8"))


def document(folder: Path = GOLDEN) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / ANSWERS).read_text(encoding="utf-8"))
    return found


def answer(name: str, **changed: Any) -> AnswerRecord:
    entry = next(each for each in document()["answers"] if each["name"] == name)
    return AnswerRecord.read(entry | changed)


def drop(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return page_of(tmp_path_factory.mktemp("whole"))


def test_sections_come_in_order_and_each_answer_is_said_first(whole: Page) -> None:
    headings = whole.headings("h2")
    names = [each["name"] for each in document()["answers"]]
    assert headings[: len(names)] == names
    assert headings[len(names) :] == [
        "Who is protected against whom",
        "The budget",
        "Without an answer",
        "What an answer can tell of one record",
        "Who answered",
        "What is claimed, and what is not",
        "Receipts",
    ]
    first = whole.text.index("Who is protected")
    for each in document()["answers"]:
        assert whole.text.index(each["sentence"]) < first


def test_every_kind_of_query_has_its_picture() -> None:
    without = ("few", "quantile-age")
    names = [each["name"] for each in document()["answers"] if each["name"] not in without]
    kinds = {name: type(figures(answer(name), None)[0]).__name__ for name in names}
    assert kinds == {
        "count": "Strips",
        "histogram-age": "Columns",
        "histogram-sex-town": "Bars",
        "mean-pay": "Strips",
        "sum-pay": "Strips",
        "variance-age": "Strips",
        "words-word": "Bars",
        "bayes-sex-age": "Bars",
        "marginals-sex-town": "Bars",
    }
    assert len(figures(answer("marginals-sex-town"), None)) == 2
    assert not figures(answer("few"), None)  # too few records: its sentence says so
    assert not figures(answer("quantile-age"), None)  # without its domain there is no curve
    assert len(figures(answer("quantile-age"), domains())) == 1


def domains() -> Schema:
    record = read_queries(GOLDEN).domains
    assert record is not None
    return record


def percent(text: str) -> float:
    assert text.endswith("%")
    return float(text[:-1])


def test_bars_and_intervals_are_where_their_values_are() -> None:
    found = answer("histogram-sex-town")
    (drawn,) = figures(found, None)
    assert isinstance(drawn, Bars)
    low = min(0.0, found.values.min())
    span = max(found.high.max(), found.values.max()) - low
    for place, bar in enumerate(drawn.bars):
        value, ends = found.values[place], (found.low[place], found.high[place])
        assert percent(bar.mark.point) == pytest.approx(100 * (value - low) / span, abs=1e-3)
        assert percent(bar.mark.width) == pytest.approx(100 * abs(value) / span, abs=2e-3)
        for text, end in zip((bar.mark.low, bar.mark.high), ends, strict=True):
            assert percent(text) == pytest.approx(100 * (end - low) / span, abs=1e-3)
    assert percent(drawn.zero) == pytest.approx(-100 * low / span, abs=1e-3)


def test_upright_bars_keep_the_order_of_the_values() -> None:
    found = answer("histogram-age")
    (drawn,) = figures(found, None)
    assert isinstance(drawn, Columns)
    heights = np.array([column.height for column in drawn.columns])
    np.testing.assert_allclose(heights / heights.max(), np.abs(found.values) / found.values.max(),
                               atol=1e-3)  # fmt: skip
    assert [column.words.split(":")[0] for column in drawn.columns] == [*map(str, range(10))]
    assert all(column.high <= column.top <= column.low for column in drawn.columns[1:])


def test_mean_is_a_point_between_its_declared_bounds() -> None:
    found = answer("mean-pay")
    (drawn,) = figures(found, domains())
    assert isinstance(drawn, Strips)
    wide, near = drawn.strips
    assert (wide.left, wide.right, wide.filled) == ("0", "10", False)
    assert percent(wide.mark.point) == pytest.approx(10 * found.values[0], abs=1e-3)
    assert percent(near.mark.low) < 20 < 80 < percent(near.mark.high)
    (counted,) = figures(answer("count"), domains())
    assert isinstance(counted, Strips)
    assert counted.strips[0].filled


def test_word_bars_stand_over_the_threshold() -> None:
    found = answer("words-word")
    (drawn,) = figures(found, None)
    assert isinstance(drawn, Bars)
    least = found.document["threshold"]
    assert drawn.threshold_text == f"threshold: {least}"
    for bar in drawn.bars:
        assert percent(bar.mark.point) > percent(drawn.threshold) > 0


def test_prior_of_a_classifier_is_the_sum_of_its_first_table() -> None:
    found = answer("bayes-sex-age")
    (drawn,) = figures(found, None)
    assert isinstance(drawn, Bars)
    sums = found.values.reshape(3, 10).sum(axis=1)
    assert [bar.figure for bar in drawn.bars] == [number_at(value, 1) for value in sums]
    one = found.high[0] - found.values[0]
    widths = [bar.between.split(" to ")[1] for bar in drawn.bars]
    half = float(widths[0].replace(",", "")) - sums[0]
    assert one < half < 10 * one  # of ten cells' noise, not of one, nor ten times it
    assert half == pytest.approx(one * math.sqrt(10), rel=0.25)


def test_band_of_the_curve_is_the_interval_of_each_rank() -> None:
    found = answer("quantile-age")
    law = found.document["noise"]
    noise = queries_curve.ReleasedNoise(law["law"], law["scale"], law["shares_ratio"])
    column = domains().columns["age"]
    noisy = np.array(found.document["noisy"])
    leaves = queries_curve.leaf_counts(noisy, noise, column)  # type: ignore[arg-type]
    part, half = queries_curve._band(leaves, LEVEL)
    below = np.concatenate(([0.0], np.cumsum(leaves.counts))) / leaves.records
    np.testing.assert_allclose(part, np.clip(below, 0, 1))
    for place in range(1, part.size - 1):
        exact = leaves._half_widths(float(part[place]), LEVEL)[place] / leaves.records
        assert half[place] == pytest.approx(exact, rel=1e-6)
    assert half[0] < 1e-9 * half[3]  # nothing is below the first: that is known
    drawn = queries_curve.curve(found, domains())
    assert drawn is not None
    for mark, q in zip(drawn.marks, (0.25, 0.5), strict=True):
        assert mark.y == pytest.approx(queries_curve.TOP + queries_curve.HEIGHT * (1 - q))
        assert percent(mark.low) <= percent(mark.point) <= percent(mark.high)


def test_budget_is_one_bar_whose_parts_are_what_is_spent(whole: Page) -> None:
    record = read_queries(GOLDEN)
    spent = record.spending.spent
    section = whole.html[whole.html.index("<h2>The budget") :]
    bar = section[section.index("<svg") : section.index("</svg>")]
    widths = [*map(float, re.findall(r'<rect x="[\d.]+%" width="([\d.]+)%"[^>]*fill="var', bar))]
    assert len(widths) == len(record.spending.queries)
    assert sum(widths) == pytest.approx(100 * spent.used / spent.limit, abs=0.02)
    used = [each.used for each in record.spending.queries]
    np.testing.assert_allclose(widths, 100 * np.array(used) / spent.limit, atol=2e-3)
    assert "8.4 of 9 is spent, 0.599 is left" in whole.text
    assert "pure epsilons add up" in whole.text


def test_observers_share_one_table_with_the_caveat_of_local(whole: Page) -> None:
    bounds = read_queries(GOLDEN).bounds
    assert whole.html.count("<h2>Who is protected against whom") == 1
    assert [name for name in ("release", "sum", "local") if f"epsilon_{name}" in whole.text] == [
        "release", "sum", "local"
    ]  # fmt: skip
    assert bounds["sum"].value == pytest.approx(8.4)
    assert bounds["sum"].delta == 0
    told = [each["epsilon"]["local"]["value"] for each in document()["answers"]]
    assert bounds["local"].value > sum(told)  # and of the one that was given up
    assert "one share of geometric noise is 0 with probability 0.479 to 0.99" in whole.text


def test_posterior_multiplies_the_odds() -> None:
    for epsilon in (0.1, 1.0, 5.0):
        low, high = queries_words.posterior(epsilon)
        assert math.log(high / (1 - high)) == pytest.approx(math.log(0.4 / 0.6) + epsilon)
        assert math.log(low / (1 - low)) == pytest.approx(math.log(0.4 / 0.6) - epsilon)
    assert queries_words.posterior(0.0) == (0.4, 0.4)
    assert queries_words.posterior(1e6) == (0.0, 1.0)
    assert queries_words.believed(0.1) == "prior .40 becomes between .376 and .424"
    assert queries_words.believed(1.0) == "prior .40 becomes between .197 and .644"
    assert queries_words.believed(8.4) == "prior .40 becomes between .0001 and 1"


def test_belief_is_said_of_pure_epsilons_alone(tmp_path: Path, whole: Page) -> None:
    assert "count, few , epsilon 0.1: prior .40 becomes between .376 and .424" in whole.text

    def other_law(folder: Path) -> None:
        text = (folder / QUERY_LEDGER).read_text(encoding="utf-8")
        text = text.replace('"rule":"sum"', '"rule":"renyi"')
        text = re.sub(
            r'"geometric","parameters":\[[\d.]+,[\d.]+\]', '"skellam","parameters":[400.0]', text
        )
        (folder / QUERY_LEDGER).write_text(text, encoding="utf-8")
        (folder / QUERIES).unlink()

    page = page_of(tmp_path, other_law)
    assert "prior .40" not in page.text
    assert "Renyi divergences add up at one order" in page.text


def test_clients_units_and_what_is_not_claimed_are_said(whole: Page) -> None:
    assert "34 to 39 of 40 clients answered a query." in whole.text
    assert "nothing is claimed of a client" in whole.text
    assert "speak of the noise alone" in whole.text
    assert "are not scaled up" in whole.text
    assert "zero_out: one record is there, or adds nothing" in whole.text


def test_queries_without_an_answer_say_why(whole: Page) -> None:
    table = whole.text[whole.text.index("Without an answer") :]
    assert "late given up: 29 survivors, 33 needed; 1 sum charged" in table
    assert "dear refused by the budget: this query costs 5.00; 0.60 of 9.00 is left" in table
    assert "next not asked yet, at epsilon = 0.05" in table


def test_refused_question_is_noted_and_no_part_of_the_plan(tmp_path: Path) -> None:
    data = {"sex": ["F", "M"] * 50}
    settings: dict[str, Any] = {"schema": {"sex": ["F", "M"]}, "clients": 6, "budget": 1.0}
    with Federation.simulate(data, **settings, delta=1e-3, out=tmp_path / "q") as f:
        answered = f.ask(count(epsilon=0.75))
        for _ in range(2):
            with pytest.raises(BudgetExceeded):
                f.ask(count(epsilon=0.5, where='sex = "F"', name="women"))
        assert [draft.epsilon for draft in f.queries] == [0.75]
    (one,) = read_queries(tmp_path / "q").unanswered
    assert (one.name, one.why.split(":")[0]) == ("women", "refused by the budget")
    assert "0.25 of 1.00 is left" in answered.report().read_text(encoding="utf-8")


def test_nothing_asked_yet_has_a_page(tmp_path: Path) -> None:
    def begun(folder: Path) -> None:
        (folder / ANSWERS).unlink()
        (folder / REFUSED).unlink()
        header = (folder / QUERY_LEDGER).read_text(encoding="utf-8").splitlines()[0]
        (folder / QUERY_LEDGER).write_text(header + "\n", encoding="utf-8")

    page = page_of(tmp_path, begun)
    assert "There is no answer yet." in page.text
    assert "0 of 9 is spent, 9 is left" in page.text
    assert "40 clients would be asked." in page.text
    assert "count not asked yet, at epsilon = 0.1" in page.text
    assert not page.open


@pytest.mark.slow
def test_answers_that_a_crash_left_out_are_called_unfinished(tmp_path: Path) -> None:
    page = page_of(tmp_path, drop(ANSWERS))
    assert "count begun, and not finished; 1 sum charged" in page.text
    assert read_queries(tmp_path / "queries").bounds["local"].finite  # from the plan's queries


def test_folder_without_a_plan_has_all_but_bounds_and_curves(tmp_path: Path) -> None:
    page = page_of(tmp_path, drop(QUERIES))
    assert "Distribution of age" not in page.html
    assert "Distribution of age" in page_of(tmp_path / "again").html
    bound = read_queries(tmp_path / "queries").bounds["local"]
    assert bound.reason == "of what was sent for late no figure is known"


@pytest.mark.slow
def test_hostile_texts_are_shown_and_not_run(tmp_path: Path) -> None:
    def hostile(folder: Path) -> None:
        found = document(folder)
        for each in found["answers"]:
            each["sentence"] = each["query"]["column"] = HOSTILE
            each["tables"] = [
                [{"column": HOSTILE, "labels": [HOSTILE] * len(axis["labels"])} for axis in axes]
                for axes in each["tables"]
            ]
            for bound in each["epsilon"].values():
                bound["assumptions"] = [HOSTILE]
            each["receipt"] = {HOSTILE: HOSTILE}
        (folder / ANSWERS).write_text(json.dumps(found), encoding="utf-8")
        refused = json.dumps({"name": HOSTILE, "why": HOSTILE})
        (folder / REFUSED).write_text(f"{refused}\ntorn", encoding="utf-8")
        ledger = (folder / QUERY_LEDGER).read_text(encoding="utf-8")
        changed = ledger.replace('"29 survivors, 33 needed"', json.dumps(HOSTILE))
        changed = changed.replace('"name":"count"', f'"name":{json.dumps(HOSTILE)}')
        assert changed.count("script") == 4
        (folder / QUERY_LEDGER).write_text(changed, encoding="utf-8")

    page = page_of(tmp_path, hostile)
    assert "<script" not in page.html
    assert "49" not in re.findall(r"alert\(1\)&lt;/script&gt;(\d+)", page.html)
    assert page.html.count("&lt;script&gt;") > 50
    assert {tag for tag, _ in page.tags} <= ELEMENTS
    assert not page.open
    # The control: the same templates, unescaped, let the script through.
    with pytest.MonkeyPatch.context() as patch:
        environment = html._environment("zerosum.simulations.report")
        patch.setattr(environment, "autoescape", False)
        present(environment.cache).clear()
        naive = render_queries(read_queries(tmp_path / "queries"))
    html._environment.cache_clear()
    assert "<script" in naive


ELEMENTS = {
    *("html", "head", "meta", "title", "style", "body", "main", "header", "section", "div", "p"),
    *("h1", "h2", "h3", "ul", "li", "span", "small", "strong", "code", "pre", "figure"),
    *("figcaption", "details", "summary", "table", "thead", "tbody", "tr", "th", "td"),
    *("svg", "g", "rect", "line", "circle", "path", "text"),
    *("nav", "ol", "a", "dl", "dt", "dd", "h4"),
}


def test_no_place_in_a_picture_is_no_number(tmp_path: Path) -> None:
    def holes(folder: Path) -> None:
        found = document(folder)
        for each in found["answers"]:
            if each["query"]["kind"] in ("histogram", "marginals"):
                flat = json.dumps(each["interval"]["low"])
                each["interval"]["low"] = json.loads(re.sub(r"\d+\.\d+", "null", flat, count=2))
        (folder / ANSWERS).write_text(json.dumps(found), encoding="utf-8")

    page = page_of(tmp_path, holes)
    assert "no interval: too few records" in page.text
    places = {"x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height", "dx", "dy"}
    seen = 0
    for tag, attributes in page.tags:
        if tag in ("rect", "line", "circle", "text", "svg"):
            for name in places & set(attributes):
                assert re.fullmatch(r"-?[\d.]+%?", attributes[name] or ""), (tag, attributes)
                seen += 1
        if tag == "path":
            assert re.fullmatch(r"M[\d. L]+Z?", attributes["d"] or "")
    assert seen > 300
    assert not re.search(
        r"\b(nan|inf|None)\b", "".join(re.findall(r"<svg.*?</svg>", page.html, re.S))
    )


@pytest.mark.slow
def test_large_answer_draws_the_largest_cells_and_points_to_its_file(tmp_path: Path) -> None:
    cells = 4_096
    labels = [f"value {i}" for i in range(cells)]
    values = [float(7 * i % cells) for i in range(cells)]

    def large(folder: Path) -> None:
        found = document(folder)
        entry = next(each for each in found["answers"] if each["name"] == "histogram-age")
        entry |= {
            "values": values,
            "std": [8.0] * cells,
            "interval": {"level": 0.95, "low": values, "high": [v + 20 for v in values]},
            "tables": [[{"column": "town", "labels": labels}]],
        }
        (folder / ANSWERS).write_text(json.dumps(found), encoding="utf-8")

    page = page_of(tmp_path, large)
    assert f"The {BARS_SHOWN} largest of 4,096 cells" in page.text
    assert "answers/histogram-age.csv has all of them" in page.text
    assert page.text.count("4,095") >= 2  # in the picture and in the table
    assert len(page.html) < 250_000
    largest = sorted(values)[-200]
    shown = [each for each in values if f">{each:,.0f}<" in page.html]
    assert set(shown) >= {value for value in values if value >= largest}


def test_page_loads_nothing_and_its_tags_nest(whole: Page) -> None:
    assert not re.search(r"https?://|@import|<script|<link|url\(", whole.html)
    assert "default-src 'none'" in whole.html
    assert not whole.open
    assert all(
        attributes.get("aria-label") or attributes.get("aria-hidden") or "viewbox" in attributes
        for tag, attributes in whole.tags
        if tag == "svg"
    )


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colours_are_told_from_the_page_in_light_and_dark() -> None:
    css = (TEMPLATES / "page.css").read_text(encoding="utf-8")
    drawn = (TEMPLATES / "queries_parts.html").read_text(encoding="utf-8")
    names = {*re.findall(r"var\(--(\w+)\)", drawn), *_COLOURS} - {"card", "line"}
    assert names >= {"kept", "ink", "muted", "accent", "local"}
    light, dark = css.split("prefers-color-scheme: dark")
    for half in (light, dark):
        known = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", half))
        for name in names:
            for ground in ("paper", "card"):
                pair = sorted((luminance(known[name]), luminance(known[ground])))
                assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 3, (name, ground)


def test_letters_keep_twelve_pixels_at_any_width() -> None:
    drawn = (TEMPLATES / "queries_parts.html").read_text(encoding="utf-8")
    css = (TEMPLATES / "queries.css").read_text(encoding="utf-8")
    assert min(map(float, re.findall(r'font-size="(\d+)"', drawn))) >= 12
    assert min(map(float, re.findall(r"font-size: ([\d.]+)rem", css))) * 16 >= 12
    scaled = re.findall(r"<svg[^>]*viewBox.*?</svg>", drawn, flags=re.S)
    assert scaled
    assert not any("<text" in each for each in scaled)  # what is scaled has no letters


BROKEN: dict[str, dict[str, Any]] = {
    "cells": {"values": [1.0]},
    "tables": {"tables": None},
    "epsilons": {"epsilon": {}},
    "epsilon": {"epsilon": {"sum": {}}},
    "interval": {"interval": {}},
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_damaged_answer_is_one_line(tmp_path: Path, broken: dict[str, Any]) -> None:
    def damaged(folder: Path) -> None:
        found = document(folder)
        found["answers"][1] |= broken
        (folder / ANSWERS).write_text(json.dumps(found), encoding="utf-8")

    with pytest.raises(ConfigError, match="is damaged") as told:
        page_of(tmp_path, damaged)
    assert "\n" not in str(told.value)
    assert not (tmp_path / "queries" / "report.html").exists()


def test_writing_again_gives_the_same_page(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    first = write_query_report(folder).read_bytes()
    assert write_query_report(folder).read_bytes() == first
    assert render_queries(read_queries(folder)).encode() == first


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1234.0, 8.0, "1,234"),
        (36.94512, 0.024, "36.945"),
        (-3.0, 1.0, "-3"),
        (math.nan, 1.0, "–"),
        (0.123456789, 0.0, "0.123457"),
        (1e20, math.inf, "100,000,000,000,000,000,000"),
    ],
)
def test_number_has_the_digits_that_its_error_leaves(value: float, unit: float, text: str) -> None:
    assert number_at(value, unit) == text


def test_places_are_finite_and_within_the_picture() -> None:
    scale = Scale(-2.0, 6.0)
    assert [scale.percent(v) for v in (-2.0, 0.0, 6.0, 9.0, -5.0)] == [
        "0.000%", "25.000%", "100.000%", "100.000%", "0.000%"
    ]  # fmt: skip
    assert scale.percent(math.nan) == scale.width(0.0, math.inf) == ""
    assert Scale(3.0, 3.0).part(3.0) == 0.0
    for low, high in ((0.0, 1.0), (-17.0, 4_000.0), (0.0, 3e-7), (5.0, 5.0)):
        found = ticks(low, high)
        assert 1 <= len(found) <= 6
        assert all(low - 1e-9 <= tick <= high + 1e-9 for tick in found)
