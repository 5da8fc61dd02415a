"""Define the domains of a table's columns: declared, never read from data."""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, ValidationError, field_validator, model_validator

from zerosum.client.nearest_word import did_you_mean
from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.table_files import header
from zerosum.client.spec.section import Spec

OTHER = "(other)"
"""Label of the cell that a category has beside its values: missing and unlisted ones count there.
"""

PADDING = "\0"
"""Character that fills a text up to its column's length; in no alphabet."""

MOST_INTEGER = 2**53
"""Largest magnitude of an integer bound: float64 holds every integer up to it."""

MOST_NUMBER = 1e30
"""Largest magnitude of a number's bound: no square of it leaves float64."""

Bins = Annotated[int, Field(ge=2, le=4096)] | None


class _Range(Spec):
    """What columns with two bounds have in common."""

    @model_validator(mode="after")
    def _ascends(self) -> Self:
        low, high = self.low, self.high  # type: ignore[attr-defined]
        if low >= high:
            raise ValueError(f"low must be below high: [{low}, {high}] has no two values to tell")
        return self


class IntegerColumn(_Range):
    """Integers from `low` to `high`, both included; others are clamped, missing ones count nowhere.

    Its cells in a histogram are its integers, or `bins` runs of them.
    """

    kind: Literal["integer"] = "integer"
    low: Annotated[int, Field(ge=-MOST_INTEGER, le=MOST_INTEGER)]
    high: Annotated[int, Field(ge=-MOST_INTEGER, le=MOST_INTEGER)]
    bins: Bins = None

    @model_validator(mode="after")
    def _bins_are_filled(self) -> Self:
        if self.bins is not None and self.bins > self.size:
            raise ValueError(
                f"bins = {self.bins}: [{self.low}, {self.high}] has {self.size} values"
            )
        return self

    @property
    def size(self) -> int:
        """Number of integers in the domain."""
        return self.high - self.low + 1

    @property
    def cells(self) -> int:
        """Number of cells in a histogram."""
        return self.bins or self.size

    @property
    def labels(self) -> tuple[str, ...]:
        """Name of each cell: the integer, or the first and last of a bin."""
        if self.bins is None:
            return tuple(map(str, range(self.low, self.high + 1)))
        # The least x whose bin (x - low) bins // size is i.
        starts = [self.low - (-i * self.size // self.bins) for i in range(self.bins + 1)]
        ends = pairwise(starts)
        return tuple(str(a) if b - a == 1 else f"{a}..{b - 1}" for a, b in ends)


class NumberColumn(_Range):
    """Real numbers from `low` to `high`; others are clamped, missing ones count nowhere.

    Its cells in a histogram are `bins` intervals of one width.
    """

    kind: Literal["number"] = "number"
    low: Annotated[float, Field(ge=-MOST_NUMBER, le=MOST_NUMBER)]
    high: Annotated[float, Field(ge=-MOST_NUMBER, le=MOST_NUMBER)]
    bins: Bins = None

    @property
    def cells(self) -> int:
        """Number of cells in a histogram.

        Raises
        ------
        QueryError
            If the column has no bins.
        """
        if self.bins is None:
            raise QueryError(
                f"a number has no cells of its own: declare bins, as in "
                f"{{number = [{self.low:g}, {self.high:g}], bins = 20}}, or ask for quantiles"
            )
        return self.bins

    @property
    def labels(self) -> tuple[str, ...]:
        """Name of each cell: its two ends."""
        width = (self.high - self.low) / self.cells
        ends = [self.low + i * width for i in range(self.cells)] + [self.high]
        return tuple(f"{a:g}..{b:g}" for a, b in pairwise(ends))


class CategoryColumn(Spec):
    """Listed values, and one more cell, `(other)`, for what is missing or not listed."""

    kind: Literal["category"] = "category"
    values: Annotated[tuple[str, ...], Field(min_length=1)]

    @field_validator("values")
    @classmethod
    def _are_told_apart(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        for value in values:
            if not value or value != value.strip():
                raise ValueError(f"{value!r} begins or ends in a blank, or is empty: never matched")
            if value == OTHER:
                raise ValueError(f"{OTHER} is counted always: leave it out")
            if not value.isprintable():
                raise ValueError(f"{value!r} has a character that does not print")
        if twice := next((v for i, v in enumerate(values) if v in set(values[:i])), None):
            raise ValueError(f"{twice!r} is listed twice")
        return values

    @property
    def cells(self) -> int:
        """Number of cells in a histogram."""
        return len(self.values) + 1

    @property
    def labels(self) -> tuple[str, ...]:
        """Name of each cell: the values in order, then `(other)`."""
        return (*self.values, OTHER)


class TextColumn(Spec):
    """Texts of at most `length` characters of an alphabet; longer or foreign ones count nowhere."""

    kind: Literal["text"] = "text"
    length: Annotated[int, Field(ge=1, le=256)]
    alphabet: Annotated[str, Field(min_length=1, max_length=1024)]
    """Its characters, strictly ascending."""

    @field_validator("alphabet")
    @classmethod
    def _has_no_control(cls, alphabet: str) -> str:
        for character in alphabet:
            if not character.isprintable():
                raise ValueError(
                    f"alphabet holds {character!r}: padding, newlines and other characters that "
                    "do not print are not for words"
                )
        if any(a >= b for a, b in pairwise(alphabet)):
            raise ValueError("the characters of an alphabet ascend, each once")
        return alphabet

    @property
    def cells(self) -> int:
        """Refuse: a text has no cells.

        Raises
        ------
        QueryError
            Always.
        """
        raise QueryError("a text has no cells: ask for words, or list its values as a category")

    @property
    def labels(self) -> tuple[str, ...]:
        """Refuse: a text has no cells."""
        return (str(self.cells),)


Column: TypeAlias = Annotated[
    IntegerColumn | NumberColumn | CategoryColumn | TextColumn, Field(discriminator="kind")
]


class Schema(Spec):
    """The columns of a table, by name."""

    columns: Annotated[dict[str, Column], Field(min_length=1)]

    @field_validator("columns")
    @classmethod
    def _are_named(cls, columns: dict[str, Column]) -> dict[str, Column]:
        for name in columns:
            if not name or not name.isprintable() or name != name.strip():
                raise ValueError(f"{name!r} is no name of a column")
        return columns

    def column(self, name: str) -> Column:
        """Return a column's domain.

        Parameters
        ----------
        name : str

        Returns
        -------
        Column

        Raises
        ------
        QueryError
            If the schema has no such column.
        """
        if name not in self.columns:
            hint = did_you_mean(name, self.columns)
            raise QueryError(f'column "{name}" is not in the schema{hint}')
        return self.columns[name]

    def only(self, names: Iterable[str]) -> "Schema":
        """Return the schema of some columns, in the order of this one.

        Parameters
        ----------
        names : iterable of str

        Returns
        -------
        Schema

        Raises
        ------
        QueryError
            If the schema has not all of them.
        """
        wanted = {name: self.column(name) for name in names}
        return Schema(columns={name: c for name, c in self.columns.items() if name in wanted})

    @classmethod
    def of(cls, mapping: Mapping[str, object]) -> "Schema":
        """Read domains in the notation of a `[schema]` section.

        Parameters
        ----------
        mapping : mapping
            A column's name to a list of categories, or to a table with one of the keys `integer`,
            `number`, `text`; or to a column as it is.

        Returns
        -------
        Schema

        Raises
        ------
        QueryError
            If a domain is not in the notation, or empty, or its bounds do not ascend.
        """
        columns = {name: column_of(name, written) for name, written in mapping.items()}
        try:
            return cls(columns=columns)
        except ValidationError as error:
            raise QueryError(f"schema: {_first(error)}") from None

    @classmethod
    def read(cls, path: str | Path) -> "Schema":
        """Read the `[schema]` section of a TOML file.

        Parameters
        ----------
        path : path

        Returns
        -------
        Schema

        Raises
        ------
        QueryError
            If the file cannot be read, has no such section, or a domain is wrong.
        """
        try:
            document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise QueryError(f"schema = {str(path)!r}: {error}") from None
        section = document.get("schema")
        if not isinstance(section, dict) or not section:
            raise QueryError(f"{path}: no column in a section [schema]; see zerosum schema DATA")
        return cls.of(section)


def column_of(name: str, written: object) -> Column:
    """Read one domain in the notation of a `[schema]` section.

    Parameters
    ----------
    name : str
        Of the column, for messages.
    written : object
        A list of categories, or a table with one of the keys `integer`, `number`, `text`.

    Returns
    -------
    Column

    Raises
    ------
    QueryError
        If it is not in the notation.
    """
    if isinstance(written, IntegerColumn | NumberColumn | CategoryColumn | TextColumn):
        return written
    try:
        if isinstance(written, list | tuple):
            return CategoryColumn(values=tuple(written))
        if isinstance(written, Mapping):
            return _ranged(dict(written))
        raise ValueError(f"{written!r} is no domain")
    except (ValidationError, ValueError) as error:
        message = _first(error) if isinstance(error, ValidationError) else str(error)
        raise QueryError(
            f'schema.{name}: {message}; write ["A", "B"], {{integer = [0, 9]}}, '
            f'{{number = [0, 1.5]}} or {{text = 10, alphabet = "a-z"}}'
        ) from None


def _ranged(written: dict[str, object]) -> Column:
    kinds = [kind for kind in ("integer", "number", "text") if kind in written]
    if len(kinds) != 1:
        raise ValueError(f"{written!r} has not one of the keys integer, number, text")
    kind, value = kinds[0], written.pop(kinds[0])
    if kind == "text":
        if not isinstance(written.get("alphabet"), str):
            raise ValueError("a text has an alphabet")
        alphabet = expanded(str(written.pop("alphabet")))
        return TextColumn.model_validate({"length": value, "alphabet": alphabet, **written})
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError(f"{kind} = {value!r} is not two bounds")
    data = {"low": value[0], "high": value[1], **written}
    if kind == "integer":
        return IntegerColumn.model_validate(data)
    return NumberColumn.model_validate(data)


def expanded(notation: str) -> str:
    """Return the characters of an alphabet's notation, ascending.

    Parameters
    ----------
    notation : str
        Characters, and ranges as in `a-z`; a hyphen at either end is a hyphen.

    Returns
    -------
    str

    Raises
    ------
    ValueError
        If a range descends, or a character is named twice.
    """
    characters: list[str] = []
    at = 0
    while at < len(notation):
        if notation[at + 1 : at + 2] == "-" and at + 2 < len(notation):
            first, last = ord(notation[at]), ord(notation[at + 2])
            if first > last:
                raise ValueError(f"alphabet: the range {notation[at : at + 3]!r} descends")
            characters.extend(map(chr, range(first, last + 1)))
            at += 3
        else:
            characters.append(notation[at])
            at += 1
    if len(set(characters)) < len(characters):
        raise ValueError(f"alphabet = {notation!r} names a character twice")
    return "".join(sorted(characters))


def template(path: str | Path) -> str:
    """Write a schema to fill in, from a file's header alone: no value is read.

    Parameters
    ----------
    path : path
        CSV with a header, or Parquet.

    Returns
    -------
    str
        TOML in which every column is a comment.

    Raises
    ------
    QueryError
        If the file has no header.
    """
    lines = [f"# {_key(name)} = {{integer = [0, 100]}}" for name in header(path)]
    return _TEMPLATE + "\n".join(lines) + "\n"


_TEMPLATE = """\
# Domains are declared from public knowledge, never read from data: what is outside of them is
# clamped, or counts as (other). Uncomment each column that may be asked of, with one of
#   {integer = [0, 100]}              integers of a range; bins = 20 counts runs of them
#   {number = [0, 1.5], bins = 20}    real numbers of a range; bins are for histograms alone
#   ["A", "B"]                        a category; (other) is added
#   {text = 10, alphabet = "a-z'"}    words of at most so many characters

[schema]
"""


def _key(name: str) -> str:
    """Return a column's name as a key of TOML."""
    if re.fullmatch(r"[A-Za-z0-9_-]+", name):
        return name
    # The escapes of a string in JSON are those of TOML.
    return json.dumps(name, ensure_ascii=False)


def _first(error: ValidationError) -> str:
    """Return the first complaint of pydantic in one line."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"] if part not in ("columns",))
    message = first["msg"].removeprefix("Value error, ")
    return f"{where}: {message}" if where else message
