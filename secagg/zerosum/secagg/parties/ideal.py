"""The ideal functionality: the same parties, stages and abort rules with no cryptography.

The server is trusted: it sees every vector and keeps the sum only (protocol "ideal"), or the
vectors too (protocol "none").
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.crypto.cache import SharedCache
from zerosum.secagg.crypto.identity import IdentityKey, Roster
from zerosum.secagg.errors import (
    BadSurvivorSet,
    LocalProtocolError,
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
from zerosum.secagg.messages.durable_record import NO_MESSAGE, Decisions
from zerosum.secagg.messages.exported_state import open_state, read_lines, read_place, seal_state
from zerosum.secagg.messages.unmasked import CohortQuestion, Presence, Roll
from zerosum.secagg.parties.client_stages import SessionClient
from zerosum.secagg.parties.interface import Incoming, Step
from zerosum.secagg.parties.policy import Policy
from zerosum.secagg.parties.server_stages import StagedServer
from zerosum.secagg.parties.verdict import Verdict
from zerosum.secagg.randomness import RandomSource
from zerosum.secagg.session import Protocol, Session
from zerosum.secagg.stages import End, MessageCode, Phase, Stage
from zerosum.secagg.wire import bitmap_count, bitmap_has, to_bitmap, u64

_STATE_TAG = b"zerosum ideal client state 2\0"


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
        self._join(session, index, masks=False)
        if policy is not None:
            policy.admit(session, roster)
        self._decisions = Decisions(session.digest, record)

    def advertise(self) -> Step:
        """Say that the client is here."""
        return self._present(self._enter(Stage.ADVERTISE), NO_MESSAGE)

    def share(self, message: Incoming) -> Step:
        """Say that the client is still here."""
        phase = self._enter(Stage.SHARE)
        roll = self._read(phase, Roll, message)
        self._check_set(roll.present, quorum(self._session))
        return self._present(phase, roll.digest)

    def admit(self, message: Incoming) -> bytes:
        """Check the contribute message and return its request digest."""
        return self._check_question(self._enter(Stage.CONTRIBUTE), message).request

    def contribute(self, message: Incoming, vector: NDArray[Any]) -> Step:
        """Return the vector itself; once."""
        phase = self._enter(Stage.CONTRIBUTE)
        question = self._check_question(phase, message)
        decision = self._decisions.decide(phase, question.digest)
        session = self._session
        plain = session.ring.contain(vector, session.vector_length)
        send = Contribution(session.digest, self._index, question.request, plain, session.ring_bits)
        return Step(self._advance(phase, self._decisions.commit(decision)), send)

    def confirm(self, message: Incoming) -> Step:
        """Say that the client is still here."""
        phase = self._enter(Stage.CONFIRM)
        request = self._read(phase, ConfirmRequest, message)
        self._check_survivors(request.survivors)
        return self._present(phase, request.digest, request.survivors)

    def unmask(self, message: Incoming) -> Step:
        """Say that the client is still here."""
        phase = self._enter(Stage.UNMASK)
        request = self._read(phase, UnmaskRequest, message)
        self._check_survivors(request.survivors)
        return self._present(phase, request.digest, request.survivors)

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

        Parameters
        ----------
        data : bytes
            What ``export`` returned, at this or an earlier stage.
        identity, roster, source, cache
            Not used: nothing is signed, drawn or cached.
        policy : Policy, optional
            Whether the client still trusts the server.
        record : iterable of bytes
            Every line of the durable record.

        Returns
        -------
        IdealClientParty

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

    def _check_question(self, phase: Phase, message: Incoming) -> CohortQuestion:
        question = self._read(phase, CohortQuestion, message)
        self._decisions.decide(phase, question.digest)
        self._check_set(question.sharers, quorum(self._session))
        return question

    def _present(self, phase: Phase, message: bytes, survivors: bytes | None = None) -> Step:
        decision = self._decisions.decide(phase, message, survivors)
        send = Presence(self._session.digest, self._index, self._order.index(phase.stage))
        return Step(self._advance(phase, self._decisions.commit(decision)), send)


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
        """Return whether every contribution is kept."""
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
        if self._keep or self.stage is not Stage.CONTRIBUTE:
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
        if self.stage is Stage.CONTRIBUTE or isinstance(self.stage, End):
            raise LocalProtocolError(f"no presence is expected: the stage is {self.stage}")
        self._answered |= self._free(clients)

    def _free(self, clients: Sequence[int]) -> set[int]:
        """Return the clients' positions, all of them live and not heard of at this stage."""
        positions = set(map(self._session.position, clients))
        live = self._live[-1] if self._live else range(self._session.size)
        free = positions.issubset(live) and positions.isdisjoint(self._answered)
        if len(positions) != len(clients) or not free:
            raise LocalProtocolError("a client is not live, or is counted twice")
        return positions

    def _take(self, code: MessageCode, position: int, message: Incoming) -> None:
        if code is MessageCode.CONTRIBUTION:
            contribution = accept(message, Contribution, self._session)
            self._check_contribution(position, contribution)
            self._session.ring.add_into(self._total, contribution.vector)
            if self._keep:
                self._contributions[contribution.index] = contribution.vector
            return
        presence = accept(message, Presence, self._session)
        self._check_sender(position, presence.index)
        if self._session.stages[presence.stage] is not self.stage:
            raise OutOfOrder("presence at another stage")

    def _ask(self, code: MessageCode | None, live: list[int]) -> Mapping[int, Message]:
        session, present = self._session, to_bitmap(live, self._session.size)
        survivors = to_bitmap(self._survivors, session.size)
        message: Message
        match code:
            case MessageCode.ROLL:
                message = Roll(session.digest, present)
            case MessageCode.COHORT_QUESTION:
                message = CohortQuestion(session.digest, self._request, present)
            case MessageCode.CONFIRM_REQUEST:
                message = ConfirmRequest(session.digest, survivors)
            case _:
                # The same message as the real one; nobody signs.
                signers = to_bitmap([], session.size) if session.signed else b""
                message = UnmaskRequest(session.digest, survivors, signers)
        return self._to_all(live, message)

    def _open(self) -> tuple[NDArray[Any], Verdict]:
        total: NDArray[Any] = np.array(self._session.ring.reduce(self._total))
        return total, Verdict()
