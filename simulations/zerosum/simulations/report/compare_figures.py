"""Draw a comparison: curves with bands over the seeds, and accuracy against epsilon."""

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from io import BytesIO
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from zerosum.server.privacy.observers import ObserverName
from zerosum.server.privacy.rounding import epsilon_text
from zerosum.simulations.report import words
from zerosum.simulations.report.compare import Comparison, Method, direction
from zerosum.simulations.report.drawing import colour, log_scale, plain_ticks, to_svg

# Six colours that the page gives a contrast of 3:1 and more, on light and dark paper.
_SERIES = ("accent", "local", "release", "part1", "part3", "muted")
_DASHES = ("-", "--", ":")
_MARKERS = "os^DvP"
_MOST_CURVES = 6
_MOST_METRICS = 4
_MOST_FAMILIES = 6
_MOST_MARKED = 20
_MOST_TICKS = 8
_INCH_POINTS = 72
_PLAIN_TEXT: Any = {"svg.fonttype": "none", "pdf.fonttype": 42, "svg.hashsalt": "zerosum"}
"""Text stays text, which is searched and copied; identifiers are the same each time."""


@dataclass(frozen=True)
class Size:
    """A place where a figure stands.

    Attributes
    ----------
    width, height : float
        Inches; the height is that of the axes, to which the legend adds.
    points : float
        Height of the text.
    columns : int
        Of the legend.
    on_paper : bool
        Whether it has the colours of light paper; else the page's, light or dark.
    """

    width: float
    height: float
    points: float
    columns: int
    on_paper: bool = False


WIDE = Size(7.4, 3.6, 12.5, 2)
"""In a page beside another: a point is about a pixel."""

NARROW = Size(4.55, 2.9, 13.5, 1)
"""Across the screen of a phone."""

COLUMN = Size(3.35, 1.9, 7.5, 2, on_paper=True)
"""In a column of a paper."""


@dataclass(frozen=True)
class Drawing:
    """A figure that is drawn at any size.

    Attributes
    ----------
    name : str
        Of its files.
    title, caption, alt : str
        Its words.
    draw : callable
        From a size to axes.
    """

    name: str
    title: str
    caption: str
    alt: str
    draw: Callable[[Size], Axes]

    def svg(self, size: Size, name: str) -> Markup:
        """Return the figure as an element of a page, its text as text.

        Parameters
        ----------
        size : Size
            Of the place.
        name : str
            Prefix of the identifiers, unique in the page.

        Returns
        -------
        Markup
            The element.
        """
        with rc_context(_PLAIN_TEXT):
            return to_svg(self.draw(size), name, self.alt)

    def file(self, kind: str) -> bytes:
        """Return the figure as a file for a paper.

        Parameters
        ----------
        kind : str
            "pdf", "svg" or "png".

        Returns
        -------
        bytes
            The same for the same runs.

        Raises
        ------
        ValueError
            If the axes belong to no figure.
        """
        with rc_context(_PLAIN_TEXT):
            axes = self.draw(COLUMN)
            figure = axes.get_figure(root=True)
            if figure is None:
                raise ValueError("the axes belong to no figure")
            # Without a date: the same runs give the same bytes.
            date = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind)
            data = BytesIO()
            figure.savefig(data, format=kind, dpi=300, metadata=date)
            return data.getvalue()


def drawings(comparison: Comparison) -> list[Drawing]:
    """Return the figures of a comparison: curves of each metric, then accuracy against epsilon."""
    found = [
        drawing
        for metric in comparison.metrics[:_MOST_METRICS]
        for drawing in _curves_of(comparison, metric)
    ]
    frontier = _frontier(comparison)
    return [*found, *([] if frontier is None else [frontier])]


