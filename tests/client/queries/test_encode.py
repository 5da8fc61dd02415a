"""Each record's weights are non-negative and sum to at most the block's, whatever is asked."""

import hashlib

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerosum.client.queries.coding import cells_of, edges
from zerosum.client.queries.encode import encode
from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.moves import dimension
from zerosum.client.queries.predicate import parse
from zerosum.client.queries.query import (
    Bayes,
    Count,
    Histogram,
    Marginals,
    Moments,
    Oracle,
    Quantile,
    Words,
)
from zerosum.client.queries.record_order import first_rows, ranks
from zerosum.client.queries.schema import IntegerColumn, NumberColumn, Schema
from zerosum.client.queries.table import Table
from zerosum.secagg.randomness import insecure_keystream

COLUMNS = st.one_of(
    st.tuples(st.integers(-(2**53), 2**53), st.integers(1, 2**40), st.none() | st.integers(2, 9))
    .filter(lambda t: t[0] + t[1] <= 2**53 and (t[2] or 2) <= t[1] + 1)
    .map(lambda t: IntegerColumn(low=t[0], high=t[0] + t[1], bins=t[2])),
    st.tuples(st.floats(-1e30, 1e30), st.floats(-1e30, 1e30))
    .filter(lambda t: t[0] < t[1])
    .map(lambda t: NumberColumn(low=t[0], high=t[1], bins=5)),
)
SMALL = {
    "c": ["A", "B", "C"],
    "i": {"integer": [-2, 3]},
    "j": {"integer": [0, 99], "bins": 7},
    "w": {"text": 4, "alphabet": "ab"},
}
VALUES = st.one_of(
    st.none(), st.integers(-(2**54), 2**54), st.floats(), st.sampled_from(["A", "?", "-1"])
)


def encoded(query, schema, table, **options):
    settings = {"unit": "record", "cap": None, "max_records": 1 << 20, "secret": bytes(32)}
    coins = insecure_keystream(7, "coins")
    return encode(query, schema, table, **(settings | {"coins": coins} | options))


@st.composite
def questions(draw):
    schema = Schema.of(SMALL | {"x": draw(COLUMNS), "y": draw(COLUMNS)})
    names = st.sampled_from([n for n, c in schema.columns.items() if n != "w" and c.cells <= 100])
    cliques = st.lists(names, min_size=1, max_size=3, unique=True).map(tuple)
    weight = 2 ** draw(st.integers(6, 30))
    text = draw(st.none() | st.sampled_from(["c = 'A' or i > 0", "not (w in ('a') and i != 0)"]))
    where = None if text is None else parse(text, schema)
    kind = draw(st.sampled_from(["mean", "sum", "variance"]))
    ranged = draw(st.sampled_from(["i", "j", "x", "y"]))
    query = draw(
        st.one_of(
            st.just(Count(where=where)),
            st.builds(Histogram, columns=cliques, where=st.just(where)),
            st.just(Moments(kind=kind, column=ranged, weight=weight, where=where)),
            st.just(Quantile(column=ranged, q=(0.5,), where=where)),
            st.builds(Bayes, label=st.just("c"), features=cliques.filter(lambda f: "c" not in f)),
            st.builds(Marginals, cliques=cliques.map(lambda c: (c,))),
            st.just(Words(column="w", where=where)),
        )
    )
    rows = draw(st.lists(st.lists(VALUES, min_size=6, max_size=6), max_size=6))
    columns = {n: [row[i] for row in rows] for i, n in enumerate(schema.columns)}
    columns["w"] = [draw(st.text("ab", max_size=5)) for _ in rows]
    return query, schema, Table.of(columns, schema)


@settings(max_examples=30)
@given(questions())
def test_no_record_weighs_more_than_its_block(question):
    query, schema, table = question
    query.check(schema)
    blocks = query.blocks(schema)
    starts = np.cumsum([0, *(block.cells for block in blocks)])[:-1]
    weights = np.array([block.weight for block in blocks])
    total = np.zeros(dimension(blocks), dtype=np.int64)
    for row in range(len(table)):
        alone = encoded(query, schema, table.take(np.array([row])))
        assert (alone >= 0).all()
        added = np.add.reduceat(alone, starts)
        assert np.isin(added, [0, weights.max()]).all()
        assert (added <= weights).all()
        total += alone
    # All rows at once are the sum of each alone, but for coins that roundings share.
    whole = encoded(query, schema, table)
    assert whole.dtype == np.int64
    if isinstance(query, Moments):
        assert whole.sum() == total.sum()
    else:
        np.testing.assert_array_equal(whole, total)


