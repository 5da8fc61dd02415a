"""What an app's code has to know of the data that it is made for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log10

import numpy as np

from zerosum.client.spec import DataSpec
from zerosum.server.config import ConfigError
from zerosum.simulations.data.data_files import DataError
from zerosum.simulations.data.datasets import Records, split_off_test
from zerosum.simulations.data.tabular.labels import (
    are_values,
    check_complete,
    codes_of,
    kinds_said,
    names_of,
)

MOST_CLASSES = 10_000
"""Labels of more kinds are not written into code."""

READING = ("missing", "separator", "decimal", "thousands", "encoding", "header")
"""Keys of ``[data]`` that say how a table is read."""

CHOOSING = ("exclude", "features", "target")
"""Keys of ``[data]`` that say what of a table is used, when an app is made."""

FEWEST_RECORDS = 10
"""Records that a split into training and test records, over two clients, takes."""


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
    inputs, outputs : int
        Numbers of an input, and of what the model gives for it.
    training_records : int
        Records that are not the public test data.
    clients : int or None
        Clients that the data name: files, or values of a column. None where records are dealt.
    client_column : str or None
        That column.
    largest_client : int or None
        Records of the largest client that the data name.
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
    inputs: int
    outputs: int
    training_records: int
    clients: int | None = None
    client_column: str | None = None
    largest_client: int | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)


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


def here(error: DataError) -> str:
    """Return what is wrong, with where a key that it asks for is written."""
    keys = any(f"data.{key}" in str(error) for key in (*READING, *CHOOSING))
    return f"{error} (here as --set KEY=VALUE)" if keys else str(error)


def targets_of(labels: np.ndarray, key: str, target: str) -> tuple[list[str] | None, float, float]:
    """Return the classes of labels, or centre and scale of values to regress on.

    Parameters
    ----------
    labels : numpy.ndarray
        Shape (n,).
    key : str
        Begins every message.
    target : str
        ``data.target``.

    Returns
    -------
    classes : list of str or None
        None of values.
    centre, scale : float
        0 and 1 of classes.

    Raises
    ------
    ConfigError
        If a label is missing, it is open what they are, or there are too many classes.
    """
    try:
        check_complete(labels, key)
        valued = are_values(labels, key, target)
    except DataError as error:
        raise ConfigError(here(error)) from None
    if valued:
        if not np.isfinite(labels.astype(np.float64)).all():
            raise ConfigError(f"{key} has infinities; leave those records out")
        return None, *scale_of(labels)
    firsts = np.unique(codes_of(labels), return_index=True)[1]
    if len(firsts) > MOST_CLASSES:
        raise ConfigError(
            f"{key} has {len(firsts)} classes; allowed: {MOST_CLASSES}; name another --label"
        )
    return [str(name) for name in names_of(labels)[firsts]], 0.0, 1.0


def scale_of(labels: np.ndarray) -> tuple[float, float]:
    """Return centre and scale of values, as they go into code that others see.

    They are as coarse as can be: a power of ten, and a whole number of it.
    """
    values = labels.astype(np.float64)
    deviation = float(values.std())
    scale = 10.0 ** round(log10(deviation)) if deviation else 1.0
    return round(float(values.mean()) / scale) * scale, scale


def said_of(label: str, classes: list[str] | None) -> str:
    """Return in words what a label is.

    Parameters
    ----------
    label : str
        As it was named.
    classes : list of str or None
        None of values.

    Returns
    -------
    str
        The label with its classes.
    """
    return f"label {label!r} ({kinds_said(classes)})"


def public_of(
    labels: np.ndarray, classes: Sequence[str] | None, key: str, files: np.ndarray | None = None
) -> np.ndarray:
    """Return the indices of the records that the app's simulation takes for public.

    Parameters
    ----------
    labels : numpy.ndarray
        Shape (n,).
    classes : sequence of str or None
        None where labels are values.
    key : str
        Begins the message.
    files : numpy.ndarray, optional
        Each record's file, int64, shape (n,), where there are several.

    Returns
    -------
    numpy.ndarray
        int64, shape (m,).

    Raises
    ------
    ConfigError
        If there are too few records to be split.
    """
    targets = labels.astype(np.float64) if classes is None else codes_of(labels)
    records = Records(np.arange(len(labels)), targets)
    count = None if classes is None else len(classes)
    try:
        return split_off_test(records, DataSpec().test_fraction, count, files).test.inputs
    except DataError as error:
        raise ConfigError(f"{key}: {error}") from None


def check_enough(data: str, records: int, classes: Sequence[str] | None) -> None:
    """Raise a ConfigError if records are too few, or their labels all the same.

    Parameters
    ----------
    data : str
        What they are of; in the message.
    records : int
        How many there are.
    classes : sequence of str or None
        None where labels are values.

    Raises
    ------
    ConfigError
        One line with what is allowed.
    """
    if records < FEWEST_RECORDS:
        raise ConfigError(f"--data {data}: {records} records; allowed: {FEWEST_RECORDS} or more")
    if classes is not None and len(classes) < 2:
        raise ConfigError(
            f"--data {data}: all labels are the same ({classes[0]}); allowed: two classes or more"
        )
