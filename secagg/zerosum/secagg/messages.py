"""The frozen messages of a session, and their canonical bytes.

Every message starts with a magic, the protocol version, its type and the session's digest, and
ends with a checksum, which finds accidents and stops nobody. A reader knows from the session how
long each field must be, refuses everything else, and never allocates more than the message
holds. Parties accept bytes or the objects themselves.
"""

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self, TypeVar

from numpy.typing import NDArray

from zerosum.secagg.errors import MalformedMessage, OutOfOrder, UnknownVersion, WrongSession
from zerosum.secagg.ring import Ring
from zerosum.secagg.session import DIGEST_BYTES, PROTOCOL_VERSION, Session
from zerosum.secagg.shamir import LIMBS
from zerosum.secagg.wire import (
    Reader,
    bitmap_bytes,
    bitmap_count,
    bitmap_has,
    check_bitmap,
    from_positions,
    position_bytes,
    u64,
)

KEY_BYTES = 32
SIGNATURE_BYTES = 64
SHARE_BYTES = 4 * LIMBS
SEALED_BYTES = 2 * SHARE_BYTES + 16

_MAGIC = b"zsag"
_HEAD = len(_MAGIC) + 2 + DIGEST_BYTES
_CHECKSUM_BYTES = 16
_ADVERT_TAG = b"zerosum advert\0"
_SURVIVORS_TAG = b"zerosum survivors\0"


def neighbours_bytes(of: Session) -> int:
    """Return how many bytes of an advert say which neighbours its client drew."""
    return of.degree * position_bytes(of.size) if of.drawn else 0


def advert_bytes(of: Session) -> int:
    """Return the length of one client's advert within a message."""
    signature = SIGNATURE_BYTES if of.signed else 0
    return 2 * KEY_BYTES + DIGEST_BYTES + neighbours_bytes(of) + signature


def advert_statement(session: bytes, index: int, fields: bytes) -> bytes:
    """Return what client ``index`` signs at advertise: its advert, without the signature."""
    return _ADVERT_TAG + session + u64(index) + fields


def survivors_statement(session: bytes, request: bytes, survivors: bytes) -> bytes:
    """Return what every client signs at confirm: the request and U3, a bitmap."""
    return _SURVIVORS_TAG + session + request + survivors


def _checksum(*parts: bytes | memoryview) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()[:_CHECKSUM_BYTES]


