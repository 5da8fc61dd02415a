"""Messages from the server, one a stage."""

from dataclasses import dataclass
from typing import Self

from zerosum.secagg.crypto.identity import SIGNATURE_BYTES
from zerosum.secagg.errors import MalformedMessage
from zerosum.secagg.messages.framing import Message, check_length
from zerosum.secagg.messages.from_client import SEALED_BYTES, advert_bytes
from zerosum.secagg.session import DIGEST_BYTES, Session
from zerosum.secagg.stages import MessageCode
from zerosum.secagg.wire import Reader, bitmap_bytes, bitmap_count, bitmap_has, check_bitmap, u64


@dataclass(frozen=True)
class Adverts(Message):
    """Share, server to client: the adverts of U1, on a sparse graph of its neighbours in U1.

    On the complete graph every client gets the same bytes. ``present`` is a bitmap in cohort
    order; ``entries`` holds :func:`advert_bytes` for each client in it, the recipient too.
    """

    code = MessageCode.ADVERTS
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
        check_length(self.entries, advert_bytes(of) * bitmap_count(self.present), "adverts")


@dataclass(frozen=True)
class ContributeRequest(Message):
    """Contribute, server to one client: the request, U2, and the shares sealed for the client.

    ``sharers`` is U2 as a bitmap in cohort order; ``sealed`` holds the envelopes of those of its
    members who named the recipient (on the complete graph, all others), in cohort order.
    """

    code = MessageCode.CONTRIBUTE_REQUEST
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
        check_length(self.request, DIGEST_BYTES, "request digest")
        check_bitmap(self.sharers, of.size)
        own = bitmap_has(self.sharers, of.position(self.recipient))
        others = bitmap_count(self.sharers) - own
        if of.complete:
            check_length(self.sealed, SEALED_BYTES * others, "sealed shares")
        elif len(self.sealed) % SEALED_BYTES or len(self.sealed) > SEALED_BYTES * others:
            raise MalformedMessage(f"{len(self.sealed)} bytes are no envelopes of {others} dealers")


@dataclass(frozen=True)
class ConfirmRequest(Message):
    """Confirm, server to all: U3, who contributed, as a bitmap in cohort order."""

    code = MessageCode.CONFIRM_REQUEST
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
class UnmaskRequest(Message):
    """Unmask, server to client: U3, and who signed it.

    ``survivors`` and ``signers`` are bitmaps in cohort order; ``signatures`` holds 64 bytes for
    each signer. Without a confirm stage there are neither signers nor signatures.
    """

    code = MessageCode.UNMASK_REQUEST
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
            check_length(self.signers, 0, "signers")
        count = bitmap_count(self.signers)
        check_length(self.signatures, SIGNATURE_BYTES * count, "signatures")
