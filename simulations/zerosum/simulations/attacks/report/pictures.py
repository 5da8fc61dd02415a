"""Draw the figures of a suite of attacks, each only where there are data for it."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from zerosum.simulations.attacks.harness.interface import Defense
from zerosum.simulations.attacks.harness.metrics import Ranking
from zerosum.simulations.attacks.harness.play import Cell, Outcome
from zerosum.simulations.attacks.harness.results import Row
from zerosum.simulations.attacks.report.table import epsilon_text
from zerosum.simulations.report.drawing import (
    Picture,
    colour,
    legend,
    line,
    log_scale,
    new_axes,
    plain_ticks,
    to_svg,
)

_COLOURS = ("accent", "local", "release", "part1", "part5", "part3", "part2", "sum")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_LABEL_CHARACTERS = 46
_LEAST_RATE = 1e-3
"""Where the log axes of a ROC begin: few suites have units enough for a rate below it."""

Key = tuple[str, str, str, str]
"""Attack, adaptive, setting, protection: which cell a row is of."""


@dataclass(frozen=True)
class Axis:
    """One way in which figures are laid out.

    Attributes
    ----------
    at : str
        What ``Case.at`` calls it.
    title, label : str
        Of the picture, and below its axis.
    log : bool
    metrics : tuple of str
        Which are drawn; empty for the attack's first.
    says : str
        What is seen, for its caption.
    """

    at: str
    title: str
    label: str
    log: bool
    metrics: tuple[str, ...]
    says: str


AXES = (
    Axis(
        "sigma",
        "PSNR against noise",
        "noise, in clips (left end: none)",
        True,
        ("PSNR",),
        "How much a reconstructed image is like the true one, as noise grows from left to right: "
        "lower is better protected.",
    ),
    Axis(
        "cohort",
        "Recovery against cohort size",
        "clients in the sum",
        True,
        (),
        "What is recovered from a sum, as more clients are in it from left to right.",
    ),
    Axis(
        "noise",
        "Bits right against noise",
        "noise of an answer, over sqrt(n)",
        False,
        (),
        "Private bits that an analyst gets right, as noise grows from left to right, in units of "
        "the square root of the number of people.",
    ),
    Axis(
        "scale",
        "Accuracy and attack success against scale",
        "factor by which the attacker scales its update",
        True,
        ("main accuracy", "attack success"),
        "How well the poisoned model still does its task, and how often it does the attacker's, "
        "as the attacker scales its update up from left to right.",
    ),
)


def key_of(row: Row) -> Key:
    """Return which cell a row is of."""
    return row.attack, row.adaptive, row.setting, row.protection


def keys_of(cells: Sequence[Cell]) -> dict[Key, int]:
    """Return the number of each cell."""
    return {
        (c.attack.name, c.attack.adaptive, c.case.setting.name, c.case.protection.name): number
        for number, c in enumerate(cells)
    }


def curves(rows: Sequence[Row], cells: Sequence[Cell]) -> list[Picture]:
    """Return figures against noise, cohort size and scale: a picture an attack and axis.

    Parameters
    ----------
    rows : sequence of Row
        The strongest of each cell, pooled.
    cells : sequence of Cell

    Returns
    -------
    list of Picture
        Where at least two places of an axis have figures.
    """
    numbers = keys_of(cells)
    pictures: list[Picture] = []
    for axis in AXES:
        for attack in dict.fromkeys(row.attack for row in rows):
            first = next(row.metric for row in rows if row.attack == attack)
            wanted = axis.metrics or (first,)
            points = [
                _Point.of(row, axis, cells[numbers[key_of(row)]])
                for row in rows
                if row.attack == attack and row.metric in wanted and _is_drawn(row, axis)
            ]
            if len({point.at for point in points}) > 1:
                pictures.append(_curve(attack, axis, points, f"curve{len(pictures)}"))
    return pictures


def _is_drawn(row: Row, axis: Axis) -> bool:
    return axis.at in json.loads(row.at) and row.value is not None and math.isfinite(row.value)


@dataclass(frozen=True)
class _Point:
    row: Row
    at: float
    series: tuple[str, ...]

    @classmethod
    def of(cls, row: Row, axis: Axis, cell: Cell) -> "_Point":
        """Place a row: points that differ in what the axis shows are of one series."""
        series: tuple[str, ...] = (row.protection,)
        if axis.at in ("sigma", "noise"):
            series = (row.setting, _kind(cell.case.protection))
        elif axis.at == "scale":
            series = (row.metric, row.protection)
        return cls(row, float(json.loads(row.at)[axis.at]), series)


def _kind(protection: Defense) -> str:
    masked = "masked" if protection.masked else "not masked"
    return masked if protection.noise == "none" else f"{masked}, {protection.noise} noise"


def _curve(attack: str, axis: Axis, points: Sequence[_Point], name: str) -> Picture:
    metrics = dict.fromkeys(point.row.metric for point in points)
    unit = points[0].row.unit
    axes = new_axes(axis.label, _plain(" / ".join(metrics) + (f", {unit}" if unit else "")))
    placed = _placed({point.at for point in points}, axis.log)
    series = _series(points)
    drawn = dict(list(series.items())[: len(_COLOURS)])
    for index, (label, of) in enumerate(drawn.items()):
        _draw(axes, index, label, [placed[point.at] for point in of], [point.row for point in of])
    if len(metrics) == 1:
        _draw_baseline(axes, points)
    _scale(axes, axis, placed)
    legend(axes, columns=1)
    title = f"{axis.title}: {attack}"
    caption = _caption(axis, drawn, len(series) - len(drawn))
    return Picture(title, to_svg(axes, name, f"{title}. {axis.says}"), caption)


def _draw(axes: Axes, index: int, label: str, x: Sequence[float], rows: Sequence[Row]) -> None:
    """Draw one series, and its figures' intervals."""
    line(
        axes,
        np.array(x),
        np.array([row.value for row in rows], dtype=np.float64),
        _COLOURS[index],
        _plain(label),
        marker=_MARKERS[index],
        dashed=rows[0].metric == "main accuracy",
    )
    bounded = [(at, row) for at, row in zip(x, rows, strict=True) if _bounded(row)]
    axes.vlines(
        [at for at, _ in bounded],
        [row.low or 0.0 for _, row in bounded],
        [row.high or 0.0 for _, row in bounded],
        color=colour(_COLOURS[index]),
        linewidth=1,
        alpha=0.6,
    )


