"""Garbage gives success or the error that is documented, and what is read is canonical."""

import hashlib
import random
import tracemalloc
from itertools import cycle

import mutate
import pytest
import readers

from zerosum.secagg import LocalProtocolError, RemoteProtocolError

TARGETS = list(readers.targets())


def test_valid_bytes_are_read_and_encode_to_themselves():
    for target in TARGETS:
        for seed in target.seeds:
            target.read(seed)
            assert target.repair(seed) == seed


def test_mutated_bytes_break_no_reader():
    counts = mutate.run(6000, seed=1, found=TARGETS)
    assert min(counts.values()) >= 6000 // len(TARGETS)


@pytest.mark.slow
def test_a_hundred_thousand_mutations_break_no_reader():
    counts = mutate.run(100_000, seed=2, found=TARGETS)
    assert min(counts.values()) >= 100_000 // len(TARGETS)


def test_the_fuzzer_notices_what_it_must_not_let_pass():
    def raises(data):
        raise ValueError("a bug")

    def greedy(data):
        bytearray(1 << 22)

    def lax(data):
        readers.same(data.rstrip(b"x"), data)

    for read, error in ((raises, ValueError), (greedy, mutate.Greedy), (lax, readers.NotCanonical)):
        target = readers.Target("bad", (b"abcx",), read)
        with pytest.raises(error) as info:
            mutate.run(1000, seed=0, found=[target])
        assert "to bad" in info.value.__notes__[0]


HUGE = (1 << 31, 1 << 40, 1 << 62, (1 << 64) - 1)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_no_length_makes_a_reader_allocate_what_the_message_does_not_hold(target):
    """Every eight bytes of a message, one after another, claim to be a huge length."""
    rng = random.Random(5)
    data = target.seeds[0]
    places = range(len(data) - 7) if len(data) < 400 else rng.sample(range(len(data) - 7), 200)
    target.read(data)
    tracemalloc.start()
    try:
        for at, huge in zip(places, cycle(HUGE), strict=False):
            hostile = data[:at] + huge.to_bytes(8, "big") + data[at + 8 :]
            target.read(target.repair(hostile))
        assert tracemalloc.get_traced_memory()[1] < mutate.MOST + mutate.TIMES * len(data)
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_a_large_message_takes_a_small_multiple_of_its_length():
    clients = 20_000
    cohort = b"".join(index.to_bytes(8, "big") for index in range(clients))
    session = readers.make_session("malicious").to_bytes()
    head, tail = session.split(b"".join(i.to_bytes(8, "big") for i in readers.COHORT))
    large = head[:-8] + len(cohort).to_bytes(8, "big") + cohort + tail
    keys = b"".join(i.to_bytes(8, "big") + hashlib.sha256(b"%d" % i).digest()
                    for i in range(clients))  # fmt: skip
    roster = b"zerosum roster\0" + bytes(8) + clients.to_bytes(8, "big") + keys
    for read, data in ((readers.Session.from_bytes, large), (readers.Roster.from_bytes, roster)):
        tracemalloc.start()
        try:
            assert read(data).to_bytes() == data
            assert tracemalloc.get_traced_memory()[1] < 32 * len(data)
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("number", ["9" * 5000, "\u0661", "-1", "01", "1_0", " 1"])
def test_numbers_of_a_record_are_plain(number):
    line = f"zerosum/1 high-water {'0' * 64} {number} 0".encode()
    with pytest.raises(LocalProtocolError):
        readers.HighWater([line])


def test_a_decisions_hashes_are_hex():
    session = readers.make_session("malicious")
    head = f"zerosum/1 decision {session.digest.hex()} advertise "
    for digest in ("z" * 64, "A" * 64, "0" * 63):
        with pytest.raises(LocalProtocolError):
            readers.Decisions(session.digest, [f"{head}{digest}".encode()])
    assert not issubclass(LocalProtocolError, RemoteProtocolError)
