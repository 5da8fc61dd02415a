"""The command line: what a person sees, and what a mistake costs them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from zerosum.client.protocol.node_keys import read_roster
from zerosum.server.runs.run_folder import METRICS, MODEL
from zerosum.simulations.commands.main import app

TINY = ["digits", "--set", "rounds=2", "--set", "data.clients=30", "--set", "privacy.delta=1e-2"]
EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def zerosum(tmp_path, monkeypatch):
    """Return a function that runs the command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, [str(a) for a in arguments])


def test_a_run_shows_progress_a_table_and_where_the_report_is(zerosum, tmp_path):
    result = zerosum("run", *TINY, "--out", "mine")
    assert result.exit_code == 0, result.output
    assert "round 2/2" in result.output
    assert "epsilon_sum" in result.output
    assert str(Path("mine") / "report.html") in result.output
    assert (tmp_path / "mine" / "report.html").stat().st_size > 10_000


@pytest.mark.slow
def test_without_out_the_folder_is_named_after_the_experiment(zerosum, tmp_path):
    assert zerosum("run", *TINY).exit_code == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("digits-")


@pytest.mark.slow
def test_list_names_what_there_is(zerosum):
    output = zerosum("list").output
    for name in ("mnist5k", "cross-silo", "digits", "mlp", "pairwise", "poisson", "distributed"):
        assert name in output
    assert "discrete Laplace noise on counts" in output


def test_a_dry_run_prints_the_configuration_and_writes_nothing(zerosum, tmp_path):
    result = zerosum("run", *TINY, "--dry-run", "--out", "mine")
    assert result.exit_code == 0
    assert "noise_multiplier" in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "privacy.clp=1"], ["privacy.clp", "privacy.clip"]),
        (["--set", "rounds=many"], ["rounds", "many", "integer"]),
        (["--set", "privacy.clip=0"], ["privacy.clip", "greater than"]),
        (["--set", "privacy.epsilon=0"], ["privacy.epsilon", "greater than 0"]),
        (["--set", "sampling.cohort=31"], ["sampling.cohort", "31", "30"]),
        (["--set", "secagg.threshold=25"], ["secagg.threshold", "25", "24"]),
        (["--set", "encoding.ring_bits=17"], ["encoding", "ring", "17"]),
        (["--set", "privacy.delta=0.05"], ["privacy.delta", "allow_large_delta"]),
        (["--set", "task=mnist", "--set", "data.path=absent.npz"], ["data.path", "absent.npz"]),
        (["--set", "task=mnst"], ["task", "mnst", "mnist"]),
        (["--set", "task=absent_module:task"], ["absent_module"]),
        (["--set", "data.partition=natural"], ["data.partition", "natural"]),
        (["--set", "data.clients=100000"], ["data.clients", "100000"]),
        (["--set", "data.clients=1"], ["data.clients", "2"]),
        (["--set", "server.optimizer=Sdg"], ["server.optimizer", "SGD"]),
        (["--set", "server.options={momentun=0.9}"], ["server.options", "momentun"]),
        (["--set", "secagg.dropout=0.9"], ["secagg.dropout", "0.9"]),
        (["--set", "sampling.kind=once", "--set", "rounds=3"], ["rounds", "once"]),
        (["--set", "privacy.noise_draw=summed"], ["privacy.noise_draw", "ideal"]),
        (["--set", "nonsense"], ["nonsense", "key=value"]),
        (["--seed", "-1"], ["seed", "-1"]),
    ],
)
def test_a_mistake_is_one_line_exit_two_and_nothing_written(zerosum, tmp_path, arguments, words):
    result = zerosum("run", *TINY, *arguments)
    assert result.exit_code == 2, result.output
    line = result.stderr.strip()
    assert line.count("\n") == 0, line
    assert line.startswith("error: ")
    for word in words:
        assert word in line
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_experiment_is_named_with_the_nearest(zerosum):
    result = zerosum("run", "digit")
    assert result.exit_code == 2
    assert 'did you mean "digits"' in result.output


@pytest.mark.slow
def test_a_folder_that_holds_a_run_is_not_overwritten(zerosum):
    assert zerosum("run", *TINY, "--out", "mine").exit_code == 0
    before = Path("mine", MODEL).read_bytes()
    result = zerosum("run", *TINY, "--out", "mine", "--seed", "9")
    assert result.exit_code == 2
    assert "--resume mine" in result.output
    assert Path("mine", MODEL).read_bytes() == before


@pytest.mark.slow
def test_resuming_another_configuration_is_refused_and_nothing_changes(zerosum):
    assert zerosum("run", *TINY, "--out", "mine").exit_code == 0
    config = Path("mine", "config.toml").read_text()
    for change, key in [("privacy.clip=9.0", "privacy.clip"), ("rounds=1", "rounds")]:
        result = zerosum("run", "--resume", "mine", "--set", change)
        assert result.exit_code == 2
        assert key in result.output
    assert zerosum("run", "--resume", "mine", "--seed", "5").exit_code == 2
    assert zerosum("run", "--resume", "absent").exit_code == 2
    assert zerosum("run", "--resume", "mine", "--out", "other").exit_code == 2
    assert Path("mine", "config.toml").read_text() == config


@pytest.mark.slow
def test_a_finished_run_can_go_on_for_more_rounds(zerosum):
    assert zerosum("run", *TINY, "--out", "mine").exit_code == 0
    assert zerosum("run", "--resume", "mine", "--set", "rounds=3").exit_code == 0
    assert len(Path("mine", METRICS).read_text().splitlines()) == 3


