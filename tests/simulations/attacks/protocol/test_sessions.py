"""Sessions around a lying server: real parties, and views of bytes alone."""

import dataclasses

import numpy as np
import pytest
from view_parts import parts

from zerosum.secagg import (
    Advert,
    ClientParty,
    Contribution,
    IdealClientParty,
    ServerParty,
    UnmaskRequest,
    decode,
)
from zerosum.secagg.crypto.keys import Hkdf, self_mask
from zerosum.secagg.crypto.prg import accumulate
from zerosum.secagg.messages.exported_state import ClientState
from zerosum.simulations.attacks.harness.interface import Defense, ThreatModel
from zerosum.simulations.attacks.harness.sealed_view import sealed
from zerosum.simulations.attacks.protocol.opening import secrets_of
from zerosum.simulations.attacks.protocol.sessions import SessionsSetting, SessionsView, Transcript
from zerosum.simulations.attacks.protocol.weakened import client_of

DOUBLE = Defense("double", "double", threshold=3, confirm=False)
CONFIRMED = dataclasses.replace(DOUBLE, confirm=True)
SINGLE = dataclasses.replace(DOUBLE, masking="single")


class Watching:
    """Only reads."""

    threat = ThreatModel("curious server")


class Truthful(Watching):
    """A liar that tells the truth, and keeps what it was shown."""

    def __init__(self):
        self.shown = []

    def respond(self, stage, client, message, seen):
        self.shown.append((stage, client, message, seen))
        return (message,)


def play(setting, protection, attack=None, seed=0):
    return setting.play(attack or Watching(), protection, seed)


def victims_vector(transcript):
    return transcript.answer("contribute", transcript.victim, Contribution).vector


@pytest.mark.parametrize("protection", [DOUBLE, CONFIRMED], ids=["double", "confirmed"])
def test_an_honest_session_opens_the_plain_sum(protection, monkeypatch):
    results = []
    close = ServerParty.close

    def closing(server, request=None):
        messages = close(server, request)
        if server.stage == "done":
            results.append(server.result)
        return messages

    monkeypatch.setattr(ServerParty, "close", closing)
    setting = SessionsSetting(5, trials=1)
    plain = dataclasses.replace(protection, masking="none")
    (transcript,) = play(setting, plain).view.trials[0]
    session = transcript.opened()
    vectors = [
        decode(exchange.answer, Contribution, session).vector
        for exchange in transcript.answers("contribute")
    ]
    play(setting, protection)
    (result,) = results
    assert result.survivors == tuple(range(5))
    np.testing.assert_array_equal(
        result.total, session.ring.reduce(np.sum(vectors, axis=0, dtype=session.ring.dtype))
    )


@pytest.mark.parametrize("masking", ["none", "double"])
def test_the_view_holds_the_update_only_without_masks(masking):
    setting = SessionsSetting(5, trials=2, colluders=2)
    scene = play(setting, dataclasses.replace(DOUBLE, masking=masking))
    view = sealed(scene.view)
    session = view.trials[0][0].opened()
    received = b"".join(part for part in parts(view) if isinstance(part, bytes))
    for update in scene.truth["updates"]:
        # Packed words, as they would be on the wire; one container after another as well.
        packed = session.ring.pack(update)
        assert (packed in received) == (masking == "none")
        assert update.tobytes() not in received


def test_the_view_is_bytes_and_names_alone():
    view = sealed(play(SessionsSetting(5, trials=1, colluders=2), CONFIRMED).view)
    inside = list(parts(view.trials))
    assert {type(part).__name__ for part in inside} == {
        *("tuple", "Transcript", "Said", "mappingproxy", "bytes", "str", "int")
    }
    assert not any(isinstance(part, ClientParty | IdealClientParty) for part in inside)


