"""Lay out a comparison: curves with bands over the seeds, and accuracy against epsilon."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from markupsafe import Markup

from zerosum.server.privacy.observers import ObserverName
from zerosum.server.privacy.rounding import epsilon_text
from zerosum.simulations.report import words
from zerosum.simulations.report.chart import (
    Axis,
    Chart,
    Level,
    Series,
    line,
    linear,
    logarithmic,
    round_axis,
)
from zerosum.simulations.report.chart_page import drawn
from zerosum.simulations.report.compare import Comparison, Method, direction
from zerosum.simulations.report.paper import paper_file

# Six colours that the page gives a contrast of 3:1 and more, on light and dark paper.
_SERIES = ("accent", "local", "release", "part1", "part3", "muted")
_DASHES = ("-", "--", ":")
_SHAPES = "os^DvP"
_MOST_CURVES = 6
_MOST_METRICS = 4
_MOST_FAMILIES = 6
_MOST_TICKS = 8


@dataclass(frozen=True)
class Drawing:
    """A figure, for a page and as a file.

    Attributes
    ----------
    name : str
        Of its files.
    title, caption, alt : str
        Its words.
    chart : Chart
        What is drawn.
    """

    name: str
    title: str
    caption: str
    alt: str
    chart: Chart

    @property
    def svg(self) -> Markup:
        """The figure as an element of a page, as :class:`~.chart_page.Picture` has it."""
        return drawn(self.chart, self.alt)

    def file(self, kind: str) -> bytes:
        """Return the figure as a file for a paper: "pdf", "svg" or "png"."""
        return paper_file(self.chart, kind)


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
    drawn_methods = [m for m in methods if m in best_first[:_MOST_CURVES]]
    left = len(methods) - len(drawn_methods)
    remark = f" The {len(drawn_methods)} best of {len(methods)} are drawn." if left else ""
    ends = "; ".join(f"{m.label}: {m.curve(metric)[-1][1].text(metric)}" for m in drawn_methods)

    lines = tuple(
        _curve(index, method.curve(metric), method.privacy if of else method.label)
        for index, method in enumerate(drawn_methods)
    )
    rounds = np.unique(np.concatenate([each.x for each in lines])).astype(int).tolist()
    chart = Chart(round_axis(rounds), _upward(metric, *limits), lines)
    title = f"{words.title(metric)} by round{of}"
    caption = f"Mean over the seeds; the band is one standard deviation to each side.{remark}"
    return Drawing(name, title, caption, f"{title}. At the end: {ends}.", chart)


def _curve(index: int, curve: Sequence[tuple[int, Any]], label: str) -> Series:
    at = np.array([number for number, _ in curve])
    mean = np.array([spread.mean for _, spread in curve])
    deviation = np.nan_to_num(np.array([spread.deviation for _, spread in curve]))
    kept = line(label, "", at, at).x.astype(int)
    chosen = np.isin(at, kept)
    ends = {}
    if deviation.any():
        ends = {"low": (mean - deviation)[chosen], "high": (mean + deviation)[chosen]}
    return line(label, x=at[chosen], y=mean[chosen], **_style(index), **ends)


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

    at = np.array([m.bounds[observer].value for m in best])
    means = np.array([m.metrics[metric].mean for m in best])
    lines = [
        _points([m for m in methods if m.family == family], metric, observer, index, family)
        for index, family in enumerate(families)
    ]
    ring = Series("on the frontier", "ink", at, means, dash="", ring=True)
    levels: tuple[Level, ...] = ()
    if reference is not None:
        label = f"no such bound: {reference.label}"
        levels = (Level(label, reference.metrics[metric].mean),)
    ends = [each for one in lines for each in (one.low, one.high) if each is not None]
    heights = np.concatenate([*ends, np.array([level.y for level in levels])])
    across = _epsilon_axis(
        f"epsilon_{observer}, log scale", [m.bounds[observer].value for m in methods]
    )
    upward = _upward(metric, *_margin(float(heights.min()), float(heights.max())))
    chart = Chart(across, upward, (ring, *lines), levels=levels)
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
    return Drawing("frontier", title, caption, f"{title}. {points}.", chart)


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
    methods: Sequence[Method], metric: str, observer: ObserverName, index: int, family: str
) -> Series:
    ordered = sorted(methods, key=lambda m: m.bounds[observer].value)
    mean = np.array([m.metrics[metric].mean for m in ordered])
    deviation = np.nan_to_num(np.array([m.metrics[metric].deviation for m in ordered]))
    at = np.array([m.bounds[observer].value for m in ordered])
    return Series(
        family or "all methods", x=at, y=mean, low=mean - deviation, high=mean + deviation,
        bars=True, **_style(index),
    )  # fmt: skip


def _style(index: int) -> dict[str, Any]:
    """Return how a series is told from the others, also without colours."""
    return {
        "colour": _SERIES[index % len(_SERIES)],
        "dash": _DASHES[index // len(_SERIES) % len(_DASHES)],
        "shape": _SHAPES[index % len(_SHAPES)],
    }


def _epsilon_axis(label: str, values: Sequence[float]) -> Axis:
    """Mark the very epsilons on the horizontal axis, where they are few and far apart."""
    axis = logarithmic(label, values, lambda value: f"epsilon {epsilon_text(value)}")
    ticks = {epsilon_text(value): value for value in sorted(values)}
    apart = np.diff(np.log(list(ticks.values())))
    if 1 < len(ticks) <= _MOST_TICKS and apart.min() > np.ptp(np.log(values)) / 12:
        return replace(axis, ticks=tuple((value, text) for text, value in ticks.items()))
    return axis


def _limits(metric: str, methods: Sequence[Method]) -> tuple[float, float]:
    """Return the range of a metric's bands, with a margin: that of all figures of one metric."""
    spreads = [spread for method in methods for _, spread in method.curve(metric)]
    mean = np.array([spread.mean for spread in spreads])
    deviation = np.nan_to_num(np.array([spread.deviation for spread in spreads]))
    return _margin(float((mean - deviation).min()), float((mean + deviation).max()))


def _margin(low: float, high: float) -> tuple[float, float]:
    margin = 0.05 * (high - low or abs(high) or 1.0)
    return low - margin, high + margin


def _upward(metric: str, low: float, high: float) -> Axis:
    """Return the axis of a metric: of an accuracy within 0 and 1, in percent."""
    label = metric.replace("_", " ")
    if not metric.endswith("accuracy"):
        return linear(label, [low, high], words.number)
    low, high = max(0.0, low), min(1.0, high)
    digits = 0 if high - low > 0.05 else 1
    return linear(
        label, [], words.percent, least=low, most=high, mark=lambda v: f"{100 * v:.{digits}f} %"
    )
