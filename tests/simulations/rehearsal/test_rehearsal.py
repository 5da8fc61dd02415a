"""Files that a rehearsal writes before it starts anything."""

import io
import json
import os
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from policies import LEAST, LEAST_TOML
from processes import wait_for
from rich.console import Console
from safetensors.numpy import load_file
from typer.testing import CliRunner

from zerosum.server.config import ConfigError
from zerosum.server.runs.checkpoint import STATE, Checkpoint, save_checkpoint
from zerosum.server.runs.run_folder import METRICS, MODEL, RunFolder, check_unused
from zerosum.simulations import api, load_experiment
from zerosum.simulations.commands import main
from zerosum.simulations.commands.rehearse import _continued
from zerosum.simulations.commands.rehearse_experiments import data_setting, policy_for
from zerosum.simulations.rehearsal import DeploymentError, Federation, waiting, watch
from zerosum.simulations.rehearsal.certificates import make_node_key
from zerosum.simulations.rehearsal.federation import tidied
from zerosum.simulations.rehearsal.namespaces import Loopback
from zerosum.simulations.rehearsal.processes import processes_of
from zerosum.simulations.rehearsal.rehearsal_folder import RehearsalFolder, RehearsedNodes
from zerosum.simulations.rehearsal.watch import TimedLines, Watch
from zerosum.simulations.terminal.progress import ProgressBar

POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    "the least": ("", {}),
    "one line": ('servers = ["semi-honest"]\nmax_clip = 1.0\n', {"max_clip": 1.0}),
    "several lines": (
        'servers = [\n    "semi-honest",\n]\ntasks = [\n    "task:task",\n]\n',
        {"tasks": ["task:task"]},
    ),
    "quoted": ('"servers" = ["semi-honest"]\nmax_clip = 1.0\n', {"max_clip": 1.0}),
}


@pytest.mark.parametrize("written", POLICIES)
def test_a_policy_is_the_apps_but_for_its_servers(written, tmp_path):
    text, kept = POLICIES[written]
    file = tmp_path / "policy.toml"
    file.write_text(text + LEAST_TOML)
    assert tomllib.loads(policy_for(file, "malicious")) == LEAST | kept | {"servers": ["malicious"]}


def test_an_app_whose_policy_is_no_policy_is_not_rehearsed(tmp_path):
    file = tmp_path / "policy.toml"
    for text in (None, 'tasks = ["task:task"]\nmin_cohort = 3\n'):
        if text is not None:
            file.write_text(text)
        with pytest.raises(DeploymentError, match=r"policy\.toml lacks .* corruption = .* max_eps"):
            policy_for(file, "malicious")


def test_a_policy_that_is_no_toml_is_named(tmp_path):
    (tmp_path / "policy.toml").write_text("servers = [")
    with pytest.raises(DeploymentError, match=r"policy\.toml is not valid TOML"):
        policy_for(tmp_path / "policy.toml", "malicious")


@pytest.fixture
def no_chmod(monkeypatch):
    """Files keep the mode that they were made with, and nothing is taken off it."""
    monkeypatch.setattr(Path, "chmod", lambda path, mode: None)
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("no_chmod")
def test_private_keys_are_made_unreadable_to_others(tmp_path):
    built = Federation(tmp_path / "all", Loopback(), [Loopback(), Loopback()])
    make_node_key(built.folder / "supernode0.pem")
    keys = [
        *built.folder.glob("node*.key"),
        built.folder / "supernode0.pem",
        built.certificates.key,
    ]
    assert len(keys) == 4
    assert {key.stat().st_mode & 0o777 for key in keys} == {0o600}
    assert built.roster.stat().st_mode & 0o777 == 0o666, "the control: others are as they come"


def test_nodes_are_told_of_the_experiments_own_data_by_its_whole_path(tmp_path):
    app = tmp_path / "app"
    app.mkdir()
    (tmp_path / "patients of ours.csv").write_text("a,b\n1,2\n")
    (app / "experiment.toml").write_text('[data]\npath = "../patients of ours.csv"\n')
    (setting,) = data_setting(app, tmp_path / "nodes")
    assert shlex.split(setting) == [f"data.path={tmp_path / 'patients of ours.csv'}"]


@pytest.mark.parametrize("text", ["", "[data]\n", '[data]\npath = "absent.csv"\n', "[data\n"])
def test_where_no_data_are_named_or_there_the_run_says_so_itself(text, tmp_path):
    (tmp_path / "experiment.toml").write_text(text)
    assert data_setting(tmp_path, tmp_path / "nodes") == []


