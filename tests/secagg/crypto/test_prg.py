"""Mask streams: pinned, independent of how they are cut, and from the whole seed."""

import functools
import itertools
import json
import operator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from zerosum.secagg import Ring
from zerosum.secagg.crypto import prg
from zerosum.secagg.crypto.prg import accumulate, accumulate_pairs, expand, open_streams

VECTORS = Path(__file__).parents[2] / "vectors"


SEGMENT = prg.SEGMENT_BYTES


def reference_counters(seed, version):
    """Yield the counter blocks of a stream, by the specification."""
    start = int.from_bytes(seed[16:], "big")
    for block in itertools.count():
        if version == 2:
            yield ((start + block) % (1 << 128)).to_bytes(16, "big")
        else:
            segment, place = divmod(block, SEGMENT // 16)
            yield seed[16:24] + segment.to_bytes(4, "big") + (2 + place).to_bytes(4, "big")


def reference_words(seed, length, bits, version):
    """The stream by single AES blocks, as numbers of any size."""
    block = Cipher(algorithms.AES(seed[:16]), modes.ECB()).encryptor()
    size = Ring(bits).dtype.itemsize
    counters = itertools.islice(reference_counters(seed, version), length * size // 16 + 1)
    stream = block.update(b"".join(counters))
    words = (stream[i * size : (i + 1) * size] for i in range(length))
    return [int.from_bytes(word, "little") % (1 << bits) for word in words]


def vectors():
    for version, name in ((2, "prg"), (3, "prg_segments")):
        for case in json.loads((VECTORS / f"{name}.json").read_text()):
            yield pytest.param(version, case, id=f"version {version}, {case['bits']} bits")


@pytest.fixture(params=["GCM", "counter mode"])
def way(request, monkeypatch):
    """Each of the two ways to the bytes of version 3, whatever this machine would choose."""
    if request.param == "GCM" and not hasattr(prg.AESGCM, "encrypt_into"):
        pytest.skip("this release of cryptography has no GCM that writes into a buffer")
    monkeypatch.setattr(prg, "_gcm_is_faster", lambda: request.param == "GCM")


def test_counter_mode_is_taken_without_a_gcm_that_fills_buffers(monkeypatch):
    monkeypatch.setattr(prg, "AESGCM", type("AESGCM", (), {}))
    assert not prg._gcm_is_faster.__wrapped__()


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize(("version", "case"), [*vectors()])
@pytest.mark.usefixtures("way")
def test_masks_are_those_of_the_vectors_and_of_the_reference(version, case):
    """The vectors begin at word ``from`` of a stream, so that some lie in a later segment."""
    seed, bits, start = bytes.fromhex(case["seed"]), case["bits"], case.get("from", 0)
    length = start + len(case["words"])
    mask = expand(seed, length, Ring(bits), version).tolist()
    assert mask[start:] == case["words"]
    assert mask == reference_words(seed, length, bits, version)


@pytest.mark.slow
@pytest.mark.parametrize("bits", [16, 20, 64])
@pytest.mark.parametrize("bytes_over", [-16, -8, 0, 8, 16, SEGMENT + 8])
@pytest.mark.usefixtures("way")
def test_segments_meet_where_the_reference_says(bits, bytes_over):
    seed, ring = bytes(range(200, 232)), Ring(bits)
    length = (SEGMENT + bytes_over) // ring.dtype.itemsize
    words = expand(seed, length, ring, 3)[-64:].tolist()
    assert words == reference_words(seed, length, bits, 3)[-64:]


def test_a_segment_is_what_gcm_encrypts_zeros_to():
    seed = bytes(range(32))
    stream = expand(seed, 2 * SEGMENT // 8, Ring(64), 3).tobytes()
    for number in (0, 1):
        sealed = AESGCM(seed[:16]).encrypt(
            seed[16:24] + number.to_bytes(4, "big"), bytes(SEGMENT), None
        )
        assert stream[number * SEGMENT : (number + 1) * SEGMENT] == sealed[:-16]


def test_no_counter_block_of_a_stream_comes_twice():
    """The control counts through from the nonce, and runs into the next segment's blocks."""
    seed, many = b"\xff" * 32, 3 * SEGMENT // 16
    assert len(set(itertools.islice(reference_counters(seed, 3), many))) == many
    through = {
        (int.from_bytes(seed[16:24] + bytes(8), "big") + segment + place).to_bytes(16, "big")
        for segment in range(3)
        for place in range(SEGMENT // 16)
    }
    assert len(through) < many


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.usefixtures("way")
def test_a_stream_runs_from_any_segment_again_and_cut_short(version):
    whole = expand(b"x" * 32, 3 * SEGMENT // 8, Ring(64), version).tobytes()
    ((fill, prefix),) = open_streams([b"x" * 32], version)
    buffer = memoryview(bytearray(SEGMENT + 16))
    for number, size in (
        (0, SEGMENT),
        (1, 24),
        (1, SEGMENT),
        (2, 40),
        (0, 8),
        (2, SEGMENT),
        (0, 16),
    ):
        zeros = memoryview(bytes(size))
        fill(prefix + number.to_bytes(4, "big"), zeros, None, buffer[: size + 16])
        assert buffer[:size] == whole[number * SEGMENT :][:size]


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("bits", [16, 20, 64])
@pytest.mark.parametrize("version", [2, 3])
def test_sums_of_streams_are_those_of_their_masks(bits, version):
    ring, length = Ring(bits), 2 * SEGMENT // 8 + 3
    plus, minus = [bytes([i]) * 32 for i in range(5)], [bytes([i]) * 32 for i in (7, 8)]
    total = ring.zeros(length)
    accumulate(total, plus, minus, version=version)
    expected: Any = sum(expand(seed, length, ring, version).astype(object) for seed in plus)
    expected -= sum(expand(seed, length, ring, version).astype(object) for seed in minus)
    assert ring.reduce(total).tolist() == [value % ring.modulus for value in expected]


def test_more_streams_than_are_opened_at_once_are_all_added():
    total, ring = Ring(32).zeros(3), Ring(32)
    seeds = [i.to_bytes(32, "big") for i in range(600)]
    accumulate(total, iter(seeds), version=3)
    expected: Any = sum(expand(seed, 3, ring, 3).astype(object) for seed in seeds) % (1 << 32)
    assert total.tolist() == expected.tolist()


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("bits", [16, 20, 64])
@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.usefixtures("way")
def test_threads_change_nothing(bits, threads, version, monkeypatch):
    monkeypatch.setattr(prg, "_THREAD_BYTES", 64)
    length = 5 * SEGMENT // Ring(bits).dtype.itemsize // 2
    ring, seeds = Ring(bits), [i.to_bytes(16, "big") + b"\xff" * 16 for i in range(20)]
    sums = []
    for count in (1, threads):
        total = ring.zeros(length)
        accumulate(total, seeds[:13], seeds[13:], version=version, threads=count)
        sums.append(ring.reduce(total).tolist())
    assert sums[0] == sums[1]


@pytest.mark.parametrize("lead", [0, 1, 8, 100])
def test_an_accumulator_need_not_start_at_a_cache_line(lead):
    ring = Ring(32)
    total = ring.zeros(500)[lead:]
    accumulate(total, [b"s" * 32], version=3)
    assert total.tolist() == expand(b"s" * 32, 500 - lead, ring, 3).tolist()


def test_an_empty_accumulator_stays_empty():
    total = Ring(32).zeros(0)
    accumulate(total, [b"s" * 32], version=3, threads=2)
    accumulate_pairs([], [], version=3)
    assert not len(total)


@pytest.mark.parametrize("bits", [16, 20, 64])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.usefixtures("way")
def test_a_stream_of_a_pair_is_added_to_one_and_taken_from_the_other(
    bits, threads, version, monkeypatch
):
    monkeypatch.setattr(prg, "_THREAD_BYTES", 64)
    length = 2 * SEGMENT // 8 + 3
    ring, pairs = Ring(bits), [(0, 1), (2, 0), (1, 2), (0, 1)]
    totals = [ring.zeros(length) for _ in range(3)]
    triples = [(a, b, bytes([i]) * 32) for i, (a, b) in enumerate(pairs)]
    accumulate_pairs(totals, triples, version=version, threads=threads)
    for party, total in enumerate(totals):
        alone = ring.zeros(length)
        plus = [seed for a, _, seed in triples if a == party]
        minus = [seed for _, b, seed in triples if b == party]
        accumulate(alone, plus, minus, version=version)
        np.testing.assert_array_equal(total, alone)


def bytes_used():
    return [(2, byte) for byte in range(32)] + [(3, byte) for byte in range(24)]


@pytest.mark.parametrize(("version", "byte"), bytes_used())
def test_every_byte_of_a_seed_changes_the_mask(version, byte):
    """A seed folded to 32 bits would give equal masks for seeds that differ elsewhere."""
    seed = bytearray(b"\x55" * 32)
    before = expand(bytes(seed), 50, Ring(32), version)
    seed[byte] ^= 0x10
    assert np.mean(before == expand(bytes(seed), 50, Ring(32), version)) < 0.1


def test_seeds_with_equal_ends_give_different_masks():
    seeds = [i.to_bytes(4, "big").join((bytes(12), bytes(16))) for i in range(200)]
    masks = {expand(seed, 4, Ring(64), version).tobytes() for version in (2, 3) for seed in seeds}
    assert len(masks) == 400


def test_a_seed_folded_to_32_bits_would_be_noticed():
    """The control of the two tests above: what they compare is equal once seeds are folded."""

    def folded(seed):
        words = [int.from_bytes(seed[i : i + 4], "little") for i in range(0, 32, 4)]
        return functools.reduce(operator.xor, words).to_bytes(32, "little")

    one, other = b"\1\2\3\4" + bytes(28), bytes(12) + b"\1\2\3\4" + bytes(16)
    ring = Ring(32)
    assert (expand(folded(one), 50, ring, 3) == expand(folded(other), 50, ring, 3)).all()
    assert np.mean(expand(one, 50, ring, 3) == expand(other, 50, ring, 3)) < 0.1


@pytest.mark.parametrize("bits", [1, 4, 8, 12])
def test_the_largest_and_the_smallest_ring_values_occur(bits):
    mask = expand(b"m" * 32, 1 << (bits + 6), Ring(bits), 3)
    assert int(mask.max()) == (1 << bits) - 1
    assert int(mask.min()) == 0
