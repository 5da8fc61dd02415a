"""Identities: long-lived signing keys, and the roster of them that every client holds.

Signatures are Ed25519 (RFC 8032). The roster is signed by an authority whose key clients hold
before the run: the server is never the authority for keys.
"""

import hashlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from zerosum.secagg.crypto.cache import SessionCache
from zerosum.secagg.errors import (
    BadSignature,
    LocalProtocolError,
    MalformedMessage,
    OldRoster,
    WrongRoster,
)
from zerosum.secagg.randomness import RandomSource, SystemRandomness
from zerosum.secagg.session import Session
from zerosum.secagg.wire import Reader, u64

PUBLIC_KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64

_ROSTER_TAG = b"zerosum roster\0"
_SIGNED_TAG = b"zerosum signed roster\0"
_U64_LIMIT = 1 << 64


class IdentityKey:
    """The signing key of a client, or of a roster's authority.

    Parameters
    ----------
    private : bytes
        32 bytes.

    Raises
    ------
    LocalProtocolError
        If there are not 32.
    """

    def __init__(self, private: bytes) -> None:
        if len(private) != PUBLIC_KEY_BYTES:
            raise LocalProtocolError(f"an identity key has 32 bytes, not {len(private)}")
        self._private = bytes(private)
        self._key = Ed25519PrivateKey.from_private_bytes(self._private)
        self.public = self._key.public_key().public_bytes_raw()

    @classmethod
    def generate(cls, source: RandomSource | None = None) -> "IdentityKey":
        """Draw a key; from the operating system by default."""
        return cls((source or SystemRandomness()).take(PUBLIC_KEY_BYTES))

    def to_bytes(self) -> bytes:
        """Return the private key: 32 bytes, to be kept secret."""
        return self._private

    def sign(self, message: bytes) -> bytes:
        """Return the 64 bytes of the signature of a message; the same message gets the same."""
        return self._key.sign(message)


def _is_signed(key: Ed25519PublicKey, signature: bytes, message: bytes) -> bool:
    try:
        key.verify(signature, message)
    except InvalidSignature:
        return False
    return True


