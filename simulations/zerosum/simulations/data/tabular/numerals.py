"""Numbers in texts: decimal marks, marks between thousands, and what could be either."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from zerosum.simulations.data.data_files import DataError

_EXPONENT = r"(?:[eE][+-]?[0-9]+)?"
_SPACES = "[ \u00a0\u202f]"
_MARKS = {".": r"\.", ",": ",", " ": _SPACES, "'": "['\u2019]"}
_WORDS = {" ": "space", "'": "apostrophe"}


@dataclass(frozen=True)
class Convention:
    """Number format: ``decimal`` mark, and mark between ``thousands`` ("" is none)."""

    decimal: str = "."
    thousands: str = ""

    @property
    def said(self) -> tuple[str, ...]:
        """Marks that differ from Python's own, in words."""
        parts = [f'decimal "{self.decimal}"'] if self.decimal != "." else []
        if self.thousands:
            parts.append(f'thousands "{_WORDS.get(self.thousands, self.thousands)}"')
        return tuple(parts)


PLAIN = Convention()

CONVENTIONS = (
    PLAIN,
    *(Convention(".", mark) for mark in (",", " ", "'")),
    Convention(","),
    *(Convention(",", mark) for mark in (".", " ", "'")),
)
"""From the usual to the rare."""


@cache
def _pattern(convention: Convention) -> re.Pattern[str]:
    mark = _MARKS[convention.decimal]
    plain = rf"(?:[0-9]+(?:{mark}[0-9]*)?|{mark}[0-9]+){_EXPONENT}"
    if convention.thousands:
        # No group of thousands begins with 0: "0,758" is a decimal fraction wherever it stands.
        grouped = rf"[1-9][0-9]{{0,2}}(?:{_MARKS[convention.thousands]}[0-9]{{3}})+"
        plain = rf"{grouped}(?:{mark}[0-9]+)?|{plain}"
    return re.compile(rf"[+-]?(?:{plain})")


_NUMBER_LIKE = re.compile(r"[+-]?[0-9.,][0-9.,'\u2019 \u00a0\u202feE+-]*")
_PUNCTUATED = re.compile(r"[,' \u2019\u00a0\u202f]")
_PADDED = re.compile(r"[+-]?0[0-9]")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


def is_number(text: str, convention: Convention = PLAIN) -> bool:
    """Tell whether a whole text is one number, under one convention.

    Parameters
    ----------
    text : str
        A cell.
    convention : Convention
        Of decimals and thousands.

    Returns
    -------
    bool
        Whether all of it is.
    """
    return _pattern(convention).fullmatch(text) is not None


def is_whole(text: str) -> bool:
    """Tell whether a text is a whole number that int64 holds."""
    return _WHOLE.fullmatch(text) is not None


def is_code(text: str) -> bool:
    """Tell whether a text of digits is a code, padded with zeros, such as "01234"."""
    return _PADDED.match(text) is not None


def number(text: str, convention: Convention) -> float:
    """Return the number that a text holds, as the nearest float64.

    Parameters
    ----------
    text : str
        A cell for which :func:`is_number` holds.
    convention : Convention
        Of decimals and thousands.

    Returns
    -------
    float
        The number.
    """
    if convention.thousands:
        text = re.sub(_MARKS[convention.thousands], "", text)
    return float(text.replace(convention.decimal, "."))


@dataclass(frozen=True)
class PlainNumbers:
    """Facts about texts that are all plain numbers, or empty.

    Parameters
    ----------
    whole : bool
        Whether int64 holds all of them.
    codes : bool
        Whether one is a code or an identifier: padded with zeros, or longer than int64.
    points : bool
        Whether one has a decimal point.
    """

    whole: bool
    codes: bool
    points: bool


# Possessive, so that a column of a million cells that fails in its last is not tried again.
_ALL_PLAIN = re.compile(
    rf"(?:(?:[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+){_EXPONENT})?+\n)*+", re.ASCII
)
_ALL_WHOLE = re.compile(r"(?:[+-]?[0-9]{1,18}\n)*+")
_ANY_CODE = re.compile(r"^[+-]?(?:0[0-9]|[0-9]{19,}$)", re.MULTILINE)


def plain_numbers(texts: Sequence[str]) -> PlainNumbers | None:
    """Return what is known of texts if all are plain numbers or empty, else None.

    One match of all texts at once costs a tenth of one match each: most columns of most files need
    no more.
    """
    joined = "\n".join(texts) + "\n"
    if joined.count("\n") != len(texts) or _ALL_PLAIN.fullmatch(joined) is None:
        return None
    return PlainNumbers(
        whole=_ALL_WHOLE.fullmatch(joined) is not None,
        codes=_ANY_CODE.search(joined) is not None,
        points="." in joined,
    )


def convention_of(
    columns: Iterable[Sequence[str]],
    plain: Iterable[Sequence[str]] = (),
    *,
    decimal: str | None,
    thousands: str | None,
    separator: str,
    key: str,
) -> Convention:
    """Return the one convention under which most cells of a file are numbers.

    A file is written by one program, so that one cell that is clear, as "0,5", decides for others
    that are not, as "1,250".

    Parameters
    ----------
    columns : iterable of sequences of str
        The distinct texts of each column.
    plain : iterable of sequences of str
        Those of columns of plain numbers, which are looked at only if others leave it open.
    decimal, thousands : str, optional
        What is known.
    separator : str
        Between cells; where it is ";" a point may stand between thousands.
    key : str
        Begins the error.

    Returns
    -------
    Convention
        Of decimals and thousands.

    Raises
    ------
    DataError
        If two conventions read as many cells, and read one of them as another number.
    """
    allowed = [
        each
        for each in CONVENTIONS
        if decimal in (None, each.decimal) and thousands in (None, each.thousands or "none")
    ]
    if not allowed:
        raise DataError(
            f'data.decimal = "{decimal}" and data.thousands = "{thousands}" are the same mark; '
            "name one of them, or two that differ"
        )
    cells = [cell for column in columns for cell in _number_like(column)]
    open_ = any(map(_PUNCTUATED.search, cells)) or separator == ";"
    if len(allowed) == 1 or (allowed[0] == PLAIN and not open_):
        return allowed[0]
    cells += [cell for column in plain for cell in column if cell]
    read = {each: [is_number(cell, each) for cell in cells] for each in allowed}
    most = max(map(sum, read.values()))
    best = [each for each in allowed if sum(read[each]) == most]
    for cell, *fits in zip(cells, *(read[each] for each in best), strict=True):
        values: dict[float, Convention] = {}
        for each, fit in zip(best, fits, strict=True):
            if fit:
                values.setdefault(number(cell, each), each)
        if len(values) > 1:
            raise _open(cell, values, key)
    return best[0]


def _number_like(column: Sequence[str]) -> list[str]:
    """Return the cells that look like numbers, of a column that is mostly such."""
    cells = [cell for cell in column if _NUMBER_LIKE.fullmatch(cell)]
    return cells if 2 * len(cells) >= len(column) else []


def _open(cell: str, values: dict[float, Convention], key: str) -> DataError:
    readings = " or ".join(f"{value:.15g}" for value in values)
    cures = " or ".join(
        f'data.decimal = "{each.decimal}" with data.thousands = "{each.thousands or "none"}"'
        for each in values.values()
    )
    return DataError(f'{key}: "{cell}" is {readings}; write {cures}')
