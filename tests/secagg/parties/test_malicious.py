"""Against a server that lies, clients sign, and believe what their roster lets them verify."""

import dataclasses
from typing import cast

import numpy as np
import pytest

from zerosum.secagg import (
    AdvertMismatch,
    BadSignature,
    BadSurvivorSet,
    ClientParty,
    ConfirmRequest,
    ConflictingMessage,
    IdealClientParty,
    MalformedMessage,
    OutOfOrder,
    RemoteProtocolError,
    ServerMode,
    TooFewSignatures,
    TooFewSurvivors,
    WrongParty,
    WrongSession,
    request_digest,
)
from zerosum.secagg.messages.all_messages import (
    Advert,
    advert_bytes,
    advert_statement,
    survivors_statement,
)
from zerosum.secagg.wire import from_bitmap, to_bitmap

MALICIOUS = ServerMode.MALICIOUS
STAGES = ("advertise", "share", "contribute", "confirm", "unmask")


@pytest.fixture(params=["complete", "sparse"])
def session(request, lab):
    if request.param == "complete":
        return lab.session(6, mode=MALICIOUS, threshold=3)
    return lab.session(9, mode=MALICIOUS, threshold=2, degree=5)


def entries(adverts, of):
    """The adverts of a message by position."""
    size, positions = advert_bytes(of), from_bitmap(adverts.present).tolist()
    return {p: adverts.entries[i * size : (i + 1) * size] for i, p in enumerate(positions)}


def with_entries(adverts, kept, of):
    present = to_bitmap(sorted(kept), of.size)
    return dataclasses.replace(
        adverts, present=present, entries=b"".join(kept[p] for p in sorted(kept))
    )


def refuses(client, call, *arguments, error=RemoteProtocolError):
    """Check that a message is refused and that nothing came of it."""
    before = client.export()
    with pytest.raises(error):
        call(*arguments)
    assert client.export() == before


def ask(client, stage, message, vector):
    return (
        client.contribute(message, vector)
        if stage == "contribute"
        else getattr(client, stage)(message)
    )


def test_the_stages_are_those_of_the_mode(lab):
    assert lab.session(4, mode=MALICIOUS).stages == STAGES
    assert lab.session(4).stages == tuple(stage for stage in STAGES if stage != "confirm")


def test_a_semi_honest_session_has_no_confirm_stage(lab):
    play = lab.play(4).until("unmask")
    index = play.session.cohort[0]
    for kind in (play.clients[index], IdealClientParty(lab.session(4, protocol="ideal"), index)):
        with pytest.raises(OutOfOrder, match="no confirm"):
            kind.confirm(ConfirmRequest(kind.session.digest, play.messages[index].survivors))


@pytest.mark.parametrize("forged", ["zero", "other key", "other fields", "swapped", "unsigned"])
def test_a_forged_or_replaced_advert_is_refused(lab, session, forged):
    play = lab.Play(session).until("share")
    index = session.cohort[0]
    client, adverts = play.clients[index], play.messages[index]
    shown = entries(adverts, session)
    victim = max(shown)
    honest, fields = shown[victim], shown[victim][:-64]
    if forged == "unsigned":
        bad = dataclasses.replace(adverts, entries=adverts.entries[:-64])
        refuses(client, client.share, bad, error=MalformedMessage)
    else:
        # Keys that the server made, so that it could read what is sealed for the victim.
        other = session.cohort[victim]
        party = ClientParty(session, other, **lab.credentials(session, other))
        stranger = cast(Advert, party.advertise().send).entry
        statement = advert_statement(session.digest, session.cohort[victim], fields)
        shown[victim] = {
            "zero": fields + bytes(64),
            "other key": fields + lab.identity(123_456).sign(statement),
            "other fields": stranger[:64] + honest[64:],
            "swapped": fields + shown[0][-64:],
        }[forged]
        refuses(client, client.share, with_entries(adverts, shown, session), error=BadSignature)
    client.share(adverts)


