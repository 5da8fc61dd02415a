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
from zerosum.simulations.terminal.loading import loading
from zerosum.simulations.terminal.user_errors import user_errors

if TYPE_CHECKING:
    from zerosum.simulations.report.compare import Candidate, Comparison

USUAL_OUT = Path("comparison")
"""Folder of a comparison of runs; that of one sweep is in the sweep's own."""


def compare(
    folders: Annotated[
        list[Path], typer.Argument(help="Folders of runs or sweeps.", show_default=False)
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the files. [default: that of the one sweep, else comparison]"),
    ] = None,
    plots: Annotated[
        Literal["pdf", "svg", "png"] | None,
        typer.Option(help="Each figure as a file too, for a column of a paper, and a .bib entry."),
    ] = None,
) -> None:
    """Compare methods over their seeds: a table, compare.csv, compare.html, and figures."""
    with user_errors(ConfigError, TaskError):
        found = candidates(folders)
        with loading():
            from zerosum.simulations.report.compare import compare as gather
            from zerosum.simulations.report.compare_page import best_in_words, write_comparison
            from zerosum.simulations.report.compare_references import references_in_words

        comparison = gather(found)
        target = out or (folders[0] if _is_sweep(folders) else USUAL_OUT)
        files = write_comparison(comparison, target, [str(folder) for folder in folders], plots)
    Console().print(comparison_table(comparison))
    console = Console(markup=False, highlight=False, soft_wrap=True)
    if lead := best_in_words(comparison):
        console.print(lead)
    for line in references_in_words(comparison):
        console.print(line)
    for caution in comparison.cautions:
        console.print(f"Caution: {caution}", style="yellow")
    console.print(f"Written: {', '.join(map(str, files))}")


def candidates(folders: list[Path]) -> "list[Candidate]":
    """Return the runs in folders of runs and sweeps.

    Parameters
    ----------
    folders : list of Path
        As given to the command.

    Returns
    -------
    list of Candidate
        Of a sweep all cells, also those that are not over.

    Raises
    ------
    ConfigError
        If one is neither.
    """
    from zerosum.server.runs.run_folder import CONFIG
    from zerosum.simulations.report.compare import Candidate
    from zerosum.simulations.sweeps.sweep_folder import MANIFEST, SweepFolder

    found: list[Candidate] = []
    for path in folders:
        if (path / MANIFEST).is_file():
            sweep = SweepFolder.open(path)
            found += [Candidate(sweep.run_path(c), c.experiment) for c in sweep.cells]
        elif (path / CONFIG).is_file():
            found.append(Candidate(path))
        else:
            raise ConfigError(
                f"{path} holds neither a run (no {CONFIG}) nor a sweep (no {MANIFEST}): give the "
                "folder of one"
            )
    return found


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


def _is_sweep(folders: list[Path]) -> bool:
    from zerosum.simulations.sweeps.sweep_folder import MANIFEST

    return len(folders) == 1 and (folders[0] / MANIFEST).is_file()
