"""Stages and rules of ending at the server: the same for every protocol."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.errors import (
    DuplicateMessage,
    LocalProtocolError,
    OutOfOrder,
    RequestMismatch,
    SecAggError,
    TooFewSurvivors,
    WrongParty,
)
from zerosum.secagg.graph.graphs import Graph, public_graph, quorum
from zerosum.secagg.messages.all_messages import Contribution, Message
from zerosum.secagg.parties.interface import Incoming, SumResult
from zerosum.secagg.parties.verdict import Verdict
from zerosum.secagg.session import DIGEST_BYTES, Session
from zerosum.secagg.stages import OPENING, End, MessageCode, Phase, Stage


class StagedServer(ABC):
    """Follow the phase table at the server: who is live, and when a session ends early.

    A subclass takes the messages of one client (and raises with its state unchanged), makes
    those of the next stage, and gives the sum after the last.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._phases = session.phases
        self._stage: Stage | End = Stage.ADVERTISE
        # None where only the clients' adverts, at a server that reads them, tell the edges.
        self._graph: Graph | None = public_graph(session)
        self._answered: set[int] = set()
        # Cohort positions, ascending, of those who answered each closed stage: U1, U2, U3, U4.
        self._live: list[list[int]] = []
        # The same, as masks.
        self._alive: list[NDArray[np.bool_]] = []
        # U3: once contribute is closed.
        self._survivors: list[int] = []
        self._request = b""
        self._result: SumResult | None = None

    @property
    def session(self) -> Session:
        """The session that the party serves."""
        return self._session

    @property
    def stage(self) -> Stage | End:
        """The stage whose messages are being received, or how the session ended."""
        return self._stage

    @property
    def result(self) -> SumResult:
        """The outcome.

        Raises
        ------
        LocalProtocolError
            Before unmask is closed, and after a failure.
        """
        if self._result is None:
            raise LocalProtocolError(f"there is no result: the stage is {self.stage}")
        return self._result

    def receive(self, sender_index: int, message: Incoming) -> None:
        """Take one client's message of the current stage.

        Parameters
        ----------
        sender_index : int
            Roster index of the client that the transport names as the sender.
        message : bytes or Message

        Raises
        ------
        RemoteProtocolError
            If it is not acceptable; the state is unchanged, and the sender will be a dropout of
            this stage unless it sends one that is.
        """
        if isinstance(self._stage, End):
            raise OutOfOrder(f"no message is expected: the stage is {self.stage}")
        position = self._session.position(sender_index)
        if self._alive and not self._alive[-1][position]:
            raise OutOfOrder(f"client {sender_index} dropped out before {self.stage}")
        if position in self._answered:
            raise DuplicateMessage(f"client {sender_index} answered at {self.stage} already")
        self._take(self._phases[self._stage].sends, position, message)
        self._answered.add(position)

    def close(self, request: bytes | None = None) -> Mapping[int, Message]:
        """End the current stage; whoever has not answered is a dropout.

        Parameters
        ----------
        request : bytes, optional
            The 32-byte request digest: required at share, and only there.

        Returns
        -------
        mapping
            Roster index of each live client to its message of the next stage; empty after
            unmask, when :attr:`result` is there. On a sparse graph it makes each message when
            it is asked for, and holds none.

        Raises
        ------
        TooFewSurvivors
            If the session cannot end in a sum of at least ``min_survivors``.
        ReconstructionFailed
            If a secret could not be recovered.
        LocalProtocolError
            If the session is over, or ``request`` is missing, misplaced or malformed.
        """
        phase = self._check_close(request)
        try:
            live = self._still_live(phase.stage, sorted(self._answered))
            return self._next(phase, live)
        except SecAggError:
            self._stage = End.FAILED
            raise

    def _still_live(self, stage: Stage, live: list[int]) -> list[int]:
        """Return who goes on, if a sum can still come of it.

        Until U2 is fixed, a client with too few live neighbours is a dropout: it would refuse
        itself. From then on its secrets are needed, and without neighbours there is no sum.
        """
        if stage in OPENING:
            live = self._well_connected(stage, live)
        needed = quorum(self._session)
        if stage is Stage.CONTRIBUTE:
            needed = max(needed, self._session.min_survivors)
        if len(live) < needed:
            raise TooFewSurvivors(stage, len(live), needed)
        if stage not in OPENING and self._graph is not None:
            counts = self._graph.counts(self._mask(live))[self._live[1]]
            fewest = int(np.argmin(counts))
            if counts[fewest] < self._session.threshold:
                index = self._session.cohort[self._live[1][fewest]]
                threshold = self._session.threshold
                raise TooFewSurvivors(stage, int(counts[fewest]), threshold, index)
        return live

    def _well_connected(self, stage: Stage, live: list[int]) -> list[int]:
        if self._session.complete or self._graph is None:
            return live
        while live:
            counts = self._graph.counts(self._mask(live))
            connected = [p for p in live if counts[p] >= self._session.threshold]
            if len(connected) == len(live):
                break
            # Whoever leaves takes a neighbour from others: look again.
            live = connected
        return live

    def _mask(self, positions: list[int]) -> NDArray[np.bool_]:
        mask = np.zeros(self._session.size, bool)
        mask[positions] = True
        return mask

    def _check_close(self, request: bytes | None) -> Phase:
        if isinstance(self._stage, End):
            raise LocalProtocolError(f"nothing to close: the stage is {self._stage}")
        phase = self._phases[self._stage]
        # The request goes out with what contribute reads.
        if (request is not None) != (phase.then is Stage.CONTRIBUTE):
            raise LocalProtocolError(
                f"a request digest is given when closing share, and only then, not at {phase.stage}"
            )
        if request is not None and len(request) != DIGEST_BYTES:
            raise LocalProtocolError(f"a request digest has 32 bytes, not {len(request)}")
        self._request = request or self._request
        return phase

    def _next(self, phase: Phase, live: list[int]) -> Mapping[int, Message]:
        self._live.append(live)
        self._alive.append(self._mask(live))
        self._answered = set()
        if phase.stage is Stage.CONTRIBUTE:
            self._survivors = live
        messages: Mapping[int, Message] = {}
        if isinstance(phase.then, End):
            self._result = self._outcome(*self._open())
        else:
            messages = self._ask(self._phases[phase.then].reads, live)
        self._stage = phase.then
        return messages

    def _outcome(self, total: NDArray[Any], verdict: Verdict) -> SumResult:
        everybody = list(range(self._session.size))
        before = [everybody, *self._live[:-1]]
        dropouts = {
            stage: self._indices(sorted(set(was) - set(live)))
            for stage, was, live in zip(self._phases, before, self._live, strict=True)
        }
        return SumResult(
            total,
            self._indices(self._survivors),
            dropouts,
            wrong_shares=self._pairs(verdict),
            liars=self._indices(verdict.liars),
            decodings=verdict.decodings,
        )

    def _pairs(self, verdict: Verdict) -> tuple[tuple[int, int], ...]:
        cohort = self._session.cohort
        return tuple((cohort[dealer], cohort[holder]) for dealer, holder in verdict.wrong)

    def _indices(self, positions: Sequence[int]) -> tuple[int, ...]:
        cohort = self._session.cohort
        return tuple([cohort[p] for p in positions])

    def _to_all(self, live: list[int], message: Message) -> dict[int, Message]:
        return dict.fromkeys(self._indices(live), message)

    def _check_sender(self, position: int, index: int) -> None:
        if self._session.cohort[position] != index:
            raise WrongParty(f"a message of client {index} came from another sender")

    def _check_contribution(self, position: int, contribution: Contribution) -> None:
        self._check_sender(position, contribution.index)
        if contribution.request != self._request:
            raise RequestMismatch("the contribution answers another request")

    @abstractmethod
    def _take(self, code: MessageCode, position: int, message: Incoming) -> None:
        """Take one client's message, of the type that clients send at the current stage."""

    @abstractmethod
    def _ask(self, code: MessageCode | None, live: list[int]) -> Mapping[int, Message]:
        """Return, by roster index, messages of the type that clients read at the next stage."""

    @abstractmethod
    def _open(self) -> tuple[NDArray[Any], Verdict]:
        """Return the sum in the ring, shape (vector_length,), and who lied on the way to it."""