def test_an_advert_of_another_client_or_session_does_not_pass(lab, session):
    other = lab.Play(dataclasses.replace(session, round=2)).until("share")
    play = lab.Play(session).until("share")
    index = session.cohort[0]
    client, adverts = play.clients[index], play.messages[index]
    shown, victim = entries(adverts, session), max(entries(adverts, session))
    replayed = other.sent["advertise"][session.cohort[victim]].entry
    refuses(
        client,
        client.share,
        with_entries(adverts, {**shown, victim: replayed}, session),
        # Other draws need not make the victim a neighbour.
        error=BadSignature if session.complete else (BadSignature, AdvertMismatch),
    )
    client.share(adverts)


def test_the_server_refuses_what_is_not_signed_by_its_sender(lab, session):
    play = lab.Play(session)
    a, b = session.cohort[:2]
    advert = play.clients[a].advertise().send
    for bad in (
        dataclasses.replace(advert, signature=bytes(64)),
        dataclasses.replace(advert, commitment=bytes(32)),
        dataclasses.replace(advert, signature=play.clients[b].advertise().send.signature),
    ):
        with pytest.raises(BadSignature):
            play.server.receive(a, bad)
    with pytest.raises(WrongParty):
        play.server.receive(b, advert)
    play.until("confirm")
    confirmations = {i: play.answer("confirm", i, play.messages[i]).send for i in (a, b)}
    forged = dataclasses.replace(confirmations[a], signature=confirmations[b].signature)
    with pytest.raises(BadSignature):
        play.server.receive(a, forged)
    with pytest.raises(WrongParty):
        play.server.receive(a, confirmations[b])
    result = play.finish()
    expected = lab.plain_sum(session, play.vectors, session.cohort)
    np.testing.assert_array_equal(result.total, expected)


def test_a_client_signs_one_set_and_opens_no_other(lab):
    session = lab.session(6, mode=MALICIOUS, threshold=3)
    play = lab.Play(session).until("confirm")
    index = session.cohort[0]
    client, asked = play.clients[index], play.messages[index]
    fewer = dataclasses.replace(asked, survivors=to_bitmap(range(5), 6))
    first = client.confirm(asked)
    assert client.confirm(asked.to_bytes()) == first
    refuses(client, client.confirm, fewer, error=ConflictingMessage)
    play.stage()
    play.close()
    statement = survivors_statement(session.digest, lab.REQUEST, fewer.survivors)
    signatures = b"".join(lab.identity(i).sign(statement) for i in session.cohort)
    split = dataclasses.replace(
        play.messages[index],
        survivors=fewer.survivors,
        signers=to_bitmap(range(6), 6),
        signatures=signatures,
    )
    refuses(client, client.unmask, split, error=ConflictingMessage)
    assert client.unmask(play.messages[index]).send.dealers == to_bitmap(range(1, 6), 6)


def test_nothing_is_opened_before_a_set_was_signed(lab, session):
    play = lab.Play(session)
    skipper = session.cohort[0]
    play.until("confirm")
    play.stage([skipper])
    play.close()
    other = play.messages[session.cohort[1]]
    client = play.clients[skipper]
    assert client.stage == "confirm"
    refuses(client, client.unmask, other, error=OutOfOrder)


