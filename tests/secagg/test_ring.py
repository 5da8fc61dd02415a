"""Vectors modulo 2^b, and their packed words."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerosum.secagg import LocalProtocolError, MalformedMessage, Ring


def reference_pack(values, bits):
    total = sum(int(value) << (bits * place) for place, value in enumerate(values))
    return total.to_bytes((len(values) * bits + 7) // 8, "little")


@pytest.mark.parametrize("bits", range(1, 65))
def test_packing_is_the_big_integer_of_all_words(bits):
    ring, rng = Ring(bits), np.random.default_rng(bits)
    for length in (0, 1, 7, 8, 9, 64, 301):
        words = rng.integers(0, 1 << 64, length, dtype=np.uint64).astype(ring.dtype)
        words = ring.reduce(words)
        packed = ring.pack(words)
        assert packed == reference_pack(words, bits)
        assert len(packed) == ring.packed_bytes(length)
        unpacked = ring.unpack(packed, length)
        assert unpacked.dtype == ring.dtype
        np.testing.assert_array_equal(unpacked, words)


@pytest.mark.parametrize("bits", [5, 22, 60])
def test_packing_does_not_depend_on_how_it_is_cut(bits):
    ring, rng = Ring(bits), np.random.default_rng(0)
    words = ring.reduce(rng.integers(0, 1 << 64, 40_007, dtype=np.uint64).astype(ring.dtype))
    packed = ring.pack(words)
    assert packed[: 5 * bits] == reference_pack(words[:40], bits)
    np.testing.assert_array_equal(ring.unpack(packed, 40_007), words)


@pytest.mark.parametrize("bits", [1, 7, 20, 33])
def test_unpacking_is_strict_about_length_and_the_last_bits(bits):
    ring = Ring(bits)
    packed = bytearray(ring.pack(ring.zeros(3)))
    for wrong in (packed[:-1], packed + b"\0", b""):
        with pytest.raises(MalformedMessage):
            ring.unpack(bytes(wrong), 3)
    packed[-1] |= 0x80
    with pytest.raises(MalformedMessage, match="after the last word"):
        ring.unpack(bytes(packed), 3)


@given(st.integers(1, 64), st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=20))
def test_encoding_is_the_remainder_and_centring_the_nearest_representative(bits, values):
    ring = Ring(bits)
    vector = ring.encode(np.array(values, np.int64))
    assert vector.tolist() == [value % (1 << bits) for value in values]
    half = 1 << (bits - 1)
    expected = [(value + half) % (1 << bits) - half for value in values]
    assert ring.centre(vector).tolist() == expected


@pytest.mark.parametrize("bits", [1, 15, 16, 17, 32, 33, 64])
def test_sums_and_differences_are_modular(bits):
    ring = Ring(bits)
    a = np.array([ring.modulus - 1, 0, 1], ring.dtype)
    b = np.array([1, 1, ring.modulus - 1], ring.dtype)
    total = a.copy()
    ring.add_into(total, b)
    assert ring.reduce(total.copy()).tolist() == [0, 1, 0]
    ring.sub_into(total, b)
    np.testing.assert_array_equal(ring.reduce(total), a)


def test_the_container_is_the_narrowest_of_three():
    sizes = {bits: Ring(bits).dtype.itemsize for bits in (1, 16, 17, 32, 33, 64)}
    assert sizes == {1: 2, 16: 2, 17: 4, 32: 4, 33: 8, 64: 8}


@pytest.mark.parametrize("bits", [0, -1, 65])
def test_a_ring_has_1_to_64_bits(bits):
    with pytest.raises(LocalProtocolError):
        Ring(bits)


def test_packing_another_container_is_refused():
    with pytest.raises(LocalProtocolError):
        Ring(20).pack(np.zeros(3, np.uint64))
