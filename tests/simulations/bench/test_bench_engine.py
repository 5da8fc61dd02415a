"""The bench of engines runs on a tiny case and says what it should: never how long it took."""

import importlib.util
import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch
from client_answers import answer_by
from narrowed import present
from torch import nn
from typer.testing import CliRunner

from zerosum.client.spec import DataSpec, ModelSpec
from zerosum.client.task import ClientInfo, Task
from zerosum.client.training import devices, precision
from zerosum.simulations import api
from zerosum.simulations.bench import BenchError
from zerosum.simulations.bench import turns as turns_module
from zerosum.simulations.bench import workload as workload_module
from zerosum.simulations.bench.bare import average_in_place, average_of_states
from zerosum.simulations.bench.engine import ALWAYS, MASKED, PEERS, Contest
from zerosum.simulations.bench.engine import run as bench
from zerosum.simulations.bench.engines import (
    _OPEN,
    _PROTECTED,
    experiment_of,
    protected,
    unprotected,
)
from zerosum.simulations.bench.turns import Entrant, LateError, MissingError, Turn, memory_mb
from zerosum.simulations.bench.workload import Workload, WorkloadTask
from zerosum.simulations.commands import bench_engine
from zerosum.simulations.commands.main import app

pytestmark = pytest.mark.usefixtures("one_thread")

KEYS = {
    "engine",
    "model",
    "workers",
    "seconds_per_round",
    "clock",
    "ratio_to_bare",
    "ratio_to_zerosum",
    "ratio_to_floor",
    "peak_memory_mb",
}
SIZES: dict[str, Any] = {"clients": 6, "records": 25, "cohort": 3}
ASKED: dict[str, Any] = {"records": 25, "cohort": 3, "rounds": 1}
COMMAND = ["bench", "engine", "--clients", "6", "--records", "25", "--cohort", "3"]
COMMAND += ["--rounds", "2"]


@pytest.fixture
def workload(tmp_path):
    made = Workload("mlp", str(tmp_path), rounds=3, **SIZES)
    made.write()
    return made


class Turns:
    """Wants so many rounds, and keeps what it is told."""

    def __init__(self, wanted):
        self.facts = {}
        self.asked = 0
        self.wanted = wanted

    def __call__(self):
        self.asked += 1
        return self.asked <= self.wanted


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_gpu_s_rows_are_measured_in_one_run_and_a_cpu_stands_in(tmp_path, device):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch finds no GPU here")
    file = tmp_path / "rows.json"
    command = [*COMMAND, "--device", device, "--trainer", "batched"]
    result = CliRunner().invoke(app, [*command, "--json", str(file)])
    assert result.exit_code == 0, result.output
    rows = json.loads(file.read_text())
    assert [row["engine"] for row in rows] == list(ALWAYS)
    for row in rows:
        assert row.get("device", device).startswith(device)
        assert row.get("trainer", "batched") == "batched"
    assert sum("trainer" in row for row in rows) == 2


def test_a_folder_of_peers_may_have_one_for_each(tmp_path):
    (tmp_path / "flower" / "ray").mkdir(parents=True)
    (tmp_path / "pfl" / "data").mkdir(parents=True)  # the package itself, all in one folder
    assert PEERS["flower"].folder("flower", tmp_path) == tmp_path / "flower"
    assert PEERS["pfl"].folder("pfl", tmp_path) == tmp_path
    assert PEERS["pfl"].folder("pfl", None) is None


