"""What a run folder says, read into one object."""

import json
import logging
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.stages import Stage
from zerosum.server.config import ConfigError
from zerosum.server.privacy.noised_ratio import NOISE_STD
from zerosum.server.runs.plain_json import numbers
from zerosum.server.runs.run_folder import CONFIG, METRICS, SUMMARY, RunFolder
from zerosum.server.runs.run_outcome import failures_summary, is_untrained
from zerosum.server.spec import Experiment
from zerosum.simulations.report.audited import Audited, read_audit

log = logging.getLogger("zerosum.simulations")

SIGHT = "sight.npz"
"""Optional: what the server saw in one round, and some test images with their predictions."""

OBSERVERS = ("sum", "local", "release")


@dataclass(frozen=True)
class Bound:
    """One epsilon against one observer, with what it rests on; absent fields are None.

    Parameters
    ----------
    value : float, optional
        Epsilon; None is infinity, or unknown, with ``reason`` why.
    delta : float, optional
        Its delta.
    adjacency, unit, accountant, participations : str, optional
        As the ledger states them.
    assumptions : tuple of str
        What must hold for the figure to be true.
    reason : str, optional
        Why there is no value.
    """

    value: float | None = None
    delta: float | None = None
    adjacency: str | None = None
    unit: str | None = None
    accountant: str | None = None
    participations: str | None = None
    assumptions: tuple[str, ...] = ()
    reason: str | None = None


@dataclass(frozen=True)
class Sight:
    """What the server saw in one round, and what the model says of some test images.

    Parameters
    ----------
    masked : numpy.ndarray, optional
        First words of one client's vector as it arrived, float64 in [0, 1) of the ring.
    total : numpy.ndarray, optional
        The decoded average of the same round, float64.
    images : numpy.ndarray, optional
        uint8, shape (k, h, w) or (k, h, w, 3).
    labels, predictions : numpy.ndarray, optional
        Integers, shape (k,).
    """

    masked: NDArray[np.float64] | None = None
    total: NDArray[np.float64] | None = None
    images: NDArray[np.uint8] | None = None
    labels: NDArray[Any] | None = None
    predictions: NDArray[Any] | None = None


@dataclass(frozen=True)
class RunRecord:
    """Everything the report shows.

    Parameters
    ----------
    name : str
        Name of the run folder.
    experiment : Experiment
        The resolved configuration; ``toml`` is its text.
    rounds : list of dict
        The lines of ``metrics.jsonl``.
    summary : dict
        ``summary.json``, or nothing.
    finished : bool
        Whether the summary speaks of these rounds, and of all of them.
    bounds : dict of str to Bound
        By observer, as far as recorded.
    sight : Sight
        Empty where the folder has none.
    audited : Audited, optional
        What an audit found, where one was made.
    """

    name: str
    experiment: Experiment
    toml: str
    rounds: list[dict[str, Any]]
    summary: Mapping[str, Any]
    finished: bool
    bounds: Mapping[str, Bound]
    sight: Sight = field(default_factory=Sight)
    audited: Audited | None = None

    @property
    def completed(self) -> list[dict[str, Any]]:
        """The rounds whose sum was released."""
        return [r for r in self.rounds if r.get("status") == "completed"]

    @property
    def abandoned(self) -> list[dict[str, Any]]:
        """The rounds that released nothing."""
        return [r for r in self.rounds if r.get("status") != "completed"]

    @property
    def metrics(self) -> dict[str, float]:
        """The last value of every metric."""
        return {name: values[-1][1] for name, values in self.metric_series().items()}

    @property
    def earlier_metrics(self) -> dict[str, int]:
        """The round of every metric whose last value is not the last round's."""
        # It imports torch, which what only reads a run's words (zerosum --help, budget) must not.
        from zerosum.server.runs.results import earlier_metrics

        return earlier_metrics(self.rounds)

    @property
    def untrained(self) -> bool:
        """Whether no client's training is in the model, as far as the rounds say."""
        return bool(self.rounds) and is_untrained(self.rounds)

    @property
    def failures(self) -> dict[str, Any] | None:
        """Failures of training over all rounds; None where nobody counts them."""
        return failures_summary(self.rounds)

    def noise_of(self, metric: str) -> float | None:
        """Return the deviation of the noise in the last value of a metric; None without any."""
        last: dict[str, Any] = next((r for r in reversed(self.rounds) if metric in r), {})
        found = last.get(metric + NOISE_STD)
        return None if found is None else float(found)

    @property
    def population(self) -> int | None:
        """Number of clients, where recorded."""
        recorded = self.summary.get("population")
        return self.experiment.data.clients if recorded is None else int(recorded)

    @property
    def dropouts(self) -> dict[str, int]:
        """Clients lost by stage, over all rounds, in the stages' order."""
        found = {stage for r in self.rounds for stage in r.get("dropouts", {})}
        order = [s for s in Stage if s in found] + sorted(found - set(Stage))
        return {s: sum(r.get("dropouts", {}).get(s, 0) for r in self.rounds) for s in order}

    def series(self, key: str) -> NDArray[np.float64]:
        """Return one figure of every round, NaN where it has none, shape (rounds,)."""
        return np.array([_number(r.get(key)) for r in self.rounds], dtype=np.float64)

    def nested(self, key: str, name: str) -> NDArray[np.float64]:
        """Return ``round[key][name]`` of every round, NaN where it has none."""
        values = [(r.get(key) or {}).get(name) for r in self.rounds]
        return np.array([_number(v) for v in values], dtype=np.float64)

    def metric_series(self) -> dict[str, list[tuple[int, float]]]:
        """Return (round, value) of every ``test_`` and ``federated_`` metric."""
        found: dict[str, list[tuple[int, float]]] = {}
        for record in self.rounds:
            for name, value in record.items():
                measured = name.startswith(("test_", "federated_"))
                if name.endswith(NOISE_STD) or not measured:
                    continue
                if isinstance(value, float):  # integers are counts, as federated_cut_of
                    found.setdefault(name, []).append((record["round"], float(value)))
        return found


