"""Display the rows of attacks: a line for a terminal, the strongest' table in a notebook."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from zerosum.server.runs.displays import grid
from zerosum.simulations.attacks.harness.results import Row
from zerosum.simulations.attacks.report.table import (
    attacker_text,
    baseline_text,
    count_text,
    epsilon_text,
    figure_text,
)

MOST_ROWS = 40
"""Rows of a table; the report has all."""


class Rows(list[Row]):
    """Rows of every seed and pooled, by cell; a notebook shows the strongest of each cell.

    Parameters
    ----------
    rows : iterable of Row
        All.
    shown : sequence of Row
        Those of the table: pooled, of the strongest attackers.
    folder : Path
        With the report.
    """

    def __init__(self, rows: Iterable[Row], shown: Sequence[Row], folder: Path) -> None:
        super().__init__(rows)
        self.shown, self.folder = list(shown), folder

    def __repr__(self) -> str:
        """Return one line: all rows are pages."""
        attacks = len({row.attack for row in self})
        return f"Rows({len(self):,} rows, attacks: {attacks}, folder={str(self.folder)!r})"

    def _repr_html_(self) -> str:
        rows = [
            {
                "attack": row.attack,
                "setting": row.setting,
                "protection": row.protection,
                "metric": row.metric,
                "figure [95 %]": figure_text(row),
                "units": count_text(row),
                "baseline": baseline_text(row),
                "epsilon": epsilon_text(row),
                "attacker": attacker_text(row, [row]),
            }
            for row in self.shown[:MOST_ROWS]
        ]
        more = len(self.shown) - MOST_ROWS
        left = f"{more} more rows; " if more > 0 else ""
        return grid("Attacks", rows, f"{left}the report is in {self.folder}")
