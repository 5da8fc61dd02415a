"""What a class looks like, from a model."""

import numpy as np
import pytest

from zerosum.simulations.attacks.harness import Cell, play_all
from zerosum.simulations.attacks.inference.model_inversion import ModelInversion, correlations
from zerosum.simulations.attacks.inference.trained import TrainedSetting, protected
from zerosum.simulations.attacks.interface import Case, Protection
from zerosum.simulations.attacks.results import rows_of

pytestmark = pytest.mark.usefixtures("one_thread")

PLAIN = Protection("plain")
SMALL = TrainedSetting(clients=5, records=40, rounds=4, task="digits", pool=1, references=4)


def pooled(setting, protection, seeds=(0,)):
    cells = [Cell(ModelInversion(), Case(setting, protection))]
    (row,) = (r for r in rows_of(cells, play_all(cells, seeds, 1)) if r.seed == "pooled")
    return row


def test_images_resemble_their_own_class_more_than_others() -> None:
    row = pooled(SMALL, PLAIN)
    assert row.value > row.baseline + 0.2
    assert not row.at_baseline


def test_strong_noise_leaves_nothing_of_the_classes() -> None:
    assert pooled(SMALL, protected("local", 3.0)).at_baseline


def test_an_outsider_has_the_model_and_no_record() -> None:
    view = SMALL.play(ModelInversion(), PLAIN, 0).view
    assert view.candidate_inputs is None
    assert view.auxiliary_inputs is None
    assert view.references is None


def test_images_are_in_the_range_of_pixels_and_drawn_above_their_class() -> None:
    scene = SMALL.play(ModelInversion(), PLAIN, 0)
    guess = ModelInversion().run(scene.view, np.random.default_rng(0))
    assert guess["images"].min() >= 0
    assert guess["images"].max() <= 1
    drawn = ModelInversion().pictures(guess, scene.truth)["reconstruction"]
    assert drawn.shape == (10, 2, 8, 8)
    assert np.array_equal(drawn[:, 0], scene.truth["class_means"][:, 0])


def test_the_baseline_never_gives_a_class_its_own_image() -> None:
    view = SMALL.play(ModelInversion(), PLAIN, 0).view
    rng = np.random.default_rng(0)
    own = ModelInversion().run(view, rng)["images"][0]
    for images in ModelInversion().baseline(view, rng)["images"]:
        assert sorted(map(np.sum, images)) == sorted(map(np.sum, own))
        assert not any(np.array_equal(*pair) for pair in zip(images, own, strict=True))


def test_correlations_are_pearson_s_and_zero_of_a_flat_image() -> None:
    rng = np.random.default_rng(0)
    images, means = rng.random((3, 1, 4, 4)), rng.random((3, 1, 4, 4))
    images[2] = 0.5
    found = correlations(images, means)
    expected = np.corrcoef(images[0].ravel(), means[1].ravel())[0, 1]
    assert found[0, 1] == pytest.approx(expected)
    assert (found[2] == 0).all()


@pytest.mark.slow
def test_noise_of_a_tenth_of_the_clip_does_not_stop_it() -> None:
    for protection in (PLAIN, protected("local", 0.1)):
        row = pooled(TrainedSetting(), protection, (0, 1, 2))
        assert row.value > 0.35 > row.baseline + 0.1, protection.name
