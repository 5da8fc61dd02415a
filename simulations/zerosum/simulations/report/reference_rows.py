"""Write what a run's figures are read beside: a constant predictor, clients alone, all records."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from zerosum.server.runs.records import Summary
from zerosum.server.runs.reference_words import (
    MAJORITY,
    not_better,
    predictor_in_words,
    reference_of,
)
from zerosum.simulations.report import words
from zerosum.simulations.report.record import RunRecord

INSIDE: Final = (
    "Clients alone and all records together were trained without noise on private records: no "
    "epsilon covers these figures, and they are not for outsiders."
)
"""What stands beside baselines, wherever they do."""

_UPPER: Final = (
    "The constant predictor is the best one of the test set itself: an upper bound of what could "
    "be known of it without looking at inputs."
)

_WHAT: Final = (
    "Alone and pooled, the run was repeated with one client in it: the same local training, server "
    "optimizer and rates, without noise, clip, masks or sampling. A client alone trains in every "
    "round; all records together are passed over as often as the run did on average, or take as "
    "many steps as one after another in the run."
)

_COLUMNS: Final = 3
"""Metrics of the table."""


@dataclass(frozen=True)
class ReferenceTable:
    """A table of the model and what it is compared with.

    Attributes
    ----------
    headers : list of str
    rows : list of list of str
    notes : list of str
        Sentences below it.
    """

    headers: list[str]
    rows: list[list[str]]
    notes: list[str]


def reference_in_words(run: RunRecord, metric: str) -> str:
    """Return what stands beside a figure of the model: what a constant predictor gives.

    Parameters
    ----------
    run : RunRecord
        Finished, or there is nothing beside it.
    metric : str
        As "test_accuracy".

    Returns
    -------
    str
        As "majority class: 10.0 %"; empty where it is not known.
    """
    value = reference_of(run.summary).get(metric) if run.finished else None
    predictor = run.summary.reference.get("predictor")
    return "" if value is None else f"{predictor}: {words.metric(metric, value)}"


def reference_table(summary: Summary) -> ReferenceTable | None:
    """Return the table of a report; None where there is nothing beside the model.

    Parameters
    ----------
    summary : Summary
        Of a finished run, or a public one, which has no baselines.

    Returns
    -------
    ReferenceTable or None
    """
    constant, baselines = reference_of(summary), summary.baselines
    if not constant and not baselines:
        return None
    names = _names(summary, constant)
    rows = [["This run", *_cells(names, summary.metrics), _settings(summary)]]
    if constant:
        rows.append([_title(summary), *_cells(names, constant), predictor_in_words(summary)])
    notes = [_UPPER] if constant else []
    if baselines:
        rows += _baseline_rows(baselines, names)
        notes.append(_WHAT)
        notes.append(INSIDE)
    return ReferenceTable(["", *map(words.title, names), "What it is"], rows, notes)


def summary_rows(summary: Summary) -> Iterator[tuple[str, str]]:
    """Yield name and text of what the terminal says beside the metrics.

    Parameters
    ----------
    summary : Summary
        Of the run.

    Yields
    ------
    tuple of str
        One line each.
    """
    constant, baselines = reference_of(summary), summary.baselines
    name = "test_accuracy" if "test_accuracy" in summary.metrics else "test_loss"
    if name in constant:
        most = "; no constant does better" if name == "test_accuracy" else ""
        yield _title(summary).lower(), f"{constant[name]:.4g}: {predictor_in_words(summary)}{most}"
    elif name == "test_accuracy" and (why := summary.reference.get("reason")):
        yield "majority class", f"none: {why}"
    if spread := baselines.get("alone", {}).get("metrics", {}).get(name):
        yield (
            "each client alone",
            f"{spread['mean']:.4g} on average, {spread['min']:.4g} to {spread['max']:.4g} "
            f"({_alone(baselines['alone'])}; without noise, not for outsiders)",
        )
    if failure := baselines.get("alone", {}).get("first_failure"):
        yield "failures alone", f"{baselines['alone'].get('failed')}; the first: {failure}"
    pooled = baselines.get("pooled", {})
    if name in pooled.get("metrics", {}):
        yield "all records, no privacy", f"{pooled['metrics'][name]:.4g} ({_pooled(pooled)})"
    elif "error" in pooled:
        yield "all records, no privacy", f"none: {pooled['error']}"
    if caution := not_better(summary):
        yield "CAUTION", caution


def _names(summary: Summary, constant: Mapping[str, float]) -> list[str]:
    """Return the metrics of the columns: those with a constant's figure first."""
    tested = [name for name in summary.metrics if name.startswith("test_")]
    order = sorted(tested, key=lambda n: ("accuracy" not in n, n not in constant))
    return order[:_COLUMNS]


def _cells(names: list[str], figures: Mapping[str, float]) -> list[str]:
    return [words.metric(name, figures[name]) if name in figures else "–" for name in names]


def _settings(summary: Summary) -> str:
    clients = f", {words.count(summary.population, 'client')}" if summary.population else ""
    return f"{words.count(summary.rounds, 'round')}{clients}"


def _title(summary: Summary) -> str:
    return "Majority class" if summary.reference.get("predictor") == MAJORITY else "Mean predictor"


def _baseline_rows(baselines: Mapping[str, Any], names: list[str]) -> Iterator[list[str]]:
    alone, pooled = baselines.get("alone", {}), baselines.get("pooled", {})
    spreads = alone.get("metrics", {})
    for title, key in (("median", "median"), ("least to most", "")):
        if spreads:
            cells = [_spread_cell(name, spreads.get(name), key) for name in names]
            yield [f"Each client alone, {title}", *cells, _alone(alone)]
    if alone.get("failed"):
        blank = ["–"] * len(names)
        yield ["Clients alone that failed", *blank, f"{alone['failed']}: {alone['first_failure']}"]
    if "metrics" in pooled:
        yield ["All records, no privacy", *_cells(names, pooled["metrics"]), _pooled(pooled)]
    elif pooled:
        yield ["All records, no privacy", *["–"] * len(names), f"none: {pooled.get('error')}"]


def _spread_cell(name: str, spread: Mapping[str, float] | None, key: str) -> str:
    if spread is None:
        return "–"
    if key:
        return words.metric(name, spread[key])
    return f"{words.metric(name, spread['min'])} to {words.metric(name, spread['max'])}"


def _alone(alone: Mapping[str, Any]) -> str:
    done, of = alone["clients"], alone["of"]
    which = f"all {of:,} clients" if done == of else f"{done:,} of {of:,} clients"
    return f"{which}, {words.count(alone['rounds'], 'round')} each"


def _pooled(pooled: Mapping[str, Any]) -> str:
    records, rounds = pooled["records"], pooled["rounds"]
    return f"{words.count(records, 'record')}, {words.count(rounds, 'round')}"
