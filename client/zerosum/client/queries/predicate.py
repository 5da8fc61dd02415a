"""Evaluate predicates on a table's columns: one fixed interpreter, nothing that is executed."""

import operator
from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from zerosum.client.queries.predicate_check import check_predicate
from zerosum.client.queries.predicate_text import parse
from zerosum.client.queries.predicate_tree import (
    And,
    Compare,
    In,
    Not,
    Or,
    Predicate,
    columns_of,
    is_small,
)
from zerosum.client.queries.schema import (
    CategoryColumn,
    NumberColumn,
    TextColumn,
)

if TYPE_CHECKING:
    from zerosum.client.queries.table import Table

__all__ = [
    "And",
    "Compare",
    "In",
    "Not",
    "Or",
    "Predicate",
    "check_predicate",
    "columns_of",
    "holds",
    "is_small",
    "parse",
]

_ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def holds(predicate: Predicate, table: "Table") -> NDArray[np.bool_]:
    """Evaluate a predicate on every row.

    A missing number is equal to nothing and in no order. `!=` is the opposite of `=`, so that it
    holds there. Numbers are compared as they are counted: clamped to their domain.

    Parameters
    ----------
    predicate : Predicate
        Checked against the table's schema.
    table : Table

    Returns
    -------
    ndarray of bool, shape (len(table),)

    Raises
    ------
    QueryError
        If the table has not a column of the predicate.
    """
    if isinstance(predicate, Compare):
        if predicate.operator == "!=":
            return ~_compares(table, predicate.column, "=", predicate.value)
        return _compares(table, predicate.column, predicate.operator, predicate.value)
    if isinstance(predicate, In):
        parts = [_compares(table, predicate.column, "=", value) for value in predicate.values]
        return reduce(np.logical_or, parts)
    if isinstance(predicate, Not):
        return ~holds(predicate.of, table)
    combine = np.logical_and if isinstance(predicate, And) else np.logical_or
    return reduce(combine, (holds(part, table) for part in predicate.of))


def _compares(table: "Table", name: str, order: str, value: int | float | str) -> NDArray[np.bool_]:
    column = table.schema.column(name)
    codes = table.columns[name]
    if isinstance(column, CategoryColumn):
        return np.asarray(codes == column.labels.index(str(value)))
    if isinstance(column, TextColumn):
        return np.asarray(codes == str(value))
    compare = _ORDERS[order]
    if isinstance(column, NumberColumn):
        return np.asarray(compare(codes, float(value)))
    # A bound is at most 2^53: the values, unlike their codes, are exact in float64.
    return np.asarray(compare(codes + column.low, value) & (codes >= 0))
