"""Draw a chart as part of a page: places in percent, words and marks at a size of their own.

A drawing that is scaled as a whole shrinks its words on a phone. So what is across is in percent
of the width, what is upward in pixels, and words are text of 12 pixels at every width. Colours are
custom properties of the page: one chart serves light and dark screens and paper.
"""

import json
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from markupsafe import Markup

from zerosum.simulations.report.chart import Chart, Layer, Reals, Series
from zerosum.simulations.report.html import fill

TOP: Final = 8.0
"""Pixels above the drawing."""

HEIGHT: Final = 190.0
"""Pixels of the drawing."""

END_LINE: Final = 15.0
"""Pixels from line to line of a name at the end of a line."""

END_LETTERS: Final = 24
"""Letters of a line of such a name."""

_NEAR: Final = 0.85
"""Part of the width beyond which a line ends near its name."""

_MOST_MARKERS: Final = 60
"""Points of a series with a mark each."""

_DIGIT_PIXELS: Final = 7.2
"""Width of a digit of 12 pixels in height, of the widest of the usual fonts."""

_DASHES: Final = {"-": "", "--": "6 4", ":": "2 3"}


@dataclass(frozen=True)
class Picture:
    """A drawing with its words."""

    title: str
    svg: Markup
    caption: str


def drawn(chart: Chart, alt: str) -> Markup:
    """Return a chart as an element of a page.

    Parameters
    ----------
    chart : Chart
    alt : str
        What it shows, for those who do not see it.

    Returns
    -------
    Markup
        HTML.
    """
    marks = [(_down(part), text) for part, text in _placed(chart.y)]
    gutter = 10 + _DIGIT_PIXELS * max((len(text) for _, text in marks), default=0)
    page = fill(
        "zerosum.simulations.report",
        "chart.html",
        chart=chart,
        alt=alt,
        gutter=round(gutter),
        top=TOP,
        height=HEIGHT,
        down=marks,
        across=[(_percent(part), text) for part, text in _placed(chart.x)],
        shade=_shade(chart),
        layers=[*_layers(chart)],
        series=[_series(chart, each) for each in chart.series],
        levels=[(each, _down(float(chart.y.part(each.y)))) for each in chart.levels],
        ends=line_ends(chart) if chart.ends else [],
        line=END_LINE,
        values=json.dumps(values(chart), ensure_ascii=False, separators=(",", ":")),
    )
    return Markup(page)


@dataclass(frozen=True)
class LineEnd:
    """The name at the end of a line.

    Attributes
    ----------
    lines : list of str
        The name, broken.
    colour, mark : str
        Of the line's points; a level has no mark.
    across : str
        Where the line ends, in percent.
    from_y, to_y : float
        Pixels from the top: the end of the line, and the middle of the name.
    near : bool
        Whether the line ends where the names are, and no other does, so that a short one leads
        there.
    """

    lines: list[str]
    colour: str
    mark: str
    across: str
    from_y: float
    to_y: float
    near: bool


def line_ends(chart: Chart) -> list[LineEnd]:
    """Return the names at the ends of a chart's lines, moved apart where they would overlap.

    Parameters
    ----------
    chart : Chart

    Returns
    -------
    list of LineEnd
        From top to bottom, all within the chart's height unless they are too many for it.
    """
    ends = [
        (each.label, each.colour, mark_of(each.shape) if each.shape else "", *last)
        for each in chart.series
        if (last := _last(chart, each)) is not None
    ]
    ends += [(e.label, e.colour, "", 1.0, float(chart.y.part(e.y))) for e in chart.levels]
    named = [(textwrap.wrap(e[0], END_LETTERS), *e[1:4], _down(e[4])) for e in ends]
    named = sorted(named, key=lambda each: each[4])
    places = _apart([each[4] for each in named], [END_LINE * len(each[0]) for each in named])

    def alone(x: float, y: float) -> bool:
        return sum((x, y) == (each[3], each[4]) for each in named) == 1

    return [
        LineEnd(lines, colour, mark, _percent(x), y, place, x > _NEAR and alone(x, y))
        for (lines, colour, mark, x, y), place in zip(named, places, strict=True)
    ]


def _last(chart: Chart, series: Series) -> tuple[float, float] | None:
    known = np.flatnonzero(np.isfinite(series.y))
    if not len(known):
        return None
    return float(chart.x.part(series.x[known[-1]])), float(chart.y.part(series.y[known[-1]]))


def _apart(wanted: list[float], heights: list[float]) -> list[float]:
    """Move the middles of names, in order, so that none overlaps; the last is in the chart."""
    low = TOP
    places = []
    for middle, height in zip(wanted, heights, strict=True):
        places.append(max(middle, low + height / 2))
        low = places[-1] + height / 2
    high = TOP + HEIGHT + END_LINE
    for index in reversed(range(len(places))):
        places[index] = min(places[index], high - heights[index] / 2)
        high = places[index] - heights[index] / 2
    return [round(place, 1) for place in places]


