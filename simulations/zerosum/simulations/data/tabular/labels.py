"""Tell classes from values to regress on, and encode either."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from zerosum.simulations.data.data_files import MAX_CLASSES, DataError, count_classes, listed

FEW_KINDS = 20
"""Whole numbers of at most so many kinds are classes, if records share them."""

FEWEST_OF_A_CODE = 10
"""Records of each class, where more than 20 classes are counted up from 0."""


def encode_labels(
    labels: np.ndarray, key: str, target: str = "auto"
) -> tuple[np.ndarray, int | None]:
    """Return (targets, classes): int64 class indices, or float64 values and None.

    Parameters
    ----------
    labels : numpy.ndarray
        Shape (n,).
    key : str
        Begins every error.
    target : str
        ``data.target``.

    Returns
    -------
    targets : numpy.ndarray
        Shape (n,): int64 class indices, or float64 values.
    classes : int or None
        Number of classes; None for values.

    Raises
    ------
    DataError
        If a label is missing or is no finite number where values are, there is not one a record,
        there are fewer than two classes or more than 100,000, or the labels could be both.
    """
    check_one_a_record(labels, key)
    check_complete(labels, key)
    if are_values(labels, key, target):
        values = labels.astype(np.float64)
        if not np.isfinite(values).all():
            raise DataError(f"{key} has infinities; leave those records out")
        return values, None
    codes = codes_of(labels)
    classes = count_classes(codes, key)
    if classes > MAX_CLASSES:
        raise DataError(
            f'{key} has {classes} classes; allowed: {MAX_CLASSES}; write data.target = "values" to '
            "regress on numbers"
        )
    return codes, classes


def check_one_a_record(labels: np.ndarray, key: str) -> None:
    """Raise a DataError, unless labels are of shape (n,) and of a kind that labels can be of.

    Parameters
    ----------
    labels : numpy.ndarray
        Any shape.
    key : str
        Begins every message.

    Raises
    ------
    DataError
        If the shape is another, or the kind is none that labels can be of.
    """
    if labels.ndim != 1 or not len(labels):
        raise DataError(f"{key} has shape {labels.shape}; one value a record is allowed")
    if labels.dtype.kind in "cV":
        raise DataError(f"{key} holds {labels.dtype}; allowed: numbers, texts, dates")


def check_complete(labels: np.ndarray, key: str) -> None:
    """Raise a DataError that counts the records without a label, if there are any.

    Parameters
    ----------
    labels : numpy.ndarray
        Shape (n,).
    key : str
        Begins every message.

    Raises
    ------
    DataError
        If a label is missing.
    """
    gaps = pd.isna(labels)
    if labels.dtype.kind == "O":
        gaps |= labels == ""
    if gaps.any():
        raise DataError(
            f"{key}: some values are missing ({gaps.sum()} of {len(gaps)}, first in record "
            f"{np.argmax(gaps) + 1}); fill them, or drop those records"
        )


def are_values(labels: np.ndarray, key: str, target: str) -> bool:
    """Tell values to regress on from classes.

    Whole numbers are classes where they are few, and values where records hardly share any. In
    between only codes that count up from 0, each with several records, are classes: ages and
    counts are not written so. All other whole numbers could be either.

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
    bool
        True for values, False for classes.

    Raises
    ------
    DataError
        If it is open, or labels that are no numbers are to be values.
    """
    numeric = labels.dtype.kind in "iuf"
    if target == "values" and not (numeric or labels.dtype.kind == "b"):
        raise DataError(f'{key}: data.target = "values" needs numbers; it holds {_some(labels)}')
    if target != "auto":
        return target == "values"
    if not numeric:
        return _check_shared(labels, key)
    kinds, counts = np.unique(labels, return_counts=True)
    if len(kinds) > len(labels) / 2:
        return True
    whole = bool((kinds == np.floor(kinds)).all())
    if not whole and len(kinds) > 2:
        return True
    if whole and len(kinds) <= FEW_KINDS:
        return False
    coded = whole and kinds[0] == 0 and kinds[-1] == len(kinds) - 1
    if coded and counts.min() >= FEWEST_OF_A_CODE:
        return False
    raise DataError(
        f"{key} has {len(kinds)} different numbers ({_some(labels)}): classes, or values to "
        'regress on? Write data.target = "classes" or data.target = "values"'
    )


def _check_shared(labels: np.ndarray, key: str) -> bool:
    """Return False: these are classes. Refuse texts that hardly two records share."""
    kinds = len(np.unique(_plain(labels)))
    if kinds > max(FEW_KINDS, len(labels) / 2):
        raise DataError(
            f"{key} has {kinds} different texts in {len(labels)} records, as {_some(labels)}; name "
            'another data.label, or write data.target = "classes"'
        )
    return False


def codes_of(labels: np.ndarray) -> np.ndarray:
    """Return each label's place among the sorted different labels, int64, shape (n,)."""
    return np.unique(_plain(labels), return_inverse=True)[1].astype(np.int64)


def class_names_of(labels: np.ndarray) -> tuple[str, ...]:
    """Return what the classes of :func:`codes_of` are called, in the order of their codes."""
    return tuple(names_of(np.unique(_plain(labels))).tolist())


def names_of(labels: np.ndarray) -> np.ndarray:
    """Return labels as texts, shape (n,): whole numbers without a point, wherever they stood.

    Files of one federation write 0, 0.0 and 0.00 for the same class.
    """
    # Beyond 2^53 a float64 is no longer one whole number.
    if labels.dtype.kind == "f" and ((labels == np.floor(labels)) & (np.abs(labels) < 2**53)).all():
        labels = labels.astype(np.int64)
    return labels.astype(str)


def kinds_said(classes: Sequence[str] | None) -> str:
    """Return in words which classes there are; None where labels are values."""
    if classes is None:
        return "values to regress on"
    first = ", ".join(name[:40] for name in classes[:5])
    return f"{len(classes)} classes: {first}{', ...' if len(classes) > 5 else ''}"


def _plain(labels: np.ndarray) -> np.ndarray:
    return labels.astype(str) if labels.dtype.kind == "O" else labels


def _some(labels: np.ndarray) -> str:
    kinds = list(dict.fromkeys(names_of(labels).tolist()))
    return listed([f'"{kind[:40]}"' for kind in kinds[:3]]) + (", ..." if len(kinds) > 3 else "")
