"""Nodes with a file each agree on columns, categories and classes that their code declares."""

import logging
from pathlib import Path

import numpy as np
import pytest

from zerosum.client.spec import DataSpec
from zerosum.simulations.data.data_files import DataError
from zerosum.simulations.data.tabular.columns import Table, read_table
from zerosum.simulations.data.tabular.declared import (
    declared_classes,
    declared_inputs,
    declared_line,
    declared_values,
)

CATEGORIES = {"sex": ["f", "m"]}


def read(tmp_path: Path, *rows: str) -> Table:
    path = tmp_path / "node.csv"
    path.write_text("\n".join(rows) + "\n")
    return read_table(path, DataSpec(label="y", missing=[""]))


def test_a_file_that_lacks_a_category_gives_inputs_of_the_same_shape(tmp_path: Path) -> None:
    one = read(tmp_path, "age,sex,y", "40,f,0", "50,f,1")
    assert declared_inputs(one, ["sex", "age"], CATEGORIES, "k").tolist() == [
        [1, 0, 40],
        [1, 0, 50],
    ]


def test_categories_that_a_file_writes_as_numbers_are_the_same(tmp_path: Path) -> None:
    one = read(tmp_path, "age,sex,y", "40,1,0", "50,2,1")
    assert declared_inputs(one, ["sex"], {"sex": ["1", "2"]}, "k").tolist() == [[1, 0], [0, 1]]


def test_a_category_that_is_not_declared_counts_as_none_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = read(tmp_path, "age,sex,y", "40,x,0", "50,m,1", "60,,1")
    with caplog.at_level(logging.WARNING, "zerosum.client"):
        found = declared_inputs(one, ["sex"], CATEGORIES, "node.csv")
    assert found.tolist() == [[0, 0], [0, 1], [0, 0]]
    assert 'node.csv: column "sex": 1 of 3 are none of its categories, as "x"' in caplog.text


def test_a_column_of_numbers_that_holds_words_is_refused(tmp_path: Path) -> None:
    one = read(tmp_path, "age,sex,y", "40,m,0", "50,f,1", "?,m,1")
    with pytest.raises(DataError, match=r'"age" must hold numbers, and 1 of 3 are "\?"'):
        declared_inputs(one, ["age"], {}, "node.csv")
    with pytest.raises(DataError, match='column = "weight": no such column'):
        declared_inputs(one, ["weight"], {}, "node.csv")


def test_classes_are_those_of_the_code_whatever_a_file_has() -> None:
    assert declared_classes(np.array([1.0, 0.0]), ["0", "1", "2"], "k").tolist() == [1, 0]
    assert declared_classes(np.array(["b"], object), ["a", "b"], "k").tolist() == [1]
    with pytest.raises(DataError, match='"c" is none of the classes a, b'):
        declared_classes(np.array(["c"], object), ["a", "b"], "k")


def test_values_are_scaled_by_the_code_whatever_a_file_has() -> None:
    assert declared_values(np.array([3, 5]), 3.0, 2.0, "k").tolist() == [0.0, 1.0]
    with pytest.raises(DataError, match="finite numbers"):
        declared_values(np.array(["x"], object), 0.0, 1.0, "k")


def test_the_line_names_the_columns_that_are_no_inputs(tmp_path: Path) -> None:
    read(tmp_path, ",age,sex,y", "0,40,m,0", "1,50,f,1")
    line = declared_line(tmp_path / "node.csv", "y", ["age"], {"missing": [""]})
    assert "left out: column 1 (no name: numbers of records), sex" in line


def test_the_line_says_what_was_filled_what_counts_as_none_and_what_an_output_is(
    tmp_path: Path,
) -> None:
    read(tmp_path, "age,sex,y", "40,m,0", ",x,1", "60,,2")
    line = declared_line(
        tmp_path / "node.csv", "y", ["age", "sex"], {}, CATEGORIES, scale=(1.0, 10.0), public=1
    )
    assert line == (
        "node.csv: 3 records; label y (values to regress on); 2 inputs: age, sex (2 categories); "
        "missing numbers filled: age; empty texts have no category: sex; some records have a "
        "category that the code does not declare, which counts as none: sex (1); 1 record is "
        "public (data.test_fraction), and nothing protects them; the model gives (y - 1) / 10"
    )
    classes = declared_line(tmp_path / "node.csv", "y", ["age"], {}, classes=["0", "1", "2"])
    assert "label y (3 classes: 0, 1, 2); 1 input: age" in classes