def test_peers_are_refused_a_population_that_they_would_hold():
    words = ["bench", "engine", "--clients", "1000000,2000000", "--versus", "pfl"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert "--versus pfl: with --clients 1000000 there is no peer" in result.output


@pytest.mark.parametrize(
    ("others", "why"), [(["--trainer", "general"], "float32"), ([], "no native")]
)
def test_bf16_is_refused_before_anything_is_measured(others, why, monkeypatch):
    monkeypatch.setattr(precision, "has_native_bf16", lambda: False)
    monkeypatch.setattr(bench_engine, "run", lambda *_, **__: pytest.fail("it was measured"))
    result = CliRunner().invoke(app, ["bench", "engine", "--precision", "bf16", *others])
    assert result.exit_code == 2
    assert "--precision bf16" in result.output
    assert why in result.output


def test_what_a_gpu_does_not_go_with_is_refused(monkeypatch):
    monkeypatch.setattr(devices, "missing", lambda device: None)
    command = ["bench", "engine", "--device", "cuda"]
    for options, said in (
        (["--workers", "2"], "clients are trained in groups by 1 process"),
        (["--versus", "bare,pfl"], "--versus pfl: on a GPU there is bare"),
        (["--trainer", "fast"], "on a GPU there are auto, batched, general"),
    ):
        result = CliRunner().invoke(app, [*command, *options])
        assert result.exit_code == 2
        assert said in result.output


def _absent():
    """Return the peers that are not installed here."""
    return [name for name, peer in PEERS.items() if not importlib.util.find_spec(peer.module)]


@pytest.mark.slow
def test_the_command_writes_a_row_for_each_engine_and_says_which_peers_are_not_there(tmp_path):
    file = tmp_path / "rows.json"
    versus = ",".join(["bare", MASKED, *_absent()])
    result = CliRunner().invoke(app, [*COMMAND, "--versus", versus, "--json", str(file)])
    assert result.exit_code == 0, result.output
    rows = json.loads(file.read_text())
    assert [row["engine"] for row in rows] == [*ALWAYS, MASKED]
    for row in rows:
        assert row.keys() >= KEYS
        assert (row["model"], row["workers"]) == ("mlp", 1)
        assert all(row[key] > 0 for key in KEYS - {"engine", "model", "clock"})
        assert row["engine"] in result.output
    by_name = {row["engine"]: row for row in rows}
    assert by_name["bare"]["ratio_to_bare"] == 1
    assert by_name["floor"]["ratio_to_floor"] == 1
    assert by_name["floor"]["gflop_per_s"] > 0
    assert by_name["zerosum"]["trainer"]
    for name in _absent():
        assert f"{name} is left out: not installed: pip install" in result.output


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--versus", "pfk", 'did you mean "pfl"?'),
        ("--model", "mpl", 'did you mean "mlp"?'),
        ("--model", "", "there are mlp, cnn"),
        ("--workers", "0", "from 1 to"),
        ("--workers", "1,x", "--workers x"),
        ("--cohort", "2000", "there are only 1000 clients"),
        ("--clients", "1000,1", "from 2 to"),
        ("--precision", "bf17", 'did you mean "bf16"?'),
        ("--peers", "nowhere", "it is a folder"),
        ("--device", "gpu", 'a device is "cpu", "cuda" or "cuda:N"'),
        ("--trainer", "batch", 'did you mean "batched"?'),
    ],
)
def test_a_wrong_option_is_named(option, value, said):
    result = CliRunner().invoke(app, ["bench", "engine", option, value])
    assert result.exit_code == 2
    assert f"{option} {value.split(',')[-1]}" in result.output
    assert said in result.output


@pytest.mark.slow
@pytest.mark.parametrize("peer", list(PEERS))
def test_a_peer_that_is_installed_is_measured(peer):
    if peer in _absent():
        pytest.skip(PEERS[peer].install)
    found = bench(contest=Contest(clients=(6,), versus=(peer,)), **ASKED)
    assert not found["missing"]
    assert found["rows"][-1]["engine"] == peer
    assert found["rows"][-1].keys() >= {*KEYS, "version"}


@pytest.mark.slow
def test_an_engine_of_ours_that_fails_is_an_error(workload):
    os.remove(f"{workload.folder}/inputs.npy")
    entrant = Entrant("bare", workload, 1)
    try:
        with pytest.raises(BenchError, match=r"bare ended: FileNotFoundError: .*inputs\.npy"):
            entrant.ready()
    finally:
        entrant.kill()


@pytest.mark.slow
def test_what_cannot_be_imported_is_missing(workload):
    if "pfl" not in _absent():
        pytest.skip("pfl is installed")
    entrant = Entrant("pfl", workload, 1)
    try:
        with pytest.raises(MissingError, match="No module named 'pfl'"):
            entrant.ready()
    finally:
        entrant.kill()