def _draw_baseline(axes: Axes, points: Sequence[_Point]) -> None:
    baselines = [point.row.baseline for point in points if point.row.baseline is not None]
    if baselines:
        middle = float(np.median(baselines))
        axes.axhline(middle, color=colour("muted"), lw=1, ls=":", label="baseline")


def _caption(axis: Axis, drawn: Mapping[str, Sequence[_Point]], hidden: int) -> str:
    figures = [
        f"{label}: " + ", ".join(f"{epsilon_text(p.row)} at {p.at:g}" for p in of)
        for label, of in drawn.items()
    ]
    more = f" {hidden} more series are in the table alone." if hidden > 0 else ""
    return (
        f"{axis.says} Bars hold each figure with 95 %; the dotted line is a guess without what is "
        f"attacked.{more} Epsilon, as the ledger says: {'; '.join(figures)}."
    )


def _series(points: Sequence[_Point]) -> dict[str, list[_Point]]:
    """Group points; one without noise is where all of its setting's series begin."""
    groups: dict[tuple[str, ...], list[_Point]] = {}
    for point in points:
        groups.setdefault(point.series, []).append(point)
    starts = [key for key, of in groups.items() if all(point.at == 0 for point in of)]
    for key in starts:
        others = [k for k in groups if k not in starts and k[0] == key[0] and len(k) > 1]
        for other in others:
            if all(point.at > 0 for point in groups[other]):
                groups[other] = groups[key] + groups[other]
        if others:
            del groups[key]
    several = len({key[0] for key in groups}) > 1
    return {
        ", ".join(key if several or len(key) == 1 else key[1:]): sorted(of, key=lambda p: p.at)
        for key, of in groups.items()
    }


def _placed(values: Iterable[float], log: bool) -> dict[float, float]:
    """Return where values are drawn: on a log axis zero is put left of the least of the others."""
    positive = [value for value in values if value > 0]
    least = min(positive, default=1.0)
    return {value: value if value > 0 or not log else least / 10 for value in values}


def _scale(axes: Axes, axis: Axis, placed: Mapping[float, float]) -> None:
    if axis.log:
        log_scale(axes, "x", np.array(list(placed.values())))
        nothing = placed.get(0.0)
        plain_ticks(
            axes.xaxis,
            lambda v, _: "none" if nothing is not None and v <= nothing * 1.01 else f"{v:,.4g}",
        )
    else:
        plain_ticks(axes.xaxis)
    plain_ticks(axes.yaxis, lambda v, _: f"{v:.3g}")


