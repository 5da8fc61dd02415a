"""What a client keeps between processes: volatile, secret until the session ends."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from zerosum.secagg.errors import LocalProtocolError
from zerosum.secagg.wire import Reader, prefixed, u64

_TAG = b"zerosum client state 2\0"
_CHECKSUM_BYTES = 32


@dataclass(frozen=True)
class Exported:
    """The state of one client in one session.

    Attributes
    ----------
    session : bytes
        Its canonical bytes.
    index : int
        The client's roster index.
    phase : int
        Which stage comes next.
    seed : bytes
        What all the client's secrets expand from.
    lines : tuple of bytes
        Decisions, as in the durable record.
    adverts, request, answer : bytes
        Messages as received, and the answer at unmask; each empty until there is one.
    """

    session: bytes
    index: int
    phase: int
    seed: bytes
    lines: tuple[bytes, ...]
    adverts: bytes = b""
    request: bytes = b""
    answer: bytes = b""

    def to_bytes(self) -> bytes:
        """Return the state with a checksum."""
        messages = (self.adverts, self.request, self.answer)
        parts = (self.session, u64(self.index), bytes((self.phase,)), self.seed)
        body = _TAG + _joined((*parts, b"\n".join(self.lines), *messages))
        return body + hashlib.sha256(body).digest()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Exported":
        """Read what :meth:`to_bytes` wrote.

        Raises
        ------
        LocalProtocolError
            If it is damaged.
        """
        body, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
        if not body.startswith(_TAG) or hashlib.sha256(body).digest() != checksum:
            raise LocalProtocolError("the exported state is damaged")
        reader = Reader(body[len(_TAG) :])
        session, index, phase, seed, lines, *messages = (reader.prefixed() for _ in range(8))
        number = int.from_bytes(index, "big")
        return cls(session, number, phase[0], seed, tuple(lines.split(b"\n")), *messages)


def _joined(parts: Iterable[bytes]) -> bytes:
    return b"".join(map(prefixed, parts))
