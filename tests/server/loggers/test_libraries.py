"""What TensorBoard, wandb and MLflow read of a run is what it wrote, once, and it is public."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import read_loggers

from zerosum.server.loggers.round_logs import figures
from zerosum.server.runs.run_folder import CONFIG, METRICS, MODEL, SUMMARY, RunFolder
from zerosum.simulations import api, sweep
from zerosum.simulations.report import write_public_report

# Looked for and not imported: the libraries warn, draw numbers and start threads.
ABSENT = [name for name in ("tensorboard", "wandb", "mlflow") if find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(ABSENT), reason=f"extras that are not installed: {ABSENT}"),
]

SEED = "918273645"
SMALL = [f"seed={SEED}", "rounds=3", "workers=1", "evaluation.every=2", "faults.contribute=0.1"]
ALL = 'log=["tensorboard", "wandb", "mlflow"]'
TIMES = {"seconds", "stage_seconds"}


class Killed(BaseException):
    """The run ends here."""


class Proxy:
    """A proxy that counts who would leave this machine, and lets nobody."""

    def __init__(self) -> None:
        self.asked = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        try:
            while True:
                connection, _ = self._socket.accept()
                self.asked += 1
                connection.close()
        except OSError:
            return

    def close(self) -> None:
        self._socket.close()

    def environment(self) -> dict[str, str]:
        url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        names = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
        return dict.fromkeys(names, url)


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    one = Proxy()
    with pytest.MonkeyPatch.context() as patch:
        for key, value in one.environment().items():
            patch.setenv(key, value)
        for key in ("WANDB_MODE", "WANDB_PROJECT", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
            patch.delenv(key, raising=False)
        yield one
    one.close()


def until(round: int) -> Any:
    def on_round(record: Any) -> None:
        if record.round == round:
            raise Killed

    return on_round


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, proxy: Proxy) -> RunFolder:
    """Return a run that ended twice, and had one logger at first."""
    path = tmp_path_factory.mktemp("logged") / "run"
    with pytest.raises(Killed):
        api.run("digits", overrides=[*SMALL, "log=tensorboard"], out=path, on_round=until(1))
    with pytest.raises(Killed):
        api.resume(path, overrides=[ALL], on_round=until(2))
    api.resume(path)
    return RunFolder.open(path)


@pytest.fixture(scope="module")
def read(run: RunFolder) -> dict[str, Any]:
    return read_back(run.path)


def read_back(path: Path) -> dict[str, Any]:
    command = [sys.executable, str(Path(read_loggers.__file__)), str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def public_epsilon(run: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> float:
    out = tmp_path_factory.mktemp("public") / "out"
    write_public_report(run, out)
    value: float = json.loads((out / SUMMARY).read_text())["epsilon"]["release"]["value"]
    return value


@pytest.mark.parametrize("logger", ["tensorboard", "wandb", "mlflow"])
def test_each_reads_every_round_once(run, read, public_epsilon, logger) -> None:
    """A run that was killed twice has neither gaps nor doubles; values are metrics.jsonl's."""
    series = {k: v for k, v in read[logger].items() if not k.startswith("_")}
    expected: dict[str, list[list[float]]] = {}
    for record in run.read_rounds():
        told = figures(record, run.experiment) | {"epsilon_release": public_epsilon}
        for name, value in told.items():
            stored = float(np.float32(value)) if logger == "tensorboard" else value
            expected.setdefault(name, []).append([record.round, stored])
    assert series == expected
    assert len(series["epsilon_release"]) == len(series["completed"]) == 3
    assert [step for step, _ in series["test_accuracy"]] == [2, 3]
    lines = run.read_lines(METRICS)
    assert all(line["epsilon"]["release"] <= public_epsilon for line in lines)


