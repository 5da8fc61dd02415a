"""Class by class, and what a run is compared with: in the report, in words and in a comparison."""

import csv
import html
import io
import json
import logging
import re
from typing import Any

import numpy as np
import pytest
from made_runs import made_run

from zerosum.server.runs.records import Summary
from zerosum.server.runs.run_folder import TEST_SET, RunFolder
from zerosum.server.training.class_figures import Classified, class_figures
from zerosum.simulations.report.class_section import (
    MOST_IN_TABLE,
    MOST_ROWS,
    class_section,
    names_of,
    reliability_diagram,
)
from zerosum.simulations.report.compare import compare
from zerosum.simulations.report.compare_page import csv_of, table_rows, write_comparison
from zerosum.simulations.report.compare_references import reference_columns, references_in_words
from zerosum.simulations.report.page import render, write_report
from zerosum.simulations.report.record import read_run
from zerosum.simulations.report.reference_rows import INSIDE, reference_table, summary_rows
from zerosum.simulations.sweeps.compare_runs import candidates


def document(classes: int, n: int = 300, undefined: int = 0) -> dict:
    generator = np.random.default_rng(0)
    labels = generator.integers(classes, size=n)
    guesses = np.where(generator.random(n) < 0.7, labels, generator.integers(classes, size=n))
    found = Classified(labels, guesses, generator.random(n), classes, "softmax", undefined)
    return {"round": 2, **class_figures(found)}


@pytest.mark.parametrize(
    ("classes", "matrix", "pairs"),
    [(2, True, False), (MOST_IN_TABLE, True, False), (MOST_IN_TABLE + 1, False, True),
     (101, False, True), (1500, False, True)],
)  # fmt: skip
def test_a_page_has_the_matrix_or_the_pairs_most_confused(classes, matrix, pairs) -> None:
    figures = document(classes)
    section = class_section(figures)
    assert section is not None
    assert (bool(section.matrix), bool(section.pairs)) == (matrix, pairs)
    assert len(section.per_class) <= MOST_ROWS
    if matrix:
        shown = [[cell[0] or "0" for cell in cells] for _, cells in section.matrix]
        assert shown == [[str(count) for count in row] for row in figures["confusion"]]


def test_classes_are_called_by_their_names_wherever_they_stand() -> None:
    figures = document(2) | {"class_names": ["num <= 0", "num > 0"]}
    section = class_section(figures)
    assert section is not None
    assert section.columns == [title for title, _ in section.matrix] == ["num <= 0", "num > 0"]
    assert [row[0] for row in section.per_class] == ["num <= 0", "num > 0"]
    unnamed = class_section(document(2))
    assert unnamed is not None
    assert unnamed.columns == ["0", "1"]


def test_pairs_most_confused_have_names_too() -> None:
    names = [f"kind {label}" for label in range(30)]
    section = class_section(document(30) | {"class_names": names})
    assert section is not None
    assert section.pairs
    assert all(name in names for row in section.pairs for name in row[:2])


@pytest.mark.parametrize(
    ("given", "called"),
    [
        (["cat", "dog"], ["cat", "dog", "2"]),
        (["cat", None, "dog"], ["cat", "1", "dog"]),
        (["", "a", "b"], ["0: ", "a", "b"]),
        (["x" * 30, "x" * 40, "y"], ["0: " + "x" * 9 + "…", "1: " + "x" * 9 + "…", "y"]),
        (["1", "2", "3"], ["1", "2", "3"]),
        (["cat", "cat", "dog", "cow"], ["0: cat", "1: cat", "dog"]),
        (None, ["0", "1", "2"]),
    ],
)
def test_no_two_classes_are_called_alike(given, called) -> None:
    assert names_of({"classes": 3, "class_names": given}, 10) == called


def test_a_name_is_text_and_no_markup(tmp_path) -> None:
    run = RunFolder(made(tmp_path / "run", 0.8))
    names = ["<script>alert(1)</script>", "a"]
    run.write_json(TEST_SET, document(2) | {"class_names": names})
    page = render(read_run(run))
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;aler" in page


def test_classes_without_examples_are_said() -> None:
    found = Classified(np.array([0, 1]), np.array([0, 1]), np.ones(2), 4, "softmax", 3)
    section = class_section({"round": 1, **class_figures(found)})
    assert section is not None
    assert "the 2 classes of 4 that it has" in section.sentences[0]
    assert "3 examples with outputs that are NaN are left out" in section.sentences[1]
    assert section.per_class[3] == ["3", "0", "0", "–", "–"]


def test_other_tasks_have_a_reason_in_place_of_a_figure() -> None:
    section = class_section({"examples": 5, "left_out": "targets have shape (n, 80)"})
    assert section is not None
    assert section.sentences[0].endswith("targets have shape (n, 80).")
    assert not section.diagram
    assert class_section({}) is None


def test_a_damaged_file_costs_the_section_alone(caplog) -> None:
    with caplog.at_level(logging.WARNING):
        assert class_section({"examples": 5, "classes": 3}) is None
    assert "left out of the report" in caplog.text


