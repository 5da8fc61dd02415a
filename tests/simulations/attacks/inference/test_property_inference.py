"""Property inference: mirrored images from single updates and from sums."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
import torch
from view_parts import parts

from zerosum.client.training.fast import choose_trainer
from zerosum.secagg.randomness import numpy_generator
from zerosum.simulations.attacks.harness.interface import Case, Defense, ThreatModel
from zerosum.simulations.attacks.harness.metrics import area
from zerosum.simulations.attacks.harness.play import Cell
from zerosum.simulations.attacks.harness.play_all import play_all
from zerosum.simulations.attacks.harness.results import rows_of
from zerosum.simulations.attacks.harness.sealed_view import sealed
from zerosum.simulations.attacks.inference.mirrored_sums import (
    PropertySetting,
    client_records,
)
from zerosum.simulations.attacks.inference.property_inference import (
    CLIP,
    PropertyInference,
    area_of_counts,
)
from zerosum.simulations.attacks.settings.records import collection_of

pytestmark = pytest.mark.usefixtures("one_thread")

PLAIN = Defense("plain")
MASKED = Defense("masked", masking="double", confirm=False)
PAIRS = PropertySetting(cohort=2, sums=30, through_masks=4)


def local_noise(sigma):
    return Defense("local", clip=CLIP, noise="local", sigma=sigma)


class Stranger(PropertyInference):
    """Has no data of the population."""

    threat = ThreatModel("curious server")


def scene_of(protection=PLAIN, setting=PAIRS, attack=PropertyInference(), seed=0):  # noqa: B008
    return setting.play(attack, protection, seed)


@lru_cache(maxsize=4)
def pairs_scene(protection=PLAIN):
    return scene_of(protection)


def area_of(setting, protection, seeds=(0,)):
    cells = [Cell(PropertyInference(simulated=300), Case(setting, protection))]
    (pooled,) = (r for r in rows_of(cells, play_all(cells, seeds, 1)) if r.seed == "pooled")
    return pooled


@pytest.mark.slow
@pytest.mark.parametrize(("protection", "hidden"), [(PLAIN, False), (local_noise(1.0), True)])
def test_a_single_update_reveals_the_property_and_noise_hides_it(protection, hidden) -> None:
    row = area_of(PAIRS, protection)
    assert row.at_baseline == hidden
    assert (row.value > 0.9) != hidden


@pytest.mark.slow
def test_without_mirrored_images_the_attack_is_at_its_baseline() -> None:
    assert area_of(replace(PAIRS, mirrored=0.0), PLAIN).at_baseline


def test_the_view_of_masked_clients_is_their_sum() -> None:
    open_, masked = pairs_scene().view, pairs_scene(MASKED).view
    assert masked.contributions is None
    assert open_.contributions.shape == open_.totals.shape
    assert np.allclose(open_.totals, masked.totals, atol=1e-6)
    assert not np.allclose(open_.totals, open_.contributions, atol=1e-3)


def test_no_two_sums_share_clients() -> None:
    totals = pairs_scene(MASKED).view.totals
    assert len(np.unique(totals.round(9), axis=0)) == PAIRS.sums


def test_coins_are_fair_and_decide_which_images_are_mirrored() -> None:
    source = collection_of("digits").train
    draws = {
        coin: client_records(source, PropertySetting(records=10), coin, np.random.default_rng(1))
        for coin in (False, True)
    }
    same = (draws[False].inputs == draws[True].inputs).all(axis=(1, 2, 3))
    assert same.tolist() == [False] * 3 + [True] * 7
    assert np.array_equal(draws[True].inputs[:3, ..., ::-1], draws[False].inputs[:3])
    assert np.array_equal(draws[True].targets, draws[False].targets)
    truth = pairs_scene().truth["has_property"]
    assert 0.2 < truth.mean() < 0.8


@pytest.mark.slow
def test_the_view_holds_no_coins_and_auxiliary_data_only_where_known() -> None:
    scene = pairs_scene()
    for part in parts(sealed(scene.view)):
        if isinstance(part, np.ndarray):
            assert part.dtype != bool
    assert scene_of(attack=Stranger()).view.auxiliary_inputs is None


@pytest.mark.slow
def test_epsilon_is_of_one_contribution() -> None:
    few, many = (scene_of(local_noise(1.0), replace(PAIRS, sums=sums)).epsilon for sums in (2, 20))
    assert few == many < np.inf
    assert pairs_scene().epsilon == np.inf


def test_the_target_is_the_first_client_of_its_sum() -> None:
    """Its update follows from its own records, which are mirrored where its coin is set."""
    setting = replace(PAIRS, sums=8, mirrored=1.0)
    scene, train = scene_of(setting=setting), collection_of("digits").train.inputs
    coins = numpy_generator(0, "property").random((8, 2)) < 0.5
    task = setting._task(coins.ravel(), 0)
    trainer = choose_trainer(task, setting.training, seed=0)
    known, mirrored = (
        {image.tobytes() for image in images} for images in (train, train[..., ::-1].copy())
    )
    for number, has in enumerate(scene.truth["has_property"]):
        first = torch.tensor(task.inputs[2 * number]), torch.tensor(task.labels[2 * number])
        update = trainer.train(scene.view.vector, first, 0)
        assert np.allclose(scene.view.contributions[number], update, atol=1e-5)
        assert all(image.tobytes() in (mirrored if has else known) for image in first[0].numpy())
    second = torch.tensor(task.inputs[1]), torch.tensor(task.labels[1])
    update = trainer.train(scene.view.vector, second, 0)
    assert not np.allclose(scene.view.contributions[0], update, atol=1e-2)
    assert (coins[:, 0] != coins[:, 1]).any()


@pytest.mark.slow
def test_scores_are_in_the_order_of_the_sums() -> None:
    view = pairs_scene().view
    guess = PropertyInference(simulated=300).run(view, np.random.default_rng(0))
    moved = replace(view, contributions=view.contributions[::-1].copy())
    reversed_ = PropertyInference(simulated=300).run(moved, np.random.default_rng(0))
    assert np.allclose(guess["scores"][::-1], reversed_["scores"])


@pytest.mark.slow
def test_sums_without_masks_equal_masked_sums_bit_for_bit() -> None:
    setting = PropertySetting(cohort=3, sums=4, through_masks=4)
    through, past = (
        scene_of(MASKED, replace(setting, through_masks=count)).view for count in (4, 1)
    )
    assert np.array_equal(through.totals, past.totals)
    assert past.contributions is None
    noised = replace(MASKED, clip=CLIP, noise="distributed", sigma=1.0)
    through, past = (scene_of(noised, replace(setting, through_masks=n)).view for n in (4, 1))
    assert np.array_equal(through.totals, past.totals)
    assert through.noise_std > 0


def test_the_bound_of_counts_is_the_auc_of_simulated_counts() -> None:
    rng = np.random.default_rng(0)
    assert area_of_counts(1) == 1
    assert area_of_counts(2) == pytest.approx(0.875)  # 1 + Bernoulli against Bernoulli, by hand
    for cohort in (10, 50):
        coins = rng.random((20000, cohort)) < 0.5
        counts = coins.sum(axis=1)
        simulated = area(counts[coins[:, 0]], counts[~coins[:, 0]])
        assert area_of_counts(cohort) == pytest.approx(simulated, abs=0.012)


@pytest.mark.slow
def test_a_sum_of_ten_hides_most_of_the_property() -> None:
    single = area_of(PropertySetting(10), PLAIN, (0, 1, 2))
    summed = area_of(PropertySetting(10, sums=300), MASKED, (0, 1, 2))
    assert single.value > 0.95
    assert summed.low > 0.5
    assert summed.low < area_of_counts(10) < 0.68
    assert summed.high < single.low
