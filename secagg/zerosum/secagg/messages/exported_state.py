"""The volatile state of a client between two processes, and its canonical bytes.

It is the client's own, so that whatever is wrong with it is a local error; but it was stored
somewhere, so that the reader trusts nothing: lengths are checked before anything is taken.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from zerosum.secagg.errors import LocalProtocolError, MalformedMessage, RemoteProtocolError
from zerosum.secagg.messages.all_messages import (
    Adverts,
    ContributeRequest,
    Message,
    UnmaskShares,
    decode,
)
from zerosum.secagg.messages.durable_record import Decisions
from zerosum.secagg.randomness import SEED_BYTES
from zerosum.secagg.session import Session
from zerosum.secagg.wire import Reader, prefixed, u64

M = TypeVar("M", bound=Message)

_TAG = b"zerosum client state 2\0"
_CHECKSUM_BYTES = 32


@contextmanager
def _damage() -> Iterator[None]:
    """Turn what a reader finds wrong into our own error: no peer wrote these bytes."""
    try:
        yield
    except RemoteProtocolError as error:
        raise LocalProtocolError(f"the exported state is damaged: {error}") from error


class HiddenBytes(bytes):
    """Bytes that are secret: they say how many they are, and not what.

    A state is kept in Flower's context, of which any app or library may write a description.
    """

    def __repr__(self) -> str:
        return f"<{len(self)} secret bytes>"

    __str__ = __repr__


def seal_state(tag: bytes, parts: Sequence[bytes]) -> bytes:
    """Join a tag, the parts after their lengths, and a checksum.

    Parameters
    ----------
    tag : bytes
        Names the kind of state and its version.
    parts : sequence of bytes

    Returns
    -------
    bytes
    """
    body = tag + b"".join(map(prefixed, parts))
    return body + hashlib.sha256(body).digest()


def open_state(tag: bytes, data: bytes, count: int) -> list[bytes]:
    """Split what :func:`seal_state` joined.

    Parameters
    ----------
    tag : bytes
    data : bytes
    count : int
        How many parts there are.

    Returns
    -------
    list of bytes

    Raises
    ------
    LocalProtocolError
        If ``data`` is anything else.
    """
    body, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    if not body.startswith(tag) or hashlib.sha256(body).digest() != checksum:
        raise LocalProtocolError("the exported state is damaged")
    with _damage():
        reader = Reader(body[len(tag) :])
        parts = [reader.prefixed() for _ in range(count)]
        reader.finish()
    return parts


def read_place(session: bytes, index: bytes, phase: bytes) -> tuple[Session, int, int]:
    """Read where a client stands: in which session, as whom, and how far.

    Parameters
    ----------
    session, index, phase : bytes
        Canonical bytes of a session, eight of a roster index, one of a number of stages.

    Returns
    -------
    session : Session
    index : int
        The client's roster index.
    phase : int
        How many stages it has behind it.

    Raises
    ------
    LocalProtocolError
        If they are not the canonical bytes of such, or do not fit each other.
    """
    with _damage():
        read = Session.from_bytes(session)
        if len(index) != 8 or len(phase) != 1 or phase[0] > len(read.stages):
            raise MalformedMessage("no client of the session is at that stage")
        client = int.from_bytes(index, "big")
        read.position(client)
    return read, client, phase[0]


def read_lines(lines: bytes, session: Session) -> tuple[bytes, ...]:
    """Return the lines of the record that a state holds: of its session only, in order.

    Parameters
    ----------
    lines : bytes
        Lines of the durable record, joined.
    session : Session

    Returns
    -------
    tuple of bytes

    Raises
    ------
    LocalProtocolError
        If they are anything else.
    """
    read = Decisions(session.digest, lines.split(b"\n")).lines()
    if b"\n".join(read) != lines:
        raise LocalProtocolError("the exported state is damaged: its record is not in order")
    return read


@dataclass(frozen=True)
class ClientState:
    """Volatile state of a client between two processes.

    Attributes
    ----------
    session : Session
    index : int
        The client's roster index.
    phase : int
        How many stages it has answered.
    seed : bytes
        32 bytes, secret; none once the session is over.
    lines : tuple of bytes
        Its decisions.
    adverts, request, answer
        The messages it answered at share and contribute, and its answer at unmask.
    """

    session: Session
    index: int
    phase: int
    seed: bytes = field(repr=False)
    lines: tuple[bytes, ...] = ()
    adverts: Adverts | None = None
    request: ContributeRequest | None = None
    answer: UnmaskShares | None = field(default=None, repr=False)

    def to_bytes(self) -> HiddenBytes:
        """Return the canonical bytes; secret while there is a seed."""
        place = (self.session.to_bytes(), u64(self.index), bytes((self.phase,)))
        answered = (self.adverts, self.request, self.answer)
        messages = [b"" if message is None else message.to_bytes() for message in answered]
        sealed = seal_state(_TAG, [*place, self.seed, b"\n".join(self.lines), *messages])
        return HiddenBytes(sealed)

    @classmethod
    def from_bytes(cls, data: bytes) -> "ClientState":
        """Read canonical bytes.

        Parameters
        ----------
        data : bytes

        Returns
        -------
        ClientState

        Raises
        ------
        LocalProtocolError
            If they are anything else.
        """
        encoded, index, phase, seed, lines, *messages = open_state(_TAG, bytes(data), 8)
        session, client, answered = read_place(encoded, index, phase)
        over = answered == len(session.stages)
        if len(seed) != SEED_BYTES and (seed or not over):
            raise LocalProtocolError("the exported state is damaged: its seed has another length")
        return cls(
            session,
            client,
            answered,
            seed,
            read_lines(lines, session),
            _read(messages[0], Adverts, session),
            _read(messages[1], ContributeRequest, session),
            _read(messages[2], UnmaskShares, session),
        )


def _read(data: bytes, kind: type[M], session: Session) -> M | None:
    with _damage():
        return decode(data, kind, session) if data else None
