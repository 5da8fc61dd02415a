"""Rounding in one pass: the law of the careful way, and a step aside where it does not fit."""

import math

import numpy as np
import pytest
from encoded_alone import encode_clipped
from hypothesis import given, settings
from hypothesis import strategies as st

from zerosum.secagg.randomness import Keystream, insecure_keystream
from zerosum.secagg.vectors.encoding import Encoding
from zerosum.secagg.vectors.fast_rounding import finite_norm, rounded, squared_norm
from zerosum.secagg.vectors.vector_sum import VectorSum


def coins(*indices):
    return insecure_keystream(3, "rounding", *indices)


def encoding(dimension, clip=1.0, bits=16, **more):
    return Encoding.from_bits(bits, dimension=dimension, clip=clip, **more)


@pytest.mark.parametrize("value", [0.0, 0.25, -0.25, 0.999, -0.001, 7.5, -7.5, 32766.5])
def test_an_entry_is_rounded_up_as_often_as_its_fraction_says(value):
    count = 200_000
    found = rounded(np.full(count, value, np.float32), 1.0, 32767, coins())
    low = math.floor(value)
    assert set(np.unique(found)) <= {low, low + 1}
    share, fraction = np.mean(found > low), value - low
    assert abs(share - fraction) <= 5 * math.sqrt(max(fraction * (1 - fraction), 1e-9) / count)
    assert squared_norm(found) == sum(
        int(k) ** 2 * int(n) for k, n in zip(*np.unique(found, return_counts=True), strict=True)
    )


class Same(Keystream):
    """Coins that always fall the same way; a positive int16 rounds up."""

    def __init__(self, coin):
        self._coin = coin % 2**16

    def words(self, count, dtype=np.uint64, buffer=None):
        return np.full(count, self._coin, dtype)


def test_truncation_fails_the_bound_on_bias():
    values = np.full(100_000, 0.4, np.float32)
    assert abs(rounded(values, 1.0, 32767, coins()).mean() - 0.4) < 0.01
    assert abs(rounded(values, 1.0, 32767, Same(-1)).mean() - 0.4) > 0.01


@pytest.mark.parametrize("value", [0.0, 1.0, -2.0, 0.25, -0.25, 63.75, -101.5, 2.0**-14, 32766.0])
def test_all_coins_together_round_without_bias(value):
    """Every one of the 2^16 coins once: the law itself, and no sample of it."""
    count = 1 << 16
    every = np.arange(count, dtype=np.uint16)

    class Every(Same):
        def words(self, count, dtype=np.uint64, buffer=None):
            words, self._coin = every[self._coin :][:count], self._coin + count
            return words

    found = rounded(np.full(count, value, np.float32), 1.0, 32767, Every(0))
    # Float32's last place at the value, of which the mean of all coins keeps half on either side.
    assert abs(found.mean() - value) <= 2**-16 + 2**-24 * abs(value)
    assert found.min() >= math.floor(value) - (value % 2 == 1)
    assert found.max() <= math.floor(value) + 1
    if value == 0:
        assert not found.any()


@pytest.mark.parametrize("coin", [-(2**15), 2**15 - 1], ids=["down", "up"])
@pytest.mark.parametrize("norm", [0.5, 0.99, 0.997, 1.0, 7.0])
def test_no_coins_lead_beyond_the_sensitivity(norm, coin):
    """Where the norm is not looked at, the worst of all roundings has to be within."""
    code = encoding(20_000)
    vector = np.random.default_rng(3).normal(size=20_000)
    vector = (vector * norm / np.linalg.norm(vector)).astype(np.float32)
    away = np.where(vector > 0, coin, -1 - coin).astype(np.int16).view(np.uint16)

    class Worst(Same):
        def words(self, count, dtype=np.uint64, buffer=None):
            words, self._coin = away[self._coin :][:count], self._coin + count
            return words if len(words) == count else np.zeros(count, dtype)

    total = VectorSum(code.length)
    looked = []

    def within(integers):
        looked.append(integers)
        return Encoding._within(code, integers)

    code.__dict__["_within"] = within
    added = code.add_clipped(vector, Worst(0), total)
    assert added
    assert squared_norm(total.integers().astype(np.int32)) <= math.floor(code.l2_sensitivity**2)
    assert bool(looked) == (norm > 0.995)
    # Where it is looked at it has to be: the first rounding is refused, and the next is not.
    assert (len(looked) > 1) == (norm >= 1 and coin > 0)


@pytest.mark.parametrize("value", [3e-4, 0.91, -0.999])
def test_large_values_are_right_to_the_last_place_of_float32(value):
    count, scale = 400_000, 32766.7
    found = rounded(np.full(count, value, np.float32), scale, 32767, coins())
    exact = float(np.float32(value)) * scale
    assert abs(found.mean() - exact) <= 5 * 0.5 / math.sqrt(count) + max(
        2**-15, 2**-23 * abs(exact)
    )


