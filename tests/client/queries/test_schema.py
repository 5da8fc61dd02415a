"""Domains are read in one notation, and what no column can have is refused with its cure."""

import tomllib

import pytest

from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.notation import expanded
from zerosum.client.queries.schema import IntegerColumn, NumberColumn, Schema, TextColumn, template

NOTATION = """
[schema]
age = {integer = [17, 90]}
"hours per week" = {number = [0, 1.5], bins = 3}
sex = ["Female", "Male"]
word = {text = 10, alphabet = "a-c'-"}
gain = {integer = [0, 10], bins = 4}
"""


@pytest.fixture
def schema(tmp_path):
    path = tmp_path / "schema.toml"
    path.write_text(NOTATION, encoding="utf-8")
    return Schema.read(path)


def test_the_notation_is_read(schema):
    assert schema.column("age") == IntegerColumn(low=17, high=90)
    assert schema.column("word") == TextColumn(length=10, alphabet="'-abc")
    assert schema.column("sex").labels == ("Female", "Male", "(other)")
    assert schema.column("hours per week").labels == ("0..0.5", "0.5..1", "1..1.5")
    assert schema.column("gain").labels == ("0..2", "3..5", "6..8", "9..10")
    assert schema.column("age").cells == 74


@pytest.mark.parametrize(
    ("low", "high", "bins"), [(1e6, 1e6 + 10, 10), (1e9, 1e9 + 1, 4096), (-1 / 3, 1 / 3, 2)]
)
def test_labels_tell_the_ends_of_cells_apart(low, high, bins):
    labels = NumberColumn(low=low, high=high, bins=bins).labels
    assert len(set(labels)) == bins
    ends = [float(label.split("..")[0]) for label in labels]
    assert ends == pytest.approx(
        [low + i * (high - low) / bins for i in range(bins)], abs=(high - low) / bins / 500
    )


def test_a_schema_has_canonical_bytes(schema):
    assert Schema.from_canonical(schema.canonical()) == schema


def test_a_part_of_a_schema_keeps_its_order(schema):
    assert list(schema.only(["sex", "age"]).columns) == ["age", "sex"]


def test_an_unknown_column_is_answered_with_the_nearest(schema):
    with pytest.raises(QueryError, match='column "agee" is not in the schema; did you mean "age"'):
        schema.column("agee")


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ([], "at least 1 item"),
        (["A", "A"], "'A' is listed twice"),
        ([""], "empty"),
        ([" A"], "begins or ends in a blank"),
        (["(other)"], "is counted always"),
        (["A\nB"], "does not print"),
        ([1, 2], "valid string"),
        ({"integer": [5, 5]}, "low must be below high"),
        ({"integer": [6, 5]}, "low must be below high"),
        ({"integer": [0, 1.5]}, "valid integer"),
        ({"integer": [0, 2**60]}, "less than or equal"),
        ({"integer": [0]}, "not two bounds"),
        ({"integer": [0, True]}, "valid integer"),
        ({"integer": [0, 3], "bins": 9}, "has 4 values"),
        ({"integer": [0, 3], "bins": 1}, "greater than or equal to 2"),
        ({"integer": [0, 3], "bin": 2}, "bin: there is no such key"),
        ({"integer": [0, 3], "number": [0, 1]}, "not one of the keys"),
        ({"number": [0.0, 0.0]}, "low must be below high"),
        ({"number": [0, float("nan")]}, "finite number"),
        ({"number": [float("-inf"), 0]}, "finite number"),
        ({"number": [0, 1e31]}, "less than or equal"),
        ({"text": 0, "alphabet": "a-z"}, "greater than or equal to 1"),
        ({"text": 10}, "a text has an alphabet"),
        ({"text": 10, "alphabet": ""}, "at least 1 character"),
        ({"text": 10, "alphabet": "a\0"}, "alphabet holds '.x00'"),
        ({"text": 10, "alphabet": "a\n"}, "alphabet holds '.n'"),
        ({"text": 10, "alphabet": "\ud800"}, "unicode"),
        ({"text": 10, "alphabet": "aba"}, "names a character twice"),
        ({"text": 10, "alphabet": "z-a"}, "descends"),
        ({"text": 10, "alphabet": "\x01-z"}, "do not print"),
        ({}, "not one of the keys"),
        ("integer", "is no domain"),
        (3, "is no domain"),
    ],
)
def test_a_wrong_domain_is_refused_in_one_line(written, reason):
    with pytest.raises(QueryError, match=reason) as refused:
        Schema.of({"it": written})
    assert str(refused.value).startswith("schema.it: ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["", " a", "a\nb", "a\0"])
def test_a_column_has_a_name_that_prints(name):
    with pytest.raises(QueryError, match="is no name of a column"):
        Schema.of({name: ["A"]})


def test_a_schema_of_no_column_is_refused(tmp_path):
    with pytest.raises(QueryError, match="at least 1 item"):
        Schema.of({})
    path = tmp_path / "empty.toml"
    path.write_text("a = 1\n")
    with pytest.raises(QueryError, match=r"no column in a section \[schema\]"):
        Schema.read(path)
    with pytest.raises(QueryError, match=r"gone\.toml does not exist"):
        Schema.read(tmp_path / "gone.toml")
    path.write_text("[schema\n")
    with pytest.raises(QueryError, match=r"empty\.toml is not valid TOML"):
        Schema.read(path)


@pytest.mark.parametrize(
    ("notation", "characters"),
    [("a-c", "abc"), ("-a", "-a"), ("a-", "-a"), ("a-c-", "-abc"), ("z'a", "'az"), ("-", "-")],
)
def test_an_alphabet_is_expanded(notation, characters):
    assert expanded(notation) == characters


def test_a_template_is_written_from_the_header_alone(tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes('\ufeff age ,"hours, ""a"" week",sex\n'.encode() + b"\xff not read\n")
    text = template(path)
    assert tomllib.loads(text) == {"schema": {}}
    rows = [line.removeprefix("# ") for line in text.split("[schema]\n")[1].splitlines()]
    assert list(tomllib.loads("\n".join(rows))) == ["age", 'hours, "a" week', "sex"]
    assert "not read" not in text


def test_a_file_without_header_has_no_template(tmp_path):
    path = tmp_path / "empty.csv"
    path.write_text("")
    with pytest.raises(QueryError, match="no header"):
        template(path)
    with pytest.raises(QueryError, match="No such file"):
        template(tmp_path / "gone.csv")