def read_run(folder: RunFolder) -> RunRecord:
    """Read a run folder, finished or not.

    Raises
    ------
    ConfigError
        If the configuration, the rounds or the summary cannot be read.
    """
    experiment = folder.experiment
    rounds = folder.read_lines(METRICS)
    if not all(isinstance(line.get("round"), int) for line in rounds):
        raise ConfigError(f"{folder.path / METRICS} is damaged: a line of it names no round")
    summary = _read_summary(folder)
    current = bool(summary) and summary.get("rounds") == len(rounds)
    return RunRecord(
        name=folder.path.resolve().name,
        experiment=experiment,
        toml=(folder.path / CONFIG).read_text(encoding="utf-8"),
        rounds=rounds,
        summary=summary,
        finished=current and len(rounds) >= experiment.rounds,
        bounds=_bounds(summary.get("epsilon", {}), rounds, experiment, current=current),
        sight=_read_sight(folder),
        audited=read_audit(folder),
    )


def _number(value: object) -> float:
    """Return a finite float, or NaN: pictures have no place for anything else."""
    if isinstance(value, (int, float)) and np.isfinite(value):
        return float(value)
    return float("nan")


def _read_summary(folder: RunFolder) -> dict[str, Any]:
    try:
        text = (folder.path / SUMMARY).read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{folder.path / SUMMARY} is damaged ({error})") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{folder.path / SUMMARY} is damaged: it holds no object")
    if isinstance(found.get("metrics"), dict):
        found["metrics"] = numbers(found["metrics"])
    return found


def _bounds(
    stated: Mapping[str, Any],
    rounds: list[dict[str, Any]],
    experiment: Experiment,
    *,
    current: bool,
) -> dict[str, Bound]:
    """Take the summary's figures; where it is missing or older, the last round's values."""
    bounds = {observer: _bound(stated[observer]) for observer in OBSERVERS if observer in stated}
    if current or not rounds:
        return bounds
    last = rounds[-1].get("epsilon") or {}
    reason = "written down when the run finishes"
    if not experiment.privacy.private:
        reason = 'privacy.model = "none": no noise was added'
    return {
        observer: Bound(
            value=last[observer],
            delta=experiment.privacy.delta if experiment.privacy.private else None,
            reason=reason if last[observer] is None else None,
        )
        for observer in OBSERVERS
        if observer in last
    }


def _bound(figure: Mapping[str, Any]) -> Bound:
    assumptions = figure.get("assumptions") or ()
    if isinstance(assumptions, str):
        assumptions = (assumptions,)
    return Bound(
        value=figure.get("value"),
        delta=figure.get("delta"),
        assumptions=tuple(map(str, assumptions)),
        **{
            name: None if figure.get(name) is None else str(figure[name])
            for name in ("adjacency", "unit", "accountant", "participations", "reason")
        },
    )


def _read_sight(folder: RunFolder) -> Sight:
    try:
        with (folder.path / SIGHT).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return _sight({name: arrays[name] for name in arrays.files})
    except FileNotFoundError:
        return Sight()
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        log.warning("%s is left out of the report: %s", SIGHT, error)
        return Sight()


def _sight(arrays: Mapping[str, NDArray[Any]]) -> Sight:
    masked = total = None
    if "masked" in arrays:
        bits = int(arrays["ring_bits"])
        masked = arrays["masked"].ravel().astype(np.float64) / 2.0**bits
    if "sum" in arrays:
        total = arrays["sum"].ravel().astype(np.float64)
        total = total[np.isfinite(total)]
    if not {"images", "labels", "predictions"} <= arrays.keys():
        return Sight(masked, total)
    images, labels, predictions = arrays["images"], arrays["labels"], arrays["predictions"]
    shown = images.ndim == 3 or (images.ndim == 4 and images.shape[3] == 3)
    if images.dtype != np.uint8 or not shown or len({*map(len, (images, labels, predictions))}) > 1:
        raise ValueError("images, labels and predictions do not fit together")
    return Sight(masked, total, images, labels, predictions)