def test_bars_of_the_diagram_end_at_the_accuracy() -> None:
    bins: list[dict[str, Any]] = [
        {"from": 0.0, "to": 0.5, "examples": 0, "confidence": None, "accuracy": None},
        {"from": 0.5, "to": 1.0, "examples": 4, "confidence": 0.75, "accuracy": 0.5},
    ]
    drawn = str(reliability_diagram(bins))
    values = json.loads(html.unescape(re.findall('data-values="(.*?)"', drawn)[0]))
    assert values["s"] == [
        ["right", "accent", [None, "50.0 % at confidence 75.0 %, 4 examples"]]
    ]  # fmt: skip
    # In thousandths of width and height, downward: nothing, then half of the height.
    bars, calibrated = re.findall(r'<path d="(.*?)"', drawn)
    assert bars.startswith("M0 1000L500 1000L500 500L1000 500L")
    assert calibrated == "M0 1000L1000 0"
    assert reliability_diagram(bins[:1]) == ""


def spread(mean: float) -> dict:
    return {"mean": mean, "min": mean - 0.1, "lower_quartile": mean, "median": mean,
            "upper_quartile": mean, "max": mean + 0.1}  # fmt: skip


BASELINES = {
    "alone": {"clients": 20, "of": 100, "rounds": 2, "metrics": {"test_accuracy": spread(0.5)}},
    "pooled": {"records": 900, "rounds": 1, "metrics": {"test_accuracy": 0.97}},
}
REFERENCE = {"predictor": "majority class", "label": 4, "metrics": {"test_accuracy": 0.2}}


def given(accuracy: float, **fields) -> Summary:
    return Summary(rounds=2, metrics={"test_accuracy": accuracy}, population=100, **fields)


def test_terminal_has_each_reference_in_a_row() -> None:
    rows = dict(summary_rows(given(0.8, reference=REFERENCE, baselines=BASELINES)))
    assert rows["majority class"].startswith("0.2: always class 4, the most frequent of the test")
    assert "no constant does better" in rows["majority class"]
    assert rows["each client alone"].startswith("0.5 on average, 0.4 to 0.6 (20 of 100 clients")
    assert "not for outsiders" in rows["each client alone"]
    assert rows["all records, no privacy"] == "0.97 (900 records, 1 round)"
    assert "CAUTION" not in rows
    assert "no better than" in dict(summary_rows(given(0.2, reference=REFERENCE)))["CAUTION"]


def test_terminal_calls_the_majority_class_by_its_name() -> None:
    named = REFERENCE | {"label_name": "num > 0"}
    rows = dict(summary_rows(given(0.8, reference=named)))
    assert rows["majority class"].startswith('0.2: always "num > 0", the most frequent')


def test_an_accuracy_without_a_reference_says_why() -> None:
    rows = dict(summary_rows(given(0.8, reference={"reason": "the task has another accuracy"})))
    assert rows == {"majority class": "none: the task has another accuracy"}
    assert dict(summary_rows(given(0.8))) == {}


def test_table_of_a_report_says_who_may_read_it() -> None:
    table = reference_table(given(0.8, reference=REFERENCE, baselines=BASELINES))
    assert table is not None
    assert [row[0] for row in table.rows] == [
        "This run", "Majority class", "Each client alone, median",
        "Each client alone, least to most", "All records, no privacy",
    ]  # fmt: skip
    assert INSIDE in table.notes
    public = reference_table(given(0.8, reference=REFERENCE))
    assert public is not None
    assert INSIDE not in public.notes
    assert reference_table(given(0.8)) is None


def made(path, accuracy, settings=(), **fields):
    return made_run(path, list(settings), [accuracy] * 2, **fields)


def test_report_has_the_sections_of_the_last_round_alone(tmp_path) -> None:
    folder = RunFolder(made(tmp_path / "run", 0.8, reference=REFERENCE, baselines=BASELINES))
    folder.write_json(TEST_SET, document(5))
    page = render(read_run(folder))
    assert "Confusion matrix" in page
    assert "Expected calibration error" in page
    assert "Each client alone" in page
    folder.write_json(TEST_SET, document(5) | {"round": 1})
    assert "Confusion matrix" not in render(read_run(folder))
    folder.write(TEST_SET, b"{")
    write_report(folder.path)  # a damaged file ends no report


def test_comparison_has_columns_and_cautions(tmp_path) -> None:
    folders = [
        made(tmp_path / "a", 0.8, reference=REFERENCE, baselines=BASELINES),
        made(tmp_path / "b", 0.1, ["server.lr=0.5"], reference=REFERENCE),
    ]
    found = compare(candidates(folders))
    headers, rows = table_rows(found, reference_columns(found))
    majority = headers.index("Majority class")
    assert [row[majority][0] for row in rows] == ["20.0 %", "20.0 %"]
    assert [row[majority + 1][0] for row in rows] == ["50.0 %", "–"]
    read = list(csv.DictReader(io.StringIO(csv_of(found))))
    assert [row["constant_test_accuracy"] for row in read] == ["0.2", "0.2"]
    assert [row["pooled_test_accuracy"] for row in read] == ["0.97", ""]
    assert references_in_words(found)[0] == "Majority class, test accuracy: 20.0 %"
    assert any("no better than" in caution for caution in found.cautions)
    write_comparison(found, tmp_path / "out", ["a", "b"])
    assert "Majority class" in (tmp_path / "out" / "compare.html").read_text()
    assert "constant_test_accuracy" not in csv_of(compare(candidates([made(tmp_path / "c", 0.5)])))
