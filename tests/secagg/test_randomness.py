"""Sources of random bits: streams continue, and no two purposes share one."""

from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from zerosum.secagg.randomness import (
    Keystream,
    SystemRandomness,
    derive_seed,
    insecure_keystream,
    numpy_generator,
    system_keystream,
)

SEED = bytes(range(32))


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_a_seed_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match=f"32 bytes, not {length}"):
        Keystream(bytes(length))


def test_a_stream_does_not_depend_on_how_it_is_taken() -> None:
    sizes = (1, 15, 16, (1 << 16) + 7, 3)
    stream = Keystream(SEED)
    pieces = b"".join(stream.take(size) for size in sizes)
    assert pieces == Keystream(SEED).take(sum(sizes))


def test_words_are_little_endian_and_uniform_floats_their_top_bits() -> None:
    data = Keystream(SEED).take(80)
    assert Keystream(SEED).words(10).tolist() == np.frombuffer(data, "<u8").tolist()
    assert Keystream(SEED).words(20, np.uint32).tolist() == np.frombuffer(data, "<u4").tolist()
    floats = Keystream(SEED).uniform(10)
    assert (floats * 2.0**53 == np.frombuffer(data, "<u8") >> np.uint64(11)).all()
    assert ((floats >= 0) & (floats < 1)).all()


def test_seeds_differ_by_every_argument_and_every_border() -> None:
    calls: list[tuple[Any, ...]] = [
        (1, "a"),
        (2, "a"),
        (-1, "a"),
        (1, "b"),
        (1, "a", 0),
        (1, "a", 0, 0),
        (1, "a", 1, 2),
        (1, "a", 12),
        (1, "a/ 0"),
        (1, "a/", 0),
    ]
    seeds = {derive_seed(*call) for call in calls}
    assert len(seeds) == len(calls)
    assert all(len(seed) == 32 for seed in seeds)


def test_simulated_sources_repeat_and_those_of_the_system_do_not() -> None:
    assert insecure_keystream(3, "noise", 1).take(64) == insecure_keystream(3, "noise", 1).take(64)
    assert insecure_keystream(3, "noise", 1).take(64) != insecure_keystream(3, "noise", 2).take(64)
    assert system_keystream().take(64) != system_keystream().take(64)
    assert SystemRandomness().take(64) != SystemRandomness().take(64)


def test_a_generator_is_that_of_its_seed_purpose_and_indices() -> None:
    draws = [numpy_generator(5, *rest).integers(1 << 60, size=4).tolist() for rest in
             (("batches", 1), ("batches", 1), ("batches", 2), ("faults", 1))]  # fmt: skip
    assert draws[0] == draws[1]
    assert draws[0] not in draws[2:]


def by_hand(seed: bytes, counter: int, count: int) -> bytes:
    cipher = Cipher(algorithms.AES(seed[:16]), modes.CTR(counter.to_bytes(16, "big")))
    return cipher.encryptor().update(bytes(count))


@pytest.mark.parametrize("start", [0, 5, 2**64 - 1, 2**128 - 1])
def test_a_stretch_begins_2_to_the_64_blocks_after_the_one_before(start: int) -> None:
    seed = SEED[:16] + start.to_bytes(16, "big")
    stream = Keystream(seed)
    first = stream.take(21)
    assert first == by_hand(seed, start, 21)
    for stretch in (1, 7, 2**64 - 1, 0):
        stream.seek(stretch)
        assert stream.take(33) == by_hand(seed, (start + (stretch << 64)) % 2**128, 33)
    stream.seek(0)
    assert stream.take(21) == first


@pytest.mark.parametrize("stretch", [-1, 2**64])
def test_a_stretch_that_would_be_another_is_refused(stretch: int) -> None:
    with pytest.raises(ValueError, match="2\\^64 stretches"):
        Keystream(SEED).seek(stretch)
