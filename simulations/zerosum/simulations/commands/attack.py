"""Play attacks, print their table and write their folder: ``zerosum attack``."""

import io
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from zerosum.client.files.operating_system import cores
from zerosum.server.config import ConfigError
from zerosum.simulations.commands.completions import (
    ATTACK_PARAMETERS,
    ATTACKS,
    RUN_FOLDERS,
    words,
)
from zerosum.simulations.terminal.printable import printable, printable_lines, shell_command
from zerosum.simulations.terminal.shell_completion import FOLDERS
from zerosum.simulations.terminal.signals import interruptible
from zerosum.simulations.terminal.user_errors import user_errors

if TYPE_CHECKING:
    from rich.table import Table

    from zerosum.simulations.attacks.harness.partial_results import AttackRequest
    from zerosum.simulations.attacks.harness.results import Row
    from zerosum.simulations.attacks.run import AttackRun

# torch takes seconds to import: only what is run imports it.

WIDTH_COLUMNS = 150
"""Of the table where there is no terminal."""

LONGEST_CHARACTERS = 60
"""Of a figure, or of the reason why there is none, in the table."""

METRICS_IN_TABLE = 2
"""Of each attack; the files have all."""

LEAST_SEEDS = 3
"""Below it a figure's interval says little."""

MOST_SEEDS = 100_000
"""A limit, because all plays are listed in memory before the first of them."""


def attack(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="Names in zerosum list attacks, or module:Class; else all attacks.",
        ),
        ATTACKS,
    ] = None,
    suite: Annotated[
        str,
        typer.Option(help="quick (about eight minutes on two cores) or full (hours)."),
        words("quick", "full"),
    ] = "quick",
    seeds: Annotated[
        int, typer.Option(help="Seeds of each figure: three or more.", min=1, max=MOST_SEEDS)
    ] = LEAST_SEEDS,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the results: new or empty."), FOLDERS
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="ATTACK.PARAMETER=VALUE",
            help="Change one parameter; with --task also keys of data, model and training.",
        ),
        ATTACK_PARAMETERS,
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes; 0 is one a core.", min=0)] = 0,
    resume: Annotated[
        Path | None,
        typer.Option(help="Continue the attacks in this folder, as they were asked."),
        RUN_FOLDERS,
    ] = None,
    task: Annotated[
        str,
        typer.Option(metavar="NAME", help="Attack this task: built-in, or module:object."),
    ] = "",
    run_folder: Annotated[
        Path | None,
        typer.Option("--run", help="Attack what the run in this folder released; it is only read."),
        RUN_FOLDERS,
    ] = None,
) -> None:
    """Play attacks on private training: what leaks, which protection stops it, at which epsilon."""
    with user_errors(ConfigError):
        from zerosum.simulations.attacks.harness.partial_results import AttackRequest
        from zerosum.simulations.attacks.run import attack_run

        own = "" if run_folder is None else str(run_folder)
        asked = AttackRequest(names or [], overrides or [], suite, seeds, task=task, run=own)
        if resume is not None:
            asked = _asked_before(resume, asked, out)
        run = attack_run(asked, out, resume)
        for line in run.left_out:
            _say(line)
        if asked.seeds < LEAST_SEEDS:
            _say(
                f"{asked.seeds} seed{'s' * (asked.seeds > 1)}: intervals of fewer than "
                f"{LEAST_SEEDS} say little"
            )
        started = time.monotonic()
        with interruptible(lambda: _left(run), ()):
            with _progress(run.asked, run.played) as tell:
                run.play(workers or cores(), tell)
            _print(run.shown, time.monotonic() - started)
            console = Console(highlight=False, markup=False, soft_wrap=True)
            console.print("\n".join(_files(run)))
    for lost in run.unwritten:
        _say(f"error: {lost}")
    if run.unwritten or any(row.status == "failed" for row in run.rows):
        _say(f"Failed plays are repeated by:\n{_continuation(run)}")
        raise typer.Exit(1)