def test_a_liar_sees_the_bytes_of_past_exchanges_alone():
    liar = Truthful()
    scene = play(SessionsSetting(4, trials=1, colluders=1), CONFIRMED, liar)
    assert not scene.view.stopped
    assert len(liar.shown) == 4 * 5
    for count, (_, _, message, seen) in enumerate(liar.shown):
        assert isinstance(message, bytes)
        assert isinstance(seen, Transcript)
        assert len(seen.said) == count
        with pytest.raises(TypeError):
            seen.states[0] = b""  # type: ignore[index] # what the test is of
        assert bool(seen.states) == (count >= 12), "colluders speak after contribute"


def test_the_view_holds_the_states_of_colluders_alone():
    (transcript,) = play(SessionsSetting(6, trials=1, colluders=2), CONFIRMED).view.trials[0]
    assert len(transcript.states) == len(transcript.identities) == 2
    assert transcript.victim not in transcript.states
    for index, state in transcript.states.items():
        assert ClientState.from_bytes(state).index == index


def test_a_scene_is_determined_by_its_seed():
    setting = SessionsSetting(4, trials=2, colluders=1)
    first, again, other = (play(setting, CONFIRMED, seed=seed) for seed in (3, 3, 4))
    assert first.view == again.view
    np.testing.assert_array_equal(first.truth["updates"], again.truth["updates"])
    assert (first.truth["updates"] != other.truth["updates"]).any(axis=1).all()
    one, two = (trial[0] for trial in first.view.trials)
    adverts = {one.answer("advertise", i, Advert).mask_key for i in range(4)}
    assert adverts.isdisjoint(two.answer("advertise", i, Advert).mask_key for i in range(4))


@pytest.mark.parametrize("protection", [DOUBLE, CONFIRMED], ids=["double", "confirmed"])
def test_a_late_contribution_is_in_the_view_and_not_in_the_sum(protection):
    setting = SessionsSetting(5, trials=1, late=True)
    (transcript,) = play(setting, protection).view.trials[0]
    session, victim = transcript.opened(), transcript.victim
    assert victims_vector(transcript).shape == (session.vector_length,)
    answers = transcript.answers("unmask")
    assert {exchange.client for exchange in answers} == set(range(5)) - {victim}
    gone = {decode(exchange.asked, UnmaskRequest, session).survivors for exchange in answers}
    assert gone == {bytes([0b11111 & ~(1 << victim)])}
    assert set(secrets_of(transcript)) == {"mask"}


def test_single_masks_lack_the_self_mask_alone():
    setting = SessionsSetting(4, trials=1)
    (real,) = play(setting, DOUBLE).view.trials[0]
    (single,) = play(setting, SINGLE).view.trials[0]
    assert real.said[:8] == single.said[:8], "adverts and shares are the same"
    (seed,) = (secrets_of(real)[kind] for kind in ("self",))
    session, sent = real.opened(), np.array(victims_vector(real))
    request = real.answer("contribute", real.victim, Contribution).request
    hkdf = Hkdf(session.digest)
    own = self_mask(hkdf, seed, request, real.victim)
    accumulate(sent, (), [own], version=session.version)
    np.testing.assert_array_equal(session.ring.reduce(sent), victims_vector(single))


def test_a_short_seed_has_its_stated_bits():
    (transcript,) = play(
        SessionsSetting(4, trials=1), dataclasses.replace(DOUBLE, seed_bits=9)
    ).view.trials[0]
    seed = int.from_bytes(secrets_of(transcript)["self"], "little")
    assert 0 < seed < 1 << 9
    (real,) = play(SessionsSetting(4, trials=1), DOUBLE).view.trials[0]
    assert int.from_bytes(secrets_of(real)["self"], "little") >> 200


def test_a_control_that_lacks_two_parts_is_refused():
    assert client_of(DOUBLE) is ClientParty
    with pytest.raises(ValueError, match="SingleMaskClient and ForgetfulClient"):
        client_of(SINGLE, "one-kind check")


def test_a_view_without_trials_lacks_them():
    """A field that was not received is None, and an attack that requires it is not run."""
    assert SessionsView(ThreatModel("curious server"), DOUBLE).lacks(("trials",)) == ("trials",)
