"""Mask streams: pinned, independent of how they are cut, and from the whole seed."""

import functools
import json
import operator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from zerosum.secagg import Ring
from zerosum.secagg.crypto import prg
from zerosum.secagg.crypto.prg import Stream, accumulate, accumulate_pairs, expand

VECTORS = Path(__file__).parents[2] / "vectors"


def reference_words(seed, length, bits):
    """The stream by single AES blocks of a big-endian counter."""
    block = Cipher(algorithms.AES(seed[:16]), modes.ECB()).encryptor()
    start, size = int.from_bytes(seed[16:], "big"), Ring(bits).dtype.itemsize
    counters = ((start + i) % (1 << 128) for i in range(length * size // 16 + 1))
    stream = b"".join(block.update(counter.to_bytes(16, "big")) for counter in counters)
    words = (stream[i * size : (i + 1) * size] for i in range(length))
    return [int.from_bytes(word, "little") % (1 << bits) for word in words]


@pytest.mark.parametrize("case", json.loads((VECTORS / "prg.json").read_text()))
def test_masks_are_those_of_the_vectors_and_of_the_reference(case):
    seed, bits = bytes.fromhex(case["seed"]), case["bits"]
    mask = expand(seed, len(case["words"]), Ring(bits)).tolist()
    assert mask == case["words"]
    assert mask == reference_words(seed, len(case["words"]), bits)


@pytest.mark.parametrize("bits", [16, 20, 64])
def test_a_sum_of_streams_does_not_depend_on_the_size_of_chunks(bits):
    ring = Ring(bits)
    plus, minus = [bytes([i]) * 32 for i in range(5)], [bytes([i]) * 32 for i in (7, 8)]
    sums = []
    for chunk_bytes in (1, 8, 24, 1000, 1 << 18):
        total = ring.zeros(1003)
        accumulate(total, map(Stream, plus), map(Stream, minus), chunk_bytes=chunk_bytes)
        sums.append(ring.reduce(total).tolist())
    assert all(each == sums[0] for each in sums)
    expected: Any = sum(expand(seed, 1003, ring).astype(object) for seed in plus)
    expected -= sum(expand(seed, 1003, ring).astype(object) for seed in minus)
    assert sums[0] == [value % ring.modulus for value in expected]


def test_more_streams_than_are_opened_at_once_are_all_added():
    total, ring = Ring(32).zeros(3), Ring(32)
    seeds = [i.to_bytes(32, "big") for i in range(600)]
    accumulate(total, map(Stream, seeds))
    expected: Any = sum(expand(seed, 3, ring).astype(object) for seed in seeds) % (1 << 32)
    assert total.tolist() == expected.tolist()


@pytest.mark.parametrize("bits", [16, 20, 64])
@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_nothing(bits, threads, monkeypatch):
    monkeypatch.setattr(prg, "_THREAD_BYTES", 64)
    ring, seeds = Ring(bits), [i.to_bytes(16, "big") + b"\xff" * 16 for i in range(300)]
    sums = []
    for count in (1, threads):
        total = ring.zeros(1003)
        accumulate(total, map(Stream, seeds[:270]), map(Stream, seeds[270:]), threads=count)
        sums.append(ring.reduce(total).tolist())
    assert sums[0] == sums[1]


@pytest.mark.parametrize("lead", [0, 1, 8, 100])
def test_an_accumulator_need_not_start_at_a_cache_line(lead):
    ring = Ring(32)
    total = ring.zeros(500)[lead:]
    accumulate(total, [Stream(b"s" * 32)], chunk_bytes=256)
    assert total.tolist() == expand(b"s" * 32, 500 - lead, ring).tolist()


def test_an_empty_accumulator_stays_empty():
    total = Ring(32).zeros(0)
    accumulate(total, [Stream(b"s" * 32)], threads=2)
    accumulate_pairs([], [])
    assert not len(total)


@pytest.mark.parametrize("bits", [16, 20, 64])
@pytest.mark.parametrize("chunk_bytes", [1, 24, 1000, 1 << 15])
def test_a_stream_of_a_pair_is_added_to_one_and_taken_from_the_other(bits, chunk_bytes):
    ring, pairs = Ring(bits), [(0, 1), (2, 0), (1, 2), (0, 1)]
    totals = [ring.zeros(1003) for _ in range(3)]
    streams = [(a, b, Stream(bytes([i]) * 32)) for i, (a, b) in enumerate(pairs)]
    accumulate_pairs(totals, streams, chunk_bytes=chunk_bytes)
    for party, total in enumerate(totals):
        alone = ring.zeros(1003)
        plus = [Stream(bytes([i]) * 32) for i, (a, _) in enumerate(pairs) if a == party]
        minus = [Stream(bytes([i]) * 32) for i, (_, b) in enumerate(pairs) if b == party]
        accumulate(alone, plus, minus)
        np.testing.assert_array_equal(total, alone)


def test_a_rewound_stream_starts_again():
    ring, stream = Ring(32), Stream(b"x" * 32)
    first, second = ring.zeros(100), ring.zeros(100)
    accumulate(first, [stream])
    stream.rewind()
    accumulate(second, [stream])
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("byte", range(32))
def test_every_byte_of_a_seed_changes_the_mask(byte):
    """A seed folded to 32 bits would give equal masks for seeds that differ elsewhere."""
    seed = bytearray(b"\x55" * 32)
    before = expand(bytes(seed), 50, Ring(32))
    seed[byte] ^= 0x10
    assert np.mean(before == expand(bytes(seed), 50, Ring(32))) < 0.1


def test_seeds_with_equal_ends_give_different_masks():
    seeds = [i.to_bytes(4, "big").join((bytes(12), bytes(16))) for i in range(200)]
    masks = {expand(seed, 4, Ring(64)).tobytes() for seed in seeds}
    assert len(masks) == 200


def test_a_seed_folded_to_32_bits_would_be_noticed():
    """The control of the two tests above: what they compare is equal once seeds are folded."""

    def folded(seed):
        words = [int.from_bytes(seed[i : i + 4], "little") for i in range(0, 32, 4)]
        return functools.reduce(operator.xor, words).to_bytes(32, "little")

    one, other = b"\1\2\3\4" + bytes(28), bytes(12) + b"\1\2\3\4" + bytes(16)
    ring = Ring(32)
    assert (expand(folded(one), 50, ring) == expand(folded(other), 50, ring)).all()
    assert np.mean(expand(one, 50, ring) == expand(other, 50, ring)) < 0.1


@pytest.mark.parametrize("bits", [1, 4, 8, 12])
def test_the_largest_and_the_smallest_ring_values_occur(bits):
    mask = expand(b"m" * 32, 1 << (bits + 6), Ring(bits))
    assert int(mask.max()) == (1 << bits) - 1
    assert int(mask.min()) == 0
