"""On a sparse graph a client knows its neighbours, and no more is needed."""

import dataclasses
import tracemalloc
from typing import Any, cast

import numpy as np
import pytest

from zerosum.secagg import (
    AdvertMismatch,
    BadSurvivorSet,
    ClientParty,
    MalformedMessage,
    ReconstructionFailed,
    ServerMode,
    TooFewSurvivors,
)
from zerosum.secagg.messages.all_messages import Advert, advert_statement
from zerosum.secagg.wire import from_bitmap, from_positions, to_bitmap, to_positions

MALICIOUS, SEMI_HONEST = ServerMode.MALICIOUS, ServerMode.SEMI_HONEST


def make(lab, n=14, degree=6, threshold=3, mode=MALICIOUS, **changes):
    return lab.session(n, degree=degree, threshold=threshold, mode=mode, **changes)


def drawn(play):
    """N(u) of every client, as it advertised."""
    adverts, session = play.sent["advertise"], play.session
    return {
        session.position(i): set(from_positions(advert.neighbours, session.size).tolist())
        for i, advert in adverts.items()
    }


def resigned(lab, advert, **changes):
    """An advert that its client signed with other fields."""
    other = dataclasses.replace(advert, **changes)
    statement = advert_statement(other.session, other.index, other.fields)
    return dataclasses.replace(other, signature=lab.identity(other.index).sign(statement))


def test_a_client_is_told_of_its_neighbours_only(lab):
    play = lab.Play(make(lab)).until("contribute")
    named, asked = drawn(play), play.asked["share"]
    for u in named:
        shown = set(from_bitmap(asked[play.session.cohort[u]].present).tolist())
        assert shown == {u} | named[u] | {v for v in named if u in named[v]}
        sealed = play.sent["share"][play.session.cohort[u]]
        assert set(from_bitmap(sealed.recipients).tolist()) == named[u]
        envelopes = len(play.messages[play.session.cohort[u]].sealed) // 88
        assert envelopes == sum(u in others for others in named.values())


def test_neighbours_come_from_the_clients_own_seed(lab):
    session = make(lab)
    index = session.cohort[0]
    given = lab.credentials(session, index)
    party = ClientParty(session, index, **given)
    again = ClientParty.restore(party.export(), **given)
    assert again.advertise().send == party.advertise().send
    said = [ClientParty(session, index, **given).advertise().send for _ in range(20)]
    others = {cast(Advert, advert).neighbours for advert in said}
    assert len(others) > 15


@pytest.mark.parametrize("bad", ["own", "repeated", "outside", "descending", "short"])
def test_impossible_neighbours_are_refused_by_everybody(lab, bad):
    play = lab.Play(make(lab, n=20))
    session = play.session
    advert = play.clients[session.cohort[3]].advertise().send
    places = {
        "own": [0, 1, 2, 3, 4, 5],
        "repeated": [0, 1, 2, 2, 4, 5],
        "outside": [0, 1, 2, 4, 5, 20],
        "descending": [1, 0, 2, 4, 5, 6],
        "short": [0, 1, 2, 4, 5],
    }[bad]
    wrong = resigned(lab, advert, neighbours=to_positions(np.array(places), 20))
    with pytest.raises(MalformedMessage):
        play.server.receive(session.cohort[3], wrong)
    if bad == "short":
        return
    play.until("share")
    for index, message in play.messages.items():
        positions = from_bitmap(message.present).tolist()
        if 3 in positions and index != session.cohort[3]:
            size = len(message.entries) // len(positions)
            at = positions.index(3) * size
            entries = message.entries[:at] + wrong.entry + message.entries[at + size :]
            with pytest.raises(MalformedMessage):
                play.clients[index].share(dataclasses.replace(message, entries=entries))


def test_an_advert_of_a_stranger_is_refused(lab):
    play = lab.Play(make(lab, n=40)).until("share")
    named, session = drawn(play), play.session
    index = session.cohort[0]
    message = play.messages[index]
    around = from_bitmap(message.present).tolist()
    stranger = next(p for p in named if p not in around)
    size = len(message.entries) // len(around)
    kept = {p: message.entries[i * size : (i + 1) * size] for i, p in enumerate(around)}
    kept[stranger] = play.sent["advertise"][session.cohort[stranger]].entry
    bad = dataclasses.replace(
        message,
        present=to_bitmap(sorted(kept), session.size),
        entries=b"".join(kept[p] for p in sorted(kept)),
    )
    with pytest.raises(AdvertMismatch):
        play.clients[index].share(bad)


def test_a_missing_share_is_noticed(lab):
    play = lab.Play(make(lab, degree=10)).until("contribute")
    for index, message in play.messages.items():
        for sealed in (message.sealed[:-88], message.sealed + bytes(88)):
            with pytest.raises((MalformedMessage, BadSurvivorSet)):
                play.clients[index].admit(dataclasses.replace(message, sealed=sealed))
        play.clients[index].admit(message)


