"""Read a run folder into one object: settings, rounds, summary, bounds, snapshot, audit."""

import logging
import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.stages import Stage
from zerosum.server.config import ConfigError
from zerosum.server.privacy.epsilon_bound import EpsilonBound, no_bound
from zerosum.server.privacy.noised_ratio import NOISE_STD
from zerosum.server.privacy.observers import OBSERVERS, ObserverName
from zerosum.server.privacy.run_ledger import NO_NOISE
from zerosum.server.runs.records import Failures, RoundRecord, Summary
from zerosum.server.runs.run_folder import CONFIG, TEST_SET, RunFolder
from zerosum.server.runs.run_outcome import failures_summary, is_untrained
from zerosum.server.spec import Experiment
from zerosum.simulations.report.audited import Audited, read_audit

log = logging.getLogger("zerosum.simulations")

SIGHT = "sight.npz"
"""Optional: what the server saw in one round, and some test images with their predictions."""

UNWRITTEN = "assumptions are written when the run finishes"
"""Stands for the assumptions of a run that goes on: its lines have epsilons alone."""


@dataclass(frozen=True)
class Sight:
    """The server's view of one round, and the model's answers to some test images.

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
    """The data of a report.

    Parameters
    ----------
    name : str
        Name of the run folder.
    experiment : Experiment
        The resolved configuration; ``toml`` is its text.
    rounds : list of RoundRecord
        The lines of ``metrics.jsonl``.
    summary : Summary
        ``summary.json``; empty where there is none.
    finished : bool
        Whether the summary speaks of these rounds, and of all of them.
    bounds : dict of str to EpsilonBound
        By observer, as far as recorded.
    sight : Sight
        Empty where the folder has none.
    audited : Audited, optional
        What an audit found, where one was made.
    test_set : dict
        ``test-set.json``, where it is of the last recorded round.
    dimension : int, optional
        Trainable parameters, where recorded.
    """

    name: str
    experiment: Experiment
    toml: str
    rounds: list[RoundRecord]
    summary: Summary
    finished: bool
    bounds: Mapping[ObserverName, EpsilonBound]
    sight: Sight = field(default_factory=Sight)
    audited: Audited | None = None
    test_set: Mapping[str, Any] = field(default_factory=dict)
    dimension: int | None = None

    @property
    def completed(self) -> list[RoundRecord]:
        """The rounds whose sum was released."""
        return [r for r in self.rounds if r.completed]

    @property
    def abandoned(self) -> list[RoundRecord]:
        """The rounds that released nothing."""
        return [r for r in self.rounds if not r.completed]

    @property
    def metrics(self) -> dict[str, float]:
        """The last value of every metric."""
        return {name: values[-1][1] for name, values in self.metric_series().items()}

    @property
    def earlier_metrics(self) -> dict[str, int]:
        """The round of every metric whose last value is not the last round's."""
        # It imports torch, which what only reads a run's words (zerosum --help, budget) must not.
        from zerosum.server.runs.run_summary import earlier_metrics

        return earlier_metrics(self.rounds)

    @property
    def untrained(self) -> bool:
        """Return whether no client's training is in the model, as far as the rounds say."""
        return bool(self.rounds) and is_untrained(self.rounds)

    @property
    def failures(self) -> Failures | None:
        """Failures of training over all rounds; None where nobody counts them."""
        return failures_summary(self.rounds)

    def noise_of(self, metric: str) -> float | None:
        """Return the deviation of the noise in the last value of a metric; None without any."""
        last = next((r for r in reversed(self.rounds) if metric in r.metrics), None)
        return None if last is None else last.metrics.get(metric + NOISE_STD)

    @property
    def population(self) -> int | None:
        """Number of clients, where recorded."""
        recorded = self.summary.population
        return self.experiment.data.clients if recorded is None else recorded

    @property
    def dropouts(self) -> dict[str, int]:
        """Clients lost by stage, over all rounds, in the stages' order."""
        lost = {stage for r in self.rounds for stage in r.dropouts}
        order = [s for s in Stage if s in lost] + sorted(lost - set(Stage))
        return {s: sum(r.dropouts.get(s, 0) for r in self.rounds) for s in order}

    def series(self, key: str) -> NDArray[np.float64]:
        """Return one value of every round, NaN where it has none: float64, shape (rounds,)."""
        return np.array([_number(r.get(key)) for r in self.rounds], dtype=np.float64)

    def nested(self, key: str, name: str) -> NDArray[np.float64]:
        """Return ``round[key][name]`` of every round, NaN where it has none: float64, (rounds,).

        Parameters
        ----------
        key, name : str
            Of the round's object; of a number in it.

        Returns
        -------
        numpy.ndarray
            float64, shape (rounds,).
        """
        values = [(r.get(key) or {}).get(name) for r in self.rounds]
        return np.array([_number(v) for v in values], dtype=np.float64)

    def metric_series(self) -> dict[str, list[tuple[int, float]]]:
        """Return (round, value) of every ``test_`` and ``federated_`` metric."""
        found: dict[str, list[tuple[int, float]]] = {}
        for record in self.rounds:
            for name, value in record.metrics.items():
                if not name.endswith(NOISE_STD):
                    found.setdefault(name, []).append((record.round, value))
        return found


