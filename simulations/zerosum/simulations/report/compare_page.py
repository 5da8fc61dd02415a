"""Write a comparison: a page, a table, figures and a reference for a paper."""

import csv
import io
import math
import os
import re
import urllib.parse
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from zerosum.client.files.durable_append import replace_file
from zerosum.client.files.file_errors import reason
from zerosum.client.files.operating_system import readable
from zerosum.server.config import ConfigError
from zerosum.server.privacy.observers import OBSERVERS, observer_title
from zerosum.server.privacy.rounding import epsilon_text
from zerosum.server.runs.run_folder import REPORT
from zerosum.simulations.report import words
from zerosum.simulations.report.compare import Comparison, Method
from zerosum.simulations.report.compare_figures import Drawing, drawings
from zerosum.simulations.report.compare_references import ReferenceColumn, reference_columns
from zerosum.simulations.report.html import fill
from zerosum.simulations.terminal.printable import shell_command

PAGE, TABLE, REFERENCE = "compare.html", "compare.csv", "compare.bib"

PlotKind = Literal["pdf", "svg", "png"]

_RUNS_SHOWN = 400
_METRICS_SHOWN = 4

_REFERENCE = """@software{{zerosum,
  title   = {{{{zerosum: federated learning with secure aggregation and differential privacy}}}},
  author  = {{{{The zerosum developers}}}},
  version = {{{version}}},
  license = {{Apache-2.0}}
}}
"""


def write_comparison(
    comparison: Comparison, out: Path, sources: Sequence[str], plots: PlotKind | None = None
) -> list[Path]:
    """Write ``compare.html`` and ``compare.csv``; with plots, each figure and a reference.

    Parameters
    ----------
    comparison : Comparison
        What is written.
    out : Path
        Folder, made if it is absent. Files of an earlier comparison in it are replaced.
    sources : sequence of str
        The folders as they were given to the command.
    plots : str, optional
        "pdf", "svg" or "png".

    Returns
    -------
    list of Path
        The files, the page first.

    Raises
    ------
    ConfigError
        If they cannot be written.
    """
    figures = drawings(comparison)
    page = render_comparison(comparison, out, figures, sources)
    files = {PAGE: readable(page).encode(errors="backslashreplace")}
    files[TABLE] = readable(csv_of(comparison)).encode(errors="backslashreplace")
    for drawing in figures if plots is not None else ():
        files[f"{_file_name(drawing.name)}.{plots}"] = drawing.file(str(plots))
    if plots is not None:
        files[REFERENCE] = reference()
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            replace_file(out / name, data)
    except OSError as error:
        raise ConfigError(f"--out {out} cannot be written: {reason(out, error)}") from None
    return [out / name for name in files]


def reference() -> bytes:
    """Return the BibTeX entry by which a paper cites this version."""
    return _REFERENCE.format(version=version("zerosum")).encode()


def table_rows(
    comparison: Comparison, columns: Sequence[ReferenceColumn] = ()
) -> tuple[list[str], list[list[tuple[str, bool]]]]:
    """Return headers, and rows of (text, whether it is the best) for people.

    Parameters
    ----------
    comparison : Comparison
        Methods without a finished run have no row.
    columns : sequence of ReferenceColumn
        Further ones, after the metrics.

    Returns
    -------
    headers : list of str
    rows : list of list of (str, bool)
    """
    metrics, observer = comparison.metrics[:_METRICS_SHOWN], comparison.observer
    headers = ["Method", "Runs", *map(words.title, metrics), *(each.title for each in columns)]
    headers += [] if observer is None else [f"Epsilon, {observer}"]
    headers += ["Time"]
    rows = []
    for method in comparison.shown:
        row = [(method.label, False), (_runs(method), False)]
        for metric in metrics:
            spread = method.metrics.get(metric)
            text = "–" if spread is None else spread.text(metric)
            row.append((text, comparison.best(metric) is method))
        row += [(column.text(method), False) for column in columns]
        if observer is not None:
            bound = method.bounds.get(observer)
            row.append(("–" if bound is None else epsilon_text(bound.value), False))
        rows.append([*row, (words.duration(method.seconds), False)])
    return headers, rows


