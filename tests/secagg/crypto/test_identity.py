"""Signing keys and rosters: canonical, signed by their authority, and never going back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerosum.secagg import (
    BadSignature,
    ClientParty,
    IdentityKey,
    LocalProtocolError,
    MalformedMessage,
    OldRoster,
    RemoteProtocolError,
    Roster,
    ServerMode,
    ServerParty,
    SharedCache,
    SignedRoster,
    WrongRoster,
)

AUTHORITY = IdentityKey(b"authority" + bytes(23))
MALICIOUS = ServerMode.MALICIOUS
# RFC 8032, section 7.1, test 2.
RFC_8032 = {
    "secret": "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
    "public": "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
    "message": "72",
    "signature": "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
}


def test_a_key_gives_the_vector_of_rfc_8032():
    key = IdentityKey(bytes.fromhex(RFC_8032["secret"]))
    assert key.public.hex() == RFC_8032["public"]
    assert key.sign(bytes.fromhex(RFC_8032["message"])).hex() == RFC_8032["signature"]
    assert Roster(0, {4: key.public}).verifies(
        4, bytes.fromhex(RFC_8032["signature"]), bytes.fromhex(RFC_8032["message"])
    )


def test_a_key_survives_its_bytes_and_keys_are_fresh():
    key = IdentityKey.generate()
    assert IdentityKey(key.to_bytes()).public == key.public
    assert IdentityKey.generate().public != key.public
    with pytest.raises(LocalProtocolError):
        IdentityKey(b"short")


def test_a_signature_counts_for_its_signer_and_its_message_only(lab):
    roster = lab.roster((1, 2, 3))
    signature = lab.identity(1).sign(b"message")
    for cache in (None, SharedCache().of(b"s")):
        assert roster.verifies(1, signature, b"message", cache)
        assert roster.verifies(1, signature, b"message", cache)
        assert not roster.verifies(2, signature, b"message", cache)
        assert not roster.verifies(9, signature, b"message", cache)
        assert not roster.verifies(1, signature, b"messag", cache)
        assert not roster.verifies(1, signature[:-1], b"message", cache)
        assert not roster.verifies(1, bytes(64), b"message", cache)


def test_rosters_survive_their_bytes_and_are_equal_only_when_they_are(lab):
    roster = lab.roster((5, 1, (1 << 64) - 1))
    again = Roster.from_bytes(roster.to_bytes())
    assert again == roster
    assert again.digest == roster.digest
    assert list(again.entries) == sorted(roster.entries)
    others = [
        Roster(8, roster.entries),
        Roster(7, {**roster.entries, 6: lab.identity(6).public}),
        Roster(7, {**roster.entries, 1: lab.identity(6).public}),
    ]
    assert len({roster.digest, *(other.digest for other in others)}) == 4


@pytest.mark.parametrize(
    ("version", "entries"),
    [
        (-1, {}),
        (1 << 64, {}),
        (0, {-1: bytes(32)}),
        (0, {1 << 64: bytes(32)}),
        (0, {1: bytes(31)}),
        (0, {1: bytes(32), 2: bytes(32)}),
    ],
)
def test_rosters_out_of_range_are_refused(version, entries):
    with pytest.raises(LocalProtocolError):
        Roster(version, entries)


@given(st.data())
def test_damaged_rosters_are_a_peers_error(lab, data):
    good = SignedRoster.sign(lab.roster((1, 2, 3)), AUTHORITY).to_bytes()
    place = data.draw(st.integers(0, len(good)))
    bad = (
        good[:place]
        + data.draw(st.binary(max_size=9))
        + good[place + data.draw(st.integers(0, 9)) :]
    )
    try:
        signed = SignedRoster.from_bytes(bad)
        assert signed.to_bytes() == bad
        signed.admit(AUTHORITY.public)
    except RemoteProtocolError:
        return
    assert bad == good


def test_a_roster_of_another_authority_is_refused(lab):
    signed = SignedRoster.sign(lab.roster((1, 2)), IdentityKey.generate())
    with pytest.raises(BadSignature):
        signed.admit(AUTHORITY.public)
    moved = SignedRoster(
        lab.roster((1, 9)), SignedRoster.sign(lab.roster((1, 2)), AUTHORITY).signature
    )
    with pytest.raises(BadSignature):
        moved.admit(AUTHORITY.public)


def test_a_roster_never_goes_back(lab):
    old, new = (lab.roster((1, 2, 3), version) for version in (6, 7))
    other = Roster(7, {1: lab.identity(1).public})

    def admit(roster, last):
        return SignedRoster.sign(roster, AUTHORITY).admit(AUTHORITY.public, last)

    assert admit(new, None) == new
    assert admit(new, old) == new
    assert admit(new, new) == new
    for refused in (old, other):
        with pytest.raises(OldRoster):
            admit(refused, new)


def test_an_index_out_of_order_is_not_canonical(lab):
    data = lab.roster((1, 2), 7, 0).to_bytes()
    head, a, b = data[:-80], data[-80:-40], data[-40:]
    assert Roster.from_bytes(head + a + b) == lab.roster((1, 2), 7, 0)
    for bad in (head + b + a, head + a + a):
        with pytest.raises(MalformedMessage):
            Roster.from_bytes(bad)


def test_a_party_refuses_a_session_of_another_roster(lab):
    session = lab.session(4, mode=MALICIOUS, roster_version=7)
    cohort = session.cohort
    older, newer = (lab.roster(cohort, version) for version in (6, 8))
    other = Roster(7, {**lab.roster(cohort).entries, cohort[1]: lab.identity(9999).public})
    smaller = Roster(7, {i: lab.identity(i).public for i in cohort[:3]})
    key = lab.identity(cohort[0])
    for roster, error in ((older, WrongRoster), (newer, OldRoster), (other, WrongRoster)):
        with pytest.raises(error):
            ClientParty(session, cohort[0], identity=key, roster=roster)
        with pytest.raises(error):
            ServerParty(session, roster=roster)
    bound = lab.session(4, mode=MALICIOUS, roster_digest=smaller.digest)
    with pytest.raises(WrongRoster, match="not in the roster"):
        ClientParty(bound, cohort[0], identity=key, roster=smaller)
    ClientParty(session, cohort[0], identity=key, roster=lab.roster(cohort))


def test_identity_and_roster_are_needed_and_must_fit(lab):
    session = lab.session(4, mode=MALICIOUS)
    a, b = session.cohort[:2]
    roster = lab.roster(session.cohort)
    for given_ in ({}, {"roster": roster}, {"identity": lab.identity(a)}):
        with pytest.raises(LocalProtocolError, match="identity key and the roster"):
            ClientParty(session, a, **given_)
    with pytest.raises(LocalProtocolError, match="is not the one"):
        ClientParty(session, a, identity=lab.identity(b), roster=roster)
    with pytest.raises(LocalProtocolError, match="roster"):
        ServerParty(session)
    state = ClientParty(session, a, identity=lab.identity(a), roster=roster).export()
    with pytest.raises(LocalProtocolError, match="identity key and the roster"):
        ClientParty.restore(state)


def test_a_roster_that_its_reader_would_not_build_is_malformed(lab):
    roster = lab.roster((10, 13, 16))
    data = bytearray(roster.to_bytes())
    at = len(data) - 40 * len(roster) + 8
    data[at + 40 : at + 72] = data[at : at + 32]  # the second client has the first one's key
    with pytest.raises(MalformedMessage, match="not valid: two clients"):
        Roster.from_bytes(bytes(data))


def test_a_signed_roster_is_checked_with_a_whole_key(lab):
    authority = lab.identity(1)
    signed = SignedRoster.sign(lab.roster((10, 13, 16)), authority)
    assert signed.admit(authority.public) == signed.roster
    with pytest.raises(LocalProtocolError, match="32 bytes, not 31"):
        signed.admit(authority.public[:31])


def test_equal_rosters_hash_alike(lab):
    roster = lab.roster((10, 13, 16))
    assert len({roster, Roster.from_bytes(roster.to_bytes()), lab.roster((10, 13, 17))}) == 2
