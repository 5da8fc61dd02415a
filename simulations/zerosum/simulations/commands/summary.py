"""Build the table that a run ends with."""

from rich.markup import escape
from rich.table import Table

from zerosum.server.privacy.epsilon_bound import EpsilonBound
from zerosum.server.privacy.noised_ratio import NOISE_STD
from zerosum.server.privacy.observers import OBSERVERS, observer_title
from zerosum.server.privacy.rounding import epsilon_text, plain
from zerosum.server.runs.records import Failures, Summary
from zerosum.server.runs.reference_words import worse_losses
from zerosum.server.runs.results import Result
from zerosum.server.runs.run_folder import BEST, RunFolder
from zerosum.server.runs.run_outcome import (
    OF_ALL_PLANNED,
    UNTRAINED,
    best_in_words,
    ended_in_words,
)
from zerosum.simulations.report.hopeless_run import hopeless_caution
from zerosum.simulations.report.record import read_run
from zerosum.simulations.report.reference_rows import summary_rows
from zerosum.simulations.report.unprotected import SAID, public_of_run, unprotected_in_words
from zerosum.simulations.report.words import COUNTS


def whose_model(summary: Summary, metric: str) -> list[str]:
    """Return of which model a metric is; nothing where it is the trained one, at its end.

    Parameters
    ----------
    summary : Summary
        Of the run.
    metric : str
        Its name.

    Returns
    -------
    list of str
        Remarks to stand beside the metric.
    """
    whose = [UNTRAINED] if summary.untrained else []
    if metric in summary.earlier_metrics:
        whose.append(f"of round {summary.earlier_metrics[metric]}")
    return whose


def summary_table(summary: Summary) -> Table:
    """Build a run's summary as a table of two columns."""
    table = Table(title=summary.name, title_justify="left", show_header=False)
    metrics = summary.metrics
    for name, value in metrics.items():
        noise = metrics.get(name + NOISE_STD)
        if not name.endswith(NOISE_STD):
            text = plain(value) + ("" if noise is None else f" ± {plain(noise)} (noise)")
            whose = "".join(f", {model}" for model in whose_model(summary, name))
            table.add_row(escape(name.replace("_", " ")) + whose, text)
    for beside, text in summary_rows(summary):
        table.add_row(beside, escape(text))
    if absent := summary.no_accuracy:
        table.add_row("accuracy", f"none: {absent.removeprefix('no accuracy: ')}")
    if summary.lost_tests:
        table.add_row("WARNING", summary.lost_tests)
    for observer in OBSERVERS:
        bound = summary.epsilon[observer]
        table.add_row(observer_title(observer, summary.protocol), _epsilon(bound))
        if observer == "release" and bound.finite:
            table.add_row("", COUNTS)
    if summary.best is not None:
        figure = plain(summary.best.value)
        table.add_row("best model", f"{figure}, {best_in_words(summary.best)} ({BEST})")
    ended = ended_in_words(summary) or str(summary.rounds)
    table.add_row("rounds", f"{ended} ({summary.rounds_abandoned} abandoned)")
    if summary.ended_by and any(bound.finite for bound in summary.epsilon.values()):
        table.add_row("", OF_ALL_PLANNED)
    if any(cut := summary.cut or []):
        table.add_row(
            "coordinates cut to encoding.range",
            f"{cut[0]:,}, of which {cut[1]:,} tenfold beyond it",
        )
    if summary.rule != "mean":
        table.add_row("average", f"by the rule {summary.rule}, not a mean")
    dropouts = ", ".join(f"{stage} {count}" for stage, count in summary.dropouts.items() if count)
    table.add_row("dropouts by stage", dropouts or "none")
    for row in _failure_rows(summary.failures):
        table.add_row(*row)
    if summary.left_out:
        table.add_row("left out, proved to lie", ", ".join(map(str, summary.left_out)))
    table.add_row(
        "bytes per client and round",
        f"{summary.bytes_up_per_client:,.0f} up, {summary.bytes_down_per_client:,.0f} down",
    )
    table.add_row("seconds", f"{summary.seconds:.1f}")
    for row in _engine_rows(summary):
        table.add_row(*row)
    if summary.noise_from_seed:
        table.add_row(
            "note",
            "noise and sampling came from the seed, so that this run can be repeated; that "
            "protects nobody: a deployment draws from the system",
        )
    return table


def after_run(result: Result) -> list[str]:
    """Return what a run's figures say against it: losses that grew, noise that left nothing,
    and how many records nothing protects where the line of the data does not say it.

    Parameters
    ----------
    result : Result
        Of a run that has ended.

    Returns
    -------
    list of str
        A sentence each; none where all is well.
    """
    run = read_run(RunFolder(result.folder))
    said = [*worse_losses(result.summary, result.rounds), *hopeless_caution(run)]
    line = (run.summary.data or {}).get("line", "")
    open_records = "" if SAID in line else unprotected_in_words(public_of_run(run))
    return [*said, *([open_records] if open_records else [])]


def _engine_rows(summary: Summary) -> list[tuple[str, str]]:
    """Return the trainer, with its workers and device, and the memory taken."""
    engine = summary.engine
    workers = engine.get("workers", 1)
    where = f"{workers} workers, {engine['name']}" if workers > 1 else engine["name"]
    if engine["device"] != "cpu":
        where += f", on {engine['device']}"
    if "precision" in engine:  # not in summaries of before there was a choice
        where += f", {engine['precision']}"
    apart = ", without workers" if workers > 1 else ""
    steps = f", steps by {engine['optimizer']}" if "optimizer" in engine else ""
    return [
        ("computed by", f"the {engine['trainer']} trainer ({where}){steps}"),
        (f"peak memory{apart}", _memory(summary.peak_memory_mb)),
    ]


def _failure_rows(failures: Failures | None) -> list[tuple[str, str]]:
    """Return how often clients failed, and how the first did; nothing where none did."""
    if failures is None:
        return []
    evaluations: list[tuple[str, str]] = []
    if count := failures.evaluations_failed:
        first = f"in {failures.first_failed_evaluation}"
        evaluations = [("failures of evaluation", str(count)), ("the first such", escape(first))]
    if failures.first_failure is None:
        return evaluations
    failed, trained = failures.clients_failed, failures.clients_trained
    counts = f"{failed} of {failed + trained + failures.clients_idle}"
    if failures.examples_failed:
        counts += f", and {failures.examples_failed} single examples"
    first = f"in {failures.first_failure}"
    rows = [("failures of training", escape(counts)), ("the first of them", escape(first))]
    return rows + evaluations


def _epsilon(bound: EpsilonBound) -> str:
    if not bound.finite:
        return f"none: {bound.reason}"
    return f"{epsilon_text(bound.value)} at delta {bound.delta:g} ({bound.adjacency})"


def _memory(mebibytes: float | None) -> str:
    return "not known on this system" if mebibytes is None else f"{mebibytes:.0f} MB"
