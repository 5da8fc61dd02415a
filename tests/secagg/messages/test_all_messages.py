"""Messages have one encoding each, and garbage gives a refusal or a message, nothing else."""

import dataclasses
import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zerosum.secagg import MalformedMessage, OutOfOrder, RemoteProtocolError, WrongSession, decode
from zerosum.secagg.messages.all_messages import (
    Advert,
    Adverts,
    Confirmation,
    ConfirmRequest,
    ContributeRequest,
    Contribution,
    Message,
    Shares,
    UnmaskRequest,
    UnmaskShares,
    accept,
)
from zerosum.secagg.messages.unmasked import CohortQuestion, Presence, Roll

TYPES = (Advert, Adverts, Shares, ContributeRequest, Contribution, UnmaskRequest, UnmaskShares)


KINDS: dict[str, dict[str, Any]] = {
    "semi-honest": {},
    "malicious": {"mode": "malicious"},
    "sparse": {"mode": "malicious", "degree": 5, "threshold": 2},
}


@pytest.fixture(
    scope="module",
    params=[(kind, ideal) for kind in KINDS for ideal in (False, True)],
    ids=lambda param: f"{param[0]}, ideal" if param[1] else param[0],
)
def spoken(lab, request):
    """One message of every type, and the session they were spoken in."""
    kind, ideal = request.param
    found: dict[type[Message], Message] = {}
    play = lab.Play(lab.session(9, **KINDS[kind]), ideal=ideal)
    play.finish({play.session.cohort[4]: "share"})
    for by in (*play.asked.values(), *play.sent.values()):
        for message in by.values():
            if message is not None:
                found.setdefault(type(message), message)
    own = {Presence, Roll, CohortQuestion, Contribution, UnmaskRequest} if ideal else set(TYPES)
    signed = {ConfirmRequest} if ideal else {ConfirmRequest, Confirmation}
    assert set(found) == own | (signed if play.session.signed else set())
    return play.session, found


def test_every_message_survives_its_bytes(spoken):
    session, found = spoken
    for kind, message in found.items():
        data = message.to_bytes()
        again = decode(data, kind, session)
        assert again.to_bytes() == data
        assert len(data) == message.wire_bytes
        assert again.digest == message.digest == hashlib.sha256(data).digest()
        if kind is not Contribution:
            assert again == message
        assert accept(message, kind, session) is message


def test_a_message_of_another_type_is_out_of_order(spoken):
    session, found = spoken
    for kind, message in found.items():
        for other in found:
            if other is not kind:
                with pytest.raises(OutOfOrder):
                    decode(message.to_bytes(), other, session)
                with pytest.raises(OutOfOrder):
                    accept(message, other, session)


def test_an_object_with_fields_of_the_wrong_size_is_refused(spoken, lab):
    session, found = spoken
    for kind, message in found.items():
        with pytest.raises(WrongSession):
            accept(dataclasses.replace(message, session=bytes(32)), kind, session)
        for field in dataclasses.fields(message)[1:]:
            value = getattr(message, field.name)
            if isinstance(value, bytes):
                bad = dataclasses.replace(message, **{field.name: value + b"\0"})
                with pytest.raises(MalformedMessage):
                    accept(bad, kind, session)
            elif isinstance(value, np.ndarray):
                for wrong in (value[:-1], value.astype(np.float64), value[None]):
                    with pytest.raises(MalformedMessage):
                        accept(dataclasses.replace(message, vector=wrong), kind, session)


@pytest.mark.slow
@settings(
    # tests/fuzz gives thousands of mutations to every reader; here the checksum is right, too.
    max_examples=80,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_garbage_gives_success_or_a_remote_error(spoken, data):
    session, found = spoken
    kind = data.draw(st.sampled_from(sorted(found, key=lambda kind: kind.code)))
    good = bytearray(found[kind].to_bytes()[:-16])
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(0, len(good) - 1))
        good[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(-3, 3))
    body = bytes(good[: len(good) + cut]) if cut < 0 else bytes(good) + bytes(cut)
    honest = data.draw(st.booleans())
    checksum = hashlib.sha256(body).digest()[:16] if honest else data.draw(st.binary(max_size=20))
    try:
        message = decode(body + checksum, kind, session)
    except RemoteProtocolError:
        return
    assert message.to_bytes() == body + checksum


@given(st.binary(max_size=400))
def test_random_bytes_are_refused(spoken, data):
    session, found = spoken
    for kind in found:
        with pytest.raises(RemoteProtocolError):
            decode(data, kind, session)


def test_a_contributions_vector_cannot_be_written_to(spoken):
    _, found = spoken
    with pytest.raises(ValueError, match="read-only"):
        found[Contribution].vector[0] = 1
