"""Define the domains that a column may have."""

from itertools import pairwise
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, field_validator, model_validator

from zerosum.client.queries.errors import QueryError
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
        # Six digits, or as many as tell the ends of narrow cells apart.
        digits = next((n for n in range(6, 17) if _is_close(ends, n, width / 1000)), 17)
        return tuple(f"{a:.{digits}g}..{b:.{digits}g}" for a, b in pairwise(ends))


def _is_close(values: list[float], digits: int, tolerance: float) -> bool:
    return all(abs(float(f"{value:.{digits}g}") - value) <= tolerance for value in values)


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
        seen: set[str] = set()
        for value in values:
            if value in seen:
                raise ValueError(f"{value!r} is listed twice")
            seen.add(value)
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
