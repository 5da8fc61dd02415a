"""Format the table of attack by protection: figure, interval, baseline, epsilon."""

import math
import re
from collections.abc import Sequence
from typing import Protocol

from zerosum.server.privacy import rounding
from zerosum.simulations.attacks.harness.results import PARTLY, Row
from zerosum.simulations.terminal.printable import printable

COLUMNS = (
    *("setting", "protection", "metric", "figure [95 %]"),
    *("units", "baseline", "epsilon", "attacker"),
)


def figure_text(row: Row) -> str:
    """Format a figure with its interval, or the reason why there is none.

    Parameters
    ----------
    row : Row
        Of fewer units than say something no figure is shown.

    Returns
    -------
    str
        Text of the cell.
    """
    if row.value is None:
        return f"{row.status}: {row.note}" if row.note else row.status
    if row.status == "stopped":
        return f"at baseline: {row.note}"
    partly = f" ({row.status}: {row.note})" if row.status.startswith(PARTLY) else ""
    if row.too_few:
        return f"too few units{partly}"
    value = f"{value_text(row)} {_interval(row)}"
    if not row.at_baseline or partly:
        return f"{value}{partly}"
    of = f" in {seeds_text(row)}" if row.few_seeds else ""
    return f"at baseline{of} ({value})"


def value_text(row: Row) -> str:
    """Format the figure alone; empty where there is none, or of too few units."""
    if row.value is None or row.too_few:
        return ""
    return f"{_number(row.value)}{_unit(row)}"


def seeds_text(row: Row) -> str:
    """Return how many seeds a figure is of: "1 seed"."""
    return f"{row.seeds} seed{'s' * (row.seeds > 1)}"


def interval_text(row: Row) -> str:
    """Format the interval of a figure."""
    return _interval(row)


def count_text(row: Row) -> str:
    """Format the number of units behind a figure."""
    return f"{row.count:,}" if row.count else "–"


def epsilon_text(row: Row) -> str:
    """Return epsilon beside a figure: "∞" without noise, "–" where none could be meant."""
    if row.epsilon is None:
        return "–"
    return rounding.epsilon_text(row.epsilon)


def baseline_text(row: Row) -> str:
    """Format the figure of the baseline."""
    if row.baseline is None or row.too_few:
        return "–"
    return f"{_number(row.baseline)}{_unit(row)}"


def threats_text(rows: Sequence[Row]) -> str:
    """Name the attackers of these rows."""
    return ", ".join(dict.fromkeys(row.threat for row in rows))


def attacker_text(row: Row, rows: Sequence[Row]) -> str:
    """Return what a row's attacker uses; and who it is, where that differs among its table's.

    Parameters
    ----------
    row : Row
    rows : sequence of Row
        The whole table.

    Returns
    -------
    str
        Text of the cell.
    """
    several = len({other.threat for other in rows}) > 1
    return f"{row.threat}: {row.adaptive}" if several else row.adaptive


class Sentence(Protocol):
    """What is said of an attack: see :class:`~.sentences.Finding`."""

    @property
    def attack(self) -> str:
        """Return its name."""
        ...

    @property
    def text(self) -> str:
        """Return one sentence."""
        ...


_SECONDS = re.compile(r"(\d[\d,]*) CPU s\b")
"""A cost in a note."""


def notes_of(rows: Sequence[Row]) -> list[str]:
    """Return what attackers had to say of figures: once, where notes differ in their cost alone.

    Parameters
    ----------
    rows : sequence of Row

    Returns
    -------
    list of str
        Costs as their range: "5 to 41 CPU s".
    """
    found: dict[str, list[str]] = {}
    for row in rows:
        if row.note and row.status == "value":
            found.setdefault(_SECONDS.sub("CPU s", row.note), []).append(row.note)
    return [_merged(notes) for notes in found.values()]


def _merged(notes: Sequence[str]) -> str:
    """Return a note with each of its costs from the least to the largest of all notes."""
    costs = zip(*([m[1] for m in _SECONDS.finditer(note)] for note in notes), strict=True)
    ranges = []
    for texts in costs:
        least, most = (pick(texts, key=lambda t: int(t.replace(",", ""))) for pick in (min, max))
        ranges.append(f"{least} CPU s" if least == most else f"{least} to {most} CPU s")
    return _SECONDS.sub(lambda match: ranges.pop(0), notes[0])


def to_markdown(
    rows: Sequence[Row], title: str, notes: str, sentences: Sequence[Sentence] = ()
) -> str:
    """Return ``table.md``: one table an attack, a line a setting and metric.

    Parameters
    ----------
    rows : sequence of Row
        The strongest of each cell, pooled.
    title, notes : str
        Its heading, and what it says of how it was made.
    sentences : sequence of Sentence
        One an attack.

    Returns
    -------
    str
        The file's text.
    """
    parts = [f"# {title}", notes]
    said = {each.attack: each.text for each in sentences}
    for attack in dict.fromkeys(row.attack for row in rows):
        of = [row for row in rows if row.attack == attack]
        parts.append(_attack_table(of, said.get(attack, "")))
    return "\n\n".join(parts) + "\n"


def _attack_table(rows: Sequence[Row], said: str) -> str:
    lines = [f"## {_escaped(rows[0].attack)}", "", f"Threat: {_escaped(threats_text(rows))}.", ""]
    lines += [_escaped(said), ""] if said else []
    lines += [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    for row in rows:
        cells = (
            row.setting,
            row.protection,
            row.metric,
            figure_text(row),
            count_text(row),
            baseline_text(row),
            epsilon_text(row),
            attacker_text(row, rows),
        )
        lines.append("| " + " | ".join(_escaped(cell) for cell in cells) + " |")
    return "\n".join([*lines, *(f"\n{_escaped(note)}" for note in notes_of(rows))])


def _escaped(text: str) -> str:
    """Return text of one line that is no markup, in a table's cell or outside of one."""
    return "".join(f"\\{c}" if c in "\\|<`#" else c for c in printable(text))


def _interval(row: Row) -> str:
    if row.low is None or row.high is None or math.isinf(row.high - row.low):
        return "[no interval: one unit]"
    return f"[{_number(row.low)}, {_number(row.high)}]"


def _unit(row: Row) -> str:
    return f" {row.unit}" if row.unit else ""


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
