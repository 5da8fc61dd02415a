"""One run of the attacks: from cells to a folder with rows, table and report."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from zerosum.client.store import replace_file
from zerosum.server.config import ConfigError
from zerosum.server.runs import check_unused
from zerosum.simulations.attacks.harness import Cell, Outcome, play_all
from zerosum.simulations.attacks.report.page import write_attack_report
from zerosum.simulations.attacks.results import Row, rows_of, shown, to_csv
from zerosum.simulations.attacks.table import to_markdown
from zerosum.simulations.logs import logged

ROWS, TABLE, LOG = "results.csv", "table.md", "attacks.log"

_NOTES = (
    "Each figure is of all seeds together, with the interval that holds it with 95 %. The baseline "
    "is the same figure of a guess without what is attacked; a figure that is not above it is "
    '"at baseline". Epsilon is what the ledger says of what the attacker saw: ∞ without noise. Of '
    "attackers that differ in what they use, the strongest is shown; all are in results.csv."
)


@dataclass(frozen=True)
class AttackFolder:
    """A folder that belongs to one run of attacks."""

    path: Path

    @classmethod
    def create(cls, path: Path) -> "AttackFolder":
        """Make a new folder.

        Raises
        ------
        ConfigError
            If the path is a file or a folder that is not empty, or cannot be written.
        """
        check_unused(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"--out {path} cannot be written: {error.strerror}") from None
        return cls(path)

    def write(self, name: str, text: str) -> None:
        """Write a file whole, or not at all."""
        replace_file(self.path / name, text.encode())


def run_attacks(
    cells: Sequence[Cell],
    seeds: Sequence[int],
    workers: int,
    folder: AttackFolder,
    on_outcome: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Row]:
    """Play cells and write what came of them, also where it is interrupted.

    Returns
    -------
    list of Row
        Of every seed and pooled, by cell.
    """
    found: list[Outcome] = []

    def keep(outcome: Outcome) -> None:
        found.append(outcome)
        on_outcome(outcome)

    try:
        with logged("zerosum", folder.path / LOG):
            play_all(cells, seeds, workers, keep, folder.path / LOG)
    finally:
        found.sort(key=lambda outcome: (outcome.number, outcome.seed))
        rows = rows_of(cells, found)
        _write(folder, cells, found, rows)
    return rows


def _write(
    folder: AttackFolder, cells: Sequence[Cell], found: Sequence[Outcome], rows: Sequence[Row]
) -> None:
    folder.write(ROWS, to_csv(rows))
    folder.write(TABLE, to_markdown(shown(cells, rows), "Attacks", _NOTES))
    write_attack_report(folder.path, rows, found, cells)
