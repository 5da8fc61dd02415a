"""Sweeps as commands: cells alone, killed and resumed, and whom a failed one stops."""

import csv
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from zerosum.server.runs.run_folder import LEDGER, METRICS, MODEL
from zerosum.simulations import run, sweep
from zerosum.simulations.sweeps import children
from zerosum.simulations.sweeps.sweep_folder import MANIFEST, TABLE, SweepFolder

COMMAND = [sys.executable, "-m", "zerosum.simulations.commands.main", "sweep"]
TINY = ["--set", "data.clients=30", "--set", "privacy.delta=1e-2", "--set", "sampling.cohort=10"]

pytestmark = pytest.mark.usefixtures("one_thread")


def command(*arguments, **more):
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=280, **more
    )


def bits(folder):
    """Return what a cell's run is, without its times."""
    return {
        (path.parent.name, path.name): path.read_bytes()
        for name in (MODEL, LEDGER, "config.toml")
        for path in sorted(Path(folder).glob(f"cells/*/{name}"))
    }


def table(folder):
    """Return the rows of a sweep's table, without seconds."""
    rows = list(csv.DictReader((Path(folder) / TABLE).read_text().splitlines()))
    return [{key: row[key] for key in row if key != "seconds"} for row in rows]


def children_of(folder):
    """Return the ids of processes that compute a cell of a folder's sweep."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"zerosum.simulations.sweeps.cell" in words and os.fsencode(folder) in words:
            found.append(int(path.parent.name))
    return found


def _noting(order, name, call, *arguments):
    order.append(name)
    return call(*arguments)


@pytest.mark.slow
def test_cells_run_side_by_side_and_each_is_the_run_that_it_would_be_alone(tmp_path, monkeypatch):
    order: list[str] = []
    for name in ("_start", "_leave"):
        noted = partial(_noting, order, name, getattr(children, name))
        monkeypatch.setattr(children, name, noted)
    rows = sweep(
        "digits",
        {"server.optimizer": ["SGD", "Adam"], "data.clients": [30], "rounds": [2],
         "privacy.delta": [1e-2], "sampling.cohort": [10]},
        out=tmp_path / "s", workers=2,
    )  # fmt: skip
    assert list(rows["status"]) == ["completed"] * 2
    assert rows["test_accuracy"].between(0, 1).all()
    settings = [word for word in TINY if word != "--set"]
    alone = run(
        "digits",
        overrides=[*settings, "rounds=2", "server.optimizer=Adam"],
        out=tmp_path / "alone",
        report=False,
    )
    cell = tmp_path / "s" / "cells" / rows["cell"][1]
    assert (cell / MODEL).read_bytes() == (alone.folder / MODEL).read_bytes()
    assert rows["test_accuracy"][1] == alone.metrics["test_accuracy"]
    assert rows["epsilon_sum"][1] == alone.summary.epsilon["sum"].value
    assert order == ["_start", "_start", "_leave", "_leave"]


@pytest.mark.slow
def test_a_killed_sweep_leaves_no_process_and_resumed_has_the_same_bytes(tmp_path):
    asked = ["digits", "--seeds", "0-1", "--set", "server.lr=0.5,1", *TINY, "--set", "rounds=8"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    done = command(*asked, "--out", whole)
    assert done.returncode == 0, done.stderr
    process = subprocess.Popen([*COMMAND, *asked, "--out", killed], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while not any(killed.glob(f"cells/*/{METRICS}")) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert children_of(killed)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    resumed = command("--resume", killed)
    assert resumed.returncode == 0, resumed.stderr
    assert not children_of(killed)
    assert len(bits(whole)) == 3 * 4
    models = {data for (_, name), data in bits(whole).items() if name == MODEL}
    assert len(models) == 4  # the control: equal bytes are no accident
    assert bits(killed) == bits(whole)
    assert table(killed) == table(whole)
    before = (killed / TABLE).read_bytes(), (killed / MANIFEST).read_bytes()
    assert command(*asked, "--out", killed).returncode == 0
    assert ((killed / TABLE).read_bytes(), (killed / MANIFEST).read_bytes()) == before


@pytest.mark.slow
def test_a_failed_cell_fails_alone_and_the_exit_code_says_so(tmp_path):
    done = command(
        "digits", *TINY, "--set", "rounds=1", "--set", "server.optimizer=SGD,Nope",
        "--out", tmp_path / "s",
    )  # fmt: skip
    assert done.returncode == 1
    assert "1 of 2 cells failed" in done.stderr
    completed, failed = table(tmp_path / "s")
    assert (completed["status"], completed["error"]) == ("completed", "")
    assert failed["status"] == "failed"
    assert "server.optimizer = 'Nope'" in failed["error"]
    assert failed["test_accuracy"] == ""


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_sweep_ends_its_cells_and_says_how_it_goes_on(tmp_path, ending):
    out = tmp_path / "s"
    asked = ["digits", *TINY, "--set", "rounds=2000", "--seeds", "0-3", "--out", out]
    process = subprocess.Popen([*COMMAND, *asked], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not any(out.glob(f"cells/*/{METRICS}")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(ending)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 128 + ending
    assert f"zerosum sweep --resume {out}" in said
    assert not children_of(out)
    assert len(SweepFolder.open(out).cells) == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["digits", "--set", "privacy.epsilom=1,2"], "privacy.epsilon"),
        (["digits", "--set", "rounds=1,2", "--set", "server.lr=1,2,3", "--zip"], "zip"),
        (["digits", "--seeds", "4-0"], "seeds"),
        (["--resume", "absent"], "holds no sweep"),
        (["digits", "--resume", "absent"], "--resume absent"),
    ],
)
def test_a_mistake_is_one_line_exit_two_and_nothing_written(
    tmp_path, monkeypatch, arguments, words
):
    from typer.testing import CliRunner

    from zerosum.simulations.commands.main import app

    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["sweep", *arguments])
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