@dataclass(frozen=True)
class Roster:
    """The clients of a run: roster index to identity key.

    Parameters
    ----------
    version : int
        Grows with every change; below 2^64.
    entries : mapping of int to bytes
        Roster index, below 2^64, to 32-byte public key; no two are equal.

    Raises
    ------
    LocalProtocolError
        If a value is outside what is said above.
    """

    version: int
    entries: Mapping[int, bytes]

    def __post_init__(self) -> None:
        ordered = {int(index): bytes(self.entries[index]) for index in sorted(self.entries)}
        object.__setattr__(self, "entries", MappingProxyType(ordered))
        if not 0 <= self.version < _U64_LIMIT:
            raise LocalProtocolError(f"roster version {self.version} is not in 0 .. 2^64 - 1")
        if not all(0 <= index < _U64_LIMIT for index in ordered):
            raise LocalProtocolError("a roster index is not in 0 .. 2^64 - 1")
        if any(len(key) != PUBLIC_KEY_BYTES for key in ordered.values()):
            raise LocalProtocolError("an identity key has 32 bytes")
        if len(set(ordered.values())) != len(ordered):
            raise LocalProtocolError("two clients of a roster have the same identity key")

    def __hash__(self) -> int:
        return hash(self.digest)

    def __len__(self) -> int:
        return len(self.entries)

    def to_bytes(self) -> bytes:
        """Return the canonical bytes: equal rosters, and only those, have equal bytes."""
        head = _ROSTER_TAG + u64(self.version) + u64(len(self.entries))
        return head + b"".join(u64(index) + key for index, key in self.entries.items())

    @classmethod
    def from_bytes(cls, data: bytes) -> "Roster":
        """Read canonical bytes that came from a peer.

        Parameters
        ----------
        data : bytes

        Returns
        -------
        Roster

        Raises
        ------
        MalformedMessage
            If they are anything else.
        """
        reader = Reader(bytes(data))
        if reader.take(len(_ROSTER_TAG)) != _ROSTER_TAG:
            raise MalformedMessage("these are not the bytes of a roster")
        version, count = reader.u64(), reader.u64()
        if reader.remaining != count * (8 + PUBLIC_KEY_BYTES):
            raise MalformedMessage(f"{count} entries do not fit the roster's length")
        pairs = [(reader.u64(), reader.take(PUBLIC_KEY_BYTES)) for _ in range(count)]
        if any(a[0] >= b[0] for a, b in itertools.pairwise(pairs)):
            raise MalformedMessage("the roster's indices are not strictly ascending")
        try:
            return cls(version, dict(pairs))
        except LocalProtocolError as error:
            raise MalformedMessage(f"a roster that is not valid: {error}") from error

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the canonical bytes, which begin with a domain tag."""
        return hashlib.sha256(self.to_bytes()).digest()

    @cached_property
    def _keys(self) -> dict[int, Ed25519PublicKey]:
        return {}

    @cached_property
    def _fitting(self) -> set[bytes]:
        return set()

    def check_session(self, session: Session) -> None:
        """Refuse a session that is bound to another roster, or asks a client not in this one.

        Parameters
        ----------
        session : Session

        Raises
        ------
        WrongRoster
            ``OldRoster`` where the session's is older.
        """
        if session.digest in self._fitting:
            return
        if session.roster_version != self.version:
            kind = OldRoster if session.roster_version < self.version else WrongRoster
            raise kind(
                f"the session is of roster version {session.roster_version}, not {self.version}"
            )
        if session.roster_digest and session.roster_digest != self.digest:
            raise WrongRoster(f"the session is bound to another roster of version {self.version}")
        if not self.entries.keys() >= set(session.cohort):
            raise WrongRoster("a client of the cohort is not in the roster")
        self._fitting.clear()
        self._fitting.add(session.digest)

    def verifies(
        self, index: int, signature: bytes, message: bytes, cache: SessionCache | None = None
    ) -> bool:
        """Verify that a signature of a message is by the client with this roster index.

        Parameters
        ----------
        index : int
        signature, message : bytes
        cache : SessionCache, optional
            Remembers what was found good, for parties of one process.

        Returns
        -------
        bool
            False also where the roster does not hold the client.
        """
        public = self.entries.get(index)
        if public is None or len(signature) != SIGNATURE_BYTES:
            return False
        known = (public, signature, message)
        if cache is not None and known in cache.verified:
            return True
        key = self._keys.get(index)
        if key is None:
            key = self._keys[index] = Ed25519PublicKey.from_public_bytes(public)
        good = _is_signed(key, signature, message)
        if good and cache is not None:
            cache.verified.add(known)
        return good


@dataclass(frozen=True)
class SignedRoster:
    """A roster with its authority's signature.

    Parameters
    ----------
    roster : Roster
    signature : bytes
        64 bytes.
    """

    roster: Roster
    signature: bytes

    @classmethod
    def sign(cls, roster: Roster, authority: IdentityKey) -> "SignedRoster":
        """Sign a roster as its authority.

        Parameters
        ----------
        roster : Roster
        authority : IdentityKey

        Returns
        -------
        SignedRoster
        """
        return cls(roster, authority.sign(_SIGNED_TAG + roster.digest))

    def to_bytes(self) -> bytes:
        """Return the canonical bytes: the signature, then the roster's."""
        return self.signature + self.roster.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> "SignedRoster":
        """Read canonical bytes that came from a peer; :meth:`admit` then checks them.

        Raises
        ------
        MalformedMessage
        """
        data = bytes(data)
        return cls(Roster.from_bytes(data[SIGNATURE_BYTES:]), data[:SIGNATURE_BYTES])

    def admit(self, authority: bytes, last: Roster | None = None) -> Roster:
        """Return the roster, if it is the authority's and does not go back.

        Parameters
        ----------
        authority : bytes
            The 32-byte public key that the client held before.
        last : Roster, optional
            The one admitted last.

        Raises
        ------
        BadSignature
            If the authority did not sign it.
        OldRoster
            If its version is lower than the last one's, or the same with other entries.
        LocalProtocolError
            If the authority's key has not 32 bytes.
        """
        if len(authority) != PUBLIC_KEY_BYTES:
            raise LocalProtocolError(f"an authority's key has 32 bytes, not {len(authority)}")
        key = Ed25519PublicKey.from_public_bytes(authority)
        if not _is_signed(key, self.signature, _SIGNED_TAG + self.roster.digest):
            raise BadSignature("the roster is not signed by its authority")
        if last is not None and self.roster.version < last.version:
            raise OldRoster(f"roster version {self.roster.version} comes before {last.version}")
        if last is not None and self.roster.version == last.version and self.roster != last:
            raise OldRoster(f"another roster of version {last.version} was admitted before")
        return self.roster