def _curves_of(comparison: Comparison, metric: str) -> Iterator[Drawing]:
    """Yield the curves of a metric: in one figure, or in one for each family of methods."""
    methods = [m for m in comparison.shown if len(m.curve(metric)) > 1]
    families = list(dict.fromkeys(m.family for m in methods))
    if not methods:
        return
    if len(methods) > _MOST_CURVES and 1 < len(families) <= _MOST_FAMILIES:
        if metric != comparison.metrics[0]:
            return
        for index, family in enumerate(families):
            members = [m for m in methods if m.family == family]
            limits = _limits(metric, methods)
            yield _curves(metric, members, f"curves-{metric}-{index}", f": {family}", limits)
    else:
        yield _curves(metric, methods, f"curves-{metric}", "", _limits(metric, methods))


def _curves(
    metric: str, methods: Sequence[Method], name: str, of: str, limits: tuple[float, float]
) -> Drawing:
    sign = direction(metric) or 1
    best_first = sorted(methods, key=lambda m: -sign * m.curve(metric)[-1][1].mean)
    drawn = [m for m in methods if m in best_first[:_MOST_CURVES]]
    left = len(methods) - len(drawn)
    remark = f" The {len(drawn)} best of {len(methods)} are drawn." if left else ""
    ends = "; ".join(f"{m.label}: {m.curve(metric)[-1][1].text(metric)}" for m in drawn)

    def draw(size: Size) -> Axes:
        labels = [method.privacy if of else method.label for method in drawn]
        key = _key(size, labels)
        axes = _axes(size, "round", metric.replace("_", " "), key)
        for index, method in enumerate(drawn):
            _band(axes, method.curve(metric), index, key.labels[index], size)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        plain_ticks(axes.xaxis)
        axes.set_ylim(*limits)
        _scale(axes, metric)
        _legend(axes, size, key)
        return axes

    title = f"{words.title(metric)} by round{of}"
    caption = f"Mean over the seeds; the band is one standard deviation to each side.{remark}"
    return Drawing(name, title, caption, f"{title}. At the end: {ends}.", draw)


def _band(axes: Axes, curve: Sequence[tuple[int, Any]], index: int, label: str, size: Size) -> None:
    at = np.array([number for number, _ in curve])
    mean = np.array([spread.mean for _, spread in curve])
    deviation = np.nan_to_num(np.array([spread.deviation for _, spread in curve]))
    style = _style(index, size)
    marked = len(at) <= _MOST_MARKED
    axes.plot(at, mean, label=label, **(style if marked else style | {"marker": ""}))
    if deviation.any():
        axes.fill_between(
            at, mean - deviation, mean + deviation, color=style["color"], alpha=0.16, linewidth=0
        )


def _frontier(comparison: Comparison) -> Drawing | None:
    """Draw the first metric against epsilon, a line for each family of methods."""
    observer, metric = comparison.observer, next(iter(comparison.metrics), None)
    if observer is None or metric is None or not direction(metric):
        return None
    methods = [
        m for m in comparison.shown
        if comparison.finite(m, observer) and metric in m.metrics
        and np.isfinite(m.metrics[metric].mean) and m.bounds[observer].value > 0
    ]  # fmt: skip
    kinds = {(b.delta, b.unit, b.adjacency) for b in (m.bounds[observer] for m in methods)}
    if len(kinds) != 1:
        return None
    (delta, unit, adjacency), *_ = kinds
    families = list(dict.fromkeys(m.family for m in methods))[: len(_SERIES) * len(_DASHES)]
    free = [m for m in comparison.shown if observer in m.bounds and not m.bounds[observer].finite]
    unprotected = [m for m in free if metric in m.metrics]
    sign = direction(metric)
    reference = max(unprotected, key=lambda m: sign * m.metrics[metric].mean, default=None)
    best = frontier_of(methods, metric, observer)

    def draw(size: Size) -> Axes:
        labels = ["on the frontier", *(family or "all methods" for family in families)]
        labels += [] if reference is None else [f"no such bound: {reference.label}"]
        key = _key(size, labels)
        axes = _axes(size, f"epsilon_{observer}, log scale", metric.replace("_", " "), key)
        at = np.array([m.bounds[observer].value for m in best])
        means = np.array([m.metrics[metric].mean for m in best])
        axes.plot(
            at, means, linestyle="none", marker="o", markersize=size.points * 0.95,
            markerfacecolor="none", markeredgecolor=_ink(size, "ink"),
            markeredgewidth=size.points * 0.09, label=key.labels[0], zorder=5,
        )  # fmt: skip
        for index, family in enumerate(families):
            members = [m for m in methods if m.family == family]
            _points(axes, members, metric, observer, index, key.labels[index + 1], size)
        if reference is not None:
            mean = reference.metrics[metric].mean
            ink, label = _ink(size, "muted"), key.labels[-1]
            axes.axhline(mean, color=ink, linewidth=1, linestyle=":", label=label)
        _epsilon_axis(axes, np.array([m.bounds[observer].value for m in methods]))
        _scale(axes, metric)
        _legend(axes, size, key)
        return axes

    points = "; ".join(
        f"{m.label}: {m.metrics[metric].text(metric)} at {epsilon_text(m.bounds[observer].value)}"
        for m in sorted(methods, key=lambda m: m.bounds[observer].value)
    )
    title = f"{words.title(metric)} against epsilon"
    caption = (
        f"Mean and standard deviation over the seeds, against epsilon_{observer} at delta "
        f"{words.delta(delta)} ({unit}, {adjacency}); the largest of the seeds. No method has a "
        "better mean at a smaller epsilon than those on the frontier."
    )
    return Drawing("frontier", title, caption, f"{title}. {points}.", draw)