def read_run(folder: RunFolder) -> RunRecord:
    """Read a run folder, finished or not.

    Raises
    ------
    ConfigError
        If the configuration, the rounds or the summary cannot be read.
    """
    experiment = folder.experiment
    rounds = folder.read_rounds()
    summary = folder.read_summary()
    current = bool(summary) and summary.rounds == len(rounds)
    return RunRecord(
        name=folder.path.resolve().name,
        experiment=experiment,
        toml=(folder.path / CONFIG).read_text(encoding="utf-8"),
        rounds=rounds,
        summary=summary,
        finished=current and _is_whole(summary, experiment),
        bounds=_bounds(summary, rounds, experiment, current=current),
        sight=_read_sight(folder),
        audited=read_audit(folder),
        test_set=_read_test_set(folder, len(rounds)),
        dimension=summary.dimension,
    )


def _is_whole(summary: Summary, experiment: Experiment) -> bool:
    """Return whether a run came to the end of the rounds that it is planned for, or to its own."""
    ended = bool(summary.ended_by) and summary.planned_rounds == experiment.rounds
    return ended or summary.rounds >= experiment.rounds


def _number(value: object) -> float:
    """Return a finite float, or NaN: pictures have no place for anything else."""
    if isinstance(value, (int, float)) and np.isfinite(value):
        return float(value)
    return float("nan")


def _bounds(
    summary: Summary, rounds: list[RoundRecord], experiment: Experiment, *, current: bool
) -> dict[ObserverName, EpsilonBound]:
    """Take the summary's bounds; where it is missing or older, the last round's epsilons."""
    if current or not rounds:
        return dict(summary.epsilon)
    privacy, last = experiment.privacy, rounds[-1].epsilon
    reason = "written down when the run finishes" if privacy.private else NO_NOISE
    unfinished = no_bound("sum", privacy.delta, reason, unit=privacy.unit)
    return {
        observer: replace(unfinished, observer=observer)
        if math.isinf(last[observer])
        else replace(
            unfinished,
            observer=observer,
            value=last[observer],
            assumptions=(UNWRITTEN,),
            reason=None,
        )
        for observer in OBSERVERS
        if observer in last
    }


def _read_test_set(folder: RunFolder, rounds: int) -> dict[str, Any]:
    """Return what ``test-set.json`` says of the last round; nothing of an earlier one."""
    try:
        document = folder.read_json(TEST_SET)
    except ConfigError as error:
        log.warning("%s is left out of the report: %s", TEST_SET, error)
        return {}
    return document if document.get("round") == rounds else {}


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
    drawable = images.ndim == 3 or (images.ndim == 4 and images.shape[3] == 3)
    if (
        images.dtype != np.uint8
        or not drawable
        or len({*map(len, (images, labels, predictions))}) > 1
    ):
        raise ValueError("images, labels and predictions do not fit together")
    return Sight(masked, total, images, labels, predictions)
