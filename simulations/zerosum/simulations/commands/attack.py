"""Play attacks, print their table and write their folder: ``zerosum attack``."""

import io
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from zerosum.client.files.operating_system import cores
from zerosum.server.config import ConfigError
from zerosum.simulations.commands.completions import (
    ATTACK_PARAMETERS,
    ATTACKS,
    RUN_FOLDERS,
    words,
)
from zerosum.simulations.terminal.printable import (
    printable,
    printable_lines,
    shell_command,
    whole_words,
)
from zerosum.simulations.terminal.shell_completion import FOLDERS
from zerosum.simulations.terminal.signals import interruptible
from zerosum.simulations.terminal.user_errors import user_errors

if TYPE_CHECKING:
    from rich.table import Table

    from zerosum.simulations.attacks.asked import Asked
    from zerosum.simulations.attacks.harness.partial_results import AttackRequest
    from zerosum.simulations.attacks.harness.play import Cell
    from zerosum.simulations.attacks.harness.results import Row
    from zerosum.simulations.attacks.report.sentences import Finding
    from zerosum.simulations.attacks.run import AttackRun

# torch takes seconds to import: only what is run imports it.

WIDTH_COLUMNS = 80
"""Of the table where there is no terminal; on one it takes no more room than it needs."""

LONGEST_CHARACTERS = 60
"""Of a figure, or of the reason why there is none, in the table."""

WIDEST_COLUMNS = 110
"""Of the table: a figure far from its protection is read beside another."""

INDENT = 2
"""Columns of a protection below its setting."""

NAMED_COLUMNS = 2
"""Protection and figure; the others are numbers."""

METRICS_IN_TABLE = 2
"""Of each attack; the files have all."""

LEAST_SEEDS = 3
"""Below it nothing is said to stop an attack."""

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
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORDS",
            help="Protections and settings with these words alone, as masked or '10 clients'; "
            "again for others too.",
        ),
    ] = None,
    listed: Annotated[
        bool, typer.Option("--list", help="Say what would be played, and play nothing.")
    ] = False,
    plots: Annotated[
        Literal["pdf", "svg", "png"] | None,
        typer.Option(help="Each figure as a file for a paper, a LaTeX table, a .bib entry."),
    ] = None,
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
        from zerosum.simulations.attacks.asked import asked_of
        from zerosum.simulations.attacks.harness.partial_results import AttackRequest
        from zerosum.simulations.attacks.run import attack_run

        own = "" if run_folder is None else str(run_folder)
        asked = AttackRequest(
            names or [], overrides or [], suite, seeds, only=only or (), task=task, run=own
        )
        played = _played_before(out if resume is None else resume, plots, asked, resume is None)
        if played is not None and not listed:
            redraw(played, plots)
            return
        if resume is not None:
            asked = _asked_before(resume, asked, out)
        if listed:
            _list(asked_of(asked), asked.seeds)
            return
        run = attack_run(asked, out, resume)
        run.plots = plots
        for line in run.beforehand:
            _say(line)
        started = time.monotonic()
        with interruptible(lambda: _left(run), ()):
            with _progress(run.asked, run.played) as tell:
                run.play(workers or cores(), tell)
            _print(run.shown, run.findings, time.monotonic() - started)
            console = Console(highlight=False, markup=False, soft_wrap=True)
            console.print("\n".join(_files(run)))
    for lost in run.unwritten:
        _say(f"error: {lost}")
    if run.unwritten or any(row.status == "failed" for row in run.rows):
        _say(f"Failed plays are repeated by:\n{_continuation(run)}")
        raise typer.Exit(1)


def _played_before(
    folder: Path | None, plots: str | None, given: "AttackRequest", same: bool
) -> Path | None:
    """Return a folder where all was played already, and figures alone are wanted of it.

    Parameters
    ----------
    folder : Path or None
        Of ``--resume`` or ``--out``.
    plots : str or None
    given : AttackRequest
        What is asked now.
    same : bool
        Whether the folder's run has to be of the same request.
    """
    from zerosum.simulations.attacks.harness.partial_results import ASKED, AttackRequest

    if plots is None or folder is None or not (folder / ASKED).is_file():
        return None
    before = AttackRequest.read(folder, continues=False)
    return folder if before.complete and (not same or before.asks(given)) else None


def redraw(folder: Path, plots: Literal["pdf", "svg", "png"] | None) -> None:
    """Draw the report of a complete run of attacks again, and its figures as files.

    Parameters
    ----------
    folder : Path
    plots : str or None
        "pdf", "svg" or "png".

    Raises
    ------
    ConfigError
        If that cannot be.
    typer.Exit
        Of code 1, if a file cannot be written.
    """
    from zerosum.simulations.attacks.run import drawn_again

    run = drawn_again(folder, plots)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print("\n".join(_files(run)))
    for lost in run.unwritten:
        _say(f"error: {lost}")
    if run.unwritten:
        raise typer.Exit(1)


def _asked_before(folder: Path, given: "AttackRequest", out: Path | None) -> "AttackRequest":
    """Return the request of the run in a folder, which a run that continues it cannot change."""
    from zerosum.simulations.attacks.harness.partial_results import AttackRequest

    if given != AttackRequest([], [], "quick", LEAST_SEEDS):
        raise ConfigError(
            f"--resume {folder}: names, --suite, --seeds, --set, --only, --task and --run are the "
            "folder's"
        )
    if out is not None:
        raise ConfigError(f"--out {out} and --resume {folder}: give one of them")
    return AttackRequest.read(folder)


