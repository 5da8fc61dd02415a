"""The time that a sweep still takes, from the rounds that are over."""

from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from zerosum.simulations.commands.sweep import _Shown
from zerosum.simulations.sweeps import children
from zerosum.simulations.sweeps.time_left import START_SECONDS, Pace
from zerosum.simulations.terminal.durations import time_in_words
from zerosum.simulations.terminal.progress import ProgressBar


def test_nothing_is_said_before_the_first_round():
    assert Pace(2, 10, 100).seconds_left is None


def test_rounds_and_starts_are_shared_by_the_workers():
    pace = Pace(workers=2, cells_left=10, rounds_left=100)
    pace.round(3.0)
    assert pace.seconds_left == pytest.approx((99 * 3 + 10 * START_SECONDS) / 2)


def test_the_time_left_moves_on_between_two_rounds():
    pace = Pace(workers=2, cells_left=3, rounds_left=5)
    pace.round(4.0)
    work = 4 * 4 + 3 * START_SECONDS
    assert pace.seconds_left == work / 2
    pace.running = [3.0, 1.0]
    assert pace.seconds_left == (work - 4) / 2
    pace.running = [600.0, 1.0]  # one cell hangs: what comes after it takes as long as before
    assert pace.seconds_left == (work - 4 - START_SECONDS - 1) / 2


def test_rounds_of_an_earlier_call_give_no_time_left():
    """Of 180 rounds 30 were there when the call began, which took a third of a second so far."""
    console = Console(file=StringIO(), width=100)
    folder = SimpleNamespace(cells=[None] * 60, is_over=lambda cell: False)
    bar = ProgressBar(180, "round", console, guesses=False)
    task = bar._bar.tasks[0]
    shown = _Shown(bar, folder, 180)  # type: ignore[arg-type]
    pace = Pace(2, 52, 150)
    shown.look(pace)
    assert "left" not in bar.times(task)
    pace.round(10.0)
    shown.look(pace)
    assert "16 min left" in bar.times(task)  # (149 * 10 + 52 * 8) / 2 seconds


@pytest.mark.parametrize("line", [b'6, "survivors": 3}', b"{}", b'{"seconds": null}', b"7"])
def test_a_piece_of_a_line_is_no_round(line):
    assert children._seconds(line) is None
    assert children._seconds(b'{"round": 1, "seconds": 2.5}') == 2.5


def test_what_a_cell_takes_beside_its_rounds_is_measured():
    pace = Pace(workers=4, cells_left=3, rounds_left=3)
    pace.round(1.0)
    pace.over(21.0, [1.0])
    assert pace.seconds_left == pytest.approx((2 * 1 + 2 * 20) / 2)  # two cells: two workers


def test_a_sweep_that_is_over_takes_no_more():
    pace = Pace(1, 1, 1)
    pace.round(5.0)
    pace.over(6.0, [5.0])
    assert pace.seconds_left == 0


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(5, "under a minute"), (60, "1 min"), (3599, "1 h 0 min"), (7500, "2 h 5 min"),
     (86400 * 2.5, "2 days 12 h")],
)  # fmt: skip
def test_times_are_said_as_people_guess_them(seconds, words):
    assert time_in_words(seconds) == words
