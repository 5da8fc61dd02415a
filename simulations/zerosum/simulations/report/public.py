"""Write what outsiders may read of a run: its releases, and nothing of who took part.

epsilon_release holds against readers who do not know how many clients a round asked, who answered
and who dropped out: where cohorts are sampled, that secrecy is what amplifies privacy. So a public
report is put together from a list of what is known to be public, never by leaving things out of a
full one: what a later version records stays inside until somebody adds it here.

Public are the settings that every client was told before the first round, the number of clients in
the roster, which rounds were released, and functions of the releases: the model, its metrics on
public test data, sums that were opened with their constant noise, and the clip that follows them.
The model is itself the last release, so it is copied. The seed is none of these: a simulation's
cohorts and noise follow from it.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from zerosum.client.files.file_errors import reason
from zerosum.server.config import ConfigError
from zerosum.server.planning.spent_budget import ledger_header, planned_figures
from zerosum.server.privacy.epsilon_bound import EpsilonBound, no_bound
from zerosum.server.privacy.ledger_file import RunHeader
from zerosum.server.privacy.noised_ratio import NOISE_STD
from zerosum.server.privacy.rounding import epsilon_up
from zerosum.server.privacy.run_ledger import NO_NOISE, SECRET_SEED
from zerosum.server.runs.records import RoundRecord, Summary
from zerosum.server.runs.results import final_metrics
from zerosum.server.runs.run_folder import LEDGER, MODEL, REPORT, SUMMARY, RunFolder
from zerosum.server.spec import Experiment
from zerosum.simulations.report.page import render_public
from zerosum.simulations.report.record import RunRecord, read_run

SETTINGS: Final = (
    "name",
    "task",
    "rounds",
    "model",
    "training",
    "privacy",
    "encoding",
    "secagg",
    "sampling",
    "server",
    "evaluation",
)
"""What of an experiment is public."""

WITHHELD: Final = (
    "seed",
    "engine",
    "workers",
    "device",
    "trainer",
    "data",
    "faults",
    "deployment",
)
"""What is not: it names machines and files, or would let cohorts be drawn again."""

_RELEASED: Final = (
    "round",
    "status",
    "lr",
    "server_lr",
    "average_norm",
    "clip",
    "fraction_within_clip",
    "fraction_within_clip" + NOISE_STD,
    "federated_status",
)
"""What a round's line says of its release, beside its metrics."""

_HIGHER_RATE: Final = (
    "the ledger's figure is above the one that the settings alone give, as where more clients "
    "dropped out than they assume, or rounds were asked again; it is rounded up"
)

_COVERED: Final = (
    "more clients dropped out than the settings assume; the figure covers what was charged for that"
)

_OF_THE_PLAN: Final = ("dropout at most ", "a round is opened only because ")
"""Beginnings of assumptions of the plan's figure that a run's own dropouts can refute."""


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
        target.write_json(SUMMARY, _public_summary(run.summary))
        if run.finished and (folder.path / MODEL).is_file():
            shutil.copyfile(folder.path / MODEL, made / MODEL)
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
    bound = _release_bound(run, header)
    rounds = [_public_line(line, constant=_noise_is_constant(experiment)) for line in run.rounds]
    settings = experiment.model_dump(mode="json", include=set(SETTINGS))
    summary = Summary(
        name=run.experiment.name,
        rounds=len(rounds),
        rounds_abandoned=sum(not line.completed for line in rounds),
        metrics=final_metrics(rounds),
        epsilon={"release": bound},
        population=population,
        noise_from_seed=bool(run.summary.noise_from_seed),
        settings=settings,
    )
    return RunRecord(
        name=run.experiment.name,
        experiment=experiment,
        toml="",
        rounds=rounds,
        summary=summary,
        finished=run.finished,
        bounds={"release": bound},
    )


def _public_line(line: RoundRecord, *, constant: bool) -> RoundRecord:
    """Return what a round's line says of its release."""
    public = {name: value for name, value in line.items() if name in _RELEASED}
    public |= sorted(line.metrics.items())  # their order would tell what else was measured
    # Noise that is not brought to a constant total tells how many survived.
    return RoundRecord(
        **{name: v for name, v in public.items() if constant or not name.endswith(NOISE_STD)}
    )


def _public_summary(summary: Summary) -> dict[str, Any]:
    """Return the summary's JSON object without what counts have a part in."""
    document = summary.document()
    for bound in document["epsilon"].values():
        for name in _COUNTED:
            del bound[name]
    return document


def _noise_is_constant(experiment: Experiment) -> bool:
    privacy = experiment.privacy
    topped_up = privacy.model == "distributed" and privacy.top_up
    return topped_up or privacy.model in ("central", "none")


def _release_bound(run: RunRecord, header: RunHeader | None) -> EpsilonBound:
    """Compute epsilon_release as the settings give it; take the ledger's if that is more.

    The ledger's figure depends on counts in its last digits (noise drawn), and beyond them where
    cohorts are accounted as known. The plan's, of all rounds opened, follows from the settings: it
    is stated wherever it covers what the ledger charged.
    """
    privacy, charged = run.experiment.privacy, run.bounds.get("release")
    if not privacy.private or charged is None or not charged.finite:
        reason = "no figure is recorded that holds for outsiders" if privacy.private else NO_NOISE
        return no_bound("release", privacy.delta, reason, unit=privacy.unit)
    if header is None:
        raise ConfigError(f"{run.name} holds no {LEDGER}: what was spent is not known any more")
    planned = planned_figures(run.experiment, header)["release"]
    assumptions = list(planned.assumptions)
    if run.summary.noise_from_seed:
        assumptions.append(SECRET_SEED)
    higher = planned.value < charged.value
    refuted = any(
        note.startswith(_OF_THE_PLAN) and note not in charged.assumptions for note in assumptions
    )
    if higher or refuted:
        assumptions = [note for note in assumptions if not note.startswith(_OF_THE_PLAN)]
        assumptions.append(_HIGHER_RATE if higher else _COVERED)
    if not higher:
        assumptions.append("counted as if every planned round was opened")
    return replace(
        planned,
        # Rounded, since the digits beyond hang on how much noise was drawn, which is a count.
        value=epsilon_up(charged.value if higher else planned.value),
        slack=0.0,
        participations=None,
        assumptions=tuple(assumptions),
    )


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
