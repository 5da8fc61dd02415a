"""Lay out a forest plot: of each cell of an attack its figure, interval and baseline."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from zerosum.simulations.attacks.report.protections import Judged
from zerosum.simulations.attacks.report.table import figure_text
from zerosum.simulations.report import chart
from zerosum.simulations.report.paper import POINTS, WIDTH, inks, scale, written

_LOG_RATIO = 1000.0
"""Of the largest to the smallest figure, from which on the axis is one of equal ratios."""

_LABEL_LETTERS = 22
"""Of a line of a label beside a plot for a paper."""

_LETTER = 0.6
"""Width of a letter, in heights of its font: of wide ones more than of most."""


@dataclass(frozen=True)
class Branch:
    """One cell.

    Attributes
    ----------
    label, differs : str
        The protection, and what tells the setting from the attack's others.
    text : str
        The figure with its interval, or why there is none.
    value, low, high, baseline : float or None
        None where nothing is drawn.
    above : bool
        Whether the figure is above its baseline.
    """

    label: str
    differs: str
    text: str
    value: float | None
    low: float | None
    high: float | None
    baseline: float | None
    above: bool


@dataclass(frozen=True)
class Forest:
    """The cells of one attack along an axis of its first metric.

    Attributes
    ----------
    attack, metric : str
    axis : Axis or None
        None where no cell has a figure.
    branches : tuple of Branch
    """

    attack: str
    metric: str
    axis: chart.Axis | None
    branches: tuple[Branch, ...]

    def part(self, value: float | None) -> str:
        """Return where a value is, in percent of the width; empty where there is none."""
        if value is None or self.axis is None:
            return ""
        return f"{100 * float(self.axis.part(value)):.5g}%"

    def file(self, kind: str) -> bytes:
        """Return the plot as a file for a paper: "pdf", "svg" or "png"."""
        return written(lambda: forest_figure(self), kind)


def forests(attacks: Mapping[str, Sequence[Judged]]) -> list[Forest]:
    """Return a forest plot for each attack.

    Parameters
    ----------
    attacks : mapping of str to sequence of Judged
        As :func:`~.protections.judged` returns them.

    Returns
    -------
    list of Forest
    """
    return [_forest(attack, of) for attack, of in attacks.items()]


def _forest(attack: str, of: Sequence[Judged]) -> Forest:
    shared = len({each.row.protection for each in of}) == 1
    branches = tuple(_branch(each, shared) for each in of)
    row = of[0].first
    metric = f"{row.metric}, {row.unit}" if row.unit else row.metric
    ends = [
        end
        for each in branches
        for end in (each.value, each.low, each.high, each.baseline)
        if end is not None
    ]
    axis = None
    if ends and any(each.value is not None for each in branches):
        # Fractions are read from 0 to 1, however near to 0 an interval begins.
        far = min(ends) > 0 and max(ends) > 1 and max(ends) / min(ends) > _LOG_RATIO
        scaled = chart.logarithmic if far else chart.linear
        axis = scaled(metric, ends, lambda value: f"{value:.3g}")
    return Forest(attack, metric, axis, branches)


def _branch(each: Judged, shared: bool) -> Branch:
    """Return a cell's line, named by its setting alone where all share one protection."""
    row = each.first
    label, differs = row.protection, each.differs
    if shared and differs:
        label, differs = differs, ""
    drawn = row.value is not None and not row.too_few and math.isfinite(row.value)
    value, low, high, baseline = (
        end if drawn and end is not None and math.isfinite(end) else None
        for end in (row.value, row.low, row.high, row.baseline)
    )
    text = figure_text(row)
    if each.verdict == "failed" and drawn:
        text = f"{text} (another attacker failed)"
    above = row.verdict == "above baseline"
    return Branch(label, differs, text, value, low, high, baseline, above)


def forest_figure(forest: Forest) -> Figure:
    """Draw a forest plot with matplotlib, sized for a column, with nothing global.

    Parameters
    ----------
    forest : Forest

    Returns
    -------
    Figure
    """
    labels = [
        textwrap.wrap(", ".join(filter(None, (b.label, b.differs))), _LABEL_LETTERS) or [""]
        for b in forest.branches
    ]
    line = POINTS * 1.25 / 72  # inches
    tops, below = [], 0.0
    for of in labels:
        tops.append(below + line * (len(of) + 0.4) / 2)
        below += line * (len(of) + 0.4)
    height = below + 5 * line
    figure = Figure(figsize=(WIDTH, height), facecolor="none")
    left = 0.02 + POINTS * _LETTER * _LABEL_LETTERS / 72 / WIDTH
    axes = figure.add_axes((left, 3 * line / height, 0.96 - left, below / height), facecolor="none")
    ink = inks()
    axes.set_ylim(below, 0)
    words = ["\n".join(of).replace("$", r"\$") for of in labels]
    axes.set_yticks(tops, words, fontsize=POINTS, color=ink["ink"])
    if forest.axis is not None:
        scale(axes, "x", forest.axis)
    axes.set_xlabel(forest.metric.replace("$", r"\$"), color=ink["muted"], fontsize=POINTS)
    axes.tick_params(axis="x", colors=ink["muted"], labelsize=POINTS, length=3, color=ink["line"])
    axes.tick_params(axis="y", length=0)
    axes.grid(True, axis="x", color=ink["line"], linewidth=0.6)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(ink["line"])
    for at, branch in zip(tops, forest.branches, strict=True):
        _draw(axes, at, branch, line)
    said = "filled: above the baseline (dashed); hollow: at it; bars: 95 %"
    figure.text(0.99, 1 - 1.2 * line / height, said, ha="right", fontsize=POINTS * 0.85,
                color=ink["muted"])  # fmt: skip
    return figure


def _draw(axes: Axes, at: float, branch: Branch, line: float) -> None:
    ink = inks()
    if branch.value is None:
        axes.text(0.01, at, branch.text.split(":")[0], transform=axes.get_yaxis_transform(),
                  va="center", fontsize=POINTS, color=ink["muted"])  # fmt: skip
        return
    if branch.low is not None and branch.high is not None:
        axes.hlines(at, branch.low, branch.high, color=ink["accent"], linewidth=1)
    if branch.baseline is not None:
        ends = at - 0.6 * line, at + 0.6 * line
        axes.vlines(
            branch.baseline, *ends, color=ink["local"], linewidth=1.2, linestyle=(0, (2, 1))
        )
    face = ink["accent"] if branch.above else "white"
    axes.plot([branch.value], [at], marker="o", markersize=POINTS * 0.5, markeredgewidth=0.9,
              markeredgecolor=ink["accent"], markerfacecolor=face)  # fmt: skip
