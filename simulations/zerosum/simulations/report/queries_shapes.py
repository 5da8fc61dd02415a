"""Pictures of answers, as a template draws them: places in percent, and words."""

from dataclasses import dataclass
from typing import Final, NamedTuple

_SIDE_LABEL: Final = 24
"""Letters of a label that stands beside its bar."""


class Mark(NamedTuple):
    """Places of one value in percent; empty text where there is none.

    Attributes
    ----------
    start, width : str
        Of the bar from 0 to the value.
    point, low, high : str
        Of the value and its interval.
    """

    start: str
    width: str
    point: str
    low: str
    high: str


class Bar(NamedTuple):
    """One bar with its words.

    Attributes
    ----------
    group : str
        Heading above it, where a new group begins.
    label, figure, between : str
        What is counted, how many, and the interval.
    mark : Mark
        Where it is drawn.
    """

    group: str
    label: str
    figure: str
    between: str
    mark: Mark


@dataclass(frozen=True)
class Bars:
    """Lying bars with intervals; ``zero`` and ``threshold`` are places in percent."""

    title: str
    caption: str
    bars: tuple[Bar, ...]
    zero: str
    threshold: str = ""
    threshold_text: str = ""
    kind: str = "bars"

    @property
    def long(self) -> bool:
        """Whether labels need a line of their own."""
        return any(len(bar.label) > _SIDE_LABEL for bar in self.bars)


class Column(NamedTuple):
    """One upright bar: places in percent of the width, and in units from the top."""

    x: str
    width: str
    middle: str
    top: float
    height: float
    low: float
    high: float
    words: str


@dataclass(frozen=True)
class Columns:
    """Upright bars in the order of a column's values.

    Attributes
    ----------
    ticks : tuple of (str, float)
        Numbers of the vertical axis, and their places from the top.
    labels : tuple of (str, str, str)
        Labels of the horizontal axis, their places in percent, and how they are anchored.
    """

    title: str
    caption: str
    alt: str
    columns: tuple[Column, ...]
    ticks: tuple[tuple[str, float], ...]
    labels: tuple[tuple[str, str, str], ...]
    zero: float
    kind: str = "columns"


class Strip(NamedTuple):
    """One number on a line, with its interval: ``left`` and ``right`` are its ends in words."""

    mark: Mark
    left: str
    right: str
    note: str
    filled: bool


@dataclass(frozen=True)
class Strips:
    """One number on the line of what it could be, and its interval enlarged."""

    title: str
    caption: str
    figure: str
    between: str
    strips: tuple[Strip, ...]
    kind: str = "strips"
