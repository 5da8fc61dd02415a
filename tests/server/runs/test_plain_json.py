"""Files of a run are JSON to every reader, whatever its figures came to."""

import json
import math
from pathlib import Path
from typing import Any, NoReturn

import pytest

from zerosum.server.privacy.rounding import plain
from zerosum.server.runs.plain_json import dumps, numbers
from zerosum.server.runs.run_folder import METRICS, SUMMARY, RunFolder

FIGURES = {"test_loss": math.nan, "test_accuracy": 0.5, "most": math.inf, "least": -math.inf}


def refuse(name: str) -> NoReturn:
    raise AssertionError(f"{name} is no JSON")


def test_numbers_that_are_not_finite_are_words_at_any_depth() -> None:
    text = dumps({"a": [math.nan, {"b": (math.inf, 1.5)}], "c": None})
    assert json.loads(text, parse_constant=refuse) == {"a": ["NaN", {"b": ["Infinity", 1.5]}],
                                                       "c": None}  # fmt: skip


def test_the_old_writer_is_refused_by_a_strict_reader() -> None:
    with pytest.raises(AssertionError, match="NaN"):
        json.loads(json.dumps(FIGURES), parse_constant=refuse)


def test_lines_of_metrics_read_back_as_the_numbers_that_they_were(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.append_line(METRICS, FIGURES)
    json.loads((tmp_path / METRICS).read_text(), parse_constant=refuse)
    read = folder.read_lines(METRICS)
    assert math.isnan(read[0]["test_loss"])
    assert read[0]["most"] == math.inf
    written = (tmp_path / METRICS).read_bytes()
    folder.rewrite_lines(METRICS, read)
    assert (tmp_path / METRICS).read_bytes() == written


def test_a_summary_is_json(tmp_path: Path) -> None:
    RunFolder(tmp_path).write_json(SUMMARY, {"metrics": FIGURES})
    found = json.loads((tmp_path / SUMMARY).read_text(), parse_constant=refuse)
    assert found["metrics"]["test_loss"] == "NaN"


def test_a_text_of_a_users_own_below_the_top_level_stays_a_text() -> None:
    line: dict[str, Any] = {"columns": ["NaN"], "test_loss": "NaN"}
    assert numbers(line)["columns"] == ["NaN"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf"), (0.0, "0.0000")],
)
def test_a_printed_metric_says_what_it_is(value: float, shown: str) -> None:
    assert plain(value) == shown
