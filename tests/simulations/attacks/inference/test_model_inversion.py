"""Model inversion: images of a class from a released model."""

from dataclasses import replace

import numpy as np
import pytest
from narrowed import view_of

from zerosum.client.training.initial_model import initial_vector
from zerosum.simulations.attacks.harness.interface import Case, Defense, Guess
from zerosum.simulations.attacks.harness.play import Cell
from zerosum.simulations.attacks.harness.play_all import play_all
from zerosum.simulations.attacks.harness.results import rows_of
from zerosum.simulations.attacks.inference.model_inversion import (
    BEYOND,
    OTHERS,
    OWN,
    ModelInversion,
)
from zerosum.simulations.attacks.inference.trained import RecordPool, TrainedSetting, noise_defense

pytestmark = pytest.mark.usefixtures("one_thread")

PLAIN = Defense("plain")
SMALL = TrainedSetting(clients=5, records=40, rounds=4, task="digits", pool=1, references=4)
BLIND, KNOWING = ModelInversion(), ModelInversion(mean_known=True)


def pooled(attack, setting, protection, seeds=(0,)):
    cells = [Cell(attack, Case(setting, protection))]
    rows = rows_of(cells, play_all(cells, seeds, 1))
    return {row.metric: row for row in rows if row.seed == "pooled"}


def scored(attack, scene, images):
    units = attack.score(Guess({"images": images}), scene.truth)
    return {name: each.figure() for name, each in units.items()}


@pytest.mark.quick_one_in(2)
@pytest.mark.parametrize("attack", [BLIND, KNOWING], ids=lambda attack: attack.adaptive)
def test_images_resemble_their_class_beyond_the_mean_digit(attack) -> None:
    rows = pooled(attack, SMALL, PLAIN)
    assert rows[BEYOND.name].value > 0.5
    assert rows[BEYOND.name].baseline == 0
    assert rows[OWN.name].value > rows[OWN.name].baseline + 0.1
    assert rows[OWN.name].value > rows[OTHERS.name].value + 0.2
    assert not rows[BEYOND.name].at_baseline


@pytest.mark.slow
def test_a_known_mean_digit_improves_the_images() -> None:
    """It alone is close to every class' mean, and further than from grey the model leads."""
    blind, knowing = (pooled(each, SMALL, PLAIN)[OWN.name] for each in (BLIND, KNOWING))
    assert knowing.value > knowing.baseline + 0.1 > blind.value + 0.1
    assert not knowing.at_baseline


@pytest.mark.quick_one_in(2)
@pytest.mark.parametrize("attack", [BLIND, KNOWING], ids=lambda attack: attack.adaptive)
def test_an_untrained_model_leaves_the_baseline(attack) -> None:
    scene = SMALL.play(attack, PLAIN, 0)
    task = SMALL.task_of(RecordPool.drawn(SMALL, 0).candidates.take(np.arange(200)), 0)
    untrained = replace(view_of(scene), vector=initial_vector(task, 0))
    rng = np.random.default_rng(0)
    figures = scored(attack, scene, attack.run(untrained, rng)["images"])
    blind = scored(attack, scene, attack.baseline(untrained, rng)["images"])
    assert figures[BEYOND.name].low <= 0
    assert figures[OWN.name].low <= blind[OWN.name].value + 0.02


def test_strong_noise_leaves_nothing_of_the_classes() -> None:
    assert pooled(BLIND, SMALL, noise_defense("local", 3.0))[BEYOND.name].at_baseline


def test_one_image_for_all_classes_scores_zero_beyond_the_mean_digit() -> None:
    scene = SMALL.play(BLIND, PLAIN, 0)
    means = scene.truth["class_means"]
    same = scored(BLIND, scene, np.broadcast_to(means[3], means.shape))
    assert same[BEYOND.name].value == 0
    assert same[OWN.name].value > 0.3
    perfect = scored(BLIND, scene, means)
    assert perfect[BEYOND.name].value == pytest.approx(1)
    others = scored(BLIND, scene, np.roll(means, 1, axis=0))
    assert others[BEYOND.name].value < 0.2


def test_an_outsider_s_view_is_the_model_and_at_most_the_mean_digit() -> None:
    for attack in (BLIND, KNOWING):
        view = view_of(SMALL.play(attack, PLAIN, 0))
        assert view.candidate_inputs is None
        assert view.auxiliary_inputs is None
        assert view.references is None
        assert (view.mean_image is None) == (attack is BLIND)
    spare = RecordPool.drawn(SMALL, 0).spare.inputs
    assert np.array_equal(view.mean_image, spare.mean(axis=0))


def test_images_are_in_the_pixel_range_and_drawn_below_their_class() -> None:
    scene = SMALL.play(BLIND, PLAIN, 0)
    guess = BLIND.run(view_of(scene), np.random.default_rng(0))
    assert guess["images"].min() >= 0
    assert guess["images"].max() <= 1
    drawn = BLIND.pictures(guess, scene.truth)["reconstruction"]
    assert drawn.shape == (10, 2, 8, 8)
    assert np.array_equal(drawn[:, 0], scene.truth["class_means"][:, 0])


@pytest.mark.slow
def test_noise_of_a_tenth_of_the_clip_does_not_stop_it() -> None:
    for protection in (PLAIN, noise_defense("local", 0.1)):
        blind = pooled(BLIND, TrainedSetting(), protection, (0, 1, 2))
        assert blind[BEYOND.name].low > 0.5, protection.name
        assert blind[OWN.name].value > 0.35 > blind[OTHERS.name].value + 0.2, protection.name
        knowing = pooled(KNOWING, TrainedSetting(), protection, (0, 1, 2))
        assert knowing[OWN.name].low > knowing[OWN.name].baseline + 0.05, protection.name
