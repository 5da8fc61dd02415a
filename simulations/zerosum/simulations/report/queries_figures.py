"""Lay out the picture of each answer: places in percent of the width, and text as text.

No drawing library: bars and lines are placed in percent, so that a picture is as wide as its page
and its letters keep their size. What is not finite has no place and is left out.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final

import numpy as np

from zerosum.client.queries.schema import OTHER, IntegerColumn, NumberColumn, Schema
from zerosum.server.analytics.released_answer import Axis, Reals
from zerosum.simulations.report.places import Scale, number_at, ticks
from zerosum.simulations.report.queries_curve import Curve, curve
from zerosum.simulations.report.queries_record import AnswerRecord
from zerosum.simulations.report.queries_shapes import (
    Bar,
    Bars,
    Column,
    Columns,
    Mark,
    Strip,
    Strips,
)

BARS_SHOWN: Final = 24
"""Bars in one picture where there is no order to keep: the largest."""

GROUPED: Final = 48
"""Cells of a cross-tab that are all drawn, in their order."""

COLUMNS_SHOWN: Final = 160
"""Cells of an ordered column that are all drawn, as upright bars: two pixels each on a phone."""

_LABEL_LENGTH: Final = 18
"""Letters of a label below upright bars."""

_ENLARGED_BELOW: Final = 0.08
"""Part of the width below which an interval is drawn a second time, enlarged."""


Figure = Bars | Columns | Strips | Curve

PLOT_HEIGHT: Final = 190.0
"""Height of the upright bars in pixels; 20 above it are for the highest number."""


def figures(answer: AnswerRecord, domains: Schema | None) -> list[Figure]:
    """Return the pictures of an answer.

    Parameters
    ----------
    answer : AnswerRecord
        Of any kind.
    domains : Schema or None
        The declared domains, where they are known.

    Returns
    -------
    list of Bars, Columns, Strips or Curve
        Empty where there is nothing to draw.
    """
    match answer.kind:
        case "count" | "mean" | "sum" | "variance":
            return [_strips(answer, domains)] if np.isfinite(answer.values).all() else []
        case "quantile":
            drawn = curve(answer, domains)
            return [drawn] if drawn else []
        case "words":
            return [_words(answer)] if answer.values.size else []
        case "bayes":
            return [_prior(answer)]
    return [_table(answer, axes, where) for axes, where in answer.parts() if axes]


def between(answer: AnswerRecord, place: int) -> str:
    """Return an interval in words, its ends rounded outward.

    Parameters
    ----------
    answer : AnswerRecord
        Of any kind.
    place : int
        Of the cell.

    Returns
    -------
    str
    """
    low, high, unit = answer.low[place], answer.high[place], answer.std[place]
    if not np.isfinite([low, high]).all():
        return "no interval: too few records"
    return f"{number_at(low, unit, math.floor)} to {number_at(high, unit, math.ceil)}"


def cell_names(axes: Sequence[Axis]) -> Iterator[tuple[str, ...]]:
    """Yield the labels of a table's cells, in the order of its values."""
    return product(*(axis.labels for axis in axes))


def _mark(answer: AnswerRecord, place: int, scale: Scale) -> Mark:
    value = float(answer.values[place])
    ends = sorted((0.0, value))
    return Mark(
        scale.percent(ends[0]),
        scale.width(*ends),
        scale.percent(value),
        scale.percent(float(answer.low[place])),
        scale.percent(float(answer.high[place])),
    )


def _scale(answer: AnswerRecord, places: Sequence[int], *others: float) -> Scale:
    drawn = [each[list(places)] for each in (answer.values, answer.low, answer.high)]
    known = np.concatenate([*drawn, np.array([0.0, *others])])
    known = known[np.isfinite(known)]
    return Scale(float(known.min()), float(known.max()))


def _bars(
    answer: AnswerRecord,
    title: str,
    caption: str,
    rows: Sequence[tuple[str, str, int]],
    threshold: float = math.nan,
) -> Bars:
    """Draw rows of group, label and place."""
    scale = _scale(answer, [place for _, _, place in rows], threshold)
    bars, last = [], ""
    for group, label, place in rows:
        figure = number_at(answer.values[place], answer.std[place])
        mark = _mark(answer, place, scale)
        heading = group if group != last else ""
        bars.append(Bar(heading, label, figure, between(answer, place), mark))
        last = group
    return Bars(title, caption, tuple(bars), scale.percent(0.0), scale.percent(threshold))


