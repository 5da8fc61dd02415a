"""The time that a sweep still takes, from the rounds that are over."""

import pytest

from zerosum.simulations.sweeps.time_left import START_SECONDS, Pace
from zerosum.simulations.terminal.durations import in_words


def test_nothing_is_said_before_the_first_round():
    assert Pace(2, 10, 100).seconds_left is None


def test_rounds_and_starts_are_shared_by_the_workers():
    pace = Pace(workers=2, cells_left=10, rounds_left=100)
    pace.round(3.0)
    assert pace.seconds_left == pytest.approx((99 * 3 + 10 * START_SECONDS) / 2)


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
    assert in_words(seconds) == words
