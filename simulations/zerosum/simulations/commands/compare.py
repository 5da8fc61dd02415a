"""``zerosum compare``: runs and sweeps side by side, as table, page and figures."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from zerosum.client.task import TaskError
from zerosum.server.config import ConfigError
from zerosum.simulations.commands.completions import RUN_FOLDERS
from zerosum.simulations.terminal.loading import loading
from zerosum.simulations.terminal.printable import whole_words
from zerosum.simulations.terminal.shell_completion import FOLDERS
from zerosum.simulations.terminal.user_errors import user_errors

if TYPE_CHECKING:
    from zerosum.simulations.report.compare import Comparison


def compare(
    folders: Annotated[
        list[Path],
        typer.Argument(help="Folders of runs or sweeps.", show_default=False),
        RUN_FOLDERS,
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the files. [default: that of the one sweep, else comparison]"),
        FOLDERS,
    ] = None,
    plots: Annotated[
        Literal["pdf", "svg", "png"] | None,
        typer.Option(help="Each figure as a file too, for a column of a paper, and a .bib entry."),
    ] = None,
) -> None:
    """Compare methods over their seeds: a table, compare.csv, compare.html, and figures."""
    with user_errors(ConfigError, TaskError):
        with loading():
            from zerosum.simulations.report.compare_page import best_in_words
            from zerosum.simulations.report.compare_references import references_in_words
            from zerosum.simulations.sweeps.compare_runs import compare as compare_folders

        compared = compare_folders(folders, out=out, plots=plots)
        comparison = compared.comparison
    Console().print(comparison_table(comparison))
    console = Console(markup=False, highlight=False, soft_wrap=True)
    if lead := best_in_words(comparison):
        console.print(lead)
    for line in references_in_words(comparison):
        console.print(line)
    for caution in comparison.cautions:
        console.print(f"Caution: {caution}", style="yellow")
    console.print(whole_words(f"Written: {', '.join(map(str, compared.files))}", console))


def comparison_table(comparison: "Comparison") -> Table:
    """Build the table of a comparison for a terminal, the best of each column in bold."""
    from zerosum.simulations.report.compare_page import table_rows

    headers, rows = table_rows(comparison)
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for index, header in enumerate(headers):
        table.add_column(
            header.replace(", ", ",\n"),
            overflow="fold",
            justify="right" if index else "left",
            no_wrap=index > 0,
        )
    for row in rows:
        table.add_row(*(f"[bold]{escape(t)}[/bold]" if best else escape(t) for t, best in row))
    return table
