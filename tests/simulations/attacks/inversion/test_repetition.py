"""Averaging repeated answers: noise goes by the square root, and a budget ends it."""

import numpy as np
import pytest

from zerosum.simulations.attacks.harness import Cell, play
from zerosum.simulations.attacks.interface import Case
from zerosum.simulations.attacks.inversion.repetition import Repetition, asked, noised

pytestmark = pytest.mark.usefixtures("one_thread")


def outcome_of(count, protection, seed=0):
    return play(0, Cell(Repetition(), Case(asked(count), protection)), seed)


def right(outcome):
    return outcome.units["pixels recovered"].hits.mean()


def blind(outcome):
    return outcome.baseline["pixels recovered"].hits.mean()


def test_hardly_any_noise_hides_no_pixel():
    assert right(outcome_of(1, noised(1e-4))) == 1


def test_one_noised_answer_is_no_better_than_a_guess():
    outcome = outcome_of(1, noised(0.1))
    assert right(outcome) < blind(outcome)


def test_more_answers_tell_more():
    few, many = (right(outcome_of(count, noised(0.02))) for count in (1, 50))
    assert few < 0.7 < 0.95 < many


def test_a_budget_leaves_the_answers_that_were_given():
    scenes = [
        asked(count).play(Repetition(), protection, 0)
        for count, protection in ((8, noised(0.02, budget=5)), (5, noised(0.02)))
    ]
    assert scenes[0].view.contributions.shape[0] == 5
    assert "0 clients are left" in scenes[0].view.stopped
    assert np.array_equal(scenes[0].view.contributions, scenes[1].view.contributions)
    assert scenes[0].epsilon == scenes[1].epsilon


def test_each_answer_costs_epsilon():
    one, five = (asked(count).play(Repetition(), noised(1.0), 0).epsilon for count in (1, 5))
    assert five > 2 * one


@pytest.mark.slow
def test_what_repetition_must_show():
    assert np.mean([right(outcome_of(2000, noised(0.1), seed)) for seed in range(3)]) > 0.98
    ended = [outcome_of(2000, noised(0.1, budget=20), seed) for seed in range(3)]
    assert np.mean([right(each) for each in ended]) < np.mean([blind(each) for each in ended])
