"""Fill the page of a run: outcome, protection by observer, figures, details, in this order."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from zerosum.client.spec import MEANINGFUL_EPSILON, Spec
from zerosum.secagg.stages import Stage
from zerosum.server.privacy.noised_ratio import NOISE_STD
from zerosum.server.privacy.observers import OBSERVERS
from zerosum.server.privacy.rounding import epsilon_text
from zerosum.server.runs.run_folder import REPORT, RunFolder
from zerosum.server.runs.run_outcome import UNTRAINED
from zerosum.server.spec import Experiment
from zerosum.simulations.report import figures, words
from zerosum.simulations.report.bounds import audit_section
from zerosum.simulations.report.class_section import class_section
from zerosum.simulations.report.html import fill
from zerosum.simulations.report.images import png_of
from zerosum.simulations.report.record import RunRecord, Sight, read_run
from zerosum.simulations.report.reference_rows import reference_in_words, reference_table
from zerosum.simulations.report.unprotected import public_of_run, unprotected_in_words
from zerosum.simulations.terminal.printable import shell_command

# Bounds keep the page under a megabyte, whatever the number of rounds: mail programs and browsers
# take that. The files of the run folder have the rest.
_ROWS_SHOWN = 200
_IMAGES_SHOWN = 40
_IMAGE_SIDE_PIXELS = 64

_STAGES: dict[str, str] = {
    Stage.ADVERTISE: "never answered the first message",
    Stage.SHARE: "left before sending its shares",
    Stage.CONTRIBUTE: "left before sending its vector",
    Stage.CONFIRM: "left before confirming who survived; its vector counts",
    Stage.UNMASK: "left before releasing its shares; its vector counts",
}


def write_report(folder: RunFolder | Path) -> Path:
    """Write ``report.html`` into a run folder, whole or not at all.

    Works on any run that has a configuration: finished, interrupted or still going. Nothing but
    the folder's files is read, so that it can be called again at any time.

    Parameters
    ----------
    folder : RunFolder or Path
        A run folder, or where one is.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    ConfigError
        If the path holds no run, or its configuration cannot be read.
    """
    if isinstance(folder, Path):
        folder = RunFolder.open(folder)
    # Bytes of file names that the locale has no letters for are letters in UTF-8 again.
    folder.write(REPORT, render(read_run(folder)).encode(errors="backslashreplace"))
    return folder.path / REPORT


def render(run: RunRecord) -> str:
    """Fill the page of a run with all that its folder says."""
    again = ["zerosum", "run", f"{run.name}/config.toml", "--out", f"{run.name}-again"]
    digits = _digits(run.sight)
    return _fill(
        "run.html",
        run,
        tiles=[*_tiles(run)],
        federated=_federated(run),
        audit=audit_section(run.audited),
        digits=digits,
        wrong=sum(label != prediction for _, label, prediction in digits),
        dropouts=_dropouts(run),
        round_table=_round_table(run),
        rows_shown=_ROWS_SHOWN,
        changed=_changed(run.experiment),
        run_command=shell_command(again),
        report_command=shell_command(["zerosum", "report", run.name]),
        promise=_promise(run),
        unprotected=unprotected_in_words(public_of_run(run)),
    )


def render_public(run: RunRecord) -> str:
    """Fill the page for outsiders from a record that holds public figures alone."""
    settings = [[key, _value(now)] for key, now in _flat(run.summary.settings)]
    return _fill("public.html", run, settings=settings)


def _fill(template: str, run: RunRecord, **values: object) -> str:
    return fill(
        "zerosum.simulations.report",
        template,
        title=run.experiment.name,
        run=run,
        words=words,
        figures=figures,
        epsilon_text=epsilon_text,
        observers=OBSERVERS,
        reference=reference_table(run.summary) if run.finished else None,
        classes=class_section(run.test_set),
        **values,
    )


def _tiles(run: RunRecord) -> Iterator[tuple[str, str, str]]:
    """Yield name, figure and note of each tile."""
    accuracy_first = sorted(run.metrics.items(), key=lambda item: "accuracy" not in item[0])
    earlier = run.earlier_metrics
    for name, value in accuracy_first[:3]:
        noise = run.noise_of(name)
        notes = [UNTRAINED] if run.untrained else []
        notes += [f"of round {earlier[name]}"] if name in earlier else []
        notes += [beside] if (beside := reference_in_words(run, name)) else []
        notes += [] if noise is None else ["with the standard deviation of its noise"]
        yield words.title(name), words.metric(name, value, noise), ", ".join(notes)
    for name in OBSERVERS:
        bound = run.bounds.get(name)
        if bound is not None:
            at = f"at delta {words.delta(bound.delta)}" if bound.finite else "no bound"
            if name == "release" and bound.finite:
                at += "; " + words.COUNTS
            if bound.finite and bound.value > MEANINGFUL_EPSILON:
                at += "; no meaningful protection on its own"
            yield f"Epsilon, {name}", epsilon_text(bound.value), at
    abandoned = f"{len(run.abandoned):,} abandoned" if run.rounds else ""
    yield "Rounds", f"{len(run.rounds):,} of {run.experiment.rounds:,}", abandoned
    failures = run.failures
    if failures is not None and failures.clients_failed:
        yield "Failures", f"{failures.clients_failed:,}", "of clients in training"
    yield "Dropouts", f"{sum(run.dropouts.values()):,}", "clients that left a round"
    seconds = float(np.nansum(run.series("seconds"))) if run.rounds else 0.0
    memory = run.summary.peak_memory_mb
    yield "Time", words.duration(seconds), f"{memory:,.0f} MiB at most" if memory else ""


def _federated(run: RunRecord) -> str:
    """Say how the evaluations on the clients' own data went."""
    outcomes = [r.federated_status for r in run.rounds if r.federated_status is not None]
    if not outcomes:
        return ""
    counts = ", ".join(f"{outcomes.count(kind)} {kind}" for kind in dict.fromkeys(outcomes))
    charged = " and charged as such" if run.experiment.privacy.private else ""
    return (
        f"{words.count(len(outcomes), 'evaluation')} on the clients' own data, each a private sum "
        f"of its own{charged}: {counts}."
    )


