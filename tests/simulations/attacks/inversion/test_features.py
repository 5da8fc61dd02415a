"""Feature inversion: images from the last layer's input of a convolutional model."""

import numpy as np
import pytest
import torch
from narrowed import values_of, view_of

from zerosum.client.spec import ModelSpec
from zerosum.client.training.flat_parameters import load_vector
from zerosum.simulations.attacks.harness.interface import Case, Defense
from zerosum.simulations.attacks.harness.play import Cell, play
from zerosum.simulations.attacks.inversion.features import FeatureInversion, inputs_of
from zerosum.simulations.attacks.inversion.gradient_cases import MASKED, PLAIN, local
from zerosum.simulations.attacks.inversion.reconstruction import observed
from zerosum.simulations.attacks.settings.rounds import RoundsSetting

CNN = RoundsSetting(clients=2, model=ModelSpec(name="cnn"))

pytestmark = pytest.mark.usefixtures("one_thread")


def played(protection: Defense, seed: int, attack: FeatureInversion | None = None):
    return play(0, Cell(attack or FeatureInversion(), Case(CNN, protection)), seed)


def test_the_last_layer_s_input_is_the_image_s_features():
    scene = CNN.play(FeatureInversion(), PLAIN, 0)
    view = view_of(scene)
    model = view.build().double()
    load_vector(model, view.vectors[0])
    *inner, last = model.children()
    for image, seen in zip(scene.truth["inputs"], observed(view), strict=True):
        with torch.no_grad():
            features = torch.nn.Sequential(*inner)(torch.tensor(image).double())[0].numpy()
        inputs, noise_std = inputs_of(last, seen)
        assert np.abs(inputs - features).max() < 1e-3 * np.abs(features).max()
        assert np.abs(inputs - features).std() < 3 * noise_std  # of rounding alone


def test_noise_that_hides_the_features_leaves_the_blind_guess():
    outcome = played(local(0.1), 0)
    assert np.array_equal(values_of(outcome.units, "PSNR"), values_of(outcome.baseline, "PSNR"))


def test_a_masked_sum_lacks_the_contributions_that_features_need():
    outcome = played(MASKED, 0, FeatureInversion(iterations=1, tries=1))
    assert outcome.status == "not applicable"
    assert "contributions" in outcome.note


@pytest.mark.slow
def test_features_reveal_images_until_noise_hides_them():
    plain, noised = (
        np.concatenate([values_of(played(protection, seed).units, "PSNR") for seed in range(3)])
        for protection in (PLAIN, local(0.01))
    )
    assert plain.min() > 20
    assert plain.mean() > 40
    assert noised.mean() < 20