@dataclass(frozen=True)
class Message:
    """What all messages share.

    Parameters
    ----------
    session : bytes
        Digest of the session that the message belongs to.
    """

    session: bytes
    code: ClassVar[int]

    @cached_property
    def _encoded(self) -> bytes:
        return self._encode()

    def _encode(self) -> bytes:
        head = _MAGIC + bytes((PROTOCOL_VERSION, self.code)) + self.session
        parts = (head, *self._parts())
        return b"".join((*parts, _checksum(*parts)))

    def _parts(self) -> tuple[bytes, ...]:
        raise TypeError(f"{type(self).__name__} has no canonical bytes")

    def to_bytes(self) -> bytes:
        """Return the canonical bytes."""
        return self._encoded

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the canonical bytes."""
        return hashlib.sha256(self.to_bytes()).digest()

    @property
    def wire_bytes(self) -> int:
        """Length of the canonical bytes."""
        return len(self.to_bytes())

    @classmethod
    def read(cls, session: bytes, reader: Reader, of: Session) -> Self:
        """Read the fields after the head; lengths are checked by :meth:`validate`."""
        raise TypeError(f"{cls.__name__} has no canonical bytes")

    def validate(self, of: Session) -> None:
        """Refuse fields whose shape the session excludes."""


M = TypeVar("M", bound=Message)


def _check_length(data: bytes, size: int, what: str) -> None:
    if len(data) != size:
        raise MalformedMessage(f"{what}: {size} bytes expected, {len(data)} found")


@dataclass(frozen=True)
class Advert(Message):
    """Advertise, client to server: what one client makes known.

    Two public keys and a commitment; the neighbours that it drew, as ascending positions, on a
    sparse graph against a malicious server; its signature against a malicious server.
    """

    code = 1
    index: int
    channel_key: bytes
    mask_key: bytes
    commitment: bytes
    neighbours: bytes = b""
    signature: bytes = b""

    def _parts(self) -> tuple[bytes, ...]:
        return (u64(self.index), self.entry)

    @classmethod
    def read(cls, session: bytes, reader: Reader, of: Session) -> Self:
        """Read the fields after the head."""
        sizes = (KEY_BYTES, KEY_BYTES, DIGEST_BYTES, neighbours_bytes(of))
        index, (channel, mask, committed, drawn) = reader.u64(), map(reader.take, sizes)
        signature = reader.take(SIGNATURE_BYTES if of.signed else 0)
        return cls(session, index, channel, mask, committed, drawn, signature)

    def validate(self, of: Session) -> None:
        """Check the lengths, and that the neighbours are as many others as they must be."""
        _check_length(self.channel_key, KEY_BYTES, "channel key")
        _check_length(self.mask_key, KEY_BYTES, "mask key")
        _check_length(self.commitment, DIGEST_BYTES, "commitment")
        _check_length(self.signature, SIGNATURE_BYTES if of.signed else 0, "signature")
        _check_length(self.neighbours, neighbours_bytes(of), "neighbours")
        check_neighbours(self.neighbours, of.position(self.index), of)

    @property
    def fields(self) -> bytes:
        """The bytes that are signed."""
        return self.channel_key + self.mask_key + self.commitment + self.neighbours

    @property
    def entry(self) -> bytes:
        """The bytes that other clients get of this advert."""
        return self.fields + self.signature


def check_neighbours(neighbours: bytes, position: int, of: Session) -> None:
    """Refuse neighbours that are not strictly ascending positions of others in the cohort."""
    if not neighbours:
        return
    places = from_positions(neighbours, of.size)
    if places[-1] >= of.size or (places[1:] <= places[:-1]).any() or (places == position).any():
        raise MalformedMessage("a client's neighbours are not a set of others in the cohort")


@dataclass(frozen=True)
class Adverts(Message):
    """Share, server to client: the adverts of U1, on a sparse graph of its neighbours in U1.

    On the complete graph every client gets the same bytes. ``present`` is a bitmap in cohort
    order; ``entries`` holds :func:`advert_bytes` for each client in it, the recipient too.
    """

    code = 2
    present: bytes
    entries: bytes

    def _parts(self) -> tuple[bytes, ...]:
        return (self.present, self.entries)

    @classmethod
    def read(cls, session: bytes, reader: Reader, of: Session) -> Self:
        """Read the fields after the head."""
        present = reader.take(bitmap_bytes(of.size))
        return cls(session, present, reader.take(advert_bytes(of) * bitmap_count(present)))

    def validate(self, of: Session) -> None:
        """Check the bitmap and that there is an entry for each client in it."""
        check_bitmap(self.present, of.size)
        _check_length(self.entries, advert_bytes(of) * bitmap_count(self.present), "adverts")


@dataclass(frozen=True)
class Shares(Message):
    """Share, client to server: one sealed pair of shares for each neighbour in U1.

    ``recipients`` is a bitmap in cohort order; ``sealed`` holds 88 bytes for each client in it.
    """

    code = 3
    index: int
    recipients: bytes
    sealed: bytes

    def _parts(self) -> tuple[bytes, ...]:
        return (u64(self.index), self.recipients, self.sealed)

    @classmethod
    def read(cls, session: bytes, reader: Reader, of: Session) -> Self:
        """Read the fields after the head."""
        index = reader.u64()
        recipients = reader.take(bitmap_bytes(of.size))
        return cls(session, index, recipients, reader.take(SEALED_BYTES * bitmap_count(recipients)))

    def validate(self, of: Session) -> None:
        """Check the bitmap and that there is an envelope for each client in it."""
        check_bitmap(self.recipients, of.size)
        _check_length(self.sealed, SEALED_BYTES * bitmap_count(self.recipients), "sealed shares")


@dataclass(frozen=True)
class ContributeRequest(Message):
    """Contribute, server to one client: the request, U2, and the shares sealed for the client.

    ``sharers`` is U2 as a bitmap in cohort order; ``sealed`` holds the envelopes of those of its
    members who named the recipient (on the complete graph, all others), in cohort order.
    """

    code = 4
    recipient: int
    request: bytes
    sharers: bytes
    sealed: bytes

    def _parts(self) -> tuple[bytes, ...]:
        return (u64(self.recipient), self.request, self.sharers, self.sealed)

    @classmethod
    def read(cls, session: bytes, reader: Reader, of: Session) -> Self:
        """Read the fields after the head."""
        recipient, request = reader.u64(), reader.take(DIGEST_BYTES)
        sharers = reader.take(bitmap_bytes(of.size))
        return cls(session, recipient, request, sharers, reader.take(reader.remaining))

    def validate(self, of: Session) -> None:
        """Check the bitmap and that there can be an envelope from each dealer."""
        _check_length(self.request, DIGEST_BYTES, "request digest")
        check_bitmap(self.sharers, of.size)
        own = bitmap_has(self.sharers, of.position(self.recipient))
        others = bitmap_count(self.sharers) - own
        if of.complete:
            _check_length(self.sealed, SEALED_BYTES * others, "sealed shares")
        elif len(self.sealed) % SEALED_BYTES or len(self.sealed) > SEALED_BYTES * others:
            raise MalformedMessage(f"{len(self.sealed)} bytes are no envelopes of {others} dealers")


@dataclass(frozen=True, eq=False)
class Contribution(Message):
    """Contribute, client to server: one ring vector, masked or (in ``ideal``) not.

    ``vector`` is in the ring's container, read-only; it is packed on the wire.
    """

    code = 5
    index: int
    request: bytes
    vector: NDArray[Any] = field(repr=False)
    ring_bits: int

    def __post_init__(self) -> None:
        self.vector.setflags(write=False)

    def to_bytes(self) -> bytes:
        """Return the canonical bytes, which are not kept: they may be large."""
        return self._encode()

    def _parts(self) -> tuple[bytes, ...]:
        return (u64(self.index), self.request, Ring(self.ring_bits).pack(self.vector))

    @property
    def wire_bytes(self) -> int:
        """Length of the canonical bytes, found without packing."""
        words = Ring(self.ring_bits).packed_bytes(len(self.vector))
        return _HEAD + 8 + DIGEST_BYTES + words + _CHECKSUM_BYTES

    @classmethod
    def read(cls, session: bytes, reader: Reader, of: Session) -> Self:
        """Read the fields after the head."""
        index, request = reader.u64(), reader.take(DIGEST_BYTES)
        vector = of.ring.unpack(reader.take(reader.remaining), of.vector_length)
        return cls(session, index, request, vector, of.ring_bits)

    def validate(self, of: Session) -> None:
        """Check that the vector is one of the session's ring and length."""
        _check_length(self.request, DIGEST_BYTES, "request digest")
        fits = self.vector.shape == (of.vector_length,) and self.vector.dtype == of.ring.dtype
        if self.ring_bits != of.ring_bits or not fits:
            raise MalformedMessage("a vector of another ring or length")


