"""Inspect tables for ``zerosum new``: one file, or a file a client.

What goes into code that others see is read off the public records alone: the scales of numbers and
of labels, and the categories of texts. Names of columns and of classes are of all records.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import floor, log10
from pathlib import Path
from typing import Any

import numpy as np

from zerosum.client.spec import DataSpec
from zerosum.server.config import ConfigError
from zerosum.simulations.data.data_files import DataError, counted, listed
from zerosum.simulations.data.tabular.columns import Table
from zerosum.simulations.data.tabular.comparisons import Label, compared, label_of
from zerosum.simulations.data.tabular.filled import filled_inputs
from zerosum.simulations.data.tabular.inputs import (
    Chosen,
    cautions,
    choose_inputs,
    encode_inputs,
    require_column,
)
from zerosum.simulations.data.tabular.labels import check_complete, codes_of
from zerosum.simulations.data.tabular.several import Joined, read_tables, zeros_for_nothing
from zerosum.simulations.new.description import (
    READING,
    DataDescription,
    check_enough,
    here,
    literal,
    public_of,
    said_of,
    scale_of,
    targets_of,
)
from zerosum.simulations.new.kinds import WORDS, Kind

_LABELS = ("label", "labels", "target", "targets", "class", "outcome", "diagnosis", "y")


def usual_label(names: Sequence[str], default: str) -> str:
    """Return the column that is named as labels are, or the default.

    Parameters
    ----------
    names : sequence of str
        Columns.
    default : str
        One of them.

    Returns
    -------
    str
        A column.
    """
    known = {name.lower(): name for name in reversed(names)}
    return next((known[name] for name in _LABELS if name in known), default)


def look_table(
    files: Sequence[Path],
    kind: Kind,
    label: str | None,
    reading: Mapping[str, Any],
    client_column: str | None = None,
) -> DataDescription:
    """Inspect tables.

    Parameters
    ----------
    files : sequence of Path
        One or more.
    kind : Kind
        CSV or Parquet.
    label : str or None
        Column of the labels, or a comparison. Default: a usual name, or the last column.
    reading : mapping
        Keys of ``[data]`` that say how each is read.
    client_column : str, optional
        Column that names each record's client.

    Returns
    -------
    DataDescription
        What the app's code has to know of them.

    Raises
    ------
    ConfigError
        One line that names the option, its value, what is allowed and the cure.
    """
    data = str(files[0]) if len(files) == 1 else f"{len(files)} files"
    spec = DataSpec.model_validate({**reading, "client_column": client_column})
    try:
        names = list(read_tables(files, spec, f".{kind}").table.columns)
        text = label if label is not None else usual_label(names, names[-1])
        spec = spec.model_copy(update={"label": text})
        joined = read_tables(files, spec, f".{kind}")
        chosen = label_of(text, names, "--label")
        table = compared(joined.table, chosen, f"--label {text}")
        joined = replace(joined, table=table)
        if client_column is not None:
            require_column(joined.table.columns, "--client-column", client_column)
            check_complete(joined.table.columns[client_column], f"--client-column {client_column}")
    except DataError as error:
        raise ConfigError(_option(error, data)) from None
    labels = joined.table.columns[chosen.name]
    if not len(labels):
        raise ConfigError(f"--data {data}: no records; give {WORDS[kind]} with a line of names")
    key = f"--data {data}: label {text!r}"
    classes, centre, scale = targets_of(labels, key, spec.target)
    check_enough(data, len(labels), classes)
    public = public_of(labels, classes, key, joined.owners if len(files) > 1 else None)
    if chosen.words is not None and classes is not None:
        classes = list(chosen.words)
    if classes is None:
        centre, scale = scale_of(labels[public])
    spec = spec.model_copy(update={"label": chosen.name})
    try:
        used = choose_inputs(joined.table, spec, public)
    except DataError as error:
        raise ConfigError(_option(error, data)) from None
    return _described(joined, text, chosen, used, public, spec, classes, (centre, scale))


def _option(error: DataError, data: str) -> str:
    text = here(error)
    if text.startswith("data.path = "):
        return text.replace("data.path = ", "--data ", 1)
    return text if text.startswith("--") else f"--data {data}: {text}"


def _described(
    joined: Joined,
    text: str,
    label: Label,
    used: Chosen,
    public: np.ndarray,
    spec: DataSpec,
    classes: list[str] | None,
    scale: tuple[float, float],
) -> DataDescription:
    table, many = joined.table, len(joined.names) > 1
    labels = table.columns[label.name]
    zeros = zeros_for_nothing(joined, public) if many else {}
    zeros = {name: files for name, files in zeros.items() if name in used.names}
    scales, used = _scales(table, used, public, zeros)
    shown = f" ({listed(used.said)})" if len(used.names) <= 20 else ""
    parts = [
        *([joined.counted()] if many else []),
        f"{counted(len(labels), 'record')}, {said_of(text, classes)}, "
        f"{counted(len(used.names), 'feature')}{shown}",
        *joined.said,
        *filled_inputs(table.columns, used, "a category that no public record has"),
        *(
            f"0 in {name} counts as not measured: it is 0 in all public records of {listed(files)}"
            for name, files in zeros.items()
        ),
        *cautions(table.columns, used, labels, table.compared),
        *([f"read as {', '.join(table.said)}"] if table.said else []),
    ]
    owners = _owners(joined, spec)
    reading = spec.model_dump(include=set(READING), exclude_defaults=True)
    constants = {
        "label": literal(text),
        "features": literal(list(used.names)),
        "categories": literal({name: list(known) for name, known in used.categories.items()}),
        "scales": literal(scales),
        "optional": literal([name for name in joined.lacking if name in used.names]),
        "zeros": literal(list(zeros)),
        "client_column": "None" if spec.client_column is None else literal(spec.client_column),
        "reading": literal({"missing": [""], **reading}),
        "public_words": counted(len(public), "record"),
    }
    width = len(scales) + sum(len(known) for known in used.categories.values())
    return DataDescription(
        records=len(labels),
        described="; ".join(parts),
        classes=classes,
        label_centre=scale[0],
        label_scale=scale[1],
        constants=constants,
        scaling="table",
        inputs=width,
        outputs=1 if classes is None else len(classes),
        training_records=len(labels) - len(public),
        clients=None if owners is None else len(np.unique(owners)),
        client_column=spec.client_column,
        largest_client=None if owners is None else int(np.bincount(owners).max()),
        left_out=used.left_out,
    )


def _owners(joined: Joined, spec: DataSpec) -> np.ndarray | None:
    if spec.client_column is not None:
        return codes_of(joined.table.columns[spec.client_column])
    return joined.owners if len(joined.names) > 1 else None


def _scales(
    table: Table, used: Chosen, public: np.ndarray, zeros: Mapping[str, object]
) -> tuple[dict[str, tuple[float, float]], Chosen]:
    """Return (centre, unit) of each column of numbers, by the public records alone.

    Columns that no public record has a number in are left out: nothing says how large they are.
    """
    scales: dict[str, tuple[float, float]] = {}
    empty: dict[str, str] = {}
    for name in used.names:
        if name in used.categories:
            continue
        alone = replace(used, names=(name,), categories={})
        try:
            encoded = encode_inputs(
                table.columns, alone, records=len(table.columns[name]), fill=True
            )
        except DataError as error:
            raise ConfigError(f"--data: {here(error)}") from None
        known = encoded.inputs[public, 0]
        known = known[~np.isnan(known)]
        known = known[known != 0] if name in zeros else known
        if not len(known):
            empty[name] = "missing in all public records"
            continue
        scales[name] = _rounded(float(known.mean()), float(known.std()))
    names = tuple(name for name in used.names if name not in empty)
    if not names:
        raise ConfigError(f"--data: no column is left as input ({listed(empty)}: missing)")
    return scales, replace(used, names=names, left_out={**used.left_out, **empty})


def _rounded(mean: float, deviation: float) -> tuple[float, float]:
    """Return a unit of one digit near the deviation, and a whole number of it near the mean."""
    if not deviation > 1e-9 * abs(mean):
        return float(f"{mean:.6g}"), 1.0
    unit = float(f"{deviation:.0e}")
    places = max(0, -floor(log10(unit)))
    return round(round(mean / unit) * unit, places), unit
