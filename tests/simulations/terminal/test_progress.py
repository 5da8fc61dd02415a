"""Progress is a bar on a terminal, and about ten lines elsewhere."""

import os
import re
import struct
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from zerosum.simulations.terminal import progress
from zerosum.simulations.terminal.durations import StepTimes
from zerosum.simulations.terminal.progress import LINES, ProgressBar, fitting


def shown(total: int | None, done: int, *, terminal: bool) -> str:
    console = Console(file=StringIO(), width=100, force_terminal=terminal)
    with ProgressBar(total, "step", console) as bar:
        for number in range(1, done + 1):
            bar.step(number)
        bar.show("beside the bar")
        bar.line("[/a] line")
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_few_steps_are_a_line_each_where_there_is_no_terminal() -> None:
    expected = [f"step {n}/4" for n in range(1, 5)]
    assert shown(4, 4, terminal=False).splitlines() == [*expected, "[/a] line"]


def test_of_many_steps_some_are_printed_the_first_and_the_last_among_them() -> None:
    lines = shown(1005, 1005, terminal=False).splitlines()[:-1]
    assert lines[0] == "step 1/1005"
    assert lines[-1] == "step 1005/1005"
    assert len(lines) == LINES + 2


@pytest.mark.parametrize("total", [None, 3])
def test_a_terminal_has_a_bar_with_words_and_lines_above_it(total: int | None) -> None:
    text = shown(total, 2, terminal=True)
    assert "beside the bar" in text
    assert "[/a] line" in text


ROUND = "round 8/60  accuracy 0.838  epsilon 2.32 (release) 3.1 (sum)  dropouts 2/31"


@pytest.mark.parametrize(
    ("room", "words"),
    [
        (80, ROUND),
        (60, "round 8/60  accuracy 0.838  epsilon 2.32 (release) 3.1 (sum)"),
        (59, "round 8/60  accuracy 0.838  epsilon 2.32 (release)"),
        (40, "round 8/60  accuracy 0.838"),
        (10, "round 8/60"),
        (9, "round..."),
        (2, ".."),
    ],
)
def test_words_are_left_out_in_whole_parts(room: int, words: str) -> None:
    assert fitting(ROUND, room) == words


def test_a_long_reason_is_cut_and_says_so() -> None:
    words = "round 1/2  abandoned: 3 of 10 clients are there, the threshold is 7"
    assert fitting(words, 50) == "round 1/2  abandoned: 3 of 10 clients are there..."


def test_wide_letters_are_counted_by_columns() -> None:
    assert fitting("回合 8/60  精度 0.838", 19) == "回合 8/60"
    assert fitting("回合 8/60  精度 0.838", 21) == "回合 8/60  精度 0.838"


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)


def test_time_left_follows_from_the_steps_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    times = StepTimes()
    assert times.seconds_left(10) is None  # nothing is over, so nothing is known
    clock.now += 30  # loading, then 2 seconds of a first step
    times.step(6)  # five are of an earlier process
    assert times.seconds_left(10) == 4 * 30  # all that is known so far
    clock.now += 2
    times.step(7)
    assert times.seconds_left(10) == 3 * 2  # the start counts no more
    clock.now += 1
    assert times.seconds_left(10) == 5
    clock.now += 50  # the eighth takes long: what comes after it may not
    assert times.seconds_left(10) == 4
    times.step(10)
    assert times.seconds_left(10) == 0
    assert times.seconds_left(None) is None


def test_steps_that_were_kept_say_nothing_of_those_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    times = StepTimes()
    for done in range(1, 6):
        clock.now += 0.1
        times.step(done, own=False)
    assert times.seconds_left(10) is None
    clock.now += 9.5
    times.step(6)
    assert times.seconds_left(10) == pytest.approx(4 * 10)
    clock.now += 8
    times.step(7)
    assert times.seconds_left(10) == pytest.approx(3 * 8)


def test_a_step_that_is_told_twice_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    times = StepTimes()
    for done in (1, 2, 2, 2):
        clock.now += 2
        times.step(done)
    assert times.seconds_left(3) == pytest.approx(0)
    assert times.seconds_left(4) == 2


