"""A predicate means what pandas makes of it, whatever its shape, and its text reads as itself."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.predicate import And, Compare, In, Not, Or, columns_of, holds, parse
from zerosum.client.queries.predicate_tree import Predicate, is_small
from zerosum.client.queries.schema import Schema
from zerosum.client.queries.table import Table

SCHEMA = Schema.of(
    {
        "age": {"integer": [-3, 5]},
        "hours per week": {"number": [-1.5, 2]},
        "and": ["A", 'say "B"', "it's"],
        "Größe": {"text": 3, "alphabet": "abc"},
    }
)
ROWS: dict[str, list[Any]] = {
    "age": [-3, 0, 5, 2, None, 1, -1, 5],
    "hours per week": [-1.5, None, 2.0, 0.25, 0.0, 1.0, -0.5, None],
    "and": ["A", 'say "B"', "it's", "(other)", "A", "A", "(other)", "it's"],
    "Größe": ["a", "abc", "b", "ca", "b", "a", "cab", "bb"],
}
TABLE = Table.of(ROWS, SCHEMA)
FRAME = pd.DataFrame(ROWS).astype({"age": float, "and": object, "Größe": object})

ANY = ["=", "!=", "<", "<=", ">", ">="]


def leaves_of(column: str, values: st.SearchStrategy, operators: list[str]) -> st.SearchStrategy:
    comparison = st.builds(
        Compare, column=st.just(column), operator=st.sampled_from(operators), value=values
    )
    listed = st.builds(
        In, column=st.just(column), values=st.lists(values, min_size=1, max_size=3).map(tuple)
    )
    return comparison | listed


NUMBERS = st.sampled_from([-1.5, 0.25, 1e-9, -0.0, 2.0, -1, 0, 1, 2])
OUTSIDE = st.sampled_from([-4, 6, 1e300, -1e-300, -3.5])
LEAVES = (
    leaves_of("age", st.integers(-3, 5) | NUMBERS, ANY)
    | leaves_of("hours per week", NUMBERS, ANY)
    | leaves_of("and", st.sampled_from([*ROWS["and"]]), ["=", "!="])
    | leaves_of("Größe", st.text("abc", min_size=1, max_size=3), ["=", "!="])
)


def combined(parts: st.SearchStrategy) -> st.SearchStrategy:
    several = st.lists(parts, min_size=2, max_size=3).map(tuple)
    return st.builds(Not, of=parts) | st.builds(And, of=several) | st.builds(Or, of=several)


TREES = st.recursive(LEAVES, combined, max_leaves=12).filter(is_small)
WIDER = leaves_of("age", OUTSIDE, ANY) | leaves_of("hours per week", OUTSIDE, ANY)


def by_pandas(predicate: Predicate) -> pd.Series:
    """Evaluate by pandas' comparisons of values as they are written."""
    if isinstance(predicate, Compare):
        column = FRAME[predicate.column]
        method = {"=": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
        return getattr(column, method[predicate.operator])(predicate.value)
    if isinstance(predicate, In):
        return FRAME[predicate.column].isin(predicate.values)
    if isinstance(predicate, Not):
        return ~by_pandas(predicate.of)
    result = by_pandas(predicate.of[0])
    for part in predicate.of[1:]:
        result = (
            result & by_pandas(part) if isinstance(predicate, And) else result | by_pandas(part)
        )
    return result


@settings(max_examples=40)
@given(TREES | WIDER)
def test_a_predicate_holds_where_pandas_says_so(predicate):
    assert holds(predicate, TABLE).tolist() == by_pandas(predicate).tolist()


@settings(max_examples=40)
@given(TREES)
def test_the_text_of_a_predicate_is_read_as_the_same_tree(predicate):
    assert parse(str(predicate), SCHEMA) == predicate


PRINTED = st.text(min_size=1, max_size=8).filter(lambda t: t.isprintable() and t == t.strip())


@settings(max_examples=40)
@given(PRINTED, PRINTED.filter(lambda t: t != "(other)"))
def test_any_column_and_value_has_a_text(column, value):
    predicate = Or(
        of=(Compare(column=column, operator="=", value=value), In(column=column, values=(value,)))
    )
    assert parse(str(predicate), Schema.of({column: [value]})) == predicate


@settings(max_examples=25)
@given(TREES)
def test_a_predicate_has_canonical_bytes(predicate):
    assert type(predicate).from_canonical(predicate.canonical()) == predicate


@settings(max_examples=100)
@given(st.text("age()=<>!'\"`nd ot,i1.5e-+or\0\n", max_size=30) | st.text(max_size=20))
def test_garbage_is_refused_or_read_and_never_raises_otherwise(text):
    try:
        found = parse(text, SCHEMA)
    except QueryError:
        return
    assert type(found).from_canonical(found.canonical()) == found


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("age = 1 or age = 2 and age = 3", "age = 1 or age = 2 and age = 3"),
        ("(age = 1 or age = 2) and age = 3", "(age = 1 or age = 2) and age = 3"),
        ("NOT age==-1 AND age<>+2", "not age = -1 and age != 2"),
        ("age not in (1,2)", "not age in (1, 2)"),
        ('"hours per week" >= .5', "`hours per week` >= 0.5"),
        ("`and` = 'it''s'", '`and` = "it\'s"'),
        ('`and` = "say ""B"""', '`and` = "say ""B"""'),
        ("((((age=1))))", "age = 1"),
        ("Größe != 'abc'", 'Größe != "abc"'),
        ("`and` in ('A', '(other)')", '`and` in ("A", "(other)")'),
    ],
)
def test_precedence_and_quotes_are_read_as_written(text, tree):
    assert str(parse(text, SCHEMA)) == tree


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "a column is expected, not the end"),
        ("age", "one of = != < <= > >= in is expected"),
        ("age >=", "a number or a quoted text is expected, not the end"),
        ("age = 1 age", "not 'age' at character 9"),
        ("(age = 1", "and, or, or . is expected, not the end"),
        ("age = 1)", "not '\\)' at character 8"),
        ("age in 1", r"\( is expected"),
        ("age in ()", "a number or a quoted text is expected"),
        ("age not 1", "in is expected"),
        ("17 < age", "a column is expected"),
        ("age = nan", 'write "nan" in quotes'),
        ("age = 1e999", "beyond the numbers of float64"),
        ("age = " + "9" * 100, "too long a number"),
        ("age = 99999999999999999999", "an integer is at most 2.53 in size"),
        ("age = 'x", "at character 7 is never closed"),
        ("age = 1; drop", "';' at character 8 belongs to no predicate"),
        ("age.real = 1", "'.' at character 4 belongs to no predicate"),
        ("__import__('os')", "one of = != < <= > >= in is expected"),
        ("agee = 1", 'column "agee" is not in the schema; did you mean "age"\\?'),
        ("age > 5.5", "5.5 is outside of .age., -3 to 5"),
        ("age in (1, -4)", "-4 is outside of .age., -3 to 5"),
        ("`and` = 'a'", "has no value 'a'"),
        ("`and` < 'A'", "a category has no order"),
        ("Größe >= 'a'", "a text has no order"),
        ("Größe = 'abca'", "is no text of column"),
        ("Größe = 'd'", "is no text of column"),
        ("Größe = ''", "a text of 0 characters"),
        ("`and` = 1", "write quotes around the value"),
        ("age = '1'", "write a number without quotes"),
        ("(" * 1000 + "age = 1" + ")" * 1000, "more than 64 parentheses"),
        ("not " * 1000 + "age = 1", "more than 64 parentheses"),
        (" and ".join(["age = 1"] * 33), "should have at most 32 items"),
        ("age = 1 or " + " or ".join(["(age = 1 and age = 2)"] * 16), "33 comparisons"),
        ("not " * 8 + "age = 1", "9 levels; at most 32 in 8"),
        ("x" * 70_000, "70000 characters"),
    ],
)
def test_what_is_no_predicate_is_refused_in_one_line(text, reason):
    with pytest.raises(QueryError, match=reason) as refused:
        parse(text, SCHEMA)
    assert "\n" not in str(refused.value)


