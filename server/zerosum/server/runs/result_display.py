"""Display a run's result: one line for a terminal, a small table and a curve for a notebook."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from zerosum.server.privacy.epsilon_bound import EpsilonBound
from zerosum.server.privacy.noised_ratio import NOISE_STD
from zerosum.server.privacy.observers import OBSERVERS, observer_who
from zerosum.server.privacy.rounding import epsilon_text, plain
from zerosum.server.runs.displays import curve, one_line, panel
from zerosum.server.runs.durations import duration
from zerosum.server.runs.records import RoundRecord, Summary
from zerosum.server.runs.reference_words import alone_of, pooled_of, reference_of
from zerosum.server.runs.run_folder import REPORT
from zerosum.server.runs.run_outcome import UNTRAINED, ended_in_words

Row = tuple[str, str, str]

_DRAWN = ("test_accuracy", "federated_accuracy", "test_loss", "federated_loss")
"""Metrics whose curve is drawn, the first that a run has."""

MOST_IN_LINE = 4
"""Metrics in the line of a result; all are in its table."""


class Weights(dict[str, np.ndarray]):
    """Arrays by name, displayed by their shapes: a model's numbers are pages."""

    def __repr__(self) -> str:
        """Return the name, dtype and shape of each array."""
        shown = [f"{name!r}: {array.dtype}{list(array.shape)}" for name, array in self.items()]
        return f"{{{', '.join(shown)}}}"


def result_line(folder: Path, summary: Summary, rounds: Sequence[RoundRecord]) -> str:
    """Return a result in one line.

    Parameters
    ----------
    folder : Path
        The run folder.
    summary : Summary
    rounds : sequence of RoundRecord

    Returns
    -------
    str
        As ``Result('mine', 40 rounds, test_accuracy=0.8470, epsilon_sum=3.2, folder='runs/mine')``.
    """
    abandoned = f" ({summary.rounds_abandoned} abandoned)" if summary.rounds_abandoned else ""
    parts = [repr(summary.name), f"{len(rounds)} rounds{abandoned}"]
    parts += [f"{one_line(name)}={plain(value)}" for name, value in _metrics(summary)][
        :MOST_IN_LINE
    ]
    parts += [
        f"epsilon_{observer}={epsilon_text(summary.epsilon[observer].value)}"
        for observer in OBSERVERS
        if observer in summary.epsilon and summary.epsilon[observer].finite
    ]
    return f"Result({', '.join(parts)}, folder={str(folder)!r})"


def result_html(folder: Path, summary: Summary, rounds: Sequence[RoundRecord]) -> str:
    """Return a result as a table and a curve in HTML.

    Parameters
    ----------
    folder : Path
        The run folder.
    summary : Summary
    rounds : sequence of RoundRecord

    Returns
    -------
    str
        Without scripts and requests; whatever a name or path holds is text.
    """
    rows = [*_metric_rows(summary), *_warnings(summary), *_privacy_rows(summary)]
    rows += [_rounds_row(summary, rounds), ("time", duration(summary.seconds), "")]
    page = folder / REPORT
    there = f"{REPORT} shows all of it" if page.is_file() else ""
    rows += [("folder", str(folder), there)]
    return panel(summary.name or folder.name, rows, _curve(summary, rounds))


def _metrics(summary: Summary) -> list[tuple[str, float]]:
    """Return the metrics, accuracies first, without the deviations of their noise."""
    named = [each for each in summary.metrics.items() if not each[0].endswith(NOISE_STD)]
    return sorted(named, key=lambda each: "accuracy" not in each[0])


def _metric_rows(summary: Summary) -> Iterator[Row]:
    for name, value in _metrics(summary):
        noise = summary.metrics.get(name + NOISE_STD)
        remarks = [UNTRAINED] if summary.untrained else []
        if name in summary.earlier_metrics:
            remarks.append(f"of round {summary.earlier_metrics[name]}")
        remarks += [f"{who} {plain(figure)}" for who, figure in _references(summary, name)]
        shown = plain(value) + ("" if noise is None else f" ± {plain(noise)} (noise)")
        yield name.replace("_", " "), shown, "; ".join(remarks)
    if (best := summary.best) is not None:
        yield f"best {best.metric.replace('_', ' ')}", plain(best.value), f"of round {best.round}"
    if summary.no_accuracy:
        yield "accuracy", "none", summary.no_accuracy.removeprefix("no accuracy: ")


def _references(summary: Summary, metric: str) -> Iterator[tuple[str, float]]:
    """Yield who else has a figure of a metric, the constant predictor first."""
    references = (
        (str(summary.reference.get("predictor", "constant predictor")), reference_of(summary)),
        ("each client alone, on average", alone_of(summary)),
        ("all records, no privacy", pooled_of(summary)),
    )
    yield from ((who, figures[metric]) for who, figures in references if metric in figures)


def _warnings(summary: Summary) -> Iterator[Row]:
    if summary.nothing_learnt:
        yield "WARNING", summary.nothing_learnt, ""
    if summary.lost_tests:
        yield "WARNING", summary.lost_tests, ""
    failures = summary.failures
    if failures is not None and failures.clients_failed:
        yield "failures of training", f"{failures.clients_failed:,}", failures.first_failure or ""
    if summary.left_out:
        yield "left out, proved to lie", ", ".join(map(str, summary.left_out)), ""


def _privacy_rows(summary: Summary) -> Iterator[Row]:
    """Yield what protects whom against each observer, in their one order."""
    bounds = [summary.epsilon[name] for name in OBSERVERS if name in summary.epsilon]
    # Three times the same reason would say no more.
    if len(bounds) > 1 and len({bound.reason or bound.observer for bound in bounds}) == 1:
        yield "epsilon", bound_in_words(bounds[0]), "nobody is protected against anybody"
        return
    for bound in bounds:
        name = bound.observer
        whom = observer_who(name, summary.protocol) if summary.protocol else name
        yield f"epsilon, {name}", bound_in_words(bound), f"each {bound.unit}, against {whom}"
    if summary.noise_from_seed:
        yield "noise", "from the seed", "to be repeated: it protects nobody"


def bound_in_words(bound: EpsilonBound) -> str:
    """Return an epsilon with its delta, or why there is none."""
    if not bound.finite:
        return f"none: {bound.reason}"
    return f"{epsilon_text(bound.value)} at delta {bound.delta:g}"


def _rounds_row(summary: Summary, rounds: Sequence[RoundRecord]) -> Row:
    dropped = sum(summary.dropouts.values())
    remarks = [f"{summary.rounds_abandoned:,} abandoned"] if summary.rounds_abandoned else []
    remarks += [early] if (early := ended_in_words(summary)) else []
    remarks += [f"{dropped:,} dropouts"] if dropped else []
    remarks += [] if summary.population is None else [f"{summary.population:,} clients"]
    return "rounds", f"{len(rounds):,}", ", ".join(remarks)


def _curve(summary: Summary, rounds: Sequence[RoundRecord]) -> str:
    for name in [*_DRAWN, *(name for name, _ in _metrics(summary))]:
        points = [(r.round, float(r.metrics[name])) for r in rounds if name in r.metrics]
        level = next(_references(summary, name), None)
        if drawn := curve(points, name.replace("_", " "), level):
            return drawn
    return ""
