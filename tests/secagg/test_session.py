"""Sessions and requests: canonical, and refused when they make no sense."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerosum.secagg import (
    ClientParty,
    IdealClientParty,
    IdealServerParty,
    LocalProtocolError,
    MalformedMessage,
    RemoteProtocolError,
    ServerParty,
    Session,
    UnknownVersion,
    WrongParty,
    request_digest,
)


def test_a_session_survives_its_bytes(lab):
    session = lab.session(cohort=(0, 5, (1 << 64) - 1), bounds=b"\0\1", run_id=b"r" * 300)
    again = Session.from_bytes(session.to_bytes())
    assert again == session
    assert again.digest == session.digest


def test_the_digest_tells_every_field_apart(lab):
    base = {"n": 4, "threshold": 2}
    changes: list[dict[str, Any]] = [
        {},
        {"run_id": b"another"},
        {"round": 2},
        {"attempt": 1},
        {"roster_version": 8},
        {"cohort": (10, 13, 16, 20)},
        {"threshold": 3},
        {"min_survivors": 2},
        {"ring_bits": 21},
        {"vector_length": 12},
        {"bounds": b"boundsx"},
        {"run_id": b"a runb", "bounds": b"ounds"},
        {"roster_digest": b"d" * 32},
        {"mode": "malicious", "roster_digest": b"d" * 32},
        {"degree": 2},
        {"degree": 2, "graph_seed": b"h" * 32},
        {"mode": "malicious", "degree": 2},
        {"protocol": "ideal"},
        {"protocol": "none"},
        {"protocol": "ideal", "noise_draw": "summed"},
    ]
    digests = {lab.session(**{**base, **change}).digest for change in changes}
    assert len(digests) == len(changes)


@pytest.mark.parametrize(
    "change",
    [
        {"run_id": b""},
        {"round": -1},
        {"attempt": 1 << 64},
        {"cohort": (3,)},
        {"cohort": (3, 3)},
        {"cohort": (4, 3)},
        {"cohort": (-1, 3)},
        {"cohort": (3, 1 << 64)},
        {"threshold": 0},
        {"threshold": 5},
        {"min_survivors": 0},
        {"min_survivors": 6},
        {"ring_bits": 0},
        {"ring_bits": 65},
        {"vector_length": 0},
        {"degree": 0},
        {"degree": 5},
        {"degree": 3},
        {"degree": 2, "graph_seed": b""},
        {"degree": 2, "graph_seed": b"short"},
        {"graph_seed": b"g" * 32},
        {"roster_digest": b"short"},
        {"mode": "malicious", "roster_digest": b""},
        {"mode": "malicious", "degree": 2, "graph_seed": b"g" * 32},
        {"version": 1},
        {"noise_draw": "summed"},
        {"protocol": "none", "noise_draw": "summed"},
    ],
)
def test_session_parameters_out_of_range_are_refused(lab, change):
    with pytest.raises(LocalProtocolError):
        lab.session(5, **{"threshold": 1, **change})


@given(st.data())
def test_damaged_session_bytes_are_a_peers_error(lab, data):
    good = lab.session(4).to_bytes()
    kind = data.draw(st.sampled_from(["cut", "random", "extend", "overwrite"]))
    if kind == "cut":
        bad = good[: data.draw(st.integers(0, len(good) - 1))]
    elif kind == "random":
        bad = data.draw(st.binary(max_size=300))
    elif kind == "extend":
        bad = good + data.draw(st.binary(min_size=1, max_size=9))
    else:
        place = data.draw(st.integers(0, len(good) - 8))
        bad = good[:place] + data.draw(st.binary(min_size=8, max_size=8)) + good[place + 8 :]
    try:
        session = Session.from_bytes(bad)
    except RemoteProtocolError:
        return
    assert session.to_bytes() == bad


def test_noise_that_nobody_would_add_is_no_session_of_a_peers_either(lab):
    """The bytes of a masked session whose noise a server would draw: its vectors have none."""
    summed = lab.session(4, protocol="ideal", noise_draw="summed").to_bytes()
    at = len(b"zerosum session\0") + 2 * 8
    assert summed[at : at + 16] == (1).to_bytes(8, "big") * 2
    masked = summed[:at] + bytes(8) + summed[at + 8 :]
    with pytest.raises(MalformedMessage, match='noise_draw = "summed" under protocol = "pairwise"'):
        Session.from_bytes(masked)
    for place in (at, at + 8):
        unknown = summed[:place] + (9).to_bytes(8, "big") + summed[place + 8 :]
        with pytest.raises(MalformedMessage, match="unknown protocol or draw of noise"):
            Session.from_bytes(unknown)


@pytest.mark.parametrize("protocol", ["pairwise", "ideal", "none"])
def test_a_party_serves_sessions_of_its_own_protocol_alone(lab, protocol):
    session = lab.session(4, protocol=protocol)
    parties: dict[str, list[Callable[[], Any]]] = {
        "pairwise": [lambda: ClientParty(session, 10), lambda: ServerParty(session)],
        "ideal": [lambda: IdealClientParty(session, 10), lambda: IdealServerParty(session)],
        "none": [
            lambda: IdealClientParty(session, 10),
            lambda: IdealServerParty(session, keep=True),
        ],
    }
    for make in parties.pop(protocol):
        assert make().stage == "advertise"
    clients = {"pairwise": ClientParty, "ideal": IdealClientParty, "none": IdealClientParty}
    for other, (_, server) in parties.items():
        with pytest.raises(LocalProtocolError, match=f'protocol = "{protocol}"'):
            server()
        if clients[other] is not clients[protocol]:
            with pytest.raises(LocalProtocolError, match=f'protocol = "{protocol}"'):
                clients[other](session, 10)


def test_another_version_is_named(lab):
    data = bytearray(lab.session(3).to_bytes())
    data[23] = 9
    with pytest.raises(UnknownVersion, match="version 9"):
        Session.from_bytes(bytes(data))


@pytest.mark.parametrize("version", [2, 3])
def test_a_session_keeps_its_version_on_the_wire(lab, version):
    session = lab.session(3, version=version)
    assert Session.from_bytes(session.to_bytes()) == session
    assert session.digest != lab.session(3, version=5 - version).digest


@pytest.mark.parametrize("version", [0, 1, 4, 1 << 64])
def test_a_session_of_a_version_that_is_not_spoken_is_refused(lab, version):
    with pytest.raises(LocalProtocolError, match="only 2 and 3"):
        lab.session(3, version=version)


def test_positions_follow_the_cohort(lab):
    session = lab.session(cohort=(2, 30, 400))
    assert [session.position(index) for index in session.cohort] == [0, 1, 2]
    with pytest.raises(WrongParty):
        session.position(3)


def test_the_borders_of_a_requests_parts_count():
    requests = [(), (b"",), (b"ab",), (b"a", b"b"), (b"", b"ab"), (b"ab", b"")]
    assert len({request_digest(*parts) for parts in requests}) == len(requests)
    assert len(request_digest()) == 32
