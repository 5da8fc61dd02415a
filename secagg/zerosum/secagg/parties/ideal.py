"""The ideal functionality: the same parties, stages and abort rules with no cryptography.

The server is trusted: it sees every vector and keeps the sum only (protocol "ideal"), or the
vectors too (protocol "none").
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.crypto.cache import SharedCache
from zerosum.secagg.crypto.identity import IdentityKey, Roster
from zerosum.secagg.errors import (
    BadSurvivorSet,
    LocalProtocolError,
    MalformedMessage,
    OutOfOrder,
)
from zerosum.secagg.graph.graphs import quorum
from zerosum.secagg.messages.all_messages import (
    ConfirmRequest,
    Contribution,
    Message,
    UnmaskRequest,
    accept,
)
from zerosum.secagg.messages.durable_record import Decisions
from zerosum.secagg.messages.exported_state import open_state, read_lines, read_place, seal_state
from zerosum.secagg.parties.client_stages import SessionClient
from zerosum.secagg.parties.interface import Incoming, Step
from zerosum.secagg.parties.policy import Policy
from zerosum.secagg.parties.server_stages import StagedServer
from zerosum.secagg.parties.verdict import Verdict
from zerosum.secagg.randomness import RandomSource
from zerosum.secagg.session import DIGEST_BYTES, Protocol, Session
from zerosum.secagg.wire import (
    Reader,
    bitmap_bytes,
    bitmap_count,
    bitmap_has,
    check_bitmap,
    to_bitmap,
    u64,
)

_STATE_TAG = b"zerosum ideal client state 2\0"
_NOTHING = hashlib.sha256(b"").digest()


@dataclass(frozen=True)
class Presence(Message):
    """Client to server at every stage but contribute: still here."""

    code = 8
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
        if self.stage >= len(of.stages) or of.stages[self.stage] == "contribute":
            raise MalformedMessage(f"presence at stage {self.stage}")


@dataclass(frozen=True)
class Roll(Message):
    """Share, server to all: who advertised, as a bitmap in cohort order."""

    code = 9
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

    code = 10
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
        if len(self.request) != DIGEST_BYTES:
            raise MalformedMessage("a request digest has 32 bytes")
        check_bitmap(self.sharers, of.size)


class IdealClientParty(SessionClient):
    """A client that trusts the server; it sends its vector unmasked.

    Parameters
    ----------
    session, index, identity, roster, policy, source, cache, record
        As for ``ClientParty``; nothing is signed, drawn or cached.

    Raises
    ------
    LocalProtocolError
        If the session is a masked one, ``index`` is not in the cohort, or the record is damaged.
    PolicyRefusal
        Or one of its kinds, if the policy does not take part in the session.
    """

    def __init__(
        self,
        session: Session,
        index: int,
        *,
        identity: IdentityKey | None = None,
        roster: Roster | None = None,
        policy: Policy | None = None,
        source: RandomSource | None = None,
        cache: SharedCache | None = None,
        record: Iterable[bytes] = (),
    ) -> None:
        self._sit(session, index, masks=False)
        if policy is not None:
            policy.admit(session, roster)
        self._decisions = Decisions(session.digest, record)

    def advertise(self) -> Step:
        """Say that the client is here."""
        self._require_phase("advertise")
        return self._present("advertise", _NOTHING)

    def share(self, message: Incoming) -> Step:
        """Say that the client is still here."""
        self._require_phase("share")
        roll = accept(message, Roll, self._session)
        self._check_set(roll.present, quorum(self._session))
        return self._present("share", roll.digest)

    def admit(self, message: Incoming) -> bytes:
        """Check the contribute message and return its request digest."""
        self._require_phase("contribute")
        return self._check_question(message).request

    def contribute(self, message: Incoming, vector: NDArray[Any]) -> Step:
        """Return the vector itself; once."""
        self._require_phase("contribute")
        question = self._check_question(message)
        decision = self._decisions.decide("contribute", question.digest)
        session = self._session
        plain = session.ring.contain(vector, session.vector_length)
        send = Contribution(session.digest, self._index, question.request, plain, session.ring_bits)
        self._phase = max(self._phase, self._phases.index("contribute") + 1)
        return Step(self._decisions.commit(decision), send)

    def confirm(self, message: Incoming) -> Step:
        """Say that the client is still here."""
        self._require_phase("confirm")
        request = accept(message, ConfirmRequest, self._session)
        self._check_survivors(request.survivors)
        return self._present("confirm", request.digest, request.survivors)

    def unmask(self, message: Incoming) -> Step:
        """Say that the client is still here."""
        self._require_phase("unmask")
        request = accept(message, UnmaskRequest, self._session)
        self._check_survivors(request.survivors)
        return self._present("unmask", request.digest, request.survivors)

    def export(self) -> bytes:
        """Return the state, for another process to go on from."""
        if self._wiped:
            raise LocalProtocolError("the party was wiped")
        lines = b"\n".join(self._decisions.lines())
        parts = (self._session.to_bytes(), u64(self._index), bytes((self._phase,)), lines)
        return seal_state(_STATE_TAG, parts)

    @classmethod
    def restore(
        cls,
        data: bytes,
        *,
        identity: IdentityKey | None = None,
        roster: Roster | None = None,
        policy: Policy | None = None,
        source: RandomSource | None = None,
        cache: SharedCache | None = None,
        record: Iterable[bytes] = (),
    ) -> "IdealClientParty":
        """Rebuild a party from :meth:`export` and the durable record.

        Raises
        ------
        LocalProtocolError
            If ``data`` is damaged, or contradicts the record.
        ProtocolRefused
            If the policy does not trust the server.
        """
        *place, lines = open_state(_STATE_TAG, bytes(data), 4)
        session, index, phase = read_place(*place)
        if policy is not None:
            policy.admit_protocol(session)
        party = cls(session, index, record=(*read_lines(lines, session), *record))
        party._phase = phase
        return party

    def wipe(self) -> None:
        """End; there are no secrets to forget."""
        self._wiped = True

    def _check_set(self, bitmap: bytes, needed: int) -> None:
        if not bitmap_has(bitmap, self._position):
            raise BadSurvivorSet("the set of live clients does not hold this one")
        if bitmap_count(bitmap) < needed:
            raise BadSurvivorSet(f"fewer than {needed} clients are live")

    def _check_survivors(self, survivors: bytes) -> None:
        needed = max(quorum(self._session), self._session.min_survivors)
        self._check_set(survivors, needed)

    def _check_question(self, message: Incoming) -> CohortQuestion:
        question = accept(message, CohortQuestion, self._session)
        self._decisions.decide("contribute", question.digest)
        self._check_set(question.sharers, quorum(self._session))
        return question

    def _present(self, stage: str, message: bytes, survivors: bytes | None = None) -> Step:
        decision = self._decisions.decide(stage, message, survivors)
        place = self._phases.index(stage)
        send = Presence(self._session.digest, self._index, place)
        return Step(self._advance(self._phases[place + 1], self._decisions.commit(decision)), send)


class IdealServerParty(StagedServer):
    """A trusted server: :class:`~zerosum.secagg.parties.server.ServerParty` without masks.

    Parameters
    ----------
    session : Session
    keep : bool
        Whether to keep every contribution in :attr:`contributions` (protocol "none").
    roster, cache
        As for ``ServerParty``; not used.

    Raises
    ------
    LocalProtocolError
        If the session promises the clients something else.
    """

    def __init__(
        self,
        session: Session,
        keep: bool = False,
        *,
        roster: Roster | None = None,
        cache: SharedCache | None = None,
    ) -> None:
        super().__init__(session)
        if session.protocol is not (Protocol.NONE if keep else Protocol.IDEAL):
            raise LocalProtocolError(
                f'keep = {keep} for a session with protocol = "{session.protocol}": clients were '
                'told "none" where their vectors are kept, and "ideal" where not'
            )
        self._keep = keep
        self._total = session.ring.zeros(session.vector_length)
        self._contributions: dict[int, NDArray[Any]] = {}

    @property
    def keeps(self) -> bool:
        """Whether every contribution is kept."""
        return self._keep

    @property
    def contributions(self) -> dict[int, NDArray[Any]]:
        """Roster index to ring vector, in roster order.

        Raises
        ------
        LocalProtocolError
            If they are not kept.
        """
        if not self._keep:
            raise LocalProtocolError("contributions are kept only with keep=True")
        return {index: self._contributions[index] for index in sorted(self._contributions)}

    def receive_sum(self, clients: Sequence[int], ring_sum: NDArray[Any]) -> None:
        """Take, at contribute, the sum of several clients' vectors at once.

        Parameters
        ----------
        clients : sequence of int
            Roster indices, distinct, live, none of which has contributed.
        ring_sum : ndarray, shape (vector_length,)
            Sum of their vectors in the ring, centred or in its container.

        Raises
        ------
        LocalProtocolError
            If contributions are kept, the stage is another, a client may not contribute, or the
            sum is not in the ring.
        """
        if self._keep or self.stage != "contribute":
            raise LocalProtocolError("sums are taken at contribute, where none are kept")
        positions = self._free(clients)
        ring, length = self._session.ring, self._session.vector_length
        ring.add_into(self._total, ring.contain(ring_sum, length))
        self._answered |= positions

    def receive_presence(self, clients: Sequence[int]) -> None:
        """Take the presence of several clients at once, at any stage but contribute.

        Parameters
        ----------
        clients : sequence of int
            Roster indices, distinct, live, none of which has answered.

        Raises
        ------
        LocalProtocolError
            If the stage is another, or a client may not answer.
        """
        if self.stage in ("contribute", "done", "failed"):
            raise LocalProtocolError(f"no presence is expected: the stage is {self.stage}")
        self._answered |= self._free(clients)

    def _free(self, clients: Sequence[int]) -> set[int]:
        """Return the clients' positions, all of them live and not heard of at this stage."""
        positions = {self._session.position(index) for index in clients}
        live = self._live[-1] if self._live else range(self._session.size)
        if len(positions) != len(clients) or not positions <= set(live) - self._answered:
            raise LocalProtocolError("a client is not live, or is counted twice")
        return positions

    def _take(self, position: int, message: Incoming) -> None:
        if self.stage == "contribute":
            contribution = accept(message, Contribution, self._session)
            self._check_contribution(position, contribution)
            self._session.ring.add_into(self._total, contribution.vector)
            if self._keep:
                self._contributions[contribution.index] = contribution.vector
            return
        presence = accept(message, Presence, self._session)
        self._check_sender(position, presence.index)
        if presence.stage != self._phase:
            raise OutOfOrder("presence at another stage")

    def _after_advertise(self, live: list[int]) -> Mapping[int, Message]:
        present = to_bitmap(live, self._session.size)
        return self._to_all(live, Roll(self._session.digest, present))

    def _after_share(self, live: list[int], request: bytes) -> Mapping[int, Message]:
        sharers = to_bitmap(live, self._session.size)
        return self._to_all(live, CohortQuestion(self._session.digest, request, sharers))

    def _after_contribute(self, live: list[int]) -> Mapping[int, Message]:
        survivors = to_bitmap(live, self._session.size)
        if self._session.signed:
            return self._to_all(live, ConfirmRequest(self._session.digest, survivors))
        return self._to_all(live, UnmaskRequest(self._session.digest, survivors))

    def _after_confirm(self, live: list[int]) -> Mapping[int, Message]:
        # The same message as the real one; nobody signs.
        survivors, nobody = (to_bitmap(who, self._session.size) for who in (self._live[2], []))
        return self._to_all(live, UnmaskRequest(self._session.digest, survivors, nobody))

    def _after_unmask(self, live: list[int]) -> tuple[NDArray[Any], Verdict]:
        total: NDArray[Any] = np.array(self._session.ring.reduce(self._total))
        return total, Verdict()
