"""Differencing: two sums that differ by one client, with and without noise."""

import numpy as np
import pytest
from narrowed import present, values_of, view_of

from zerosum.simulations.attacks.harness.interface import Case
from zerosum.simulations.attacks.harness.play import Cell, play
from zerosum.simulations.attacks.inversion.differencing import EXACT, Differencing
from zerosum.simulations.attacks.inversion.gradient_cases import MASKED, PLAIN, distributed
from zerosum.simulations.attacks.inversion.two_cohorts import TwoCohorts
from zerosum.simulations.attacks.settings.rounds import RoundsSetting

pytestmark = pytest.mark.usefixtures("one_thread")


FIVE = TwoCohorts(clients=5)


def figures(protection, seed=0, setting=FIVE):
    outcome = play(0, Cell(Differencing(), Case(setting, protection)), seed)
    values = {name: np.mean(units.figure().value) for name, units in outcome.units.items()}
    return outcome, values


@pytest.mark.slow
def test_masks_do_not_hide_a_difference():
    _, values = figures(MASKED)
    assert values["updates recovered"] == 1
    assert values["PSNR"] > 60


@pytest.mark.slow
def test_noise_in_both_sums_hides_update_and_image():
    outcome, values = figures(distributed(0.1))
    assert values["updates recovered"] == 0
    assert 0.8 < values["relative error"] < 1.1
    assert values["PSNR"] < values_of(outcome.baseline, "PSNR")[0] + 2


@pytest.mark.slow
def test_little_noise_hides_the_update_and_not_the_image():
    _, values = figures(distributed(1e-3))
    assert values["updates recovered"] == 0
    assert values["PSNR"] > 25


def test_the_true_update_is_the_client_s_contribution():
    scene = TwoCohorts(clients=3).play(Differencing(), MASKED, 0)
    alone = view_of(RoundsSetting(clients=3).play(Differencing(), PLAIN, 0))
    update = scene.truth["update"]
    assert np.linalg.norm(alone.contributions[0, 0] - update) < EXACT * np.linalg.norm(update)
    others = alone.contributions[0, 1] - update
    assert np.linalg.norm(others) > np.linalg.norm(update) / 2


def test_equal_cohorts_have_equal_sums():
    view = view_of(RoundsSetting(clients=5, rounds=2).play(Differencing(), MASKED, 0))
    assert np.abs(view.totals[0] - view.totals[1]).max() < 1e-5


@pytest.mark.slow
def test_two_sums_cost_the_epsilon_of_two():
    setting, noise = TwoCohorts(clients=5), distributed(1.0)
    twice = present(setting.play(Differencing(), noise, 0).epsilon)
    once = present(RoundsSetting(clients=5).play(Differencing(), noise, 0).epsilon)
    assert once < twice < 2.5 * once


@pytest.mark.slow
def test_differencing_reaches_its_reported_figures():
    clean = [figures(MASKED, seed, TwoCohorts())[1] for seed in range(3)]
    assert all(values["updates recovered"] == 1 for values in clean)
    assert np.mean([values["PSNR"] for values in clean]) > 60
    noised = [figures(distributed(0.1), seed, TwoCohorts())[1] for seed in range(3)]
    assert all(values["updates recovered"] == 0 for values in noised)
