"""Keep what a benchmark in turns has measured where it is ended, marked as a part."""

import platform
from pathlib import Path

from zerosum.simulations.bench.process import Values, processor
from zerosum.simulations.terminal.signals import start_again
from zerosum.simulations.terminal.user_errors import is_standard_output, write_json


class MeasuredTurns:
    """Rows of the turns that are done, with the machine that they are of.

    Parameters
    ----------
    asked : int
        Turns in all.
    json_file : Path or None
        Where rows are written.
    """

    def __init__(self, asked: int, json_file: Path | None) -> None:
        self._asked, self._file = asked, json_file
        self._rows: list[Values] = []

    def keep(self, rows: list[Values]) -> None:
        """Take the rows as they are after a turn; each says of how many ``turns`` it is."""
        machine = {"processor": processor(), "python": platform.python_version()}
        self._rows = [{**row, "turns_asked": self._asked, **machine} for row in rows]

    def write(self) -> None:
        """Write the rows, if somewhere."""
        if self._file is not None:
            write_json(self._file, self._rows)

    def left(self) -> str:
        """Write what there is, and say so; last the command that starts again."""
        why = "Turns are compared with each other, so that none is gone on with."
        if not self._rows or self._file is None or is_standard_output(self._file):
            return start_again(f"Nothing is kept. {why}")
        self.write()
        turns = min(row["turns"] for row in self._rows)
        return start_again(f"The rows of {turns} of {self._asked} turns are in {self._file}. {why}")
