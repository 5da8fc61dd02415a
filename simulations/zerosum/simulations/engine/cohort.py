"""How a simulation's messages reach its engine: one by one, or the whole cohort's sum at once."""

import contextlib
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from flwr.app import Context, Message
from numpy.typing import NDArray

from zerosum.client.protocol.flower_messages import STAGE_TYPES
from zerosum.client.protocol.stages import Declined
from zerosum.client.request import Request
from zerosum.secagg import Session
from zerosum.secagg.stages import Stage
from zerosum.simulations.engine.faults import FaultPlan
from zerosum.simulations.engine.grid import App, answered
from zerosum.simulations.engine.work import Engine, Vector, Work

Place = tuple[Message, Context]


class SimulatedCohort:
    """All clients of a simulation, for a server that is trusted with their sum.

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
        kind = STAGE_TYPES[stage]
        return [index for index in clients if not self._faults.vanishes(round, index, kind)]

    def total(
        self, request: Request, session: Session, clients: Sequence[int]
    ) -> tuple[list[int], NDArray[np.int64]]:
        """Return who of these clients contributed, and the sum of their vectors."""
        return self._engine.total(Work(request, session), clients)


class SimulatedClients(Protocol):
    """What clients stand in, as far as an engine has to know."""

    def work_of(self, place: Place) -> tuple[int, Work]:
        """Return the client of a contribute message, and what is asked of it."""
        ...

    def hold(self, index: int, session: Session, vector: Vector | None) -> None:
        """Keep what was computed for the client whose message is handled next."""
        ...


class CohortApp:
    """A ClientApp whose contributions are computed by an engine, ahead of each message.

    Parameters
    ----------
    app : callable
        Handles one message.
    clients : SimulatedClients
    engine : Engine
    """

    def __init__(self, app: App, clients: SimulatedClients, engine: Engine) -> None:
        self._app = app
        self._clients = clients
        self._engine = engine

    def __call__(self, message: Message, context: Context) -> Message:
        """Handle one message by itself."""
        return self._app(message, context)

    def handle_many(
        self, messages: Sequence[Message], contexts: Sequence[Context]
    ) -> list[Message]:
        """Handle a cohort's messages; those of contribute as their vectors are computed."""
        places = list(zip(messages, contexts, strict=True))
        if not places or messages[0].metadata.message_type != STAGE_TYPES[Stage.CONTRIBUTE]:
            return [answered(self._app, *place) for place in places]
        replies, waiting = [], dict(enumerate(places))
        by_session: dict[bytes, tuple[Work, dict[int, int]]] = {}
        for number, place in enumerate(places):
            # Whoever has no session open is asked all the same, and declines by itself.
            with contextlib.suppress(Declined):
                index, work = self._clients.work_of(place)
                by_session.setdefault(work.session.digest, (work, {}))[1][index] = number
        for work, numbers in by_session.values():
            for index, vector in self._engine.vectors(work, tuple(numbers)):
                self._clients.hold(index, work.session, vector)
                replies.append(answered(self._app, *waiting.pop(numbers[index])))
        return replies + [answered(self._app, *place) for place in waiting.values()]
