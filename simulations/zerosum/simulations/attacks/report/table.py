"""Format the table of attack by protection: figure, interval, baseline, epsilon."""

import math
from collections.abc import Sequence

from zerosum.server.privacy import rounding
from zerosum.simulations.attacks.harness.results import PARTLY, Row
from zerosum.simulations.terminal.printable import printable

COLUMNS = (
    *("setting", "protection", "metric", "figure [95 %]"),
    *("units", "baseline", "epsilon", "attacker"),
)


def figure_text(row: Row) -> str:
    """Format a figure with its interval, or the reason why there is none."""
    if row.value is None:
        return f"{row.status}: {row.note}" if row.note else row.status
    value = f"{_number(row.value)}{_unit(row)} {_interval(row)}"
    if row.status.startswith(PARTLY):
        return f"{value} ({row.status}: {row.note})"
    if row.status == "stopped":
        return f"at baseline: {row.note}"
    if row.too_few:
        return f"too few units ({value})"
    return f"at baseline ({value})" if row.at_baseline else value


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
    return "–" if row.baseline is None else f"{_number(row.baseline)}{_unit(row)}"


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


def to_markdown(rows: Sequence[Row], title: str, notes: str) -> str:
    """Return ``table.md``: one table an attack, a line a setting and metric.

    Parameters
    ----------
    rows : sequence of Row
        The strongest of each cell, pooled.
    title, notes : str
        Its heading, and what it says of how it was made.

    Returns
    -------
    str
        The file's text.
    """
    parts = [f"# {title}", notes]
    for attack in dict.fromkeys(row.attack for row in rows):
        parts.append(_attack_table([row for row in rows if row.attack == attack]))
    return "\n\n".join(parts) + "\n"


def _attack_table(rows: Sequence[Row]) -> str:
    lines = [f"## {_escaped(rows[0].attack)}", "", f"Threat: {_escaped(threats_text(rows))}.", ""]
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
    notes = dict.fromkeys(row.note for row in rows if row.note and row.status == "value")
    return "\n".join([*lines, *(f"\n{_escaped(note)}" for note in notes)])


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