def _say(words: str) -> None:
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    console.print(whole_words(printable_lines(words), console))


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
    lines = [f"{what:7} {path}" for what, path in paths if path.exists()]
    if run.drawn:
        names = ", ".join(path.name for path in run.drawn)
        lines.append(f"Figures {len(run.drawn)} files for a paper, beside them: {names}")
    return lines


def _list(asked: "Asked", seeds: int) -> None:
    """Print what would be played, how many plays that is, and what the table would lack."""
    console = Console(highlight=False, markup=False)
    if asked.caption:
        console.print(printable(asked.caption))
    by_attack: dict[str, list[Cell]] = {}
    for cell in asked.cells:
        by_attack.setdefault(cell.attack.name, []).append(cell)
    for name, of in by_attack.items():
        attackers = len({cell.attack.adaptive for cell in of})
        who = f", {attackers} attackers" if attackers > 1 else ""
        console.print(printable(f"{name}: {_times(len(of), seeds)}{who}"), style="bold")
        for setting in dict.fromkeys(cell.case.setting.name for cell in of):
            names = dict.fromkeys(
                cell.case.protection.name for cell in of if cell.case.setting.name == setting
            )
            line = Padding(printable(f"{setting}: {'; '.join(names)}"), (0, 0, 0, 2))
            console.print(line)
    console.print(f"{_times(len(asked.cells), seeds)} in all")
    for lacks in asked.lines:
        console.print(printable(lacks))


def _times(cells: int, seeds: int) -> str:
    words = "cell" if cells == 1 else "cells"
    return f"{cells:,} {words} x {seeds} seed{'s' * (seeds > 1)} = {cells * seeds:,} plays"


@contextmanager
def _progress(total: int, done: int) -> Iterator[Callable[[object], None]]:
    """Show how many plays are over."""
    from zerosum.simulations.terminal.progress import ProgressBar

    with ProgressBar(total, "play", Console(stderr=True), done) as bar:
        numbers = count(done + 1)
        yield lambda outcome: bar.step(next(numbers))


def _print(rows: "Sequence[Row]", said: "Sequence[Finding]", seconds: float) -> None:
    """Print of each attack a sentence, and a table for each of its first metrics."""
    from zerosum.simulations.attacks.report.table import notes_of

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # of a terminal that has no sign for infinity
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH_COLUMNS)
    for each in said:
        of_one = [row for row in rows if row.attack == each.attack]
        title = printable(f"{each.attack} ({each.threat})")
        console.print(title, markup=False, style="bold")
        console.print(printable(each.text), markup=False)
        console.print()
        for metric in list(dict.fromkeys(row.metric for row in of_one))[:METRICS_IN_TABLE]:
            for part in _tables([row for row in of_one if row.metric == metric], console.width):
                console.print(part)
            console.print()
        for note in notes_of(of_one):
            console.print(printable(note), markup=False)
            console.print()
    console.print("Further metrics, and attackers that use less, are in the files.")
    console.print(f"{seconds:.0f} s", soft_wrap=True)


def shortened(text: str) -> str:
    """Return a text that fits a table; ``table.md`` has all of it."""
    return text if len(text) <= LONGEST_CHARACTERS else f"{text[: LONGEST_CHARACTERS - 3]}..."


def _tables(rows: "Sequence[Row]", width: int) -> "Iterator[Table | Padding | Text]":
    """Yield the table of one metric: of each setting its name, and below it the protections.

    A setting has the whole width, which no cell of a table has: so each has a table of its own, and
    all have the same columns.
    """
    texts = [_texts(row) for row in rows]
    titles = ("units", "baseline", "epsilon")
    numbers = [titles, *(text[NAMED_COLUMNS:] for text in texts)]
    narrow = [max(map(len, column)) for column in zip(*numbers, strict=True)]
    wide = min(width, WIDEST_COLUMNS) - sum(narrow) - 2 * len(titles)
    first = min(max(INDENT + max(len(t[0]) for t in texts), len("protection")), wide * 9 // 20)
    columns = [first, wide - first - 2, *narrow]
    yield _grid([("protection", f"{printable(rows[0].metric)} [95 %]", *titles)], columns)
    for setting in dict.fromkeys(row.setting for row in rows):
        yield Text(printable(setting), style="italic")
        of = [text for row, text in zip(rows, texts, strict=True) if row.setting == setting]
        yield _grid(of, columns, INDENT)


def _texts(row: "Row") -> tuple[str, ...]:
    from zerosum.simulations.attacks.report.table import (
        baseline_text,
        count_text,
        epsilon_text,
        figure_text,
    )

    figure = shortened(printable(figure_text(row)))
    numbers = map(printable, (count_text(row), baseline_text(row), epsilon_text(row)))
    return printable(row.protection), figure, *numbers


def _grid(lines: "Sequence[tuple[str, ...]]", columns: "Sequence[int]", indent: int = 0) -> "Table":
    """Return lines of text in columns of these widths: nothing in them is markup."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    for index, width in enumerate(columns):
        justify: Literal["left", "right"] = "left" if index < NAMED_COLUMNS else "right"
        table.add_column(width=width, justify=justify, overflow="fold")
    for first, *others in lines:
        table.add_row(Padding(Text(first), (0, 0, 0, indent)), *map(Text, others))
    return table
