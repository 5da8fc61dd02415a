"""Vectors outside the ring are refused wherever the library takes one, and nothing is decided."""

import dataclasses

import numpy as np
import pytest

from zerosum.secagg import LocalProtocolError, MalformedMessage, ServerMode
from zerosum.secagg.crypto.prg import accumulate, accumulate_pairs
from zerosum.secagg.vectors.packing import pack_words

BITS, LENGTH = 20, 11
HALF = 1 << (BITS - 1)


def with_one(value, dtype):
    vector = np.zeros(LENGTH, dtype)
    vector[7] = value
    return vector


OUTSIDE = {
    "one above the centred range": with_one(HALF, np.int64),
    "one below the centred range": with_one(-HALF - 1, np.int64),
    "the modulus": with_one(1 << BITS, np.uint32),
    "a negative remainder": with_one((1 << 32) - 1, np.uint32),
    "float": np.zeros(LENGTH),
    "NaN": np.full(LENGTH, np.nan),
    "bool": np.zeros(LENGTH, bool),
    "object": np.zeros(LENGTH, object),
    "big-endian": np.zeros(LENGTH, ">i8"),
    "another container": np.zeros(LENGTH, np.uint64),
    "too long": np.zeros(LENGTH + 1, np.int64),
    "two dimensions": np.zeros((LENGTH, 1), np.int64),
}


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize("ideal", [False, True], ids=["masked", "ideal"])
@pytest.mark.parametrize("name", OUTSIDE)
def test_a_contribution_outside_the_ring_is_refused_and_the_right_one_can_follow(lab, ideal, name):
    play = lab.Play(lab.session(5), ideal=ideal).until("contribute")
    index = play.session.cohort[1]
    with pytest.raises(LocalProtocolError):
        play.clients[index].contribute(play.messages[index], OUTSIDE[name])
    result = play.finish()
    assert index in result.survivors
    expected = lab.plain_sum(play.session, play.vectors, result.survivors)
    np.testing.assert_array_equal(result.total, expected)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint32])
def test_both_ends_of_the_ring_arrive(lab, dtype):
    play = lab.Play(lab.session(3), as_bytes=True)
    low, high = (0, 2 * HALF - 1) if dtype == np.uint32 else (-HALF, HALF - 1)
    for index, value in zip(play.session.cohort, (low, high, 0), strict=True):
        play.vectors[index] = with_one(value, dtype)
    total = play.finish().total
    assert total.tolist() == with_one((low + high) % (1 << BITS), np.uint32).tolist()


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_trusted_server_takes_no_sum_from_outside_the_ring(lab, name):
    play = lab.Play(lab.session(4), ideal=True).until("contribute")
    cohort = play.session.cohort
    with pytest.raises(LocalProtocolError):
        play.server.receive_sum(cohort[:2], OUTSIDE[name])
    play.server.receive_sum(cohort, with_one(-HALF, np.int64))
    play.close()
    play.server.receive_presence(cohort)
    play.close()
    assert play.server.result.total[7] == HALF


@pytest.mark.parametrize("mode", ServerMode)
def test_a_message_in_memory_with_a_word_too_large_is_refused_as_on_the_wire(lab, mode):
    play = lab.Play(lab.session(5, mode=mode)).until("contribute")
    said = play.stage(play.session.cohort[1:])
    (index, message), *_ = said.items()
    other = lab.Play(lab.session(5, mode=mode)).until("contribute")
    large = dataclasses.replace(message, vector=with_one(1 << BITS, np.uint32))
    with pytest.raises(MalformedMessage, match="more than 20 bits"):
        other.server.receive(index, large)
    with pytest.raises(LocalProtocolError):
        large.to_bytes()


@pytest.mark.parametrize(
    "words", [np.zeros(3, np.int64), np.zeros(3), np.zeros(3, ">u4"), np.zeros((3, 1), np.uint32)]
)
def test_only_rows_of_unsigned_words_are_packed(words):
    for bits in (5, 16):
        with pytest.raises(LocalProtocolError):
            pack_words(words, bits)


@pytest.mark.parametrize(
    "total",
    [
        np.zeros(4, np.int64),
        np.zeros(4),
        np.zeros(4, np.uint8),
        np.zeros(4, ">u4"),
        np.zeros(8, np.uint32)[::2],
        np.zeros((4, 1), np.uint32),
    ],
    ids=["signed", "float", "bytes", "big-endian", "strided", "two dimensions"],
)
def test_streams_are_added_to_rows_of_words_only(total):
    with pytest.raises(LocalProtocolError, match="contiguous array of uint16, uint32 or uint64"):
        accumulate(total, [bytes(32)], version=3)
    with pytest.raises(LocalProtocolError):
        accumulate_pairs([np.zeros(4, np.uint32), total], [(0, 1, bytes(32))], version=3)
    assert not total.any()
