"""Read the text of a predicate: a tokenizer and a recursive descent, never `eval`.

In the notation, from what binds least to what binds most::

    any        = all ("or" all)*
    all        = opposite ("and" opposite)*
    opposite   = "not" opposite | "(" any ")" | comparison
    comparison = column operator value | column ["not"] "in" "(" value ("," value)* ")"
    column     = name | `any characters` | "any characters" | 'any characters'
    value      = number | "text" | 'text'

A quote inside quotes is written twice. Keywords are read in any case.
"""

import math
import re
from dataclasses import dataclass

from pydantic import ValidationError

from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.predicate_check import check_predicate
from zerosum.client.queries.predicate_tree import (
    KEYWORDS,
    And,
    Compare,
    In,
    Not,
    Or,
    Predicate,
    Value,
)
from zerosum.client.queries.schema import Schema
from zerosum.client.spec.complaints import first_complaint

MOST_NESTED = 64
"""Parentheses and `not`s inside one another: far below what the call stack holds."""

MOST_CHARACTERS = 1 << 16
"""Longest text of a predicate."""

_TOKEN = re.compile(
    r"""
      (?P<quoted>    "(?:[^"]|"")*" | '(?:[^']|'')*' )
    | (?P<backticks> `(?:[^`]|``)*` )
    | (?P<number>    [+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)? )
    | (?P<name>      [^\W\d]\w* )
    | (?P<sign>      <= | >= | != | <> | == | [=<>(),] )
    """,
    re.VERBOSE,
)
_BLANK = re.compile(r"\s*")
_OPERATORS = {"=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">"}
_OPERATORS[">="] = ">="


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    at: int

    @property
    def word(self) -> str:
        """The keyword or sign that it is, or nothing."""
        if self.kind == "name" and self.text.lower() in KEYWORDS:
            return self.text.lower()
        return self.text if self.kind == "sign" else ""

    @property
    def unquoted(self) -> str:
        """What is inside its quotes."""
        mark = self.text[0]
        return self.text[1:-1].replace(mark * 2, mark)


def parse(text: str, schema: Schema) -> Predicate:
    """Read a predicate and check it against a schema.

    Parameters
    ----------
    text : str
        In the notation above; `str` of a predicate writes it.
    schema : Schema

    Returns
    -------
    Predicate

    Raises
    ------
    QueryError
        If the text is not in the notation, or the predicate does not fit the schema.
    """
    predicate = parse_text(text)
    check_predicate(predicate, schema)
    return predicate


def parse_text(text: str) -> Predicate:
    """Read a predicate of columns that no schema declares.

    Parameters
    ----------
    text : str
        In the notation above.

    Returns
    -------
    Predicate

    Raises
    ------
    QueryError
        If the text is not in the notation.
    """
    if len(text) > MOST_CHARACTERS:
        raise QueryError(f"where: {len(text)} characters; at most {MOST_CHARACTERS}")
    try:
        return _Reader(text).whole()
    except ValidationError as error:
        raise QueryError(f"where = {text!r}: {first_complaint(error).reason}") from None


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at = _BLANK.match(text).end()  # type: ignore[union-attr]
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            closed = " is never closed" if text[at] in "\"'`" else " belongs to no predicate"
            raise QueryError(f"where = {text!r}: {text[at]!r} at character {at + 1}{closed}")
        found.append(_Token(str(match.lastgroup), match.group(), at))
        at = _BLANK.match(text, match.end()).end()  # type: ignore[union-attr]
    return [*found, _Token("end", "", len(text))]


class _Reader:
    """Reads one text; its position is the only state."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._next = 0

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _takes(self, *words: str) -> str:
        """Step over the next token if it is one of some words, and return which."""
        word = self._token.word
        if word not in words:
            return ""
        self._next += 1
        return word

    def _expects(self, wanted: str, cure: str = "") -> QueryError:
        token = self._token
        seen = f"{token.text!r} at character {token.at + 1}" if token.text else "the end"
        return QueryError(f"where = {self._text!r}: {wanted} is expected, not {seen}{cure}")

    def whole(self) -> Predicate:
        """Read the whole text."""
        predicate = self._any(0)
        if self._token.kind != "end":
            raise self._expects("and, or, or the end")
        return predicate

    def _any(self, nested: int) -> Predicate:
        parts = [self._all(nested)]
        while self._takes("or"):
            parts.append(self._all(nested))
        return parts[0] if len(parts) == 1 else Or(of=tuple(parts))

    def _all(self, nested: int) -> Predicate:
        parts = [self._opposite(nested)]
        while self._takes("and"):
            parts.append(self._opposite(nested))
        return parts[0] if len(parts) == 1 else And(of=tuple(parts))

    def _opposite(self, nested: int) -> Predicate:
        if nested > MOST_NESTED:
            raise QueryError(f"where: more than {MOST_NESTED} parentheses inside one another")
        if self._takes("not"):
            return Not(of=self._opposite(nested + 1))
        if self._takes("("):
            inside = self._any(nested + 1)
            if not self._takes(")"):
                raise self._expects("and, or, or )")
            return inside
        return self._comparison()

    def _comparison(self) -> Predicate:
        column = self._column()
        if self._token.word in ("in", "not"):
            opposite = bool(self._takes("not"))
            if not self._takes("in"):
                raise self._expects("in")
            listed = In(column=column, values=self._list())
            return Not(of=listed) if opposite else listed
        sign = self._takes(*_OPERATORS)
        if not sign:
            raise self._expects("one of = != < <= > >= in")
        return Compare.model_validate(
            {"column": column, "operator": _OPERATORS[sign], "value": self._value()}
        )

    def _column(self) -> str:
        token = self._token
        if token.kind in ("quoted", "backticks"):
            self._next += 1
            return token.unquoted
        if token.kind == "name" and not token.word:
            self._next += 1
            return token.text
        raise self._expects("a column")

    def _list(self) -> tuple[Value, ...]:
        if not self._takes("("):
            raise self._expects("(")
        values = [self._value()]
        while self._takes(","):
            values.append(self._value())
        if not self._takes(")"):
            raise self._expects(", or )")
        return tuple(values)

    def _value(self) -> Value:
        token = self._token
        if token.kind == "quoted":
            self._next += 1
            return token.unquoted
        if token.kind != "number":
            cure = f'; write "{token.text}" in quotes' if token.kind == "name" else ""
            raise self._expects("a number or a quoted text", cure)
        self._next += 1
        return _number(token.text)


def _number(text: str) -> int | float:
    # Python reads integers of any length, in time that grows with its square.
    if len(text) > 64:
        raise QueryError(f"where: {text[:20]}... is too long a number")
    if text.lstrip("+-").isdecimal():
        return int(text)
    value = float(text)
    if not math.isfinite(value):
        raise QueryError(f"where: {text} is beyond the numbers of float64")
    return value
