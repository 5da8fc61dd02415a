"""What a node was given before a run: its signing key, and the roster of everybody's.

Both come from files of the node's own, never from the server. Files:

- the identity key: 32 raw bytes, secret;
- the roster: :class:`~zerosum.secagg.SignedRoster` bytes, checked against the authority's public
  key, 64 hexadecimal digits in the node's configuration.
"""

from pathlib import Path

from zerosum.secagg import (
    IdentityKey,
    LocalProtocolError,
    RemoteProtocolError,
    Roster,
    SignedRoster,
)

AUTHORITY_DIGITS = 64


class ProvisioningError(Exception):
    """A key or roster cannot be used; the message names the file and the cure."""


def read_identity(path: str) -> IdentityKey:
    """Read a node's signing key.

    Raises
    ------
    ProvisioningError
        If the file is absent or does not hold 32 bytes.
    """
    try:
        return IdentityKey(Path(path).read_bytes())
    except (OSError, LocalProtocolError) as error:
        raise ProvisioningError(f"identity = {path!r} is no signing key: {error}") from None


def read_roster(path: str, authority: str) -> Roster:
    """Read a roster and check who signed it.

    Parameters
    ----------
    path : str
        File of a signed roster.
    authority : str
        The authority's public key: 64 hexadecimal digits.

    Raises
    ------
    ProvisioningError
        If it is absent, damaged, or not signed by the authority.
    """
    try:
        public = bytes.fromhex(authority)
    except ValueError:
        public = b""
    if len(authority) != AUTHORITY_DIGITS or not public:
        raise ProvisioningError(
            f"authority = {authority!r} is not a public key: 64 hexadecimal digits are needed"
        )
    try:
        return SignedRoster.from_bytes(Path(path).read_bytes()).admit(public)
    except (OSError, RemoteProtocolError, ValueError) as error:
        raise ProvisioningError(f"roster = {path!r} cannot be used: {error}") from None