SCRIPT = """
import sys, time
from rich.console import Console
from zerosum.simulations.terminal.progress import ProgressBar
from zerosum.simulations.terminal.streams import take_any_text
take_any_text()
with ProgressBar(600, "round", Console()) as bar:
    for number in range(1, 4):
        time.sleep(0.02)
        bar.step(number, f"round {number}/600  accuracy 0.838  epsilon 2.32 (release) 3.1 (sum)  "
                 "dropouts 2/31  a part that nobody has room for, as long as it is here")
    time.sleep(0.3)
"""


def screen(columns: int, command: list[str], **environment: str) -> list[str]:
    """Run a command on a terminal of so many columns; return the lines that it drew."""
    pty, fcntl, termios = (pytest.importorskip(name) for name in ("pty", "fcntl", "termios"))
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    unset = {"COLUMNS", "LINES", "NO_COLOR", "LC_ALL", "FORCE_COLOR", "PYTHONIOENCODING"}
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    child = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs,
        env={**kept, "TERM": "xterm-256color", "PYTHONUTF8": "1", **environment},
    )  # fmt: skip
    os.close(theirs)
    data = b""
    try:
        while part := os.read(ours, 65536):
            data += part
    except OSError:  # Linux's end of a terminal that nobody writes to any more
        pass
    assert child.wait(60) == 0, data
    os.close(ours)
    assert environment.get("NO_COLOR") is None or b"\x1b[3" not in data
    text = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", data).decode()
    return [line for line in re.split(r"[\r\n]+", text) if line.strip()]


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize(
    ("columns", "extra"),
    [(120, {}), (80, {}), (60, {}), (40, {}), (80, {"NO_COLOR": "1"})],
    ids=["120", "80", "60", "40", "no colour"],
)
def test_bar_and_time_left_stay_on_one_line_of_a_terminal(
    columns: int, extra: dict[str, str]
) -> None:
    lines = screen(columns, [sys.executable, "-c", SCRIPT], **extra)
    assert all(cell_len(line) <= columns for line in lines)
    last = lines[-1]
    assert last.startswith("-----" if extra else ("━", "╸", "╺"))
    assert re.search(r" round 3/600 .*\d+ (s|min) left$", last), last
    assert ("0.838" in last) == (columns >= 60)
    assert ("epsilon 2.32 (release)" in last) == (columns >= 80)


@pytest.mark.slow
def test_a_letterless_terminal_has_a_bar_of_signs() -> None:
    lines = screen(
        80, [sys.executable, "-c", SCRIPT], PYTHONUTF8="0", PYTHONIOENCODING="ascii", LC_ALL="C"
    )
    assert all(line.isascii() and len(line) <= 80 for line in lines)
    assert re.search(r"^-+ round 3/600 .* left$", lines[-1]), lines[-1]


@pytest.mark.slow
def test_a_terminal_that_cannot_move_its_cursor_has_lines() -> None:
    lines = screen(80, [sys.executable, "-c", SCRIPT], TERM="dumb")
    assert lines[0].startswith("round 1/600  accuracy")
    assert not any("━" in line for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "pattern"),
    [
        (["run", "digits", "--set=rounds=6", "--out=run"], r"round \d+/6 .* left$"),
        (
            ["sweep", "digits", "--set=rounds=4", "--seeds=0-1", "--out=sweep"],
            r"cells  round \d+/8 .* left$",
        ),
        (["attack", "request-binding", "--out=attack"], r"play \d+/\d+ .* left$"),
        (
            ["audit", "digits", "--canaries=50", "--repetitions=6"],
            r"repetition \d+/6 .* left$",
        ),
    ],
    ids=["run", "sweep", "attack", "audit"],
)
def test_a_command_keeps_its_bar_at_80_columns(
    words: list[str], pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = "from zerosum.simulations.commands.entry import main; main()"
    lines = screen(80, [sys.executable, "-c", code, *words])
    drawn = [line for line in lines if line[0] in "━╸╺"]
    assert drawn
    assert all(cell_len(line) <= 80 for line in drawn)
    assert any(re.search(pattern, line) for line in drawn), drawn
