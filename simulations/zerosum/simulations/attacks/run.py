"""Run attacks: from names to a folder with rows, table and report."""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile

from pydantic import ValidationError

from zerosum.client.files.durable_append import replace_file
from zerosum.client.files.file_errors import reason
from zerosum.client.files.operating_system import cores
from zerosum.client.task import error_line
from zerosum.server.config import ConfigError
from zerosum.server.runs.run_folder import REPORT, check_unused
from zerosum.simulations.api import new_folder
from zerosum.simulations.attacks.harness.interface import Attack, Case
from zerosum.simulations.attacks.harness.parameters import refusal
from zerosum.simulations.attacks.harness.partial_results import (
    AttackRequest,
    digest,
    forget_plays,
    kept_outcomes,
    save_outcome,
)
from zerosum.simulations.attacks.harness.play import Cell, Outcome
from zerosum.simulations.attacks.harness.play_all import play_all
from zerosum.simulations.attacks.harness.registry import choose
from zerosum.simulations.attacks.harness.results import Row, rows_of, shown, to_csv
from zerosum.simulations.attacks.report.display import Rows
from zerosum.simulations.attacks.report.page import write_attack_report
from zerosum.simulations.attacks.report.table import to_markdown
from zerosum.simulations.engine.one_at_a_time import alone
from zerosum.simulations.terminal.durations import in_words
from zerosum.simulations.terminal.logs import logged
from zerosum.simulations.terminal.notebook import LiveLine

log = logging.getLogger("zerosum.simulations")

ROWS, TABLE, LOG = "results.csv", "table.md", "attacks.log"

_NOTES = (
    "Each figure is of all seeds together, with the interval that holds it with 95 %. The baseline "
    "is the same figure of a guess without what is attacked; a figure that is not significantly "
    'better is "at baseline". Epsilon is what the ledger says of what the attacker saw: ∞ without '
    "noise. Of attackers that differ in what they use, the strongest is shown; all are in "
    "results.csv."
)


SUITES = ("quick", "full")
"""The quick suite takes about eight minutes on two cores, the full one hours."""


def attack(
    names: Iterable[str] = (),
    overrides: Iterable[str] = (),
    *,
    suite: str = SUITES[0],
    seeds: int = 3,
    out: str | Path | None = None,
    workers: int = 0,
) -> Rows:
    """Play attacks against private training, and write table, rows and report.

    Parameters
    ----------
    names : iterable of str
        Of ``zerosum list``, or ``module:Class``; all built-in attacks where there is none.
    overrides : iterable of str
        As ``gradient-inversion.iterations=100``.
    suite : str
        "quick" or "full".
    seeds : int
        Seeds of each figure; intervals of fewer than three say little.
    out : path, optional
        New or empty folder of the results; a new one under ``runs/`` where absent.
    workers : int
        Processes; 0 is one a core.

    Returns
    -------
    Rows
        Of every seed and pooled, by cell: a list that displays itself as a table.

    Raises
    ------
    ConfigError
        One line that names what was given, what is allowed and the cure.
    """
    request = AttackRequest(list(names), list(overrides), suite, seeds)
    with alone("attack", nests=True):  # before there is a folder
        run = attack_run(request, Path(out) if out is not None else None)
        line, before, began = LiveLine(), run.played, time.monotonic()

        def show(outcome: Outcome) -> None:
            done = run.played
            left = (time.monotonic() - began) / max(1, done - before) * (run.asked - done)
            line.show(f"{done} of {run.asked} plays" + (f", {in_words(left)} left" if left else ""))

        line.show(f"{before} of {run.asked} plays")
        try:
            run.play(workers or cores(), show)
        finally:
            line.flush()
    return Rows(run.rows, run.shown, run.folder.path)


def attack_run(
    request: AttackRequest, out: Path | None = None, resume: Path | None = None
) -> "AttackRun":
    """Return a new run, or the rest of the one in the folder ``resume``.

    Parameters
    ----------
    request : AttackRequest
    out : Path, optional
        New or empty folder of the results; a new one under ``runs/`` where absent.
    resume : Path, optional
        Folder of the run that is continued.

    Returns
    -------
    AttackRun

    Raises
    ------
    ConfigError
        For names, settings, a suite or a folder that will not do.
    """
    if request.suite not in SUITES:
        raise ConfigError(f"--suite {request.suite}: write {' or '.join(SUITES)}")
    attacks = choose(list(request.names), list(request.settings))
    cells = [Cell(attack, case) for attack in attacks for case in _cases(attack, request.suite)]
    path = resume or out or new_folder(f"attacks-{request.suite}")
    folder = AttackFolder.of(path, request, cells, resumed=resume is not None)
    return AttackRun(cells, range(request.seeds), folder)


def _cases(attack: Attack, suite: str) -> list[Case]:
    """Return an attack's cases, all of which are of a setting with a name."""
    try:
        cases = list(attack.cases(suite))
        fit = all(isinstance(case, Case) and isinstance(case.setting.name, str) for case in cases)
    except Exception as error:  # whatever an attack of the user's raises
        reason = refusal(error) if isinstance(error, ValidationError) else error
        raise ConfigError(f"{attack.name}: it has no cases as it is set: {reason}") from error
    if not cases or not attack.metrics:
        raise ConfigError(f"{attack.name}: it has no cases, or no metrics")
    if not fit:
        raise ConfigError(f"{attack.name}: its cases are no Case(setting, protection)")
    return cases


