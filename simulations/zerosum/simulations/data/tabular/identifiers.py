"""Detect columns that identify records, such as a patient number."""

import re

import numpy as np

_WORDS = frozenset({"id", "ids", "uid", "uuid", "guid", "idx", "index", "rowid", "rownum", "pk"})
"""Words of a name that say so: of `PassengerId`, `customer_id`, `ID`."""

_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def why_identifier(name: str, values: np.ndarray, public: np.ndarray) -> str | None:
    """Say why a column of numbers names records and is no input; None where nothing says so.

    A model that is given such a column learns the order in which records were written down. Only
    public records are looked at: what is left out is the shape of the model. A column that only
    counts the records, under a name of its own, may be time: it is used, with a caution.

    Parameters
    ----------
    name : str
        Of the column.
    values : numpy.ndarray
        Shape (n,), of numbers; anything else names nothing.
    public : numpy.ndarray
        Indices of the public records.

    Returns
    -------
    str or None
        The reason, for the line of columns that are left out.
    """
    if values.ndim != 1 or values.dtype.kind not in "iu" or len(public) < 2:
        return None
    known = values[public]
    named = _WORDS & {part.lower() for part in _PARTS.findall(name)}
    if named and len(np.unique(known)) == len(known):
        return "an identifier, another in every record"
    return None
