"""Inspect a user's data for ``zerosum new``: columns, classes, shapes."""

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from zerosum.client.nearest_word import did_you_mean
from zerosum.client.task import error_line
from zerosum.server.config import ConfigError, apply_overrides, parse_experiment
from zerosum.simulations.data.data_files import DataError, listed, read_npz
from zerosum.simulations.new.description import (
    CHOOSING,
    READING,
    DataDescription,
    check_enough,
    literal,
    public_of,
    said_of,
    targets_of,
)
from zerosum.simulations.new.kinds import WORDS, Kind
from zerosum.simulations.new.look_table import look_table, usual_label

_LONGEST_SIDE_PIXELS = 64
"""Side of images that a small network is given; larger ones are brought to this."""

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")
"""How files of images end, in either case."""


def reading_of(settings: Iterable[str], kind: Kind) -> dict[str, Any]:
    """Return the keys of ``[data]`` that settings give, where a table is to be read by them.

    Parameters
    ----------
    settings : iterable of str
        As ``data.decimal=","``.
    kind : Kind
        Of the data.

    Returns
    -------
    dict of str to Any
        Keys of ``[data]`` with their values.

    Raises
    ------
    ConfigError
        If one of them is none of these keys, or has a value that is not allowed.
    """
    values = apply_overrides({}, settings)
    parse_experiment(values)
    given = values.get("data", {})
    known = (*READING, *CHOOSING)
    unknown = [key for key in values if key != "data"] + [
        f"data.{k}" for k in given if k not in known
    ]
    if unknown or (given and kind not in (Kind.CSV, Kind.PARQUET)):
        allowed = ", ".join(f"data.{key}" for key in known)
        raise ConfigError(
            f"--set {(unknown or [f'data.{next(iter(given))}'])[0]}: allowed, for tables: {allowed}"
        )
    return {"missing": [""], **given}


def look(
    files: Sequence[Path],
    kind: Kind,
    label: str | None,
    reading: Mapping[str, Any] | None = None,
    client_column: str | None = None,
) -> DataDescription:
    """Inspect data of a kind, tables as the keys in ``reading`` say.

    Parameters
    ----------
    files : sequence of Path
        Tables, or one file of another kind, or one folder of images.
    kind : Kind
        Of the data.
    label : str or None
        Column or array of the labels; of tables also a comparison.
    reading : mapping, optional
        Keys of ``[data]`` that say how a table is read.
    client_column : str, optional
        Column of a table that names each record's client.

    Returns
    -------
    DataDescription
        What the app's code has to know of the data.

    Raises
    ------
    ConfigError
        One line that names the option, its value, what is allowed and the cure.
    """
    if kind in (Kind.CSV, Kind.PARQUET):
        return look_table(files, kind, label, reading or {"missing": [""]}, client_column)
    data = files[0]
    if len(files) > 1:
        raise ConfigError(f"--data {files[1]}: a second file; several tables are allowed, as CSV")
    if client_column is not None:
        raise ConfigError(f"--client-column {client_column}: only tables have one; leave it out")
    if kind is Kind.IMAGES:
        if label is not None:
            raise ConfigError(f"--label {label}: a folder of images has none; leave it out")
        description = _images(data)
    else:
        description = _npz(data, label)
    return description


def _npz(data: Path, label: str | None) -> DataDescription:
    try:
        arrays = read_npz(data, WORDS[Kind.NPZ])
    except DataError as error:
        raise ConfigError(str(error).replace("data.path = ", "--data ", 1)) from None
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
    classes, centre, scale = targets_of(arrays[chosen], f"--data {data}: array {chosen!r}", "auto")
    pixels = arrays[inputs].dtype == np.uint8
    scaling = "pixels" if pixels else "columns" if len(shape) == 1 else "values"
    text = f"{count} records of shape {shape} in {inputs!r}, {said_of(chosen, classes)}"
    constants = {"label": literal(chosen), "inputs": literal(inputs), "shape": str(shape)}
    left_out = {name: "another array" for name in arrays if name not in (inputs, chosen)}
    outputs = 1 if classes is None else len(classes)
    key = f"--data {data}: array {chosen!r}"
    check_enough(str(data), count, classes)
    public = public_of(arrays[chosen], classes, key)
    return DataDescription(
        count, text, classes, centre, scale, constants, scaling, prod(shape), outputs,
        count - len(public), left_out=left_out,
    )  # fmt: skip


def _images(data: Path) -> DataDescription:
    from PIL import Image

    try:
        folders = sorted(f for f in data.iterdir() if f.is_dir() and not f.name.startswith("."))
        inside = {folder.name: [f for f in folder.iterdir() if f.is_file()] for folder in folders}
    except OSError as error:
        raise ConfigError(f"--data {data}: cannot be read: {error_line(error)}") from None
    files = {n: [f for f in each if f.suffix.lower() in IMAGES] for n, each in inside.items()}
    others = {f.suffix.lower() for each in inside.values() for f in each} - {*IMAGES, ""}
    classes = [name for name, images in files.items() if images]
    if not classes:
        found = f" (but {listed(sorted(others))})" if others else ""
        raise ConfigError(
            f"--data {data}: no images in its folders{found}; give {WORDS[Kind.IMAGES]}, as "
            f"{data / 'cat' / '1.png'}: {', '.join(IMAGES)}"
        )
    first = min(files[classes[0]])
    try:
        with Image.open(first) as image:
            (width, height), bands = image.size, len(image.getbands())
            coloured = bands > 2 or image.mode == "P"
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise ConfigError(f"--data {first}: no image: {error_line(error)}") from None
    largest = max(width, height)
    shrink = min(1.0, _LONGEST_SIDE_PIXELS / largest)
    height, width = max(4, round(height * shrink)), max(4, round(width * shrink))
    count = sum(len(images) for images in files.values())
    mode = "RGB" if coloured else "L"
    text = f"{count} images, brought to {height}x{width} {mode}, of {len(classes)} classes"
    constants = {"mode": literal(mode), "height": str(height), "width": str(width)}
    constants["suffixes"] = literal(list(IMAGES))
    left_out = {name: "no images" for name in files if name not in classes}
    left_out |= {f"files {suffix}": "no image's name" for suffix in sorted(others)}
    check_enough(str(data), count, classes)
    labels = np.repeat(classes, [len(files[name]) for name in classes])
    public = public_of(labels, classes, f"--data {data}")
    size = height * width * (3 if coloured else 1)
    return DataDescription(
        count, text, classes, 0.0, 1.0, constants, "pixels", size, len(classes),
        count - len(public), left_out=left_out,
    )  # fmt: skip


def _chosen(names: list[str], label: str | None, what: str, default: str) -> str:
    """Choose the label column: the named one, else one with a usual name, else the default."""
    if label is None:
        return usual_label(names, default)
    if label not in names:
        hint = did_you_mean(label, names)
        raise ConfigError(f"--label {label}: no such {what}; there are {listed(names)}{hint}")
    return label
