"""Labels that are comparisons, as `num > 0`: which columns they read, and what they are called."""

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from zerosum.client.nearest_word import did_you_mean
from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.predicate_text import parse_text
from zerosum.client.queries.predicate_tree import (
    And,
    Compare,
    In,
    Not,
    Operator,
    Predicate,
    Value,
    columns_of,
)
from zerosum.simulations.data.data_files import DataError, listed
from zerosum.simulations.data.tabular.labels import check_complete, check_one_a_record, names_of

if TYPE_CHECKING:
    from zerosum.simulations.data.tabular.columns import Table

_SIGNS = ("<", ">", "=", "!")

_OPPOSITES: dict[Operator, Operator] = {
    "=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">",
}  # fmt: skip

_ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


@dataclass(frozen=True)
class Label:
    """What ``data.label`` names.

    Parameters
    ----------
    name : str
        Of the column that the label is, or the comparison as it is written out.
    predicate : Predicate or None
        The comparison; None of a column.
    """

    name: str
    predicate: Predicate | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the label is read from."""
        return (self.name,) if self.predicate is None else columns_of(self.predicate)

    @property
    def words(self) -> tuple[str, str] | None:
        """Names of the classes 0 and 1: the opposite, and the comparison; None of a column."""
        if self.predicate is None:
            return None
        return str(opposite(self.predicate)), str(self.predicate)


def opposite(predicate: Predicate) -> Predicate:
    """Return what holds where a predicate does not, in as few words as there are."""
    if isinstance(predicate, Compare):
        return predicate.model_copy(update={"operator": _OPPOSITES[predicate.operator]})
    return predicate.of if isinstance(predicate, Not) else Not(of=predicate)


def label_of(text: str, names: Iterable[str], key: str = "data.label") -> Label:
    """Return the column or the comparison that a text names.

    Parameters
    ----------
    text : str
        As ``data.label`` has it: a column, a column in backticks, or a comparison.
    names : iterable of str
        The columns that there are.
    key : str
        Key that has the text; begins every message.

    Returns
    -------
    Label
        Of columns that there are.

    Raises
    ------
    DataError
        If there is no such column, the text is no comparison either, or it is both.
    """
    there = list(names)
    plain = Label(text) if text in there else _in_backticks(text, there)
    if not any(sign in text for sign in _SIGNS) and " in " not in text:
        if plain is None:
            raise _absent(text, there, key)
        return plain
    wanted = f'{key} = "{text}"'
    try:
        predicate = parse_text(_with_backticks(text, there))
    except QueryError as error:
        if plain is not None:
            return plain
        what = str(error).partition(": ")[2] or str(error)
        raise DataError(
            f"{wanted}: no such column, and no comparison: {what}; write it as `num > 0`, "
            '`kind in ("a", "b")`, names with signs in backticks, texts in quotes'
        ) from None
    unknown = [name for name in columns_of(predicate) if name not in there]
    if plain is not None and not unknown and text in there:
        raise DataError(
            f"{wanted} is a column, and a comparison of the column "
            f'"{columns_of(predicate)[0]}": write `{text}` in backticks for the column, or '
            f"{predicate} with its column in backticks for the comparison"
            if not text.startswith("`")
            else f"{wanted} is a column, and a comparison: rename one of the two"
        )
    if plain is not None:
        return plain
    if unknown:
        raise _absent(unknown[0], there, key)
    return Label(str(predicate), predicate)


def _absent(name: str, there: list[str], key: str) -> DataError:
    only = "; data.separator may split it otherwise" if len(there) == 1 else ""
    return DataError(
        f'{key} = "{name}": no such column; there are {listed(there)}{only}'
        f"{did_you_mean(name, there)}"
    )


def _in_backticks(text: str, there: list[str]) -> Label | None:
    name = text[1:-1].replace("``", "`")
    quoted = len(text) > 2 and text[0] == text[-1] == "`"
    return Label(name) if quoted and name in there else None


def _with_backticks(text: str, there: list[str]) -> str:
    """Return a text whose first words are a column's name with that name in backticks.

    Names as `hours-per-week` are no words of the notation; whoever types one need not know that.
    """
    for name in sorted(there, key=len, reverse=True):
        rest = text[len(name) :]
        if name and text.startswith(name) and rest.lstrip().startswith((*_SIGNS, "in ", "not ")):
            return "`" + name.replace("`", "``") + "`" + rest
    return text


def compared(table: "Table", label: Label, key: str) -> "Table":
    """Return a table in which the label is a column, and what it is read from is none.

    Parameters
    ----------
    table : Table
        With the label's columns.
    label : Label
        Of :func:`label_of`.
    key : str
        Begins every message.

    Returns
    -------
    Table
        The same for a column; for a comparison with its truth in a column of its name, bool,
        shape (n,), and its own columns left out.

    Raises
    ------
    DataError
        If a column cannot be compared so, or has gaps.
    """
    if label.predicate is None:
        return table
    truth = holds(label.predicate, table, key)
    rest = {name: values for name, values in table.columns.items() if name not in label.columns}
    left_out = dict.fromkeys(label.columns, f"the label is {label.name}")
    return replace(
        table,
        columns={**rest, label.name: truth},
        left_out={**table.left_out, **left_out},
        compared={name: table.columns[name] for name in label.columns},
    )


def holds(predicate: Predicate, table: "Table", key: str) -> np.ndarray:
    """Return in which records a predicate holds.

    Parameters
    ----------
    predicate : Predicate
        Of columns that there are.
    table : Table
        The records.
    key : str
        Begins every message.

    Returns
    -------
    numpy.ndarray
        bool, shape (n,).

    Raises
    ------
    DataError
        If a column has gaps, or cannot be compared so.
    """
    if isinstance(predicate, Not):
        return ~holds(predicate.of, table, key)
    if isinstance(predicate, And):
        every: np.ndarray = np.all([holds(part, table, key) for part in predicate.of], axis=0)
        return every
    if not isinstance(predicate, Compare | In):
        some: np.ndarray = np.any([holds(part, table, key) for part in predicate.of], axis=0)
        return some
    name = predicate.column
    values = table.columns[name]
    check_one_a_record(values, f'{key}: column "{name}"')
    check_complete(values, f'{key}: column "{name}"')
    if isinstance(predicate, In):
        found: np.ndarray = np.any(
            [_equal(table, name, value, key) for value in predicate.values], axis=0
        )
        return found
    if predicate.operator in ("=", "!="):
        same = _equal(table, name, predicate.value, key)
        return same if predicate.operator == "=" else ~same
    if values.dtype.kind not in "iufb" or isinstance(predicate.value, str):
        what = table.strangers.get(name, "it holds texts or dates")
        if values.dtype.kind in "iufb":
            what = f'"{predicate.value}" is a text'
        raise DataError(
            f'{key}: column "{name}" is compared by {predicate.operator}, and {what}: numbers are '
            "allowed there; use == or in"
        )
    ordered: np.ndarray = _ORDERS[predicate.operator](values, predicate.value)
    return ordered


def _equal(table: "Table", name: str, value: Value, key: str) -> np.ndarray:
    values = table.columns[name]
    texts = values.dtype.kind not in "iuf"
    if texts != isinstance(value, str):
        if name in table.strangers:
            hint = f"{table.strangers[name]}; correct them"
        else:
            hint = f'as "{names_of(values[:1])[0][:40]}"' if len(values) else "and no records"
        raise DataError(
            f'{key}: column "{name}" holds {"texts" if texts else "numbers"}, {hint}: compare it '
            f"with {'a text in quotes' if texts else 'a number, without quotes'}"
        )
    found: np.ndarray = names_of(values) == value if texts else values == value
    return found
