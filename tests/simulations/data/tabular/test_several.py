"""Several files as one table."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from zerosum.client.files.named_files import named_files
from zerosum.client.spec import DataSpec
from zerosum.server.runs.resume import fingerprint
from zerosum.simulations.data.data_files import DataError
from zerosum.simulations.data.tables import table
from zerosum.simulations.data.tasks import TableTask


def frame(seed: int, count: int = 40) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.integers(30, 80, count),
            "chol": rng.integers(100, 300, count),
            "sex": rng.choice(["f", "m"], count),
            "num": rng.integers(0, 5, count),
        }
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for seed in range(3):
        frame(seed).to_csv(tmp_path / f"h{seed}.csv", index=False)
    return tmp_path


def spec(folder: Path, **keys: object) -> DataSpec:
    given = {"path": str(folder / "h*.csv"), "label": "num > 0", "partition": "natural", **keys}
    return DataSpec.model_validate(given)


def test_each_file_is_a_client_of_the_natural_partition(folder: Path) -> None:
    found = table(spec(folder))
    assert found.train.owners is not None
    assert np.unique(found.train.owners).tolist() == [0, 1, 2]
    assert found.read is not None
    assert found.read["files"] == ["h0.csv", "h1.csv", "h2.csv"]
    assert "h0.csv (40 records), h1.csv (40 records)" in found.read["line"]


def test_a_list_is_read_in_its_order_and_a_pattern_by_name(folder: Path) -> None:
    names = [str(folder / f"h{number}.csv") for number in (2, 0, 1)]
    listed = table(spec(folder, path=names))
    assert listed.read is not None
    assert listed.read["files"] == ["h2.csv", "h0.csv", "h1.csv"]
    assert [file.name for file in named_files(str(folder / "h*.csv"))] == [
        "h0.csv",
        "h1.csv",
        "h2.csv",
    ]
    (folder / "h[0].csv").write_text("a name, and no pattern")
    assert named_files(str(folder / "h[0].csv")) == (folder / "h[0].csv",)


def test_a_file_alone_holds_out_the_records_that_it_holds_out_among_others(folder: Path) -> None:
    together = table(spec(folder, features=["age", "chol"]))
    assert together.train.owners is not None
    for number in range(3):
        alone = table(spec(folder, path=str(folder / f"h{number}.csv"), partition="iid"))
        mine = together.train.owners == number
        assert together.train.targets[mine].tolist() == alone.train.targets.tolist()


def test_a_column_that_a_file_lacks_is_missing_there(folder: Path) -> None:
    frame(1).drop(columns="chol").to_csv(folder / "h1.csv", index=False)
    with pytest.raises(DataError, match=r'column "chol" is not in h1\.csv; write data\.missing'):
        table(spec(folder))
    found = table(spec(folder, missing=[""]))
    assert found.read is not None
    assert "h1.csv lacks chol" in found.read["line"]
    assert found.train.owners is not None
    chol = found.train.inputs[found.train.owners == 1][:, found.read["inputs"].index("chol")]
    assert (chol == 0).all(), "the public mean"


def test_zeros_of_a_whole_file_are_named_where_others_measure(folder: Path) -> None:
    frame(1).assign(chol=0).to_csv(folder / "h1.csv", index=False)
    found = table(spec(folder, missing=[""]))
    assert found.read is not None
    assert "chol is 0 in all public records of h1.csv: not measured there?" in found.read["line"]
    control = table(spec(folder, path=[str(folder / "h0.csv"), str(folder / "h2.csv")]))
    assert control.read is not None
    assert "not measured" not in control.read["line"]


def test_numbers_in_one_file_and_texts_in_another_are_refused(folder: Path) -> None:
    frame(1).assign(age="old").to_csv(folder / "h1.csv", index=False)
    with pytest.raises(DataError, match=r'"age" holds numbers in h0\.csv and texts in h1\.csv'):
        table(spec(folder))
    assert table(spec(folder, exclude=["age"])).train.inputs.shape[1] == 3


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        (["h0.csv", "h0.csv"], "named twice"),
        (["h*.csv", "h2.csv"], "named twice"),
        (["h0.csv", "h9.csv"], "no such file"),
        (["x*.csv"], "no such file"),
    ],
)
def test_files_that_are_not_there_or_there_twice_are_refused(
    folder: Path, paths: list[str], words: str
) -> None:
    with pytest.raises(DataError, match=words):
        table(spec(folder, path=[str(folder / path) for path in paths]))


def test_a_run_on_several_files_notices_that_one_was_changed(folder: Path) -> None:
    pattern = str(folder / "h*.csv")
    before = fingerprint(pattern)
    assert before == fingerprint([str(folder / f"h{number}.csv") for number in range(3)])
    frame(9).to_csv(folder / "h1.csv", index=False)
    assert fingerprint(pattern) != before


def test_the_task_has_a_client_a_file(folder: Path) -> None:
    from zerosum.client.spec import ModelSpec

    assert TableTask.from_specs(spec(folder), ModelSpec(), 0).num_clients() == 3
