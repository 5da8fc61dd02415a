"""Gather runs into methods: the same configuration but for the seed, with mean and deviation."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from zerosum.client.training.metric_names import direction as direction_of_name
from zerosum.server.config import ConfigError
from zerosum.server.privacy.epsilon_bound import EpsilonBound
from zerosum.server.privacy.observers import OBSERVERS, ObserverName
from zerosum.server.privacy.rounding import plain
from zerosum.server.runs.run_folder import CONFIG, RunFolder
from zerosum.server.spec import Experiment
from zerosum.simulations.report import words
from zerosum.simulations.report.compare_cautions import RunNotes, of_figures
from zerosum.simulations.report.compare_labels import (
    NAME,
    PRIVACY_KEYS,
    differences_of,
    label_of,
    told_of,
)
from zerosum.simulations.report.record import RunRecord, Sight, read_run

_NOT_THE_METHOD = (
    *("name", "seed", "engine", "workers", "log", "baselines"),
    *("data.cache", "deployment"),
)
"""Keys and sections that make no other method: the model is the same, or one of its seeds."""


@dataclass(frozen=True)
class Candidate:
    """A run to compare.

    Attributes
    ----------
    path : Path
        Its folder, which need not be there yet.
    experiment : Experiment or None
        As a sweep asked for it; None: what the folder has.
    sweep : Path or None
        Folder of its sweep.
    keys : tuple of str
        That change over its sweep, in the order in which they were asked for.
    """

    path: Path
    experiment: Experiment | None = None
    sweep: Path | None = None
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Spread:
    """Mean and sample deviation of a figure over the seeds; the deviation of one run is NaN."""

    mean: float
    deviation: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Return the spread of values, of which there is at least one."""
        # A deviation from the mean of the sample itself: divided by n - 1.
        with np.errstate(invalid="ignore"):  # of a diverged run it is NaN, as its mean is
            deviation = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
        return cls(float(np.mean(values)), deviation, len(values))

    def text(self, metric: str) -> str:
        """Write it for people."""
        known = math.isfinite(self.deviation)
        if metric.endswith("accuracy") and 0 <= self.mean <= 1:
            return words.metric(metric, self.mean, self.deviation if known else None)
        mean = plain(self.mean, 3)
        usual = "e" not in mean and "." in mean and self.deviation < 1e6
        deviation = f"{self.deviation:.3f}" if usual else plain(self.deviation, 3)
        return f"{mean} ± {deviation}" if known else mean


@dataclass(frozen=True)
class Method:
    """Runs of one configuration, a seed each.

    Attributes
    ----------
    label : str
        What tells it from the others.
    settings : dict of str to str
        Of the keys that differ between methods.
    told : dict of str to str
        Those that the label is made of, with the runs' name where it stands for some of them.
    asked : int
        Runs that there are to be.
    runs : tuple of (Path, RunRecord)
        Those that finished, and trained.
    """

    label: str
    settings: Mapping[str, str]
    told: Mapping[str, str]
    asked: int
    runs: tuple[tuple[Path, RunRecord], ...]

    @cached_property
    def metrics(self) -> dict[str, Spread]:
        """The last value of each metric that all runs have."""
        found = [run.metrics for _, run in self.runs]
        names = [
            name for name in (found[0] if found else ()) if all(name in each for each in found)
        ]
        return {name: Spread.of([each[name] for each in found]) for name in names}

    @cached_property
    def bounds(self) -> dict[ObserverName, EpsilonBound]:
        """The largest epsilon of any seed, for each observer."""
        found: dict[ObserverName, EpsilonBound] = {}
        for observer in OBSERVERS:
            bounds = [run.bounds[observer] for _, run in self.runs if observer in run.bounds]
            if bounds and len(bounds) == len(self.runs):
                found[observer] = max(bounds, key=lambda bound: bound.value)
        return found

    @property
    def seconds(self) -> float:
        """Mean time of a run."""
        totals = [float(np.nansum(run.series("seconds"))) for _, run in self.runs]
        return float(np.mean(totals)) if totals else math.nan

    @property
    def family(self) -> str:
        """The label without what trades accuracy for privacy."""
        return label_of({k: v for k, v in self.told.items() if k not in PRIVACY_KEYS})

    @property
    def spelt(self) -> str:
        """The label without a name: every key that differs."""
        return label_of(self.settings)

    @cached_property
    def _series(self) -> list[dict[str, list[tuple[int, float]]]]:
        return [run.metric_series() for _, run in self.runs]

    @property
    def privacy(self) -> str:
        """The label of what trades accuracy for privacy alone."""
        return label_of({k: v for k, v in self.told.items() if k in PRIVACY_KEYS})

    def curve(self, metric: str) -> list[tuple[int, Spread]]:
        """Return (round, spread) of the rounds in which all runs have the metric, finite.

        Parameters
        ----------
        metric : str
            Its name.

        Returns
        -------
        list of (int, Spread)
            In the order of the rounds.
        """
        series = [dict(each.get(metric, ())) for each in self._series]
        common = sorted(set.intersection(*map(set, series))) if series else []
        values = ((number, [each[number] for each in series]) for number in common)
        return [(number, Spread.of(each)) for number, each in values if np.isfinite(each).all()]