def roc(rows: Sequence[Row], outcomes: Sequence[Outcome], cells: Sequence[Cell]) -> list[Picture]:
    """Return the curves of members against others, all seeds together, on two log axes.

    Parameters
    ----------
    rows : sequence of Row
        The strongest of each cell, pooled.
    outcomes : sequence of Outcome
    cells : sequence of Cell

    Returns
    -------
    list of Picture
        One for each attack that ranks.
    """
    numbers = keys_of(cells)
    by_attack: dict[str, dict[int, tuple[Row, Ranking]]] = {}
    for row in rows:
        number = numbers[key_of(row)]
        ranked = _ranked(row.metric, [outcome for outcome in outcomes if outcome.number == number])
        if ranked is not None:
            by_attack.setdefault(row.attack, {}).setdefault(number, (row, ranked))
    return [
        _roc(attack, list(of.values()), f"roc{index}")
        for index, (attack, of) in enumerate(by_attack.items())
    ]


def _ranked(metric: str, outcomes: Sequence[Outcome]) -> Ranking | None:
    units = [outcome.units[metric] for outcome in outcomes if metric in outcome.units]
    ranked = [outcome for outcome in units if isinstance(outcome, Ranking)]
    return ranked[0].pooled(ranked[1:]) if ranked else None


def _roc(attack: str, ranked_rows: Sequence[tuple[Row, Ranking]], name: str) -> Picture:
    axes = new_axes("false-positive rate", "true-positive rate")
    several = len({row.setting for row, _ in ranked_rows}) > 1
    rates = []
    for index, (row, ranked) in enumerate(ranked_rows[: len(_COLOURS)]):
        false, true = roc_points(ranked)
        label = f"{row.setting}, {row.protection}" if several else row.protection
        drawn = np.maximum(false, _LEAST_RATE), np.maximum(true, _LEAST_RATE)
        axes.plot(*drawn, color=colour(_COLOURS[index]), lw=1.6, label=_plain(label))
        at = float(np.max(true[false <= 0.01], initial=0.0))
        rates.append(f"{label}: {at:.1%} (epsilon {epsilon_text(row)})")
    diagonal = np.array([_LEAST_RATE, 1.0])
    axes.plot(diagonal, diagonal, color=colour("muted"), lw=1, ls=":", label="guessing")
    for which in ("x", "y"):
        log_scale(axes, which, diagonal)
    axes.set_xlim(_LEAST_RATE, 1.0)
    axes.set_ylim(_LEAST_RATE, 1.05)
    legend(axes, columns=1)
    hidden = len(ranked_rows) - len(rates)
    more = f" {hidden} more cells are in the table alone." if hidden > 0 else ""
    says = (
        "How many members are found, upwards, at how many others taken for members, to the right; "
        "on the dotted line the attack guesses. What counts is the left: few false alarms."
    )
    caption = f"{says} Found at 1 % false alarms: {'; '.join(rates)}.{more}"
    title = f"Members found: {attack}"
    return Picture(title, to_svg(axes, name, f"{title}. {says}"), caption)


def roc_points(ranked: Ranking) -> tuple[np.ndarray, np.ndarray]:
    """Return the false- and true-positive rates at every threshold, from (0, 0) to (1, 1)."""
    order = np.argsort(-ranked.scores, kind="stable")
    labels, scores = ranked.labels[order].astype(bool), ranked.scores[order]
    last = np.append(np.diff(scores) != 0, True)  # equal scores are taken together
    true = np.append(0.0, np.cumsum(labels)[last] / max(1, np.count_nonzero(labels)))
    false = np.append(0.0, np.cumsum(~labels)[last] / max(1, np.count_nonzero(~labels)))
    return false, true


def _bounded(row: Row) -> bool:
    return (
        row.low is not None
        and row.high is not None
        and math.isfinite(row.low)
        and math.isfinite(row.high)
    )


def _plain(label: str) -> str:
    """Return a label that is drawn as it is: no formula, not hidden, not too long."""
    short = label if len(label) <= _LABEL_CHARACTERS else label[: _LABEL_CHARACTERS - 1] + "…"
    return " " + "".join(c if c.isprintable() else " " for c in short).replace("$", r"\$")