@pytest.mark.parametrize("kept", [2, 3])
def test_a_threshold_of_neighbours_must_have_signed_and_ones_own_does_not_count(lab, kept):
    session = lab.session(6, mode=MALICIOUS, threshold=3)
    play = lab.Play(session).until("unmask")
    client, message = play.clients[session.cohort[0]], play.messages[session.cohort[0]]
    statement = survivors_statement(session.digest, lab.REQUEST, message.survivors)
    signed = [lab.identity(i).sign(statement) for i in session.cohort]
    places = [0, *range(1, kept + 1)]
    enough = dataclasses.replace(
        message,
        signers=to_bitmap(places, 6),
        signatures=b"".join(signed[p] for p in places),
    )
    if kept < 3:
        refuses(client, client.unmask, enough, error=TooFewSignatures)
    else:
        client.unmask(enough)


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize(
    "damage", ["none", "zeros", "repeated", "another request", "another set", "another session"]
)
def test_signatures_that_do_not_count(lab, session, damage):
    play = lab.Play(session).until("unmask")
    index = session.cohort[0]
    client, message = play.clients[index], play.messages[index]
    signers = from_bitmap(message.signers).tolist()
    fewer = to_bitmap(range(session.size - 1), session.size)
    parts = {
        "another request": (session.digest, request_digest(b"other"), message.survivors),
        "another set": (session.digest, lab.REQUEST, fewer),
        "another session": (bytes(32), lab.REQUEST, message.survivors),
    }
    if damage == "none":
        nobody = to_bitmap([], session.size)
        bad = dataclasses.replace(message, signers=nobody, signatures=b"")
    elif damage == "zeros":
        bad = dataclasses.replace(message, signatures=bytes(len(message.signatures)))
    elif damage == "repeated":
        # One colluder's signature under the names of all.
        bad = dataclasses.replace(message, signatures=message.signatures[-64:] * len(signers))
    else:
        statement = survivors_statement(*parts[damage])
        forged = b"".join(lab.identity(session.cohort[p]).sign(statement) for p in signers)
        bad = dataclasses.replace(message, signatures=forged)
    refuses(client, client.unmask, bad, error=TooFewSignatures)
    client.unmask(message)


def test_signatures_of_strangers_do_not_count_on_a_sparse_graph(lab):
    session = lab.session(12, mode=MALICIOUS, threshold=2, degree=3)
    play = lab.Play(session).until("unmask")
    position = 4
    client, message = (
        play.clients[session.cohort[position]],
        play.messages[session.cohort[position]],
    )
    named = set(client._own_neighbours().tolist())
    strangers = sorted({*range(12)} - named)
    statement = survivors_statement(session.digest, lab.REQUEST, message.survivors)

    def signed_by(places):
        signatures = (lab.identity(session.cohort[p]).sign(statement) for p in sorted(places))
        return dataclasses.replace(
            message, signers=to_bitmap(places, 12), signatures=b"".join(signatures)
        )

    one = min(named)
    refuses(client, client.unmask, signed_by(strangers), error=TooFewSignatures)
    refuses(client, client.unmask, signed_by([*strangers, one]), error=TooFewSignatures)
    client.unmask(signed_by(named))


def test_a_set_that_breaks_the_rules_is_not_signed(lab):
    session = lab.session(7, mode=MALICIOUS, threshold=3, min_survivors=5)
    play = lab.Play(session).until("confirm", {session.cohort[6]: "share"})
    client, asked = play.clients[session.cohort[0]], play.messages[session.cohort[0]]
    for survivors in ({1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5, 6}, {0, 1, 2, 3}, {0, 1, 2}):
        bad = dataclasses.replace(asked, survivors=to_bitmap(survivors, 7))
        refuses(client, client.confirm, bad, error=BadSurvivorSet)
    client.confirm(asked)