@pytest.mark.quick_one_in(3)
@settings(max_examples=30)
@given(COLUMNS, st.lists(st.floats() | st.integers(-(2**54), 2**54), max_size=9))
@pytest.mark.parametrize("cells", [2, 7, 4096])
def test_a_value_lies_between_the_edges_of_its_cell(cells, column, values):
    codes = Table.of({"x": values}, Schema.of({"x": column})).columns["x"]
    found = cells_of(column, codes, cells)
    ends = edges(column, cells)
    assert len(ends) == cells + 1
    for code, cell in zip(codes, found, strict=True):
        if cell == -1:
            assert code == -1 or np.isnan(code)
            continue
        value = code + column.low if isinstance(column, IntegerColumn) else code
        assert ends[cell] <= value
        assert value < ends[cell + 1] or (value == column.high and ends[cell + 1] == value)


def test_an_integer_column_has_leaves_on_its_integers():
    schema = Schema.of({"age": {"integer": [17, 90]}})
    table = Table.of({"age": [17, 18, 18, 90, 200, None]}, schema)
    vector = encoded(Quantile(column="age", q=(0.5,)), schema, table)
    top, middle, leaves = vector[:16], vector[16:272], vector[272:]
    assert leaves[[0, 1, 73]].tolist() == [1, 2, 2]
    assert middle[[0, 4]].tolist() == [3, 2]
    assert top.tolist() == [5] + [0] * 15
    ends = edges(schema.column("age"), 4096)
    assert ends[:74].tolist() == list(range(17, 91))
    assert set(ends[74:].tolist()) == {91}


def test_a_large_range_has_leaves_of_equal_runs():
    schema = Schema.of({"n": {"integer": [0, 2**53]}})
    table = Table.of({"n": [0, 2**41 - 1, 2**41, 2**41 + 1, 2**53]}, schema)
    leaves = encoded(Quantile(column="n", q=(0.5,)), schema, table)[272:]
    # 2^53 + 1 integers in 4,096 runs: the first has one more than 2^41.
    assert leaves[[0, 1, 4095]].tolist() == [3, 1, 1]


def test_a_cross_tabulation_is_in_row_major_order():
    schema = Schema.of(SMALL)
    table = Table.of(
        {"c": ["A", "C", "C", "Z"], "i": [-2, 3, None, 0], "j": [0, 99, 50, 14], "w": [""] * 4},
        schema,
    )
    found = encoded(Histogram(columns=("c",), by=("i",)), schema, table).reshape(4, 6)
    expected = np.zeros((4, 6))
    expected[[0, 2, 3], [0, 5, 2]] = 1
    np.testing.assert_array_equal(found, expected)
    assert encoded(Histogram(columns=("j",)), schema, table).tolist() == [2, 0, 0, 1, 0, 0, 1]


def rows_of(count: int, most: int, secret: bytes) -> np.ndarray:
    rows = first_rows(count, most, secret)
    assert rows is not None
    return rows


