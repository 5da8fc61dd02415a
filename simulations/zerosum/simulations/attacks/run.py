"""Run attacks: from names to a folder with rows, table and report."""

import logging
import pickle
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from zerosum.client.files.durable_append import replace_file
from zerosum.client.files.operating_system import cores
from zerosum.client.given_task import GivenTask, named_or_given
from zerosum.client.task import Task, error_line
from zerosum.server.config import ConfigError
from zerosum.server.runs.run_folder import REPORT
from zerosum.simulations.api import new_folder
from zerosum.simulations.attacks.asked import SUITES, asked_of
from zerosum.simulations.attacks.folder import LOG, ROWS, TABLE, AttackFolder
from zerosum.simulations.attacks.harness.partial_results import (
    AttackRequest,
    kept_outcomes,
    mark_complete,
    save_outcome,
)
from zerosum.simulations.attacks.harness.play import Cell, Outcome
from zerosum.simulations.attacks.harness.play_all import play_all
from zerosum.simulations.attacks.harness.results import Row, rows_of, shown, to_csv
from zerosum.simulations.attacks.report.display import Rows
from zerosum.simulations.attacks.report.page import write_attack_report
from zerosum.simulations.attacks.report.paper_files import paper_files
from zerosum.simulations.attacks.report.sentences import Finding, findings
from zerosum.simulations.attacks.report.table import to_markdown
from zerosum.simulations.engine.one_at_a_time import alone
from zerosum.simulations.report.compare_page import PlotKind
from zerosum.simulations.terminal.durations import StepTimes, left_in_words
from zerosum.simulations.terminal.logs import logged
from zerosum.simulations.terminal.notebook import LiveLine

log = logging.getLogger("zerosum.simulations")

_NOTES = (
    "Each figure is of all seeds together, with the interval that holds it with 95 %. The baseline "
    "is the same figure of a guess without what is attacked; a figure that is not significantly "
    'better is "at baseline". Epsilon is what the ledger says of what the attacker saw: ∞ without '
    "noise. Of attackers that differ in what they use, the strongest is shown; all are in "
    "results.csv."
)


PLOTS = ("pdf", "svg", "png")


def attack(
    names: Iterable[str] = (),
    overrides: Iterable[str] = (),
    *,
    suite: str = SUITES[0],
    seeds: int = 3,
    out: str | Path | None = None,
    workers: int = 0,
    only: Iterable[str] = (),
    plots: PlotKind | None = None,
    task: Task | type[Task] | Callable[[], Task] | str | None = None,
    run: str | Path | None = None,
) -> Rows:
    """Play attacks against private training, and write table, rows and report.

    Parameters
    ----------
    names : iterable of str
        Of ``zerosum list``, or ``module:Class``; all built-in attacks where there is none.
    overrides : iterable of str
        As ``gradient-inversion.iterations=100``; of a task, as ``data.path=table.csv``.
    suite : str
        "quick" or "full".
    seeds : int
        Seeds of each figure; intervals of fewer than three say little.
    out : path, optional
        New or empty folder of the results; a new one under ``runs/`` where absent.
    workers : int
        Processes; 0 is one a core. An object that cannot be pickled is attacked in this one.
    only : iterable of str
        Words of a protection or setting, as "masked" or "10 clients": cells that have all words of
        one of them are played.
    plots : str, optional
        "pdf", "svg" or "png": each figure as a file too, for a column of a paper, with a LaTeX
        table and a .bib entry.
    task : Task, class, function or str, optional
        Your own, which is attacked in place of the scenes that attacks bring.
    run : str or Path, optional
        A run folder: what that run released is attacked, and rounds as it had them. Only read.

    Returns
    -------
    Rows
        Of every seed and pooled, by cell: a list that displays itself as a table.

    Raises
    ------
    ConfigError
        One line that names what was given, what is allowed and the cure.
    """
    if plots not in (None, *PLOTS):
        raise ConfigError(f"plots = {plots!r}: write {', '.join(PLOTS)}, or nothing")
    named = "" if task is None else named_or_given(task, _as_name)
    own = "" if run is None else str(run)
    request = AttackRequest(
        list(names), list(overrides), suite, seeds, only=list(only), task=named, run=own
    )
    here = isinstance(named, GivenTask) and not _travels(named)
    with alone("attack", nests=True):  # before there is a folder
        played = attack_run(request, Path(out) if out is not None else None)
        played.plots = plots
        for said in played.beforehand:
            log.warning("%s", said)
        line, times = LiveLine(), StepTimes()

        def show(outcome: Outcome) -> None:
            times.step(played.played)
            left = times.seconds_left(played.asked)
            ends = f", {left_in_words(left)}" if left else ""
            line.show(f"{played.played} of {played.asked} plays{ends}")

        line.show(f"{played.played} of {played.asked} plays")
        try:
            played.play(1 if here else workers or cores(), show)
        finally:
            line.flush()
    return Rows(played.rows, played.shown, played.folder.path)


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
    found = asked_of(request)
    path = resume or out or new_folder(f"attacks-{request.suite}")
    folder = AttackFolder.of(path, request, found.cells, resumed=resume is not None)
    seeds = range(request.seeds)
    return AttackRun(found.cells, seeds, folder, found.caption, found.left_out, found.lines)


