"""Draw a chart as a figure of a paper: text stays text, bytes are the same each time."""

import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from io import BytesIO
from typing import Any, Final

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from zerosum.simulations.report.chart import Axis, Chart, Series

WIDTH, HEIGHT = 3.35, 1.9
"""Inches of a column, and of the axes, to which the legend adds."""

POINTS: Final = 7.5
"""Height of the text."""

_TEXT: Final = POINTS / 72
_COLUMNS: Final = 2
_MOST_MARKED: Final = 20

_PLAIN_TEXT: Any = {"svg.fonttype": "none", "pdf.fonttype": 42, "svg.hashsalt": "zerosum"}
"""Text stays text, which is searched and copied; identifiers are the same each time."""


def paper_file(chart: Chart, kind: str) -> bytes:
    """Return a chart as a file for a paper.

    Parameters
    ----------
    chart : Chart
    kind : str
        "pdf", "svg" or "png".

    Returns
    -------
    bytes
        The same for the same chart.
    """
    return written(lambda: figure_of(chart)[0], kind)


def written(draw: Callable[[], Figure], kind: str) -> bytes:
    """Return a figure of matplotlib as a file whose words are text.

    Parameters
    ----------
    draw : callable
        Makes the figure.
    kind : str
        "pdf", "svg" or "png".

    Returns
    -------
    bytes
        The same for the same figure.
    """
    with rc_context(_PLAIN_TEXT):
        # Without a date: the same runs give the same bytes.
        date = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind)
        data = BytesIO()
        draw().savefig(data, format=kind, dpi=300, metadata=date)
        return data.getvalue()


def figure_of(chart: Chart) -> tuple[Figure, Axes]:
    """Return a chart as matplotlib draws it, with nothing global.

    Parameters
    ----------
    chart : Chart

    Returns
    -------
    figure : Figure
    axes : Axes
    """
    labelled = [each.label for each in chart.series] + [each.label for each in chart.levels]
    key = _key(labelled)
    figure, axes = _axes(chart, key)
    labels = iter(key.labels)
    for each in chart.series:
        _series(axes, each, next(labels))
    for level in chart.levels:
        ink = inks()[level.colour]
        axes.axhline(level.y, color=ink, linewidth=1, linestyle=":", label=next(labels))
    if key.lines:
        axes.legend(
            loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=key.columns, frameon=False,
            fontsize=POINTS, labelcolor=inks()["ink"], handlelength=1.6, columnspacing=1.2,
            labelspacing=0.35, borderaxespad=0.2,
        )  # fmt: skip
    return figure, axes


def _series(axes: Axes, series: Series, label: str) -> None:
    ink, known = inks()[series.colour], np.isfinite(series.y)
    x, y = series.x[known], series.y[known]
    ends = (
        None
        if series.low is None or series.high is None
        else (series.low[known], series.high[known])
    )
    if ends is not None and not series.bars:
        axes.fill_between(x, *ends, color=ink, alpha=0.16, linewidth=0)
    if ends is not None and series.bars:
        axes.vlines(x, *ends, color=ink, linewidth=POINTS * 0.09)
    ring: dict[str, Any] = {
        "markersize": POINTS * 0.95,
        "markerfacecolor": "none",
        "markeredgewidth": POINTS * 0.09,
        "zorder": 5,
    }
    point = {"markersize": POINTS * 0.42, "markeredgewidth": 0}
    axes.plot(
        x, y, label=label, color=ink, linestyle=series.dash or "none", linewidth=POINTS * 0.14,
        marker=series.shape if series.ring or len(x) <= _MOST_MARKED else "",
        **(ring if series.ring else point),
    )  # fmt: skip


@dataclass(frozen=True)
class _Key:
    """Labels of a legend, broken into lines that fit, and the room that they take."""

    labels: tuple[str, ...]
    columns: int
    lines: int


def _key(labels: Sequence[str]) -> _Key:
    """Break the labels of a legend into lines: in fewer columns first, where they are long."""
    # A dollar would begin a formula.
    labels = [label.replace("$", r"\$") for label in labels]
    if len(labels) < 2:
        return _Key(tuple(labels), 1, 0)
    # A letter is about 0.58 of the height of its font wide; a line's sample takes four of them.
    letters = (WIDTH - 5 * _TEXT) / (0.58 * _TEXT)
    longest = max(map(len, labels)) + 5
    columns = _COLUMNS if longest * _COLUMNS <= letters else 1
    fitted = tuple(textwrap.fill(label, max(12, int(letters / columns) - 5)) for label in labels)
    heights = [label.count("\n") + 1 for label in fitted]
    rows = -(-len(labels) // columns)  # matplotlib fills a column, then the next
    return _Key(
        fitted, columns, max(sum(heights[i : i + rows]) for i in range(0, len(labels), rows))
    )


def _axes(chart: Chart, key: _Key) -> tuple[Figure, Axes]:
    """Return empty axes with room above for a legend."""
    above = _TEXT * (1.5 * key.lines + 0.8)
    height = HEIGHT + _TEXT * 1.5 * key.lines
    figure = Figure(figsize=(WIDTH, height), facecolor="none")
    figure.subplots_adjust(
        left=_TEXT * 5 / WIDTH,
        right=1 - _TEXT * 1.2 / WIDTH,
        bottom=_TEXT * 3.5 / height,
        top=1 - above / height,
    )
    axes = figure.add_subplot(facecolor="none")
    muted, line = inks()["muted"], inks()["line"]
    axes.set_xlabel(chart.x.label, color=muted, fontsize=POINTS)
    axes.set_ylabel(chart.y.label, color=muted, fontsize=POINTS)
    axes.tick_params(which="both", colors=muted, labelsize=POINTS, length=3, color=line)
    axes.grid(True, axis="y", color=line, linewidth=0.6)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(line)
    scale(axes, "x", chart.x)
    scale(axes, "y", chart.y)
    return figure, axes


def scale(axes: Axes, which: str, axis: Axis) -> None:
    """Give one axis of a figure its ends and numbers.

    Parameters
    ----------
    axes : Axes
        Of matplotlib.
    which : str
        "x" or "y".
    axis : Axis
    """
    (axes.set_xscale if which == "x" else axes.set_yscale)("log" if axis.log else "linear")
    (axes.set_xlim if which == "x" else axes.set_ylim)(axis.low, axis.high)
    places, words = [place for place, _ in axis.ticks], [text for _, text in axis.ticks]
    (axes.set_xticks if which == "x" else axes.set_yticks)(places, words)
    (axes.xaxis if which == "x" else axes.yaxis).set_minor_locator(NullLocator())


@cache
def inks() -> dict[str, str]:
    """Return the page's colours on light paper; the page defines them."""
    style = resources.files("zerosum.simulations.report") / "templates" / "page.css"
    text = style.read_text(encoding="utf-8").partition("@media")[0]
    return dict(re.findall(r"--([\w-]+): (#[0-9a-fA-F]{6})", text))
