"""Coordinates cut to a range, beside a count by hand."""

import numpy as np
import pytest
from encoded_alone import encode_clipped

from zerosum.secagg.randomness import insecure_keystream
from zerosum.secagg.vectors.encoding import Encoding
from zerosum.secagg.vectors.rotation import random_signs, walsh_hadamard
from zerosum.secagg.vectors.saturation import Cut, measure

SEED = bytes(range(32))


def coins():
    return insecure_keystream(3, "rounding")


def by_hand(values, limit):
    """Count in Python's own floats, one value at a time."""
    sizes = [abs(float(value)) for value in values]
    return tuple(
        sum(size > fold * limit * (1 + 1e-6) for size in sizes) for fold in (1, 10, 100, 1000)
    )


def cut_of(code, vector, quick):
    """Return what either way of encoding says of a vector, and the integers."""
    found: list[Cut] = []
    encode = encode_clipped if quick else Encoding.encode
    return encode(code, vector, coins(), found.append), found


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("scale", [0.1, 5.0, 300.0, 1e5])
def test_cuts_are_counted_as_by_hand_and_the_integers_are_the_same(quick, scale):
    code = Encoding.from_bits(16, dimension=1001, clip=None, limit=8.0)
    vector = (scale * np.random.default_rng(1).normal(size=1001)).astype(np.float32)
    encoded, found = cut_of(code, vector, quick)
    untold = (encode_clipped if quick else Encoding.encode)(code, vector, coins())
    assert (encoded == untold).all()
    expected = by_hand(vector, 8.0)
    if not expected[0]:
        assert found == []
        return
    (cut,) = found
    assert cut.beyond == expected
    assert (cut.coordinates, cut.limit) == (1001, 8.0)
    assert cut.largest == pytest.approx(float(np.abs(vector).max()))
    assert (np.abs(encoded) == code.bound).sum() >= expected[0]


@pytest.mark.parametrize("quick", [True, False])
def test_a_rotated_vector_s_cuts_are_those_of_its_rotation(quick):
    code = Encoding.from_bits(16, dimension=100, clip=None, limit=2.0, rotation_seed=SEED)
    vector = np.zeros(100, np.float32)
    vector[:40] = 30.0
    padded = np.zeros(128)
    padded[:100] = vector
    rotated = walsh_hadamard(random_signs(SEED, 128) * padded)
    _, (cut,) = cut_of(code, vector, quick)
    assert cut.beyond == by_hand(rotated, 2.0) != by_hand(vector, 2.0)
    assert cut.coordinates == 128


@pytest.mark.parametrize("quick", [True, False])
def test_a_range_below_the_clip_cuts_what_the_clip_left(quick):
    code = Encoding.from_bits(16, dimension=4, clip=10.0, limit=0.5)
    vector = np.array([30.0, 40.0, 0.0, 1.0], np.float32)  # norm 50.01: a fifth of it is left
    left = vector * (10.0 / np.linalg.norm(vector.astype(float)))
    _, (cut,) = cut_of(code, vector if quick else left, quick)
    assert cut.beyond == by_hand(left, 0.5) == (2, 2, 0, 0)
    assert cut.largest == pytest.approx(left[1], rel=1e-6)


def test_a_clip_within_the_range_leaves_nothing_to_cut_but_of_sums_of_records():
    assert not Encoding.from_bits(16, dimension=9, clip=1.0).can_cut
    assert not Encoding.from_bits(16, dimension=9, clip=1.0, rule="l1").can_cut
    assert not Encoding.from_bits(16, dimension=9, clip=1.0, limit=3.0, rotation_seed=SEED).can_cut
    assert Encoding.from_bits(16, dimension=900, clip=1.0, rotation_seed=SEED).can_cut
    assert Encoding.from_bits(16, dimension=9, clip=1.0, limit=0.99).can_cut
    assert Encoding.from_bits(16, dimension=9, clip=1.0, limit=3.0, rule="records").can_cut
    assert Encoding.from_bits(16, dimension=9, clip=None, limit=3.0).can_cut


def test_a_coordinate_at_the_range_is_not_beyond_it():
    at = np.array([0.1, -0.1], np.float32)  # float32's tenth is more than 0.1
    assert float(at[0]) > 0.1
    assert measure(at, 0.1) is None
    assert measure(np.array([0.1001]), 0.1) is not None
    assert measure(np.zeros(0), 0.1) is None


def test_a_cut_says_how_many_and_how_far():
    cut = Cut((12, 1, 0, 0), 3000, 100.0, 8.0)
    assert str(cut) == "12 of 3,000 coordinates were cut to 8; the largest was 100"


def test_extreme_vectors_are_measured_without_overflow():
    cut = measure(np.array([3e38, -1e-40], np.float32), 1e-30)
    assert cut is not None
    assert cut.beyond == (1, 1, 1, 1)
    cut = measure(np.array([1.7e308, 0.0]), 1e30)
    assert cut is not None
    assert cut.beyond == (1, 1, 1, 1)