class Programs:
    """Stands for a federation: two nodes, of which any may have ended, and a run's status."""

    def __init__(self, folder, status="running"):
        self.folder, self.hosts, self.said = folder, [Loopback(), Loopback()], status
        names = ("superlink", "supernode0", "supernode1")
        self.processes = {name: SimpleNamespace(returncode=None) for name in names}
        for name, process in self.processes.items():
            process.poll = lambda process=process: process.returncode
            (folder / f"{name}.log").write_text(f"the last of {name}")

    def follow(self, run):
        self.processes["serverapp"] = SimpleNamespace(poll=lambda: None, returncode=None)
        return self.folder / "serverapp.log"

    def status(self, run):
        return self.said

    def log(self, name):
        return (self.folder / f"{name}.log").read_text()


@pytest.fixture
def watched(tmp_path, monkeypatch):
    """Yield programs, what a rehearsal of theirs keeps, and a watch that looks often."""
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(waiting, "ASK_SECONDS", 0.05)
    kept = RehearsalFolder(tmp_path / "out")
    kept.nodes.mkdir(parents=True)
    built = Programs(kept.nodes)
    told = io.StringIO()
    bar = ProgressBar(None, "round", Console(file=told, width=80))
    seen = Watch(cast(Federation, built), 1, kept, TimedLines(bar))
    return SimpleNamespace(built=built, kept=kept, watch=seen, told=told)


def begin(kept, done=0):
    """Write what a ServerApp does: a configuration, and rounds."""
    folder = RunFolder(kept.path)
    folder.write_config(load_experiment("digits", ["rounds=3"]))
    for number in range(1, done + 1):
        folder.append_line(METRICS, record(number))
        save_checkpoint(
            folder,
            Checkpoint(number, torch.zeros(2), {}, {}, b"", "", {}),
        )


def record(number):
    return {
        "round": number,
        "status": "completed",
        "epsilon": {},
        "cohort": 2,
        "survivors": 2,
        "seconds": 1.5,
    }


@pytest.mark.slow
def test_a_rehearsal_says_each_round_and_what_it_waits_for(watched, monkeypatch):
    monkeypatch.setattr(watch, "QUIET_SECONDS", 0.03)
    log = watched.built.folder / "supernode0.log"
    log.write_text("SuperNode ID: 5\n")
    with pytest.raises(
        DeploymentError, match=r"did not end in 0\.1 s: raise that limit, as --seconds 0\.2$"
    ):
        watched.watch.until_end(0.1)
    begin(watched.kept, 2)
    log.write_text("Receiving: query.share message\nReceiving: train.contribute message\n")
    with pytest.raises(DeploymentError, match="did not end"):
        watched.watch.until_end(0.1)
    told = watched.told.getvalue()
    assert "waiting for the ServerApp to meet its nodes: 1 of 2 joined" in told
    assert told.count("round 1/3") == told.count("round 2/3") == 1
    assert "waiting for round 3 of 3; received last: node 0: train.contribute, node 1: not" in told


def test_a_node_that_ends_is_said_once_and_the_others_are_waited_for(watched):
    watched.built.processes["supernode1"].returncode = -9
    with pytest.raises(DeploymentError, match="did not end"):
        watched.watch.until_end(0.1)
    said = f"supernode1 was killed (out of memory?); its log: {watched.built.folder}/supernode1.log"
    assert watched.told.getvalue().count(said) == 1


@pytest.mark.parametrize("gone", [["superlink"], ["supernode0", "supernode1"]])
def test_nobody_waits_where_nobody_is_left(watched, gone):
    for name in gone:
        watched.built.processes[name].returncode = 3
    with pytest.raises(DeploymentError, match=f"ended:\nthe last of {gone[0]}"):
        watched.watch.until_end(60)


def test_a_run_that_failed_ends_the_watch(watched):
    watched.built.said = "finished:failed"
    assert watched.watch.until_end(60) == "finished:failed"


def test_what_an_ended_rehearsal_left_and_the_command_that_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["zerosum", "rehearse", "app", "--out", "taken"])
    kept = RehearsalFolder(tmp_path / "out")
    assert kept.left(Path("app")).endswith("Start again with:\nzerosum rehearse app --out taken")
    kept.nodes.mkdir(parents=True)
    for begun in (False, True):
        if begun:
            begin(kept)
        lines = kept.left(Path("app")).splitlines()
        assert lines[-2:] == ["Start again with:", "zerosum rehearse app"]
        assert f"{kept.path} is not used again" in lines[1]
    monkeypatch.setattr(sys, "argv", ["zerosum", "rehearse", "app"])
    assert "not used again" not in kept.left(Path("app"))
    begin(kept, 2)
    lines = kept.left(Path("app"), ["--seconds", "60"]).splitlines()
    assert "2 of 3 rounds are over (0 abandoned) and kept" in lines[0]
    assert f"{kept.path}/rehearsal/*.log" in lines[0]
    assert lines[-1] == f"zerosum rehearse app --resume {kept.path} --seconds 60"


