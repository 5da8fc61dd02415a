"""Code a column's values by its domain: numbers clamped, categories as cells."""

from collections.abc import Callable, Container, Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.client.queries.schema import (
    CategoryColumn,
    Column,
    IntegerColumn,
    NumberColumn,
    TextColumn,
)

MISSING = -1
"""Code of a missing integer."""

_ABSENT = frozenset({"None", "nan", "NaT", "<NA>"})
"""How values that stand for none print: of Python, numpy and pandas."""


def coded(column: Column, values: Iterable[Any]) -> NDArray[Any]:
    """Code one column's values: numbers clamped, categories as cells, blanks stripped.

    Of a category, ``1.0`` is ``1`` where that alone is listed.

    Parameters
    ----------
    column : Column
    values : iterable
        Texts or numbers; whatever is missing, unlisted or cannot be read is coded as missing.

    Returns
    -------
    ndarray, shape (number of values,)
        As ``table.Table`` describes; read-only.
    """
    if isinstance(column, IntegerColumn | NumberColumn):
        array = _floats(values)
        # An integer that has a fraction is of the wrong type, and counts as missing.
        if isinstance(column, IntegerColumn):
            array = np.where(array == np.rint(array), array, np.nan)
        found = np.clip(array, column.low, column.high)
        if isinstance(column, IntegerColumn):
            # Clamped before it is cast: a float beyond int64 has no integer.
            present = ~np.isnan(found)
            whole = np.where(present, found, column.low).astype(np.int64)
            found = np.where(present, whole - column.low, MISSING)
    elif isinstance(column, CategoryColumn):
        cells = {value: cell for cell, value in enumerate(column.values)}
        found = _each(values, lambda text: cells.get(_listed(text, cells), len(cells)), np.int64)
    else:
        found = _each(values, _reader(column), np.dtype(f"<U{column.length}"))
    found.flags.writeable = False
    return found


def all_missing(column: Column, codes: NDArray[Any]) -> bool:
    """Whether no value is one of the column's domain: each is missing, unlisted or unreadable.

    Parameters
    ----------
    column : Column
    codes : ndarray
        As :func:`coded` returns them.

    Returns
    -------
    bool
        True for no values at all.
    """
    if isinstance(column, NumberColumn):
        return bool(np.isnan(codes).all())
    if isinstance(column, CategoryColumn):
        return bool(np.all(codes == len(column.values)))
    return bool(np.all(codes == (MISSING if isinstance(column, IntegerColumn) else "")))


def _listed(text: str, cells: Container[str]) -> str:
    if text in cells:
        return text
    # Where a value of a column is missing, files often have 1.0 for 1, and days with a midnight.
    whole, point, zeros = text.partition(".")
    is_whole = point and zeros.strip("0") == "" and whole.removeprefix("-").isdecimal()
    return whole if is_whole else text.removesuffix(" 00:00:00")


def _reader(column: TextColumn) -> Callable[[str], str]:
    letters = frozenset(column.alphabet)

    def read(text: str) -> str:
        return text if len(text) <= column.length and letters.issuperset(text) else ""

    return read


def _floats(values: Iterable[Any]) -> NDArray[np.float64]:
    """Read numbers; NaN where there is none or none that is finite."""
    array = values if isinstance(values, np.ndarray) else None
    if array is not None and array.dtype.kind in "iuf":
        found = array.astype(np.float64)
    else:
        found = _each(values, _float, np.float64)
    found[~np.isfinite(found)] = np.nan
    return found


def _float(text: str) -> float:
    # Python reads 1_000 as a number; a file that holds it does not mean one.
    if "_" in text:
        return np.nan
    try:
        return float(text)
    except ValueError:
        return np.nan


def _each(values: Iterable[Any], read: Callable[[str], Any], dtype: Any) -> NDArray[Any]:
    """Apply a reader of texts to every value, once to each distinct one."""
    texts = list(map(_text, values))
    known = {text: read(text) for text in set(texts)}
    return np.fromiter(map(known.__getitem__, texts), dtype, len(texts))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    text = str(value)
    return "" if text in _ABSENT else text


@lru_cache(maxsize=64)
def edges(column: IntegerColumn | NumberColumn, cells: int) -> NDArray[Any]:
    """Return where the cells of a range begin, and where the last ends.

    Parameters
    ----------
    column : IntegerColumn or NumberColumn
    cells : int
        How many; of an integer column with fewer integers, the first cells are its integers and
        the others are empty.

    Returns
    -------
    ndarray of int64 or float64, shape (cells + 1,)
        Cell i holds the values from edge i to below edge i + 1, the last `high` itself too. The
        last edge is `high` + 1 for integers, `high` for numbers. Read-only.
    """
    if isinstance(column, NumberColumn):
        found = np.linspace(column.low, column.high, cells + 1)
    else:
        runs = min(cells, column.size)
        # In Python's integers, for the product of two large ones does not fit into int64.
        starts = [column.low - (-min(i, runs) * column.size // runs) for i in range(cells + 1)]
        found = np.array(starts, dtype=np.int64)
    found.flags.writeable = False
    return found


def cells_of(column: Column, codes: NDArray[Any], cells: int | None = None) -> NDArray[np.int64]:
    """Return the cell of each coded value.

    Parameters
    ----------
    column : Column
        Any but a text.
    codes : ndarray
        As :func:`coded` returns them.
    cells : int, optional
        Number of cells of a range; the column's own number where it is left out.

    Returns
    -------
    ndarray of int64, shape as the codes
        From 0; MISSING where there is no value.
    """
    if not isinstance(column, IntegerColumn | NumberColumn):
        return codes
    count = column.cells if cells is None else cells
    if isinstance(column, IntegerColumn) and count >= column.size:
        return codes
    ends = edges(column, count)
    if isinstance(column, IntegerColumn):
        found = np.searchsorted(ends, codes + column.low, side="right") - 1
        return np.where(codes == MISSING, MISSING, found)
    found = np.minimum(np.searchsorted(ends, codes, side="right") - 1, count - 1)
    return np.where(np.isnan(codes), MISSING, found)


def fractions(column: Column, codes: NDArray[Any]) -> NDArray[np.float64]:
    """Return where in its range each coded value lies.

    Parameters
    ----------
    column : IntegerColumn or NumberColumn
    codes : ndarray
        As :func:`coded` returns them.

    Returns
    -------
    ndarray of float64, shape as the codes
        (x - low)/(high - low), in [0, 1]; NaN where there is no value.

    Raises
    ------
    TypeError
        If the column is no range.
    """
    if isinstance(column, IntegerColumn):
        return np.where(codes == MISSING, np.nan, codes / (column.size - 1))
    if not isinstance(column, NumberColumn):
        raise TypeError(f"a {column.kind} is no range")
    # A quotient of differences may round to above 1.
    return np.minimum((codes - column.low) / (column.high - column.low), 1.0)
