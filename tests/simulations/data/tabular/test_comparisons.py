"""Labels that are comparisons: which reading is meant, and what holds."""

import operator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from zerosum.client.spec import DataSpec
from zerosum.simulations.data.data_files import DataError
from zerosum.simulations.data.tables import table
from zerosum.simulations.data.tabular.columns import Table
from zerosum.simulations.data.tabular.comparisons import compared, holds, label_of

NUM = np.array([0, 1, 2, 3, 4, 0])
KIND = np.array(["a", "b", "c", "a", "b", "c"], dtype=object)
COLUMNS = {"num": NUM, "kind": KIND, "hours-per-week": NUM * 10.0, "x > 1": NUM}

SIGNS = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "==": operator.eq,
    "!=": operator.ne,
}  # fmt: skip


@pytest.mark.parametrize("sign", list(SIGNS))
def test_each_sign_means_what_it_means_elsewhere(sign: str) -> None:
    label = label_of(f"num {sign} 2", COLUMNS)
    assert label.predicate is not None
    truth = holds(label.predicate, Table(COLUMNS), "k")
    assert truth.tolist() == [SIGNS[sign](value, 2) for value in NUM.tolist()]
    assert label.words is not None
    opposite = label_of(label.words[0], COLUMNS)
    assert opposite.predicate is not None
    assert (~truth).tolist() == holds(opposite.predicate, Table(COLUMNS), "k").tolist()


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("num in (1, 4)", [1, 4]),
        ("num not in (1, 4)", [0, 2, 3, 5]),
        ('kind == "b"', [1, 4]),
        ('kind in ("a", "b")', [0, 1, 3, 4]),
        ("hours-per-week >= 30", [3, 4]),
        ("`hours-per-week` >= 30", [3, 4]),
        ("x > 1 > 2", [3, 4]),
    ],
)
def test_lists_texts_and_odd_names_are_compared(text: str, places: list[int]) -> None:
    label = label_of(text, COLUMNS)
    assert label.predicate is not None
    assert np.flatnonzero(holds(label.predicate, Table(COLUMNS), "k")).tolist() == places


def test_a_column_whose_name_looks_like_a_comparison_is_that_column() -> None:
    assert label_of("x > 1", COLUMNS).columns == ("x > 1",)
    both = {**COLUMNS, "x": NUM}
    with pytest.raises(DataError, match="is a column, and a comparison"):
        label_of("x > 1", both)
    assert label_of("`x > 1`", both).predicate is None, "the cure for the column"
    meant = label_of("`x` > 1", both)
    assert meant.columns == ("x",), "the cure for the comparison"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nmu > 0", "no such column; there are num"),
        ("num >", "no comparison"),
        ("num > kind", "no comparison"),
        ('num > "0"', "is a text"),
        ('num == "x"', "a number, without quotes"),
        ("kind == 1", "a text in quotes"),
        ('kind > "a"', "use == or in"),
    ],
)
def test_a_comparison_that_cannot_be_is_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(DataError) as caught:
        compared(Table(COLUMNS), label_of(text, COLUMNS), "data.label")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_record_without_a_value_has_no_label() -> None:
    gaps = Table({"num": np.array([1.0, np.nan])})
    with pytest.raises(DataError, match="some values are missing"):
        compared(gaps, label_of("num > 0", ["num"]), "data.label")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    num = rng.integers(0, 5, 60)
    frame = pd.DataFrame({"a": rng.normal(size=60), "b": rng.integers(0, 9, 60), "num": num})
    frame.to_csv(tmp_path / "t.csv", index=False)
    return tmp_path / "t.csv"


def test_the_compared_column_is_no_input_and_both_classes_are_named(file: Path) -> None:
    found = table(DataSpec(path=str(file), label="num > 1"))
    assert found.read is not None
    assert found.read["inputs"] == ["a", "b"]
    assert found.read["left_out"] == {"num": "the label is num > 1"}
    assert found.read["classes"] == ["num <= 1", "num > 1"]
    assert found.class_names == ("num <= 1", "num > 1")
    assert "label num > 1 (2 classes: num <= 1, num > 1)" in found.read["line"]
    truth = (pd.read_csv(file)["num"] > 1).sum()
    assert found.train.targets.sum() + found.test.targets.sum() == truth


@pytest.mark.parametrize("leak", ["the column", "the truth", "in between"])
def test_a_column_that_is_the_compared_one_in_other_words_is_refused(file: Path, leak: str) -> None:
    frame = pd.read_csv(file)
    grades: dict[str, Any] = {
        "the column": frame["num"] * 2 + 1,
        "the truth": np.where(frame["num"] > 1, "ill", "well"),
        "in between": frame["num"].clip(lower=1),
    }
    frame.assign(grade=grades[leak]).to_csv(file, index=False)
    with pytest.raises(DataError, match=r'column "grade" is .* other words'):
        table(DataSpec(path=str(file), label="num > 1"))
    cured = table(DataSpec(path=str(file), label="num > 1", exclude=["grade"]))
    assert cured.train.inputs.shape[1] == 2
    named = table(DataSpec(path=str(file), label="num > 1", features=["a", "grade"]))
    assert named.read is not None
    assert "caution: grade is" in named.read["line"], "whoever names it, has it"


@pytest.mark.parametrize("key", ["features", "exclude"])
def test_a_key_that_names_the_compared_column_is_refused_with_the_cure(
    file: Path, key: str
) -> None:
    with pytest.raises(DataError, match=f'data.{key}: column "num" is read by the label.*leave it'):
        table(DataSpec.model_validate({"path": str(file), "label": "num > 0", key: ["num"]}))


def test_the_control_a_column_that_merely_helps_is_an_input(file: Path) -> None:
    frame = pd.read_csv(file)
    near = (frame["num"] > 1).to_numpy(copy=True)
    near[0] = not near[0]
    frame.assign(near=near.astype(int)).to_csv(file, index=False)
    assert table(DataSpec(path=str(file), label="num > 1")).train.inputs.shape[1] == 3
