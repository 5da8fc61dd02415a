"""Evaluate predicates on a table's columns: one fixed interpreter, nothing that is executed."""

import operator
from collections.abc import Callable, Sequence
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
    Value,
    columns_of,
    is_small,
)
from zerosum.client.queries.schema import (
    CategoryColumn,
    IntegerColumn,
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
    if isinstance(predicate, In):
        return _is_among(table, predicate.column, predicate.values)
    if isinstance(predicate, Compare):
        if predicate.operator == "=":
            return _is_among(table, predicate.column, (predicate.value,))
        if predicate.operator == "!=":
            return ~_is_among(table, predicate.column, (predicate.value,))
        return _is_ordered(table, predicate.column, _ORDERS[predicate.operator], predicate.value)
    if isinstance(predicate, Not):
        return ~holds(predicate.of, table)
    combine = np.logical_and if isinstance(predicate, And) else np.logical_or
    return reduce(combine, (holds(part, table) for part in predicate.of))


def _is_among(table: "Table", name: str, values: Sequence[Value]) -> NDArray[np.bool_]:
    column, codes = table.schema.column(name), table.columns[name]
    if isinstance(column, CategoryColumn):
        cells = {label: cell for cell, label in enumerate(column.labels)}
        return np.isin(codes, [cells[str(value)] for value in values])
    if isinstance(column, TextColumn):
        return np.isin(codes, [str(value) for value in values])
    if isinstance(column, NumberColumn):
        return np.isin(codes, [float(value) for value in values])
    whole = [int(value) - column.low for value in values if int(value) == value]
    return np.isin(codes, np.array([c for c in whole if 0 <= c < column.size], dtype=np.int64))


def _is_ordered(
    table: "Table", name: str, order: Callable[[Any, Any], Any], value: Value
) -> NDArray[np.bool_]:
    column, codes = table.schema.column(name), table.columns[name]
    if isinstance(column, IntegerColumn):
        # A bound is at most 2^53: the values, unlike their codes, are exact in float64.
        return np.asarray(order(codes + column.low, value) & (codes >= 0))
    return np.asarray(order(codes, value))