def frontier_of(methods: Sequence[Method], metric: str, observer: ObserverName) -> list[Method]:
    """Return the methods that no other one beats at a smaller or equal epsilon.

    Parameters
    ----------
    methods : sequence of Method
        With the metric and a finite epsilon.
    metric, observer : str
        What is compared, against whom.

    Returns
    -------
    list of Method
        By epsilon, the smallest first.
    """
    sign = direction(metric)
    found: list[Method] = []
    order = sorted(
        methods, key=lambda m: (m.bounds[observer].value, -sign * m.metrics[metric].mean)
    )
    for method in order:
        mean = sign * method.metrics[metric].mean
        if not found or mean > sign * found[-1].metrics[metric].mean:
            found.append(method)
    return found


def _points(
    axes: Axes,
    methods: Sequence[Method],
    metric: str,
    observer: ObserverName,
    index: int,
    label: str,
    size: Size,
) -> None:
    ordered = sorted(methods, key=lambda m: m.bounds[observer].value)
    axes.errorbar(
        [m.bounds[observer].value for m in ordered],
        [m.metrics[metric].mean for m in ordered],
        yerr=np.nan_to_num(np.array([m.metrics[metric].deviation for m in ordered])),
        label=label,
        capsize=size.points * 0.25,
        elinewidth=size.points * 0.09,
        **_style(index, size),
    )


def _style(index: int, size: Size) -> dict[str, Any]:
    """Return how a series is told from the others, also without colours."""
    return {
        "color": _ink(size, _SERIES[index % len(_SERIES)]),
        "linestyle": _DASHES[index // len(_SERIES) % len(_DASHES)],
        "marker": _MARKERS[index % len(_MARKERS)],
        "linewidth": size.points * 0.14,
        "markersize": size.points * 0.42,
        "markeredgewidth": 0,
    }


def _epsilon_axis(axes: Axes, values: NDArray[np.float64]) -> None:
    """Mark the very epsilons on the horizontal axis, where they are few and far apart."""
    log_scale(axes, "x", values)
    ticks = {epsilon_text(value): float(value) for value in np.sort(values)}
    apart = np.diff(np.log(list(ticks.values())))
    if 1 < len(ticks) <= _MOST_TICKS and apart.min() > np.ptp(np.log(values)) / 12:
        axes.set_xticks(list(ticks.values()), list(ticks))


def _limits(metric: str, methods: Sequence[Method]) -> tuple[float, float]:
    """Return the range of a metric's bands, with a margin: that of all figures of one metric."""
    spreads = [spread for method in methods for _, spread in method.curve(metric)]
    mean = np.array([spread.mean for spread in spreads])
    deviation = np.nan_to_num(np.array([spread.deviation for spread in spreads]))
    low, high = float((mean - deviation).min()), float((mean + deviation).max())
    margin = 0.05 * (high - low or abs(high) or 1.0)
    return low - margin, high + margin


def _scale(axes: Axes, metric: str) -> None:
    if metric.endswith("accuracy"):
        low, high = axes.get_ylim()
        low, high = max(0.0, low), min(1.0, high)
        axes.set_ylim(low, high)
        axes.yaxis.set_major_formatter(
            PercentFormatter(1.0, decimals=0 if high - low > 0.05 else 1)
        )
    else:
        plain_ticks(axes.yaxis)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6))


