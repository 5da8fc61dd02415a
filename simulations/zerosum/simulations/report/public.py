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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from zerosum.server.config import ConfigError
from zerosum.server.planning.spent_budget import ledger_header, planned_figures
from zerosum.server.privacy.noised_ratio import NOISE_STD
from zerosum.server.privacy.rounding import rounded_up
from zerosum.server.privacy.run_ledger import NO_NOISE, SECRET_SEED
from zerosum.server.runs.run_folder import LEDGER, METRICS, MODEL, REPORT, SUMMARY, RunFolder
from zerosum.server.spec import Experiment
from zerosum.simulations.report.page import render_public
from zerosum.simulations.report.record import Bound, RunRecord, read_run

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
    "average_norm",
    "clip",
    "fraction_within_clip",
    "fraction_within_clip" + NOISE_STD,
    "federated_status",
)
"""What a round's line says of its release, beside metrics."""

_METRICS: Final = ("test_", "federated_")

_HIGHER_RATE: Final = (
    "the ledger's figure is above the one that the settings alone give, as where more clients "
    "dropped out than they assume, or rounds were asked again; it is rounded up"
)

_COVERED: Final = (
    "more clients dropped out than the settings assume; the figure covers what was charged for that"
)

_OF_THE_PLAN: Final = ("dropout at most ", "a round is opened only because ")
"""Beginnings of assumptions of the plan's figure that a run's own dropouts can refute."""


@dataclass(frozen=True)
class _Figure:
    """The release figure as outsiders may read it."""

    bound: Bound
    summary: Mapping[str, Any]


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
        target.write(REPORT, render_public(run).encode(errors="surrogateescape"))
        target.rewrite_lines(METRICS, run.rounds)
        target.write_json(SUMMARY, run.summary)
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
    header = ledger_header(folder) if (folder.path / LEDGER).is_file() else {}
    population = header.get("population") or run.population
    experiment = Experiment().model_copy(
        update={name: getattr(run.experiment, name) for name in SETTINGS}
    )
    figure = _release_figure(run, population, header)
    rounds = [_public_line(line, constant=_noise_is_constant(experiment)) for line in run.rounds]
    metrics = {
        name: value
        for line in rounds
        for name, value in line.items()
        if name.startswith(_METRICS) and isinstance(value, float)
    }
    settings = experiment.model_dump(mode="json", include=set(SETTINGS))
    summary = {
        "name": run.experiment.name,
        "rounds": len(rounds),
        "rounds_abandoned": sum(line.get("status") != "completed" for line in rounds),
        "metrics": metrics,
        "epsilon": {"release": figure.summary},
        "population": population,
        "noise_from_seed": bool(run.summary.get("noise_from_seed")),
        "settings": settings,
    }
    return RunRecord(
        name=run.experiment.name,
        experiment=experiment,
        toml="",
        rounds=rounds,
        summary=summary,
        finished=run.finished,
        bounds={"release": figure.bound},
    )


def _public_line(line: Mapping[str, Any], *, constant: bool) -> dict[str, Any]:
    """Return what a round's line says of its release."""
    return {
        name: value
        for name, value in sorted(line.items())
        if name in _RELEASED or (name.startswith(_METRICS) and isinstance(value, float))
        # Noise that is not brought to a constant total tells how many survived.
        if constant or not name.endswith(NOISE_STD)
    }


def _noise_is_constant(experiment: Experiment) -> bool:
    privacy = experiment.privacy
    topped_up = privacy.model == "distributed" and privacy.top_up
    return topped_up or privacy.model in ("central", "none")


def _release_figure(run: RunRecord, population: int | None, header: Mapping[str, Any]) -> _Figure:
    """Return epsilon_release as the settings give it, or the ledger's if that is more.

    The ledger's figure depends on counts in its last digits (noise drawn), and beyond them where
    cohorts are accounted as known. The plan's, of all rounds opened, follows from the settings: it
    is stated wherever it covers what the ledger charged.
    """
    charged = run.bounds.get("release", Bound())
    if not run.experiment.privacy.private or charged.value is None:
        reason = NO_NOISE
        if run.experiment.privacy.private:
            reason = "no figure is recorded that holds for outsiders"
        bound = Bound(delta=charged.delta, reason=reason)
        return _Figure(bound, _written(bound))
    if not header:
        raise ConfigError(f"{run.name} holds no {LEDGER}: what was spent is not known any more")
    told = planned_figures(run.experiment, header)["release"]
    value, assumptions = told["value"], list(told["assumptions"])
    if run.summary.get("noise_from_seed"):
        assumptions.append(SECRET_SEED)
    higher = value is None or value < charged.value
    refuted = any(
        note.startswith(_OF_THE_PLAN) and note not in charged.assumptions for note in assumptions
    )
    if higher or refuted:
        assumptions = [note for note in assumptions if not note.startswith(_OF_THE_PLAN)]
        assumptions.append(_HIGHER_RATE if higher else _COVERED)
    if higher:
        value = charged.value
    else:
        assumptions.append("counted as if every planned round was opened")
    bound = Bound(
        value=float(rounded_up(value)),
        delta=told["delta"],
        adjacency=told["adjacency"],
        unit=told["unit"],
        accountant=told["accountant"],
        assumptions=tuple(assumptions),
    )
    return _Figure(bound, _written(bound))


def _written(bound: Bound) -> dict[str, Any]:
    names = ("value", "delta", "adjacency", "unit", "accountant", "reason")
    return {name: getattr(bound, name) for name in names} | {"assumptions": [*bound.assumptions]}


def _checked(run: Path, out: Path) -> Path:
    """Return where ``out`` leads; refuse what holds something, or is not apart from the run's."""
    try:
        inside, outside = run.resolve(), out.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a null byte
        raise ConfigError(f"--public {str(out)[:200]!r} cannot be used: {error}") from None
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
        raise ConfigError(f"--public {str(out)[:200]!r} cannot be used: {error}") from None
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
        raise ConfigError(f"--public {out} cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(made, ignore_errors=True)
