"""``zerosum sweep``: many runs of one experiment, in parallel, and a table of their figures."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from zerosum.client.task import TaskError
from zerosum.server.config import ConfigError
from zerosum.server.privacy.rounding import epsilon_text, plain
from zerosum.simulations.commands.completions import EXPERIMENTS, RUN_FOLDERS, SETTINGS
from zerosum.simulations.terminal.loading import loading
from zerosum.simulations.terminal.printable import whole_words
from zerosum.simulations.terminal.shell_completion import FOLDERS
from zerosum.simulations.terminal.signals import FAILED, continue_with, interruptible
from zerosum.simulations.terminal.user_errors import user_errors

if TYPE_CHECKING:
    from zerosum.simulations.sweeps.grid import Cell
    from zerosum.simulations.sweeps.sweep_folder import SweepFolder
    from zerosum.simulations.sweeps.time_left import Pace
    from zerosum.simulations.terminal.progress import ProgressBar


def sweep(
    experiment: Annotated[
        str | None,
        typer.Argument(help="A shipped experiment's name or a TOML file. [default: mnist5k]"),
        EXPERIMENTS,
    ] = None,
    lists: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=A,B,...", help="Values of one key, as privacy.epsilon=1,2,4."
        ),
        SETTINGS,
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="0-4", help="Seeds of each cell: a range, or a list 0,3,7."),
    ] = None,
    zipped: Annotated[
        bool, typer.Option("--zip", help="First values together, then the second: no product.")
    ] = False,
    together: Annotated[
        str | None,
        typer.Option(metavar="KEY,KEY", help="Zip the lists of these keys; the others multiply."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the sweep: new or empty, or of this very sweep."),
        FOLDERS,
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Complete the sweep in this folder."), RUN_FOLDERS
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Cells at a time, a thread each. [default: the cores]", min=1)
    ] = None,
) -> None:
    """Simulate an experiment over lists of values and seeds, cells in parallel."""
    with user_errors(ConfigError, TaskError):
        folder = _folder(experiment, lists or [], seeds, zipped, together, out, resume)
        with loading():
            from zerosum.simulations.sweeps.run_sweep import complete, usual_workers
            from zerosum.simulations.terminal.progress import ProgressBar

        asked = usual_workers(folder) if workers is None else workers
        console = Console(markup=False, highlight=False, soft_wrap=True)
        begun = f"{_count(folder)} in {folder.path}, {asked} at a time"
        console.print(whole_words(begun, console))
        total = sum(cell.experiment.rounds for cell in folder.cells)
        with (
            interruptible(lambda: _left(folder, workers), ()),
            # Rounds of half-finished cells are nobody's steps, and cells go on side by side.
            ProgressBar(total, "round", console, guesses=False) as bar,
        ):
            shown = _Shown(bar, folder, total)
            errors = complete(folder, asked, look=shown.look, ended=shown.ended)
    done = len(folder.cells) - len(errors)
    table = folder.path / "sweep.csv"
    console.print(whole_words(f"{done} of {_count(folder)} completed; table: {table}", console))
    if done:
        console.print(f"Compare them with: zerosum compare {folder.path}")
    if errors:
        Console(stderr=True, markup=False, highlight=False, soft_wrap=True).print(
            f"error: {len(errors)} of {_count(folder)} failed; zerosum sweep --resume "
            f"{folder.path} tries those again that did not come to their end",
            style="red",
        )
        raise typer.Exit(FAILED)


def _folder(
    experiment: str | None,
    lists: list[str],
    seeds: str | None,
    zipped: bool,
    together: str | None,
    out: Path | None,
    resume: Path | None,
) -> "SweepFolder":
    """Return the folder of a sweep, with all that is wrong with its configuration said by now."""
    from zerosum.simulations.config import DEFAULT_EXPERIMENT
    from zerosum.simulations.sweeps.grid import cells_of, seeds_of, written_choices
    from zerosum.simulations.sweeps.sweep_folder import SweepFolder

    if resume is not None:
        if experiment or lists or seeds or zipped or together or out:
            raise ConfigError(
                f"--resume {resume} completes that sweep as it was asked for: give --workers alone "
                "beside it, or start another with --out"
            )
        return SweepFolder.open(resume)
    cells = cells_of(
        experiment or DEFAULT_EXPERIMENT,
        written_choices(lists),
        None if seeds is None else seeds_of(seeds),
        zipped=zipped,
        together=[] if together is None else [key.strip() for key in together.split(",")],
    )
    if out is None:
        with loading():
            from zerosum.simulations.api import new_folder
        out = new_folder(f"{cells[0].experiment.name}-sweep")
    return SweepFolder.claim(out, cells)


class _Shown:
    """Shows how far a sweep is: one bar over the rounds of all cells, with the time left."""

    def __init__(self, bar: "ProgressBar", folder: "SweepFolder", total: int) -> None:
        self._bar, self._folder, self._total = bar, folder, total
        self._over = sum(map(folder.is_over, folder.cells))
        self._left = ""

    def look(self, pace: "Pace") -> None:
        """Move the bar."""
        from zerosum.simulations.terminal.durations import left_in_words

        left = pace.seconds_left
        self._left = f", {left_in_words(left)}" if left and pace.cells_left else ""
        done = self._total - pace.rounds_left
        words = f"{self._over}/{len(self._folder.cells)} cells  round {done}/{self._total}"
        self._bar.show(words, done, left=left)

    def ended(self, cell: "Cell", error: str) -> None:
        """Say what came of a cell: a failure always, else now and then where no bar is drawn."""
        from zerosum.simulations.terminal.progress import LINES

        self._over += 1
        count = len(self._folder.cells)
        if error:
            self._bar.line(f"cell {cell.folder} failed: {error}")
        elif not self._bar.drawn and (self._over % max(1, count // LINES) in (0, 1)):
            figures = _figures(self._folder.row(cell))
            self._bar.line(f"{self._over}/{count} cells{self._left}: {cell.folder}{figures}")


def _figures(row: Mapping[str, Any]) -> str:
    """Return the first metric of a row, and its epsilon of released models."""
    metrics = {k: v for k, v in row.items() if k.startswith(("test_", "federated_"))}
    name = next((k for k in metrics if "accuracy" in k), next(iter(metrics), None))
    parts = [] if name is None else [f"{name.replace('_', ' ')} {plain(metrics[name], 3)}"]
    if (epsilon := row.get("epsilon_release")) is not None and epsilon != float("inf"):
        parts.append(f"epsilon_release {epsilon_text(epsilon)}")
    return "".join(f"  {part}" for part in parts)


def _count(folder: "SweepFolder") -> str:
    count = len(folder.cells)
    return f"{count:,} cell{'' if count == 1 else 's'}"


def _left(folder: "SweepFolder", workers: int | None) -> str:
    done = sum(map(folder.is_over, folder.cells))
    given = [] if workers is None else ["--workers", str(workers)]
    return continue_with(
        f"{done} of {_count(folder)} are over, and the rounds of the others are kept in "
        f"{folder.path}.",
        ["zerosum", "sweep", "--resume", str(folder.path), *given],
    )
