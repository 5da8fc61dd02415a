"""Windows, as far as it can be had here: a process without what Windows lacks."""

import subprocess
import sys
from pathlib import Path

import pytest

COMMON = Path(__file__).parents[1] / "common"

SCRIPT = """
import sys
sys.path.insert(0, {common!r})
import as_on_windows
locks = as_on_windows.pretend()
from pathlib import Path
from typer.testing import CliRunner
from zerosum.client.files.file_lock import HeldError, held_alone
from zerosum.server.config import ConfigError
from zerosum.simulations import api
from zerosum.simulations.commands import main

def refused(call):
    try:
        call()
    except (ConfigError, HeldError) as error:
        return error
    raise AssertionError("nothing was refused")

def again(record):
    assert locks.held  # the run folder's
    refused(lambda: api.held(api.RunFolder(Path("run"))).__enter__())

small = ["rounds=1", "data.clients=24", "sampling.cohort=10", "privacy.model=none"]
result = api.run("digits", overrides=small, out="run", on_round=again)
assert result.summary["engine"]["name"] == "serial"
assert result.summary["peak_memory_mb"] is None
assert not locks.held
api.resume("run", overrides=["rounds=2"], report=False)
error = refused(lambda: api.plan(api.load_experiment("digits", ["engine=processes"])))
assert 'write engine = "serial"' in str(error)
for command in (["keys", "new", "key"], ["rehearse", "."]):
    done = CliRunner().invoke(main.app, command)
    assert done.exit_code == 2, done.output
    assert "deploy on Linux, macOS or in WSL" in " ".join(done.output.split())
assert CliRunner().invoke(main.app, ["list"]).exit_code == 0
assert not Path("key").exists()
print("all of it")
"""


@pytest.mark.slow
def test_without_what_windows_lacks_runs_go_on_and_deployments_are_refused(tmp_path: Path) -> None:
    script = SCRIPT.format(common=str(COMMON))
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "all of it" in done.stdout