SETTING = RehearsedNodes("app", 3, "malicious", False, "A=b")


def test_a_rehearsal_goes_on_with_the_nodes_that_it_had(tmp_path):
    kept = RehearsalFolder(tmp_path / "out")
    with pytest.raises(ConfigError, match="it is no rehearsal's run folder"):
        kept.read()
    kept.write(SETTING)
    with pytest.raises(DeploymentError, match="no completed round to go on from"):
        kept.read()
    begin(kept, 1)
    assert kept.read() == SETTING
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "experiment.toml").touch()
    asked = RehearsedNodes("", 0, "", False)
    assert _continued(kept, tmp_path, asked).nodes == 3
    for other, said in (
        (replace(asked, nodes=4), "--nodes 4"),
        (replace(asked, server="semi-honest"), "--server semi-honest"),
    ):
        with pytest.raises(DeploymentError, match=f"{said}: the rehearsal in .* has "):
            _continued(kept, tmp_path, other)


def test_nodes_that_go_on_have_the_keys_and_the_roster_that_they_had(tmp_path):
    hosts = [Loopback(), Loopback()]
    first = Federation(tmp_path / "all", Loopback(), hosts)
    keys = [file.read_bytes() for file in sorted(first.folder.glob("node*.key"))]
    make_node_key(first.folder / "supernode0.pem")
    tidied(first.folder)
    assert not list(first.folder.glob("supernode*")), "a SuperLink's own keys are made anew"
    second = Federation(tmp_path / "all", Loopback(), hosts)
    assert [file.read_bytes() for file in sorted(second.folder.glob("node*.key"))] == keys
    assert second.signed_roster == first.signed_roster
    assert second.keys_of_server == first.keys_of_server


def test_a_run_is_written_beside_what_its_nodes_keep(tmp_path):
    (tmp_path / "rehearsal").mkdir()
    check_unused(tmp_path)
    (tmp_path / "other").touch()
    with pytest.raises(ConfigError, match="is not an empty folder"):
        check_unused(tmp_path)


@pytest.mark.parametrize("seconds", ["nan", "0.5"])
def test_a_time_limit_is_a_number(seconds):
    done = CliRunner().invoke(main.app, ["rehearse", "app", "--seconds", seconds])
    assert done.exit_code == 2
    assert "Invalid value for '--seconds'" in done.output


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.timeout(1200)
def test_an_interrupted_rehearsal_goes_on_to_the_simulated_model(tmp_path, one_thread):
    """Its noise follows from a seed, so that an uninterrupted run can be compared."""
    app = Path(__file__).parents[2] / "deploy" / "seeded_app"
    settings = ["secagg.dropout=0", "data.clients=3", "rounds=3"]
    command = [sys.executable, "-m", "zerosum.simulations.commands.main"]
    given = [word for setting in settings for word in ("--set", setting)]
    said = tmp_path / "said"
    kept = RehearsalFolder(tmp_path / "out")
    with said.open("w") as file:
        process = subprocess.Popen(
            [*command, "rehearse", str(app), *given, "--out", str(kept.path), "--seconds", "900"],
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        wait_for(lambda: (kept.path / STATE).exists() or process.poll() is not None, 600)
        time.sleep(3)
        mark = json.loads((kept.nodes / "setting.json").read_text())["mark"]
        ours = [number for number in processes_of(mark) if number != process.pid]
        assert len(ours) > 3, said.read_text()
        for _ in range(2):  # who is impatient presses it twice
            os.killpg(process.pid, signal.SIGTERM)
            time.sleep(0.2)
        assert process.wait(120) == 143, said.read_text()
    finally:
        process.kill()
        process.wait()
    assert processes_of(mark) == []
    told = said.read_text()
    assert "Traceback" not in told
    assert "1 of 3 rounds are over" in told
    before = (kept.path / "ledger.jsonl").read_bytes()
    states = sorted(path.name for path in kept.nodes.glob("state*"))
    goes_on = shlex.split(told.splitlines()[-1])[1:]
    done = subprocess.run([*command, *goes_on], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "going on after round 1 of 3" in done.stdout
    assert "round 2/3" in done.stdout
    assert "round 1/3" not in done.stdout
    assert (kept.path / "ledger.jsonl").read_bytes().startswith(before)
    assert sorted(path.name for path in kept.nodes.glob("state*")) == states
    wanted = api.run(load_experiment(app / "experiment.toml", settings), out=tmp_path / "whole")
    found = load_file(kept.path / MODEL)
    assert found.keys() == wanted.model.keys()
    for name, value in wanted.model.items():
        np.testing.assert_array_equal(found[name], value)
