"""A node's keys are its own, whole, and signed by the authority that it knows."""

import pytest

from zerosum.client.files.private_files import write_private
from zerosum.client.protocol.node_keys import (
    Credentials,
    ProvisioningError,
    read_identity,
    read_roster,
)
from zerosum.secagg import IdentityKey, Roster, SignedRoster

AUTHORITY = IdentityKey(b"a" * 32)
KEYS = [IdentityKey(bytes([index]) * 32) for index in range(3)]
ROSTER = Roster(4, {index: key.public for index, key in enumerate(KEYS)})


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "roster"
    file.write_bytes(SignedRoster.sign(ROSTER, AUTHORITY).to_bytes())
    return file


def test_a_signed_roster_is_read_with_either_case_of_the_authority(path):
    assert read_roster(str(path), AUTHORITY.public.hex()) == ROSTER
    assert read_roster(str(path), AUTHORITY.public.hex().upper()) == ROSTER


@pytest.mark.parametrize(
    "authority", ["", "00", "zz" * 32, "00" * 33, AUTHORITY.public.hex() + " "]
)
def test_an_authority_that_is_no_key_is_named(path, authority):
    with pytest.raises(ProvisioningError, match=r"authority = .*64 hexadecimal digits"):
        read_roster(str(path), authority)


@pytest.mark.parametrize("damage", ["absent", "empty", "short", "longer", "flipped", "another key"])
def test_a_roster_that_is_not_the_authoritys_is_refused(path, damage):
    data, authority = path.read_bytes(), AUTHORITY.public.hex()
    if damage == "absent":
        path.unlink()
    elif damage == "another key":
        authority = KEYS[0].public.hex()
    else:
        flipped = data[:-1] + bytes([data[-1] ^ 1])
        path.write_bytes(
            {"empty": b"", "short": data[:-1], "longer": data + b"x", "flipped": flipped}[damage]
        )
    with pytest.raises(ProvisioningError, match=r"roster = .*cannot be used"):
        read_roster(str(path), authority)


def test_a_key_is_thirty_two_bytes(tmp_path):
    file = tmp_path / "key"
    write_private(file, KEYS[1].to_bytes())
    assert read_identity(str(file)).public == KEYS[1].public
    for data in (b"", b"x" * 31, b"x" * 33):
        file.write_bytes(data)
        with pytest.raises(ProvisioningError, match=r"identity = .*zerosum keys new"):
            read_identity(str(file))
    with pytest.raises(ProvisioningError, match="identity"):
        read_identity(str(tmp_path / "absent"))


def test_a_key_of_another_client_is_refused():
    assert Credentials.of(KEYS[1], ROSTER, 1).identity is KEYS[1]
    for index in (0, 3):
        with pytest.raises(ProvisioningError, match=f"for client {index}"):
            Credentials.of(KEYS[1], ROSTER, index)