def _asked_before(folder: Path, given: "AttackRequest", out: Path | None) -> "AttackRequest":
    """Return the request of the run in a folder, which a run that continues it cannot change."""
    from zerosum.simulations.attacks.harness.partial_results import AttackRequest

    if given != AttackRequest([], [], "quick", LEAST_SEEDS):
        raise ConfigError(
            f"--resume {folder}: names, --suite, --seeds, --set, --task and --run are the folder's"
        )
    if out is not None:
        raise ConfigError(f"--out {out} and --resume {folder}: give one of them")
    return AttackRequest.read(folder)


def _say(words: str) -> None:
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    console.print(printable_lines(words))


def _left(run: "AttackRun") -> str:
    """Return the lines for an interrupted run: how much was played, its files, how to continue."""
    lost = [f"error: {reason}" for reason in run.unwritten]
    continuation = ["Continue with:", _continuation(run)]
    return printable_lines("\n".join([run.notice, *_files(run), *lost, *continuation]))


def _continuation(run: "AttackRun") -> str:
    return shell_command(["zerosum", "attack", "--resume", str(run.folder.path)])


def _files(run: "AttackRun") -> list[str]:
    """Return a line for each file that was written."""
    files = (("Table", "table.md"), ("Rows", "results.csv"), ("Report", "report.html"),
             ("Log", "attacks.log"))  # fmt: skip
    paths = [(what, run.folder.path / name) for what, name in files]
    return [f"{what:7} {path}" for what, path in paths if path.exists()]


@contextmanager
def _progress(total: int, done: int) -> Iterator[Callable[[object], None]]:
    """Show how many plays are over."""
    from zerosum.simulations.terminal.progress import ProgressBar

    with ProgressBar(total, "play", Console(stderr=True), done) as bar:
        numbers = count(done + 1)
        yield lambda outcome: bar.step(next(numbers))


def _print(rows: "Sequence[Row]", seconds: float) -> None:
    """Print a table for each attack."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # of a terminal that has no sign for infinity
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH_COLUMNS)
    for name in dict.fromkeys(row.attack for row in rows):
        of_one = [row for row in rows if row.attack == name]
        metrics = list(dict.fromkeys(row.metric for row in of_one))[:METRICS_IN_TABLE]
        console.print(_table_of([row for row in of_one if row.metric in metrics]))
        for note in dict.fromkeys(row.note for row in of_one if row.status == "value" and row.note):
            console.print(printable(note), markup=False, soft_wrap=True)
        console.print()
    console.print("Further metrics, and attackers that use less, are in the files.")
    console.print(f"{seconds:.0f} s", soft_wrap=True)


def shortened(text: str) -> str:
    """Return a text that fits a table; ``table.md`` has all of it."""
    return text if len(text) <= LONGEST_CHARACTERS else f"{text[: LONGEST_CHARACTERS - 3]}..."


def _table_of(rows: "Sequence[Row]") -> "Table":
    from rich.table import Table

    from zerosum.simulations.attacks.report.table import (
        baseline_text,
        count_text,
        epsilon_text,
        figure_text,
        threats_text,
    )

    table = Table(
        *("setting", "protection", "metric", "figure [95 %]", "units", "baseline", "epsilon"),
        title=_plain(f"{rows[0].attack} ({threats_text(rows)})"),
        title_justify="left",
        box=None,
        padding=(0, 2, 0, 0),
    )
    before = ""
    for row in rows:
        setting, before = "" if row.setting == before else row.setting, row.setting
        cells = (setting, row.protection, row.metric, shortened(printable(figure_text(row))))
        others = (count_text(row), baseline_text(row), epsilon_text(row))
        table.add_row(*map(_plain, (*cells, *others)))
    return table


def _plain(text: str) -> str:
    """Return text in which neither rich nor a terminal finds markup or control codes."""
    return escape(printable(text))
