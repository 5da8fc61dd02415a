"""Columns that are the label once more, in the same words or in others."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

FEWEST_TO_COMPARE = 20
"""Records that both columns have; of fewer, two columns may agree by chance."""


def why_leak(
    values: np.ndarray, labels: np.ndarray, compared: Mapping[str, np.ndarray]
) -> str | None:
    """Return in which way a column is the label once more, or None.

    All records are looked at: one that differs clears the column. So what is found must be refused,
    for a column that is left out without a word would tell of the records.

    Parameters
    ----------
    values : numpy.ndarray
        The column.
    labels : numpy.ndarray
        Shape (n,).
    compared : mapping of str to numpy.ndarray
        Columns that the label is a comparison of, shape (n,).

    Returns
    -------
    str or None
        As "the label in other words".
    """
    if values.shape != labels.shape:
        return None
    if _says_both(values, labels, labels):
        return "the label in other words"
    for name, source in compared.items():
        if _says_both(values, source, labels):
            return f"{name} in other words, of which the label is a comparison"
    return None


def _says_both(values: np.ndarray, source: np.ndarray, labels: np.ndarray) -> bool:
    """Tell whether a column follows from a source of the label, and the label from the column."""
    there = ~pd.isna(values)
    if values.dtype.kind == "O":
        there &= values != ""
    if there.sum() < FEWEST_TO_COMPARE:
        return False
    own, of_source, of_label = (pd.factorize(each[there])[0] for each in (values, source, labels))
    if of_label.max() == 0 or own.max() == 0:
        return False
    if 2 * (of_source.max() + 1) <= there.sum():
        return _follows(of_source, own) and _follows(own, of_label)
    # Numbers that hardly two records share: each follows from any other such column.
    same: np.ndarray = values[there] == source[there]
    return bool(np.all(same))


def _follows(codes: np.ndarray, others: np.ndarray) -> bool:
    """Tell whether equal codes have equal others."""
    pairs = np.unique(codes * (int(others.max()) + 1) + others)
    return len(pairs) == int(codes.max()) + 1
