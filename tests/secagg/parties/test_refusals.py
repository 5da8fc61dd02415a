"""Refused messages leave a party as if nothing had come."""

import dataclasses
from typing import cast

import numpy as np
import pytest

from zerosum.secagg import (
    AdvertMismatch,
    BadShare,
    BadSurvivorSet,
    ClientParty,
    ConflictingMessage,
    DuplicateKey,
    DuplicateMessage,
    LocalProtocolError,
    LowOrderKey,
    MalformedMessage,
    NonCanonicalKey,
    OutOfOrder,
    RemoteProtocolError,
    RequestMismatch,
    UnknownVersion,
    WrongParty,
    WrongSession,
    request_digest,
)
from zerosum.secagg.messages.all_messages import Advert
from zerosum.secagg.wire import to_bitmap

STAGES = ("advertise", "share", "contribute", "unmask")
ANSWERS = STAGES[1:]


def to_client(client, stage, message, vector):
    if stage == "contribute":
        return client.contribute(message, vector)
    return getattr(client, stage)(message)


def snapshot(server):
    """Return the state that a server's next steps depend on, as one value."""
    plain = {}
    for name, value in vars(server).items():
        plain[name] = value.tobytes() if isinstance(value, np.ndarray) else repr(value)
    return plain


def changed_bytes(data, rng, flips=40):
    """Truncations, extensions and flipped bits of a message, each with a name."""
    for size in {0, 1, 5, 38, len(data) // 2, len(data) - 1}:
        yield f"truncated to {size}", data[:size]
    yield "extended", data + b"\0"
    for bit in {*range(8 * 38), *rng.integers(0, 8 * len(data), flips).tolist()}:
        flipped = bytearray(data)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        yield f"bit {bit} flipped", bytes(flipped)


@pytest.mark.parametrize("stage", ANSWERS)
def test_a_client_survives_truncated_and_torn_messages(lab, stage):
    play = lab.play(4).until(stage)
    index = play.session.cohort[1]
    client, vector = play.clients[index], play.vectors[index]
    good = play.messages[index].to_bytes()
    before = client.export()
    for size in range(len(good)):
        with pytest.raises(RemoteProtocolError):
            to_client(client, stage, good[:size], vector)
    with pytest.raises(MalformedMessage):
        to_client(client, stage, good + b"\0", vector)
    assert client.export() == before
    to_client(client, stage, good, vector)


@pytest.mark.parametrize("stage", ANSWERS)
def test_any_damage_to_the_servers_message_is_refused_by_a_client(lab, stage):
    play = lab.play(4).until(stage)
    index = play.session.cohort[1]
    client, good = play.clients[index], play.messages[index].to_bytes()
    before = client.export()
    for name, data in changed_bytes(good, np.random.default_rng(0)):
        with pytest.raises(RemoteProtocolError):
            to_client(client, stage, data, play.vectors[index])
        assert client.export() == before, name
    to_client(client, stage, good, play.vectors[index])


@pytest.mark.parametrize("stage", STAGES)
def test_any_damage_to_a_clients_message_is_refused_by_the_server(lab, stage):
    play = lab.Play(lab.session(4, ring_bits=16)).until(stage)
    play.stage(gone=[play.session.cohort[1]])
    good = play.answer(stage, play.session.cohort[1], play.messages[play.session.cohort[1]])
    rng = np.random.default_rng(1)
    before = snapshot(play.server)
    for _, data in changed_bytes(good.send.to_bytes(), rng):
        with pytest.raises(RemoteProtocolError):
            play.server.receive(play.session.cohort[1], data)
    assert snapshot(play.server) == before
    play.server.receive(play.session.cohort[1], good.send.to_bytes())


@pytest.mark.parametrize("stage", STAGES)
def test_random_bytes_are_refused_everywhere(lab, stage):
    play = lab.play(3).until(stage)
    index, rng = play.session.cohort[0], np.random.default_rng(2)
    for size in (0, 1, 37, 38, 39, 100, 5000):
        data = rng.bytes(size)
        with pytest.raises(RemoteProtocolError):
            play.server.receive(index, data)
        if stage != "advertise":
            with pytest.raises(RemoteProtocolError):
                to_client(play.clients[index], stage, data, play.vectors[index])
    play.stage()
    play.close()


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("change", [{"run_id": b"x"}, {"round": 2}, {"attempt": 1}])
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("as_bytes", [True, False])
def test_a_replay_from_another_run_round_or_attempt_is_refused(lab, change, stage, as_bytes):
    play, other = lab.play(3), lab.Play(lab.session(3, **change))
    index = play.session.cohort[0]
    play.until(stage)
    other.until(stage)
    asked = other.messages[index]
    said = other.stage()[index]
    with pytest.raises(WrongSession):
        play.server.receive(index, said.to_bytes() if as_bytes else said)
    if asked is not None:
        before = play.clients[index].export()
        message = asked.to_bytes() if as_bytes else asked
        with pytest.raises(WrongSession):
            to_client(play.clients[index], stage, message, play.vectors[index])
        assert play.clients[index].export() == before
    assert play.finish().survivors == play.session.cohort


@pytest.mark.parametrize(
    "change",
    [
        {"roster_version": 6},
        {"threshold": 1},
        {"min_survivors": 2},
        {"ring_bits": 21},
        {"vector_length": 12},
        {"bounds": b"other"},
        {"cohort": (10, 13, 17)},
    ],
)
def test_every_parameter_of_the_session_separates_sessions(lab, change):
    session = lab.session(3, threshold=2, min_survivors=1)
    other = lab.session(3, **{"threshold": 2, "min_survivors": 1, **change})
    advert = ClientParty(other, 10).advertise().send
    with pytest.raises(WrongSession):
        lab.Play(session).server.receive(10, advert.to_bytes())


@pytest.mark.parametrize("stage", STAGES)
def test_another_clients_message_is_refused(lab, stage):
    play = lab.play(4).until(stage)
    a, b = play.session.cohort[:2]
    said = play.answer(stage, a, play.messages[a]).send
    before = snapshot(play.server)
    with pytest.raises(WrongParty):
        play.server.receive(b, said.to_bytes())
    with pytest.raises(WrongParty):
        play.server.receive(99_999, said.to_bytes())
    assert snapshot(play.server) == before


def test_another_clients_contribute_message_is_refused(lab):
    play = lab.play(4).until("contribute")
    a, b = play.session.cohort[:2]
    with pytest.raises(WrongParty):
        play.clients[a].contribute(play.messages[b].to_bytes(), play.vectors[a])
    with pytest.raises(WrongParty):
        play.clients[a].admit(play.messages[b])


@pytest.mark.parametrize("stage", STAGES)
def test_an_unknown_version_is_refused(lab, stage):
    play = lab.play(3).until(stage)
    index = play.session.cohort[0]
    asked = play.messages[index]
    if asked is not None:
        data = bytearray(asked.to_bytes())
        data[4] += 1
        with pytest.raises(UnknownVersion):
            to_client(play.clients[index], stage, data, play.vectors[index])
    data = bytearray(play.answer(stage, index, asked).send.to_bytes())
    data[4] += 1
    with pytest.raises(UnknownVersion):
        play.server.receive(index, data)


def test_a_message_of_another_stage_is_out_of_order(lab):
    play = lab.play(3)
    index = play.session.cohort[0]
    play.until("unmask")
    play.asked["unmask"] = play.messages
    adverts, contribute = play.asked["share"][index], play.asked["contribute"][index]
    for message in (adverts, contribute, adverts.to_bytes(), play.sent["share"][index]):
        with pytest.raises(OutOfOrder):
            play.clients[index].unmask(message)
        with pytest.raises(OutOfOrder):
            play.server.receive(index, message)
    fresh = ClientParty(play.session, index)
    for stage in ANSWERS:
        with pytest.raises(OutOfOrder):
            to_client(fresh, stage, play.asked[stage][index], play.vectors[index])


def test_a_second_message_of_one_stage_is_refused(lab):
    play = lab.play(3)
    index = play.session.cohort[0]
    for _ in STAGES:
        said = play.stage()
        with pytest.raises(DuplicateMessage):
            play.server.receive(index, said[index])
        play.close()
    assert play.server.result.survivors == play.session.cohort


def test_a_client_that_dropped_out_may_not_come_back(lab):
    play = lab.play(5)
    index = play.session.cohort[0]
    play.stage(gone=[index])
    play.close()
    late = play.clients[index].advertise().send
    with pytest.raises(OutOfOrder):
        play.server.receive(index, late)


def test_a_contribution_to_another_request_is_a_dropout(lab):
    play = lab.play(5).until("contribute")
    index = play.session.cohort[2]
    other = dataclasses.replace(play.messages[index], request=request_digest(b"another model"))
    assert play.clients[index].admit(other) != lab.REQUEST
    masked = play.clients[index].contribute(other, play.vectors[index]).send
    play.messages = {i: m for i, m in play.messages.items() if i != index}
    play.stage()
    before = snapshot(play.server)
    with pytest.raises(RequestMismatch):
        play.server.receive(index, masked)
    assert snapshot(play.server) == before
    play.close()
    result = play.finish()
    assert result.dropouts["contribute"] == (index,)
    expected = lab.plain_sum(play.session, play.vectors, result.survivors)
    np.testing.assert_array_equal(result.total, expected)


def test_a_client_sent_another_request_masks_with_nobody(lab):
    play = lab.Play(lab.session(4, vector_length=200)).until("contribute")
    index = play.session.cohort[2]
    other = dataclasses.replace(play.messages[index], request=request_digest(b"another model"))
    masked = play.clients[index].contribute(other, play.vectors[index]).send
    forged = dataclasses.replace(masked, request=lab.REQUEST)
    play.messages = {i: m for i, m in play.messages.items() if i != index}
    play.stage()
    play.server.receive(index, forged)
    play.close()
    result = play.finish()
    expected = lab.plain_sum(play.session, play.vectors, play.session.cohort)
    assert np.mean(result.total == expected) < 0.05


def test_adverts_without_or_with_another_own_advert_are_refused(lab):
    play = lab.play(5).until("share")
    index = play.session.cohort[0]
    client, adverts = play.clients[index], play.messages[index]
    absent = dataclasses.replace(
        adverts, present=to_bitmap(range(1, 5), 5), entries=adverts.entries[96:]
    )
    stranger = cast(Advert, ClientParty(play.session, index).advertise().send)
    swapped = dataclasses.replace(adverts, entries=stranger.entry + adverts.entries[96:])
    for message in (absent, swapped):
        with pytest.raises(AdvertMismatch):
            client.share(message)
    client.share(adverts)


def test_bad_keys_in_the_broadcast_are_refused(lab):
    play = lab.play(5).until("share")
    client, adverts = play.clients[play.session.cohort[0]], play.messages[play.session.cohort[0]]

    def with_key(key):
        return dataclasses.replace(
            adverts, entries=adverts.entries[:96] + key + adverts.entries[128:]
        )

    field = (1 << 255) - 19
    with pytest.raises(LowOrderKey):
        client.share(with_key((1).to_bytes(32, "little")))
    for value in (field, field + 9, 9 | 1 << 255):
        with pytest.raises(NonCanonicalKey):
            client.share(with_key(value.to_bytes(32, "little")))
    with pytest.raises(DuplicateKey):
        client.share(with_key(adverts.entries[:32]))
    client.share(adverts)


def test_bad_keys_in_an_advert_are_refused_by_the_server(lab):
    play = lab.play(3)
    a, b = play.session.cohort[:2]
    good = play.clients[a].advertise().send
    for key, error in (
        (bytes(32), LowOrderKey),
        (((1 << 255) - 18).to_bytes(32, "little"), NonCanonicalKey),
        (good.mask_key, DuplicateKey),
    ):
        with pytest.raises(error):
            play.server.receive(a, dataclasses.replace(good, channel_key=key))
    play.server.receive(a, good)
    with pytest.raises(DuplicateKey):
        play.server.receive(b, dataclasses.replace(good, index=b))
    play.server.receive(b, play.clients[b].advertise().send)


def test_sets_of_clients_that_break_the_rules_are_refused(lab):
    play = lab.Play(lab.session(6, threshold=3, min_survivors=5))
    session = play.session
    play.until("share", {session.cohort[5]: "advertise"})
    play.until("contribute")
    index = session.cohort[0]
    message = play.messages[index]
    envelope = bytes(88)
    for sharers, count in (({1, 2, 3, 4}, 4), ({0, 1, 2, 5}, 3), ({0, 1, 2}, 2)):
        bad = dataclasses.replace(message, sharers=to_bitmap(sharers, 6), sealed=envelope * count)
        with pytest.raises(BadSurvivorSet):
            play.clients[index].admit(bad)
    play.stage()
    play.close()
    message = play.messages[index]
    for survivors in ({1, 2, 3, 4}, {0, 1, 2, 3, 4, 5}, {0, 1, 2, 3}, {0, 1}):
        with pytest.raises(BadSurvivorSet):
            play.clients[index].unmask(
                dataclasses.replace(message, survivors=to_bitmap(survivors, 6))
            )
    assert play.finish().survivors == session.cohort[:5]


def test_a_survivor_set_with_fewer_neighbours_than_the_threshold_is_refused(lab):
    play = lab.Play(lab.session(6, threshold=3, min_survivors=1)).until("unmask")
    index = play.session.cohort[0]
    message = play.messages[index]
    with pytest.raises(BadSurvivorSet, match="threshold"):
        play.clients[index].unmask(dataclasses.replace(message, survivors=to_bitmap({0, 1, 2}, 6)))
    play.clients[index].unmask(dataclasses.replace(message, survivors=to_bitmap({0, 1, 2, 3}, 6)))


def test_shares_for_the_wrong_clients_are_refused_by_the_server(lab):
    play = lab.play(4).until("share")
    index = play.session.cohort[0]
    shares = play.clients[index].share(play.messages[index]).send
    short = dataclasses.replace(shares, recipients=to_bitmap({1, 2}, 4), sealed=shares.sealed[:176])
    with pytest.raises(BadShare):
        play.server.receive(index, short)
    play.server.receive(index, shares)


def test_impossible_shares_are_refused_by_the_server(lab):
    play = lab.play(4).until("unmask")
    index = play.session.cohort[0]
    answer = play.clients[index].unmask(play.messages[index]).send
    before = snapshot(play.server)
    outside = dataclasses.replace(answer, shares=b"\xff" * 4 + answer.shares[4:])
    own = dataclasses.replace(
        answer, dealers=to_bitmap(range(4), 4), shares=answer.shares + answer.shares[:36]
    )
    for bad in (outside, own):
        with pytest.raises(BadShare):
            play.server.receive(index, bad)
    assert snapshot(play.server) == before
    play.server.receive(index, answer)


def test_the_same_message_gets_the_same_bytes_and_a_different_one_is_refused(lab):
    play = lab.play(5).until("share")
    index = play.session.cohort[0]
    client, adverts = play.clients[index], play.messages[index]
    first = client.share(adverts)
    assert client.share(adverts.to_bytes()) == first
    fewer = dataclasses.replace(
        adverts, present=to_bitmap(range(4), 5), entries=adverts.entries[: 4 * 96]
    )
    with pytest.raises(ConflictingMessage):
        client.share(fewer)


def test_our_callers_mistakes_are_local(lab):
    session = lab.session(3)
    with pytest.raises(LocalProtocolError, match="not in this session's cohort"):
        ClientParty(session, 11)
    play = lab.Play(session).until("share")
    with pytest.raises(LocalProtocolError, match="request digest"):
        play.server.close()
    with pytest.raises(LocalProtocolError, match="32 bytes"):
        play.server.close(b"short")
    play.until("contribute")
    with pytest.raises(LocalProtocolError, match="request digest"):
        play.server.close(lab.REQUEST)
    index = session.cohort[0]
    for vector in (np.zeros(10, np.int64), np.zeros(11), np.zeros(11, np.uint16)):
        with pytest.raises(LocalProtocolError):
            play.clients[index].contribute(play.messages[index], vector)
    with pytest.raises(LocalProtocolError, match="no result"):
        _ = play.server.result
    play.clients[index].wipe()
    with pytest.raises(LocalProtocolError, match="wiped"):
        play.clients[index].contribute(play.messages[index], play.vectors[index])