def values(chart: Chart) -> dict[str, Any]:
    """Return what a pointer reads off a chart.

    Parameters
    ----------
    chart : Chart

    Returns
    -------
    dict
        ``x``: places in percent; ``t``: their names; ``y``: pixels of the top and the bottom;
        ``s``: of each series its name, its colour and its value at each place, or None.
    """
    if chart.borders is not None:
        borders = chart.borders
        at = (borders[1:] + borders[:-1]) / 2
        names = [_between(chart, *ends) for ends in pairwise(borders.tolist())]
        rows: list[list[Any]] = [
            [each.label, each.colour, each.said or [*map(chart.y.say, each.heights.tolist())]]
            for each in chart.layers
        ]
    else:
        shown = [each for each in chart.series if not each.ring]
        known = [each.x[np.isfinite(each.y)] for each in shown]
        at = np.unique(np.concatenate(known)) if known else np.zeros(0)
        names = [chart.x.say(value) for value in at.tolist()]
        rows = [[each.label, each.colour, _said(chart, each, at)] for each in shown]
    places = np.round(100 * chart.x.part(at), 2).tolist()
    return {"x": places, "t": names, "y": [TOP, TOP + HEIGHT], "s": rows}


def _said(chart: Chart, series: Series, at: Reals) -> list[str | None]:
    known = {
        x: chart.y.say(y) + (f" ± {spread}" if (spread := _spread(chart, series, i)) else "")
        for i, (x, y) in enumerate(zip(series.x.tolist(), series.y.tolist(), strict=True))
        if np.isfinite(y)
    }
    return [known.get(place) for place in at.tolist()]


def _spread(chart: Chart, series: Series, i: int) -> str:
    """Return half the way between the ends, in words; empty where there is none."""
    if series.low is None or series.high is None or series.high[i] <= series.low[i]:
        return ""
    return chart.y.say(float(series.high[i] - series.low[i]) / 2)


def _between(chart: Chart, low: float, high: float) -> str:
    """Name a group: a round by its number, several by the first and the last, else its middle."""
    if chart.x.label != "round" or high - low < 1.5:
        return chart.x.say((low + high) / 2)
    return f"rounds {low + 0.5:,.0f} to {high - 0.5:,.0f}, mean"


def _placed(axis: Any) -> Iterator[tuple[float, str]]:
    for place, text in axis.ticks:
        yield float(axis.part(place)), text


def _percent(part: float) -> str:
    return f"{100 * part:.5g}%"


def _down(part: float) -> float:
    return round(TOP + HEIGHT * (1 - part), 1)


def _points(x: Reals, y: Reals) -> str:
    """Return a path through parts of the width and height, in thousandths; NaN interrupts it."""
    words, pen = [], "M"
    for across, upward in zip(x.tolist(), y.tolist(), strict=True):
        if not (np.isfinite(across) and np.isfinite(upward)):
            pen = "M"
            continue
        words.append(f"{pen}{1000 * across:.5g} {1000 * (1 - upward):.5g}")
        pen = "L"
    return "".join(words)


def _series(chart: Chart, series: Series) -> dict[str, Any]:
    x, y = chart.x.part(series.x), chart.y.part(series.y)
    known = np.isfinite(y)
    marked = series.shape and np.count_nonzero(known) <= _MOST_MARKERS
    ends: tuple[Reals, Reals] | None = None
    if series.low is not None and series.high is not None:
        ends = chart.y.part(series.low), chart.y.part(series.high)
    band = ""
    if ends is not None and not series.bars:
        edge = np.concatenate((ends[1], ends[0][::-1]))
        band = _points(np.concatenate((x, x[::-1])), edge) + "Z"
    bars = []
    if ends is not None and series.bars:
        bars = [
            (_percent(at), _down(high), _down(low))
            for at, low, high in zip(x.tolist(), *(each.tolist() for each in ends), strict=True)
            if high > low
        ]
    return {
        "of": series,
        "mark": mark_of(series.shape),
        "line": _points(x, y) if series.dash else "",
        "dash": _DASHES.get(series.dash, ""),
        "band": band,
        "bars": bars,
        "points": [
            (_percent(at), _down(up))
            for at, up in zip(x[known].tolist(), y[known].tolist(), strict=True)
        ] if marked else [],
    }  # fmt: skip


def mark_of(shape: str) -> str:
    """Return the name of a point's drawing, of which every page has one."""
    names = {"s": "square", "^": "up", "D": "diamond", "v": "down", "P": "plus"}
    return f"mark-{names.get(shape, 'dot')}"


def _layers(chart: Chart) -> Iterator[tuple[Layer, str]]:
    """Yield layers, each with the path around it."""
    if chart.borders is None:
        return
    edges = np.repeat(chart.x.part(chart.borders), 2)[1:-1]
    base = np.zeros(len(chart.borders) - 1)
    for layer in chart.layers:
        top = base + layer.heights
        ends = [np.repeat(chart.y.part(each), 2) for each in (top, base)]
        outline = np.concatenate((ends[0], ends[1][::-1]))
        yield layer, _points(np.concatenate((edges, edges[::-1])), outline) + "Z"
        base = top


def _shade(chart: Chart) -> list[tuple[str, str, float, float]]:
    """Return place, width, top and height of what is shaded."""
    if chart.shade is None:
        return []
    borders = chart.x.part(chart.shade.borders).tolist()
    ends = zip(borders[:-1], borders[1:], chart.shade.shares.tolist(), strict=True)
    return [
        (_percent(low), _percent(high - low), _down(share), round(HEIGHT * share, 1))
        for low, high, share in ends
        if share > 0
    ]
