"""Any Hugging Face data set, through Flower Datasets where the extra ``hf`` is installed."""

from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from zerosum.client.spec import DataSpec
from zerosum.simulations.datasets import Collection, DataError, Records, split_off_test
from zerosum.simulations.tables import Columns, encode_labels


def huggingface(spec: DataSpec) -> Collection:
    """Return the data set ``data.name``; its ``test`` split is the public test data.

    Without a ``test`` split, ``data.test_fraction`` of ``train`` is held out. Inputs are the
    columns in ``data.features``, or the first column of images, or all numeric columns.
    Images of bytes are divided by 255 and put channel first.

    Raises
    ------
    DataError
        If the extra is not installed, the name is absent or unknown, or columns do not fit.
    """
    if spec.name is None:
        raise DataError('data.name is absent; task "hf" needs it, as data.name = "ylecun/mnist"')
    splits = _load(spec.name)
    if "train" not in splits:
        raise DataError(f'data.name = "{spec.name}" has no split "train", only {", ".join(splits)}')
    train, classes = _records(splits["train"], spec)
    if "test" not in splits:
        return split_off_test(train, spec.test_fraction, classes)
    test, test_classes = _records(splits["test"], spec)
    if classes is not None and test_classes is not None:
        classes = max(classes, test_classes)
    return Collection(train, Records(test.inputs, test.targets), classes)


@lru_cache(maxsize=2)
def _load(name: str) -> dict[str, Columns]:
    try:
        federated = import_module("flwr_datasets").FederatedDataset
    except ModuleNotFoundError as error:
        raise DataError(
            'task = "hf" needs the extra "hf", which is not installed: pip install "zerosum[hf]"'
        ) from error
    # One partition: which client holds what is decided here, as for every other data set.
    source = federated(dataset=name, partitioners={"train": 1}, shuffle=False)
    try:
        splits = {"train": _columns(source.load_split("train"))}
    except Exception as error:  # the hub's errors share no base class
        first_line = str(error).partition("\n")[0]
        raise DataError(f'data.name = "{name}" cannot be loaded: {first_line}') from error
    try:
        test = source.load_split("test")
    except ValueError:  # it has no such split
        return splits
    return {**splits, "test": _columns(test)}


def _columns(split: Any) -> Columns:
    arrays = split.with_format("numpy")[:]
    return {str(name): np.asarray(values) for name, values in arrays.items()}


def _records(columns: Columns, spec: DataSpec) -> tuple[Records, int | None]:
    for key, name in (("label", spec.label), ("client_column", spec.client_column)):
        if name is not None and name not in columns:
            raise DataError(
                f'data.{key} = "{name}": no such column; there are {", ".join(columns)}'
            )
    targets, classes = _targets(columns[spec.label], spec)
    owners = None
    if spec.client_column is not None:
        owners = np.unique(columns[spec.client_column], return_inverse=True)[1].astype(np.int64)
    return Records(_inputs(columns, spec), targets, owners), classes


def _targets(labels: np.ndarray, spec: DataSpec) -> tuple[np.ndarray, int | None]:
    if labels.dtype.kind in "iu":  # already class indices, the same in both splits
        return labels.astype(np.int64), int(labels.max()) + 1
    return encode_labels(labels, f'data.label = "{spec.label}"')


def _inputs(columns: Columns, spec: DataSpec) -> np.ndarray:
    names = spec.features
    if names is None:
        numeric = [name for name, values in columns.items() if values.dtype.kind in "iufb"]
        numeric = [name for name in numeric if name not in (spec.label, spec.client_column)]
        images = [name for name in numeric if columns[name].ndim >= 3]
        names = images[:1] or numeric
    for name in names:
        if name not in columns or columns[name].dtype.kind not in "iufb":
            raise DataError(
                f'data.features: "{name}" is no column of numbers or of equal images; '
                f"there are {', '.join(columns)}"
            )
    if not names:
        raise DataError("data.features: no column of numbers or of equal images; name at least one")
    if len(names) == 1 and columns[names[0]].ndim >= 3:
        return _images(columns[names[0]])
    parts = [columns[name].astype(np.float32).reshape(len(columns[name]), -1) for name in names]
    return np.concatenate(parts, axis=1)


def _images(pixels: np.ndarray) -> np.ndarray:
    scaled = pixels.astype(np.float32)
    if pixels.dtype == np.uint8:
        scaled /= np.float32(255)
    if pixels.ndim == 3:
        return scaled[:, None]
    return np.ascontiguousarray(scaled.transpose(0, 3, 1, 2))
