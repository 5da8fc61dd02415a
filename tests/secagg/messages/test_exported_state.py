"""The volatile state of a client: what is damaged, or was never a state, is refused."""

import dataclasses
from typing import Any

import pytest

from zerosum.secagg import ClientParty, IdealClientParty, LocalProtocolError, OutOfOrder, Stage
from zerosum.secagg.messages.exported_state import ClientState, HiddenBytes, open_state, seal_state
from zerosum.secagg.wire import u64

TAG = b"zerosum client state 2\0"
IDEAL_TAG = b"zerosum ideal client state 2\0"


@pytest.fixture
def state(lab) -> ClientState:
    """A client that is about to contribute."""
    play = lab.play(4).until(Stage.CONTRIBUTE)
    return ClientState.from_bytes(play.clients[play.session.cohort[1]].export())


def resealed(state: ClientState, place: int, part: bytes) -> bytes:
    """The state with one part changed, under a checksum that fits."""
    parts = open_state(TAG, state.to_bytes(), 8)
    parts[place] = part
    return seal_state(TAG, parts)


def test_secret_bytes_show_their_length_alone() -> None:
    hidden = HiddenBytes(b"a secret seed")
    assert repr(hidden) == str(hidden) == f"{hidden}" == "<13 secret bytes>"
    assert hidden == b"a secret seed"


def test_a_state_survives_the_round_trip(state: ClientState) -> None:
    assert ClientState.from_bytes(state.to_bytes()) == state
    assert ClientState.from_bytes(resealed(state, 3, state.seed)) == state


@pytest.mark.parametrize(
    ("place", "part"),
    [
        (0, b"no session"),
        (1, b"short"),
        (1, u64(999)),
        (2, b""),
        (2, bytes((5,))),
        (3, b"a short seed"),
        (3, b""),
        (5, b"no adverts"),
        (6, b"no request"),
        (7, b"no answer"),
    ],
)
def test_a_part_that_cannot_be_one_is_refused_though_the_checksum_fits(
    state: ClientState, place: int, part: bytes
) -> None:
    with pytest.raises(LocalProtocolError):
        ClientState.from_bytes(resealed(state, place, part))


def test_lines_out_of_order_or_of_another_session_are_refused(state: ClientState) -> None:
    first, second = state.lines
    strange = b"zerosum/1 decision " + bytes(32).hex().encode() + b" share " + b"0" * 64
    for lines in ([second, first], [first, first], [first, strange], [b"", first, second]):
        with pytest.raises(LocalProtocolError, match="not in order"):
            ClientState.from_bytes(resealed(state, 4, b"\n".join(lines)))


@pytest.mark.parametrize("cut", [1, 31, 32, 100])
def test_a_torn_state_is_refused(state: ClientState, cut: int) -> None:
    with pytest.raises(LocalProtocolError, match="damaged"):
        ClientState.from_bytes(state.to_bytes()[:-cut])


def test_a_state_without_what_was_answered_answers_nothing(lab, state: ClientState) -> None:
    """Of an honest client no such state is exported; a lost part must not become a default."""
    play = lab.play(4).until(Stage.UNMASK)
    index = play.session.cohort[1]
    whole = ClientState.from_bytes(play.clients[index].export())
    losses: list[dict[str, Any]] = [{"adverts": None}, {"request": None}]
    for lost in losses:
        party = ClientParty.restore(dataclasses.replace(whole, **lost).to_bytes())
        with pytest.raises(OutOfOrder, match="in this session"):
            party.unmask(play.messages[index])


@pytest.mark.parametrize("ideal", [False, True], ids=["masked", "ideal"])
def test_a_wiped_party_neither_answers_nor_exports(lab, ideal: bool) -> None:
    play = lab.play(3, ideal=ideal)
    client = play.clients[play.session.cohort[0]]
    assert client.index == play.session.cohort[0]
    client.wipe()
    for use in (client.advertise, client.export):
        with pytest.raises(LocalProtocolError, match="wiped"):
            use()


def test_an_ideal_state_of_another_kind_is_refused(lab, state: ClientState) -> None:
    with pytest.raises(LocalProtocolError, match="damaged"):
        IdealClientParty.restore(state.to_bytes())
    place = (state.session.to_bytes(), u64(state.index), bytes((0,)))
    with pytest.raises(LocalProtocolError, match="trust the server"):
        IdealClientParty.restore(seal_state(IDEAL_TAG, [*place, b""]))
