"""A user's own table: CSV, Parquet or NPZ.

Columns are scaled to mean 0 and deviation 1 by statistics of the public test records alone:
statistics of the training records would be a release of private data that nobody accounted.
For the same reason the set of labels counts as public.
"""

import difflib
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from zerosum.client.spec import DataSpec
from zerosum.simulations.datasets import (
    MAX_CLASSES,
    Collection,
    DataError,
    Records,
    as_float32,
    count_classes,
    listed,
    read_npz,
    reading,
    required_file,
    split_off_test,
)

Columns = dict[str, np.ndarray]

_KIND = "a .csv, .parquet or .npz file"


def table(spec: DataSpec) -> Collection:
    """Return the records of ``data.path``, with ``data.test_fraction`` held out as public.

    Labels that are floating-point numbers are values to regress on; all others are classes.
    The natural partition's owners are the distinct values of ``data.client_column``.

    Raises
    ------
    DataError
        If the file is missing or damaged, or a column is missing, not numeric, of another length
        than the labels, has gaps, or leaves float32.
    """
    path = required_file(spec, "table", _KIND)
    columns = _read(path, path.stat().st_mtime_ns)
    require_column(columns, "data.label", spec.label)
    key = f'data.label = "{spec.label}"'
    if columns[spec.label].size == 0:
        raise DataError(f'data.path = "{path}" has no records: {key} is empty')
    targets, classes = encode_labels(columns[spec.label], key)
    owners = encode_owners(columns, spec)
    inputs = _inputs(columns, spec)
    collection = split_off_test(Records(inputs, targets, owners), spec.test_fraction, classes)
    return _standardise(collection) if inputs.ndim == 2 else collection


def encode_labels(labels: np.ndarray, key: str) -> tuple[np.ndarray, int | None]:
    """Return (targets, classes): int64 class indices, or float32 values and None.

    Raises
    ------
    DataError
        If a label is missing or leaves float32, there is not one a record, or there are fewer
        than two classes or more than 100,000.
    """
    if labels.dtype.kind == "f":
        _check_one_a_record(labels, key)
        return as_float32(labels, key), None
    codes = _codes(labels, key)
    classes = count_classes(codes, key)
    if classes > MAX_CLASSES:
        raise DataError(
            f"{key} has {classes} classes; allowed: {MAX_CLASSES}; "
            "write values to regress on as floating-point numbers"
        )
    return codes, classes


def encode_owners(columns: Columns, spec: DataSpec) -> np.ndarray | None:
    """Return each record's client of the natural partition, int64, shape (n,), or None.

    Raises
    ------
    DataError
        If the client column is missing, has gaps, or is of another length than the labels.
    """
    if spec.client_column is None:
        return None
    require_column(columns, "data.client_column", spec.client_column)
    key = f'data.client_column = "{spec.client_column}"'
    owners = _codes(columns[spec.client_column], key)
    count = len(columns[spec.label])
    if len(owners) != count:
        raise DataError(f"{key} has {len(owners)} entries for {count} labels; give one a record")
    return owners


def require_column(columns: Columns, key: str, name: str) -> None:
    """Raise a DataError that names the key, unless there is a column of that name."""
    if name not in columns:
        near = difflib.get_close_matches(name, list(columns), n=1)
        hint = f'; nearest is "{near[0]}"' if near else ""
        raise DataError(f'{key} = "{name}": no such column{hint}; there are {listed(columns)}')


def _read(path: Path, modified: int) -> Columns:
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".parquet", ".npz"):
        raise DataError(f'data.path = "{path}": unknown kind "{path.suffix}"; give {_KIND}')
    try:
        columns = _read_known(path, modified)
    except ImportError as error:
        raise DataError(f'data.path = "{path}": Parquet needs pyarrow: install it') from error
    if not columns:
        raise DataError(f'data.path = "{path}" has no records; give {_KIND}')
    return columns


@lru_cache(maxsize=2)
def _read_known(path: Path, modified: int) -> Columns:
    if path.suffix.lower() == ".npz":
        return read_npz(path, _KIND)
    with reading(path, _KIND):
        frame = pd.read_csv(path) if path.suffix.lower() == ".csv" else pd.read_parquet(path)
        return {str(name): frame[name].to_numpy() for name in frame.columns}


def _inputs(columns: Columns, spec: DataSpec) -> np.ndarray:
    reserved = {spec.label, spec.client_column}
    names = spec.features
    if names is None:
        names = [name for name, values in columns.items() if values.dtype.kind in "iufb"]
        names = [name for name in names if name not in reserved]
    if not names:
        raise DataError("data.features: no numeric column is left as input; name at least one")
    for name in names:
        require_column(columns, "data.features", name)
    count = len(columns[spec.label])
    parts = [_feature(name, columns[name], count, reserved) for name in names]
    if len(parts) == 1 and parts[0].ndim > 1:
        return parts[0]
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)


def _feature(name: str, values: np.ndarray, count: int, reserved: set[str | None]) -> np.ndarray:
    key = f'data.features: column "{name}"'
    if name in reserved:
        raise DataError(f"{key} is the label or the client column; leave it out")
    if values.ndim == 0 or values.size == 0:
        raise DataError(f"{key} has shape {values.shape}; give values for each record")
    if len(values) != count:
        raise DataError(f"{key} has {len(values)} entries for {count} labels; leave it out")
    return as_float32(values, key)


def _check_one_a_record(values: np.ndarray, key: str) -> None:
    if values.ndim != 1 or not len(values):
        raise DataError(f"{key} has shape {values.shape}; one value a record is allowed")


def _codes(values: np.ndarray, key: str) -> np.ndarray:
    _check_one_a_record(values, key)
    if values.dtype.kind in "cV":
        raise DataError(f"{key} holds {values.dtype}; allowed: numbers, texts, dates")
    if pd.isna(values).any():
        raise DataError(f"{key}: some values are missing; fill them, or drop those records")
    plain = values.astype(str) if values.dtype.kind == "O" else values
    return np.unique(plain, return_inverse=True)[1].astype(np.int64)


def _standardise(collection: Collection) -> Collection:
    public = collection.test.inputs.astype(np.float64)
    mean, deviation = public.mean(axis=0), public.std(axis=0)
    # The deviation of equal numbers need not come out as 0.
    deviation[public.min(axis=0) == public.max(axis=0)] = 1.0

    def scaled(records: Records) -> Records:
        inputs = as_float32((records.inputs - mean) / deviation, "data.features: a scaled column")
        return Records(inputs, records.targets, records.owners)

    return Collection(scaled(collection.train), scaled(collection.test), collection.classes)