def drawn_again(path: Path, plots: PlotKind | None) -> "AttackRun":
    """Draw the report of a complete run again and, where asked for, its figures as files.

    Parameters
    ----------
    path : Path
        Its folder, which has the outcomes of all plays.
    plots : str, optional
        "pdf", "svg" or "png".

    Returns
    -------
    AttackRun

    Raises
    ------
    ConfigError
        If the folder holds no such run, or its attacks were changed since.
    """
    request = AttackRequest.read(path, continues=False)
    if not request.complete:
        raise ConfigError(
            f"{path}: not all was played; go on with zerosum attack --resume {path}, which takes "
            "--plots too"
        )
    found = asked_of(request)
    folder = AttackFolder.of(path, request, found.cells, resumed=True)
    run = AttackRun(found.cells, range(request.seeds), folder, found.caption, found.left_out)
    if run.notice:
        raise ConfigError(
            f"{path}: {run.asked - run.played} of {run.asked} plays are not kept in it, so that "
            "nothing can be drawn of them; play all anew, with --plots and another --out"
        )
    run.plots = plots
    run.draw()
    return run


def _as_name(value: object) -> str:
    if isinstance(value, str):
        return value
    raise ConfigError(f"task = {value!r:.80}: give a task, what makes one, or the name of either")


def _travels(task: GivenTask) -> bool:
    """Return whether other processes can be given a task object."""
    try:
        pickle.loads(pickle.dumps(task))  # noqa: S301 (written here)
    except Exception:  # whatever an object of the user's raises
        return False
    return type(task.given).__module__ != "__main__"


class AttackRun:
    """One run of attacks: its plays, their outcomes so far, and its files.

    Parameters
    ----------
    cells : sequence of Cell
    seeds : sequence of int
        Every cell is played with each.
    folder : AttackFolder
        Outcomes that an interrupted run kept in it are not played again.
    caption : str
        What was attacked, where that is the user's.
    left_out : sequence of str
        A line for each attack that it cannot be attacked by.
    beforehand : sequence of str
        The same, and what else the table will lack.

    Attributes
    ----------
    rows : list of Row
        Of every seed and pooled, by cell, once it was played.
    unwritten : list of str
        The files that could not be written, and why.
    plots : str or None
        "pdf", "svg" or "png": whether figures are files too, with a LaTeX table.
    drawn : list of Path
        Those files.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        seeds: Sequence[int],
        folder: AttackFolder,
        caption: str = "",
        left_out: Sequence[str] = (),
        beforehand: Sequence[str] = (),
    ) -> None:
        self._cells, self._seeds, self.folder = cells, seeds, folder
        self.caption, self.left_out, self.beforehand = caption, left_out, beforehand
        self._outcomes = kept_outcomes(folder.path, cells, seeds)
        self.rows: list[Row] = []
        self.unwritten: list[str] = []
        self.plots: PlotKind | None = None
        self.drawn: list[Path] = []

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
    def findings(self) -> list[Finding]:
        """A sentence for each attack."""
        return findings(self.shown, self._cells)

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
            mark_complete(self.folder.path)

    def draw(self) -> None:
        """Write the report and, where asked for, the figures, of outcomes that all are there."""
        outcomes = sorted(self._outcomes, key=lambda outcome: (outcome.number, outcome.seed))
        self.rows = rows_of(self._cells, outcomes)
        self._draw_all(outcomes)

    def _write(self) -> None:
        """Write each file, whatever becomes of the others."""
        outcomes = sorted(
            [*self._outcomes, *self._unplayed()], key=lambda outcome: (outcome.number, outcome.seed)
        )
        self.rows = rows_of(self._cells, outcomes)
        folder, rows = self.folder, self.rows
        said = " ".join(part for part in (self.notice, self.caption) if part)
        notes = "\n\n".join([*([f"**{said}**"] if said else []), _NOTES, *self.left_out])
        self._try(ROWS, lambda: folder.write(ROWS, to_csv(rows)))
        self._try(
            TABLE,
            lambda: folder.write(TABLE, to_markdown(self.shown, "Attacks", notes, self.findings)),
        )
        self._draw_all(outcomes)

    def _draw_all(self, outcomes: Sequence[Outcome]) -> None:
        path, notice, about = self.folder.path, self.notice, self.caption
        self._try(
            REPORT,
            lambda: write_attack_report(path, self.rows, outcomes, self._cells, notice, about),
        )
        if self.plots is not None:
            self._try("figures", lambda: self._draw(str(self.plots), outcomes))

    def _draw(self, kind: str, outcomes: Sequence[Outcome]) -> None:
        for name, data in paper_files(self.rows, outcomes, self._cells, kind, self.notice).items():
            replace_file(self.folder.path / name, data)
            self.drawn.append(self.folder.path / name)

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