def test_pieces_do_not_share_coins():
    found = rounded(np.full(1 << 17, 0.5, np.float32), 1.0, 32767, coins())
    pieces = found.reshape(4, -1)
    for i in range(4):
        for j in range(i):
            assert abs(np.corrcoef(pieces[i], pieces[j])[0, 1]) < 0.03


@settings(max_examples=100)
@given(
    st.integers(1, 300),
    st.floats(1e-30, 1e30),
    st.integers(2, 16),
    st.floats(-38, 30),
    st.integers(0, 1000),
    st.booleans(),
)
def test_one_pass_keeps_the_sensitivity_and_the_bound(
    dimension, clip, bits, exponent, seed, rotated
):
    code = encoding(dimension, clip, bits, rotation_seed=bytes(32) if rotated else None)
    vector = np.random.default_rng(seed).normal(size=dimension) * 10.0**exponent
    with np.errstate(over="ignore"):
        found = encode_clipped(code, vector.astype(np.float32), coins(seed))
    if found is not None:
        assert squared_norm(found) <= math.floor(code.l2_sensitivity**2)
        assert np.abs(found).max() <= code.bound


@settings(max_examples=100)
@given(
    st.integers(1, 300),
    st.floats(-10, 10),
    st.integers(3, 16),
    st.floats(-1, 1),
    st.integers(0, 1000),
    st.booleans(),
    st.booleans(),
)
def test_vectors_about_the_clip_keep_the_sensitivity(
    dimension, exponent, bits, beyond, seed, rotated, spiky
):
    clip = 10.0**exponent
    code = encoding(dimension, clip, bits, rotation_seed=bytes(32) if rotated else None)
    vector = np.random.default_rng(seed).normal(size=dimension)
    vector = vector**5 if spiky else vector
    vector *= clip * 10.0**beyond / np.linalg.norm(vector)
    found = encode_clipped(code, vector.astype(np.float32), coins(seed))
    assert found is not None
    assert squared_norm(found) <= math.floor(code.l2_sensitivity**2)
    assert np.abs(found).max() <= code.bound


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("rotation", [None, bytes(range(32))], ids=["plain", "rotated"])
@pytest.mark.parametrize("norm", [0.3, 1.0, 50.0, 1e15])
def test_one_pass_agrees_with_clipping_and_encoding(norm, rotation):
    dimension, times = 1000, 200
    code = encoding(dimension, rotation_seed=rotation)
    vector = np.random.default_rng(1).normal(size=dimension)
    vector = (vector * norm / np.linalg.norm(vector)).astype(np.float32)
    clipped = vector * min(1.0, 1 / np.linalg.norm(vector))
    total = np.zeros(dimension)
    for i in range(times):
        total += code.decode(encode_clipped(code, vector, coins(i)))
    error = np.abs(total / times - clipped)
    # A rounding's deviation is half a step at most; truncation would be off by that on average.
    assert error.max() <= 6 * code.step / 2 / math.sqrt(times) < code.step / 2


@pytest.mark.parametrize(
    "vector",
    [
        np.full(4, np.nan, np.float32),
        np.array([0, np.inf, 0, 0], np.float32),
        np.full(4, 1e38, np.float32),
        np.zeros(3, np.float32),
    ],
)
def test_one_pass_declines_vectors_without_a_finite_norm(vector):
    assert encode_clipped(encoding(4), vector, coins()) is None


def test_one_pass_declines_encodings_beyond_its_range():
    zero = np.zeros(4, np.float32)
    assert encode_clipped(encoding(4, bits=17), zero, coins()) is None
    assert encode_clipped(encoding(4, rule="l1"), zero, coins()) is None
    assert encode_clipped(encoding(4, limit=1.0, rule="records"), zero, coins()) is None
    assert encode_clipped(encoding(4, clip=1e-30), zero, coins()) is None


def test_a_norm_that_overflows_is_none():
    assert finite_norm(np.full(4, 1e38, np.float32)) is None
    assert finite_norm(np.full(4, 0.5, np.float32)) == 1.0


def test_without_a_clip_entries_are_clamped():
    code = encoding(3, clip=None, limit=2.0)
    assert encode_clipped(code, np.array([5.0, -1e30, 1.0], np.float32), coins()) is None
    found = encode_clipped(code, np.array([5.0, -1e10, 1.0], np.float32), coins())
    assert found is not None
    assert found[:2].tolist() == [32767, -32767]


def test_entries_too_small_to_square_are_looked_at_one_by_one():
    # Their squares vanish in float32, so that a norm of zero is found for a vector beyond the clip.
    code = encoding(1 << 10, clip=1e-22, bits=8)
    vector = np.full(1 << 10, 1e-23, np.float32)
    assert np.linalg.norm(vector.astype(np.float64)) > 3 * code.clip
    assert finite_norm(vector) == 0.0
    encoded = encode_clipped(code, vector, coins())
    assert encoded is None or squared_norm(encoded) <= code.l2_sensitivity**2
