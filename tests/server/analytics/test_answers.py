"""Answers of every kind: exact without noise, in plain values, and at the extremes."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from released_queries import STILL, exact, question, still_answer

from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.oracles import probabilities
from zerosum.client.queries.predicate import parse
from zerosum.client.queries.query import (
    Bayes,
    Count,
    Histogram,
    Marginals,
    Moments,
    Oracle,
    Quantile,
    Query,
    Words,
)
from zerosum.client.queries.schema import OTHER, Schema
from zerosum.client.queries.table import Table
from zerosum.server.analytics.answers import Answer, answer
from zerosum.server.analytics.noise_law import ReleasedNoise
from zerosum.server.privacy.epsilon_bound import EpsilonBound

SCHEMA = Schema.of(
    {
        "sex": ["Female", "Male"],
        "job": ["clerk", "cook", "none"],
        "age": {"integer": [0, 99]},
        "pay": {"number": [0.0, 10.0]},
        "word": {"text": 2, "alphabet": "ab"},
    }
)
ROWS: dict[str, list[Any]] = {
    "sex": ["Female", "Male", "Male", "Female", "x", "Male"],
    "job": ["clerk", "cook", "cook", "none", "clerk", "none"],
    "age": [20, 30, 40, 65, 70, None],
    "pay": [1.0, 2.5, 2.5, 9.0, None, 0.0],
    "word": ["a", "ab", "ab", "a", "b", "ab"],
}
OLD = parse("age >= 65", SCHEMA)
LOUD = ReleasedNoise("geometric", 10.0, 1.25)

ALL: list[Query] = [
    Count(),
    Count(where=OLD),
    Histogram(columns=("sex",)),
    Histogram(columns=("sex",), by=("job",), where=OLD),
    Moments(kind="mean", column="age", weight=64),
    Moments(kind="sum", column="pay", weight=64),
    Moments(kind="variance", column="pay", weight=64),
    Quantile(column="age", q=(0.25, 0.5)),
    Bayes(label="sex", features=("job", "age")),
    Marginals(cliques=(("sex", "job"), ("job",))),
    Words(column="word"),
]
NAMES = [query.kind + str(place) for place, query in enumerate(ALL)]


@pytest.mark.parametrize(
    ("query", "value"),
    [(Count(), 6), (Count(where=OLD), 2), (Count(where=parse("not age >= 65", SCHEMA)), 4)],
)
def test_counts_without_noise_are_exact(query: Query, value: int) -> None:
    made = still_answer(query, SCHEMA, ROWS)
    assert made.values.shape == ()
    assert (float(made.values), made.records, made.clients) == (value, value, 300)
    assert made.interval(0.99) == (value, value)
    assert made.std == STILL.std


def test_cross_tabulations_have_the_shape_of_their_domains() -> None:
    made = still_answer(Histogram(columns=("sex",), by=("job",)), SCHEMA, ROWS)
    assert [axis.name for axis in made.tables[0]] == ["sex", "job"]
    assert made.tables[0][0].labels == ("Female", "Male", OTHER)
    np.testing.assert_array_equal(made.values, [[1, 0, 1, 0], [0, 2, 1, 0], [1, 0, 0, 0]])
    assert made.values.shape == made.std.shape == made.interval().low.shape
    assert made.records == 6


@pytest.mark.parametrize("kind", ["mean", "sum", "variance"])
@pytest.mark.parametrize("column", ["age", "pay"])
def test_moments_without_noise_are_numpys(kind: str, column: str) -> None:
    weight = 1 << 20  # at which rounding shows at 10^-6
    query = Moments.model_validate({"kind": kind, "column": column, "weight": weight})
    made = still_answer(query, SCHEMA, ROWS)
    x = np.array([value for value in ROWS[column] if value is not None])
    truth = {"mean": x.mean(), "sum": x.sum(), "variance": x.var()}[kind]
    assert float(made.values) == pytest.approx(truth, rel=1e-4)
    assert made.records == pytest.approx(5)


def test_quantiles_of_integers_are_integers() -> None:
    made = still_answer(Quantile(column="age", q=(0.2, 0.5, 0.9)), SCHEMA, ROWS)
    assert made.values.tolist() == [20, 40, 70]
    assert made.tables[0][0].labels == ("0.2", "0.5", "0.9")
    assert made.records == pytest.approx(5)
    assert [atom["low"] for atom in made.details["atoms"]] == [20, 40, 70]


def test_several_tables_are_one_after_another() -> None:
    made = still_answer(Marginals(cliques=(("sex", "job"), ("job",))), SCHEMA, ROWS)
    assert made.values.shape == (12 + 4,)
    np.testing.assert_array_equal(made.table(0).sum(axis=0), made.table(1))
    np.testing.assert_array_equal(made.table(1), [2, 2, 2, 0])
    rows = made.rows()
    assert rows[0]["sex"] == "Female"
    assert rows[-1]["sex"] is None
    assert rows[-1]["job"] == OTHER


def test_records_come_from_the_table_with_the_least_noise() -> None:
    query = Marginals(cliques=(("sex", "job"), ("job",)))
    noisy = exact(query, Table.of(ROWS, SCHEMA))
    noisy[:12] += 1000
    assert answer(question(query, SCHEMA), noisy, LOUD, 300).records == 6


def test_words_come_back_without_padding() -> None:
    made = still_answer(Words(column="word"), SCHEMA, ROWS)
    assert dict(zip(made.tables[0][0].labels, made.values, strict=True)) == {
        "ab": 3,
        "a": 2,
        "b": 1,
    }


@pytest.mark.parametrize("kind", ["rr", "k-rr", "oue", "olh", "hadamard"])
def test_oracles_invert_their_coins_and_claim_their_variance(kind: str) -> None:
    schema = Schema.of({"job": ["clerk"]}) if kind == "rr" else SCHEMA
    query = Oracle.model_validate({"column": "job", "oracle": kind})
    size = query.size(schema)
    p, q = probabilities(query.oracle, size, 1.0)  # type: ignore[arg-type]
    counts = np.arange(size) * 100
    sums = np.rint(counts * p + (1000 - counts) * q).astype(np.int64)
    made = answer(question(query, schema, scale=1.0), sums, None, 1000)
    np.testing.assert_allclose(made.values, counts, atol=0.5 / (p - q))
    np.testing.assert_allclose(
        made.std**2,
        (1000 * q * (1 - q) + made.values * (p * (1 - p) - q * (1 - q))) / (p - q) ** 2,
        rtol=1e-2,
    )
    assert made.records == 1000
    assert made.noise is None
    assert made.tables[0][0].labels[-1] == OTHER


def test_oracles_of_integers_have_a_cell_for_no_value() -> None:
    schema = Schema.of({"n": {"integer": [0, 3]}})
    query = Oracle(column="n", oracle="oue")
    made = answer(question(query, schema, scale=1.0), np.zeros(5, dtype=np.int64), None, 10)
    assert made.tables[0][0].labels == ("0", "1", "2", "3", OTHER)


@pytest.mark.parametrize("query", ALL, ids=NAMES)
def test_answers_are_strict_json(query: Query) -> None:
    made = still_answer(query, SCHEMA, ROWS)
    values = json.loads(json.dumps(made.to_json(), allow_nan=False))
    assert values["values"] == made.values.tolist()
    assert values["noisy"] == made.noisy.tolist()
    assert values["clients"] == 300
    assert values["sentence"] == made.sentence()
    assert values["query"]["kind"] == query.kind
    assert values["interval"]["level"] == 0.95


@pytest.mark.parametrize("query", ALL, ids=NAMES)
def test_frames_have_a_row_for_each_value(query: Query) -> None:
    made = still_answer(query, SCHEMA, ROWS)
    frame = made.to_frame(0.9)
    assert frame.columns[-4:].tolist() == ["value", "std", "low", "high"]
    np.testing.assert_array_equal(frame["value"], made.values.ravel())
    np.testing.assert_array_equal(frame["low"], made.interval(0.9).low.ravel())


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("query", [q for q in ALL if q.kind != "words"], ids=NAMES[:-1])
@pytest.mark.parametrize(
    ("cell", "noise"),
    [(0, LOUD), (-1, STILL), (-10_000, ReleasedNoise("skellam", 40.0)), (10_000, LOUD)],
    ids=["zero", "below zero", "far below", "large"],
)
def test_extreme_sums_are_answered(query: Query, cell: int, noise: ReleasedNoise) -> None:
    """All zero, all negative, all large: a number or none, an interval around it, a sentence."""
    length = exact(query, Table.empty(SCHEMA)).size
    made = answer(question(query, SCHEMA), np.full(length, cell, dtype=np.int64), noise, 1)
    json.dumps(made.to_json(), allow_nan=False)
    assert made.sentence().endswith(".")
    ends = made.interval(0.95)
    known = np.isfinite(ends.low)
    assert np.all(ends.low[known] <= ends.high[known])
    counts = query.kind in ("count", "histogram", "bayes", "marginals")
    if counts:
        assert np.all(ends.low >= 0)
    if cell <= 0 and query.kind in ("mean", "variance", "quantile"):
        assert made.details["too_few_records"]
        assert np.all(np.isnan(made.values))
        assert not np.any(known)
        assert "Too few records" in made.sentence()


def test_negative_counts_stay_in_the_values_and_not_in_intervals() -> None:
    made = answer(question(Count(), SCHEMA), np.array([-5]), LOUD, 300)
    assert made.values == -5
    low, high = made.interval(0.95)
    assert (low, high) == (0, LOUD.half_width(0.95) - 5)


def test_one_record_is_too_few_for_a_mean_under_noise_and_enough_without() -> None:
    query = Moments(kind="mean", column="age", weight=64)
    noisy = exact(query, Table.of({**{k: v[:1] for k, v in ROWS.items()}}, SCHEMA))
    still = answer(question(query, SCHEMA), noisy, STILL, 300)
    assert float(still.values) == pytest.approx(20, abs=99 / 64)
    loud = answer(question(query, SCHEMA), noisy, ReleasedNoise("geometric", 64.0), 300)
    assert math.isnan(float(loud.values))
    assert loud.records == 1


def test_half_widths_grow_with_the_level() -> None:
    made = answer(question(Count(), SCHEMA), np.array([500]), LOUD, 300)
    widths = [float(np.subtract(*made.interval(level)[::-1])) for level in (0.5, 0.9, 0.99)]
    assert widths == sorted(widths)
    assert widths[0] < widths[-1]


@pytest.mark.parametrize("level", [1 - 1e-16, 0, 1, 95])
def test_levels_outside_are_refused(level: float) -> None:
    with pytest.raises(QueryError, match=r"between 0 and 1, as 0\.95"):
        still_answer(Count(), SCHEMA, ROWS).interval(level)


def test_sums_of_another_length_are_refused() -> None:
    with pytest.raises(QueryError, match=r"shape \(4,\); the query has 3 cells"):
        answer(
            question(Histogram(columns=("sex",)), SCHEMA), np.zeros(4, dtype=np.int64), STILL, 300
        )


def test_noise_is_needed_but_for_oracles() -> None:
    with pytest.raises(QueryError, match="law of the noise"):
        answer(question(Count(), SCHEMA), np.zeros(1, dtype=np.int64), None, 300)


def test_what_was_charged_is_filled_in_and_written() -> None:
    bound = EpsilonBound(0.1, 0.0, 0.0, "zero_out", "client", "sum", "pure", 1, ("masks hold",))
    none = EpsilonBound(math.inf, 0.0, 0.0, None, "client", "local", None, None, (), "no receipt")
    made: Answer = replace(
        still_answer(Count(), SCHEMA, ROWS),
        epsilon={"sum": bound, "local": none},
        receipt={"event": "integer-noise"},
    )
    values = json.loads(json.dumps(made.to_json(), allow_nan=False))
    assert values["epsilon"]["sum"]["value"] == 0.1
    assert values["epsilon"]["local"]["value"] is None
    assert values["receipt"] == {"event": "integer-noise"}


def test_column_that_is_called_as_a_figure_keeps_its_labels() -> None:
    schema = Schema.of({"value": ["p", "q"], "low": ["x"]})
    rows = still_answer(Histogram(columns=("value", "low")), schema, {"value": ["q"], "low": ["x"]})
    first = rows.rows()[2]
    assert first["column value"] == "q"
    assert first["column low"] == "x"
    assert first["value"] == first["low"] == 1


def test_quantiles_near_an_end_keep_their_names() -> None:
    made = still_answer(Quantile(column="age", q=(0.9999999, 0.99999999)), SCHEMA, ROWS)
    assert made.tables[0][0].labels == ("0.9999999", "0.99999999")
    assert "the 0.9999999 quantile" in made.sentence()
