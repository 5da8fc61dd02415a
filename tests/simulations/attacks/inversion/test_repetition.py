"""Averaging repeated answers: noise falls by the square root, and a budget ends it."""

import numpy as np
import pytest
from narrowed import hits_of, present, values_of, view_of
from scipy.stats import multivariate_normal

from zerosum.simulations.attacks.harness.interface import Case
from zerosum.simulations.attacks.harness.play import Cell, play
from zerosum.simulations.attacks.inversion.denoising import Images
from zerosum.simulations.attacks.inversion.pixel_levels import LEVELS, VALUES, Frequencies
from zerosum.simulations.attacks.inversion.repetition import (
    Repetition,
    local_noise,
    repeated_question,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def outcome_of(count, protection, seed=0):
    return play(0, Cell(Repetition(), Case(repeated_question(count), protection)), seed)


def right(outcome):
    return hits_of(outcome.units, "pixels recovered").mean()


def blind(outcome):
    return hits_of(outcome.baseline, "pixels recovered").mean()


def decibels(outcome):
    """Return the mean PSNR of the images, and of the baseline's."""
    return values_of(outcome.units, "PSNR").mean(), values_of(outcome.baseline, "PSNR").mean()


@pytest.mark.slow
def test_hardly_any_noise_hides_no_pixel():
    assert right(outcome_of(1, local_noise(1e-4))) == 1


def test_one_noised_answer_tells_the_digit_and_not_its_pixels():
    outcomes = [outcome_of(1, local_noise(0.1), seed) for seed in range(2)]
    assert np.mean([right(each) for each in outcomes]) < 0.65
    found, mean = np.mean([decibels(each) for each in outcomes], axis=0)
    assert found > mean + 2


@pytest.mark.slow
def test_noise_in_one_answer_that_is_as_large_as_it_tells_nothing():
    outcomes = [outcome_of(1, local_noise(3.0), seed) for seed in range(2)]
    found, mean = np.mean([decibels(each) for each in outcomes], axis=0)
    assert abs(found - mean) < 0.5


@pytest.mark.slow
def test_more_answers_tell_more():
    few, many = (right(outcome_of(count, local_noise(0.02))) for count in (1, 50))
    assert few < 0.7 < 0.95 < many


def test_a_budget_ends_the_answers():
    scenes = [
        repeated_question(count).play(Repetition(), protection, 0)
        for count, protection in ((8, local_noise(0.02, budget=5)), (5, local_noise(0.02)))
    ]
    assert view_of(scenes[0]).contributions.shape[0] == 5
    assert "0 clients are left" in scenes[0].view.stopped
    assert np.array_equal(view_of(scenes[0]).contributions, view_of(scenes[1]).contributions)
    assert scenes[0].epsilon == scenes[1].epsilon


def test_each_answer_costs_epsilon():
    one, five = (
        present(repeated_question(count).play(Repetition(), local_noise(1.0), 0).epsilon)
        for count in (1, 5)
    )
    assert five > 2 * one


@pytest.mark.slow
def test_what_repetition_must_show():
    assert np.mean([right(outcome_of(2000, local_noise(0.1), seed)) for seed in range(3)]) > 0.98
    ended = [outcome_of(2000, local_noise(0.1, budget=20), seed) for seed in range(3)]
    assert np.mean([right(each) for each in ended]) < 0.7
    found, mean = np.mean([decibels(each) for each in ended], axis=0)
    assert found > mean + 8
    quiet = [outcome_of(2000, local_noise(10.0, budget=20), seed) for seed in range(3)]
    found, mean = np.mean([decibels(each) for each in quiet], axis=0)
    assert abs(found - mean) < 0.5
    assert abs(np.mean([right(each) - blind(each) for each in quiet])) < 0.05


DRAWN = np.random.default_rng(0).integers(0, LEVELS + 1, size=(400, 2))


def test_level_posterior_is_that_of_bayes_rule_for_independent_pixels():
    images = np.stack([DRAWN[:, 0] % 2 * LEVELS, DRAWN[:, 1]], axis=1) / LEVELS
    known = Frequencies.of(images)
    like = Images(images.mean(0), images.var(0), np.eye(2))
    seen, std = np.array([0.8, 0.31]), 0.2
    found = known.given(like, seen, std)
    expected = known.chances * np.exp(-((VALUES[:, None] - seen) ** 2) / (2 * std**2))
    assert np.allclose(found, expected / expected.sum(0), atol=1e-3)


def test_a_pixel_without_noise_overrides_its_frequencies():
    known = Frequencies.of(np.zeros((50, 2)))
    like = Images(np.zeros(2), np.ones(2), np.eye(2))
    assert (known.given(like, np.array([0.5, 0.25]), 1e-3).argmax(0) == [8, 4]).all()


def test_evidence_of_an_image_is_the_ratio_of_gaussian_densities():
    rng = np.random.default_rng(1)
    like = Images.like(rng.normal(0.5, 0.2, size=(30, 3)))
    slopes, parts, std = rng.normal(size=(2, 4)), np.array([0.7, -0.4]), 0.3
    prior = like.directions @ np.diag(like.variances) @ like.directions.T
    mean = np.outer(parts, np.append(like.mean, 1.0)).ravel()
    wide = np.zeros((4, 4))
    wide[:3, :3] = prior
    shared = np.kron(np.outer(parts, parts), wide) + std**2 * np.eye(8)
    ratio = multivariate_normal.logpdf(slopes.ravel(), mean, shared)
    ratio -= multivariate_normal.logpdf(slopes.ravel(), np.zeros(8), std**2 * np.eye(8))
    assert like.evidence(slopes, parts, std) == pytest.approx(ratio)


def test_classes_differ_in_their_means_and_share_their_variances():
    rng = np.random.default_rng(2)
    labels = np.repeat([0, 1], 200)
    images = labels[:, None] * 5.0 + rng.normal(size=(400, 2)) * [1.0, 0.1]
    first, second, absent = Images.of_classes(images, labels, 3)
    assert np.allclose(second.mean - first.mean, 5, atol=0.3)
    assert np.allclose(np.sort(first.variances), [0.01, 1], rtol=0.2)
    assert np.allclose(absent.mean, images.mean(0))