def test_they_tell_neither_seed_nor_machine_nor_times(run, read) -> None:
    path = run.path
    kept = [*path.glob("wandb/*/*.wandb"), path / "mlflow.db", *(path / "tensorboard").iterdir()]
    assert len(kept) >= 4
    for private in (SEED, str(path), "survivors", "faults"):
        assert not [file for file in kept if private.encode() in file.read_bytes()]
    assert SEED in (path / CONFIG).read_text(), "the control"
    assert all("zerosum" in file.name for file in (path / "tensorboard").iterdir())
    facts = read["wandb facts"]
    assert (facts["host"], facts["runs"]) == ("", 1)
    kinds = {"header", "run", "telemetry", "summary", "history", "exit"}
    assert set(facts["kinds"]) <= kinds, "no files, output, metadata or statistics"
    assert max(value for _, value in read["wandb"]["_runtime"]) < 1.0
    for times in ([value for _, value in read["wandb"]["_timestamp"]],
                  [time / 1000 for time in read["mlflow facts"]["times"]]):  # fmt: skip
        assert np.diff(times).tolist() == [1.0, 1.0], "a second a round, however long it took"


def test_settings_are_those_that_are_public(read) -> None:
    config, params = read["wandb facts"]["config"], read["mlflow facts"]["params"]
    assert config["privacy"]["clip"] == 1.0
    assert (params["privacy.clip"], params["population"]) == ("1.0", "100")
    assert read["mlflow facts"]["status"] == "FINISHED"
    assert read["mlflow facts"]["tags"]["rounds"] == "3"
    assert not [name for name in (*config, *params) if name.startswith(("seed", "data", "faults"))]


def test_a_run_with_loggers_is_the_run_without(run, tmp_path) -> None:
    api.run("digits", overrides=SMALL, out=tmp_path / "plain", report=False)
    plain = RunFolder.open(tmp_path / "plain")
    assert (plain.path / MODEL).read_bytes() == (run.path / MODEL).read_bytes()
    ours, theirs = (
        [{k: v for k, v in line.items() if k not in TIMES} for line in folder.read_lines(METRICS)]
        for folder in (plain, run)
    )
    assert ours == theirs


def test_nobody_leaves_the_machine(run, proxy, tmp_path, caplog, monkeypatch) -> None:
    assert proxy.asked == 0
    # The control, which is also a service that is down: the user's environment names one.
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow.invalid")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    result = api.run(
        "digits", overrides=[*SMALL, "rounds=1", "log=mlflow"], out=tmp_path / "run", report=False
    )
    assert proxy.asked > 0
    assert len(result.rounds) == 1
    said = (tmp_path / "run" / "server.log").read_text()
    assert said.count("log: mlflow failed") == 1
    assert not (tmp_path / "run" / "mlflow.db").exists()


def test_cells_of_a_sweep_log_into_their_own_folders(tmp_path) -> None:
    grid: dict[str, list[Any]] = {"training.lr": [0.1, 0.2], "rounds": [1], "log": ["tensorboard"]}
    frame = sweep("digits", grid, out=tmp_path / "sweep")
    cells = sorted((tmp_path / "sweep" / "cells").iterdir())
    accuracies = [read_back(cell)["tensorboard"]["test_accuracy"][0][1] for cell in cells]
    assert accuracies == [float(np.float32(value)) for value in frame["test_accuracy"]]


def test_a_mode_set_to_nothing_is_offline(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "")
    api.run("digits", overrides=[*SMALL, "log=wandb"], out=tmp_path / "run", report=False)
    assert len(list(tmp_path.glob("run/wandb/offline-run-*/*.wandb"))) == 1


CUT = """
import sqlite3, sys
from pathlib import Path
from zerosum.server.loggers import to_mlflow
whole = to_mlflow._of
def ended(database):
    with sqlite3.connect(database) as half:
        half.execute("CREATE TABLE span_metrics (value FLOAT)")
    raise KeyboardInterrupt
to_mlflow._of = ended
try:
    to_mlflow._client(Path(sys.argv[1]))
except KeyboardInterrupt:
    to_mlflow._of = whole
print(to_mlflow._client(Path(sys.argv[1])).get_experiment_by_name("none"))
"""


def test_a_database_that_was_left_half_made_is_made_anew(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    ran = subprocess.run(
        [sys.executable, "-c", CUT, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert ran.stdout.split() == ["None"], ran.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["mlflow.db"]