def test_a_huge_integer_of_a_request_is_refused():
    data = '{"kind":"compare","column":"age","operator":"=","value":%s}'
    for value in ("9" * 4000, "9007199254740993", "NaN", "Infinity", "true", "null"):
        with pytest.raises(ValueError, match=r"value|finite|canonical|Invalid JSON|integer"):
            Compare.from_canonical((data % value).encode())


def test_columns_of_a_predicate_are_named_once():
    predicate = parse("age = 1 and (`and` = 'A' or age > 3)", SCHEMA)
    assert columns_of(predicate) == ("age", "and")


def test_integers_are_compared_exactly_up_to_2_to_the_53():
    schema = Schema.of({"n": {"integer": [-(2**53), 2**53]}})
    table = Table.of({"n": [2**53, 2**53 - 1, -(2**53)]}, schema)
    assert holds(parse(f"n = {2**53 - 1}", schema), table).tolist() == [False, True, False]
    assert holds(parse(f"n < {2**53}.0", schema), table).tolist() == [False, True, True]


def test_values_are_compared_as_they_are_counted():
    table = Table.of(
        {"age": [99], "hours per week": [-7], "and": [" A "], "Größe": ["abcd"]}, SCHEMA
    )
    text = "age = 5 and `hours per week` = -1.5 and `and` = 'A' and not Größe = 'abc'"
    assert holds(parse(text, SCHEMA), table).tolist() == [True]


def test_a_constant_is_data_whatever_it_says():
    schema = Schema.of({"c": ["__import__('os').abort()", "x"]})
    table = Table.of({"c": ["__import__('os').abort()", "x"]}, schema)
    predicate = parse("c = \"__import__('os').abort()\"", schema)
    assert np.array_equal(holds(predicate, table), [True, False])