def test_the_rows_that_count_are_those_of_the_secret_order():
    """By the definition: eight bytes of a keyed BLAKE2b for each row's number."""
    secret = bytes(range(32))
    expected = []
    for row in range(1000):
        digest = hashlib.blake2b((row // 8).to_bytes(8, "little"), key=secret, digest_size=64)
        at = row % 8 * 8
        expected.append(int.from_bytes(digest.digest()[at : at + 8], "little"))
    assert ranks(1000, secret).tolist() == expected
    chosen = sorted(sorted(range(1000), key=expected.__getitem__)[:10])
    assert np.array_equal(rows_of(1000, 10, secret), chosen)
    assert first_rows(10, 10, secret) is None
    assert not np.array_equal(rows_of(1000, 10, bytes(32)), chosen)


def test_a_secret_has_32_bytes():
    with pytest.raises(ValueError, match="32 bytes"):
        ranks(8, b"")


def test_a_cap_is_kept_before_any_filter_and_is_the_same_for_every_query():
    schema = Schema.of({"i": {"integer": [0, 99]}})
    table = Table.of({"i": range(100)}, schema)
    chosen = rows_of(100, 5, bytes(32))
    capped = {"unit": "client", "cap": 5}
    found = encoded(Histogram(columns=("i",)), schema, table, **capped)
    assert np.flatnonzero(found).tolist() == chosen.tolist()
    where = parse("i < 50", schema)
    count = encoded(Count(where=where), schema, table, **capped)
    assert count.tolist() == [(chosen < 50).sum()]
    assert encoded(Count(), schema, table, max_records=7).tolist() == [7]
    assert encoded(Count(), schema, table, **capped, max_records=3).tolist() == [3]
    # Under unit record a cap says nothing.
    assert encoded(Count(), schema, table, cap=5).tolist() == [100]


def test_a_table_of_other_domains_is_not_encoded():
    schema = Schema.of({"i": {"integer": [0, 9]}})
    table = Table.of({"i": [3]}, Schema.of({"i": {"integer": [1, 9]}}))
    with pytest.raises(QueryError, match="another schema"):
        encoded(Histogram(columns=("i",)), schema, table)


@pytest.mark.parametrize("options", [{"max_records": 0}, {"unit": "client", "cap": 0}])
def test_limits_below_one_are_refused(options):
    schema = Schema.of({"i": {"integer": [0, 9]}})
    with pytest.raises(QueryError, match="at least 1"):
        encoded(Count(), schema, Table.empty(schema), **options)


@pytest.mark.parametrize("query", [Moments(kind="mean", column="i"), Oracle(column="i")])
def test_an_unresolved_query_is_not_encoded(query):
    schema = Schema.of({"i": {"integer": [0, 9]}})
    with pytest.raises(QueryError, match="not resolved"):
        encoded(query, schema, Table.empty(schema), unit="client", cap=1, epsilon=1.0)


@pytest.mark.parametrize("options", [{}, {"unit": "client", "cap": 2}, {"cap": 1}])
def test_an_oracle_reports_one_record_of_a_client(options):
    schema = Schema.of({"i": {"integer": [0, 9]}})
    with pytest.raises(QueryError, match="one record"):
        encoded(Oracle(column="i", oracle="k-rr"), schema, Table.empty(schema), **options)


@pytest.mark.parametrize(
    ("values", "where", "expected"),
    [([3], None, 3), ([None], None, 10), ([], None, 10), ([3], "i = 4", 10), ([3, 3], None, 3)],
)
def test_an_oracle_reports_other_where_there_is_no_value(values, where, expected):
    schema = Schema.of({"i": {"integer": [0, 9]}})
    filtered = None if where is None else parse(where, schema)
    query = Oracle(column="i", oracle="k-rr", where=filtered)
    table = Table.of({"i": values}, schema)
    # At epsilon 20 a report lies once in 10^7.
    found = encoded(query, schema, table, unit="client", cap=1, epsilon=20.0)
    assert np.flatnonzero(found).tolist() == [expected]


def test_moments_are_unbiased_at_every_value():
    """Over all offsets: the mean of the rounded weights is the Bernstein cells times K."""
    schema = Schema.of({"x": {"number": [0, 1]}})
    values = np.array([0.0, 1e-9, 0.1, 0.5, 1 / 3, 0.999, 1.0])
    rows = 40_000
    for query in (
        Moments(kind="mean", column="x", weight=64),
        Moments(kind="variance", column="x", weight=64),
    ):
        for u in values:
            table = Table.of({"x": np.full(rows, u)}, schema)
            found = encoded(query, schema, table)
            exact = [1 - u, u] if query.order == 1 else [(1 - u) ** 2, 2 * u * (1 - u), u**2]
            assert found.sum() == 64 * rows
            # A rounding has a standard deviation of at most 1/2; sums of two at most 1.
            np.testing.assert_allclose(found / rows, 64 * np.array(exact), atol=6 / rows**0.5)


def test_a_mean_of_adult_s_kind_is_recovered():
    generator = np.random.default_rng(1)
    values = generator.integers(17, 91, 20_000)
    schema = Schema.of({"age": {"integer": [17, 90]}})
    table = Table.of({"age": values}, schema)
    y = encoded(Moments(kind="mean", column="age", weight=4096), schema, table)
    assert 17 + 73 * y[1] / y.sum() == pytest.approx(values.mean(), abs=1e-3)
    y = encoded(Moments(kind="variance", column="age", weight=4096), schema, table)
    mean, square = (y[1] / 2 + y[2]) / y.sum(), y[2] / y.sum()
    assert 73**2 * (square - mean**2) == pytest.approx(pd.Series(values).var(), rel=1e-3)
