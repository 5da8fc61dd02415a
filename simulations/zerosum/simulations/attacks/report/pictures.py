"""Draw the figures of a suite of attacks, each only where there are data for it."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from zerosum.simulations.attacks.harness.interface import Defense
from zerosum.simulations.attacks.harness.metrics import Ranking
from zerosum.simulations.attacks.harness.play import Cell, Outcome
from zerosum.simulations.attacks.harness.results import Row
from zerosum.simulations.attacks.report.protections import differences, key_of, keys_of
from zerosum.simulations.attacks.report.table import epsilon_text
from zerosum.simulations.report import chart
from zerosum.simulations.report.chart import Chart, Level, Series
from zerosum.simulations.report.compare_figures import Drawing

_COLOURS = ("accent", "local", "release", "part1", "part5", "part3", "part2", "sum")
_SHAPES = ("o", "s", "^", "D", "v", "P", "o", "s")
_LABEL_CHARACTERS = 46
_STEPS = 400
"""Places of a ROC that a screen can tell apart, either way."""

_LEAST_RATE = 1e-3
"""Where the log axes of a ROC begin: few suites have units enough for a rate below it."""


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


def curves(rows: Sequence[Row], cells: Sequence[Cell]) -> list[Drawing]:
    """Return figures against noise, cohort size and scale: a picture an attack and axis.

    Parameters
    ----------
    rows : sequence of Row
        The strongest of each cell, pooled.
    cells : sequence of Cell

    Returns
    -------
    list of Drawing
        Where at least two places of an axis have figures.
    """
    numbers = keys_of(cells)
    pictures: list[Drawing] = []
    for axis in AXES:
        for attack in dict.fromkeys(row.attack for row in rows):
            first = next(row.metric for row in rows if row.attack == attack)
            wanted = axis.metrics or (first,)
            differing = differences({row.setting for row in rows if row.attack == attack})
            points = [
                _Point.of(row, axis, cells[numbers[key_of(row)]], differing)
                for row in rows
                if row.attack == attack and row.metric in wanted and _is_drawn(row, axis)
            ]
            if len({point.at for point in points}) > 1:
                pictures.append(_curve(attack, axis, points, f"{axis.at}-{attack}"))
    return pictures


def _is_drawn(row: Row, axis: Axis) -> bool:
    known = row.value is not None and math.isfinite(row.value) and not row.too_few
    return known and axis.at in json.loads(row.at)


@dataclass(frozen=True)
class _Point:
    row: Row
    at: float
    series: tuple[str, ...]

    @classmethod
    def of(cls, row: Row, axis: Axis, cell: Cell, differing: Mapping[str, str]) -> "_Point":
        """Place a row: points that differ in what the axis shows are of one series."""
        series: tuple[str, ...] = (row.protection,)
        if axis.at in ("sigma", "noise"):
            series = (differing[row.setting], _kind(cell.case.protection))
        elif axis.at == "scale":
            series = (row.metric, row.protection)
        return cls(row, float(json.loads(row.at)[axis.at]), series)


def _kind(protection: Defense) -> str:
    masked = "masked" if protection.masked else "not masked"
    return masked if protection.noise == "none" else f"{masked}, {protection.noise} noise"


def _curve(attack: str, axis: Axis, points: Sequence[_Point], name: str) -> Drawing:
    metrics = dict.fromkeys(point.row.metric for point in points)
    unit = points[0].row.unit
    placed = _placed({point.at for point in points}, axis.log)
    series = _series(points)
    shown = dict(list(series.items())[: len(_COLOURS)])
    lines = [
        _line(index, label, [placed[point.at] for point in of], [point.row for point in of])
        for index, (label, of) in enumerate(shown.items())
    ]
    levels = _baseline(points) if len(metrics) == 1 else ()
    heights = [value for one in lines for part in (one.y, one.low, one.high) if part is not None
               for value in part.tolist()]  # fmt: skip
    upward = chart.linear(
        " / ".join(metrics) + (f", {unit}" if unit else ""),
        [*heights, *(level.y for level in levels)],
        lambda v: f"{v:.3g}",
    )
    title = f"{axis.title}: {attack}"
    caption = _caption(axis, shown, len(series) - len(shown))
    picture = Chart(_across(axis, placed), upward, tuple(lines), levels=levels, ends=True)
    return Drawing(name, title, caption, f"{title}. {axis.says}", picture)


def _line(index: int, label: str, x: Sequence[float], rows: Sequence[Row]) -> Series:
    """Return one series with its figures' intervals."""
    known = [_bounded(row) for row in rows]
    low, high = (
        np.array([end if held and end is not None else math.nan
                  for end, held in zip(ends, known, strict=True)])
        for ends in ([row.low for row in rows], [row.high for row in rows])
    )  # fmt: skip
    return Series(
        _short(label),
        _COLOURS[index],
        np.array(x),
        np.array([row.value for row in rows], dtype=np.float64),
        low,
        high,
        shape=_SHAPES[index],
        dash="--" if rows[0].metric == "main accuracy" else "-",
        bars=True,
    )


