"""Files and arrays that are damaged or do not fit end in one line that names the key."""

import io
import os
import pickle
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zerosum.client.spec import DataSpec
from zerosum.client.task import TaskError
from zerosum.simulations.data.data_files import DataError, required_file
from zerosum.simulations.data.datasets import Collection, mnist
from zerosum.simulations.data.tables import table

Load = Callable[[DataSpec], Collection]


def refused(load: Load, spec: DataSpec, *words: str) -> None:
    with pytest.raises(DataError) as caught:
        load(spec)
    message = str(caught.value)
    assert isinstance(caught.value, TaskError)
    assert message.isprintable()
    assert len(message) < 1000
    for word in words:
        assert word in message


def digits_npz(path: Path, **changes: Any) -> DataSpec:
    generator = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        "train_images": generator.integers(0, 256, (30, 4, 4), dtype=np.uint8),
        "train_labels": np.arange(30) % 10,
        "test_images": generator.integers(0, 256, (10, 4, 4), dtype=np.uint8),
        "test_labels": np.arange(10),
    } | changes
    np.savez_compressed(path, **arrays)
    return DataSpec(path=str(path))


def table_npz(path: Path, **changes: Any) -> Path:
    arrays: dict[str, Any] = {
        "label": np.arange(40) % 2,
        "x": np.linspace(0, 1, 40),
        "site": np.arange(40) % 4,
    } | changes
    np.savez_compressed(path, **arrays)
    return path


def changed(values: Any, index: int, value: Any) -> np.ndarray:
    array = np.array(values)
    array[index] = value
    return array


WHOLE = "allowed: one whole number from 0 to 99999 a record"
LABELS = np.arange(30) % 10


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"train_labels": LABELS[:29]}, ["train_labels has 29 entries for 30 images"]),
        ({"test_labels": np.arange(11)}, ["test_labels has 11 entries for 10 images"]),
        ({"train_labels": LABELS - 1}, ["train_labels has the label -1;", WHOLE]),
        ({"train_labels": changed(LABELS, 3, 9e12)}, ["the label 9000000000000", WHOLE]),
        ({"train_labels": LABELS.astype(np.uint64) + np.uint64(2**63)}, [WHOLE]),
        ({"train_labels": LABELS + 0.5}, ["the label 0.5", WHOLE]),
        ({"test_labels": np.full(10, np.nan)}, ["test_labels has the label nan", WHOLE]),
        ({"train_labels": changed(LABELS + 0.0, 0, np.inf)}, ["the label inf", WHOLE]),
        ({"train_labels": LABELS[:, None]}, ["train_labels has shape (30, 1)", WHOLE]),
        ({"train_labels": LABELS.astype("U2")}, ["train_labels is not numeric", WHOLE]),
        ({"train_labels": LABELS + 0j}, ["train_labels is not numeric", WHOLE]),
        ({"train_labels": np.full(30, 7)}, ["train_labels: all labels are the same", "two"]),
        ({"train_labels": np.array(3)}, ["train_labels has shape ()", WHOLE]),
        ({"train_images": np.full((30, 4, 4), np.nan)}, ["train_images has missing values"]),
        ({"test_images": np.full((10, 4, 4), np.inf)}, ["test_images has", "infinities"]),
        ({"train_images": np.full((30, 4, 4), 1e39)}, ["train_images", "beyond float32"]),
        ({"train_images": np.full((30, 4, 4), "x")}, ["train_images is not numeric"]),
        ({"train_images": np.zeros((30, 4, 4), complex)}, ["train_images is not numeric"]),
        ({"train_images": np.zeros((30, 15))}, ["train_images has shape (30, 15)", "(n, h * h)"]),
        ({"train_images": np.zeros((30, 4, 4, 1))}, ["shape (30, 4, 4, 1)", "(n, h, w)"]),
        ({"train_images": np.zeros(30)}, ["train_images has shape (30,)", "(n, h, w)"]),
        ({"train_images": np.array(0)}, ["train_images has shape ()", "(n, h, w)"]),
        ({"train_images": np.zeros((30, 0, 4))}, ["train_images has shape (30, 0, 4)"]),
        ({"train_images": np.zeros((30, 0))}, ["train_images has shape (30, 0)"]),
        ({"test_images": np.zeros((10, 5, 4))}, ["test_images are of shape (1, 5, 4)"]),
        (
            {"train_images": np.zeros((0, 4, 4)), "train_labels": np.zeros(0, int)},
            ["train_images has shape (0, 4, 4)"],
        ),
        (
            {"test_images": np.zeros((0, 4, 4)), "test_labels": np.zeros(0, int)},
            ["test_images has shape (0, 4, 4)"],
        ),
        ({"train_images": np.array([{}] * 30)}, ["cannot be read", "allow_pickle"]),
    ],
)
def test_mnist_arrays_that_do_not_fit_are_named(
    tmp_path: Path, changes: dict[str, Any], words: list[str]
) -> None:
    spec = digits_npz(tmp_path / "a.npz", **changes)
    refused(mnist, spec, f'data.path = "{spec.path}"', *words)


