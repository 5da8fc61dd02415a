"""Messages from clients, one a stage, and the statements they sign."""

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.crypto.identity import SIGNATURE_BYTES
from zerosum.secagg.crypto.shamir import LIMBS
from zerosum.secagg.errors import MalformedMessage
from zerosum.secagg.messages.framing import CHECKSUM_BYTES, HEAD_BYTES, Message, check_length
from zerosum.secagg.session import DIGEST_BYTES, Session
from zerosum.secagg.stages import MessageCode
from zerosum.secagg.vectors.ring import Ring
from zerosum.secagg.wire import (
    Reader,
    bitmap_bytes,
    bitmap_count,
    check_bitmap,
    from_positions,
    position_bytes,
    u64,
)

KEY_BYTES = 32
SHARE_BYTES = 4 * LIMBS
SEALED_BYTES = 2 * SHARE_BYTES + 16

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
    """Return what a client signs at advertise: its advert, without the signature.

    Parameters
    ----------
    session : bytes
        Digest of the session.
    index : int
        Roster index.
    fields : bytes
        :attr:`Advert.fields`.

    Returns
    -------
    bytes
    """
    return _ADVERT_TAG + session + u64(index) + fields


def survivors_statement(session: bytes, request: bytes, survivors: bytes) -> bytes:
    """Return what every client signs at confirm: session, request and U3.

    Parameters
    ----------
    session, request : bytes
        Digests.
    survivors : bytes
        U3, a bitmap in cohort order.

    Returns
    -------
    bytes
    """
    return _SURVIVORS_TAG + session + request + survivors


@dataclass(frozen=True)
class Advert(Message):
    """Advertise, client to server: what one client makes known.

    Two public keys and a commitment; the neighbours that it drew, as ascending positions, on a
    sparse graph against a malicious server; its signature against a malicious server.
    """

    code = MessageCode.ADVERT
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
        check_length(self.channel_key, KEY_BYTES, "channel key")
        check_length(self.mask_key, KEY_BYTES, "mask key")
        check_length(self.commitment, DIGEST_BYTES, "commitment")
        check_length(self.signature, SIGNATURE_BYTES if of.signed else 0, "signature")
        check_length(self.neighbours, neighbours_bytes(of), "neighbours")
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
    """Refuse neighbours that are not strictly ascending positions of others in the cohort.

    Parameters
    ----------
    neighbours : bytes
        As :func:`~zerosum.secagg.wire.to_positions` writes them; empty where none are drawn.
    position : int
        The client's own.
    of : Session

    Raises
    ------
    MalformedMessage
        If they are anything else.
    """
    if not neighbours:
        return
    places = from_positions(neighbours, of.size)
    if places[-1] >= of.size or (places[1:] <= places[:-1]).any() or (places == position).any():
        raise MalformedMessage("a client's neighbours are not a set of others in the cohort")


@dataclass(frozen=True)
class Shares(Message):
    """Share, client to server: one sealed pair of shares for each neighbour in U1.

    ``recipients`` is a bitmap in cohort order; ``sealed`` holds 88 bytes for each client in it.
    """

    code = MessageCode.SHARES
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
        check_length(self.sealed, SEALED_BYTES * bitmap_count(self.recipients), "sealed shares")


@dataclass(frozen=True, eq=False)
class Contribution(Message):
    """Contribute, client to server: one ring vector, masked or (in ``ideal``) not.

    ``vector`` is in the ring's container, read-only; it is packed on the wire.
    """

    code = MessageCode.CONTRIBUTION
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
        return HEAD_BYTES + 8 + DIGEST_BYTES + words + CHECKSUM_BYTES

    @classmethod
    def read(cls, session: bytes, reader: Reader, of: Session) -> Self:
        """Read the fields after the head."""
        index, request = reader.u64(), reader.take(DIGEST_BYTES)
        vector = of.ring.unpack(reader.take(reader.remaining), of.vector_length)
        return cls(session, index, request, vector, of.ring_bits)

    def validate(self, of: Session) -> None:
        """Check that the vector is one of the session's ring and length."""
        check_length(self.request, DIGEST_BYTES, "request digest")
        fits = self.vector.shape == (of.vector_length,) and self.vector.dtype == of.ring.dtype
        # Of a subclass the largest word may not be the largest: a masked one is passed over.
        if self.ring_bits != of.ring_bits or not fits or type(self.vector) is not np.ndarray:
            raise MalformedMessage("a vector of another ring or length")
        if self.vector.size and int(self.vector.max()) >> self.ring_bits:
            raise MalformedMessage(f"a word of more than {self.ring_bits} bits")


@dataclass(frozen=True)
class Confirmation(Message):
    """Confirm, client to server: the signature of session, request and U3."""

    code = MessageCode.CONFIRMATION
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
        check_length(self.signature, SIGNATURE_BYTES, "signature")


@dataclass(frozen=True)
class UnmaskShares(Message):
    """Unmask, client to server: one share of each dealer's secret that U3 calls for.

    ``dealers`` is a bitmap in cohort order; ``shares`` holds nine 32-bit little-endian limbs for
    each client in it. A dealer whose envelope did not open is not in it, and is named by that.
    """

    code = MessageCode.UNMASK_SHARES
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
        check_length(self.shares, SHARE_BYTES * bitmap_count(self.dealers), "shares")
