"""Imprint: images from sums, and how clients notice a model for one of them."""

import numpy as np
import pytest
import torch
from narrowed import hits_of, view_of

from zerosum.client.training.flat_parameters import load_vector
from zerosum.simulations.attacks.harness.interface import Case, Defense, Guess
from zerosum.simulations.attacks.harness.play import Cell, play
from zerosum.simulations.attacks.inversion.gradient_cases import MASKED, distributed
from zerosum.simulations.attacks.inversion.imprint import Imprint
from zerosum.simulations.attacks.inversion.imprint_cases import UNBOUND, UNCONFIRMED
from zerosum.simulations.attacks.settings.rounds import RoundsSetting

pytestmark = pytest.mark.usefixtures("one_thread")

TEN = RoundsSetting(clients=10, records=8)
FEW = RoundsSetting(clients=3, records=2)


def outcome_of(attack, protection, seed=0, setting=FEW):
    return play(0, Cell(attack, Case(setting, protection)), seed)


def recovered(outcome):
    return hits_of(outcome.units, "images above 20 dB").mean()


def test_imprint_recovers_images_from_a_masked_sum():
    assert recovered(outcome_of(Imprint(bins=64, measurements=2), MASKED)) > 0.6


@pytest.mark.slow
def test_noise_in_the_sum_stops_an_imprint_that_ignores_it():
    outcome = outcome_of(Imprint(), distributed(1e-3), setting=TEN)
    assert recovered(outcome) < 0.05


def test_a_targeted_model_reads_one_client_without_request_binding():
    assert recovered(outcome_of(Imprint(bins=64, measurements=2, target=1), UNBOUND)) == 1


def test_the_request_hash_stops_a_targeted_model():
    outcome = outcome_of(Imprint(bins=64, measurements=2, target=1), MASKED)
    assert outcome.status == "stopped"
    assert "after confirm, 1 clients are left" in outcome.note


def test_the_request_hash_stops_a_targeted_model_without_confirm_too():
    outcome = outcome_of(Imprint(bins=64, measurements=2, target=1), UNCONFIRMED)
    assert outcome.status == "stopped"
    assert recovered(outcome) == 0


def test_a_blank_model_moves_only_its_last_biases():
    attack = Imprint(bins=64, measurements=2, target=1)
    view = view_of(FEW.play(attack, UNBOUND, 0))
    crafted = attack.craft(view, np.random.default_rng(0))
    model = view.build()

    def slopes(vector):
        load_vector(model, vector)
        model.zero_grad()
        outputs = model(torch.tensor(view.auxiliary_inputs[:50]))
        torch.nn.functional.cross_entropy(outputs, torch.zeros(50, dtype=torch.long)).backward()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

    assert slopes(crafted.blank)[:-10].abs().max() == 0
    assert slopes(crafted.vector)[:-10].abs().max() > 0


def test_images_that_share_every_bin_are_not_recovered():
    truth_alone = outcome_of(Imprint(bins=1, measurements=1), Defense("plain"))
    assert recovered(truth_alone) == 0


def test_images_without_a_guess_count_as_not_recovered():
    images = np.random.default_rng(0).random((3, 1, 1, 4, 4))
    for guessed in ([0, 1], [2, 1], [2, 0]):
        guess = Guess({"images": images[guessed].reshape(2, 16)})
        hits = hits_of(Imprint().score(guess, {"inputs": images}), "images above 20 dB")
        assert hits.tolist() == [place in guessed for place in range(3)]  # units are the truth's


def test_each_image_is_matched_to_a_guess_of_its_own():
    images = np.random.default_rng(0).random((2, 1, 1, 4, 4))
    twice = np.tile(images[:1].reshape(1, 16), (2, 1))
    units = Imprint().score(Guess({"images": twice}), {"inputs": images})
    assert hits_of(units, "images above 20 dB").tolist() == [True, False]


@pytest.mark.slow
def test_imprint_reaches_its_reported_figures():
    def mean(attack, protection):
        return np.mean([recovered(outcome_of(attack, protection, s, TEN)) for s in range(3)])

    for attack in (Imprint(measurements=1), Imprint()):
        assert mean(attack, MASKED) > 0.8
        assert mean(attack, distributed(1e-3)) < 0.05
    assert mean(Imprint(target=0), UNBOUND) > 0.8
    assert mean(Imprint(target=0), MASKED) == 0
