"""A user's own table: CSV, Parquet or NPZ, in one file or several.

Columns are scaled to mean 0 and deviation 1, and texts become categories, by the public test
records alone: statistics of the training records would be a release of private data that nobody
accounted. For the same reason the set of labels counts as public.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from zerosum.client.spec import DataSpec
from zerosum.simulations.data.data_files import (
    DataError,
    as_float32,
    counted,
    listed,
    required_files,
)
from zerosum.simulations.data.datasets import Collection, Records, split_off_test
from zerosum.simulations.data.tabular.columns import KIND, Columns
from zerosum.simulations.data.tabular.comparisons import Label, compared, label_of
from zerosum.simulations.data.tabular.filled import filled_inputs, public_said
from zerosum.simulations.data.tabular.inputs import (
    Chosen,
    cautions,
    choose_inputs,
    encode_inputs,
    require_column,
    scale_inputs,
)
from zerosum.simulations.data.tabular.labels import (
    check_complete,
    check_one_a_record,
    class_names_of,
    codes_of,
    encode_labels,
    kinds_said,
)
from zerosum.simulations.data.tabular.several import Joined, read_tables, zeros_for_nothing


def table(spec: DataSpec) -> Collection:
    """Return the records of ``data.path``, with ``data.test_fraction`` held out as public.

    The natural partition's owners are the distinct values of ``data.client_column``, or else the
    files, if there are several.

    Parameters
    ----------
    spec : DataSpec
        ``path``, ``label`` and the keys that say how the file is read.

    Returns
    -------
    Collection
        With ``read``: what was read, what was left out and why.

    Raises
    ------
    DataError
        If the file is missing or damaged, a column is missing, of another length than the labels,
        has gaps, or leaves float32, or it is open what the file means.
    """
    files = required_files(spec, "table", KIND)
    many = len(files) > 1
    named = f"{len(files)} files" if many else f'"{files[0]}"'
    try:
        joined = read_tables(files, spec)
        label = label_of(spec.label, joined.table.columns)
        key = f'data.label = "{spec.label}"'
        content = compared(joined.table, label, key)
        read = spec.model_copy(update={"label": label.name})
        return _collected(replace(joined, table=content), label, key, read)
    except DataError as error:
        if str(error).startswith("data.path"):
            raise
        raise DataError(f"data.path = {named}: {error}") from None


def _collected(joined: Joined, label: Label, key: str, spec: DataSpec) -> Collection:
    content = joined.table
    labels = content.columns[spec.label]
    if labels.size == 0:
        raise DataError(f"it has no records: {key} is empty")
    if spec.target == "auto" and spec.label in content.strangers:
        raise DataError(
            f"{key} holds numbers, but {content.strangers[spec.label]}; write data.target = "
            '"classes" where that is a class of its own, or drop those records'
        )
    targets, classes = encode_labels(labels, key, spec.target)
    many = len(joined.names) > 1
    owners = encode_owners(content.columns, spec)
    if owners is None and many:
        owners = joined.owners
    rows = split_off_test(
        Records(np.arange(len(targets)), targets, owners),
        spec.test_fraction,
        classes,
        joined.owners if many else None,
    )
    chosen = choose_inputs(content, spec, rows.test.inputs)
    _check_lacking(joined, chosen, spec)
    inputs = _inputs(content.columns, chosen, rows.test.inputs, spec)
    names = None if classes is None else label.words or class_names_of(labels)
    return replace(
        rows,
        train=replace(rows.train, inputs=inputs[rows.train.inputs]),
        test=replace(rows.test, inputs=inputs[rows.test.inputs]),
        read=_read(joined, chosen, label, replace(rows, class_names=names), spec),
        class_names=names,
    )


def _check_lacking(joined: Joined, chosen: Chosen, spec: DataSpec) -> None:
    """Raise a DataError where a file lacks an input and nothing says that one may be missing."""
    if spec.missing is not None:
        return
    for name, files in joined.lacking.items():
        if name in chosen.names:
            raise DataError(
                f'column "{name}" is not in {listed(files)}; write data.missing = [""] to count it '
                f'as missing there, or data.exclude = ["{name}"]'
            )


def encode_owners(columns: Columns, spec: DataSpec) -> np.ndarray | None:
    """Return each record's client of the natural partition, int64, shape (n,), or None.

    Parameters
    ----------
    columns : dict of str to numpy.ndarray
        Of the file, each of shape (n,) or (n, ...).
    spec : DataSpec
        ``client_column`` and ``label``.

    Returns
    -------
    numpy.ndarray or None
        int64, shape (n,); None without a client column.

    Raises
    ------
    DataError
        If the client column is missing, has gaps, or is of another length than the labels.
    """
    if spec.client_column is None:
        return None
    require_column(columns, "data.client_column", spec.client_column)
    key = f'data.client_column = "{spec.client_column}"'
    named = columns[spec.client_column]
    check_one_a_record(named, key)
    check_complete(named, key)
    owners, count = codes_of(named), len(columns[spec.label])
    if len(owners) != count:
        raise DataError(f"{key} has {len(owners)} entries for {count} labels; give one a record")
    return owners


def _inputs(columns: Columns, chosen: Chosen, public: np.ndarray, spec: DataSpec) -> np.ndarray:
    records = len(columns[spec.label])
    encoded = encode_inputs(columns, chosen, records=records, fill=spec.missing is not None)
    if encoded.inputs.ndim > 2:
        return as_float32(encoded.inputs, f'data.features: column "{chosen.names[0]}"')
    return scale_inputs(encoded.inputs, public, encoded.scaled, encoded.names)


def _read(
    joined: Joined, chosen: Chosen, label: Label, rows: Collection, spec: DataSpec
) -> dict[str, Any]:
    """Return what the summary says of the files; ``line`` says all of it to a person."""
    content, public, many = joined.table, len(rows.test), len(joined.names) > 1
    labels = content.columns[spec.label]
    left_out = [f"{name} ({reason})" for name, reason in chosen.left_out.items()]
    used = ["scales", *(["categories"] if chosen.categories else [])]
    zeros = zeros_for_nothing(joined, rows.test.inputs) if many else {}
    parts = [
        f"{joined.counted() if many else joined.names[0]}: {counted(len(labels), 'record')}",
        f"label {spec.label} ({kinds_said(rows.class_names)})",
        f"{counted(len(chosen.names), 'input')}: {listed(chosen.said)}",
        *joined.said,
        *filled_inputs(content.columns, chosen, "a category that no public record has"),
        *([f"left out: {listed(left_out)}"] if left_out else []),
        *([f"read as {', '.join(content.said)}"] if content.said else []),
        *(
            f"caution: {caution}"
            for caution in cautions(content.columns, chosen, labels, content.compared)
        ),
        *(
            f"caution: {name} is 0 in all public records of {listed(files)}: not measured there?"
            for name, files in zeros.items()
            if name in chosen.names
        ),
        f"{public_said(public)}: they set the {' and '.join(used)}, and nothing protects them",
    ]
    return {
        "line": "; ".join(parts),
        **({"files": list(joined.names)} if many else {}),
        "records": len(labels),
        "public_records": public,
        "label": spec.label,
        **({"classes": list(label.words)} if label.words is not None else {}),
        "inputs": list(chosen.names),
        "left_out": dict(chosen.left_out),
        "read_as": list(content.said),
    }
