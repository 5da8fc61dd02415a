"""Columns that name records are no inputs, in a run and in a project that is made for them."""

from pathlib import Path

import numpy as np
import pytest

from zerosum.client.spec import DataSpec
from zerosum.simulations.data.tables import table
from zerosum.simulations.data.tabular.identifiers import why_identifier
from zerosum.simulations.new.app import Asked, make_app

ROWS = np.random.default_rng(0)


@pytest.mark.parametrize(
    "name",
    ["id", "ID", "customer_id", "PassengerId", "patientID", "index", "uuid", "order.id"],
)
def test_different_whole_numbers_under_such_a_name_are_an_identifier(name: str) -> None:
    values = ROWS.permutation(1000)[:60]
    assert why_identifier(name, values, np.arange(60)) == "an identifier, another in every record"


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("humidity", ROWS.permutation(1000)[:60]),  # ends as an id does
        ("idle_minutes", ROWS.permutation(1000)[:60]),
        ("hospital_id", np.arange(60) % 4),  # shared: says where a record is from
        ("id", ROWS.normal(size=60)),
        ("day", np.arange(60)),  # time, perhaps
    ],
)
def test_other_numbers_are_inputs(name: str, values: np.ndarray) -> None:
    assert why_identifier(name, values, np.arange(60)) is None


def test_an_identifier_is_told_from_the_public_records_alone() -> None:
    public = np.array([3, 5, 8, 13, 21])
    numbers = np.arange(60)
    numbers[0] = 5  # a private record: nothing may follow from it
    assert why_identifier("row_id", numbers, public) is not None
    numbers[3] = 5
    assert why_identifier("row_id", numbers, public) is None


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    ids = rng.permutation(10_000)[:60]
    lines = [f"{i},{i + 1},{v:.3f},{'yes' if v > 0 else 'no'}"
             for i, v in zip(ids, rng.normal(size=60), strict=True)]  # fmt: skip
    path = tmp_path / "people.csv"
    path.write_text("\n".join(["customer_id,age,score,label", *lines, ""]))
    return path


def test_a_run_leaves_an_identifier_out_and_says_so(file: Path) -> None:
    found = table(DataSpec(path=str(file)))
    assert found.train.inputs.shape[1] == 2
    assert found.read is not None
    assert "customer_id" in found.read["line"]
    named = table(DataSpec(path=str(file), features=["customer_id", "score"]))
    assert named.train.inputs.shape[1] == 2, "the control: who names it, has it"


def test_a_new_project_does_not_train_on_it(file: Path, tmp_path: Path) -> None:
    made = make_app(tmp_path / "ours", Asked((str(file),)))
    assert made.found.left_out["customer_id"] == "an identifier, another in every record"
    assert "customer_id" not in (made.folder / "ours" / "data.py").read_text()