@dataclass(frozen=True)
class Comparison:
    """Methods side by side.

    Attributes
    ----------
    methods : tuple of Method
        In the order of the runs; those without a finished run too.
    differences : dict of str to list of str
        Values of each key that differs, in their order.
    common : dict of str to str
        Keys that all have at one value, which is not the default.
    cautions : tuple of str
        What was left out, and what the figures do not say.
    about : dict of str to tuple of str
        By caution the runs or methods that it is about; of a caution about one, none.
    """

    methods: tuple[Method, ...]
    differences: Mapping[str, list[str]]
    common: Mapping[str, str]
    cautions: tuple[str, ...] = ()
    about: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def named(self) -> bool:
        """Return whether labels have the runs' names in place of keys."""
        return any(NAME in method.told for method in self.shown)

    @cached_property
    def shown(self) -> list[Method]:
        """Methods with a finished run."""
        return [method for method in self.methods if method.runs]

    @cached_property
    def metrics(self) -> list[str]:
        """Names of all metrics, accuracies and then losses first."""
        names = dict.fromkeys(name for method in self.shown for name in method.metrics)
        return sorted(names, key=lambda name: ("accuracy" not in name, "loss" not in name))

    @cached_property
    def observer(self) -> ObserverName | None:
        """Whose epsilon is shown: that of ``privacy.epsilon_for``, where it is one and finite."""
        asked = {
            run.experiment.privacy.epsilon_for for method in self.shown for _, run in method.runs
        }
        order = [*(asked if len(asked) == 1 else ()), *OBSERVERS]
        return next((o for o in order if any(self.finite(m, o) for m in self.shown)), None)

    @staticmethod
    def finite(method: Method, observer: ObserverName) -> bool:
        """Return whether a method has a finite epsilon against an observer.

        Parameters
        ----------
        method : Method
            One of the methods.
        observer : str
            Against whom.

        Returns
        -------
        bool
            False too where a run has none recorded.
        """
        return observer in method.bounds and method.bounds[observer].finite

    def best(self, metric: str) -> Method | None:
        """Return the method with the best mean; None where nothing says which way is better.

        Parameters
        ----------
        metric : str
            Its name.
        """
        sign = direction(metric)
        scored = [m for m in self.shown if metric in m.metrics and sign]
        scored = [m for m in scored if math.isfinite(m.metrics[metric].mean)]
        return max(scored, key=lambda m: sign * m.metrics[metric].mean, default=None)


def direction(metric: str) -> int:
    """Return 1 where a larger metric is better, -1 where a smaller is, 0 where nobody knows."""
    name = metric.removeprefix("test_").removeprefix("federated_")
    return {"max": 1, "min": -1, None: 0}[direction_of_name(name)]  # as for evaluation.best


