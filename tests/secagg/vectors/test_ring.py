"""Vectors modulo 2^b, and their packed words."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerosum.secagg import LocalProtocolError, MalformedMessage, Ring


def reference_pack(values, bits):
    total = sum(int(value) << (bits * place) for place, value in enumerate(values))
    return total.to_bytes((len(values) * bits + 7) // 8, "little")


@pytest.mark.quick_one_in(5)
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
def test_sums_are_modular(bits):
    ring = Ring(bits)
    a = np.array([ring.modulus - 1, 0, 1], ring.dtype)
    b = np.array([1, 1, ring.modulus - 1], ring.dtype)
    total = a.copy()
    ring.add_into(total, b)
    assert ring.reduce(total).tolist() == [0, 1, 0]


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


# --- what is outside the ring ------------------------------------------------------------------

BITS = [1, 2, 7, 15, 16, 17, 20, 31, 32, 33, 63, 64]


def held(bits, value, dtype):
    """The array of one value and a zero, or None where the type does not hold it."""
    info = np.iinfo(dtype)
    return np.array([value, 0], dtype) if info.min <= value <= info.max else None


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("kind", ["int64", "int32", "container"])
def test_vectors_are_taken_at_the_rings_borders_and_refused_one_beyond(bits, kind):
    ring = Ring(bits)
    dtype = ring.dtype if kind == "container" else np.dtype(kind)
    half = ring.modulus >> 1
    low, high = (0, ring.modulus - 1) if kind == "container" else (-half, half - 1)
    for inside in (low, high):
        vector = held(bits, inside, dtype)
        if vector is not None:
            taken = ring.contain(vector, 2)
            assert taken.dtype == ring.dtype
            assert taken.tolist() == [inside % ring.modulus, 0]
            assert not np.shares_memory(taken, vector)
    for outside in (low - 1, high + 1):
        vector = held(bits, outside, dtype)
        if vector is not None:
            with pytest.raises(LocalProtocolError, match=f"{outside} is outside the {bits}-bit"):
                ring.contain(vector, 2)


STRANGE: dict[str, Any] = {
    "float": np.zeros(2),
    "NaN": np.full(2, np.nan),
    "float32": np.zeros(2, np.float32),
    "bool": np.zeros(2, bool),
    "complex": np.zeros(2, complex),
    "object": np.array([0, 0], object),
    "text": np.array(["0", "1"]),
    "int8": np.zeros(2, np.int8),
    "int16": np.zeros(2, np.int16),
    "uint8": np.zeros(2, np.uint8),
    "wider container": np.zeros(2, np.uint64),
    "narrower container": np.zeros(2, np.uint16),
    "big-endian container": np.zeros(2, ">u4"),
    "big-endian int64": np.zeros(2, ">i8"),
    "masked": np.ma.masked_array(np.zeros(2, np.int64), [True, False]),
    "list": [0, 0],
    "None": None,
    "scalar": np.int64(0),
    "no dimension": np.array(0),
    "two dimensions": np.zeros((2, 1), np.int64),
    "longer": np.zeros(3, np.int64),
    "shorter": np.zeros(1, np.int64),
    "empty": np.zeros(0, np.int64),
    "time": np.zeros(2, "m8[s]"),
}


@pytest.mark.parametrize("name", STRANGE)
def test_arrays_of_another_kind_are_refused_by_name(name):
    with pytest.raises(LocalProtocolError):
        Ring(20).contain(STRANGE[name], 2)


def test_strided_and_reversed_vectors_are_taken_for_their_values():
    ring, whole = Ring(20), np.arange(-6, 6, dtype=np.int64)
    for view in (whole[::3], whole[::-3], whole.reshape(4, 3)[:, 1]):
        assert not view.flags.c_contiguous
        assert ring.contain(view, 4).tolist() == [int(v) % (1 << 20) for v in view]


def test_a_remainder_is_taken_only_of_signed_integers():
    unsigned, swapped = np.zeros(2, np.uint32), np.zeros(2, ">i8")
    wrongs: list[Any] = [np.zeros(2), np.zeros(2, bool), unsigned, swapped, [1]]
    for wrong in wrongs:
        with pytest.raises(LocalProtocolError, match="int32 or int64"):
            Ring(20).encode(wrong)


@pytest.mark.parametrize(
    "other",
    [np.ones(1, np.uint32), np.ones(2, np.uint16), np.ones(2, np.int64), np.ones(2), np.ones(3)],
    ids=["one coordinate", "narrower", "signed", "float", "longer"],
)
def test_sums_take_vectors_of_one_container_and_shape(other):
    ring, total = Ring(20), np.zeros(2, np.uint32)
    with pytest.raises(LocalProtocolError, match="of one shape"):
        ring.add_into(total, other)
    assert total.tolist() == [0, 0]


@pytest.mark.parametrize("bits", [1, 7, 15, 17, 20, 31, 33, 63])
def test_a_word_too_large_for_its_place_is_not_packed(bits):
    ring = Ring(bits)
    top = np.array([ring.modulus - 1, 0, ring.modulus - 1], ring.dtype)
    assert ring.pack(top) == reference_pack(top, bits)
    with pytest.raises(LocalProtocolError, match=f"more than {bits} bits"):
        ring.pack(np.array([0, ring.modulus, 0], ring.dtype))


def test_centring_takes_the_container_alone():
    for wrong in (np.zeros(2, np.int64), np.zeros(2), np.zeros(2, np.uint64), np.zeros(2, ">u4")):
        with pytest.raises(LocalProtocolError):
            Ring(20).centre(wrong)


@pytest.mark.parametrize(
    "vector",
    [
        [0, 1],
        None,
        np.zeros(2),
        np.zeros(2, bool),
        np.zeros(2, np.int64),
        np.zeros(2, ">u4"),
        np.ma.zeros(2, np.uint32),
    ],
    ids=["list", "None", "float", "bool", "signed", "big-endian", "masked array"],
)
def test_every_method_names_an_array_that_is_not_of_the_container(vector):
    ring = Ring(20)
    for use in (
        ring.reduce,
        ring.centre,
        ring.pack,
        lambda each: ring.add_into(ring.zeros(2), each),
        lambda each: ring.check(each, 2),
    ):
        with pytest.raises(LocalProtocolError):
            use(vector)


def test_a_subclass_of_arrays_is_copied_into_a_plain_one():
    class Own(np.ndarray):
        pass

    for use in (Ring(20).encode, lambda vector: Ring(20).contain(vector, 2)):
        assert type(use(np.zeros(2, np.int64).view(Own))) is np.ndarray
    with pytest.raises(LocalProtocolError):
        Ring(20).encode(np.ma.zeros(2, np.int64))
