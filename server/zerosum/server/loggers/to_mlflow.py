"""Write figures to MLflow: a database in the run folder, or where MLFLOW_TRACKING_URI leads."""

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from mlflow.entities import Metric, Param, Run
from mlflow.tracking import MlflowClient

EXPERIMENT: Final = "zerosum"
DATABASE: Final = "mlflow.db"
TAG: Final = "zerosum_run"
"""Tag by which a run is found again."""

_CHANGES: Final = "rounds"
"""The setting that may grow: a parameter of MLflow cannot, so that it is a tag."""

MOST_PARAMS = 100
"""Parameters in a request of MLflow's."""

LONGEST_VALUE = 500
"""Characters of a parameter that every version of MLflow takes."""


class MLflow:
    """A run of MLflow, new or found again.

    Parameters
    ----------
    start : mapping
        Id, folder, name and settings of the run.
    """

    def __init__(self, start: Mapping[str, Any]) -> None:
        self._began = start["began"]
        self._client = _client(Path(start["folder"]))
        experiment = self._experiment()
        run = self._found(experiment, start["id"])
        if run is None:
            named = {TAG: start["id"], "mlflow.runName": start["name"]}
            run = self._client.create_run(experiment, start_time=self._began * 1000, tags=named)
        self._id: str = run.info.run_id
        self._client.update_run(self._id, status="RUNNING")
        self._describe(start["settings"], run)
        self._written = {
            (name, metric.step)
            for name in run.data.metrics
            for metric in self._client.get_metric_history(self._id, name)
        }

    def write(self, round: int, figures: Mapping[str, float]) -> None:
        """Write what it has not of a round; times would tell how long the round took.

        Parameters
        ----------
        round : int
            From 1 on.
        figures : mapping of str to float
            By name.
        """
        time = (self._began + round) * 1000
        named = {allowed(name): value for name, value in figures.items()}
        new = [
            Metric(name, value, time, round)
            for name, value in named.items()
            if (name, round) not in self._written
        ]
        if new:
            self._client.log_batch(self._id, metrics=new)

    def close(self, completed: bool) -> None:
        """End the run."""
        self._client.set_terminated(self._id, "FINISHED" if completed else "KILLED")

    def _experiment(self) -> str:
        if known := os.environ.get("MLFLOW_EXPERIMENT_ID"):
            return known
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        return str(self._client.create_experiment(name))

    def _found(self, experiment: str, id: str) -> Run | None:
        runs = self._client.search_runs([experiment], f"tags.{TAG} = '{id}'", max_results=1)
        return next(iter(runs), None)

    def _describe(self, settings: Mapping[str, Any], run: Run) -> None:
        flat = dict(_flat(settings))
        self._client.set_tag(self._id, _CHANGES, flat.pop(_CHANGES, ""))
        new = [Param(k, v) for k, v in flat.items() if k not in run.data.params]
        for first in range(0, len(new), MOST_PARAMS):
            self._client.log_batch(self._id, params=new[first : first + MOST_PARAMS])


def _client(folder: Path) -> MlflowClient:
    if os.environ.get("MLFLOW_TRACKING_URI"):
        return MlflowClient()
    # The database names a folder for files of runs, below where the process stands: nothing is
    # written there, and no path of the user's is to stand in it.
    os.chdir(os.path.abspath(os.sep))
    database = folder / DATABASE
    if not database.is_file():
        # Its tables take seconds to make: a process that is ended meanwhile leaves half of them,
        # and no later one could use or complete such a database.
        begun, whole = folder / f"{DATABASE}.begun", folder / f"{DATABASE}.whole"
        begun.unlink(missing_ok=True)
        _of(begun)
        shutil.copyfile(begun, whole)
        os.replace(whole, database)
        with suppress(OSError):  # Windows removes no file that is open, as this one is here
            begun.unlink()
    return _of(database)


def _of(database: Path) -> MlflowClient:
    return MlflowClient(tracking_uri=f"sqlite:///{database.as_posix()}")


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None:
            text = value if isinstance(value, str) else json.dumps(value)
            yield prefix + name, text[:LONGEST_VALUE]


def allowed(name: str) -> str:
    """Return a name that MLflow takes: of a metric of a task's it may take no character."""
    return re.sub(r"[^\w.\- :]", lambda other: f"_{ord(other[0]):x}_", name)


def opened(start: Mapping[str, Any]) -> MLflow:
    """Return the logger of a run."""
    return MLflow(start)
