"""Write what outsiders may read of a run: its releases, and nothing of who took part.

epsilon_release holds against readers who do not know how many clients a round asked, who answered
and who dropped out: where cohorts are sampled, that secrecy is what amplifies privacy. So a public
report is put together from a list of what is known to be public, never by leaving things out of a
full one: what a later version records stays inside until somebody adds it here.

Public are the settings that every client was told before the first round, the number of clients in
the roster, which rounds were released, and functions of the releases: the model, its metrics on
public test data, what it confuses there and what a constant predictor gives on them, sums that were
opened with their constant noise, and the clip that follows them. The model is itself the last
release, so it is copied, and so is the best one, an earlier release. The seed is none of these: a
simulation's cohorts and noise follow from it. Baselines are none either: they are trained on
private records without noise.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from zerosum.client.files.file_errors import reason
from zerosum.server.config import ConfigError
from zerosum.server.planning.public_part import (
    SETTINGS,
    public_line,
    public_settings,
    release_bound,
)
from zerosum.server.planning.spent_budget import ledger_header
from zerosum.server.runs.metrics_table import table_of
from zerosum.server.runs.records import Summary
from zerosum.server.runs.run_folder import (
    BEST,
    LEDGER,
    MODEL,
    REPORT,
    SUMMARY,
    TABLE,
    TEST_SET,
    RunFolder,
)
from zerosum.server.runs.run_summary import final_metrics
from zerosum.server.spec import Experiment
from zerosum.simulations.report.page import render_public
from zerosum.simulations.report.record import RunRecord, read_run

_OF_ENDS: Final = ("best", "ended_by", "planned_rounds")
"""What the summary says of the best model and of a run's end."""

_TEST_SET: Final = (
    *("round", "examples", "undefined", "classes", "classes_present", "accuracy"),
    *("balanced_accuracy", "macro_f1", "confused", "confusion", "per_class", "calibration"),
    "class_names",
)
"""What of ``test-set.json`` is public: numbers, and no text that a task's error may have filled."""

_REFERENCE: Final = ("predictor", "label", "label_name", "metrics", "loss")
"""What of a constant predictor is, likewise."""

_COUNTED: Final = ("slack", "participations")
"""Parts of a bound that follow from how many took part."""


def write_public_report(folder: RunFolder | Path, out: Path) -> Path:
    """Write report, summary, metrics and model of a run without counts, all of it or nothing.

    Parameters
    ----------
    folder : RunFolder or Path
        A run folder, finished or not.
    out : Path
        A folder that is new or empty, outside the run folder.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    ConfigError
        If the path holds no run, or one whose ledger is gone or damaged, or ``out`` cannot be used.
    """
    if isinstance(folder, Path):
        folder = RunFolder.open(folder)
    out = _checked(folder.path, out)
    run = public_record(folder)
    with _whole(out) as made:
        target = RunFolder(made)
        target.write(REPORT, render_public(run).encode(errors="backslashreplace"))
        target.rewrite_rounds(run.rounds)
        target.write(TABLE, table_of(run.rounds))
        target.write_json(SUMMARY, _public_summary(run.summary))
        if run.test_set:
            target.write_json(TEST_SET, run.test_set, indent=None)
        if run.finished and (folder.path / MODEL).is_file():
            shutil.copyfile(folder.path / MODEL, made / MODEL)
        if run.finished and run.summary.best is not None and (folder.path / BEST).is_file():
            shutil.copyfile(folder.path / BEST, made / BEST)
    return out / REPORT


def public_record(folder: RunFolder) -> RunRecord:
    """Return a run as outsiders may know it: every field is public, or empty.

    Parameters
    ----------
    folder : RunFolder
        The run, finished or not.
    """
    run = read_run(folder)
    header = ledger_header(folder) if (folder.path / LEDGER).is_file() else None
    population = run.population if header is None else header.population
    experiment = Experiment().model_copy(
        update={name: getattr(run.experiment, name) for name in SETTINGS}
    )
    bound = release_bound(
        run.experiment,
        run.bounds.get("release"),
        header,
        noise_from_seed=bool(run.summary.noise_from_seed),
    )
    rounds = [public_line(line, experiment) for line in run.rounds]
    summary = Summary(
        name=run.experiment.name,
        rounds=len(rounds),
        rounds_abandoned=sum(not line.completed for line in rounds),
        metrics=final_metrics(rounds),
        epsilon={"release": bound},
        population=population,
        noise_from_seed=bool(run.summary.noise_from_seed),
        settings=public_settings(experiment),
        # Of models that are released, by a public metric; when the run ended anybody can count.
        **{name: run.summary[name] for name in _OF_ENDS if name in run.summary},
    )
    reference = {name: value for name, value in run.summary.reference.items() if name in _REFERENCE}
    if run.finished and reference:
        summary |= {"reference": reference}
    return RunRecord(
        name=run.experiment.name,
        experiment=experiment,
        toml="",
        rounds=rounds,
        summary=summary,
        finished=run.finished,
        bounds={"release": bound},
        test_set=_public_test_set(run.test_set),
        dimension=run.dimension,  # of the model, which is public
    )


def _public_test_set(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``test-set.json`` says in numbers; nothing where it has a reason alone.

    Names are those of classes that the public test data have: others are known of private records.
    """
    if "left_out" in document:
        return {}
    known = {name: value for name, value in document.items() if name in _TEST_SET}
    if names := known.pop("class_names", None):
        counts = [each["examples"] for each in known.get("per_class", [])]
        shown = zip(names, counts, strict=False)
        known["class_names"] = [name if count else None for name, count in shown]
    return known


def _public_summary(summary: Summary) -> dict[str, Any]:
    """Return the summary's JSON object without what counts have a part in."""
    document = summary.document()
    for bound in document["epsilon"].values():
        for name in _COUNTED:
            del bound[name]
    return document


def _checked(run: Path, out: Path) -> Path:
    """Return where ``out`` leads; refuse what holds something, or is not apart from the run's."""
    try:
        inside, outside = run.resolve(), out.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a null byte
        why = reason(out, error)
        raise ConfigError(f"--public {str(out)[:200]!r} cannot be used: {why}") from None
    if inside == outside or inside in outside.parents or outside in inside.parents:
        raise ConfigError(
            f"--public {out}: what is public and {run}, which shows counts, must not be in one "
            "folder; name another"
        )
    try:
        if outside.exists() and not (outside.is_dir() and not any(outside.iterdir())):
            raise ConfigError(
                f"--public {out} exists and is not an empty folder: choose another, or delete it"
            )
        if not outside.parent.is_dir():
            raise ConfigError(f"--public {out}: there is no folder {out.parent}; create it first")
    except OSError as error:
        why = reason(out, error)
        raise ConfigError(f"--public {str(out)[:200]!r} cannot be used: {why}") from None
    return outside


@contextmanager
def _whole(out: Path) -> Iterator[Path]:
    """Make a folder beside ``out`` and let it take that name when it is complete."""
    made = out.with_name(f".{out.name}.{os.getpid()}.new")
    try:
        made.mkdir()
        yield made
        made.rename(out)
    except OSError as error:
        raise ConfigError(f"--public {out} cannot be written: {reason(out, error)}") from None
    finally:
        shutil.rmtree(made, ignore_errors=True)
