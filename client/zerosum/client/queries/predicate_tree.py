"""Define predicates as data: a tree of comparisons that a fixed interpreter evaluates."""

import re
from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field

from zerosum.client.queries.schema import MOST_INTEGER
from zerosum.client.spec.section import Spec

MOST_DEPTH = 8
"""Levels of a tree; a comparison alone has one."""

MOST_LEAVES = 32
"""Comparisons in a tree."""

Operator = Literal["=", "!=", "<", "<=", ">", ">="]

LONGEST_VALUE = 256
"""Longest text that a value is compared with."""


def _is_comparable(value: int | float | str) -> int | float | str:
    # Said of an int as it was read: a union would else take a larger one for a float, rounded.
    if isinstance(value, int) and abs(value) > MOST_INTEGER:
        raise ValueError("an integer is at most 2^53 in size, as those of a column")
    if isinstance(value, str) and not 0 < len(value) <= LONGEST_VALUE:
        raise ValueError(f"a text of {len(value)} characters; it has 1 to {LONGEST_VALUE}")
    return value


Value: TypeAlias = Annotated[int | float | str, AfterValidator(_is_comparable)]

KEYWORDS = frozenset({"and", "or", "not", "in"})
"""Words of the notation, in any case: a column of such a name is written in backticks."""

NAME = re.compile(r"[^\W\d]\w*")
"""A column's name that needs no quotes, unless it is a keyword."""


class Compare(Spec):
    """A column's value compared with a constant."""

    kind: Literal["compare"] = "compare"
    column: str
    operator: Operator
    value: Value

    def __str__(self) -> str:
        """Return its text."""
        return f"{_column(self.column)} {self.operator} {_value(self.value)}"


class In(Spec):
    """A column's value among listed constants."""

    kind: Literal["in"] = "in"
    column: str
    values: Annotated[tuple[Value, ...], Field(min_length=1, max_length=256)]

    def __str__(self) -> str:
        """Return its text."""
        return f"{_column(self.column)} in ({', '.join(map(_value, self.values))})"


class Not(Spec):
    """The opposite of a predicate."""

    kind: Literal["not"] = "not"
    of: "Predicate"

    def __str__(self) -> str:
        """Return its text."""
        return f"not {_inside(self.of)}"


class And(Spec):
    """All of some predicates."""

    kind: Literal["and"] = "and"
    of: Annotated[tuple["Predicate", ...], Field(min_length=2, max_length=MOST_LEAVES)]

    def __str__(self) -> str:
        """Return its text."""
        return " and ".join(map(_inside, self.of))


class Or(Spec):
    """Any of some predicates."""

    kind: Literal["or"] = "or"
    of: Annotated[tuple["Predicate", ...], Field(min_length=2, max_length=MOST_LEAVES)]

    def __str__(self) -> str:
        """Return its text; an `and` in it needs no parentheses."""
        return " or ".join(str(p) if isinstance(p, And) else _inside(p) for p in self.of)


Predicate: TypeAlias = Annotated[Compare | In | Not | And | Or, Field(discriminator="kind")]

for _node in (Not, And, Or):
    _node.model_rebuild()


def leaves(predicate: Predicate) -> Iterator[Compare | In]:
    """Yield the comparisons of a tree, from left to right."""
    if isinstance(predicate, Compare | In):
        yield predicate
    elif isinstance(predicate, Not):
        yield from leaves(predicate.of)
    else:
        for part in predicate.of:
            yield from leaves(part)


def depth(predicate: Predicate) -> int:
    """Return the levels of a tree: 1 of a comparison alone."""
    if isinstance(predicate, Compare | In):
        return 1
    parts = (predicate.of,) if isinstance(predicate, Not) else predicate.of
    return 1 + max(map(depth, parts))


def columns_of(predicate: Predicate) -> tuple[str, ...]:
    """Return the columns that a predicate reads, each once, in order of appearance."""
    return tuple(dict.fromkeys(leaf.column for leaf in leaves(predicate)))


def is_small(predicate: Predicate) -> bool:
    """Return whether a tree keeps the limits on depth and leaves."""
    return depth(predicate) <= MOST_DEPTH and sum(1 for _ in leaves(predicate)) <= MOST_LEAVES


def _inside(predicate: Predicate) -> str:
    """Return the text of a part, in parentheses where its operator binds less."""
    return f"({predicate})" if isinstance(predicate, And | Or) else str(predicate)


def _column(name: str) -> str:
    if NAME.fullmatch(name) and name.lower() not in KEYWORDS:
        return name
    return "`" + name.replace("`", "``") + "`"


def _value(value: int | float | str) -> str:
    return '"' + value.replace('"', '""') + '"' if isinstance(value, str) else repr(value)
