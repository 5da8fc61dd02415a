"""The folder of a sweep: its cells as they were asked for, their runs, and a table of them all."""

import csv
import io
import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zerosum.client.files.durable_append import replace_file
from zerosum.client.files.file_errors import reason
from zerosum.client.files.file_lock import HeldError, held_alone
from zerosum.client.files.private_files import OpenToOthersError
from zerosum.server.config import ConfigError, parse_experiment, to_values
from zerosum.server.privacy.observers import OBSERVERS
from zerosum.server.runs.records import METRIC_PREFIXES, Summary
from zerosum.server.runs.run_folder import CONFIG, LOCK, METRICS, REPORT, SUMMARY, RunFolder
from zerosum.simulations.sweeps.grid import Cell, shown

MANIFEST = "sweep.json"
CELLS = "cells"
LOGS = "logs"
TABLE = "sweep.csv"
FORMAT = 1

COMPLETED, FAILED, OPEN = "completed", "failed", "open"
"""Status of a cell: it is over; it failed; it is to be done yet, or goes on."""


@dataclass(frozen=True)
class SweepFolder:
    """A folder that belongs to one sweep.

    Attributes
    ----------
    path : Path
        Of the folder.
    cells : tuple of Cell
        As asked for.
    """

    path: Path
    cells: tuple[Cell, ...]
    # Of cells that are over, whose summaries do not change: the table is written after each cell.
    _read: dict[str, Summary] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def claim(cls, path: Path, cells: Sequence[Cell]) -> "SweepFolder":
        """Make the folder of a sweep, or take up the one that has these very cells.

        Parameters
        ----------
        path : Path
            New, empty, or of that sweep.
        cells : sequence of Cell
            As asked for.

        Returns
        -------
        SweepFolder
            With its manifest.

        Raises
        ------
        ConfigError
            If the path holds something else.
        """
        if (path / MANIFEST).is_file():
            found = cls.open(path)
            if found.cells != tuple(cells):
                raise ConfigError(
                    f"--out {path} holds a sweep of other cells: choose another folder, or "
                    f"continue it with --resume {path}"
                )
            return found
        try:
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                raise ConfigError(f"--out {path} is not empty: choose another folder")
            path.mkdir(parents=True, exist_ok=True)
            replace_file(path / MANIFEST, _manifest(cells))
        except OSError as error:
            raise ConfigError(f"--out {path} cannot be written: {reason(path, error)}") from None
        return cls(path, tuple(cells))

    @classmethod
    def open(cls, path: Path) -> "SweepFolder":
        """Find an earlier sweep.

        Parameters
        ----------
        path : Path
            With a ``sweep.json``.

        Returns
        -------
        SweepFolder
            With the cells that were asked for.

        Raises
        ------
        ConfigError
            If the path holds none, or one that is damaged or of a newer version.
        """
        file = path / MANIFEST
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
            if document["format"] != FORMAT:
                raise ConfigError(f"{file} is of another version of zerosum: use that one")
            cells = tuple(
                Cell(each["folder"], each["values"], parse_experiment(each["experiment"]))
                for each in document["cells"]
            )
        except FileNotFoundError:
            raise ConfigError(
                f"{path} holds no sweep (no {MANIFEST}): give the folder of one"
            ) from None
        except ConfigError:
            raise
        except (OSError, ValueError, RecursionError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{file} is damaged ({error!r:.80}); restore the file, or start a new sweep"
            ) from None
        if any(Path(cell.folder).name != cell.folder for cell in cells):
            raise ConfigError(f"{file} is damaged: a cell's folder is no name")
        return cls(path, cells)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the folder against other processes.

        Yields
        ------
        None
            While it is held.

        Raises
        ------
        ConfigError
            If another one runs this sweep.
        """
        try:
            with held_alone(self.path / LOCK):
                yield
        except HeldError as error:
            raise ConfigError(
                f"{self.path}: the sweep still goes on in another process ({error}); stop that one "
                "first"
            ) from None
        except OpenToOthersError as error:
            raise ConfigError(str(error)) from None

    @property
    def keys(self) -> list[str]:
        """The keys that change, seed left out."""
        return [key for key in (self.cells[0].values if self.cells else {}) if key != "seed"]

    def run_path(self, cell: Cell) -> Path:
        """Return the run folder of a cell."""
        return self.path / CELLS / cell.folder

    def log_path(self, cell: Cell) -> Path:
        """Return the file of what a cell's process printed."""
        return self.path / LOGS / f"{cell.folder}.log"

    def metrics_path(self, cell: Cell) -> Path:
        """Return the lines of a cell's rounds."""
        return self.run_path(cell) / METRICS

    def is_over(self, cell: Cell) -> bool:
        """Return whether a cell's run has come to its end; its report is what it writes last."""
        path = self.run_path(cell)
        return (path / SUMMARY).is_file() and (path / REPORT).is_file()

    def clear_unusable(self, cell: Cell) -> None:
        """Remove what a cell left that no run can go on from.

        A run that never got a configuration, and one whose noise cannot be drawn again
        (``privacy.exact``), which then starts anew.
        """
        path = self.run_path(cell)
        if path.exists() and (cell.experiment.privacy.exact or not (path / CONFIG).is_file()):
            shutil.rmtree(path)

    def summary(self, cell: Cell) -> Summary:
        """Read the summary of a cell that is over; empty for any other."""
        if cell.folder not in self._read:
            if not self.is_over(cell):
                return Summary()
            self._read[cell.folder] = RunFolder(self.run_path(cell)).read_summary()
        return self._read[cell.folder]

    def rows(self, errors: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return the table, a row a cell.

        Parameters
        ----------
        errors : mapping of str to str
            Why cells failed, by folder.

        Returns
        -------
        list of dict
            All with the same columns; None where a cell has no such figure.
        """
        rows = [self.row(cell, errors.get(cell.folder, "")) for cell in self.cells]
        metrics = dict.fromkeys(
            name for row in rows for name in row if name.startswith(METRIC_PREFIXES)
        )
        bounds = [f"epsilon_{observer}" for observer in OBSERVERS]
        columns = ["cell", *self.keys, "seed", "status", *metrics, *bounds, "seconds", "error"]
        return [{column: row.get(column) for column in columns} for row in rows]

    def row(self, cell: Cell, error: str = "") -> dict[str, Any]:
        """Return what the table says of a cell: metrics, epsilons and seconds once it is over.

        Parameters
        ----------
        cell : Cell
            One of the sweep.
        error : str
            Why it failed, where its folder does not say.

        Returns
        -------
        dict
            By column; figures that there are none of are absent.
        """
        summary = self.summary(cell)
        # Metrics of a model that nobody trained are no result of the method.
        error = summary.nothing_learnt or error
        status = FAILED if error else COMPLETED if summary else OPEN
        row = {"cell": cell.folder, **{key: _cell(cell.values[key]) for key in self.keys}}
        row |= {"seed": cell.experiment.seed, "status": status}
        if status == COMPLETED:
            row |= dict(summary.metrics)
            row |= {f"epsilon_{name}": bound.value for name, bound in summary.epsilon.items()}
            row["seconds"] = round(summary.seconds, 3)
        return {**row, "error": error}

    def write_table(self, errors: Mapping[str, str]) -> Path:
        """Write ``sweep.csv`` whole or not at all.

        Parameters
        ----------
        errors : mapping of str to str
            As for :meth:`rows`.

        Returns
        -------
        Path
            The file.
        """
        replace_file(self.path / TABLE, csv_of(self.rows(errors)).encode(errors="backslashreplace"))
        return self.path / TABLE


def csv_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """Write rows of the same columns as CSV; None is an empty field."""
    file = io.StringIO()
    writer = csv.DictWriter(file, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _cell(value: Any) -> Any:
    """Return a number or text as it is, anything else as text."""
    plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return value if plain and not (isinstance(value, float) and math.isnan(value)) else shown(value)


def _manifest(cells: Sequence[Cell]) -> bytes:
    written = [
        {
            "folder": cell.folder,
            "values": dict(cell.values),
            "experiment": to_values(cell.experiment),
        }
        for cell in cells
    ]
    return (json.dumps({"format": FORMAT, "cells": written}, indent=1) + "\n").encode()