def test_an_engine_that_takes_too_long_is_named_then_given_up_and_ended(workload, monkeypatch):
    monkeypatch.setattr(turns_module, "_WAITING_SECONDS", 0.01)
    told: list[str] = []
    entrant = Entrant("bare", workload, 1, time_limit=0.1, waiting=told.append)
    with pytest.raises(LateError, match=r"bare was not done within 0\.1 s"):
        entrant.ready()
    entrant.kill()
    assert entrant._process.returncode
    assert told[0].startswith("waiting for bare, 0 s of at most 0.1")


@pytest.mark.quick_one_in(2)
@pytest.mark.parametrize("privacy", [_OPEN, _PROTECTED])
def test_our_rows_are_whole_rounds_of_a_simulation(workload, tmp_path, privacy):
    experiment = experiment_of(workload, 1, privacy)
    result = api.run(experiment, out=tmp_path / "run", report=False)
    assert [record["status"] for record in result.rounds] == ["completed"] * 3
    assert [record["survivors"] for record in result.rounds] == [3, 3, 3]
    private = privacy["model"] != "none"
    assert (result.summary["epsilon"]["release"]["value"] is not None) == private
    assert result.summary["noise_draw"] == ("summed" if private else "per_client")


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_our_engine_stops_when_no_more_rounds_are_wanted(workload, workers):
    turn = Turns(2)
    unprotected(workload, workers, cast(Turn, turn))
    assert turn.asked == 3
    assert turn.facts["trainer"]


def test_a_round_whose_clients_fail_is_not_timed(workload, monkeypatch):
    def broken(self, request, client, entropy):
        raise OSError("gone")

    answer_by(monkeypatch, broken)
    with pytest.raises(BenchError, match=r"not timed: round 1/.* 3 of 3 clients failed to train"):
        protected(workload, 1, cast(Turn, Turns(2)))


def test_both_bare_loops_average_the_models_of_their_cohort(workload):
    model = workload.network()
    parameters = list(model.parameters())
    start = [p.detach().clone() for p in parameters]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    cohort = [(inputs[:20], targets[:20]) for inputs, targets in workload.tensors()[:3]]
    gradients = [
        torch.autograd.grad(nn.functional.cross_entropy(model(inputs), targets), parameters)
        for inputs, targets in cohort
    ]
    by_state = average_of_states(model, state, cohort, torch.Generator())
    in_place = average_in_place(model, start, cohort, torch.Generator())
    for found in (list(by_state.values()), in_place):
        for average, before, each in zip(found, start, zip(*gradients, strict=True), strict=True):
            assert torch.allclose(average, before - 0.1 * sum(each) / 3, atol=1e-6)
            assert not torch.allclose(average, before - 0.1 * each[0], atol=1e-6)


def test_a_second_epoch_is_a_second_pass_in_both_bare_loops(workload):
    model = workload.network()
    start = [p.detach().clone() for p in model.parameters()]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    cohort = workload.tensors()[:2]
    once, twice, in_place = (
        torch.cat([value.flatten() for value in values])
        for values in (
            average_of_states(model, state, cohort, _seeded()).values(),
            average_of_states(model, state, cohort, _seeded(), 2).values(),
            average_in_place(model, start, cohort, _seeded(), 2),
        )
    )
    assert torch.allclose(twice, in_place, atol=1e-6)
    assert not torch.allclose(once, twice, atol=1e-3)


def _seeded():
    return torch.Generator().manual_seed(1)


def test_records_are_the_same_each_time_and_differ_between_clients(workload):
    task = WorkloadTask(workload)
    inputs, targets = task.data(ClientInfo(index=1, count=6))
    assert inputs.shape == (25, 1, 28, 28)
    assert targets.dtype == torch.int64
    assert not torch.equal(inputs, task.data(ClientInfo(index=2, count=6))[0])
    before = np.array(workload.arrays()[0])
    workload.write()
    assert np.array_equal(before, workload.arrays()[0])
    assert task.num_clients() == 6
    assert cast(Task, task).test_data() is None


