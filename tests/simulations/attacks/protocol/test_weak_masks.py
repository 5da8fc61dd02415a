"""Masks of one scalar and repeated masks, against the library's."""

import numpy as np
import pytest
from narrowed import hits_of, view_of

from zerosum.simulations.attacks.harness.play import Cell, play
from zerosum.simulations.attacks.protocol.opening import masked_vector, secrets_of
from zerosum.simulations.attacks.protocol.weak_masks import ReusedMasks, ScalarMasks


@pytest.mark.slow
@pytest.mark.parametrize("attack", [ScalarMasks(3), ReusedMasks(3)], ids=lambda a: a.name)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_weak_masks_reveal_updates_and_real_masks_hide_them(attack, seed):
    weak, real = (play(0, Cell(attack, case), seed) for case in attack.cases("quick"))
    (metric,) = attack.metrics
    assert hits_of(weak.units, metric.name).all()
    assert not hits_of(real.units, metric.name).any()
    for outcome in (weak, real):
        assert outcome.status == "value"
        assert not hits_of(outcome.baseline, metric.name).any()


def test_a_scalar_mask_keeps_differences_of_coordinates():
    attack = ScalarMasks(1)
    case = next(iter(attack.cases("quick")))
    scene = case.setting.play(attack, case.protection, 0)
    (seen,) = view_of(scene).trials[0]
    offset = seen.opened().ring.reduce(masked_vector(seen) - scene.truth["updates"][0])
    assert (offset == offset[0]).all()
    assert offset[0] != 0


def test_equal_seeds_in_two_rounds_give_different_masks():
    """The real clients of the comparison do repeat their seed: session and request differ."""
    attack = ReusedMasks(1)
    _, real = attack.cases("quick")
    scene = real.setting.play(attack, real.protection, 0)
    first, later = view_of(scene).trials[0]
    assert first.opened().digest != later.opened().digest
    assert secrets_of(first)["self"] != secrets_of(later)["self"]
    change = masked_vector(later) - masked_vector(first)
    assert np.mean(change == scene.truth["changes"][0]) < 0.01