def _table(answer: AnswerRecord, axes: tuple[Axis, ...], where: slice) -> Figure:
    names = [*cell_names(axes)]
    title, first = " × ".join(axis.name for axis in axes), where.start
    noun = f"{len(names):,} cells"
    explained = f"Lines: {_intervals(answer)}."
    if len(axes) == 1 and _upright(axes[0].labels):
        return _columns(answer, title, f"{noun} in their order. {explained}", names, first)
    if len(axes) == 2 and len(names) <= GROUPED:
        rows = [(name[0], name[1], first + i) for i, name in enumerate(names)]
        return _bars(answer, title, f"All {noun}. {explained}", rows)
    if len(names) <= BARS_SHOWN:
        rows = [("", " × ".join(name), first + i) for i, name in enumerate(names)]
        return _bars(answer, title, f"All {noun}. {explained}", rows)
    order = np.argsort(-answer.values[where], kind="stable")[:BARS_SHOWN]
    rows = [("", " × ".join(names[i]), first + int(i)) for i in order]
    largest = f"The {BARS_SHOWN} largest of {noun}, by their noisy counts."
    return _bars(answer, title, f"{largest} {explained}", rows)


def _intervals(answer: AnswerRecord) -> str:
    return f"intervals of {100 * answer.level:g} %, each on its own"


def _upright(labels: Sequence[str]) -> bool:
    """Return whether labels are those of many numbers in order, short enough to stand below."""
    own = [label for label in labels if label != OTHER]
    short = all(len(label) <= _LABEL_LENGTH for label in own)
    return 8 < len(own) <= COLUMNS_SHOWN and short and all(map(_is_number, own))


def _is_number(label: str) -> bool:
    try:
        return math.isfinite(float(label.split("..")[0]))
    except ValueError:
        return False


def _columns(
    answer: AnswerRecord,
    title: str,
    caption: str,
    names: Sequence[tuple[str, ...]],
    first: int,
) -> Columns:
    places = range(first, first + len(names))
    scale, share = _scale(answer, places), 100 / len(names)

    def down(value: float) -> float:
        return round(20 + PLOT_HEIGHT * (1 - scale.part(value)), 2)

    columns, zero = [], down(0.0)
    for i, place in enumerate(places):
        value = float(answer.values[place])
        ends = sorted((zero, down(value)))
        figure = number_at(value, answer.std[place])
        columns.append(
            Column(
                f"{share * (i + 0.1):.3f}%",
                f"{share * 0.8:.3f}%",
                f"{share * (i + 0.5):.3f}%",
                ends[0],
                round(ends[1] - ends[0], 2),
                down(float(answer.low[place])),
                down(float(answer.high[place])),
                f"{names[i][0]}: {figure} ({between(answer, place)})",
            )
        )
    largest = int(np.argmax(answer.values[places.start : places.stop]))
    return Columns(
        title,
        caption,
        f"Upright bars, {len(names)} values of {title}; the highest is {columns[largest].words}.",
        tuple(columns),
        tuple((number_at(tick, 1), down(tick)) for tick in ticks(scale.low, scale.high)),
        tuple(_below([name[0] for name in names])),
        zero,
    )


