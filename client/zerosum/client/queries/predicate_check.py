"""Check predicates against a schema."""

from zerosum.client.nearest_word import did_you_mean
from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.predicate_tree import (
    MOST_DEPTH,
    MOST_LEAVES,
    Compare,
    In,
    Predicate,
    depth,
    is_small,
    leaves,
)
from zerosum.client.queries.schema import (
    CategoryColumn,
    Column,
    IntegerColumn,
    NumberColumn,
    Schema,
    TextColumn,
)


def check_predicate(predicate: Predicate, schema: Schema) -> None:
    """Refuse a predicate that does not fit the schema, or is too large.

    Parameters
    ----------
    predicate : Predicate
    schema : Schema

    Raises
    ------
    QueryError
        If a column is unknown, a text is compared by order, a value is not of its column's
        domain, or the tree is deeper or wider than allowed.
    """
    if not is_small(predicate):
        raise QueryError(
            f"where: {sum(1 for _ in leaves(predicate))} comparisons in {depth(predicate)} levels; "
            f"at most {MOST_LEAVES} in {MOST_DEPTH}"
        )
    for leaf in leaves(predicate):
        column = schema.column(leaf.column)
        values = (leaf.value,) if isinstance(leaf, Compare) else leaf.values
        textual = isinstance(column, CategoryColumn | TextColumn)
        if textual and isinstance(leaf, Compare) and leaf.operator not in ("=", "!="):
            raise QueryError(f"where: {leaf}: a {column.kind} has no order; use =, != or in")
        labels = frozenset(column.labels if isinstance(column, CategoryColumn) else ())
        for value in values:
            _check_value(leaf, column, value, labels)


def _check_value(
    leaf: Compare | In, column: Column, value: int | float | str, labels: frozenset[str]
) -> None:
    textual = isinstance(column, CategoryColumn | TextColumn)
    if isinstance(value, str) != textual:
        cure = "quotes around the value" if textual else "a number without quotes"
        raise QueryError(f'where: {leaf}: column "{leaf.column}" is {column.kind}: write {cure}')
    # Numbers are compared as they are counted, clamped: beyond the bounds nothing is told apart.
    if isinstance(column, IntegerColumn | NumberColumn) and not (
        column.low <= float(value) <= column.high
    ):
        raise QueryError(
            f'where: {leaf}: {value} is outside of "{leaf.column}", {column.low} to '
            f"{column.high}, which numbers are clamped to: widen its domain"
        )
    if isinstance(column, CategoryColumn) and value not in labels:
        hint = did_you_mean(str(value), column.labels)
        raise QueryError(f'where: {leaf}: "{leaf.column}" has no value {value!r}{hint}')
    if isinstance(column, TextColumn) and (
        len(str(value)) > column.length or not set(column.alphabet).issuperset(str(value))
    ):
        raise QueryError(f'where: {leaf}: {value!r} is no text of column "{leaf.column}"')
