"""What an app has to know of data before it is written: columns, classes, shapes."""

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import log10
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd

from zerosum.client.task import error_line
from zerosum.server.config import ConfigError
from zerosum.simulations.datasets import DataError, listed, read_npz
from zerosum.simulations.new.kinds import WORDS, Kind

Read = TypeVar("Read")

MOST_CLASSES = 100
"""Whole numbers of more values than this are values to regress on, unless they are text."""

MOST_TEXTS = 10_000
"""Texts of more values than this are no classes."""

FEWEST = 10
"""Records that a split into training and test records, over two clients, takes."""

_MOST_PIXELS = 64
"""Side of images that a small network is given; larger ones are brought to this."""

_LABELS = ("label", "labels", "target", "targets", "class", "outcome", "diagnosis", "y")


@dataclass(frozen=True)
class Found:
    """What stands in the app's code of the data that it is made for.

    Parameters
    ----------
    records : int
        Records there are.
    described : str
        One line for the user.
    classes : list of str or None
        Class names in order; None where labels are values.
    label_scale : float
        What values to regress on are divided by: a power of ten.
    constants : dict
        Further constants, each as Python source, by name.
    scaling : str
        Which fragment scales inputs: ``columns``, ``pixels`` or ``values``.
    left_out : list of str
        Columns that are no inputs.
    """

    records: int
    described: str
    classes: list[str] | None
    label_scale: float
    constants: dict[str, str]
    scaling: str
    left_out: Sequence[str] = ()


def look(data: Path, kind: Kind, label: str | None) -> Found:
    """Inspect data of a kind.

    Raises
    ------
    ConfigError
        One line that names the option, its value, what is allowed and the cure.
    """
    if kind is Kind.IMAGES:
        if label is not None:
            raise ConfigError(f"--label {label}: a folder of images has none; leave it out")
        found = _images(data)
    elif kind is Kind.NPZ:
        found = _npz(data, label)
    else:
        found = _table(data, kind, label)
    if found.records < FEWEST:
        raise ConfigError(f"--data {data}: {found.records} records; allowed: {FEWEST} or more")
    if found.classes is not None and len(found.classes) < 2:
        raise ConfigError(
            f"--data {data}: all labels are the same ({found.classes[0]}); allowed: two classes "
            "or more"
        )
    return found


def literal(value: object) -> str:
    """Return Python source of a text or a list of texts, broken into lines that fit."""
    if isinstance(value, list):
        line = f"[{', '.join(map(literal, value))}]"
        if len(line) <= 80:
            return line
        return "[\n" + "".join(f"    {literal(item)},\n" for item in value) + "]"
    if isinstance(value, str) and value.isprintable() and not set('"\\') & set(value):
        return f'"{value}"'
    return repr(value)


def _table(data: Path, kind: Kind, label: str | None) -> Found:
    frame = _read(data, kind, pd.read_csv if kind is Kind.CSV else pd.read_parquet)
    frame = frame.rename(columns=str)
    if frame.columns.has_duplicates:
        double = str(frame.columns[frame.columns.duplicated()][0])
        raise ConfigError(f"--data {data}: two columns are named {double!r}; rename one")
    if frame.empty:
        raise ConfigError(f"--data {data}: no records; give {WORDS[kind]} with a line of names")
    chosen = _chosen(list(frame.columns), label, "column", default=str(frame.columns[-1]))
    classes, scale = _targets(frame[chosen], f"--data {data}: label {chosen!r}")
    names = [name for name in frame.columns if name != chosen]
    features = [name for name in names if _is_input(name, frame[name])]
    if not features:
        raise ConfigError(
            f"--data {data}: no numeric column beside the label {chosen!r}; encode texts as "
            "numbers, or name another --label"
        )
    shown = f" ({listed(features)})" if len(features) <= 10 else ""
    said = f"{len(frame)} records, {_said(chosen, classes)}, {len(features)} features{shown}"
    constants = {
        "label": literal(chosen),
        "features": literal(features),
        "reader": "read_csv" if kind is Kind.CSV else "read_parquet",
    }
    left_out = [name for name in names if name not in features]
    return Found(len(frame), said, classes, scale, constants, "columns", left_out)


def _is_input(name: str, column: "pd.Series[float]") -> bool:
    """Tell whether a column is an input: numbers, and not the index that pandas writes."""
    plain = pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column)
    return plain and not name.startswith("Unnamed:") and not column.isna().all()


