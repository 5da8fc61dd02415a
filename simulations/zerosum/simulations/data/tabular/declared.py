"""Columns by a list that stands in an app's code, for clients that see one file each.

No client sees another's records. So which columns are inputs, which categories a text has and which
classes there are cannot be read from a file: they are declared once, and travel with the code.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from zerosum.client.spec import DataSpec
from zerosum.simulations.data.data_files import DataError, counted, listed
from zerosum.simulations.data.tabular.columns import Table
from zerosum.simulations.data.tabular.comparisons import holds, label_of
from zerosum.simulations.data.tabular.filled import filled_inputs, is_strange, public_said
from zerosum.simulations.data.tabular.inputs import Chosen, encode_inputs, require_column
from zerosum.simulations.data.tabular.labels import check_complete, kinds_said, names_of
from zerosum.simulations.data.tabular.several import read_tables
from zerosum.simulations.data.tabular.targets import TargetScale

log = logging.getLogger("zerosum.client")


def declared_inputs(
    table: Table,
    features: Sequence[str],
    categories: Mapping[str, Sequence[str]],
    key: str,
    *,
    optional: Sequence[str] = (),
    zeros: Sequence[str] = (),
) -> np.ndarray:
    """Return inputs, float64 of shape (n, width), NaN where a number is missing.

    A text that is none of its column's categories has 0 in all of them; the log says how many.

    Parameters
    ----------
    table : Table
        One client's file.
    features : sequence of str
        Columns, in their order.
    categories : mapping of str to sequence of str
        Of the columns that hold texts; each is an input of its own.
    key : str
        The file; begins every error.
    optional : sequence of str
        Columns that a file may lack: all of it is missing then, and the log says so.
    zeros : sequence of str
        Columns of numbers in which 0 stands for what was not measured.

    Returns
    -------
    numpy.ndarray
        float64, shape (n, width).

    Raises
    ------
    DataError
        If a column is missing, or one of numbers holds anything else.
    """
    columns = dict(table.columns)
    records = max((len(values) for values in columns.values()), default=0)
    for name in features:
        if name in optional and name not in columns:
            log.warning('%s: column "%s" is absent: it counts as missing in all records', key, name)
            texts = np.full(records, "", dtype=object)
            columns[name] = texts if name in categories else np.full(records, np.nan)
        require_column(columns, f"{key}: column", name)
        if name in categories:
            columns[name] = names_of(columns[name])
            strange = is_strange(columns[name], categories[name])
            if strange.any():
                log.warning(
                    '%s: column "%s": %d of %d are none of its categories, as "%s"; they count as '
                    "none", key, name, strange.sum(), len(strange), columns[name][strange][0],
                )  # fmt: skip
        elif columns[name].dtype.kind not in "iufb":
            reason = table.strangers.get(name, "it holds texts")
            raise DataError(f'{key}: column "{name}" must hold numbers, and {reason}; correct it')
        elif name in zeros:
            values = columns[name].astype(np.float64)
            columns[name] = np.where(values == 0, np.nan, values)
    known = {name: tuple(texts) for name, texts in categories.items()}
    chosen = Chosen(tuple(features), known, {})
    return encode_inputs(columns, chosen, records=records, fill=True).inputs


def declared_labels(table: Table, label: str, key: str, features: Sequence[str] = ()) -> np.ndarray:
    """Return the labels of a file: those of a column, or the words of a comparison.

    Parameters
    ----------
    table : Table
        One client's file.
    label : str
        A column, or a comparison as ``num > 0``.
    key : str
        The file; begins every error.
    features : sequence of str
        The columns that are inputs: none that the label is read from.

    Returns
    -------
    numpy.ndarray
        Shape (n,); of a comparison the names of its two classes.

    Raises
    ------
    DataError
        If a column is missing, has gaps, cannot be compared so, or is an input too.
    """
    chosen = label_of(label, table.columns, f"{key}: label")
    if both := [name for name in chosen.columns if name in features]:
        raise DataError(
            f'{key}: the label {label} is read from column "{both[0]}", which is an input too: a '
            "model would learn nothing else; take it out of FEATURES"
        )
    if chosen.predicate is None or chosen.words is None:
        return table.columns[chosen.name]
    truth = holds(chosen.predicate, table, f"{key}: label {label}")
    return np.array(chosen.words, dtype=object)[truth.astype(np.int64)]


def declared_classes(labels: np.ndarray, classes: Sequence[str], key: str) -> np.ndarray:
    """Return each label's place among the classes, int64, shape (n,).

    Parameters
    ----------
    labels : numpy.ndarray
        Shape (n,).
    classes : sequence of str
        Names of the classes, in their order.
    key : str
        Begins every message.

    Returns
    -------
    numpy.ndarray
        int64, shape (n,).

    Raises
    ------
    DataError
        If a label is missing, or is none of them.
    """
    check_complete(labels, key)
    names = names_of(labels)
    places = {name: place for place, name in enumerate(classes)}
    unknown = [name for name in np.unique(names).tolist() if name not in places]
    if unknown:
        raise DataError(f'{key}: "{unknown[0]}" is none of the classes {listed(classes)}')
    return np.array([places[name] for name in names.tolist()], dtype=np.int64)


def declared_values(labels: np.ndarray, centre: float, scale: float, key: str) -> np.ndarray:
    """Return (label - centre) / scale, float32, shape (n,): what a model of values learns.

    Parameters
    ----------
    labels : numpy.ndarray
        Shape (n,).
    centre, scale : float
        In the label's unit.
    key : str
        Begins every message.

    Returns
    -------
    numpy.ndarray
        float32, shape (n,).

    Raises
    ------
    DataError
        If a label is missing, or is no finite number.
    """
    check_complete(labels, key)
    if labels.dtype.kind not in "iufb" or not np.isfinite(labels.astype(np.float64)).all():
        raise DataError(
            f"{key}: labels must be finite numbers; correct the others, or leave them out"
        )
    return ((labels.astype(np.float64) - centre) / scale).astype(np.float32)


def declared_line(
    path: Path | Sequence[Path],
    label: str,
    features: Sequence[str],
    reading: Mapping[str, object],
    categories: Mapping[str, Sequence[str]] | None = None,
    *,
    classes: Sequence[str] | None = None,
    scale: tuple[float, float] | None = None,
    optional: Sequence[str] = (),
    zeros: Sequence[str] = (),
    client_column: str | None = None,
    public: int = 0,
) -> str:
    """Return in one line what is read of a file or of several, and which columns are not.

    Parameters
    ----------
    path : Path or sequence of Path
    label, features, categories, classes
        As they stand in the code.
    reading : mapping
        Keys of ``[data]`` that say how the file is read.
    scale : tuple of float, optional
        Of labels that are values: (centre, scale); the line says how to turn outputs back.
    optional, zeros
        As :func:`declared_inputs` takes them.
    client_column : str, optional
        Names each record's client, and is no input.
    public : int
        How many of the records the model is tested on.

    Returns
    -------
    str
        For the terminal, the report and the summary.
    """
    files = [path] if isinstance(path, Path) else list(path)
    joined = read_tables(files, DataSpec.model_validate({**reading, "label": label}))
    table = joined.table
    chosen_label = label_of(label, table.columns)
    of_label = chosen_label.columns
    columns = dict(table.columns)
    lacking = [name for name in features if name in optional and name not in columns]
    records = len(columns[of_label[0]])
    columns |= {name: np.full(records, np.nan) for name in lacking}
    for name in features:
        require_column(columns, f"{path}: column", name)
    reserved = (*([chosen_label.name] if chosen_label.predicate is None else []), client_column)
    others = [
        f"{name} (the label is {label})" if name in of_label else name
        for name in table.columns
        if name not in features and name not in reserved
    ]
    left_out = [*(f"{name} ({reason})" for name, reason in table.left_out.items()), *others]
    known = {name: tuple(texts) for name, texts in (categories or {}).items()}
    columns |= {name: names_of(columns[name]) for name in known if name not in lacking}
    columns |= {name: np.full(records, "", dtype=object) for name in known if name in lacking}
    chosen = Chosen(tuple(features), known, {})
    kinds = f" ({kinds_said(classes)})" if classes is not None or scale is not None else ""
    many = len(files) > 1
    parts = [
        f"{joined.counted() if many else joined.names[0]}: {counted(records, 'record')}",
        f"label {label}{kinds}",
        f"{counted(len(features), 'input')}: {listed(chosen.said)}",
        *joined.said,
        *([f"absent: {listed(lacking)}"] if lacking else []),
        *([f"0 counts as not measured in {listed(zeros)}"] if zeros else []),
        *filled_inputs(columns, chosen, "a category that the code does not declare"),
        *([f"left out: {listed(left_out)}"] if left_out else []),
        *([f"read as {', '.join(table.said)}"] if table.said else []),
    ]
    if public:
        parts.append(f"{public_said(public)}, and nothing protects them")
    if scale is not None:
        parts.append(TargetScale(*scale).said(label))
    return "; ".join(parts)
