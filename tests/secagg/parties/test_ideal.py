"""The ideal functionality keeps the real protocol's stages and adds what a simulator needs."""

import dataclasses

import numpy as np
import pytest

from zerosum.secagg import (
    BadSurvivorSet,
    Client,
    ClientParty,
    IdealClientParty,
    IdealServerParty,
    LocalProtocolError,
    MalformedMessage,
    OutOfOrder,
    RequestMismatch,
    Server,
    ServerParty,
    TooFewSurvivors,
    request_digest,
)
from zerosum.secagg.wire import to_bitmap


def test_kept_contributions_are_the_plain_ring_vectors(lab):
    play = lab.play(5, ideal=True, keep=True)
    gone = {play.session.cohort[1]: "share", play.session.cohort[2]: "unmask"}
    result = play.finish(gone)
    kept = play.server.contributions
    assert tuple(kept) == result.survivors == tuple(i for i in play.session.cohort if i != 13)
    for index, vector in kept.items():
        np.testing.assert_array_equal(vector, play.session.ring.encode(play.vectors[index]))


def test_without_keeping_there_are_no_contributions(lab):
    play = lab.play(3, ideal=True)
    play.finish()
    with pytest.raises(LocalProtocolError, match="keep"):
        _ = play.server.contributions


def test_partial_sums_stand_for_the_clients_in_them(lab):
    play = lab.play(6, ideal=True).until("contribute")
    cohort, vectors = play.session.cohort, play.vectors
    both = play.session.ring.encode(vectors[cohort[0]] + vectors[cohort[1]])
    play.server.receive_sum(cohort[:2], both)
    ring_sum = lab.plain_sum(play.session, vectors, cohort[2:4])
    play.server.receive_sum(cohort[2:4], ring_sum)
    play.messages = {cohort[4]: play.messages[cohort[4]]}
    play.stage()
    play.close()
    for index, message in play.messages.items():
        if index in cohort[:4]:
            play.clients[index]._phase = 3
        play.server.receive(index, play.clients[index].unmask(message).send)
    play.close()
    result = play.server.result
    assert result.survivors == cohort[:5]
    np.testing.assert_array_equal(result.total, lab.plain_sum(play.session, vectors, cohort[:5]))


def test_partial_sums_are_refused_when_a_client_is_gone_counted_or_kept(lab):
    play = lab.play(5, ideal=True)
    a, b, c = play.session.cohort[:3]
    zeros = np.zeros(11, np.int64)
    with pytest.raises(LocalProtocolError, match="at contribute"):
        play.server.receive_sum([a], zeros)
    play.until("contribute", {c: "share"})
    play.server.receive_sum([a], zeros)
    for clients in ([a], [b, b], [c], [b, a]):
        with pytest.raises(LocalProtocolError, match="not live"):
            play.server.receive_sum(clients, zeros)
    kept = lab.play(3, ideal=True, keep=True).until("contribute")
    with pytest.raises(LocalProtocolError, match="none are kept"):
        kept.server.receive_sum([10], zeros)


def test_the_ideal_server_refuses_as_the_real_one_does(lab):
    for ideal in (False, True):
        play = lab.Play(lab.session(5, min_survivors=4), ideal=ideal)
        with pytest.raises(TooFewSurvivors) as error:
            play.finish({10: "contribute", 13: "share"})
        assert (error.value.stage, error.value.survivors, error.value.needed) == (
            "contribute",
            3,
            4,
        )
    play = lab.play(3, ideal=True).until("contribute")
    question = play.messages[10]
    other = type(question)(question.session, request_digest(b"other"), question.sharers)
    said = play.clients[10].contribute(other, play.vectors[10]).send
    with pytest.raises(RequestMismatch):
        play.server.receive(10, said)
    with pytest.raises(OutOfOrder):
        play.server.receive(10, question)


def test_both_kinds_of_party_have_the_same_shape(lab):
    session, open_ = lab.session(3), lab.session(3, protocol="ideal")
    clients: list[Client] = [ClientParty(session, 10), IdealClientParty(open_, 10)]
    servers: list[Server] = [ServerParty(session), IdealServerParty(open_)]
    assert [client.stage for client in clients] == ["advertise", "advertise"]
    assert [server.stage for server in servers] == ["advertise", "advertise"]


def test_an_ideal_client_refuses_sets_that_exclude_it_or_are_too_small(lab):
    session = lab.session(4, threshold=2, protocol="ideal", min_survivors=3)
    play = lab.Play(session, ideal=True).until("contribute")
    client, question = play.clients[10], play.messages[10]
    assert client.admit(question) == lab.REQUEST
    for present, why in (((1, 2, 3), "does not hold this one"), ((0, 1), "fewer than 3")):
        other = dataclasses.replace(question, sharers=to_bitmap(present, 4))
        with pytest.raises(BadSurvivorSet, match=why):
            client.contribute(other, play.vectors[10])
    client.contribute(question, play.vectors[10])


def test_presence_counts_at_its_own_stage_alone(lab):
    play = lab.play(3, ideal=True)
    early = play.clients[10].advertise().send
    play.until("share")
    with pytest.raises(OutOfOrder, match="another stage"):
        play.server.receive(10, early)
    torn = dataclasses.replace(early, stage=play.session.stages.index("contribute"))
    with pytest.raises(MalformedMessage, match="presence at stage 2"):
        play.server.receive(10, torn.to_bytes())


def test_presence_of_many_is_taken_at_every_stage_but_contribute(lab):
    play = lab.play(3, ideal=True)
    assert not play.server.keeps
    play.server.receive_presence(play.session.cohort)
    play.close()
    play.server.receive_presence(play.session.cohort[:2])
    with pytest.raises(LocalProtocolError, match="not live"):
        play.server.receive_presence(play.session.cohort)
    play.server.receive_presence(play.session.cohort[2:])
    play.close()
    with pytest.raises(LocalProtocolError, match="the stage is contribute"):
        play.server.receive_presence(play.session.cohort)
    play.server.receive_sum(play.session.cohort, np.zeros(11, np.int64))
    play.close()
    play.server.receive_presence(play.session.cohort)
    play.close()
    assert play.server.result.survivors == play.session.cohort
    with pytest.raises(LocalProtocolError, match="the stage is done"):
        play.server.receive_presence(play.session.cohort)