@dataclass(frozen=True)
class _Key:
    """Labels of a legend, broken into lines that fit, and the room that they take."""

    labels: tuple[str, ...]
    columns: int
    lines: int


def _key(size: Size, labels: Sequence[str]) -> _Key:
    """Break the labels of a legend into lines: in fewer columns first, where they are long."""
    if len(labels) < 2:
        return _Key(tuple(labels), 1, 0)
    # A letter is about 0.58 of the height of its font wide; a line's sample takes four of them.
    letters = (size.width * _INCH_POINTS - 5 * size.points) / (0.58 * size.points)
    longest = max(map(len, labels)) + 5
    columns = size.columns if longest * size.columns <= letters else 1
    fitted = tuple(textwrap.fill(label, max(12, int(letters / columns) - 5)) for label in labels)
    heights = [label.count("\n") + 1 for label in fitted]
    rows = -(-len(labels) // columns)  # matplotlib fills a column, then the next
    return _Key(
        fitted, columns, max(sum(heights[i : i + rows]) for i in range(0, len(labels), rows))
    )


def _axes(size: Size, x: str, y: str, key: _Key) -> Axes:
    """Return empty axes of a size, with room above for a legend."""
    text, rows = size.points / _INCH_POINTS, key.lines
    above, below = text * (1.5 * rows + 0.8), text * 3.5
    height = size.height + text * 1.5 * rows
    figure = Figure(figsize=(size.width, height), facecolor="none")
    figure.subplots_adjust(
        left=text * 5 / size.width,
        right=1 - text * 1.2 / size.width,
        bottom=below / height,
        top=1 - above / height,
    )
    axes = figure.add_subplot(facecolor="none")
    axes.set_xlabel(x, color=_ink(size, "muted"), fontsize=size.points)
    axes.set_ylabel(y, color=_ink(size, "muted"), fontsize=size.points)
    axes.tick_params(
        which="both",
        colors=_ink(size, "muted"),
        labelsize=size.points,
        length=3,
        color=_ink(size, "line"),
    )
    axes.grid(True, axis="y", color=_ink(size, "line"), linewidth=0.6)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(_ink(size, "line"))
    return axes


def _legend(axes: Axes, size: Size, key: _Key) -> None:
    """Put the legend above the axes, where it covers no data; none for a single series."""
    if not key.lines:
        return
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.02, 1.0),
        ncols=key.columns,
        frameon=False,
        fontsize=size.points,
        labelcolor=_ink(size, "ink"),
        handlelength=1.6,
        columnspacing=1.2,
        labelspacing=0.35,
        borderaxespad=0.2,
    )


def _ink(size: Size, name: str) -> str:
    """Return a colour of the page by its name; in a file, what it is on light paper."""
    return _paper()[name] if size.on_paper else colour(name)


@cache
def _paper() -> dict[str, str]:
    """Return the page's colours on light paper; the page defines them."""
    style = resources.files("zerosum.simulations.report") / "templates" / "page.css"
    text = style.read_text(encoding="utf-8").partition("@media")[0]
    return dict(re.findall(r"--([\w-]+): (#[0-9a-fA-F]{6})", text))
