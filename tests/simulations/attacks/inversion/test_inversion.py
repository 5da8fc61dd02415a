"""Gradient inversion: matching, the first layer and likelihood, with and without noise."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from narrowed import values_of
from view_parts import parts

from zerosum.client.spec import ModelSpec
from zerosum.simulations.attacks.harness.interface import Defense, Guess
from zerosum.simulations.attacks.harness.sealed_view import sealed
from zerosum.simulations.attacks.inversion.denoising import Images
from zerosum.simulations.attacks.inversion.first_layer import FirstLayer, slopes_of
from zerosum.simulations.attacks.inversion.gradient_cases import (
    CLIPPED,
    MASKED,
    PLAIN,
    distributed,
    local,
)
from zerosum.simulations.attacks.inversion.gradient_matching import GradientMatching
from zerosum.simulations.attacks.inversion.likeliest_image import LikeliestImage
from zerosum.simulations.attacks.inversion.local_updates import labels_of, updates_of
from zerosum.simulations.attacks.inversion.reconstruction import matched, observed, rounding_std
from zerosum.simulations.attacks.inversion.separation import Corners, row_space
from zerosum.simulations.attacks.settings.rounds import RoundsSetting

pytestmark = pytest.mark.usefixtures("one_thread")

SEEDS = (0, 1, 2)


def scene_of(protection, seed=0, **setting):
    return RoundsSetting(**setting).play(FirstLayer(), protection, seed)


def decibels(attack, protection, seeds=(0,), **setting):
    """Return the mean PSNR of an attack and of its baseline, over seeds."""
    means = []
    for seed in seeds:
        scene = scene_of(protection, seed, **setting)
        for guess in (attack.run, attack.baseline):
            units = attack.score(guess(scene.view, np.random.default_rng(seed)), scene.truth)
            means.append(values_of(units, "PSNR").mean())
    return np.mean(means[::2]), np.mean(means[1::2])


@pytest.mark.parametrize("model", [ModelSpec(), ModelSpec(name="cnn")], ids=["mlp", "cnn"])
def test_unrolled_updates_are_what_clients_send(model):
    scene = scene_of(CLIPPED, steps=3, model=model)
    images = torch.tensor(scene.truth["inputs"][:, 0]).double()
    targets = torch.nn.functional.one_hot(torch.tensor(scene.truth["labels"][:, 0]), 10).double()
    sent = scene.view.contributions[0]

    def error(steps, clip):
        return np.abs(updates_of(scene.view, steps, clip)(images, targets).numpy() - sent).max()

    assert error(3, 0.1) < 1e-6
    assert min(error(1, 0.1), error(2, 0.1), error(3, None)) > 1e-4


def test_labels_of_single_updates_are_right():
    scene = scene_of(PLAIN, clients=20)
    labels = [labels_of(scene.view, update, 1, 1)[0] for update in scene.view.contributions[0]]
    assert labels == scene.truth["labels"][:, 0].tolist()


def test_labels_of_a_sum_are_right_whatever_their_order():
    scene = scene_of(MASKED, clients=10)
    labels = labels_of(scene.view, scene.view.totals[0], 10, 1)
    true = scene.truth["labels"][:, 0]
    wrong = np.abs(np.bincount(labels, minlength=10) - np.bincount(true, minlength=10)).sum()
    assert wrong <= 2  # one label in ten


@pytest.mark.parametrize(
    "protection", [PLAIN, CLIPPED, local(1e-2)], ids=lambda defense: defense.name
)
def test_observed_noise_has_the_expected_deviation(protection):
    scene = scene_of(protection)
    images = torch.tensor(scene.truth["inputs"][:, 0]).double()
    targets = torch.nn.functional.one_hot(torch.tensor(scene.truth["labels"][:, 0]), 10).double()
    exact = updates_of(scene.view, 1, protection.clip)(images, targets).numpy()
    seen = observed(scene.view)
    errors = np.stack([one.vector for one in seen]) - exact
    moved = np.abs(exact) > 1e-5  # coordinates that do not move are not rounded
    assert np.std(errors[moved]) == pytest.approx(seen[0].noise_std, rel=0.05)
    assert seen[0].noise_std >= rounding_std(scene.view)


def test_matching_recovers_the_image_of_one_client():
    attacked, blind = decibels(GradientMatching(), PLAIN)
    assert attacked > 40 > 15 > blind


@pytest.mark.slow
def test_matching_needs_unrolled_local_steps():
    aware, naive = GradientMatching(), GradientMatching(aware=False)
    assert decibels(aware, PLAIN, seeds=(1,), steps=5)[0] > 40
    assert decibels(naive, PLAIN, seeds=(1,), steps=5)[0] < 25


@pytest.mark.slow
def test_the_first_layer_reveals_ten_images_of_a_masked_sum():
    assert decibels(FirstLayer(), MASKED, clients=10)[0] > 40


@pytest.mark.slow
def test_noise_in_the_sum_hides_ten_images():
    assert decibels(FirstLayer(), distributed(1e-2), clients=10)[0] < 17


def test_local_noise_of_the_clip_hides_the_image():
    attacked, blind = decibels(FirstLayer(), local(1.0))
    assert attacked < blind + 1


@pytest.mark.slow
def test_likelihood_reveals_the_class_under_noise_that_stops_matching():
    noise, seeds = local(0.1), (0, 1, 2)
    matched_best, blind = decibels(FirstLayer(), noise, seeds)
    assert matched_best < blind + 1
    assert decibels(LikeliestImage(), noise, seeds)[0] > blind + 1.5


@pytest.mark.slow
def test_permuting_clients_permutes_the_guesses():
    view = scene_of(local(1e-3), clients=3).view
    order = np.array([2, 0, 1])
    permuted = replace(view, contributions=view.contributions[:, order])
    straight, turned = (
        FirstLayer(turns=1).run(v, np.random.default_rng(0))["images"] for v in (view, permuted)
    )
    assert np.array_equal(straight[order], turned)


def test_guesses_at_a_sum_are_matched_and_guesses_at_clients_are_not():
    images = np.random.default_rng(0).random((3, 1, 4, 4))
    truth = {"inputs": images[:, None]}
    turned = images[[1, 2, 0]]
    unnamed = matched(Guess({"images": turned, "named": np.array(False)}), truth)
    named = matched(Guess({"images": turned, "named": np.array(True)}), truth)
    assert np.array_equal(*unnamed)
    assert not np.array_equal(*named)


def test_the_view_of_a_masked_sum_holds_no_image_and_no_update():
    scene = scene_of(MASKED, clients=3)
    plain = scene_of(PLAIN, clients=3).view
    secrets = [*scene.truth["inputs"].reshape(3, -1), *plain.contributions[0]]
    arrays = [part for part in parts(sealed(scene.view)) if isinstance(part, np.ndarray)]
    rows = [row for array in arrays if array.ndim for row in array.reshape(len(array), -1)]
    for secret in secrets:
        assert not any(len(row) == len(secret) and np.allclose(row, secret) for row in rows)
    rows = list(plain.contributions[0])  # the control: these are found
    assert any(len(row) == len(secrets[-1]) and np.allclose(row, secrets[-1]) for row in rows)


def mixtures(images, width=20):
    parts_in = np.random.default_rng(1).normal(size=(width, len(images)))
    return parts_in @ np.concatenate([images, np.ones((len(images), 1))], axis=1)


def corners_of(images):
    rows = row_space(mixtures(images), len(images), 1e-12)
    return Corners(rows, 1e-9).images(np.random.default_rng(2))


def test_corners_are_the_images_if_each_has_a_pixel_of_its_own():
    images = np.random.default_rng(0).random((4, 30)) * (np.arange(30) % 4 == np.arange(4)[:, None])
    corners = corners_of(images)
    nearest = [np.abs(corners - image).max(axis=1).min() for image in images]
    assert max(nearest) < 1e-6


def test_corners_are_not_the_images_if_none_has_a_pixel_of_its_own():
    corners = corners_of(images := 0.3 + 0.4 * np.random.default_rng(0).random((4, 30)))
    assert max(np.abs(corners - image).max(axis=1).min() for image in images) > 0.1


def test_noise_lowers_the_rank_of_the_row_space():
    slopes = mixtures(np.random.default_rng(0).random((4, 30)))
    noise = np.random.default_rng(3).normal(size=slopes.shape)
    ranks = [len(row_space(slopes + s * noise, 4, s)) for s in (1e-6, 100.0)]
    assert ranks == [4, 1]


def test_the_posterior_mean_is_that_of_bayes_rule():
    rng = np.random.default_rng(0)
    like = Images.like(0.5 + 0.01 * rng.normal(size=(50, 3)) @ rng.normal(size=(3, 3)))
    parts_in, std = rng.normal(size=(2, 5)), 0.05
    slopes = parts_in.T @ np.full((2, 4), 0.5) + std * rng.normal(size=(5, 4))
    prior = like.directions @ np.diag(like.variances) @ like.directions.T
    # Two images in one vector of six, and every slope an equation in it.
    equations = np.kron(parts_in.T, np.eye(3))
    precision = equations.T @ equations / std**2 + np.kron(np.eye(2), np.linalg.inv(prior))
    rest = (slopes[:, :3] - parts_in.sum(0)[:, None] * like.mean).ravel()
    expected = np.linalg.solve(precision, equations.T @ rest / std**2).reshape(2, 3) + like.mean
    assert np.allclose(like.posterior(slopes, parts_in, std), expected, atol=1e-9)


def test_freedom_is_the_trace_of_the_influence_matrix():
    rng = np.random.default_rng(4)
    like = Images.like(0.5 + 0.01 * rng.normal(size=(50, 3)) @ rng.normal(size=(3, 3)))
    parts_in, std = rng.normal(size=(2, 5)), 0.05
    prior = like.directions @ np.diag(like.variances) @ like.directions.T
    equations = np.kron(parts_in.T, np.eye(3))
    precision = equations.T @ equations / std**2 + np.kron(np.eye(2), np.linalg.inv(prior))
    influence = equations @ np.linalg.solve(precision, equations.T) / std**2
    assert like.freedom(parts_in, std) == pytest.approx(np.trace(influence))


def test_a_convolutional_first_layer_is_refused():
    view = scene_of(PLAIN, model=ModelSpec(name="cnn")).view
    with pytest.raises(ValueError, match="its first layer sees patches"):
        slopes_of(view, view.totals[0])


@pytest.mark.slow
def test_matching_reaches_its_reported_figures():
    one = decibels(GradientMatching(), PLAIN, SEEDS)
    unrolled = decibels(GradientMatching(), PLAIN, SEEDS, steps=5)
    assert one[0] > 40
    assert unrolled[0] > 40
    naive, blind = decibels(GradientMatching(aware=False), MASKED, SEEDS, clients=50)
    assert naive < blind


@pytest.mark.slow
def test_cosine_matching_reaches_its_reported_figures():
    attack = GradientMatching(objective="cosine")
    assert decibels(attack, PLAIN, SEEDS)[0] > 35
    clipped = Defense("clip, five steps", clip=0.1)
    assert decibels(attack, clipped, SEEDS, steps=5)[0] > 35
    attacked, blind = decibels(attack, local(0.1), SEEDS)
    assert attacked < blind + 0.5