@pytest.mark.parametrize("mode", ServerMode)
def test_sets_are_held_to_the_rules_around_a_client(lab, mode):
    play = lab.Play(make(lab, mode=mode, min_survivors=5)).until("contribute")
    session, everybody = play.session, set(range(14))
    index = session.cohort[0]
    client, message = play.clients[index], play.messages[index]
    named = sorted(client._own_neighbours().tolist())
    for left in (everybody - {0}, everybody - set(named[:4])):
        with pytest.raises((BadSurvivorSet, MalformedMessage)):
            client.admit(dataclasses.replace(message, sharers=to_bitmap(left, 14)))
    play.stage([session.cohort[named[0]]])
    play.close()
    asked = play.messages[index]
    ask = client.confirm if mode is MALICIOUS else client.unmask
    for left in (everybody - {0}, everybody - set(named[:4]), {0, *named[1:4]}):
        with pytest.raises(BadSurvivorSet):
            ask(dataclasses.replace(asked, survivors=to_bitmap(left, 14)))
    ask(asked)


def test_a_survivor_that_was_no_sharer_is_refused_around_a_client(lab):
    play = lab.Play(make(lab, n=30, degree=20, threshold=3))
    session = play.session
    gone = session.cohort[5]
    play.until("confirm", {gone: "share"})
    named = {i: c._own_neighbours().tolist() for i, c in play.clients.items()}
    bad = dataclasses.replace(
        next(iter(play.messages.values())), survivors=to_bitmap(range(30), 30)
    )
    around = [i for i in play.messages if 5 in named[i]]
    assert around
    for index in around:
        with pytest.raises(BadSurvivorSet, match="not in U2"):
            play.clients[index].confirm(bad)


@pytest.mark.parametrize("mode", ServerMode)
def test_losing_a_clients_neighbours_ends_the_session_by_name(lab, mode):
    session = make(lab, n=20, degree=4, threshold=3, mode=mode)
    play = lab.Play(session).until("contribute")
    victim = session.cohort[7]
    named = play.clients[victim]._own_neighbours().tolist()
    with pytest.raises(TooFewSurvivors, match="neighbours of client") as error:
        play.finish({session.cohort[p]: "contribute" for p in named[:2]})
    assert error.value.stage == "contribute"
    assert (error.value.survivors, error.value.needed) == (2, 3)
    assert error.value.client in session.cohort


@pytest.mark.quick_one_in(2)
@pytest.mark.parametrize("mode", ServerMode)
def test_clients_cut_off_early_are_dropouts_and_the_others_go_on(lab, mode):
    session = make(lab, n=60, degree=6, threshold=3, mode=mode)
    for stage in ("advertise", "share"):
        play = lab.Play(session)
        if stage == "share":
            play.until("share")
        victim = 5
        named = play.clients[session.cohort[victim]]._own_neighbours().tolist()[:4]
        result = play.finish({session.cohort[p]: stage for p in named})
        assert {session.cohort[p] for p in (victim, *named)} <= set(result.dropouts[stage])
        expected = lab.plain_sum(session, play.vectors, result.survivors)
        np.testing.assert_array_equal(result.total, expected)


def spoil(message, rng):
    table = rng.integers(0, 1 << 30, len(message.shares) // 4).astype("<u4")
    return dataclasses.replace(message, shares=table.tobytes())


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("mode", ServerMode)
@pytest.mark.parametrize("liars", [1, 2])
def test_wrong_shares_are_decoded_around_and_named(lab, mode, liars):
    session, rng = make(lab, n=16, degree=10, threshold=4, mode=mode), np.random.default_rng(8)
    wrong = set(session.cohort[3 : 3 + liars])

    def change(stage, index, message):
        return spoil(message, rng) if stage == "unmask" and index in wrong else message

    play = lab.Play(session, change=change)
    result = play.finish({session.cohort[9]: "contribute"})
    assert {holder for _, holder in result.wrong_shares} == wrong
    expected = lab.plain_sum(session, play.vectors, result.survivors)
    np.testing.assert_array_equal(result.total, expected)


def test_candidates_are_the_dealer_and_its_own_holders(lab):
    session, rng = make(lab, n=20, degree=4, threshold=4), np.random.default_rng(9)
    play = lab.Play(session).until("unmask")
    liar = session.cohort[min(drawn(play)[0])]
    play.change = lambda stage, index, message: spoil(message, rng) if index == liar else message
    with pytest.raises(ReconstructionFailed) as error:
        play.finish()
    dealer = session.position(error.value.dealer)
    named = {session.cohort[p] for p in drawn(play)[dealer]}
    assert set(error.value.candidates) == {error.value.dealer, *named}
    assert liar in named
    assert error.value.candidates == tuple(sorted(error.value.candidates))


def server_peak(lab, n, degree):
    """The most memory that a server took for a session, whose clients are not counted."""
    session = make(lab, n=n, degree=degree, threshold=degree // 2, mode=SEMI_HONEST)
    play = lab.Play(session)
    vector, peak = np.zeros(11, np.int64), 0
    while play.server.stage != "done":
        stage, said = play.server.stage, []
        for index, message in play.messages.items():
            arguments: tuple[Any, ...] = () if stage == "advertise" else (message,)
            arguments += (vector,) if stage == "contribute" else ()
            said.append((index, getattr(play.clients[index], stage)(*arguments).send))
        tracemalloc.start()
        for index, message in said:
            play.server.receive(index, message)
        play.close()
        peak = max(peak, tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return peak


@pytest.mark.slow
def test_server_memory_follows_the_edges_and_not_the_square_of_the_cohort(lab):
    small, large = (server_peak(lab, n, 10) for n in (60, 240))
    assert large < 5 * small
