"""Messages of sessions whose server is trusted: presence, in place of keys and shares."""

from dataclasses import dataclass
from typing import Self

from zerosum.secagg.errors import MalformedMessage
from zerosum.secagg.messages.framing import Message, check_length
from zerosum.secagg.session import DIGEST_BYTES, Session
from zerosum.secagg.stages import MessageCode, Stage
from zerosum.secagg.wire import Reader, bitmap_bytes, check_bitmap, u64


@dataclass(frozen=True)
class Presence(Message):
    """Client to server at every stage but contribute: still here."""

    code = MessageCode.PRESENCE
    index: int
    stage: int

    def _parts(self) -> tuple[bytes, ...]:
        return (u64(self.index), bytes((self.stage,)))

    @classmethod
    def read(cls, session: bytes, reader: Reader, of: Session) -> Self:
        """Read the fields after the head."""
        return cls(session, reader.u64(), reader.take(1)[0])

    def validate(self, of: Session) -> None:
        """Check the stage."""
        if self.stage >= len(of.stages) or of.stages[self.stage] is Stage.CONTRIBUTE:
            raise MalformedMessage(f"presence at stage {self.stage}")


@dataclass(frozen=True)
class Roll(Message):
    """Share, server to all: who advertised, as a bitmap in cohort order."""

    code = MessageCode.ROLL
    present: bytes

    def _parts(self) -> tuple[bytes, ...]:
        return (self.present,)

    @classmethod
    def read(cls, session: bytes, reader: Reader, of: Session) -> Self:
        """Read the fields after the head."""
        return cls(session, reader.take(bitmap_bytes(of.size)))

    def validate(self, of: Session) -> None:
        """Check the bitmap."""
        check_bitmap(self.present, of.size)


@dataclass(frozen=True)
class CohortQuestion(Message):
    """Contribute, server to all: the request, and who shared, as a bitmap in cohort order."""

    code = MessageCode.COHORT_QUESTION
    request: bytes
    sharers: bytes

    def _parts(self) -> tuple[bytes, ...]:
        return (self.request, self.sharers)

    @classmethod
    def read(cls, session: bytes, reader: Reader, of: Session) -> Self:
        """Read the fields after the head."""
        return cls(session, reader.take(DIGEST_BYTES), reader.take(bitmap_bytes(of.size)))

    def validate(self, of: Session) -> None:
        """Check the digest's length and the bitmap."""
        check_length(self.request, DIGEST_BYTES, "request digest")
        check_bitmap(self.sharers, of.size)