def compare(candidates: Sequence[Candidate]) -> Comparison:
    """Read runs and gather them into methods.

    Parameters
    ----------
    candidates : sequence of Candidate
        At least one.

    Returns
    -------
    Comparison
        Of all of them.

    Raises
    ------
    ConfigError
        If a folder cannot be read, or no run has finished.
    """
    notes = RunNotes(len(candidates))
    names: dict[str, set[str]] = {}
    gathered: dict[str, list[tuple[Path, RunRecord | None, int]]] = {}
    settings: dict[str, dict[str, str]] = {}
    for candidate in candidates:
        run = _read(candidate)
        experiment = candidate.experiment or (run.experiment if run else None)
        if experiment is None:
            raise ConfigError(
                f"{candidate.path} holds no run (no {CONFIG}): give the folder of one"
            )
        flat = _settings(experiment)
        key = json.dumps(flat, sort_keys=True)
        if any(seed == experiment.seed for _, _, seed in gathered.setdefault(key, [])):
            name = candidate.path.name
            again = f"{name} is a run that is here already: counted once"
            notes.add("are here already: each is counted once", again, name)
            continue
        settings[key] = flat
        names.setdefault(key, set()).add(experiment.name)
        gathered[key].append((candidate.path, _usable(candidate, run, notes), experiment.seed))
    asked = list(dict.fromkeys(key for candidate in candidates for key in candidate.keys))
    differences = differences_of(list(settings.values()), asked)
    full = {k: {d: of.get(d, "not set") for d in differences} for k, of in settings.items()}
    told = told_of(full, names)
    methods = tuple(_method(full[key], told[key], members) for key, members in gathered.items())
    if not any(method.runs for method in methods):
        cure = notes.cure or ": complete them with --resume first"
        raise ConfigError(f"none of these runs has finished{cure}")
    common = _common(list(settings.values()), differences)
    found = Comparison(methods, differences, common)
    about = notes.said() | dict(of_figures(found))
    return replace(found, cautions=tuple(about), about={k: of for k, of in about.items() if of})


def _read(candidate: Candidate) -> RunRecord | None:
    there = (candidate.path / CONFIG).is_file()
    # Without its pictures: of hundreds of runs they would fill the memory.
    return replace(read_run(RunFolder.open(candidate.path)), sight=Sight()) if there else None


def _usable(candidate: Candidate, run: RunRecord | None, notes: RunNotes) -> RunRecord | None:
    """Return a run that counts; of one that does not, say why."""
    name = candidate.path.name
    if run is None or not run.finished:
        notes.open(name, candidate.sweep)
        return None
    if run.untrained or run.summary.nothing_learnt:
        why = "no client's training is in"
        notes.add(f"are left out: {why} their models", f"{name} is left out: {why} its model", name)
        return None
    for metric, number in run.earlier_metrics.items():
        notes.add(
            f"have their {metric} of a round before the last",
            f"{name}: its {metric} is of round {number}, not of the last",
            f"{name}: of round {number}",
        )
    return run


def _method(
    settings: Mapping[str, str],
    told: Mapping[str, str],
    members: Sequence[tuple[Path, RunRecord | None, int]],
) -> Method:
    runs = tuple((path, run) for path, run, _ in members if run is not None)
    name = runs[0][1].experiment.name if runs else members[0][0].name
    return Method(label_of(told) or name, settings, told, len(members), runs)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _settings(experiment: Experiment) -> dict[str, str]:
    """Return what makes a method: every key but seed, name, and how it is computed."""
    flat = dict(_flat(experiment.model_dump(mode="json")))
    return {
        key: _text(value)
        for key, value in flat.items()
        if key not in _NOT_THE_METHOD and key.partition(".")[0] not in _NOT_THE_METHOD
    }


def _text(value: object) -> str:
    if value is None:
        return "not set"
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def _common(
    settings: Sequence[Mapping[str, str]], differences: Mapping[str, object]
) -> dict[str, str]:
    usual = _settings(Experiment())
    return {
        key: value
        for key, value in settings[0].items()
        if key not in differences and usual.get(key) != value
    }