def _digits(sight: Sight) -> list[tuple[str, object, object]]:
    """Return some test images, each with its label and the model's prediction."""
    images, labels, predictions = sight.images, sight.labels, sight.predictions
    if images is None or labels is None or predictions is None:
        return []
    tested = [*zip(images, labels.tolist(), predictions.tolist(), strict=True)][:_IMAGES_SHOWN]
    return [(png_of(image, _IMAGE_SIDE_PIXELS), *truth) for image, *truth in tested]


def _dropouts(run: RunRecord) -> list[list[str]]:
    """Return rows of stage, who is lost there, how many, their share, the share injected."""
    dropouts = run.dropouts
    slots = sum(r.cohort for r in run.rounds)
    if not dropouts or not slots:
        return []
    rows = [
        [stage, _STAGES.get(stage, ""), f"{lost:,}", words.percent(lost / slots),
         words.percent(getattr(run.experiment.faults, stage, 0.0))]
        for stage, lost in dropouts.items()
    ]  # fmt: skip
    total = sum(dropouts.values())
    return [*rows, ["all stages", "", f"{total:,}", words.percent(total / slots), ""]]


def _round_table(run: RunRecord) -> tuple[list[str], list[list[str]]]:
    """Return titles and rows of the last rounds."""
    names = list(run.metrics)[:4]
    failing = any("clients_failed" in record for record in run.rounds)
    headers = [
        *("Round", "Status", "Cohort", *["Failed"] * failing, "In the sum"),
        *map(words.title, names),
        *(*(f"Epsilon, {o}" for o in OBSERVERS), "Seconds"),
    ]
    return headers, [_round_row(r, names, failing=failing) for r in run.rounds[-_ROWS_SHOWN:]]


def _round_row(record: Mapping[str, Any], names: list[str], *, failing: bool) -> list[str]:
    spent = record.get("epsilon") or {}
    return [
        str(record["round"]),
        str(record.get("status", "")),
        words.number(record.get("cohort")),
        *[words.number(record.get("clients_failed", 0))] * failing,
        words.number(record.get("survivors")),
        *(words.metric(n, record[n], record.get(n + NOISE_STD)) if n in record else "–"
          for n in names),
        *(epsilon_text(spent[o]) if o in spent else "–" for o in OBSERVERS),
        words.number(record.get("seconds")),
    ]  # fmt: skip


def _changed(experiment: Experiment) -> list[list[str]]:
    """Return rows of key, value and default where they differ."""
    usual, now = dict(_flat(Experiment())), dict(_flat(experiment))
    keys = dict.fromkeys([*now, *usual])
    return [
        [key, _value(now.get(key)), _value(usual.get(key))]
        for key in keys
        if now.get(key) != usual.get(key)
    ]


def _flat(values: Mapping[str, Any] | Spec, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted keys and values, those too that a file goes without."""
    for key, value in values.items() if isinstance(values, Mapping) else values:
        if isinstance(value, Mapping | Spec):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _value(value: object) -> str:
    return "not set" if value is None else str(value)


def _promise(run: RunRecord) -> str:
    """Say what running the same configuration again gives."""
    seeded = run.summary.noise_from_seed
    if seeded is None:
        return "The run has not finished: --resume continues it to the model it would have given."
    if run.experiment.privacy.private and not seeded:
        return (
            "Noise and sampling came from the operating system: another run gives another model "
            "of the same quality."
        )
    if run.experiment.device == "cpu":
        return "With these versions it gives the same model, bit for bit, on a CPU."
    return (
        "With these versions it gives the same model to float rounding: it was trained on "
        f"{_device(run)}."
    )


def _device(run: RunRecord) -> str:
    """Return the device of a run, with the name of the card where the summary has it."""
    named = run.summary.engine.get("device")
    return named if isinstance(named, str) else run.experiment.device