@dataclass(frozen=True)
class AttackFolder:
    """A folder that belongs to one run of attacks."""

    path: Path

    @classmethod
    def create(cls, path: Path) -> "AttackFolder":
        """Make a new folder.

        Parameters
        ----------
        path : Path

        Returns
        -------
        AttackFolder

        Raises
        ------
        ConfigError
            If the path is a file or a folder that is not empty, or cannot be written.
        """
        check_unused(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=path):  # fail now rather than when all is played
                pass
        except OSError as error:
            raise ConfigError(f"--out {path} cannot be written: {reason(path, error)}") from None
        return cls(path)

    @classmethod
    def of(
        cls, path: Path, asked: AttackRequest, cells: Sequence[Cell], *, resumed: bool
    ) -> "AttackFolder":
        """Make the folder of a new run, or check that of an earlier run which continues.

        Parameters
        ----------
        path : Path
        asked : AttackRequest
        cells : sequence of Cell
        resumed : bool
            Whether the folder is an earlier run's.

        Returns
        -------
        AttackFolder

        Raises
        ------
        ConfigError
            If it cannot be made, or the earlier run was of other cells.
        """
        if resumed:
            asked.check_cells(cells, path)
            return cls(path)
        made = cls.create(path)
        replace(asked, cells=digest(cells)).write(path)
        return made

    def write(self, name: str, text: str) -> None:
        """Write a file whole, or not at all.

        Parameters
        ----------
        name, text : str
        """
        replace_file(self.path / name, text.encode(errors="backslashreplace"))


class AttackRun:
    """One run of attacks: its plays, their outcomes so far, and its files.

    Parameters
    ----------
    cells : sequence of Cell
    seeds : sequence of int
        Every cell is played with each.
    folder : AttackFolder
        Outcomes that an interrupted run kept in it are not played again.

    Attributes
    ----------
    rows : list of Row
        Of every seed and pooled, by cell, once it was played.
    unwritten : list of str
        The files that could not be written, and why.
    """

    def __init__(self, cells: Sequence[Cell], seeds: Sequence[int], folder: AttackFolder) -> None:
        self._cells, self._seeds, self.folder = cells, seeds, folder
        self._outcomes = kept_outcomes(folder.path, cells, seeds)
        self.rows: list[Row] = []
        self.unwritten: list[str] = []

    @property
    def asked(self) -> int:
        """Plays: cells times seeds."""
        return len(self._cells) * len(self._seeds)

    @property
    def played(self) -> int:
        """Plays that have an outcome."""
        return len(self._outcomes)

    @property
    def shown(self) -> list[Row]:
        """The rows of the table."""
        return shown(self._cells, self.rows)

    @property
    def notice(self) -> str:
        """The line that stands in the files of an incomplete run; empty for a complete one."""
        done = len(self._outcomes)
        if done == self.asked:
            return ""
        return (
            f"Incomplete: the attacks were ended after {done} of {self.asked} plays. What was "
            "played with no seed is left out."
        )

    def play(
        self, workers: int, on_outcome: Callable[[Outcome], None] = lambda outcome: None
    ) -> None:
        """Play everything and write the files, also of an interrupted run.

        Parameters
        ----------
        workers : int
            Processes; 1 plays everything in this one.
        on_outcome : callable
            Called with each outcome as it comes.
        """

        def keep(outcome: Outcome) -> None:
            save_outcome(self.folder.path, outcome)
            self._outcomes.append(outcome)
            on_outcome(outcome)

        done = {(outcome.number, outcome.seed) for outcome in self._outcomes}

        with logged("zerosum", self.folder.path / LOG):
            try:
                play_all(self._cells, self._seeds, workers, keep, self.folder.path / LOG, done)
            finally:
                self._write()
        if not self.unwritten and all(outcome.status != "failed" for outcome in self._outcomes):
            forget_plays(self.folder.path)

    def _write(self) -> None:
        """Write each file, whatever becomes of the others."""
        outcomes = sorted(
            [*self._outcomes, *self._unplayed()], key=lambda outcome: (outcome.number, outcome.seed)
        )
        self.rows = rows_of(self._cells, outcomes)
        folder, cells, rows, notice = self.folder, self._cells, self.rows, self.notice
        notes = f"**{notice}**\n\n{_NOTES}" if notice else _NOTES
        self._try(ROWS, lambda: folder.write(ROWS, to_csv(rows)))
        self._try(TABLE, lambda: folder.write(TABLE, to_markdown(self.shown, "Attacks", notes)))
        self._try(REPORT, lambda: write_attack_report(folder.path, rows, outcomes, cells, notice))

    def _try(self, name: str, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError as error:
            self.unwritten.append(f"{name} was not written: {error.strerror or error}")
        except Exception as error:  # of drawing, as one: the other files are worth as much
            log.exception("%s was not written", name)
            self.unwritten.append(f"{name} was not written: {error_line(error)}")

    def _unplayed(self) -> list[Outcome]:
        """Return "not played" for the seeds that a cell lacks, where it has others."""
        played = {(outcome.number, outcome.seed) for outcome in self._outcomes}
        return [
            Outcome(number, seed, "not played", "the attacks were ended before")
            for number in sorted({number for number, _ in played})
            for seed in self._seeds
            if (number, seed) not in played
        ]
