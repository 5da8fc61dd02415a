"""Processes that play cells: what one of them does not survive fails alone."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from odd_attacks import Bits, Odd
from processes import alive, children, wait_for

from zerosum.simulations.attacks.harness.interface import Case, Defense
from zerosum.simulations.attacks.harness.play import Cell
from zerosum.simulations.attacks.harness.play_all import jobs_of, play_all
from zerosum.simulations.attacks.harness.workers import played_apart
from zerosum.simulations.engine import processes

pytestmark = pytest.mark.slow
COMMON = Path(__file__).parents[3] / "common"


@dataclass(frozen=True)
class Held(Odd):
    """An object that no process can be sent."""

    held: Any = field(default_factory=lambda: lambda: None)


ODD = ("killed", "exit", "unsendable", "unreadable", "setting", "held", "nothing")


@pytest.fixture(scope="module")
def ends():
    """Return how the cells of some jobs ended, each job with another misfortune, in two processes.

    By job: its cells before, with and after the misfortune.
    """
    cells = [cell for what in ODD for cell in cells_of(what)]
    ends: dict[str, list[str]] = {}
    for outcome in play_all(cells, [0], 2):
        how = outcome.note if outcome.status == "failed" else outcome.status
        ends.setdefault(cells[outcome.number].case.setting.name, []).append(how)
    return ends


def cells_of(what: str) -> list[Cell]:
    attack = (Held if what == "held" else Odd)(what, where=what)
    setting = Bits(what, ends=what == "setting")
    return [Cell(attack, Case(setting, Defense(name))) for name in ("first", "odd", "last")]


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("killed", "its worker was killed (out of memory?)"),
        ("exit", "its worker ended with exit code 3"),
        ("unsendable", "cannot be sent to another process (TypeError: this stays where it is)"),
        ("unreadable", "its outcome cannot be read (LookupError: nobody reads this)"),
    ],
)
def test_a_cell_that_no_process_survives_fails_alone(ends, what, said):
    first, odd, last = ends[what]
    assert said in odd
    assert [first, last] == ["value"] * 2


def test_a_job_that_ends_two_processes_is_given_up(ends):
    assert ends["setting"] == ["its worker ended with exit code 7"] * 3


def test_a_job_that_cannot_be_sent_fails(ends):
    assert len(ends["held"]) == 3
    assert all("no process can be sent it" in end for end in ends["held"])


def test_a_job_after_all_that_is_played(ends):
    assert ends["nothing"] == ["value"] * 3


def test_where_no_process_starts_every_cell_says_so(monkeypatch):
    monkeypatch.setattr(processes, "_serve", _exit)
    attack = Odd("nothing")
    cells = [Cell(attack, case) for case in attack.cases("quick")]
    found = play_all(cells, [0], 2)
    assert {outcome.note for outcome in found} == {
        "no process could be started: its worker ended with exit code 1"
    }
    assert len(found) == len(cells)


def _exit(connection, prepare, place):
    raise SystemExit(1)


def test_a_job_that_is_not_finished_leaves_its_finished_cells():
    attack = Odd("sleep")
    cells = [Cell(attack, case) for case in attack.cases("quick")]
    outcomes = played_apart(jobs_of(cells, [0]), 2, None)
    first = {next(outcomes).number for _ in range(2)}
    started = time.monotonic()
    outcomes.close()
    assert first == {0, 3}
    assert time.monotonic() - started < processes.GRACE_SECONDS + 2
    assert not multiprocessing.active_children()


COMMAND = [
    *(sys.executable, "-m", "zerosum.simulations.commands.main", "attack", "odd_attacks:Odd"),
    *("--workers", "2", "--seeds", "1"),
]


@pytest.fixture
def attacked(request, tmp_path):
    """Yield a command two of whose nine cells are played, and whose workers sleep."""
    said = tmp_path / "stderr"
    settings = ["--set", f"odd.what={getattr(request, 'param', 'sleep')}"]
    with said.open("w") as stderr:
        process = subprocess.Popen(
            [*COMMAND, *settings, "--out", str(tmp_path / "out")],
            cwd=COMMON,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            wait_for(lambda: "play 2/9" in said.read_text())
            yield process
        finally:
            process.kill()
            process.wait()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks in /proc for processes")
@pytest.mark.parametrize(
    ("sign", "group"),
    [
        (signal.SIGINT, True),
        (signal.SIGINT, False),
        (signal.SIGTERM, False),
        (signal.SIGHUP, True),
    ],
    ids=[
        "ctrl-C in a terminal",
        "SIGINT to the command",
        "SIGTERM to the command",
        "a terminal hangs up",
    ],
)
def test_an_interrupted_command_ends_its_workers_and_leaves_what_is_finished(
    attacked, tmp_path, sign, group
):
    before = children(attacked.pid)
    assert len(before) > 2, "two workers, and what cleans up after them"
    started = time.monotonic()
    if group:
        os.killpg(attacked.pid, sign)  # as a terminal does
    else:
        attacked.send_signal(sign)
    assert attacked.wait(60) == 128 + sign
    assert time.monotonic() - started < 20
    wait_for(lambda: not any(alive(pid) for pid in before), 10)
    said = (tmp_path / "stderr").read_text()
    assert "Traceback" not in said
    assert "ended after 2 of 9 plays" in said
    assert str(tmp_path / "out" / "results.csv") in said
    assert said.splitlines()[-1] == f"zerosum attack --resume {tmp_path / 'out'}"
    for name in ("table.md", "report.html"):
        assert "ended after 2 of 9 plays" in (tmp_path / "out" / name).read_text()
    assert (tmp_path / "out" / "results.csv").read_text().count("pooled") == 2


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks in /proc for processes")
@pytest.mark.parametrize("attacked", ["sleep", "deaf"], indirect=True)
def test_workers_do_not_outlive_a_command_that_is_killed(attacked):
    before = children(attacked.pid)
    attacked.kill()
    attacked.wait()
    wait_for(lambda: not any(alive(pid) for pid in before), 20)