@pytest.mark.slow
def test_a_task_of_ones_own_runs_by_its_name(zerosum, tmp_path):
    (tmp_path / "my_task.py").write_text((EXAMPLES / "my_task.py").read_text())
    result = zerosum("run", *TINY, "--set", "task=my_task:task")
    assert result.exit_code == 0, result.output


@pytest.mark.slow
def test_a_run_killed_at_random_moments_and_resumed_is_the_run_it_would_have_been(tmp_path):
    command = [sys.executable, "-m", "zerosum.simulations.commands.main", "run"]
    tiny = [*TINY[:-4], "--set", "data.clients=60", "--set", "privacy.delta=1e-2"]
    settings = [*tiny, "--set", "rounds=12", "--set", "sampling.cohort=30"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run([*command, *settings, "--out", whole], check=True, capture_output=True)
    kills = 0
    for rounds_seen in (0, 2, 3, 5, 8):
        start = (
            ["--resume", killed]
            if (killed / "config.toml").exists()
            else [*settings, "--out", killed]
        )
        process = subprocess.Popen([*command, *start], stdout=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 120
            while process.poll() is None and time.monotonic() < deadline:
                lines = killed / METRICS
                if lines.exists() and len(lines.read_text().splitlines()) > rounds_seen:
                    time.sleep(0.013 * rounds_seen)
                    process.send_signal(signal.SIGKILL)
                    kills += 1
                    break
                time.sleep(0.002)
        finally:
            process.kill()
            process.wait()
    assert kills == 5
    subprocess.run([*command, "--resume", killed], check=True, capture_output=True, env=os.environ)
    assert (killed / MODEL).read_bytes() == (whole / MODEL).read_bytes()
    assert (killed / "ledger.jsonl").read_bytes() == (whole / "ledger.jsonl").read_bytes()


def test_keys_and_a_roster_are_made_as_the_example_says(zerosum, tmp_path):
    made = [zerosum("keys", "new", f"{n}.key") for n in (0, 1, "authority")]
    public = [each.stdout.strip() for each in made]
    assert "made authority.key, " in made[2].stderr, "on a screen, hex alone does not say whose"
    assert all(len(bytes.fromhex(key)) == 32 for key in public)
    assert (tmp_path / "0.key").stat().st_mode & 0o777 == 0o600
    assert zerosum("keys", "show", "1.key").output.strip() == public[1]
    signed = ["--authority", "authority.key"]
    first = zerosum("roster", "add", "roster", f"0={public[0]}", f"1={public[1]}", *signed)
    assert first.output == f"version 1, 2 clients; authority {public[2]}\n"
    third = zerosum("keys", "new", "2.key").stdout.strip()
    assert (
        "version 2, 3 clients" in zerosum("roster", "add", "roster", f"2={third}", *signed).output
    )
    roster = read_roster(str(tmp_path / "roster"), public[2])
    assert [roster.entries[n].hex() for n in range(3)] == [public[0], public[1], third]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["keys", "show", "absent"], "FILE = 'absent'"),
        (["roster", "add", "r", "0=ab", "--authority", "absent"], "--authority = 'absent'"),
        (["plan", "digits", "--json", "absent/x.json"], "--json absent/x.json: there is no folder"),
        (["run", "folder.toml"], "folder.toml cannot be read: Is a directory; give a TOML file"),
    ],
)
def test_a_file_at_fault_is_named_by_the_option_that_it_came_by(
    zerosum, tmp_path, arguments, named
):
    (tmp_path / "folder.toml").mkdir()
    result = zerosum(*arguments)
    assert result.exit_code == 2
    assert result.output.startswith("error: ")
    assert named in result.output
    assert "identity" not in result.output


@pytest.mark.quick_one_in(2)
@pytest.mark.parametrize("mask", [0o000, 0o777])
def test_a_signing_key_is_its_owners_alone_whatever_the_umask(zerosum, tmp_path, mask):
    before = os.umask(mask)
    try:
        public = zerosum("keys", "new", "0.key").stdout
    finally:
        os.umask(before)
    assert (tmp_path / "0.key").stat().st_mode & 0o777 == 0o600
    assert zerosum("keys", "show", "0.key").output == public
    (tmp_path / "0.key").chmod(0o640)
    refused = zerosum("keys", "show", "0.key")
    assert refused.exit_code == 2
    assert "chmod 600" in refused.output
    refused = zerosum("roster", "add", "roster", f"0={public.strip()}", "--authority", "0.key")
    assert "chmod 600" in refused.output
    assert not (tmp_path / "roster").exists()


@pytest.mark.slow
def test_mistakes_with_keys_are_one_line_and_change_nothing(zerosum, tmp_path):
    public = zerosum("keys", "new", "0.key").stdout.strip()
    zerosum("keys", "new", "authority.key")
    signed = ["--authority", "authority.key"]
    zerosum("roster", "add", "roster", f"0={public}", *signed)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    wrong = [
        ["keys", "new", "0.key"],
        ["keys", "show", "absent.key"],
        ["roster", "add", "roster", "0", *signed],
        ["roster", "add", "roster", "1=zz", *signed],
        ["roster", "add", "roster", f"1={public}", *signed],
        ["roster", "add", "roster", f"0={public}", "--authority", "0.key"],
        ["roster", "add", "roster", f"0={public}", "--authority", "absent.key"],
    ]
    for arguments in wrong:
        result = zerosum(*arguments)
        assert result.exit_code == 2, arguments
        assert result.output.startswith("error: ")
        assert result.output.count("\n") == 1
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