def test_whole_floats_and_other_byte_orders_are_labels_and_pixels(tmp_path: Path) -> None:
    plain = mnist(digits_npz(tmp_path / "a.npz"))
    with np.load(tmp_path / "a.npz") as arrays:
        images = arrays["train_images"].astype(">i4")
    other = digits_npz(tmp_path / "b.npz", train_labels=LABELS.astype(">f8"), train_images=images)
    found = mnist(other)
    assert np.array_equal(found.train.targets, plain.train.targets)
    assert np.array_equal(found.train.inputs, plain.train.inputs)


def npy(values: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values)
    return buffer.getvalue()


def zipped(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


@pytest.mark.parametrize("load", [mnist, table])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"nonsense",
        b"PK\x03\x04" + bytes(40),
        npy(np.arange(5)),
        npy(np.array(5)),
        pickle.dumps({"train_images": 3}),
        zipped(),
        zipped(**{"note.txt": b"hello"}),
        zipped(**{"label.npy": b"no array", "x.npy": b"\x93NUMPY"}),
        zipped(**{"label.npy": npy(np.arange(4))[:-3]}),
    ],
)
def test_what_is_no_npz_is_named(tmp_path: Path, load: Load, content: bytes) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    refused(load, DataSpec(path=str(path)), "data.path" if load is mnist else "data.")


def test_a_truncated_npz_is_named(tmp_path: Path) -> None:
    whole = Path(str(digits_npz(tmp_path / "whole.npz").path)).read_bytes()
    for size in range(0, len(whole), 23):
        path = tmp_path / f"{size}.npz"
        path.write_bytes(whole[:size])
        for load in (mnist, table):
            refused(load, DataSpec(path=str(path), label="train_labels"), "data.path", "npz")


def test_a_flipped_bit_is_noticed_or_harmless(tmp_path: Path) -> None:
    whole = Path(str(digits_npz(tmp_path / "whole.npz").path)).read_bytes()
    expected = mnist(DataSpec(path=str(tmp_path / "whole.npz")))
    noticed = []
    for place in range(0, len(whole), 5):
        path = tmp_path / f"{place}.npz"
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        try:
            found = mnist(DataSpec(path=str(path)))
        except DataError as error:
            noticed.append(str(error))
        else:
            assert np.array_equal(found.train.inputs, expected.train.inputs)
            assert np.array_equal(found.test.targets, expected.test.targets)
    assert all(message.isprintable() and "data.path" in message for message in noticed)
    assert len(noticed) > len(whole) / 10


