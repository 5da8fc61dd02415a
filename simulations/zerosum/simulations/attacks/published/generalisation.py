"""Make a table k-anonymous: coarsen quasi-identifiers until every record has k - 1 equals.

Strict multidimensional partitioning (LeFevre, DeWitt and Ramakrishnan 2006, "Mondrian
multidimensional k-anonymity", section 4): cut the records in two at the median of one attribute as
long as both halves keep k, and publish for each part the range of every attribute. Nothing is
hidden or swapped, and sensitive values stay unchanged: that is the weakness of k-anonymity.
"""

import numpy as np


def mondrian(known: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the ranges that replace exact values in a k-anonymous table.

    Parameters
    ----------
    known : ndarray of int
        Shape (n, q): quasi-identifiers; categories by code, in an order that ranges can follow.
    k : int
        Least number of records with the same ranges.

    Returns
    -------
    low, high : ndarray of int
        Shape (n, q) each, ends included.

    Raises
    ------
    ValueError
        If there are fewer than k records, or k is below 1.
    """
    if not 1 <= k <= len(known):
        raise ValueError(f"k = {k}: give 1 to {len(known)}, the records of the table")
    low, high = known.copy(), known.copy()
    spans = np.maximum(np.ptp(known, axis=0), 1)
    waiting = [np.arange(len(known))]
    while waiting:
        part = waiting.pop()
        halves = _cut(known, part, spans, k)
        if halves is None:
            low[part], high[part] = known[part].min(axis=0), known[part].max(axis=0)
        else:
            waiting.extend(halves)
    return low, high


def _cut(
    known: np.ndarray, part: np.ndarray, spans: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Cut at the median of the relatively widest attribute that allows a cut."""
    values = known[part]
    for attribute in np.argsort(-np.ptp(values, axis=0) / spans, kind="stable"):
        column = values[:, attribute]
        below = column <= np.partition(column, (len(column) - 1) // 2)[(len(column) - 1) // 2]
        if k <= np.count_nonzero(below) <= len(part) - k:
            return part[below], part[~below]
    return None