def best_in_words(comparison: Comparison) -> str:
    """Return who has the best mean of the first metric, in a sentence; empty where nobody has."""
    metric = next(iter(comparison.metrics), None)
    best = None if metric is None else comparison.best(metric)
    if metric is None or best is None or len(comparison.shown) < 2:
        return ""
    seeds = words.count(len(best.runs), "seed")
    figure = best.metrics[metric].text(metric)
    return f"Best {metric.replace('_', ' ')}: {best.label}, {figure} over {seeds}."


def csv_of(comparison: Comparison) -> str:
    """Return the table as CSV: a row a method, with all digits.

    Parameters
    ----------
    comparison : Comparison
        Methods without a finished run have empty figures.
    """
    metrics = comparison.metrics
    figures = [name for metric in metrics for name in (f"{metric}_mean", f"{metric}_std")]
    bounds = [f"epsilon_{observer}" for observer in OBSERVERS]
    columns = reference_columns(comparison)
    figures += [column.key for column in columns]
    header = ["method", *comparison.differences, "runs", "finished", *figures, *bounds, "seconds"]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header)
    for method in comparison.methods:
        row: list[Any] = [method.label, *method.settings.values(), method.asked, len(method.runs)]
        for metric in metrics:
            spread = method.metrics.get(metric)
            if spread is None:
                row += ["", ""]
            else:
                row += [spread.mean, "" if math.isnan(spread.deviation) else spread.deviation]
        spreads = [column.spread(method) for column in columns]
        row += ["" if spread is None else spread.mean for spread in spreads]
        row += [
            method.bounds[observer].value if observer in method.bounds else ""
            for observer in OBSERVERS
        ]
        writer.writerow([*row, "" if not method.runs else round(method.seconds, 3)])
    return file.getvalue()


def render_comparison(
    comparison: Comparison, out: Path, figures: Sequence[Drawing], sources: Sequence[str]
) -> str:
    """Fill the page.

    Parameters
    ----------
    comparison : Comparison
        What is shown.
    out : Path
        Folder of the page, from which reports are linked.
    figures : sequence of Drawing
        Of :func:`drawings`.
    sources : sequence of str
        As for :func:`write_comparison`.

    Returns
    -------
    str
        HTML.
    """
    headers, rows = table_rows(comparison, reference_columns(comparison))
    names = {run.experiment.name for method in comparison.shown for _, run in method.runs}
    observer, first = comparison.observer, comparison.shown[0].runs[0][1]
    who = observer and observer_title(observer, first.experiment.secagg.protocol)
    return fill(
        "zerosum.simulations.report",
        "compare.html",
        title=f"Comparison: {', '.join(sorted(names))}",
        comparison=comparison,
        lead=best_in_words(comparison),
        headers=headers,
        rows=rows,
        who=who,
        words=words,
        pictures=figures,
        runs=_run_rows(comparison, out),
        runs_shown=_RUNS_SHOWN,
        command=shell_command(["zerosum", "compare", *sources]),
    )


def _runs(method: Method) -> str:
    done = len(method.runs)
    return str(done) if done == method.asked else f"{done} of {method.asked}"


def _run_rows(comparison: Comparison, out: Path) -> list[tuple[str, str, str, list[str]]]:
    """Return name, address of the report, method and cells of each run."""
    metrics = comparison.metrics[:2]
    rows = []
    for method in comparison.shown:
        for path, run in method.runs[:_RUNS_SHOWN]:
            figures = [
                words.metric(m, run.metrics[m]) if m in run.metrics else "–" for m in metrics
            ]
            cells = [str(run.experiment.seed), *figures]
            rows.append((path.name, _address(path / REPORT, out), method.label, cells))
    return rows[:_RUNS_SHOWN]


def _address(report: Path, out: Path) -> str:
    """Return a relative address of a file; empty where there is none."""
    if not report.is_file():
        return ""
    try:
        relative = os.path.relpath(report.resolve(), out.resolve())
    except ValueError:  # on another drive of Windows
        return ""
    return urllib.parse.quote(os.fsencode(Path(relative).as_posix()))


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name)
