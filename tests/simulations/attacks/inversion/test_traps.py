"""Traps: rows that single images move, found by likelihood and read out of noise."""

import numpy as np
import pytest
from narrowed import hits_of
from scipy.stats import multivariate_normal

from zerosum.simulations.attacks.harness.interface import Case
from zerosum.simulations.attacks.harness.play import Cell, play
from zerosum.simulations.attacks.inversion.denoising import Images
from zerosum.simulations.attacks.inversion.gradient_cases import MASKED, distributed
from zerosum.simulations.attacks.inversion.imprint import Imprint
from zerosum.simulations.attacks.inversion.row_contents import SPREAD, Rows, parts_in
from zerosum.simulations.attacks.inversion.traps import Traps
from zerosum.simulations.attacks.settings.rounds import RoundsSetting

pytestmark = pytest.mark.usefixtures("one_thread")

TEN = RoundsSetting(clients=10, records=8)
FEW = RoundsSetting(clients=3, records=2)
SMALL = Traps(rows=128, records=2)


def figures(attack, protection, seeds=(0,), setting=FEW):
    """Return the fractions of images that attack and baseline recover, over seeds."""
    outcomes = [play(0, Cell(attack, Case(setting, protection)), seed) for seed in seeds]
    name = "images above 20 dB"
    recovered = np.mean([hits_of(outcome.units, name) for outcome in outcomes])
    return recovered, np.mean([hits_of(outcome.baseline, name) for outcome in outcomes])


@pytest.mark.slow
def test_traps_recover_images_under_noise_that_stops_an_imprint():
    noise = distributed(3e-3)
    assert figures(SMALL, noise)[0] > 0.6
    assert figures(Imprint(bins=128, measurements=1), noise)[0] == 0


@pytest.mark.slow
def test_overwhelming_noise_leaves_the_blind_guess():
    recovered, blind = figures(SMALL, distributed(1.0))
    assert abs(recovered - blind) < 0.1


@pytest.mark.slow
def test_images_without_a_guess_are_not_recovered():
    fewer = Traps(rows=128, records=1)
    assert figures(fewer, MASKED)[0] <= 0.5


IMAGES = 0.5 + 0.2 * np.random.default_rng(0).normal(size=(50, 3)) @ np.diag([1.0, 0.5, 0.2])
LIKE = Images.like(IMAGES)


def rows_of(values, part=0.4, std=0.1, held=0.4):
    values = np.concatenate([values[:, :-1] @ LIKE.directions, values[:, -1:]], axis=1)
    return Rows(values, LIKE.mean @ LIKE.directions, LIKE.variances, std, part, held)


@pytest.mark.parametrize("signs", [(1,), (1, 1), (1, -1)])
@pytest.mark.parametrize("count", [1, 3])
def test_evidence_is_the_ratio_of_gaussian_densities(signs, count):
    values = 0.4 * np.random.default_rng(1).normal(0.5, 0.3, size=(count, 4))
    rows, level = rows_of(values), sum(signs)
    total = rows.values.sum(0, keepdims=True)
    part = rows.parts(total, np.array([count]), level)[0]
    # All rows in one vector: they share the images, and each has noise of its own.
    shared = np.ones((count, count))
    noise = rows.std**2 * np.eye(3 * count)
    image = np.kron(shared, np.diag(len(signs) * part**2 * LIKE.variances))
    seen = rows.values[:, :-1].ravel()
    mean = np.tile(level * part * rows.mean, count)
    pixels = [
        multivariate_normal.logpdf(seen, m, c)
        for m, c in ((mean, image + noise), (0 * mean, noise))
    ]
    spread = len(signs) * (SPREAD * rows.part) ** 2 * shared
    quiet = rows.std**2 * np.eye(count)
    centre = np.full(count, level * rows.part)
    biases = [
        multivariate_normal.logpdf(rows.values[:, -1], m, c)
        for m, c in ((centre, spread + quiet), (0 * centre, quiet))
    ]
    expected = pixels[0] - pixels[1] + biases[0] - biases[1]
    assert rows.evidence(total, np.array([count]), signs)[0] == pytest.approx(expected)


def test_the_likeliest_part_weighs_the_bias_against_its_prior():
    rows = rows_of(np.zeros((1, 4)))
    seen = np.array([[0.0, 0.0, 0.0, 0.5]])
    tight, wide = 1 / 0.1**2, 1 / (SPREAD * 0.4) ** 2
    assert rows.parts(seen, np.array([1]))[0] == pytest.approx(
        (0.5 * tight + 0.4 * wide) / (tight + wide)
    )


def test_rows_of_one_image_are_merged_and_rows_of_two_left_out():
    rng = np.random.default_rng(2)
    images = rng.random((3, 40)) * (rng.random((3, 40)) < 0.5)
    like = Images.like(rng.random((200, 40)) * (rng.random((200, 40)) < 0.5))
    true = np.zeros((3, 12))
    true[0, :3], true[1, 3:5], true[2, 5] = 1.0, -1.0, 1.0
    true[0, 6] = true[1, 6] = true[0, 7] = true[2, 7] = 1.0  # two in one row
    slopes = true.T @ np.concatenate([images, np.ones((3, 1))], axis=1)
    slopes += 0.05 * rng.normal(size=slopes.shape)
    parts = parts_in(Rows.of(slopes, like, 0.05, held=0.7), images=3)
    groups = {tuple(np.flatnonzero(part)) for part in parts}
    assert groups == {(0, 1, 2), (3, 4), (5,)}
    assert all(abs(abs(part[part != 0]) - 1).max() < 0.2 for part in parts)
    assert {np.sign(part[3]) for part in parts} == {0.0, -1.0}


def test_rows_of_noise_hold_no_image():
    rng = np.random.default_rng(3)
    noise = rng.normal(size=(200, IMAGES.shape[1] + 1))
    assert len(parts_in(Rows.of(noise, LIKE, 1.0, held=0.4), images=80)) < 10


@pytest.mark.slow
def test_traps_reach_their_reported_figures():
    seeds, noise = (0, 1, 2), distributed(1e-3)
    for bins in (Imprint(), Imprint(measurements=1), Imprint(bins=96, measurements=1)):
        assert figures(bins, noise, seeds, TEN)[0] < 0.05
    assert figures(Traps(), noise, seeds, TEN)[0] > 0.8
    clean, bins = (figures(attack, MASKED, seeds, TEN)[0] for attack in (Traps(), Imprint()))
    assert clean > bins - 0.1
    recovered, blind = figures(Traps(), distributed(0.1), seeds, TEN)
    assert recovered > blind - 0.03
