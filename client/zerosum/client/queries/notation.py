"""Read a column's domain in the notation of a `[schema]` section."""

from collections.abc import Mapping

from pydantic import ValidationError

from zerosum.client.queries.columns import (
    CategoryColumn,
    Column,
    IntegerColumn,
    NumberColumn,
    TextColumn,
)
from zerosum.client.queries.errors import QueryError
from zerosum.client.spec.complaints import first_complaint


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
        message = str(error)
        if isinstance(error, ValidationError):
            message = first_complaint(error).of_one_key
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
