"""Durable record of a client's decisions: lines that outlive its process.

A line holds the session, the stage and the hash of the message answered, at confirm and unmask
also the hash of U3: decisions, never seeds or shares. The caller makes the lines of a step
durable before the step's message leaves, and hands back all lines it has whenever it builds a
party again. Lines of another kind, in the same record, hold how far each run has come.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from zerosum.secagg.errors import (
    AlreadyContributed,
    ConflictingMessage,
    LocalProtocolError,
    StaleSession,
)
from zerosum.secagg.session import Session
from zerosum.secagg.stages import Phase, Repeat, Stage

# Stages that answer a U3; their lines hold its hash as well.
_ON_SURVIVORS = (Stage.CONFIRM, Stage.UNMASK)
_TAG = "zerosum/1 decision"
_MARK = "zerosum/1 high-water "
_HASH = re.compile(r"[0-9a-f]{64}")
NO_MESSAGE = hashlib.sha256(b"").digest()
"""Hash that stands for the message of a stage which answers none: advertise."""
# 64-bit numbers as Python writes them.
_NUMBER = re.compile(r"0|[1-9][0-9]{0,19}")


@dataclass(frozen=True)
class Decision:
    """The answer given at one stage: to which message, and from confirm on for which U3."""

    stage: Stage
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
        self._made: dict[Stage, Decision] = {}
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
        expected = 3 if fields[0] in _ON_SURVIVORS else 2
        hashes = all(map(_HASH.fullmatch, fields[1:]))
        if fields[0] not in set(Stage) or len(fields) != expected or not hashes:
            raise LocalProtocolError(f"the durable record has a damaged line: {line!r}")
        return Decision(Stage(fields[0]), *fields[1:])

    def _add(self, decision: Decision) -> None:
        made = self._made.setdefault(decision.stage, decision)
        if made != decision:
            raise LocalProtocolError(
                f"the durable record holds two different decisions at {decision.stage}"
            )

    def decide(self, phase: Phase, message: bytes, survivors: bytes | None = None) -> Decision:
        """Decide to answer a message, unless an earlier decision forbids it.

        Parameters
        ----------
        phase : Phase
            The phase table's row of the stage.
        message : bytes
            SHA-256 of the incoming message.
        survivors : bytes, optional
            U3 as a bitmap, at confirm and unmask.

        Returns
        -------
        Decision
            To be committed before the answer leaves; the earlier one where a message is repeated.

        Raises
        ------
        AlreadyContributed
            If the stage is answered once only, and was.
        ConflictingMessage
            If another message (at unmask, another U3) was answered at this stage.
        """
        hashed = "" if survivors is None else hashlib.sha256(survivors).hexdigest()
        decision = Decision(phase.stage, message.hex(), hashed)
        made = self._made.get(phase.stage)
        if made is None:
            return decision
        if phase.repeat is Repeat.NEVER:
            raise AlreadyContributed("this session's contribution was already made")
        same_survivors = phase.repeat is Repeat.SAME_SURVIVORS and made.survivors == hashed
        if made != decision and not same_survivors:
            raise ConflictingMessage(
                f"another message was answered at {phase.stage} of this session"
            )
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
        return tuple(self.line(self._made[stage]) for stage in Stage if stage in self._made)

    def has_signed(self, survivors: bytes) -> bool:
        """Tell whether ``survivors``, a bitmap, is the U3 that was signed at confirm."""
        made = self._made.get(Stage.CONFIRM)
        return made is not None and made.survivors == hashlib.sha256(survivors).hexdigest()


class HighWater:
    """High-water mark of each run at one client: sessions begin in ascending order only.

    It is consulted and raised before the client advertises, and at no other stage, so that
    rounds can overlap: later stages are admitted by the decisions of their own session.

    Parameters
    ----------
    record : iterable of bytes
        Lines of the durable record, in any order; those of other kinds are passed over.

    Raises
    ------
    LocalProtocolError
        If a line of this kind is damaged.
    """

    def __init__(self, record: Iterable[bytes] = ()) -> None:
        self._marks: dict[str, tuple[int, int]] = {}
        for line in record:
            if line.startswith(_MARK.encode()):
                run, mark = self._parse(line)
                self._marks[run] = max(self._marks.get(run, (-1, -1)), mark)

    @staticmethod
    def _parse(line: bytes) -> tuple[str, tuple[int, int]]:
        run, *mark = line.decode("ascii", "replace").rstrip("\r\n")[len(_MARK) :].split(" ")
        if not _HASH.fullmatch(run) or len(mark) != 2 or not all(map(_NUMBER.fullmatch, mark)):
            raise LocalProtocolError(f"the durable record has a damaged line: {line!r}")
        return run, (int(mark[0]), int(mark[1]))

    def rise(self, session: Session) -> tuple[bytes, ...]:
        """Admit a session that is about to begin, and return the line for the durable record.

        Parameters
        ----------
        session : Session

        Returns
        -------
        tuple of bytes

        Raises
        ------
        StaleSession
            If a session of the same run, with this round and attempt or later ones, began before.
        """
        run, mark = hashlib.sha256(session.run_id).hexdigest(), (session.round, session.attempt)
        before = self._marks.get(run)
        if before is not None and mark <= before:
            raise StaleSession(
                f"round and attempt {mark} do not come after {before}, which began already: "
                "a server that lost a session begins a new attempt"
            )
        self._marks[run] = mark
        return (f"{_MARK}{run} {mark[0]} {mark[1]}".encode("ascii"),)
