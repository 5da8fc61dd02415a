"""Heart disease at four hospitals: the UCI records, each hospital a client (Detrano et al. 1989).

Values are scaled by what is common in adults at risk, written down here, not by statistics of the
records; a value that is missing is the common one, and says so in a coordinate of its own.
"""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from zerosum.client.files.operating_system import named_path
from zerosum.client.spec import DataSpec
from zerosum.simulations.data.data_files import DataError, as_float32, one_path
from zerosum.simulations.data.datasets import Collection, Records, split_off_test

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")

CLASSES = ("no disease", "disease")
"""Names of the targets 0 and 1."""

_COMMON: dict[str, tuple[float, float]] = {
    "age": (50, 10),
    "sex": (0.5, 0.5),
    "trestbps": (130, 20),
    "chol": (220, 50),
    "fbs": (0, 1),
    "thalach": (140, 25),
    "exang": (0.5, 0.5),
    "oldpeak": (1, 1),
    "ca": (0, 1),
}
"""Common value and unit of each measured column."""

_KINDS: dict[str, tuple[int, ...]] = {
    "cp": (1, 2, 3, 4),
    "restecg": (0, 1, 2),
    "slope": (1, 2, 3),
    "thal": (3, 6, 7),
}
"""Codes of each column of kinds; a missing one is none of them."""

_NEVER_ZERO = ("trestbps", "chol")
"""Columns in which zero was written for what was not measured."""

_MISSABLE = ("trestbps", "chol", "fbs", "thalach", "exang", "oldpeak", "ca")
_KIND = (
    "the folder of heart_cleveland.csv, heart_hungarian.csv, heart_switzerland.csv, heart_va.csv"
)


def heart(spec: DataSpec) -> Collection:
    """Return the records of all hospitals, ``data.test_fraction`` of them held out as public.

    Parameters
    ----------
    spec : DataSpec
        ``path``: the folder of the four files.

    Returns
    -------
    Collection
        Inputs of shape (29,), norm about 3; targets 1 where disease was found; owners are the
        hospitals, in the order of :data:`HOSPITALS`.

    Raises
    ------
    DataError
        If a file is missing, damaged or lacks a column.
    """
    folder = named_path(one_path(spec, "heart", _KIND))
    if not folder.is_dir():
        raise DataError(f'data.path = "{spec.path}" is no folder; task "heart" needs {_KIND}')
    files = tuple(folder / f"heart_{name}.csv" for name in HOSPITALS)
    for file in files:
        if not file.is_file():
            raise DataError(f'data.path = "{spec.path}" lacks {file.name}; give {_KIND}')
    modified = tuple(file.stat().st_mtime_ns for file in files)
    collection = split_off_test(_records(files, modified), spec.test_fraction, classes=2)
    return replace(collection, class_names=CLASSES)


@lru_cache(maxsize=1)
def _records(files: tuple[Path, ...], modified: tuple[int, ...]) -> Records:
    tables = [_read(file) for file in files]
    owners = np.repeat(np.arange(len(tables)), [len(table["num"]) for table in tables])
    whole = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    targets = (whole["num"] > 0).astype(np.int64)
    return Records(_inputs(whole), targets, owners.astype(np.int64))


def _read(path: Path) -> dict[str, np.ndarray]:
    """Return the columns of one hospital, float64, shape (n,), NaN where a value is missing."""
    from zerosum.simulations.data.tabular.columns import read_table  # it imports pandas

    table = read_table(path, DataSpec(label="num", missing=["?"]))
    wanted = [*_COMMON, *_KINDS, "num"]
    missing = [name for name in wanted if name not in table.columns]
    if missing:
        raise DataError(f'data.path: "{path}" lacks {", ".join(missing)}; give {_KIND}')
    for name in wanted:
        if table.columns[name].dtype.kind not in "iuf":
            reason = table.strangers.get(name, "it holds texts")
            raise DataError(
                f'data.path: "{path}": column "{name}" must hold numbers, and {reason}; correct '
                'it, or leave a value that is missing empty, or "?"'
            )
    return {name: table.columns[name].astype(np.float64) for name in wanted}


def _inputs(table: dict[str, np.ndarray]) -> np.ndarray:
    columns = []
    for name, (common, unit) in _COMMON.items():
        values = table[name]
        if name in _NEVER_ZERO:
            values = np.where(values == 0, np.nan, values)
        known = ~np.isnan(values)
        columns.append(np.where(known, np.clip((values - common) / unit, -3, 3), 0.0))
        if name in _MISSABLE:
            columns.append(1.0 - known)
    for name, codes in _KINDS.items():
        values = table[name]
        columns += [(values == code).astype(np.float64) for code in codes]
    return as_float32(np.stack(columns, axis=1), "data.path: a column")
