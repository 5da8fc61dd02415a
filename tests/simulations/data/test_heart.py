"""The four hospitals: made-up records of their form, and the real ones where they are."""

from pathlib import Path

import numpy as np
import pytest
from narrowed import present

from zerosum.client.spec import DataSpec
from zerosum.simulations import api
from zerosum.simulations.data.data_files import DataError
from zerosum.simulations.data.heart import HOSPITALS, heart

DATA = Path(__file__).parents[4] / "shared" / "data"
COLUMNS = "age,sex,cp,trestbps,chol,fbs,restecg,thalach,exang,oldpeak,slope,ca,thal,num"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, name in enumerate(HOSPITALS):
        rows = [
            f"{50 + i},1,4,130,{200 if number else 0},0,1,140,0,1,2,,,{i % 3}" for i in range(10)
        ]
        (tmp_path / f"heart_{name}.csv").write_text("\n".join([COLUMNS, *rows, ""]))
    return tmp_path


def test_each_hospital_is_a_client_and_what_is_missing_says_so(folder: Path) -> None:
    found = heart(DataSpec(path=str(folder)))
    assert found.classes == 2
    assert len(found.train) + len(found.test) == 40
    assert set(np.unique(present(found.train.owners))) == {0, 1, 2, 3}
    assert found.train.inputs.shape[1] == 29
    first = found.train.inputs[found.train.owners == 0]
    second = found.train.inputs[found.train.owners == 1]
    # Zero cholesterol was not measured: at its common value, and marked.
    assert (first[:, 4:6] == [0, 1]).all()
    assert np.allclose(second[:, 4:6], [-0.4, 0])


def test_files_that_do_not_fit_are_named(folder: Path) -> None:
    with pytest.raises(DataError, match="is no folder"):
        heart(DataSpec(path=str(folder / "heart_va.csv")))
    (folder / "heart_va.csv").write_text("age,sex\n1,2\n")
    with pytest.raises(DataError, match=r"heart_va\.csv.*lacks trestbps"):
        heart(DataSpec(path=str(folder)))
    (folder / "heart_va.csv").unlink()
    with pytest.raises(DataError, match=rf'data\.path = "{folder}" lacks heart_va\.csv'):
        heart(DataSpec(path=str(folder)))


def test_a_question_mark_is_a_missing_value_and_another_word_is_named(folder: Path) -> None:
    plain = heart(DataSpec(path=str(folder)))
    path = folder / "heart_hungarian.csv"
    text = path.read_text()
    path.write_text(text.replace(",,", ",?,"))
    marked = heart(DataSpec(path=str(folder.rename(folder.with_name("marked")))))
    assert np.array_equal(marked.train.inputs, plain.train.inputs)
    moved = folder.with_name("marked")
    (moved / path.name).write_text(text.replace("50,1,", "unknown,1,"))
    with pytest.raises(DataError) as caught:
        heart(DataSpec(path=str(moved.rename(folder))))
    assert f'"{path}": column "age" must hold numbers, and 1 of 10 are "unknown"' in str(
        caught.value
    )


@pytest.mark.slow
def test_four_hospitals_learn_together_at_epsilon_3(tmp_path: Path, one_thread: None) -> None:
    if not (DATA / "heart_va.csv").exists():
        pytest.skip("needs ../shared/data/heart_*.csv")
    result = api.run("heart", overrides=[f"data.path={DATA}"], out=tmp_path / "run", report=False)
    assert result.metrics["test_accuracy"] >= 0.78
    assert result.summary["epsilon"]["sum"]["value"] <= 3
