"""The naive Bayes classifier of noisy tables: against counting by hand."""

import json
import math
from typing import Any

import numpy as np
import pytest
from released_queries import still_answer

from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.query import Bayes, Count
from zerosum.client.queries.schema import Schema
from zerosum.client.queries.table import Table
from zerosum.server.analytics.bayes import Classifier, classifier

SCHEMA = Schema.of(
    {
        "ill": ["no", "yes"],
        "smokes": ["never", "daily"],
        "age": {"integer": [0, 99], "bins": 4},
    }
)
ROWS: dict[str, list[Any]] = {
    "ill": ["no", "no", "no", "yes", "yes", "no", "yes", "unknown"],
    "smokes": ["never", "never", "daily", "daily", "daily", "never", "never", "daily"],
    "age": [10, 30, 60, 60, 90, 15, 80, 50],
}
QUERY = Bayes(label="ill", features=("smokes", "age"))


def made() -> Classifier:
    return still_answer(QUERY, SCHEMA, ROWS).classifier


def test_scores_are_those_of_counting() -> None:
    table = Table.of({"ill": ["no"], "smokes": ["daily"], "age": [60]}, SCHEMA)
    # no: 4 records, 1 of 4 daily, 1 of 4 from 50 to 74; empty cells count 1/2.
    smoking_no, age_no = 1 / (3 + 1 + 0.5), 1 / (2 + 1 + 1 + 0.5)
    smoking_yes, age_yes = 2 / (1 + 2 + 0.5), 1 / (0.5 + 0.5 + 1 + 2)
    expected = [math.log(4 / 7 * smoking_no * age_no), math.log(3 / 7 * smoking_yes * age_yes)]
    np.testing.assert_allclose(made().log_scores(table)[0], expected)


def test_other_is_no_class() -> None:
    assert made().classes == ("no", "yes")
    table = Table.of({"ill": ["x"] * 2, "smokes": ["never", "daily"], "age": [20, 90]}, SCHEMA)
    assert made().predict(table).tolist() == [0, 1]


def test_missing_numbers_say_nothing() -> None:
    table = Table.of({"ill": ["no"], "smokes": ["daily"], "age": [None]}, SCHEMA)
    alone = Table.of({"ill": ["no"], "smokes": ["daily"], "age": [60]}, SCHEMA)
    ages = made().log_likelihoods[1][:, 2]
    np.testing.assert_allclose(made().log_scores(table) + ages, made().log_scores(alone))


def test_negative_and_empty_tables_make_an_even_classifier() -> None:
    tables = [np.full((3, 3), -7.0), np.zeros((3, 4))]
    labels = [SCHEMA.column(name).labels for name in ("ill", "smokes", "age")]
    even = classifier("ill", labels[0], ("smokes", "age"), labels[1:], tables)
    np.testing.assert_allclose(even.log_prior, math.log(1 / 2))
    np.testing.assert_allclose(even.log_likelihoods[0], math.log(1 / 3))
    assert np.all(np.isfinite(even.log_scores(Table.of(ROWS, SCHEMA))))


def test_json_is_read_back() -> None:
    text = json.dumps(made().to_json())
    read = Classifier.from_json(text)
    table = Table.of(ROWS, SCHEMA)
    np.testing.assert_array_equal(read.log_scores(table), made().log_scores(table))


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        "no json",
        '{"label": "a", "classes": ["x"], "log_prior": [0, 0], "features": []}',
    ],
)
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(QueryError, match="classifier"):
        Classifier.from_json(text)


def test_tables_of_other_domains_are_refused() -> None:
    other = Schema.of({**{name: SCHEMA.column(name) for name in ("ill", "smokes")},
                       "age": {"integer": [0, 99], "bins": 5}})  # fmt: skip
    with pytest.raises(QueryError, match='"age" has other cells'):
        made().predict(Table.of(ROWS, other))
    without = Schema.of({"smokes": SCHEMA.column("smokes")})
    with pytest.raises(QueryError, match='"age" is not in the schema'):
        made().predict(Table.of({"smokes": ["never"]}, without))


def test_only_bayes_makes_a_classifier() -> None:
    with pytest.raises(QueryError, match="count makes no classifier"):
        _ = still_answer(Count(), SCHEMA, ROWS).classifier
