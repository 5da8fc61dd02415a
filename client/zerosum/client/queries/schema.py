"""Define a table's schema: its columns' domains, declared and never read from data."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError, field_validator

from zerosum.client.files.toml_file import TomlError, read_toml
from zerosum.client.nearest_word import did_you_mean
from zerosum.client.queries.columns import (
    MOST_INTEGER,
    OTHER,
    PADDING,
    CategoryColumn,
    Column,
    IntegerColumn,
    NumberColumn,
    TextColumn,
)
from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.notation import column_of
from zerosum.client.queries.table_files import header
from zerosum.client.spec.complaints import first_complaint
from zerosum.client.spec.section import Spec

__all__ = [
    "MOST_INTEGER",
    "OTHER",
    "PADDING",
    "CategoryColumn",
    "Column",
    "IntegerColumn",
    "NumberColumn",
    "Schema",
    "TextColumn",
    "template",
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
            first = first_complaint(error)
            path = first.path[first.path[:1] == ("columns",) :]  # a section's keys are the columns
            raise QueryError(f"schema: {replace(first, path=path).of_one_key}") from None

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
            document = read_toml(path, "schema")
        except TomlError as error:
            raise QueryError(str(error)) from None
        section = document.get("schema")
        if not isinstance(section, dict) or not section:
            raise QueryError(f"{path}: no column in a section [schema]; see zerosum schema DATA")
        return cls.of(section)


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
