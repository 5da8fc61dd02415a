"""Hand a simulation's messages to its engine: a cohort's vectors at once, or its sum alone."""

from collections.abc import Generator, Sequence
from contextlib import closing

import numpy as np
from flwr.app import Context, Message
from numpy.typing import NDArray

from zerosum.client.flower.client_app import EnvironmentOf, answering, build_app
from zerosum.client.protocol.admission import Declined
from zerosum.client.protocol.client_vector import Future, Work
from zerosum.client.protocol.flower_messages import STAGE_TYPES, unpacked
from zerosum.client.protocol.stages import Contribution, begin_contribution
from zerosum.client.request import Request
from zerosum.client.task import ClientInfo
from zerosum.secagg import Session
from zerosum.secagg.stages import Stage
from zerosum.simulations.engine.faults import FaultPlan
from zerosum.simulations.engine.grid import App, answered, refusal
from zerosum.simulations.engine.work import Engine, Signed


class SimulatedCohort:
    """Cohort of a simulation whose server is trusted with the sum: no message for each client.

    Parameters
    ----------
    engine : Engine
        Computes their vectors.
    faults : FaultPlan
        Who vanishes at which stage.
    """

    def __init__(self, engine: Engine, faults: FaultPlan) -> None:
        self._engine = engine
        self._faults = faults

    def answering(self, stage: str, clients: Sequence[int], round: int) -> list[int]:
        """Return which of these clients do not vanish at a stage."""
        return self._faults.answering(stage, clients, round)

    def total(
        self, request: Request, session: Session, clients: Sequence[int]
    ) -> tuple[list[int], NDArray[np.int64]]:
        """Return who of these clients contributed, and the sum of their vectors."""
        return self._engine.total(Work(request, session), clients)


class EngineFuture:
    """Future of one client's vector, computed by an engine together with others.

    Parameters
    ----------
    stream : generator of EngineFuture
        Goes on with the engine's work, future by future.
    """

    def __init__(self, stream: "Generator[EngineFuture]") -> None:
        self._stream = stream
        self._done = False
        self._vector: Signed | None = None

    def settle(self, vector: Signed | None) -> None:
        """Set the outcome: a vector, or None where the client dropped out."""
        self._done, self._vector = True, vector

    def result(self) -> Signed:
        """Run the engine until the vector is there."""
        for _ in () if self._done else self._stream:
            if self._done:
                break
        if self._vector is None:
            raise Declined("its answer failed, as this log says above")
        return self._vector


class CohortFutures:
    """Futures of a cohort's vectors, dispatched to the engine when the first one is collected.

    An engine trains clients in groups, and on several cores, only if it is told of many at once.
    So nothing is computed as clients are admitted. When the first vector is waited for, the engine
    is given all clients of a session that were asked the same. Two that were asked different
    things, by a server that lies, are two pieces of work.

    Parameters
    ----------
    engine : Engine
        Computes the vectors.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._submitted: dict[tuple[bytes, bytes], tuple[Work, dict[int, EngineFuture]]] = {}
        self._stream = self._computed()

    def submit(self, work: Work, client: ClientInfo) -> Future:
        """Queue an admitted client's vector.

        Parameters
        ----------
        work : Work
            What it was asked.
        client : ClientInfo
            Who it is; a simulation's node config follows from the index.

        Returns
        -------
        Future
            Of its vector.

        Raises
        ------
        Declined
            If its vector for this session is on its way already.
        """
        key = work.session.digest, work.request.digest
        futures = self._submitted.setdefault(key, (work, {}))[1]
        if client.index in futures:
            raise Declined("the answer to this session is on its way already")
        futures[client.index] = future = EngineFuture(self._stream)
        return future

    def as_completed(self) -> Generator[EngineFuture]:
        """Compute what was submitted, and yield each future as its vector arrives.

        Vectors come in the engine's order, not the cohort's. Each is masked and dropped before the
        next is taken: to collect them in order would keep all those that overtook a slow client.

        Returns
        -------
        generator of EngineFuture
            To be closed by a caller that stops early, so that workers stop as well.
        """
        return self._stream

    def _computed(self) -> Generator[EngineFuture]:
        while self._submitted:
            work, futures = self._submitted.pop(next(iter(self._submitted)))
            for index, vector in self._engine.vectors(work, tuple(futures)):
                future = futures.pop(index)
                future.settle(vector)
                yield future


class CohortApp:
    """ClientApp whose contributions an engine computes, many clients at once.

    All else is answered message by message, as :func:`~zerosum.client.flower.client_app.build_app`
    answers it on a node.

    Parameters
    ----------
    environment : callable
        What the client of a context stands in.
    engine : Engine
        Computes the vectors.
    """

    def __init__(self, environment: EnvironmentOf, engine: Engine) -> None:
        self._app: App = build_app(environment)
        self._environment = environment
        self._engine = engine

    def __call__(self, message: Message, context: Context) -> Message:
        """Handle one message by itself."""
        return self._app(message, context)

    def handle_many(
        self, messages: Sequence[Message], contexts: Sequence[Context]
    ) -> list[Message]:
        """Handle a cohort's messages: admit all contributions, then send each as it is computed.

        Between its two halves a client's record is not held, which a record on disk would have to
        be: here a client is sent one message at a time.

        Parameters
        ----------
        messages : sequence of flwr.app.Message
            At most one for each client.
        contexts : sequence of flwr.app.Context
            Of their clients, in the same order.

        Returns
        -------
        list of flwr.app.Message
            A reply to each, in the order in which they were ready.
        """
        replies: list[Message] = []
        futures, begun = CohortFutures(self._engine), dict[Future, tuple[Message, Contribution]]()
        for message, context in zip(messages, contexts, strict=True):
            if message.metadata.message_type != STAGE_TYPES[Stage.CONTRIBUTE]:
                replies.append(answered(self._app, message, context))
                continue
            try:
                contribution = self._begin(message, context, futures)
            except Declined as error:
                replies.append(refusal(message, error))
            else:
                begun[contribution.vector] = message, contribution
        with closing(futures.as_completed()) as completed:
            for future in completed:
                message, contribution = begun.pop(future)
                replies.append(self._send(message, contribution))
        return replies

    def _begin(self, message: Message, context: Context, futures: CohortFutures) -> Contribution:
        with answering(Stage.CONTRIBUTE, self._environment, context) as here:
            return begin_contribution(here, message.content, context, futures.submit)

    def _send(self, message: Message, contribution: Contribution) -> Message:
        try:
            with answering(Stage.CONTRIBUTE, self._environment, contribution.context):
                # A vector that its server reads in this process is not packed for it: to pack and
                # unpack a hundred costs as much as to train them.
                return Message(contribution.send(unpacked), reply_to=message)
        except Declined as error:
            return refusal(message, error)
