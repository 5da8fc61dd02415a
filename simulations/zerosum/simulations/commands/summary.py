"""The table that a run ends with."""

from collections.abc import Mapping
from typing import Any

from rich.markup import escape
from rich.table import Table

from zerosum.server.privacy.noised_ratio import NOISE_STD
from zerosum.server.privacy.rounding import plain, rounded_up
from zerosum.server.runs.run_outcome import UNTRAINED
from zerosum.simulations.report.words import COUNTS

OBSERVERS = {
    "release": "outsiders, who see the models",
    "sum": "the server, while masks hold",
    "local": "the server, masks broken",
}

_UNMASKED = {
    "none": {"sum": "no masks: the server sees each contribution"},
    "ideal": {
        "sum": "whoever gets the trusted sum: no masks in this simulation",
        "local": "whoever sees one contribution",
    },
}
"""Observers of protocols without masks, where they are others."""


def observer_in_words(observer: str, protocol: str) -> str:
    """Return who an observer is under a protocol."""
    return _UNMASKED.get(protocol, {}).get(observer, OBSERVERS[observer])


def whose_model(summary: Mapping[str, Any], metric: str) -> list[str]:
    """Return of which model a metric is; nothing where it is the trained one, at its end."""
    whose = [UNTRAINED] if summary.get("untrained") else []
    if metric in summary.get("earlier_metrics", ()):
        whose.append(f"of round {summary['earlier_metrics'][metric]}")
    return whose


def summary_table(summary: Mapping[str, Any]) -> Table:
    """Return a run's summary as a table of two columns."""
    table = Table(title=summary["name"], title_justify="left", show_header=False)
    metrics = summary["metrics"]
    for name, value in metrics.items():
        noise = metrics.get(name + NOISE_STD)
        if not name.endswith(NOISE_STD):
            shown = plain(value) + ("" if noise is None else f" ± {plain(noise)} (noise)")
            whose = "".join(f", {each}" for each in whose_model(summary, name))
            table.add_row(escape(name.replace("_", " ")) + whose, shown)
    if absent := summary.get("no_accuracy"):
        table.add_row("accuracy", f"none: {absent.removeprefix('no accuracy: ')}")
    if lost := summary.get("lost_tests"):
        table.add_row("WARNING", lost)
    for observer in OBSERVERS:
        who, figure = observer_in_words(observer, summary["protocol"]), summary["epsilon"][observer]
        table.add_row(f"epsilon_{observer} ({who})", _epsilon(figure))
        if observer == "release" and figure["value"] is not None:
            table.add_row("", COUNTS)
    abandoned = summary["rounds_abandoned"]
    table.add_row("rounds", f"{summary['rounds']} ({abandoned} abandoned)")
    if any(cut := summary.get("cut") or []):
        table.add_row(
            "coordinates cut to encoding.range",
            f"{cut[0]:,}, of which {cut[1]:,} tenfold beyond it",
        )
    if summary["rule"] != "mean":
        table.add_row("average", f"by the rule {summary['rule']}, not a mean")
    dropouts = ", ".join(
        f"{stage} {count}" for stage, count in summary["dropouts"].items() if count
    )
    table.add_row("dropouts by stage", dropouts or "none")
    for name, value in _failure_rows(summary.get("failures")):
        table.add_row(name, value)
    if out := summary.get("left_out"):
        table.add_row("left out, proved to lie", ", ".join(map(str, out)))
    table.add_row(
        "bytes per client and round",
        f"{summary['bytes_up_per_client']:,.0f} up, {summary['bytes_down_per_client']:,.0f} down",
    )
    table.add_row("seconds", f"{summary['seconds']:.1f}")
    engine = summary["engine"]
    workers = engine.get("workers", 1)
    where = f"{workers} workers, {engine['name']}" if workers > 1 else engine["name"]
    if engine["device"] != "cpu":
        where += f", on {engine['device']}"
    table.add_row("computed by", f"the {engine['trainer']} trainer ({where})")
    apart = ", without workers" if workers > 1 else ""
    table.add_row(f"peak memory{apart}", _memory(summary["peak_memory_mb"]))
    if summary["noise_from_seed"]:
        table.add_row("note", "what is drawn comes from the seed: a simulation protects nobody")
    return table


def _failure_rows(failures: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Return how often clients failed, and how the first did; nothing where none did."""
    if failures is None:
        return []
    evaluations: list[tuple[str, str]] = []
    if count := failures.get("evaluations_failed"):
        first = f"in {failures['first_failed_evaluation']}"
        evaluations = [("failures of evaluation", str(count)), ("the first such", escape(first))]
    if failures["first_failure"] is None:
        return evaluations
    failed, trained = failures["clients_failed"], failures["clients_trained"]
    said = f"{failed} of {failed + trained + failures['clients_idle']}"
    if failures["examples_failed"]:
        said += f", and {failures['examples_failed']} single examples"
    first = f"in {failures['first_failure']}"
    rows = [("failures of training", escape(said)), ("the first of them", escape(first))]
    return rows + evaluations


def _epsilon(figure: Mapping[str, Any]) -> str:
    if figure["value"] is None:
        return f"none: {figure.get('reason', '')}"
    return f"{rounded_up(figure['value'], 4)} at delta {figure['delta']:g} ({figure['adjacency']})"


def _memory(found: float | None) -> str:
    return "not known on this system" if found is None else f"{found:.0f} MB"
