"""Any Hugging Face data set, through Flower Datasets where the extra ``hf`` is installed."""

from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from zerosum.client.spec import DataSpec
from zerosum.client.task import error_line
from zerosum.simulations.data.data_files import (
    DataError,
    as_float32,
    class_indices,
    count_classes,
    listed,
)
from zerosum.simulations.data.datasets import Collection, Records, split_off_test
from zerosum.simulations.data.tables import encode_owners
from zerosum.simulations.data.tabular.columns import Columns
from zerosum.simulations.data.tabular.inputs import require_column
from zerosum.simulations.data.tabular.labels import class_names_of, encode_labels


@dataclass(frozen=True)
class Loaded:
    """A data set in memory.

    Attributes
    ----------
    splits : dict of str to Columns
        Its columns, by split.
    class_names : dict of str to tuple of str
        Of its columns of class indices: the names of the classes.
    """

    splits: dict[str, Columns]
    class_names: dict[str, tuple[str, ...]]


def huggingface(spec: DataSpec) -> Collection:
    """Return the data set ``data.name``; its ``test`` split is the public test data.

    Without a ``test`` split, ``data.test_fraction`` of ``train`` is held out. Inputs are the
    columns in ``data.features``, or the first column of images, or all numeric columns.
    Images of bytes are divided by 255 and put channel first.

    Parameters
    ----------
    spec : DataSpec
        ``name``, ``label``, ``features`` and ``test_fraction``.

    Returns
    -------
    Collection
        Training and public test records.

    Raises
    ------
    DataError
        If the extra is not installed, the name is absent or unknown, or columns do not fit.
    """
    if spec.name is None:
        raise DataError('data.name is absent; task "hf" needs it, as data.name = "ylecun/mnist"')
    loaded = _load(spec.name)
    splits = loaded.splits
    if "train" not in splits:
        raise DataError(f'data.name = "{spec.name}" has no split "train", only {", ".join(splits)}')
    for columns in splits.values():
        require_column(columns, "data.label", spec.label)
        if len(columns[spec.label]) == 0:
            raise DataError(f'data.name = "{spec.name}" has a split without records')
    read = _read(splits["train"], spec)
    names = _class_names(loaded, spec)
    splits = _with_common_classes(splits, spec)
    train, classes = _records(splits["train"], spec)
    if classes is not None:
        count_classes(train.targets, f'data.label = "{spec.label}"')
    if "test" not in splits:
        split = split_off_test(train, spec.test_fraction, classes)
        return replace(split, read=read, class_names=names)
    test, test_classes = _records(splits["test"], spec)
    if test.inputs.shape[1:] != train.inputs.shape[1:]:
        raise DataError(
            f'data.name = "{spec.name}": inputs are of shape {test.inputs.shape[1:]} in the split '
            f'"test" and {train.inputs.shape[1:]} in "train"; choose other data.features'
        )
    if classes is not None and test_classes is not None:
        classes = max(classes, test_classes)
    return Collection(train, Records(test.inputs, test.targets), classes, read, names)


def _read(columns: Columns, spec: DataSpec) -> dict[str, Any]:
    """Return which columns are inputs and which are not, for the summary."""
    used = _input_names(columns, spec)
    others = [name for name in columns if name not in (*used, spec.label, spec.client_column)]
    left_out = f"; left out: {listed(others)}" if others else ""
    line = f"{spec.name}: label {spec.label}; inputs: {listed(used)}, not scaled{left_out}"
    return {"line": line, "label": spec.label, "inputs": used, "left_out": others}


def _class_names(loaded: Loaded, spec: DataSpec) -> tuple[str, ...] | None:
    """Return what the data set calls its classes; None where it has numbers for them, or values."""
    if spec.target == "values":
        return None
    if (named := loaded.class_names.get(spec.label)) is not None:
        return named
    labels = [columns[spec.label] for columns in loaded.splits.values()]
    if any(each.dtype.kind in "iuf" for each in labels):
        return None
    return class_names_of(np.concatenate(labels))


