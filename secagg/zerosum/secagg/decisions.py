"""What a client decided in a session, in lines that outlive its process.

A line holds the session, the stage and the hash of the message answered, at unmask also the
hash of U3: decisions, never seeds or shares. The caller makes the lines of a step durable before
the step's message leaves, and hands back all lines it has whenever it builds a party again.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from zerosum.secagg.errors import (
    AlreadyContributed,
    ConflictingMessage,
    LocalProtocolError,
)

STAGES = ("advertise", "share", "contribute", "unmask")

_TAG = "zerosum/1 decision"
_HEX_DIGITS = 64


@dataclass(frozen=True)
class Decision:
    """The answer given at one stage: to which message, and at unmask for which U3."""

    stage: str
    message: str
    survivors: str = ""


class Decisions:
    """The decisions of one client in one session.

    Parameters
    ----------
    session : bytes
        Digest of the session.
    record : iterable of bytes
        Lines read back from the durable record; those of other sessions and of other kinds are
        passed over.

    Raises
    ------
    LocalProtocolError
        If a line of this session is damaged, or two lines contradict each other.
    """

    def __init__(self, session: bytes, record: Iterable[bytes] = ()) -> None:
        self._head = f"{_TAG} {session.hex()} "
        self._made: dict[str, Decision] = {}
        head = self._head.encode()
        for line in record:
            if line.startswith(head):
                self._add(self._parse(line))

    def __contains__(self, stage: str) -> bool:
        return stage in self._made

    def __len__(self) -> int:
        return len(self._made)

    def _parse(self, line: bytes) -> Decision:
        fields = line.decode("ascii", "replace").rstrip("\r\n")[len(self._head) :].split(" ")
        expected = 3 if fields[0] == "unmask" else 2
        hashes = all(len(field) == _HEX_DIGITS for field in fields[1:])
        if fields[0] not in STAGES or len(fields) != expected or not hashes:
            raise LocalProtocolError(f"the durable record has a damaged line: {line!r}")
        return Decision(*fields)

    def _add(self, decision: Decision) -> None:
        made = self._made.setdefault(decision.stage, decision)
        if made != decision:
            raise LocalProtocolError(
                f"the durable record holds two different decisions at {decision.stage}"
            )

    def decide(self, stage: str, message: bytes, survivors: bytes | None = None) -> Decision:
        """Return the decision to answer a message, unless an earlier one forbids it.

        Parameters
        ----------
        stage : str
            One of ``STAGES``.
        message : bytes
            SHA-256 of the incoming message.
        survivors : bytes, optional
            U3 as a bitmap, at unmask.

        Raises
        ------
        AlreadyContributed
            At contribute, if anything was answered there.
        ConflictingMessage
            If another message (at unmask, another U3) was answered at this stage.
        """
        hashed = "" if survivors is None else hashlib.sha256(survivors).hexdigest()
        decision = Decision(stage, message.hex(), hashed)
        made = self._made.get(stage)
        if made is None:
            return decision
        if stage == "contribute":
            raise AlreadyContributed("this session's contribution was already made")
        same = made.survivors == hashed if stage == "unmask" else made == decision
        if not same:
            raise ConflictingMessage(f"another message was answered at {stage} of this session")
        return made

    def commit(self, decision: Decision) -> tuple[bytes, ...]:
        """Keep a decision and return its line for the durable record."""
        self._add(decision)
        return (self.line(decision),)

    def line(self, decision: Decision) -> bytes:
        """Return the canonical line of a decision, without a line end."""
        fields = [decision.stage, decision.message, decision.survivors]
        return (self._head + " ".join(field for field in fields if field)).encode("ascii")

    def lines(self) -> tuple[bytes, ...]:
        """Return the lines of all decisions, in the order of the stages."""
        return tuple(self.line(self._made[stage]) for stage in STAGES if stage in self._made)
