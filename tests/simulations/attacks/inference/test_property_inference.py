"""Whether a client's images are mirrored, from its update and from sums."""

from dataclasses import replace

import numpy as np
import pytest

from zerosum.simulations.attacks.harness import Cell, play_all
from zerosum.simulations.attacks.inference.properties import TARGET, PropertySetting, client_records
from zerosum.simulations.attacks.inference.property_inference import CLIP, PropertyInference
from zerosum.simulations.attacks.interface import Case, Protection, ThreatModel
from zerosum.simulations.attacks.results import rows_of
from zerosum.simulations.attacks.rounds import collection_of
from zerosum.simulations.attacks.sealing import parts, sealed

pytestmark = pytest.mark.usefixtures("one_thread")

PLAIN = Protection("plain")
MASKED = Protection("masked", masking="double", confirm=False)
PAIRS = PropertySetting(cohort=2, sums=30)


class Stranger(PropertyInference):
    """Knows no data of the population."""

    threat = ThreatModel("curious server")


def scene_of(protection=PLAIN, setting=PAIRS, attack=PropertyInference(), seed=0):  # noqa: B008
    return setting.play(attack, protection, seed)


def area_of(setting, protection, seeds=(0,)):
    cells = [Cell(PropertyInference(simulated=600), Case(setting, protection))]
    (pooled,) = (r for r in rows_of(cells, play_all(cells, seeds, 1)) if r.seed == "pooled")
    return pooled


def local_noise(sigma):
    return Protection("local", clip=CLIP, noise="local", sigma=sigma)


def test_a_single_update_tells_and_noise_hides_it() -> None:
    assert area_of(PAIRS, PLAIN).value > 0.9
    assert area_of(PAIRS, local_noise(1.0)).at_baseline


def test_without_mirrored_images_there_is_nothing_to_tell() -> None:
    assert area_of(replace(PAIRS, mirrored=0.0), PLAIN).at_baseline


def test_a_masked_sum_is_what_a_server_sees_of_masked_clients() -> None:
    open_, masked = scene_of(PLAIN).view, scene_of(MASKED).view
    assert masked.contributions is None
    assert open_.contributions.shape == open_.totals.shape
    assert np.allclose(open_.totals, masked.totals, atol=1e-6)
    assert not np.allclose(open_.totals, open_.contributions, atol=1e-3)


def test_each_sum_is_of_other_clients() -> None:
    totals = scene_of(MASKED).view.totals
    assert len(np.unique(totals.round(9), axis=0)) == PAIRS.sums


def test_coins_are_fair_and_mirror_the_images_that_they_say() -> None:
    source = collection_of("digits").train
    draws = {
        coin: client_records(source, PropertySetting(records=10), coin, np.random.default_rng(1))
        for coin in (False, True)
    }
    same = (draws[False].inputs == draws[True].inputs).all(axis=(1, 2, 3))
    assert same.tolist() == [False] * 3 + [True] * 7
    assert np.array_equal(draws[True].inputs[:3, ..., ::-1], draws[False].inputs[:3])
    assert np.array_equal(draws[True].targets, draws[False].targets)
    truth = scene_of().truth["has_property"]
    assert 0.2 < truth.mean() < 0.8


def test_a_view_holds_no_coins_and_auxiliary_data_only_where_known() -> None:
    scene = scene_of()
    for part in parts(sealed(scene.view)):
        if isinstance(part, np.ndarray):
            assert part.dtype != bool
    assert scene_of(attack=Stranger()).view.auxiliary_inputs is None


def test_epsilon_is_of_one_contribution() -> None:
    few, many = (scene_of(local_noise(1.0), replace(PAIRS, sums=sums)).epsilon for sums in (2, 20))
    assert few == many < np.inf
    assert scene_of().epsilon == np.inf


def test_the_client_that_is_asked_about_is_the_first_of_its_sum() -> None:
    assert TARGET == 0
    view = scene_of(PLAIN).view
    guess = PropertyInference(simulated=600).run(view, np.random.default_rng(0))
    moved = replace(view, contributions=view.contributions[::-1].copy())
    reversed_ = PropertyInference(simulated=600).run(moved, np.random.default_rng(0))
    assert np.allclose(guess["scores"][::-1], reversed_["scores"])


@pytest.mark.slow
def test_a_sum_of_ten_hides_much_and_not_all() -> None:
    single = area_of(PropertySetting(10), PLAIN, (0, 1, 2))
    summed = area_of(PropertySetting(10), MASKED, (0, 1, 2))
    assert single.value > 0.95
    assert 0.55 < summed.value < 0.75
    assert summed.high < single.low
