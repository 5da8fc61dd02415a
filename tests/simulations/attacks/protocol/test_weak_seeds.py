"""Search of short seeds, and of the library's 256 bits."""

import base64

import numpy as np
import pytest
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
from narrowed import hits_of, present, view_of

from zerosum.secagg.crypto.keys import Hkdf, self_mask
from zerosum.secagg.crypto.prg import accumulate
from zerosum.simulations.attacks.harness.play import Cell, play
from zerosum.simulations.attacks.protocol.opening import secrets_of, without_pair_masks
from zerosum.simulations.attacks.protocol.seed_search import (
    FLOWER_RANGE,
    by_commitment,
    by_plaintext,
    flower_words,
)
from zerosum.simulations.attacks.protocol.sessions import REQUEST
from zerosum.simulations.attacks.protocol.weak_seeds import SeedSearch

BITS = 12


def scene(attack, number=0, seed=0):
    case = list(attack.cases("quick"))[number]
    return case.setting.play(attack, case.protection, seed)


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize("by", ["plaintext", "commitment"])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_search_finds_a_short_seed_and_not_the_library_s(by, seed):
    attack = SeedSearch(by, BITS)
    short, full = (play(0, Cell(attack, case), seed) for case in attack.cases("quick"))
    assert hits_of(short.units, "update recovered").tolist() == [True]
    assert hits_of(full.units, "update recovered").tolist() == [False]
    assert f"{1 << BITS:,} seeds tried, none fits" in full.note
    for outcome in (short, full):
        assert not hits_of(outcome.baseline, "update recovered").any()
        assert "28 bits" in outcome.note
        assert "32 bits" in outcome.note


def test_a_search_of_too_few_bits_finds_nothing():
    attack = SeedSearch(bits=BITS)
    (seen,) = view_of(scene(attack)).trials[0]
    vector = without_pair_masks(seen, secrets_of(seen)["mask"])
    whole = [how(seen, vector, BITS).seed for how in (by_plaintext, by_commitment)]
    assert whole[0] == whole[1]
    needed = int.from_bytes(present(whole[0]), "little").bit_length()
    for how in (by_plaintext, by_commitment):
        assert how(seen, vector, needed).seed == whole[0]
        assert how(seen, vector, needed - 1).seed is None


def test_a_late_contribution_keeps_its_self_mask_alone():
    attack = SeedSearch(bits=BITS)
    played = scene(attack)
    (seen,) = view_of(played).trials[0]
    vector = without_pair_masks(seen, secrets_of(seen)["mask"])
    session, seed = seen.opened(), present(by_commitment(seen, vector, BITS).seed)
    masked = np.array(played.truth["updates"][0])
    hkdf = Hkdf(session.digest)
    own = self_mask(hkdf, seed, REQUEST, seen.victim)
    accumulate(masked, [own], version=session.version)
    np.testing.assert_array_equal(session.ring.reduce(masked), vector)


def test_flower_s_masks_have_32_bits_and_28_for_a_pair():
    rng, state = np.random.default_rng(0), np.random.RandomState(0)
    for length in (32, 44):
        key = rng.bytes(32)
        seed = key if length == 32 else base64.urlsafe_b64encode(key)
        folded = int(np.bitwise_xor.reduce(np.frombuffer(seed, "<u4")))
        (expected,) = pseudo_rand_gen(seed, FLOWER_RANGE, [(5,)])
        np.testing.assert_array_equal(flower_words(state, folded, 5), expected)
        if length == 44:
            assert folded & 0x80808080 == 0


@pytest.mark.slow
@pytest.mark.parametrize("by", ["plaintext", "commitment"])
def test_the_search_finds_22_bits_for_three_seeds(by):
    attack = SeedSearch(by)
    short, full = attack.cases("quick")
    assert short.protection.seed_bits == 22
    for seed in range(3):
        outcome = play(0, Cell(attack, short), seed)
        assert hits_of(outcome.units, "update recovered").all()
        assert "28 bits" in outcome.note
    assert not hits_of(play(0, Cell(attack, full), 0).units, "update recovered").any()
