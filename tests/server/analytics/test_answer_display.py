"""Answers and budgets are a line in a terminal and a small table in a notebook."""

from typing import Any

import numpy as np
import pytest

from zerosum.analytics import Federation, count, histogram, mean


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    data: dict[str, list[Any]] = {"age": list(range(20, 80)) * 5, "sex": ["<b>F</b>", "M"] * 150}
    schema = {"age": {"integer": [17, 90]}, "sex": ["<b>F</b>", "M"]}
    out = tmp_path_factory.mktemp("asked") / "folder"
    with Federation.simulate(data, schema=schema, clients=20, budget=2.0, out=out) as opened:
        yield opened


def test_an_answer_is_its_sentence_and_its_cost(federation):
    answer = federation.ask(count(where="age > 40", epsilon=0.2))
    assert repr(answer) == (
        f"Answer(count: {answer.sentence()!r}, epsilon_release 0.193, epsilon_sum 0.2, "
        "epsilon_local 2.95)"
    )
    assert answer.sentence() in answer._repr_html_().replace("&#x27;", "'")


def test_a_long_answer_shows_its_first_rows_and_escapes_names(federation):
    by_age = federation.ask(histogram("age", epsilon=0.2))
    assert len(repr(by_age)) < 600
    assert by_age._repr_html_().count("<tr") == 13
    assert f"{len(by_age.rows()) - 12} more rows" in by_age._repr_html_()
    by_sex = federation.ask(histogram("sex", epsilon=0.2))
    assert "<b>F</b>" not in by_sex._repr_html_()
    assert "&lt;b&gt;F&lt;/b&gt;" in by_sex._repr_html_()


def test_an_answer_without_a_figure_is_displayed(federation):
    empty = federation.ask(mean("age", where="age > 89", epsilon=0.2))
    assert np.isnan(empty.values)
    assert "–" in empty._repr_html_()
    assert "nan" not in empty._repr_html_()


def test_a_federation_says_what_is_spent(federation):
    assert repr(federation).startswith("Federation(20 clients, epsilon ")
    assert " of 2 spent, folder='" in repr(federation)
    assert "queries: " in repr(federation.spending)
    assert federation.spending._repr_html_().count("<tr") == 1 + len(federation.spending.queries)
    assert len(repr(federation.cost(count(epsilon=0.2)))) < 400