def test_too_few_confirmations_end_the_session_by_name(lab):
    session = lab.session(6, mode=MALICIOUS, threshold=3)
    for gone in (2, 3):
        play = lab.Play(session)
        lost = dict.fromkeys(session.cohort[:gone], "confirm")
        if gone == 2:
            assert play.finish(lost).survivors == session.cohort
            continue
        with pytest.raises(TooFewSurvivors) as error:
            play.finish(lost)
        assert (error.value.stage, error.value.survivors, error.value.needed) == ("confirm", 3, 4)


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("change", [{"round": 2}, {"attempt": 1}, {"run_id": b"x"}])
def test_a_replay_from_another_session_is_refused_at_every_stage(lab, session, stage, change):
    play = lab.Play(session).until(stage)
    other = lab.Play(dataclasses.replace(session, **change)).until(stage)
    index = session.cohort[0]
    asked, said = other.messages[index], other.stage()[index]
    with pytest.raises(WrongSession):
        play.server.receive(index, said.to_bytes())
    if asked is not None:
        client, vector = play.clients[index], play.vectors[index]
        refuses(client, ask, client, stage, asked.to_bytes(), vector, error=WrongSession)
    assert play.finish().survivors == session.cohort


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("stage", STAGES)
def test_any_damage_to_a_message_is_refused_at_every_stage(lab, session, stage):
    play = lab.Play(session).until(stage)
    index, rng = session.cohort[1], np.random.default_rng(3)
    client, vector, asked = play.clients[index], play.vectors[index], play.messages[index]

    def damaged(good):
        for size in (0, 5, 38, len(good) // 2, len(good) - 1):
            yield good[:size]
        yield good + b"\0"
        for bit in rng.integers(0, 8 * len(good), 30).tolist():
            flipped = bytearray(good)
            flipped[bit >> 3] ^= 1 << (bit & 7)
            yield bytes(flipped)

    if asked is not None:
        for bad in damaged(asked.to_bytes()):
            refuses(client, ask, client, stage, bad, vector)
    said = play.answer(stage, index, asked).send.to_bytes()
    for bad in damaged(said):
        with pytest.raises(RemoteProtocolError):
            play.server.receive(index, bad)
    play.server.receive(index, said)


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("stage", STAGES)
def test_a_client_may_be_a_new_process_at_every_stage(lab, session, stage):
    """The state before a stage and the record after it give the same bytes, or none."""
    play = lab.Play(session).until(stage)
    index = session.cohort[2]
    given, client = lab.credentials(session, index), play.clients[index]
    record = list(client._decisions.lines())
    before, message = client.export(), play.messages[index]
    step = play.answer(stage, index, message)
    record += step.persist
    for state in (before, client.export()):
        party = ClientParty.restore(state, record=record, **given)
        play.clients[index] = party
        if stage == "contribute":
            with pytest.raises(RemoteProtocolError, match="already made"):
                party.contribute(message, play.vectors[index])
        elif stage == "advertise" or state is not before or stage != "unmask":
            assert play.answer(stage, index, message) == step
    play.clients[index] = ClientParty.restore(client.export(), record=record, **given)
    lost = {} if stage != "contribute" else {index: "contribute"}
    result = play.finish(lost)
    expected = lab.plain_sum(session, play.vectors, result.survivors)
    np.testing.assert_array_equal(result.total, expected)


def test_another_set_is_not_signed_after_a_restart_from_any_state(lab):
    session = lab.session(6, mode=MALICIOUS, threshold=3)
    play = lab.Play(session).until("confirm")
    index = session.cohort[0]
    given, client, asked = (
        lab.credentials(session, index),
        play.clients[index],
        play.messages[index],
    )
    before = client.export()
    step = client.confirm(asked)
    fewer = dataclasses.replace(asked, survivors=to_bitmap(range(5), 6))
    for state, record in (
        (before, step.persist),
        (client.export(), ()),
        (client.export(), step.persist),
    ):
        party = ClientParty.restore(state, record=record, **given)
        with pytest.raises(ConflictingMessage):
            party.confirm(fewer)
        assert party.confirm(asked) == step


def test_a_signed_set_binds_a_client_whose_record_alone_tells_of_it(lab):
    session = lab.session(6, mode=MALICIOUS, threshold=3)
    play = lab.Play(session).until("confirm")
    index = session.cohort[0]
    asked, lines = play.messages[index], play.clients[index].confirm(play.messages[index]).persist
    assert len(lines) == 1
    session_hex, stage, message, survivors = lines[0].decode().split(" ")[2:]
    assert (session_hex, stage, message) == (session.digest.hex(), "confirm", asked.digest.hex())
    assert len(survivors) == 64


def test_the_signature_of_a_neighbour_outside_the_set_does_not_count(lab):
    session = lab.session(6, mode=MALICIOUS, threshold=3)
    play = lab.Play(session).until("confirm", {session.cohort[5]: "contribute"})
    play.stage()
    play.close()
    client, message = play.clients[session.cohort[0]], play.messages[session.cohort[0]]
    statement = survivors_statement(session.digest, lab.REQUEST, message.survivors)

    def signed_by(*places):
        signatures = b"".join(lab.identity(session.cohort[p]).sign(statement) for p in places)
        signers = to_bitmap(places, 6)
        return dataclasses.replace(message, signers=signers, signatures=signatures)

    refuses(client, client.unmask, signed_by(1, 2, 5), error=TooFewSignatures)
    client.unmask(signed_by(1, 2, 3, 5))