def _baseline(points: Sequence[_Point]) -> tuple[Level, ...]:
    baselines = [point.row.baseline for point in points if point.row.baseline is not None]
    return (Level("baseline", float(np.median(baselines))),) if baselines else ()


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
        ", ".join(part for part in (key if several or len(key) == 1 else key[1:]) if part): sorted(
            of, key=lambda p: p.at
        )
        for key, of in groups.items()
    }


def _placed(values: Iterable[float], log: bool) -> dict[float, float]:
    """Return where values are drawn: on a log axis zero is put left of the least of the others."""
    positive = [value for value in values if value > 0]
    least = min(positive, default=1.0)
    return {value: value if value > 0 or not log else least / 10 for value in values}


def _across(axis: Axis, placed: Mapping[float, float]) -> chart.Axis:
    say = {place: f"{axis.label}: {value:g}" for value, place in placed.items()}.get
    places = list(placed.values())
    if not axis.log:
        return chart.linear(axis.label, places, lambda v: say(v) or f"{v:g}")
    across = chart.logarithmic(axis.label, places, lambda v: say(v) or f"{v:g}")
    nothing = placed.get(0.0)
    if nothing is None:
        return across
    ticks = [(place, text) for place, text in across.ticks if place > 3 * nothing]
    return replace(across, ticks=((nothing, "none"), *ticks))


def roc(rows: Sequence[Row], outcomes: Sequence[Outcome], cells: Sequence[Cell]) -> list[Drawing]:
    """Return the curves of members against others, all seeds together, on two log axes.

    Parameters
    ----------
    rows : sequence of Row
        The strongest of each cell, pooled.
    outcomes : sequence of Outcome
    cells : sequence of Cell

    Returns
    -------
    list of Drawing
        One for each attack that ranks.
    """
    numbers = keys_of(cells)
    by_attack: dict[str, dict[int, tuple[Row, Ranking]]] = {}
    for row in rows:
        if row.too_few:
            continue
        number = numbers[key_of(row)]
        ranked = _ranked(row.metric, [outcome for outcome in outcomes if outcome.number == number])
        if ranked is not None:
            by_attack.setdefault(row.attack, {}).setdefault(number, (row, ranked))
    return [
        _roc(attack, list(of.values()), f"members-{attack}") for attack, of in by_attack.items()
    ]


def _ranked(metric: str, outcomes: Sequence[Outcome]) -> Ranking | None:
    units = [outcome.units[metric] for outcome in outcomes if metric in outcome.units]
    ranked = [outcome for outcome in units if isinstance(outcome, Ranking)]
    return ranked[0].pooled(ranked[1:]) if ranked else None


def _roc(attack: str, ranked_rows: Sequence[tuple[Row, Ranking]], name: str) -> Drawing:
    differing = differences({row.setting for row, _ in ranked_rows})
    shared = len({row.protection for row, _ in ranked_rows}) == 1 and len(differing) > 1
    rates, lines = [], []
    # Where it counts, at few false alarms, names and lines have one order.
    ordered = sorted(ranked_rows, key=lambda pair: -_found(pair[1]))
    for index, (row, ranked) in enumerate(ordered[: len(_COLOURS)]):
        false, true = roc_points(ranked)
        protection = "" if shared else row.protection
        label = ", ".join(filter(None, (protection, differing[row.setting])))
        at, up = np.maximum(false, _LEAST_RATE), np.maximum(true, _LEAST_RATE)
        kept = _apart(at, up)
        lines.append(Series(_short(label), _COLOURS[index], at[kept], up[kept]))
        rates.append(f"{label}: {_found(ranked):.1%} (epsilon {epsilon_text(row)})")
    diagonal = np.array([_LEAST_RATE, 1.0])
    lines.append(Series("guessing", "muted", diagonal, diagonal, shape="", dash=":"))
    across, upward = (
        replace(chart.logarithmic(f"{which}-positive rate", diagonal, say), low=_LEAST_RATE, high=1)
        for which, say in (("false", lambda v: f"false {v:.2%}"), ("true", lambda v: f"{v:.1%}"))
    )
    hidden = len(ranked_rows) - len(rates)
    more = f" {hidden} more cells are in the table alone." if hidden > 0 else ""
    says = (
        "How many members are found, upwards, at how many others taken for members, to the right; "
        "on the dotted line the attack guesses. What counts is the left: few false alarms."
    )
    caption = f"{says} Found at 1 % false alarms: {'; '.join(rates)}.{more}"
    title = f"Members found: {attack}"
    chart_of = Chart(across, upward, tuple(lines), ends=True)
    return Drawing(name, title, caption, f"{title}. {says}", chart_of)


def _found(ranked: Ranking) -> float:
    """Return the true-positive rate at 1 % false positives."""
    false, true = roc_points(ranked)
    return float(np.max(true[false <= 0.01], initial=0.0))


def _apart(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return which points of a curve on two log axes differ on a screen, the last one too."""
    places = np.round(_STEPS * np.log([x, y]) / -math.log(_LEAST_RATE))
    moved = np.any(np.diff(places, axis=1) != 0, axis=0)
    return np.concatenate(([True], moved | (np.arange(moved.size) == moved.size - 1)))


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


def _short(label: str) -> str:
    """Return a label that is not too long for a key."""
    return label if len(label) <= _LABEL_CHARACTERS else label[: _LABEL_CHARACTERS - 1] + "…"
