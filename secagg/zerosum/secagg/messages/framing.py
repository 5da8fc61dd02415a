"""Framing of all messages: head, checksum, and the one reader.

Every message starts with a magic, the version of its form, its type and the session's digest, and
ends with a checksum, which finds accidents and stops nobody. A reader knows from the session how
long each field must be, refuses everything else, and never allocates more than the message
holds. Parties accept bytes or the objects themselves.
"""

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self, TypeVar

from zerosum.secagg.errors import MalformedMessage, OutOfOrder, UnknownVersion, WrongSession
from zerosum.secagg.session import DIGEST_BYTES, Session
from zerosum.secagg.stages import MessageCode
from zerosum.secagg.wire import Reader

_MAGIC = b"zsag"
FRAMING_VERSION = 2
"""Of the messages' form, which sessions of versions 2 and 3 share."""
HEAD_BYTES = len(_MAGIC) + 2 + DIGEST_BYTES
CHECKSUM_BYTES = 16


def _checksum(*parts: bytes | memoryview) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()[:CHECKSUM_BYTES]


@dataclass(frozen=True)
class Message(ABC):
    """A message of one session: frozen fields with canonical bytes.

    Parameters
    ----------
    session : bytes
        Digest of the session that the message belongs to.
    """

    session: bytes
    code: ClassVar[MessageCode]

    @cached_property
    def _encoded(self) -> bytes:
        return self._encode()

    def _encode(self) -> bytes:
        head = _MAGIC + bytes((FRAMING_VERSION, self.code)) + self.session
        parts = (head, *self._parts())
        return b"".join((*parts, _checksum(*parts)))

    @abstractmethod
    def _parts(self) -> tuple[bytes, ...]:
        """Return the canonical bytes of the fields."""

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
    @abstractmethod
    def read(cls, session: bytes, reader: Reader, of: Session) -> Self:
        """Read the fields after the head; :meth:`validate` checks what they hold.

        Parameters
        ----------
        session : bytes
            Digest of the session.
        reader : Reader
            At the first field.
        of : Session
            Says how long each field is.

        Returns
        -------
        Message
            Of this class.

        Raises
        ------
        MalformedMessage
            If the bytes end before the fields do.
        """

    @abstractmethod
    def validate(self, of: Session) -> None:
        """Refuse fields whose shape the session excludes.

        Parameters
        ----------
        of : Session

        Raises
        ------
        RemoteProtocolError
            ``MalformedMessage``, or ``WrongParty`` where the client is not in the cohort.
        """


M = TypeVar("M", bound=Message)


def check_length(data: bytes, size: int, what: str) -> None:
    """Refuse a field of another length than the session asks for.

    Parameters
    ----------
    data : bytes
    size : int
        Bytes expected.
    what : str
        The field's name, for the message.

    Raises
    ------
    MalformedMessage
        If ``data`` has another length.
    """
    if len(data) != size:
        raise MalformedMessage(f"{what}: {size} bytes expected, {len(data)} found")


def session_of(data: bytes | bytearray | memoryview) -> bytes:
    """Read the digest of the session that a message says it belongs to; nothing else is read.

    Parameters
    ----------
    data : bytes-like

    Returns
    -------
    bytes
        32 bytes: what the message says, not what it is.

    Raises
    ------
    MalformedMessage
        If these are not the bytes of a message.
    """
    if len(data) < HEAD_BYTES + CHECKSUM_BYTES or bytes(data[: len(_MAGIC)]) != _MAGIC:
        raise MalformedMessage("these are not the bytes of a message")
    return bytes(data[HEAD_BYTES - DIGEST_BYTES : HEAD_BYTES])


def decode(data: bytes | bytearray | memoryview, expected: type[M], session: Session) -> M:
    """Read one message of the type that the stage calls for.

    Parameters
    ----------
    data : bytes-like
        From a peer: anything.
    expected : type of Message
        As the phase table names it.
    session : Session

    Returns
    -------
    Message
        Of the expected type, and valid in the session.

    Raises
    ------
    RemoteProtocolError
        And nothing else, whatever ``data`` holds: ``UnknownVersion``, ``OutOfOrder`` (another
        type of message), ``WrongSession`` or ``MalformedMessage``.
    """
    data = bytes(data)
    named = session_of(data)
    version, code = data[len(_MAGIC)], data[len(_MAGIC) + 1]
    if version != FRAMING_VERSION:
        raise UnknownVersion(f"a message of version {version}")
    if code != expected.code:
        if code not in set(MessageCode):
            raise MalformedMessage(f"unknown type of message {code}")
        raise OutOfOrder(f"{expected.__name__} expected, found a message of type {code}")
    if named != session.digest:
        raise WrongSession("the message belongs to another session")
    body = memoryview(data)[:-CHECKSUM_BYTES]
    if _checksum(body) != data[-CHECKSUM_BYTES:]:
        raise MalformedMessage("the message was damaged on its way")
    reader = Reader(body[HEAD_BYTES:])
    message = expected.read(session.digest, reader, session)
    reader.finish()
    message.validate(session)
    return message


def accept(
    message: "bytes | bytearray | memoryview | Message", expected: type[M], session: Session
) -> M:
    """Return a message, read from bytes or checked as an object, of the type expected.

    Parameters
    ----------
    message : bytes-like or Message
    expected : type of Message
    session : Session

    Returns
    -------
    Message
        Of the expected type, and valid in the session.

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
