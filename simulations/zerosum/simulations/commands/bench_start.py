"""``zerosum bench start``."""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from zerosum.server.config import ConfigError
from zerosum.simulations.bench.measured_turns import MeasuredTurns
from zerosum.simulations.bench.process import BenchError
from zerosum.simulations.terminal.progress import ProgressBar
from zerosum.simulations.terminal.signals import interruptible
from zerosum.simulations.terminal.user_errors import JsonFile, check_writable, user_errors


def start(
    repeats: Annotated[int, typer.Option(help="Turns of each command.", min=1)] = 5,
    whole: Annotated[
        int, typer.Option(help="Turns of the default run, a minute each; 0: none.", min=0)
    ] = 1,
    json_file: JsonFile = None,
) -> None:
    """Measure the CPU seconds, first line and imports of commands, in turns with a bare Python."""
    from zerosum.simulations.bench.start import run

    console = Console()
    with user_errors(BenchError, ConfigError):
        if json_file is not None:
            check_writable(json_file)
        measured = MeasuredTurns(repeats, json_file)
        with interruptible(measured.left), ProgressBar(None, "turn", console) as bar:
            result = run(repeats, whole, tell=bar.show, keep=measured.keep)
        measured.write()  # first: printing fails where the reader has closed the pipe
    table = Table(title="Medians of turns", title_justify="left", box=None, padding=(0, 1))
    for place, column in enumerate(("command", "CPU s", "of Python", "first line, s", "modules")):
        table.add_column(column, justify="right" if place else "left")
    table.add_column("imports")
    for row in result["rows"]:
        first = row["first_line_s"]
        table.add_row(
            row["command"],
            f"{row['cpu_s']:.3f}",
            f"{row['ratio_to_python']:,.0f}",
            "" if first is None else f"{first:.2f}",
            f"{row['modules']:,}" if row["modules"] else "",
            ", ".join(row["heavy"]),
        )
    console.print(table)
