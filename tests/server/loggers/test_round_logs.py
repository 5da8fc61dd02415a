"""Loggers are given public figures alone, and a run does not end, wait or change for them."""

import importlib.util
import json
import logging
import math
from importlib.machinery import ModuleSpec
from typing import Any

import pytest
from typer.testing import CliRunner

from zerosum.server.loggers import round_logs
from zerosum.server.loggers.round_logs import COMPLETED, RoundLogs, figures
from zerosum.server.planning import public_part
from zerosum.server.runs.records import RoundRecord
from zerosum.server.runs.run_folder import RunFolder
from zerosum.server.spec import Experiment
from zerosum.simulations.commands.main import app

PUBLIC = {
    COMPLETED, "lr", "server_lr", "average_norm", "clip", "fraction_within_clip",
    "fraction_within_clip_noise_std", "test_loss", "test_accuracy", "federated_loss",
    "federated_loss_noise_std",
}  # fmt: skip
"""Numbers of a round's line that an outsider may know."""

METRICS = {
    "test_loss": 0.5, "test_accuracy": 0.25, "federated_loss": 0.125,
    "federated_loss_noise_std": 0.0625,
}  # fmt: skip
MARK = 4711


def filled(kind: type[RoundRecord] = RoundRecord) -> RoundRecord:
    """Return a record that has every field there is, each with a number of its own."""
    values: dict[str, Any] = {}
    for number, (name, field) in enumerate(kind.model_fields.items(), MARK):
        for value in (float(number), number, [number], [str(number)], [[number]], {"share": number},
                      {"release": float(number)}, str(number), True, "completed"):  # fmt: skip
            try:
                given: dict[str, Any] = {"round": 1, name: value}
                kind(**given)
            except ValueError:
                continue
            values[name] = value
            break
        assert name in values, f"give {name} a value: {field.annotation}"
    return kind(**values | {"round": 1, "metrics": METRICS})


class Counted(RoundRecord):
    """A record of a later version: one more count of clients, which nobody said is public."""

    new_count: int = 0


@pytest.mark.parametrize("kind", [RoundRecord, Counted])
def test_of_every_field_of_a_round_only_public_ones_are_told(kind: type[RoundRecord]) -> None:
    record = filled(kind)
    assert set(record.model_fields_set) == set(kind.model_fields)
    assert set(figures(record, Experiment())) == PUBLIC
    assert {k: v for k, v in figures(record, Experiment()).items() if k in METRICS} == METRICS


