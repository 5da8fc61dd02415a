"""What commands take to start is measured on commands that start: never how long it took."""

import os
import sys

import pytest

from zerosum.simulations.bench import start
from zerosum.simulations.bench.process import BenchError

pytestmark = pytest.mark.skipif(not hasattr(os, "wait4"), reason="needs a process's CPU time")

LOOP = "import time\nwhile time.process_time() < {seconds}: pass\n"


def took(code: str, ends_with: int = 0, time_limit: float = 60.0) -> start.Start:
    return start.started([sys.executable, "-c", code], ends_with, time_limit)


@pytest.mark.slow
def test_cpu_seconds_are_those_of_the_process_and_its_children() -> None:
    busy = LOOP.format(seconds=0.5)
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}])"
    assert took(child).cpu_s >= 0.5
    assert took("import time; time.sleep(0.5)").cpu_s < 0.5


@pytest.mark.slow
def test_the_first_line_is_timed_and_silence_is_none() -> None:
    late = took("import time; time.sleep(0.3); print('now', flush=True); time.sleep(0.3)")
    assert late.first_line_s is not None
    assert late.first_line_s >= 0.3
    assert took("pass").first_line_s is None


def test_a_command_that_fails_is_no_measurement() -> None:
    with pytest.raises(BenchError, match="ended with 3: why"):
        took("import sys; print('why'); sys.exit(3)")


@pytest.mark.slow
def test_a_command_that_does_not_end_is_ended() -> None:
    with pytest.raises(BenchError, match="did not end"):
        took("import time; time.sleep(60)", time_limit=0.2)


@pytest.mark.slow
def test_imports_are_those_of_the_command() -> None:
    version = start.command(("--version",), 0, 60.0)
    assert version.modules > 100
    assert version.heavy == ()
    assert version.first_line_s is not None


@pytest.mark.slow
def test_turns_give_a_row_for_each_command(monkeypatch: pytest.MonkeyPatch) -> None:
    mistyped = {"a mistyped command": start.COMMANDS["a mistyped command"]}
    monkeypatch.setattr(start, "COMMANDS", {**mistyped, start.WHOLE: (("--version",), 0)})
    kept: list[int] = []
    rows = start.run(2, 1, keep=lambda rows: kept.append(len(rows)))["rows"]
    assert [(row["command"], row["turns"]) for row in rows] == [
        (start.BARE, 2),
        ("a mistyped command", 2),
        (start.WHOLE, 1),
    ]
    assert kept == [3, 3]
    assert rows[0]["ratio_to_python"] == 1 < rows[1]["ratio_to_python"]