def _below(labels: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield as many labels as a phone has room for, the first and the last among them."""
    number = 5 if max(map(len, labels)) <= 7 else 3
    places = np.unique(np.linspace(0, len(labels) - 1, number).round().astype(int))
    for i in places.tolist():
        anchor = "start" if i == 0 else "end" if i == len(labels) - 1 else "middle"
        at = {"start": 0.0, "end": 100.0}.get(anchor, 100 * (i + 0.5) / len(labels))
        yield labels[i], f"{at:.3f}%", anchor


def _words(answer: AnswerRecord) -> Bars:
    axis, least = answer.tables[0][0], float(answer.document["threshold"])
    shown = axis.labels[:BARS_SHOWN]
    rows = [("", word, place) for place, word in enumerate(shown)]
    many = f"The {len(shown)} most frequent of {len(axis.labels):,} words. "
    caption = (
        f"{many if len(shown) < len(axis.labels) else ''}Lines: {_intervals(answer)}. The dashed "
        f"line is the threshold: {least:,.0f} records, which noise alone reaches for any word that "
        f"nobody has with a probability of {float(answer.document['invented']):g} at most, in all "
        "rounds together."
    )
    drawn = _bars(answer, axis.name, caption, rows, least)
    return Bars(
        drawn.title,
        caption,
        drawn.bars,
        drawn.zero,
        drawn.threshold,
        f"threshold: {least:,.0f}",
    )


def _prior(answer: AnswerRecord) -> Bars:
    """Draw how many records each class has, summed over the cells of the first feature."""
    from zerosum.server.analytics.noise_law import ReleasedNoise

    axes, where = next(answer.parts())
    law = answer.document["noise"]
    cells = len(axes[1].labels)
    noise = ReleasedNoise(law["law"], law["scale"], law["shares_ratio"]).summed(cells)
    counts: Reals = answer.values[where].reshape(len(axes[0].labels), cells).sum(axis=1)
    half = noise.half_width(answer.level)
    summed = AnswerRecord(
        answer.name,
        answer.sentence,
        answer.document,
        ((axes[0],),),
        counts,
        np.full(counts.size, noise.std),
        np.maximum(counts - half, 0),
        np.maximum(counts + half, 0),
    )
    rows = [("", label, place) for place, label in enumerate(axes[0].labels)][:BARS_SHOWN]
    caption = (
        f"Records of each class, from the table with {axes[1].name}. Lines: {_intervals(answer)}. "
        "The classifier takes their parts for the classes' probabilities before any feature is "
        f"known; {OTHER} is no class."
    )
    return _bars(summed, f"{axes[0].name}: the prior", caption, rows)


def _strips(answer: AnswerRecord, domains: Schema | None) -> Strips:
    """Draw a single number: a bar from 0, or a point between its declared bounds."""
    value, low, high = (float(each[0]) for each in (answer.values, answer.low, answer.high))
    unit = float(answer.std[0])
    declared = _declared(answer, domains)
    scale = Scale(*declared) if declared else _scale(answer, [0])
    ends = _ends(scale, unit)
    mark = _mark(answer, 0, scale)
    note = "between the declared bounds" if declared else "from 0"
    strips = [Strip(mark, *ends, note, declared is None)]
    if high > low and (high - low) / (scale.high - scale.low) < _ENLARGED_BELOW:
        reach = max(high - value, value - low) * 1.4
        near = Scale(value - reach, value + reach)
        strips.append(Strip(_mark(answer, 0, near), *_ends(near, unit), "enlarged", filled=False))
    column = answer.document["query"].get("column")
    title = answer.kind if column is None else f"{answer.kind} of {column}"
    caption = (
        f"Line: an interval of {100 * answer.level:g} %. Standard error "
        f"{number_at(unit, unit)}{_of_records(answer)}."
    )
    figure = number_at(value, unit)
    return Strips(title, caption, figure, between(answer, 0), tuple(strips))


def _ends(scale: Scale, unit: float) -> tuple[str, str]:
    return number_at(scale.low, unit, math.floor), number_at(scale.high, unit, math.ceil)


def _of_records(answer: AnswerRecord) -> str:
    records = answer.document.get("records")
    if records is None or answer.kind == "count":
        return ""
    return f"; about {max(0, round(float(records))):,} records"


def _declared(answer: AnswerRecord, domains: Schema | None) -> tuple[float, float] | None:
    """Return what a mean or a variance could be: from the declared bounds of its column."""
    column = (
        None if domains is None else domains.columns.get(answer.document["query"].get("column"))
    )
    if not isinstance(column, IntegerColumn | NumberColumn):
        return None
    if answer.kind == "mean":
        return float(column.low), float(column.high)
    # No values within bounds vary more than half of them at either (Popoviciu 1935).
    return (0.0, (column.high - column.low) ** 2 / 4) if answer.kind == "variance" else None
