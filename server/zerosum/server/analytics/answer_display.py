"""Display an answer: its sentence for a terminal, and a table beside it for a notebook."""

import math
from typing import Any

from zerosum.server.analytics.released_answer import Answer
from zerosum.server.privacy.observers import OBSERVERS
from zerosum.server.privacy.rounding import epsilon_text
from zerosum.server.runs.displays import grid

LONGEST_CHARACTERS = 400
"""Of a sentence: one that names words of users' may be as long as they are."""

MOST_ROWS = 12
"""Rows of a table; to_frame() has all."""


def answer_line(answer: Answer) -> str:
    """Return an answer in one line: what was asked, the sentence, the cost."""
    sentence = answer.sentence()
    if len(sentence) > LONGEST_CHARACTERS:
        sentence = sentence[: LONGEST_CHARACTERS - 1] + "…"
    cost = _cost(answer)
    return f"Answer({answer.query.kind}: {sentence!r}{', ' + cost if cost else ''})"


def answer_html(answer: Answer) -> str:
    """Return an answer's sentence, its first rows and its cost in HTML."""
    rows = answer.rows()
    more = len(rows) - MOST_ROWS
    foot = [f"{more:,} more rows: to_frame() has all"] if more > 0 else []
    foot += [cost] if (cost := _cost(answer)) else []
    shown = [{name: _shown(value) for name, value in row.items()} for row in rows[:MOST_ROWS]]
    return grid(answer.sentence(), shown, "; ".join(foot))


def _cost(answer: Answer) -> str:
    finite = [o for o in OBSERVERS if o in answer.epsilon and answer.epsilon[o].finite]
    return ", ".join(f"epsilon_{o} {epsilon_text(answer.epsilon[o].value)}" for o in finite)


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if not isinstance(value, float):
        return str(value)
    if not math.isfinite(value):
        return "–"
    return f"{value:,.0f}" if value.is_integer() else f"{value:.4g}"
