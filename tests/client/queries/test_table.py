"""A file's values are coded as declared; whatever cannot be read counts as missing alone."""

import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from zerosum.client.queries import table_files
from zerosum.client.queries.encode import encode
from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.predicate import parse
from zerosum.client.queries.query import Count, Histogram
from zerosum.client.queries.schema import Schema
from zerosum.client.queries.table import Table, check_file, read_table
from zerosum.secagg.randomness import insecure_keystream

ADULT = Path("../shared/data/adult.csv")

SCHEMA = Schema.of(
    {
        "age": {"integer": [17, 90]},
        "sex": ["Female", "Male"],
        "income": {"number": [0, 1000.0]},
        "word": {"text": 3, "alphabet": "a-c"},
    }
)
CSV = """ age ,sex, income,extra,word
45, Female ,1.5,x,abc
16,female,-3,x,abcd
91,,1e9,x,ABC
,Male,,x,
4.5,?,abc,x, a
20.0,"Ma""le",inf,x,cab
nan,Male,1_0,x,b
too,few
30,Male,5,x,c,too many

-,"a, b",\ufffd,"x
y",aa
"""


def written(tmp_path, text=CSV, name="data.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def encoded(query, schema, table):
    return encode(
        query,
        schema,
        table,
        unit="record",
        cap=None,
        max_records=1 << 20,
        secret=bytes(32),
        coins=insecure_keystream(1, "coins"),
    )


def test_values_are_clamped_and_what_cannot_be_read_is_missing(tmp_path, caplog):
    table = read_table(written(tmp_path), SCHEMA)
    assert len(table) == 10
    assert table.columns["age"].tolist() == [28, 0, 73, -1, -1, 3, -1, -1, -1, -1]
    assert table.columns["sex"].tolist() == [0, 2, 2, 1, 2, 2, 1, 2, 2, 2]
    nan = np.nan
    expected = [1.5, 0, 1000, nan, nan, nan, nan, nan, nan, nan]
    np.testing.assert_array_equal(table.columns["income"], expected)
    assert table.columns["word"].tolist() == ["abc", "", "", "", "a", "cab", "b", "", "", "aa"]
    assert "2 of 10 rows have not the header's 5 fields" in caplog.text


def test_rows_are_read_some_at_a_time_into_one_table(tmp_path, monkeypatch, caplog):
    whole = read_table(written(tmp_path, name="whole.csv"), SCHEMA)
    monkeypatch.setattr(table_files, "ROWS_AT_ONCE", 3)
    parts = read_table(written(tmp_path, name="parts.csv"), SCHEMA)
    assert len(parts) == 10
    for name in SCHEMA.columns:
        np.testing.assert_array_equal(parts.columns[name], whole.columns[name])
    assert caplog.text.count("2 of 10 rows") == 2


def test_bytes_that_are_no_text_spoil_their_own_value(tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes(b"\xef\xbb\xbfage,sex\n20,Male\xff\n\x00,Male\n30,Female\n")
    table = read_table(path, SCHEMA.only(["age", "sex"]))
    assert table.columns["age"].tolist() == [3, -1, 13]
    assert table.columns["sex"].tolist() == [2, 1, 0]


def test_a_field_beyond_the_reader_s_limit_spoils_its_own_row(tmp_path):
    text = "age,sex\n20,Male\n" + "9" * 200_000 + ",Male\n30,Female\n"
    table = read_table(written(tmp_path, text), SCHEMA.only(["age", "sex"]))
    assert table.columns["age"].tolist() == [3, -1, 13]


def test_columns_are_renamed(tmp_path):
    path = written(tmp_path, "AGE YEARS,sex\n20,Male\n")
    table = read_table(path, SCHEMA.only(["age", "sex"]), {"age": "AGE YEARS"})
    assert table.columns["age"].tolist() == [3]


def test_a_missing_column_is_refused_with_the_nearest_one(tmp_path):
    path = written(tmp_path, "agee,sex,sex\n20,Male,Male\n")
    with pytest.raises(QueryError, match='has no column "age"; did you mean "agee"'):
        read_table(path, SCHEMA.only(["age"]))
    with pytest.raises(QueryError, match='has more than one column "sex"'):
        read_table(path, SCHEMA.only(["sex"]))
    with pytest.raises(QueryError, match='has no column "age"'):
        check_file(path, ["age"])
    check_file(path, ["age"], {"age": "agee"})
    with pytest.raises(QueryError, match="separated by commas, and its header is 'age;sex'"):
        check_file(written(tmp_path, "age;sex\n"), ["age"])


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(QueryError, match="No such file"):
        read_table(tmp_path / "gone.csv", SCHEMA)
    with pytest.raises(QueryError, match="directory"):
        read_table(tmp_path, SCHEMA)
    with pytest.raises(QueryError, match="no header"):
        read_table(written(tmp_path, ""), SCHEMA)
    bad = written(tmp_path, "no parquet", "data.parquet")
    pytest.importorskip("pyarrow", reason="the extra parquet is not installed")
    with pytest.raises(QueryError, match=r"data\.parquet: "):
        read_table(bad, SCHEMA)


def test_a_file_without_rows_is_an_empty_table(tmp_path):
    table = read_table(written(tmp_path, "age,sex,income,word\n"), SCHEMA)
    assert len(table) == len(Table.empty(SCHEMA)) == 0
    assert encoded(Histogram(columns=("sex",)), SCHEMA, table).tolist() == [0, 0, 0]


def test_a_table_is_read_anew_when_its_file_changes(tmp_path):
    schema = SCHEMA.only(["age"])
    path = written(tmp_path, "age\n20\n")
    first = read_table(path, schema)
    assert read_table(path, schema) is first
    assert read_table(path, SCHEMA.only(["age"])) is first
    written(tmp_path, "age\n30\n")
    os.utime(path, ns=(1, 1))
    assert read_table(path, schema).columns["age"].tolist() == [13]
    assert first.columns["age"].tolist() == [3]


def test_a_shared_table_cannot_be_written_to(tmp_path):
    table = read_table(written(tmp_path), SCHEMA)
    for values in table.columns.values():
        with pytest.raises(ValueError, match="read-only"):
            values[0] = values[1]


def test_parquet_and_csv_give_the_same_table(tmp_path):
    pytest.importorskip("pyarrow", reason="the extra parquet is not installed")
    frame = pd.DataFrame(
        {
            "age": pd.array([45, None, 99], dtype="Int64"),
            "sex": ["Male", None, "Female"],
            "income": [1.5, np.nan, -1.0],
            "word": ["abc", None, "a"],
        }
    )
    frame.to_parquet(tmp_path / "data.parquet")
    frame.to_csv(tmp_path / "data.csv", index=False)
    parquet, text = (read_table(tmp_path / f"data.{end}", SCHEMA) for end in ("parquet", "csv"))
    for name in SCHEMA.columns:
        np.testing.assert_array_equal(parquet.columns[name], text.columns[name])
    assert parquet.columns["age"].tolist() == [28, -1, 73]


def test_parquet_without_its_reader_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(QueryError, match=r'pip install "zerosum\[parquet\]"'):
        read_table(written(tmp_path, "", "data.parquet"), SCHEMA)


@pytest.mark.parametrize(
    ("column", "values", "codes"),
    [
        ({"integer": [0, 9]}, np.array([1, -5, 200], np.int16), [1, 0, 9]),
        ({"integer": [0, 9]}, np.array([1.5, np.nan, np.inf, 1e30, 3]), [-1, -1, -1, 9, 3]),
        ({"integer": [0, 9]}, [True, None, "3", pd.NA, 4], [-1, -1, 3, -1, 4]),
        ({"integer": [-(2**53), 2**53]}, [2**53, 2**60, -(2**53)], [2**54, 2**54, 0]),
        (["1", "True"], [1, True, 1.5, None, np.nan, "1 "], [0, 1, 2, 2, 2, 0]),
        (["1", "2"], np.array([1, np.nan, 2.0, 2.5, np.inf]), [0, 2, 1, 2, 2]),
        (["1.0", "2"], [1.0, 2.0, np.float32(2), "2.5"], [0, 1, 1, 2]),
        (
            ["2020-01-01", "2020-01-02 06:00:00"],
            [
                pd.Timestamp(day)
                for day in ("2020-01-01", "", "2020-01-02 06:00", "2020-01-01 01:00")
            ],
            [0, 2, 1, 2],
        ),
    ],
)
def test_values_of_memory_are_coded_as_those_of_files(column, values, codes):
    schema = Schema.of({"it": column})
    assert Table.of({"it": values}, schema).columns["it"].tolist() == codes


def test_a_table_has_all_columns_of_one_length():
    with pytest.raises(QueryError, match='has no column "sex"'):
        Table.of({"age": [1]}, SCHEMA.only(["age", "sex"]))
    with pytest.raises(QueryError, match="rows"):
        Table.of({"age": [1], "sex": ["Male"] * 2}, SCHEMA.only(["age", "sex"]))


@pytest.mark.skipif(not ADULT.exists(), reason="../shared/data/adult.csv is not there")
def test_counts_of_adult_equal_those_of_pandas():
    frame = pd.read_csv(ADULT, skipinitialspace=True)
    sexes, races = sorted(frame.sex.unique()), sorted(frame.race.unique())[1:]
    schema = Schema.of(
        {"age": {"integer": [17, 90]}, "sex": sexes, "race": races, "income": [">50K"]}
    )
    table = read_table(ADULT, schema)
    where = parse("age >= 65 and not (sex = 'Male' or race = '(other)')", schema)
    kept = frame[(frame.age >= 65) & ~((frame.sex == "Male") | ~frame.race.isin(races))]
    assert encoded(Count(where=where), schema, table).tolist() == [len(kept)]
    found = encoded(Histogram(columns=("age", "sex"), by=("race",)), schema, table)
    race = frame.race.where(frame.race.isin(races), "(other)")
    expected = pd.crosstab([frame.age, frame.sex], race).reindex(
        index=pd.MultiIndex.from_product([range(17, 91), [*sexes, "(other)"]]),
        columns=[*races, "(other)"],
        fill_value=0,
    )
    np.testing.assert_array_equal(found, expected.to_numpy().ravel())


def test_whole_numbers_with_a_point_are_the_integers_that_are_listed(tmp_path):
    """Of a column that lacks values pandas writes 1.0 for 1."""
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1.0,1.0\n 0.00 ,1\n-1.0,0.0\n1.5,1.\n.0,v1.0\n,1.00\n")
    schema = Schema.of({"a": ["-1", "0", "1"], "b": ["1", "1.0"]})
    table = read_table(path, schema)
    assert table.columns["a"].tolist() == [2, 1, 0, 3, 3, 3]
    # What is listed as it stands is not taken for anything else.
    assert table.columns["b"].tolist() == [1, 0, 2, 0, 2, 0]


def test_columns_without_a_declared_value_are_told_to_their_owner(tmp_path, caplog):
    path = tmp_path / "t.csv"
    path.write_text("a,b,c,d\nF,x,,ABC\nM,y,?,\n")
    domains = {"integer": [0, 9]}, {"number": [0, 1]}, {"text": 3, "alphabet": "a-c"}
    schema = Schema.of({"a": ["Female", "Male"], "b": domains[0], "c": domains[1], "d": domains[2]})
    read_table(path, schema)
    assert [line.split(": ")[-1] for line in caplog.messages] == [
        "every one counts as (other)",
        *["every one counts as missing"] * 3,
    ]
    caplog.clear()
    path.write_text("a,b,c,d\nF,x,,ABC\nMale,99,1,a\n\n")
    read_table(path, schema)
    assert not caplog.messages