def _npz(data: Path, label: str | None) -> Found:
    arrays = _read(data, Kind.NPZ, lambda path: read_npz(path, WORDS[Kind.NPZ]))
    flat = [name for name, values in arrays.items() if values.ndim == 1]
    if not flat:
        raise ConfigError(
            f"--data {data}: no array of one label a record, shape (n,); it has {listed(arrays)}"
        )
    chosen = _chosen(flat, label, "array of shape (n,)", default=flat[-1])
    count = len(arrays[chosen])
    fits = [
        name
        for name, values in arrays.items()
        if values.ndim > 1 and len(values) == count and values.dtype.kind in "biuf" and values.size
    ]
    if not fits:
        raise ConfigError(
            f"--data {data}: no numeric array of inputs, shape ({count}, ...), beside the labels "
            f"{chosen!r}; it has {listed(arrays)}"
        )
    inputs = max(fits, key=lambda name: arrays[name].size)
    shape = arrays[inputs].shape[1:]
    classes, scale = _targets(pd.Series(arrays[chosen]), f"--data {data}: array {chosen!r}")
    pixels = arrays[inputs].dtype == np.uint8
    scaling = "pixels" if pixels else "columns" if len(shape) == 1 else "values"
    said = f"{count} records of shape {shape} in {inputs!r}, {_said(chosen, classes)}"
    constants = {"label": literal(chosen), "inputs": literal(inputs), "shape": str(shape)}
    left_out = [name for name in arrays if name not in (inputs, chosen)]
    return Found(count, said, classes, scale, constants, scaling, left_out)


def _images(data: Path) -> Found:
    from PIL import Image

    suffixes = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp"}
    try:
        folders = sorted(f for f in data.iterdir() if f.is_dir() and not f.name.startswith("."))
        files = {
            folder.name: [f for f in folder.iterdir() if f.suffix.lower() in suffixes]
            for folder in folders
        }
    except OSError as error:
        raise ConfigError(f"--data {data}: cannot be read: {error_line(error)}") from None
    classes = [name for name, images in files.items() if images]
    if not classes:
        raise ConfigError(
            f"--data {data}: no images in its folders; give {WORDS[Kind.IMAGES]}, as "
            f"{data / 'cat' / '1.png'}"
        )
    first = min(files[classes[0]])
    try:
        with Image.open(first) as image:
            (width, height), bands = image.size, len(image.getbands())
            coloured = bands > 2 or image.mode == "P"
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise ConfigError(f"--data {first}: no image: {error_line(error)}") from None
    largest = max(width, height)
    shrink = min(1.0, _MOST_PIXELS / largest)
    height, width = max(4, round(height * shrink)), max(4, round(width * shrink))
    count = sum(len(images) for images in files.values())
    mode = "RGB" if coloured else "L"
    said = f"{count} images, brought to {height}x{width} {mode}, of {len(classes)} classes"
    constants = {"mode": literal(mode), "height": str(height), "width": str(width)}
    left_out = [name for name in files if name not in classes]
    return Found(count, said, classes, 1.0, constants, "pixels", left_out)


def _read(data: Path, kind: Kind, reader: Callable[[Path], Read]) -> Read:
    try:
        return reader(data)
    except ImportError:
        raise ConfigError(f"--data {data}: Parquet needs pyarrow: install it") from None
    except DataError as error:
        raise ConfigError(str(error).replace("data.path = ", "--data ", 1)) from None
    except Exception as error:  # damaged files make readers raise nearly anything
        raise ConfigError(
            f"--data {data}: cannot be read: {error_line(error)}; give {WORDS[kind]}"
        ) from None


def _chosen(names: list[str], label: str | None, what: str, default: str) -> str:
    """Return the column that was named, or one that is named as labels are, or the default."""
    if label is None:
        known = {name.lower(): name for name in reversed(names)}
        return next((known[name] for name in _LABELS if name in known), default)
    if label not in names:
        near = difflib.get_close_matches(label, names, n=1)
        hint = f"; nearest is {near[0]!r}" if near else ""
        raise ConfigError(f"--label {label}: no such {what}{hint}; there are {listed(names)}")
    return label


def _targets(labels: "pd.Series[float]", key: str) -> tuple[list[str] | None, float]:
    """Return (classes, 1) or (None, the power of ten nearest to their root mean square)."""
    if labels.isna().any():
        raise ConfigError(f"{key} has gaps; fill them, or leave those records out")
    kinds = labels.nunique()
    numeric = pd.api.types.is_numeric_dtype(labels) and not pd.api.types.is_bool_dtype(labels)
    if numeric and (pd.api.types.is_float_dtype(labels) or kinds > MOST_CLASSES):
        size = float(np.sqrt(np.square(labels.to_numpy(np.float64)).mean()))
        if not np.isfinite(size):
            raise ConfigError(f"{key} has infinities; leave those records out")
        return None, 10.0 ** round(log10(size)) if size else 1.0
    if kinds > MOST_TEXTS:
        raise ConfigError(f"{key} has {kinds} classes; allowed: {MOST_TEXTS}; name another --label")
    ordered: Iterable[object] = (
        sorted(labels.unique()) if numeric else sorted(labels.astype(str).unique())
    )
    return [str(name) for name in ordered], 1.0


def _said(label: str, classes: list[str] | None) -> str:
    what = "values to regress on" if classes is None else f"{len(classes)} classes"
    return f"label {label!r} ({what})"
