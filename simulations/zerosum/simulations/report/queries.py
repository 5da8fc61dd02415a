"""Fill the page of queries: answers, pictures, epsilons, the budget, what they do not claim."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from zerosum.client.files.durable_append import replace_file
from zerosum.server.analytics.query_files import CELLS
from zerosum.server.analytics.query_spending import QueryCost, QuerySpending
from zerosum.server.privacy.observers import OBSERVERS
from zerosum.server.privacy.rounding import epsilon_text, remainder_text
from zerosum.server.runs.run_folder import REPORT
from zerosum.simulations.report import queries_words
from zerosum.simulations.report.html import fill
from zerosum.simulations.report.places import Scale, number_at
from zerosum.simulations.report.queries_figures import between, cell_names, figures
from zerosum.simulations.report.queries_record import (
    AnswerRecord,
    QueryRecord,
    read_queries,
)

_ROWS_SHOWN: Final = 200
"""Cells of one answer in its table, the largest; its CSV file has all of them."""

_SEGMENTS_SHOWN: Final = 40
"""Queries with a part of their own in the bar of the budget; the cheapest share one."""

_COLOURS: Final = ("accent", "part1", "part3", "lost1", "kept")
"""Of the budget's parts, in turns: each is told from the page in light and dark."""


class Segment(NamedTuple):
    """One query's part of the budget's bar: places in percent, colour and words."""

    x: str
    width: str
    colour: str
    name: str
    cost: str


def write_query_report(folder: Path) -> Path:
    """Write ``report.html`` into a folder of queries, whole or not at all.

    Nothing but the folder's files is read, so that it can be called again at any time.

    Parameters
    ----------
    folder : Path
        With a ledger of queries.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    ConfigError
        If the ledger, the plan or the answers are damaged.
    """
    page = render_queries(read_queries(folder))
    replace_file(folder / REPORT, page.encode(errors="backslashreplace"))
    return folder / REPORT


def render_queries(record: QueryRecord) -> str:
    """Fill the page with all that a record says.

    Parameters
    ----------
    record : QueryRecord
        Of a folder.

    Returns
    -------
    str
        HTML.
    """
    return fill(
        "zerosum.simulations.report",
        "queries.html",
        title=record.name,
        run=record,
        words=queries_words,
        epsilon_text=epsilon_text,
        observers=OBSERVERS,
        sections=[_section(record, answer) for answer in record.answers],
        segments=[*_segments(record.spending)],
        costs=[*_costs(record)],
        beliefs=[*_beliefs(record)],
        receipts=[_receipt(answer) for answer in record.answers],
    )


def _section(record: QueryRecord, answer: AnswerRecord) -> dict[str, Any]:
    """Return what the page shows of one answer."""
    order = np.argsort(-answer.values, kind="stable")[:_ROWS_SHOWN]
    cells = answer.values.size
    places = range(cells) if cells <= _ROWS_SHOWN else sorted(order.tolist())
    rows = _labels(answer)
    return {
        "name": answer.title,
        "sentence": answer.sentence,
        "clients": answer.clients,
        "figures": figures(answer, record.domains),
        "cells": cells,
        "headers": ["Of", "Estimate", "Standard error", f"{100 * answer.level:g} % interval"],
        "rows": [
            [
                rows[i],
                number_at(answer.values[i], answer.std[i]),
                number_at(answer.std[i], answer.std[i]),
                between(answer, i),
            ]
            for i in places
        ],
        "file": f"{CELLS}/{answer.name}.csv",
    }


def _labels(answer: AnswerRecord) -> list[str]:
    """Return the words of each cell: with its columns where there are several tables."""
    several = len(answer.tables) > 1
    return [
        ", ".join(f"{axis.name} {label}" for axis, label in zip(axes, name, strict=True))
        if several
        else " × ".join(name) or answer.kind
        for axes in answer.tables
        for name in cell_names(axes)
    ]


def _segments(spending: QuerySpending) -> Iterator[Segment]:
    """Yield the parts of the budget's bar: queries in order, then what is left.

    Composed exactly, queries cost less than the sum of each alone: the parts are in proportion.
    """
    spent = spending.spent
    alone = math.fsum(query.used for query in spending.queries)
    if not (0 < alone < math.inf and spent.limit > 0):
        return
    scale, start = Scale(0.0, max(spent.limit, spent.used)), 0.0
    for number, (name, used) in enumerate(_largest(spending.queries)):
        end = start + used / alone * spent.used
        colour = _COLOURS[number % len(_COLOURS)]
        yield Segment(
            scale.percent(start), scale.width(start, end), colour, name, epsilon_text(used)
        )
        start = end
    if spent.left > 0:
        rest = scale.width(start, spent.limit)
        yield Segment(scale.percent(start), rest, "", "left", remainder_text(spent.left))


def _largest(queries: tuple[QueryCost, ...]) -> Iterator[tuple[str, float]]:
    """Yield names and costs in order; of very many, the cheapest as one."""
    shown = sorted(range(len(queries)), key=lambda i: -queries[i].used)[:_SEGMENTS_SHOWN]
    for i in sorted(shown):
        yield queries[i].name, queries[i].used
    rest = [each.used for i, each in enumerate(queries) if i not in set(shown)]
    if rest:
        yield f"{len(rest)} cheaper ones", math.fsum(rest)


def _costs(record: QueryRecord) -> Iterator[list[str]]:
    """Yield a row for each query that was paid for."""
    found = {answer.name: answer.bounds for answer in record.answers}
    for each in record.spending.queries:
        bounds = found.get(each.name, {})
        figures = [epsilon_text(bounds[o].value) if o in bounds else "–" for o in OBSERVERS]
        sums = f"{each.sums:,}" + (f", {each.abandoned:,} given up" if each.abandoned else "")
        yield [each.name, sums, epsilon_text(each.used), *figures]


def _beliefs(record: QueryRecord) -> Iterator[dict[str, Any]]:
    """Yield the belief after each query, where its epsilon is pure."""
    line = Scale(0.0, 1.0)
    for name, epsilon in queries_words.beliefs(record):
        low, high = queries_words.posterior(epsilon)
        yield {
            "name": name,
            "epsilon": epsilon_text(epsilon),
            "words": queries_words.believed(epsilon),
            "low": line.percent(low),
            "high": line.percent(high),
            "point": line.percent(queries_words.PRIOR),
        }


def _receipt(answer: AnswerRecord) -> tuple[str, str]:
    return answer.title, json.dumps(answer.document["receipt"], indent=1)