@dataclass(frozen=True)
class ConfirmRequest(Message):
    """Confirm, server to all: U3, who contributed, as a bitmap in cohort order."""

    code = 11
    survivors: bytes

    def _parts(self) -> tuple[bytes, ...]:
        return (self.survivors,)

    @classmethod
    def read(cls, session: bytes, reader: Reader, of: Session) -> Self:
        """Read the fields after the head."""
        return cls(session, reader.take(bitmap_bytes(of.size)))

    def validate(self, of: Session) -> None:
        """Check the bitmap."""
        check_bitmap(self.survivors, of.size)


@dataclass(frozen=True)
class Confirmation(Message):
    """Confirm, client to server: the signature of session, request and U3."""

    code = 12
    index: int
    signature: bytes

    def _parts(self) -> tuple[bytes, ...]:
        return (u64(self.index), self.signature)

    @classmethod
    def read(cls, session: bytes, reader: Reader, of: Session) -> Self:
        """Read the fields after the head."""
        return cls(session, reader.u64(), reader.take(SIGNATURE_BYTES))

    def validate(self, of: Session) -> None:
        """Check the signature's length."""
        _check_length(self.signature, SIGNATURE_BYTES, "signature")


@dataclass(frozen=True)
class UnmaskRequest(Message):
    """Unmask, server to client: U3, and who signed it.

    ``survivors`` and ``signers`` are bitmaps in cohort order; ``signatures`` holds 64 bytes for
    each signer. Without a confirm stage there are neither signers nor signatures.
    """

    code = 6
    survivors: bytes
    signers: bytes = b""
    signatures: bytes = b""

    def _parts(self) -> tuple[bytes, ...]:
        return (self.survivors, self.signers, self.signatures)

    @classmethod
    def read(cls, session: bytes, reader: Reader, of: Session) -> Self:
        """Read the fields after the head."""
        survivors = reader.take(bitmap_bytes(of.size))
        if not of.signed:
            return cls(session, survivors)
        signers = reader.take(bitmap_bytes(of.size))
        return cls(
            session, survivors, signers, reader.take(SIGNATURE_BYTES * bitmap_count(signers))
        )

    def validate(self, of: Session) -> None:
        """Check the bitmaps, and that there is a signature of each signer."""
        check_bitmap(self.survivors, of.size)
        if of.signed:
            check_bitmap(self.signers, of.size)
        else:
            _check_length(self.signers, 0, "signers")
        count = bitmap_count(self.signers)
        _check_length(self.signatures, SIGNATURE_BYTES * count, "signatures")


