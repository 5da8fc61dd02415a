"""Charts as data: axes, series, layers and levels, drawn by a page and by a file for a paper."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]

_MOST_POINTS: Final = 300
"""Of a series: more cannot be told apart on a screen."""

_MOST_TICKS: Final = 6
"""A phone has room for so many numbers in a row."""

_FARTHEST: Final = 1e300
"""End of any axis; what is nearer to zero than its inverse is zero: steps between would not be."""


@dataclass(frozen=True)
class Axis:
    """One axis.

    Attributes
    ----------
    label : str
        What it measures.
    low, high : float
        Its ends, in order and apart; above 0 on a log axis.
    ticks : tuple of (float, str)
        Places with a number, between the ends.
    say : callable
        From a value to words, as of "round 5".
    log : bool
        Whether equal ratios are equally far.
    """

    label: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    say: Callable[[float], str]
    log: bool = False

    def part(self, values: Any) -> Reals:
        """Return where values are, from 0 to 1; the ends hold what is beyond them.

        Parameters
        ----------
        values : array_like
            Float64; NaN stays NaN.

        Returns
        -------
        numpy.ndarray
            Float64, of the same shape.
        """
        at = np.asarray(values, dtype=np.float64)
        low, high = self.low, self.high
        if self.log:
            with np.errstate(divide="ignore", invalid="ignore"):
                at = np.log(at)
            low, high = math.log(low), math.log(high)
        return np.clip((at - low) / (high - low), 0.0, 1.0)


@dataclass(frozen=True)
class Series:
    """Points of one name, joined by a line.

    Attributes
    ----------
    label, colour : str
        In the key; a custom property of page.css.
    x, y : numpy.ndarray
        Float64, shape (points,); where ``y`` is NaN there is no point.
    low, high : numpy.ndarray, optional
        Ends of a band around the line, or of a bar at each point.
    shape : str
        Of the points: "o", "s", "^", "D", "v" or "P"; empty: no marks.
    dash : str
        Of the line: "-", "--" or ":"; empty: no line.
    bars : bool
        Whether ``low`` and ``high`` are bars.
    ring : bool
        Whether points are rings around those of others, which hover values leave out.
    """

    label: str
    colour: str
    x: Reals
    y: Reals
    low: Reals | None = None
    high: Reals | None = None
    shape: str = "o"
    dash: str = "-"
    bars: bool = False
    ring: bool = False


@dataclass(frozen=True)
class Layer:
    """One layer of a stack.

    Attributes
    ----------
    label, colour : str
        As :class:`Series` has them.
    heights : numpy.ndarray
        Float64, shape (groups,).
    said : tuple of str or None
        Hover values, one a group, None where there is nothing; empty: as the axis says heights.
    """

    label: str
    colour: str
    heights: Reals
    said: tuple[str | None, ...] = ()


@dataclass(frozen=True)
class Level:
    """A dashed line across the chart at ``y``."""

    label: str
    y: float
    colour: str = "muted"


@dataclass(frozen=True)
class Shade:
    """Shaded parts behind everything: ``shares`` of the height, float64, shape (groups,)."""

    label: str
    borders: Reals
    shares: Reals


@dataclass(frozen=True)
class Chart:
    """A chart.

    Attributes
    ----------
    x, y : Axis
        Across and upward.
    series, layers, levels : tuple
        What is drawn.
    borders : numpy.ndarray, optional
        Between the groups of the layers, float64, shape (groups + 1,).
    shade : Shade, optional
        Behind everything.
    ends : bool
        Whether a wide page has names at the ends of the lines, instead of a key above them.
    """

    x: Axis
    y: Axis
    series: tuple[Series, ...] = ()
    layers: tuple[Layer, ...] = ()
    levels: tuple[Level, ...] = ()
    borders: Reals | None = None
    shade: Shade | None = None
    ends: bool = False


def line(label: str, colour: str, x: Any, y: Any, **style: Any) -> Series:
    """Return a series; of very many points a regular sample, the last one always.

    Parameters
    ----------
    label, colour : str
        As :class:`Series` has them.
    x, y : sequence of float
        Shape (points,).
    **style : object
        The other attributes of :class:`Series`.

    Returns
    -------
    Series
        Of 300 points at most.
    """
    step = max(1, -(-len(x) // _MOST_POINTS))
    at, value = (np.asarray(each, dtype=np.float64)[::-1][::step][::-1] for each in (x, y))
    return Series(label, colour, at, value, **style)


def linear(
    label: str,
    values: Any,
    say: Callable[[float], str],
    *,
    least: float = math.nan,
    most: float = math.nan,
    mark: Callable[[float], str] | None = None,
) -> Axis:
    """Return an axis from one round number to another, around all values.

    Parameters
    ----------
    label : str
    values : array_like
        What is drawn; what is not finite is left out.
    say : callable
        From a value to words.
    least, most : float
        Ends; NaN: as the values have it.
    mark : callable, optional
        From a place to the number beside it; six digits where absent.

    Returns
    -------
    Axis
        With a range, even where all values are one.
    """
    known = np.asarray(values, dtype=np.float64)
    # An axis ends where the difference of two ends would be no number any more.
    known = np.clip(known[np.isfinite(known)], -_FARTHEST, _FARTHEST)
    known = np.where(
        np.abs(known) < 1 / _FARTHEST, 0.0, known
    )  # below it steps are rounded to none
    low = least if math.isfinite(least) else float(known.min(initial=math.inf))
    high = most if math.isfinite(most) else float(known.max(initial=-math.inf))
    low, high = (low, high) if math.isfinite(low) and math.isfinite(high) else (0.0, 1.0)
    if high <= low:
        high = low + (abs(low) or 1.0)
        low = low if math.isfinite(least) else low - (high - low)
    step = _step(low, high)
    low = low if math.isfinite(least) else step * math.floor(low / step + 1e-9)
    high = high if math.isfinite(most) else step * math.ceil(high / step - 1e-9)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    places = [step * each for each in range(first, last + 1)]
    write = mark or _plain
    return Axis(label, low, high, tuple((place, write(place)) for place in places), say)


def logarithmic(label: str, values: Any, say: Callable[[float], str]) -> Axis:
    """Return an axis of equal ratios.

    Parameters
    ----------
    label : str
    values : array_like
        What is drawn, above 0; NaN is left out.
    say : callable
        From a value to words.

    Returns
    -------
    Axis
        A little wider than the values.
    """
    low, high = float(np.nanmin(values)) / 1.4, float(np.nanmax(values)) * 1.4
    digits = (1, 2, 5) if high / low < 200 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    places = [d * 10.0**p for p in powers for d in digits if low <= d * 10.0**p <= high]
    places = places[:: -(-len(places) // _MOST_TICKS) or 1]
    return Axis(label, low, high, tuple((place, _plain(place)) for place in places), say, log=True)


def round_axis(rounds: Sequence[int]) -> Axis:
    """Return the axis of the rounds, in whole numbers.

    Parameters
    ----------
    rounds : sequence of int
        Their numbers, in order.

    Returns
    -------
    Axis
        Half a round wider to either side.
    """
    low, high = min(rounds), max(rounds)
    step = max(1, round(_step(low, high)))
    first = step * -(-low // step)
    places = list(range(first, high + 1, step))
    return Axis(
        "round", low - 0.5, high + 0.5, tuple((float(p), f"{p:,}") for p in places),
        lambda value: f"round {value:,.0f}",
    )  # fmt: skip


def grouped(rounds: Sequence[int], *values: Reals) -> tuple[Reals, list[Reals]]:
    """Return the borders between rounds and the values, as means of groups of very many rounds.

    Returns
    -------
    borders : numpy.ndarray
        Half-way between rounds, shape (groups + 1,).
    means : list of numpy.ndarray
        Each of shape (groups,).
    """
    starts = np.arange(0, len(rounds), -(-len(rounds) // _MOST_POINTS))
    sizes = np.diff(starts, append=len(rounds))
    borders = np.append(np.asarray(rounds)[starts] - 0.5, rounds[-1] + 0.5)
    return borders, [np.add.reduceat(series, starts) / sizes for series in values]


def _step(low: float, high: float) -> float:
    """Return the smallest round number that goes six times at most into the way between two."""
    rough = (high - low) / _MOST_TICKS
    if rough <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * each for each in (1, 2, 5, 10) if power * each >= rough * (1 - 1e-9))


def _plain(value: float) -> str:
    return f"{value:,.6g}"