def test_a_population_of_any_size_has_the_records_of_a_thousand_clients(tmp_path, monkeypatch):
    monkeypatch.setattr(workload_module, "STORED_CLIENTS", 2)
    many = Workload("mlp", str(tmp_path), clients=1_000_000, records=3, cohort=2)
    many.write()
    assert len(many.arrays()[0]) == 2
    task = WorkloadTask.from_specs(
        DataSpec(path=str(tmp_path), clients=1_000_000), ModelSpec(name="mlp"), 0
    )
    assert task.num_clients() == 1_000_000
    last, first = (task.data(ClientInfo(index=index, count=6))[0] for index in (999_999, 0))
    assert torch.equal(last, task.data(ClientInfo(index=1, count=6))[0])
    assert not torch.equal(last, first)


def test_delta_of_a_protected_row_is_below_the_inverse_of_any_population(workload):
    for clients, delta in ((1000, 1e-5), (1_000_000, 1e-7)):
        found = experiment_of(replace(workload, clients=clients), 1, _PROTECTED)
        assert found.privacy.delta == pytest.approx(delta)


def test_epochs_and_precision_reach_our_rows(workload):
    wanted = replace(workload, epochs=5)
    assert experiment_of(wanted, 1, _OPEN).training.epochs == 5
    assert wanted.flops() == 5 * workload.flops()
    with pytest.raises(ValueError, match="precision"):
        experiment_of(replace(workload, precision="bf17"), 1, _OPEN)


@pytest.mark.parametrize(("model", "expected"), [("mlp", 7.016e9), ("cnn", 725.4e9)])
def test_operations_of_a_round_are_those_of_its_products(tmp_path, model, expected):
    assert Workload(model, str(tmp_path)).flops() == pytest.approx(expected, rel=1e-3)


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="needs /proc")
def test_memory_of_children_counts():
    script = "import subprocess,sys;x=bytearray(b'a')*30_000_000;"
    inner = script + "print('ready',flush=True);sys.stdin.read()"
    outer = script + f"subprocess.run([sys.executable,'-c',{inner!r}])"
    process = subprocess.Popen(
        [sys.executable, "-c", outer], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert present(process.stdout).readline() == b"ready\n"
        found = memory_mb(process.pid)
        present(process.stdin).close()
    assert 60 < present(found) < 140


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells another's CPU seconds")
def test_cpu_seconds_of_an_engine_count_what_it_started_and_no_waiting():
    spin = "import time\nwhile time.process_time() < 0.3: pass\n"
    script = (
        "import subprocess, sys, time\n"
        f"subprocess.run([sys.executable, '-c', {spin!r}])\n"  # ended and waited for
        f"child = subprocess.Popen([sys.executable, '-c', {spin + 'input()'!r}], stdin=0)\n"
        "time.sleep(0.7)\nprint('ready', flush=True)\nchild.wait()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert present(process.stdout).readline() == b"ready\n"
        found = turns_module.cpu_seconds(process.pid)
        present(process.stdin).close()
    assert 0.3 < present(found) < 1.5


def test_every_engine_can_be_found():
    for name in turns_module.ENGINES.values():
        module, _, function = name.partition(":")
        assert callable(
            getattr(importlib.import_module(f"zerosum.simulations.bench.{module}"), function)
        )
    assert turns_module.ENGINES.keys() == {*ALWAYS, MASKED, *PEERS}


def test_an_interrupted_comparison_leaves_the_turns_that_are_done_marked_so(tmp_path, monkeypatch):
    def ended(*arguments, keep, **others):
        keep([{"engine": "bare", "turns": 2}])
        raise KeyboardInterrupt

    file = tmp_path / "rows.json"
    words = ["bench", "engine", "--json", str(file), "--rounds", "5"]
    monkeypatch.setattr(sys, "argv", ["zerosum", *words])
    monkeypatch.setattr(bench_engine, "run", ended)
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 130
    assert f"The rows of 2 of 5 turns are in {file}." in result.output
    assert result.output.splitlines()[-1] == shlex.join(["zerosum", *words])
    (row,) = json.loads(file.read_text())
    assert (row["turns"], row["turns_asked"]) == (2, 5)
    assert row["processor"]
    monkeypatch.setattr(bench_engine, "run", lambda *_, **__: interrupt())
    file.unlink()
    assert "Nothing is kept." in CliRunner().invoke(app, words).output
    assert not file.exists()


def interrupt():
    raise KeyboardInterrupt