def test_a_field_that_was_made_public_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the records above do have counts to tell."""
    for name in ("survivors", "seconds", "clients_trained"):
        monkeypatch.setattr(public_part, "RELEASED", (*public_part.RELEASED, name))
        assert set(figures(filled(), Experiment())) - PUBLIC == {name}
        monkeypatch.undo()


def test_noise_that_counts_survivors_is_not_told() -> None:
    local = Experiment.model_validate({"privacy": {"model": "local", "noise_multiplier": 1.0}})
    told = figures(filled(), local)
    assert not [name for name in told if "noise" in name]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """Return what a logger is told, in the place of its process."""
    messages: list[dict] = []

    class Listener:
        def __init__(self, name: str, start: dict) -> None:
            messages.append({"name": name, **start})

        def tell(self, message: dict) -> None:
            messages.append(message)

        def begin_to_end(self, *, completed: bool) -> None:
            messages.append({"end": completed})

        def end(self, seconds: float) -> None:
            pass

    monkeypatch.setattr(round_logs, "LogProcess", Listener)
    return messages


def experiment(**keys: object) -> Experiment:
    return Experiment.model_validate({"privacy": {"model": "none"}, "log": ["wandb"], **keys})


def logs(spec: Experiment, folder: RunFolder) -> RoundLogs:
    return RoundLogs(spec, folder, 12, noise_from_seed=True)


def test_neither_seed_nor_paths_nor_counts_are_told(tmp_path, told) -> None:
    spec = experiment(
        seed=918273645,
        data={"path": "/hospital/records.csv", "label": "died"},
        deployment={"roster": "/keys/roster"},
    )
    folder = RunFolder.create(tmp_path / "run", spec)
    with logs(spec, folder) as one:
        assert one.after(lambda record: "its own")(filled()) == "its own"
    start, line, end = told
    assert (set(line), set(line["figures"]), end) == ({"round", "figures"}, PUBLIC, {"end": True})
    assert set(start) == {"name", "folder", "id", "began", "settings"}
    assert set(start["settings"]) == {*public_part.SETTINGS, "population", "noise_from_seed"}
    settings = json.dumps(start["settings"])
    private = ("918273645", "hospital", "died", "roster", str(tmp_path))
    assert not [text for text in private if text in settings]
    assert [text for text in private if text in spec.model_dump_json()], "the control"
    numbers = {float(n) for n in range(MARK, MARK + len(RoundRecord.model_fields))}
    shared = {n for n in line["figures"].values() if n in numbers}
    public = [n for n in RoundRecord.model_fields if n in PUBLIC]
    assert len(shared) == len(public), "no other number has come along"


def test_the_id_of_a_run_is_kept_and_not_drawn_from_its_seed(tmp_path, told) -> None:
    spec = experiment(log=["wandb", "mlflow"])
    for name in ("one", "one", "two"):
        path = tmp_path / name
        folder = RunFolder.open(path) if path.is_dir() else RunFolder.create(path, spec)
        with logs(spec, folder):
            pass
    ids = [message["id"] for message in told if "id" in message]
    assert (ids[0] == ids[1] == ids[2] == ids[3], ids[4] == ids[5], ids[0] == ids[4]) == (
        True, True, False,
    )  # fmt: skip


def test_a_run_without_loggers_starts_nothing(tmp_path, told) -> None:
    spec = experiment(log=[])
    folder = RunFolder.create(tmp_path / "run", spec)
    with logs(spec, folder) as one:
        one.after(lambda record: None)(filled())
    assert not told
    assert [path.name for path in folder.path.iterdir()] == ["config.toml"]


def test_epsilons_are_told_only_where_there_is_one(tmp_path, told) -> None:
    spec = experiment()
    folder = RunFolder.create(tmp_path / "run", spec)
    with logs(spec, folder) as one:
        after = one.after(lambda record: None)
        after(RoundRecord(round=1, epsilon={"release": math.inf}))
        after(RoundRecord(round=2, epsilon={"release": 3.0}))  # no noise is promised
    assert [m["figures"] for m in told if "figures" in m] == [{COMPLETED: 0.0}] * 2


FAILING = """
import sys
sys.stdin.readline()
sys.stdin.readline()
print("ServiceError: it is down", flush=True)
sys.exit(1)
"""
HANGING = "import time\ntime.sleep(600)\n"
DYING = "import os\nos.abort()\n"


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize(
    ("code", "said"),
    [(FAILING, "it is down"), (HANGING, "too long"), (DYING, "exit code -6")],
    ids=["fails", "hangs", "dies"],
)
def test_a_logger_that_fails_costs_one_warning(tmp_path, monkeypatch, caplog, code, said) -> None:
    (tmp_path / "this_logger.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(round_logs, "_MODULE", "this_logger")
    monkeypatch.setattr(round_logs, "END_SECONDS", 0.2 if code is HANGING else 60.0)
    spec = experiment()
    seen: list[RoundRecord] = []
    folder = RunFolder.create(tmp_path / "run", spec)
    with caplog.at_level(logging.WARNING), logs(spec, folder) as one:
        after = one.after(seen.append)
        for number in range(1, 3001):  # more than a pipe holds
            after(RoundRecord(round=number, metrics=METRICS, status="completed"))
    assert len(seen) == 3000
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 1
    assert warnings[0].startswith("log: wandb failed and lacks rounds")
    assert said in warnings[0]


def test_what_cannot_be_told_costs_one_warning(tmp_path, told, caplog) -> None:
    spec = experiment()
    seen: list[RoundRecord] = []
    folder = RunFolder.create(tmp_path / "run", spec)
    (folder.path / round_logs.LOGGERS).write_text("{")
    with caplog.at_level(logging.WARNING), logs(spec, folder) as one:
        for number in (1, 2):
            one.after(seen.append)(RoundRecord(round=number))
    assert (len(seen), len(caplog.records), told) == (2, 1, [])


@pytest.mark.parametrize(
    ("command", "name", "found"),
    [
        ("run", "tensorboard", None),
        ("run", "wandb", "a folder"),
        ("run", "mlflow", None),
        ("sweep", "wandb", None),
    ],
)
def test_an_absent_library_is_one_line_before_anything_is_written(
    tmp_path, monkeypatch, command, name, found
) -> None:
    # Such a folder is what wandb leaves where it ran: a namespace, and no library.
    spec = None if found is None else ModuleSpec(name, None, is_package=True)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)
    out = tmp_path / "run"
    args = [command, "digits", "--set", f"log={name}", "--set", "rounds=1", "--out", str(out)]
    said = CliRunner().invoke(app, args)
    assert said.exit_code == 2
    assert f"pip install 'zerosum[{name}]'" in " ".join(said.stderr.split())
    assert not out.exists()