@pytest.mark.parametrize(
    ("changes", "options", "words"),
    [
        ({"x": changed(np.zeros(40), 3, -1e300)}, {}, ['column "x"', "beyond float32", "3.4e38"]),
        ({"x": 1e300 * np.linspace(-1, 1, 40)}, {}, ['column "x"', "beyond float32"]),
        ({"x": changed(np.zeros(40), 3, np.inf)}, {}, ['column "x"', "infinities"]),
        ({"x": np.zeros((40, 0))}, {}, ['column "x" has shape (40, 0)']),
        ({"x": np.array(3.0)}, {}, ['column "x" has shape ()']),
        ({"x": np.zeros(39)}, {}, ['column "x" has 39 entries for 40 labels']),
        ({"x": np.full(40, "a")}, {"features": ["x"]}, ['column "x" is not numeric']),
        ({"label": np.zeros((40, 2))}, {}, ['data.label = "label" has shape (40, 2)']),
        ({"label": np.zeros((40, 1), int)}, {}, ['data.label = "label" has shape (40, 1)']),
        ({"label": np.array(1)}, {}, ['data.label = "label" has shape ()']),
        ({"label": np.array(1.5)}, {}, ['data.label = "label" has shape ()']),
        ({"label": np.zeros(0)}, {}, ["data.path", "no records", "data.label"]),
        ({"label": np.zeros(40, int)}, {}, ["data.label", "all labels are the same", "two"]),
        ({"label": np.full(40, 1e39)}, {}, ["data.label", "all labels are the same"]),
        ({"label": changed(np.linspace(0, 1, 40), 3, np.nan)}, {}, ["data.label", "record 4"]),
        ({"label": changed(np.linspace(0, 1, 40), 3, np.inf)}, {}, ["data.label", "infinities"]),
        ({"label": np.zeros(40, complex)}, {}, ["data.label", "complex128"]),
        ({"label": np.zeros(40, [("a", "i4")])}, {}, ["data.label", "numbers, texts, dates"]),
        ({"site": np.arange(39)}, {"client_column": "site"}, ["data.client_column", "39 entries"]),
        ({"site": np.arange(41)}, {"client_column": "site"}, ["data.client_column", "41 entries"]),
        ({"site": np.array(1)}, {"client_column": "site"}, ["data.client_column", "shape ()"]),
        (
            {"x": np.where(np.arange(40) == 5, 3e38, 1e-30 * np.arange(40))},
            {},
            ['data.features: column "x" has values beyond float32 once scaled'],
        ),
    ],
)
def test_columns_that_do_not_fit_are_named(
    tmp_path: Path, changes: dict[str, Any], options: dict[str, Any], words: list[str]
) -> None:
    path = table_npz(tmp_path / "a.npz", **changes)
    refused(table, DataSpec(path=str(path), **options), *words)


def test_labels_without_end_are_no_classes(tmp_path: Path) -> None:
    count = 100_001
    path = table_npz(tmp_path / "a.npz", label=np.arange(count), x=np.zeros(count))
    spec = DataSpec(path=str(path), features=["x"], target="classes")
    refused(table, spec, "100001 classes; allowed: 100000", 'data.target = "values"')


def test_a_constant_column_stays_small(tmp_path: Path) -> None:
    path = table_npz(tmp_path / "a.npz", x=np.full(40, 0.1))
    assert np.abs(table(DataSpec(path=str(path), features=["x"])).train.inputs).max() < 1e-6


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", b""),
        ("a.csv", b"label,x\n"),
        ("a.csv", b"\xff\xfe\x00\x81" * 9),
        ("a.csv", b'label,x\n1,"2\n'),
        ("a.parquet", b""),
        ("a.parquet", b"PAR1" + bytes(30) + b"PAR1"),
        ("a.npz", b""),
    ],
)
def test_tables_that_cannot_be_read_are_named(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    refused(table, DataSpec(path=str(path)), "data.path", name)


@pytest.mark.parametrize("load", [mnist, table])
@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("~nobody_of_this_name/x.csv", "RuntimeError"),
        ("x" * 5000 + ".csv", "no such file"),
        ("a\0b.csv", "a\\x00b.csv"),
        ("a\nb.csv", "a\\nb.csv"),
        ("\ud800.csv", "\\ud800"),
        ("", "it is a folder"),
        ("/dev/null", "no such file"),
    ],
)
def test_a_path_that_names_no_file_is_named(load: Load, path: str, word: str) -> None:
    refused(load, DataSpec.model_construct(path=path), "data.path = ", "no such file", word, "npz")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    refused(mnist, DataSpec(path=str(tmp_path)), "it is a folder", str(tmp_path))
    refused(mnist, DataSpec.model_construct(path=5), 'data.path = "5"', "no such file")  # type: ignore[arg-type]


@pytest.fixture
def nobody() -> Iterator[None]:
    """Lend this process another user, where it may read all: root would find nothing locked."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("locked", ["file", "folder"])
def test_a_file_that_another_user_locked_is_not_called_absent(
    locked: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    file = folder / "x.csv"
    file.write_text("a,b\n1,2\n")
    (folder if locked == "folder" else file).chmod(0)
    spec = DataSpec(path=str(file))
    request.getfixturevalue("nobody")
    with pytest.raises(DataError, match=r"x\.csv\" cannot be read: Permission denied; let this"):
        required_file(spec, "table", "a .csv file")
    if os.geteuid() == 65534:  # root's own again, who may
        os.seteuid(0)
        assert required_file(spec, "table", "a .csv file") == file