def _with_common_classes(splits: dict[str, Columns], spec: DataSpec) -> dict[str, Columns]:
    """Number labels by the classes of all splits, of which one may lack some; values stay."""
    label = spec.label
    coded = any(columns[label].dtype.kind in "iu" for columns in splits.values())
    if coded and spec.target != "values":
        return splits
    names = [columns[label] for columns in splits.values()]
    codes, _ = encode_labels(np.concatenate(names), f'data.label = "{label}"', spec.target)
    cuts = np.cumsum([len(column) for column in names])[:-1]
    parts = np.split(codes, cuts)
    return {
        split: {**columns, label: part}
        for (split, columns), part in zip(splits.items(), parts, strict=True)
    }


@lru_cache(maxsize=2)
def _load(name: str) -> Loaded:
    try:
        federated = import_module("flwr_datasets").FederatedDataset
    except ModuleNotFoundError as error:
        raise DataError(
            'task = "hf" needs the extra "hf", which is not installed: pip install "zerosum[hf]"'
        ) from error
    try:
        # One partition: which client holds what is decided here, as for every other data set.
        source = federated(dataset=name, partitioners={"train": 1}, shuffle=False)
        train = source.load_split("train")
        splits, names = {"train": _columns(train)}, _named_classes(train)
        try:
            test = source.load_split("test")
        except ValueError:  # it has no such split
            return Loaded(splits, names)
        return Loaded({**splits, "test": _columns(test)}, names)
    except Exception as error:  # the hub's errors share no base class
        raise DataError(f'data.name = "{name}" cannot be loaded: {error_line(error)}') from error


def _named_classes(split: Any) -> dict[str, tuple[str, ...]]:
    """Return the names of classes that columns' types have (``datasets.ClassLabel``)."""
    types = dict(getattr(split, "features", None) or {})
    named = {str(column): getattr(kind, "names", None) for column, kind in types.items()}
    return {column: tuple(map(str, names)) for column, names in named.items() if names}


def _columns(split: Any) -> Columns:
    arrays = split.with_format("numpy")[:]
    return {str(name): np.asarray(values) for name, values in arrays.items()}


def _records(columns: Columns, spec: DataSpec) -> tuple[Records, int | None]:
    targets, classes = _targets(columns[spec.label], spec)
    owners = encode_owners(columns, spec)
    return Records(_inputs(columns, spec), targets, owners), classes


def _targets(labels: np.ndarray, spec: DataSpec) -> tuple[np.ndarray, int | None]:
    key = f'data.label = "{spec.label}"'
    if labels.dtype.kind in "iu":  # already class indices, the same in both splits
        targets = class_indices(labels, key)
        return targets, int(targets.max()) + 1
    return encode_labels(labels, key, "values")


def _input_names(columns: Columns, spec: DataSpec) -> list[str]:
    """Return ``data.features``, or else the first column of images, or all numeric columns."""
    if spec.features is not None:
        return spec.features
    numeric = [name for name, values in columns.items() if values.dtype.kind in "iufb"]
    numeric = [name for name in numeric if name not in (spec.label, spec.client_column)]
    images = [name for name in numeric if columns[name].ndim >= 3]
    return images[:1] or numeric


def _inputs(columns: Columns, spec: DataSpec) -> np.ndarray:
    names = _input_names(columns, spec)
    for name in names:
        if name not in columns or columns[name].dtype.kind not in "iufb":
            raise DataError(
                f'data.features: "{name}" is no column of numbers or of equal images; '
                f"there are {listed(columns)}"
            )
    if not names:
        raise DataError("data.features: no column of numbers or of equal images; name at least one")
    if len(names) == 1 and columns[names[0]].ndim >= 3:
        return _images(columns[names[0]], f'data.features: "{names[0]}"')
    parts = [as_float32(columns[name], f'data.features: "{name}"') for name in names]
    inputs = np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)
    if inputs.shape[1] == 0:
        raise DataError(f"data.features: {listed(names)} hold no values; name other columns")
    return inputs


def _images(pixels: np.ndarray, key: str) -> np.ndarray:
    if pixels.ndim > 4 or pixels.size == 0:
        raise DataError(f"{key} has shape {pixels.shape}; allowed: (n, h, w) and (n, h, w, c)")
    scaled = as_float32(pixels, key)
    if pixels.dtype == np.uint8:
        scaled /= np.float32(255)
    if pixels.ndim == 3:
        return scaled[:, None]
    return np.ascontiguousarray(scaled.transpose(0, 3, 1, 2))
