"""Keys that a node was given before a run: its signing key, and the roster of all public ones.

Both come from files of the node's own, never from the server. Files:

- the identity key: 32 raw bytes, secret: its owner's alone to read;
- the roster: :class:`~zerosum.secagg.SignedRoster` bytes, checked against the authority's public
  key, 64 hexadecimal digits in the node's configuration.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from zerosum.client.files.private_files import OpenToOthersError, open_regular, read_private
from zerosum.secagg import (
    IdentityKey,
    LocalProtocolError,
    RemoteProtocolError,
    Roster,
    SignedRoster,
)


class ProvisioningError(Exception):
    """Unusable key or roster; the message names the setting, its value and the cure."""


@dataclass(frozen=True)
class Credentials:
    """Signing key of a client, and the roster that holds its public part."""

    identity: IdentityKey
    roster: Roster

    @classmethod
    def of(cls, identity: IdentityKey, roster: Roster, index: int) -> "Credentials":
        """Check that the key is the one that the roster holds for this client.

        Parameters
        ----------
        identity : IdentityKey
            This node's signing key.
        roster : Roster
            Signed by the authority.
        index : int
            This node's.

        Returns
        -------
        Credentials
            That fit each other.

        Raises
        ------
        ProvisioningError
            If it is another one.
        """
        if roster.entries.get(index) != identity.public:
            raise ProvisioningError(
                f"identity: its public key {identity.public.hex()} is not the one that roster "
                f"version {roster.version} holds for client {index}; give this node its own key, "
                "or have the roster signed with this one"
            )
        return cls(identity, roster)


def read_identity(path: str, name: str = "identity") -> IdentityKey:
    """Read a signing key.

    Parameters
    ----------
    path : str
        Its file.
    name : str
        Key or option that named it, for errors.

    Returns
    -------
    IdentityKey
        Of this node.

    Raises
    ------
    ProvisioningError
        If the file is absent, does not hold 32 bytes, or others than its owner can reach it.
    """
    try:
        return IdentityKey(read_private(Path(path)))
    except OpenToOthersError as error:
        raise ProvisioningError(f"{name}: {error}") from None
    except (OSError, ValueError, LocalProtocolError) as error:
        raise ProvisioningError(
            f"{name} = {path!r} is no signing key ({error}): make one with zerosum keys new"
        ) from None


def read_roster(path: str, authority: str) -> Roster:
    """Read a roster and check who signed it.

    Parameters
    ----------
    path : str
        File of a signed roster.
    authority : str
        The authority's public key: 64 hexadecimal digits, of either case.

    Returns
    -------
    Roster
        As the authority signed it.

    Raises
    ------
    ProvisioningError
        If it is absent, damaged, or not signed by the authority.
    """
    try:
        public = bytes.fromhex(authority)
    except ValueError:
        public = b""
    if len(public) != 32 or len(authority) != 64:
        raise ProvisioningError(
            f"authority = {authority!r} is not a public key: it has 64 hexadecimal digits, as "
            "zerosum keys new prints them"
        )
    try:
        with os.fdopen(open_regular(Path(path)), "rb") as file:
            return SignedRoster.from_bytes(file.read()).admit(public)
    except (OSError, ValueError, RemoteProtocolError, LocalProtocolError) as error:
        raise ProvisioningError(
            f"roster = {path!r} cannot be used ({error}): it is a file that zerosum roster "
            "add wrote, signed with the key of authority"
        ) from None
