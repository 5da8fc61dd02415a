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
    Collection,
    DataError,
    Records,
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
        If the file or a column is missing, or a column is not numeric or has gaps.
    """
    path = required_file(spec, "table", _KIND)
    columns = _read(path, path.stat().st_mtime_ns)
    _require(columns, "data.label", spec.label)
    targets, classes = encode_labels(columns[spec.label], f'data.label = "{spec.label}"')
    owners = None
    if spec.client_column is not None:
        _require(columns, "data.client_column", spec.client_column)
        owners = _codes(columns[spec.client_column], f'data.client_column = "{spec.client_column}"')
    inputs = _inputs(columns, spec)
    collection = split_off_test(Records(inputs, targets, owners), spec.test_fraction, classes)
    return _standardise(collection) if inputs.ndim == 2 else collection


def encode_labels(labels: np.ndarray, key: str) -> tuple[np.ndarray, int | None]:
    """Return (targets, classes): int64 class indices, or float32 values and None.

    Raises
    ------
    DataError
        If a label is missing.
    """
    if labels.dtype.kind == "f":
        if not np.isfinite(labels).all():
            raise DataError(f"{key}: some labels are missing; drop those records")
        return labels.astype(np.float32), None
    codes = _codes(labels, key)
    return codes, int(codes.max()) + 1


def _read(path: Path, modified: int) -> Columns:
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".parquet", ".npz"):
        raise DataError(f'data.path = "{path}": unknown kind "{path.suffix}"; give {_KIND}')
    try:
        columns = _read_known(path, modified)
    except ImportError as error:
        raise DataError(f'data.path = "{path}": Parquet needs pyarrow: install it') from error
    except (ValueError, OSError, EOFError) as error:
        first_line = str(error).partition("\n")[0]
        raise DataError(f'data.path = "{path}" cannot be read: {first_line}') from error
    if not columns or not len(next(iter(columns.values()))):
        raise DataError(f'data.path = "{path}" has no records')
    return columns


@lru_cache(maxsize=2)
def _read_known(path: Path, modified: int) -> Columns:
    if path.suffix.lower() == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    frame = pd.read_csv(path) if path.suffix.lower() == ".csv" else pd.read_parquet(path)
    return {str(name): frame[name].to_numpy() for name in frame.columns}


def _require(columns: Columns, key: str, name: str) -> None:
    if name not in columns:
        near = difflib.get_close_matches(name, list(columns), n=1)
        hint = f'; nearest is "{near[0]}"' if near else ""
        raise DataError(f'{key} = "{name}": no such column{hint}; there are {", ".join(columns)}')


def _inputs(columns: Columns, spec: DataSpec) -> np.ndarray:
    reserved = {spec.label, spec.client_column}
    names = spec.features
    if names is None:
        names = [name for name, values in columns.items() if values.dtype.kind in "iufb"]
        names = [name for name in names if name not in reserved]
    if not names:
        raise DataError("data.features: no numeric column is left as input; name at least one")
    for name in names:
        _require(columns, "data.features", name)
        _check_feature(name, columns[name], len(columns[spec.label]), reserved)
    parts = [columns[name].astype(np.float32) for name in names]
    if len(parts) == 1 and parts[0].ndim > 1:
        return parts[0]
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)


def _check_feature(name: str, values: np.ndarray, count: int, reserved: set[str | None]) -> None:
    key = f'data.features: column "{name}"'
    if name in reserved:
        raise DataError(f"{key} is the label or the client column; leave it out")
    if values.dtype.kind not in "iufb":
        raise DataError(f"{key} is not numeric; encode it as numbers, or leave it out")
    if len(values) != count:
        raise DataError(f"{key} has {len(values)} entries for {count} labels; leave it out")
    if not np.isfinite(values).all():
        raise DataError(f"{key} has missing values; fill them, or leave it out")


def _codes(values: np.ndarray, key: str) -> np.ndarray:
    if values.ndim != 1:
        raise DataError(f"{key} has shape {values.shape}; one value a record is allowed")
    if pd.isna(values).any():
        raise DataError(f"{key}: some values are missing; fill them, or drop those records")
    plain = values.astype(str) if values.dtype.kind == "O" else values
    return np.unique(plain, return_inverse=True)[1].astype(np.int64)


def _standardise(collection: Collection) -> Collection:
    public = collection.test.inputs.astype(np.float64)
    mean, deviation = public.mean(axis=0), public.std(axis=0)
    deviation[deviation == 0] = 1.0

    def scaled(records: Records) -> Records:
        inputs = ((records.inputs - mean) / deviation).astype(np.float32)
        return Records(inputs, records.targets, records.owners)

    return Collection(scaled(collection.train), scaled(collection.test), collection.classes)
