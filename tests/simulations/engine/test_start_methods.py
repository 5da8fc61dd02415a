"""Scripts of users' own, under each way in which Python starts processes."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SMALL = '["rounds=1", "data.clients=24", "sampling.cohort=10", "privacy.model=none"]'

SPAWNING = f"""
import multiprocessing
multiprocessing.set_start_method("spawn", force=True)
from zerosum.simulations import run
print("begun as", __name__)
small = {SMALL} + ["engine=processes", "workers=2"]
result = run("digits", overrides=small, out="run", report=False)
assert result.summary["engine"] == result.summary["engine"] | {{"name": "processes", "workers": 2}}
"""

ON_MACOS = f"""
import sys
from zerosum.server.config import ConfigError
from zerosum.simulations import run
sys.platform = "darwin"
print("begun as", __name__)
result = run("digits", overrides={SMALL}, out="run", report=False)
assert result.summary["engine"]["name"] == "serial"
try:
    run("digits", overrides=["engine=processes"], out="no")
except ConfigError as error:
    assert str(error).endswith('darwin cannot fork safely; write engine = "serial", or "auto"')
else:
    raise AssertionError("processes were forked")
"""

ATTACKING = """
from zerosum.simulations.attacks.run import attack
print("begun as", __name__)
rows = attack(["differencing-of-counts"], seeds=2, workers=2, out="attacked")
assert not [row for row in rows if "no process could be started" in row.note], rows
"""


def run_script(script: str, folder: Path) -> str:
    """Run a script without the usual guard; return what it printed."""
    (folder / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("script", [SPAWNING, ON_MACOS], ids=["spawn is the default", "macOS"])
def test_a_run_in_an_unguarded_script_begins_once(script: str, tmp_path: Path) -> None:
    assert run_script(script, tmp_path).count("begun as") == 1


def test_attacks_of_an_unguarded_script_are_played_in_processes(tmp_path: Path) -> None:
    assert run_script(ATTACKING, tmp_path).count("begun as") == 1


IMPORTED_AGAIN = f"""
import multiprocessing
from zerosum.simulations import run
if __name__ == "__main__":
    worker = multiprocessing.get_context("spawn").Process(target=print)
    worker.start()
    worker.join()
    assert worker.exitcode == 1
else:
    run("digits", overrides={SMALL}, out="again")
"""


def test_a_script_that_a_worker_imports_does_not_begin_anew(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(IMPORTED_AGAIN)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert "BusyError: run: a worker process imports the script" in done.stderr
    assert not (tmp_path / "again").exists()