@dataclass(frozen=True)
class UnmaskShares(Message):
    """Unmask, client to server: one share of each dealer's secret that U3 calls for.

    ``dealers`` is a bitmap in cohort order; ``shares`` holds nine 32-bit little-endian limbs for
    each client in it. A dealer whose envelope did not open is not in it, and is named by that.
    """

    code = 7
    index: int
    dealers: bytes
    shares: bytes = field(repr=False)

    def _parts(self) -> tuple[bytes, ...]:
        return (u64(self.index), self.dealers, self.shares)

    @classmethod
    def read(cls, session: bytes, reader: Reader, of: Session) -> Self:
        """Read the fields after the head."""
        index = reader.u64()
        dealers = reader.take(bitmap_bytes(of.size))
        return cls(session, index, dealers, reader.take(SHARE_BYTES * bitmap_count(dealers)))

    def validate(self, of: Session) -> None:
        """Check the bitmap and that there is a share for each client in it."""
        check_bitmap(self.dealers, of.size)
        _check_length(self.shares, SHARE_BYTES * bitmap_count(self.dealers), "shares")


_KNOWN_CODES = range(1, 16)


def decode(data: bytes | bytearray | memoryview, expected: type[M], session: Session) -> M:
    """Read one message of the type that the stage calls for.

    Raises
    ------
    RemoteProtocolError
        And nothing else, whatever ``data`` holds: ``UnknownVersion``, ``OutOfOrder`` (another
        type of message), ``WrongSession`` or ``MalformedMessage``.
    """
    data = bytes(data)
    if len(data) < _HEAD + _CHECKSUM_BYTES or data[: len(_MAGIC)] != _MAGIC:
        raise MalformedMessage("these are not the bytes of a message")
    version, code = data[len(_MAGIC)], data[len(_MAGIC) + 1]
    if version != PROTOCOL_VERSION:
        raise UnknownVersion(f"a message of protocol version {version}")
    if code != expected.code:
        if code not in _KNOWN_CODES:
            raise MalformedMessage(f"unknown type of message {code}")
        raise OutOfOrder(f"{expected.__name__} expected, found a message of type {code}")
    if data[_HEAD - DIGEST_BYTES : _HEAD] != session.digest:
        raise WrongSession("the message belongs to another session")
    body = memoryview(data)[:-_CHECKSUM_BYTES]
    if _checksum(body) != data[-_CHECKSUM_BYTES:]:
        raise MalformedMessage("the message was damaged on its way")
    reader = Reader(bytes(body[_HEAD:]))
    message = expected.read(session.digest, reader, session)
    reader.finish()
    message.validate(session)
    return message


def accept(
    message: "bytes | bytearray | memoryview | Message", expected: type[M], session: Session
) -> M:
    """Return a message, read from bytes or checked as an object, of the type expected.

    Raises
    ------
    RemoteProtocolError
        As :func:`decode` does.
    """
    if not isinstance(message, Message):
        return decode(message, expected, session)
    if not isinstance(message, expected):
        raise OutOfOrder(f"{expected.__name__} expected, found {type(message).__name__}")
    if message.session != session.digest:
        raise WrongSession("the message belongs to another session")
    message.validate(session)
    return message
