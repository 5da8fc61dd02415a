"""Lay out the distribution that an answer to quantiles was read from, with its band."""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from zerosum.client.queries.schema import IntegerColumn, NumberColumn, Schema
from zerosum.server.analytics.intervals import deviation_half_widths
from zerosum.server.analytics.noise_law import ReleasedNoise
from zerosum.server.analytics.quantiles import LeafCounts, excess_rank_deviations, leaf_counts
from zerosum.server.analytics.released_answer import Reals
from zerosum.simulations.report.places import Scale, number_at
from zerosum.simulations.report.queries_record import AnswerRecord

TOP, HEIGHT = 20.0, 220.0
"""Pixels above the curve, and of the curve."""

_SIDE: Final = 1000.0
"""Units of a path, in either direction."""

_POINTS: Final = 240
"""Of the path, at most."""

_TAIL: Final = 0.005
"""Part of the records left out on either side: the domain may be far wider than the records."""

_LABELS: Final = 9
"""Quantiles with a label: more would cover each other."""


class QuantileMark(NamedTuple):
    """Places of a quantile: percent across, pixels from the top; ``anchor`` is of its label."""

    low: str
    high: str
    point: str
    y: float
    label: str
    anchor: str
    dx: int
    dy: int


@dataclass(frozen=True)
class Curve:
    """A cumulative distribution with its band, and the quantiles that were asked for."""

    title: str
    caption: str
    alt: str
    line: str
    band: str
    marks: tuple[QuantileMark, ...]
    ticks: tuple[tuple[str, float], ...]
    ends: tuple[str, str]
    kind: str = "curve"


def curve(answer: AnswerRecord, domains: Schema | None) -> Curve | None:
    """Draw the curve of an answer to quantiles.

    Parameters
    ----------
    answer : AnswerRecord
        Of kind ``quantile``.
    domains : Schema or None
        Without its column's domain there is no curve.

    Returns
    -------
    Curve or None
        None where too few records were counted.
    """
    query, law = answer.document["query"], answer.document["noise"]
    column = None if domains is None else domains.columns.get(query["column"])
    if not isinstance(column, IntegerColumn | NumberColumn) or law is None:
        return None
    noise = ReleasedNoise(law["law"], law["scale"], law["shares_ratio"])
    leaves = leaf_counts(np.array(answer.document["noisy"], dtype=np.int64), noise, column)
    if leaves.too_few or not np.isfinite(answer.values).all():
        return None
    part, half = _band(leaves, answer.level)
    scale = _window(answer, leaves, part)
    places = leaves.highs if leaves.integers else np.append(leaves.lows[:1], leaves.highs)
    part, half = (part[1:], half[1:]) if leaves.integers else (part, half)
    inside = np.flatnonzero((places >= scale.low) & (places <= scale.high))
    inside = inside[:: max(1, -(-inside.size // _POINTS))]
    x, middle, width = places[inside], part[inside], half[inside]
    if leaves.integers and inside.size <= _POINTS / 2:  # a step at each integer
        x, middle, width = np.repeat(x, 2)[1:], np.repeat(middle, 2)[:-1], np.repeat(width, 2)[:-1]
    rounded = number_at(scale.low, 0), number_at(scale.high, 0)
    declared = f"{number_at(column.low, 0)} to {number_at(column.high, 0)}"
    caption = (
        f"Part of the records at or below each {query['column']}. The shaded band and the bold "
        f"lines are intervals of {100 * answer.level:g} %, each on its own. Drawn from "
        f"{rounded[0]} to {rounded[1]}, where the records are; declared are {declared}."
    )
    marks = tuple(_marks(answer, scale))
    alt = f"Cumulative distribution of {query['column']}; {'; '.join(m.label for m in marks)}."
    upper, lower = _line(scale, x, middle + width), _line(scale, x[::-1], (middle - width)[::-1])
    return Curve(
        f"Distribution of {query['column']}",
        caption,
        alt,
        f"M{_line(scale, x, middle)}",
        f"M{upper} L{lower} Z",
        marks,
        tuple((f"{25 * i} %", _down(i / 4)) for i in range(1, 5)),
        rounded,
    )


def _band(leaves: LeafCounts, level: float) -> tuple[Reals, Reals]:
    """Return the part of the records below each boundary, and half the width of its interval.

    The error of F/N at a boundary is that of G = F - q N over N, at q = F/N. The variance of G is a
    quadratic function of q there, known from three values of q.
    """
    below = np.concatenate(([0.0], np.cumsum(leaves.counts)))
    part = np.clip(below / leaves.records, 0.0, 1.0)
    at = [excess_rank_deviations(leaves.parents, leaves.spreads, q) ** 2 for q in (0.0, 0.5, 1.0)]
    curved = 2 * (at[0] - 2 * at[1] + at[2])
    slope = at[2] - at[0] - curved
    variance = np.maximum(0.0, at[0] + slope * part + curved * part**2)
    deviations = np.sqrt(variance) * leaves.noise.std
    return part, deviation_half_widths(leaves.noise, deviations, level) / leaves.records


def _window(answer: AnswerRecord, leaves: LeafCounts, part: Reals) -> Scale:
    """Return the ends between which nearly all records and all intervals are."""
    first = int(np.argmax(part[1:] >= _TAIL))
    last = part.size - 2 - int(np.argmax(part[-2::-1] <= 1 - _TAIL))
    low = min(float(leaves.lows[first]), float(answer.low.min()))
    high = max(float(leaves.highs[last]), float(answer.high.max()))
    return Scale(low, high) if high > low else Scale(low - 1, high + 1)


def _marks(answer: AnswerRecord, scale: Scale) -> list[QuantileMark]:
    levels = answer.document["query"]["q"]
    named = set(range(0, len(levels), -(-len(levels) // _LABELS)))
    marks = []
    for i, q in enumerate(levels):
        place = scale.part(float(answer.values[i]))
        right = place <= 0.6
        name = "median" if q == 0.5 else f"{q:g}"
        marks.append(
            QuantileMark(
                scale.percent(float(answer.low[i])),
                scale.percent(float(answer.high[i])),
                scale.percent(float(answer.values[i])),
                _down(q),
                f"{name}: {number_at(answer.values[i], answer.std[i])}" if i in named else "",
                "start" if right else "end",
                10 if right else -10,
                (15 if q >= 0.08 else -2) if right else -8,
            )
        )
    return marks


def _down(part: float) -> float:
    return round(TOP + HEIGHT * (1 - part), 2)


def _line(scale: Scale, x: Reals, y: Reals) -> str:
    points = (
        f"{_SIDE * scale.part(float(a)):.1f} {_SIDE * (1 - min(1.0, max(0.0, float(b)))):.1f}"
        for a, b in zip(x, y, strict=True)
    )
    return " L".join(points)
