"""Inspect a user's data for ``zerosum new``: columns, classes, shapes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import log10
from pathlib import Path
from typing import Any

import numpy as np

from zerosum.client.nearest_word import did_you_mean
from zerosum.client.spec import DataSpec
from zerosum.client.task import error_line
from zerosum.server.config import ConfigError, apply_overrides, parse_experiment
from zerosum.simulations.data.data_files import DataError, counted, listed, read_npz
from zerosum.simulations.data.tabular.columns import Table, read_table
from zerosum.simulations.data.tabular.filled import filled_inputs
from zerosum.simulations.data.tabular.inputs import cautions, choose_inputs
from zerosum.simulations.data.tabular.labels import are_values, check_complete, codes_of, names_of
from zerosum.simulations.new.kinds import WORDS, Kind

MOST_CLASSES = 10_000
"""Labels of more kinds are not written into code."""

READING = ("missing", "separator", "decimal", "thousands", "encoding", "header")
"""Keys of ``[data]`` that say how a table is read; ``exclude`` and ``target``, what of it."""

FEWEST_RECORDS = 10
"""Records that a split into training and test records, over two clients, takes."""

_LONGEST_SIDE_PIXELS = 64

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")
"""How files of images end, in either case."""
"""Side of images that a small network is given; larger ones are brought to this."""

_LABELS = ("label", "labels", "target", "targets", "class", "outcome", "diagnosis", "y")


@dataclass(frozen=True)
class DataDescription:
    """Facts about the data that the generated app's code states.

    Parameters
    ----------
    records : int
        Records there are.
    described : str
        One line for the user.
    classes : list of str or None
        Class names in order; None where labels are values.
    label_centre, label_scale : float
        What is taken off values to regress on, and what they are divided by then: a power of ten,
        and a whole number of it.
    constants : dict
        Further constants, each as Python source, by name.
    scaling : str
        Which fragment scales inputs: ``columns``, ``pixels`` or ``values``.
    left_out : dict of str to str
        Columns that are no inputs, with the reason.
    """

    records: int
    described: str
    classes: list[str] | None
    label_centre: float
    label_scale: float
    constants: dict[str, str]
    scaling: str
    left_out: Mapping[str, str] = field(default_factory=dict)


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
    known = (*READING, "exclude", "target")
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
    data: Path, kind: Kind, label: str | None, reading: Mapping[str, Any] | None = None
) -> DataDescription:
    """Inspect data of a kind, a table as the keys in ``reading`` say.

    Parameters
    ----------
    data : Path
        A file, or a folder of images.
    kind : Kind
        Of the data.
    label : str or None
        Column or array of the labels.
    reading : mapping, optional
        Keys of ``[data]`` that say how a table is read.

    Returns
    -------
    DataDescription
        What the app's code has to know of the data.

    Raises
    ------
    ConfigError
        One line that names the option, its value, what is allowed and the cure.
    """
    if kind is Kind.IMAGES:
        if label is not None:
            raise ConfigError(f"--label {label}: a folder of images has none; leave it out")
        description = _images(data)
    elif kind is Kind.NPZ:
        description = _npz(data, label)
    else:
        description = _table(data, kind, label, reading or {"missing": [""]})
    if description.records < FEWEST_RECORDS:
        raise ConfigError(
            f"--data {data}: {description.records} records; allowed: {FEWEST_RECORDS} or more"
        )
    if description.classes is not None and len(description.classes) < 2:
        raise ConfigError(
            f"--data {data}: all labels are the same ({description.classes[0]}); allowed: two "
            "classes or more"
        )
    return description


def literal(value: object) -> str:
    """Return Python source of texts, lists and dicts of them, broken into lines that fit."""
    if isinstance(value, dict):
        items = [f"{literal(name)}: {literal(each)}" for name, each in value.items()]
        line = f"{{{', '.join(items)}}}"
        if len(line) <= 60 and "\n" not in line:
            return line
        return (
            "{\n" + "".join(f"    {item},\n".replace("\n", "\n    ")[:-4] for item in items) + "}"
        )
    if isinstance(value, list):
        line = f"[{', '.join(map(literal, value))}]"
        if len(line) <= 80:
            return line
        return "[\n" + "".join(f"    {literal(item)},\n" for item in value) + "]"
    if isinstance(value, str) and value.isprintable() and not set('"\\') & set(value):
        return f'"{value}"'
    return repr(value)


def _table(
    data: Path, kind: Kind, label: str | None, reading: Mapping[str, Any]
) -> DataDescription:
    spec = DataSpec.model_validate(dict(reading))
    names = list(_read_table(data, kind, spec).columns)
    chosen = _chosen(names, label, "column", default=names[-1])
    spec = spec.model_copy(update={"label": chosen})
    table = _read_table(data, kind, spec)
    labels = table.columns[chosen]
    if not len(labels):
        raise ConfigError(f"--data {data}: no records; give {WORDS[kind]} with a line of names")
    classes, centre, scale = _targets(labels, f"--data {data}: label {chosen!r}", spec.target)
    try:
        used = choose_inputs(table, spec, np.arange(len(labels)))
    except DataError as error:
        raise ConfigError(f"--data {data}: {_here(error)}") from None
    shown = f" ({listed(used.said)})" if len(used.names) <= 10 else ""
    text = f"{counted(len(labels), 'record')}, {_said(chosen, classes)}, "
    text += f"{counted(len(used.names), 'feature')}{shown}"
    text += "".join(f"; {part}" for part in filled_inputs(table.columns, used, ""))
    text += "".join(f"; {part}" for part in cautions(table.columns, used, labels))
    text += f"; read as {', '.join(table.said)}" if table.said else ""
    constants = {
        "label": literal(chosen),
        "features": literal(list(used.names)),
        "categories": literal({name: list(known) for name, known in used.categories.items()}),
        "reading": literal({key: value for key, value in reading.items() if key in READING}),
    }
    return DataDescription(
        len(labels), text, classes, centre, scale, constants, "table", used.left_out
    )


def _read_table(data: Path, kind: Kind, spec: DataSpec) -> Table:
    try:
        return read_table(data, spec, ending=f".{kind}")
    except DataError as error:
        raise ConfigError(_here(error).replace("data.path = ", "--data ", 1)) from None


def _here(error: DataError) -> str:
    """Return what is wrong, with where a key that it asks for is written."""
    keys = any(f"data.{key}" in str(error) for key in (*READING, "exclude", "target"))
    return f"{error} (here as --set KEY=VALUE)" if keys else str(error)


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
    classes, centre, scale = _targets(arrays[chosen], f"--data {data}: array {chosen!r}", "auto")
    pixels = arrays[inputs].dtype == np.uint8
    scaling = "pixels" if pixels else "columns" if len(shape) == 1 else "values"
    text = f"{count} records of shape {shape} in {inputs!r}, {_said(chosen, classes)}"
    constants = {"label": literal(chosen), "inputs": literal(inputs), "shape": str(shape)}
    left_out = {name: "another array" for name in arrays if name not in (inputs, chosen)}
    return DataDescription(count, text, classes, centre, scale, constants, scaling, left_out)


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
    return DataDescription(count, text, classes, 0.0, 1.0, constants, "pixels", left_out)


def _chosen(names: list[str], label: str | None, what: str, default: str) -> str:
    """Choose the label column: the named one, else one with a usual name, else the default."""
    if label is None:
        known = {name.lower(): name for name in reversed(names)}
        return next((known[name] for name in _LABELS if name in known), default)
    if label not in names:
        hint = did_you_mean(label, names)
        raise ConfigError(f"--label {label}: no such {what}; there are {listed(names)}{hint}")
    return label


def _targets(labels: np.ndarray, key: str, target: str) -> tuple[list[str] | None, float, float]:
    """Return (classes, 0, 1), or (None, centre, scale) of values to regress on.

    Centre and scale go into code that others see. They are as coarse as can be: a power of ten, and
    a whole number of it.
    """
    try:
        check_complete(labels, key)
        valued = are_values(labels, key, target)
    except DataError as error:
        raise ConfigError(_here(error)) from None
    if valued:
        values = labels.astype(np.float64)
        if not np.isfinite(values).all():
            raise ConfigError(f"{key} has infinities; leave those records out")
        deviation = float(values.std())
        scale = 10.0 ** round(log10(deviation)) if deviation else 1.0
        return None, round(float(values.mean()) / scale) * scale, scale
    firsts = np.unique(codes_of(labels), return_index=True)[1]
    if len(firsts) > MOST_CLASSES:
        raise ConfigError(
            f"{key} has {len(firsts)} classes; allowed: {MOST_CLASSES}; name another --label"
        )
    return [str(name) for name in names_of(labels)[firsts]], 0.0, 1.0


def _said(label: str, classes: list[str] | None) -> str:
    what = "values to regress on" if classes is None else f"{len(classes)} classes"
    return f"label {label!r} ({what})"
