"""The page of a folder of queries: what was answered, how sure it is, and what it cost."""

import csv
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from zerosum.client.files.durable_append import replace_file
from zerosum.server.analytics.query_files import CELLS
from zerosum.server.analytics.query_spending import QuerySpending, read_spending_of
from zerosum.server.analytics.released_answer import FIGURES
from zerosum.server.analytics.stored_answers import read_answers
from zerosum.server.privacy.observers import OBSERVERS
from zerosum.server.privacy.rounding import epsilon_text
from zerosum.server.runs.run_folder import REPORT
from zerosum.simulations.report.html import fill

_ROWS_SHOWN = 200
"""Cells of one answer on the page, the largest; its CSV file has all of them."""


def write_query_report(folder: Path) -> Path:
    """Write ``report.html`` into a folder of queries, whole or not at all.

    Nothing but the folder's files is read, so that it can be called again at any time.

    Parameters
    ----------
    folder : Path
        With a ledger of queries.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    ConfigError
        If the ledger or the answers are damaged.
    """
    spending = read_spending_of(folder)
    page = fill(
        "zerosum.simulations.report",
        "queries.html",
        title=folder.resolve().name,
        clients=spending.clients,
        answers=[_section(folder, entry) for entry in read_answers(folder)],
        budget=_capital(spending.sentence()) + ".",
        measure=spending.measure,
        costs=[*_costs(spending)],
    )
    replace_file(folder / REPORT, page.encode(errors="backslashreplace"))
    return folder / REPORT


def _section(folder: Path, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page says of one answer."""
    file = f"{CELLS}/{entry['name']}.csv"
    labels, cells = _cells(folder / file)
    shown = sorted(cells, key=lambda row: -float(row["value"]))[:_ROWS_SHOWN]
    shown = cells if len(cells) <= _ROWS_SHOWN else shown
    return {
        "name": entry["name"],
        "sentence": entry["sentence"],
        "headers": [*(labels or ["of"]), "estimate", "standard error", "95 % interval"],
        "rows": [_row(row, labels, entry["query"]["kind"]) for row in shown],
        "hidden": len(cells) - len(shown),
        "file": file,
        "clients": entry["clients"],
        "epsilons": [*_epsilons(entry["epsilon"])],
        "receipt": json.dumps(entry["receipt"], indent=1),
    }


def _cells(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Return the names of an answer's labels, and its rows."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            names = list(reader.fieldnames or ())
            return [name for name in names if name not in FIGURES], list(reader)
    except FileNotFoundError:
        return [], []


def _row(row: Mapping[str, str], labels: list[str], kind: str) -> list[str]:
    first = [row[name] for name in labels] or [kind]
    between = f"{_figure(row['low'])} to {_figure(row['high'])}"
    if math.isnan(float(row["low"])):
        between = "none: too few records"
    return [*first, _figure(row["value"]), _figure(row["std"]), between]


def _figure(text: str) -> str:
    value = float(text)
    return f"{value:,.0f}" if value.is_integer() else f"{value:,.6g}"


def _epsilons(bounds: Mapping[str, Any]) -> Iterator[list[str]]:
    """Yield a row for each observer of one answer."""
    for name in OBSERVERS:
        if name in bounds:
            bound = bounds[name]
            value = epsilon_text(bound["value"])
            assumed = "; ".join(bound["assumptions"])
            yield [f"epsilon_{name}", value, f"{bound['delta']:g}", assumed]


def _costs(spending: QuerySpending) -> Iterator[list[str]]:
    """Yield a row for each query that was paid for."""
    for each in spending.queries:
        kind, cost = str(each.query["kind"]), epsilon_text(each.used)
        yield [each.name, kind, str(each.sums), str(each.abandoned), cost]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
