"""Let a malicious server lie to real clients: only messages are changed, on their way."""

import copy
import dataclasses
from functools import cached_property
from typing import Self, TypeVar

import numpy as np
from flwr.app import Context, Message, RecordDict

from zerosum.client.flower.client_app import build_app
from zerosum.client.flower.simulated_node import OPEN_POLICY
from zerosum.client.protocol import flower_messages
from zerosum.client.protocol.noise_source import Entropy
from zerosum.client.request import ModelQuestion, ModelRequest, about_model, model_payload
from zerosum.client.spec import SecAggSpec
from zerosum.client.task import Task
from zerosum.secagg import ContributeRequest, Contribution, Session, SharedCache, decode
from zerosum.secagg import Message as SecAggMessage
from zerosum.secagg.messages.unmasked import CohortQuestion
from zerosum.secagg.session import request_digest
from zerosum.secagg.stages import Stage
from zerosum.simulations.engine.grid import FIRST_NODE, App, InProcessGrid
from zerosum.simulations.engine.simulated_clients import DrawnIdentities, SimulatedEnvironment

M = TypeVar("M", bound=SecAggMessage)


class UnboundRequest(ModelRequest):
    """A request whose digest leaves its model out: a control, without the request hash."""

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the question alone."""
        return request_digest(self.header, b"")


class PolicyClients(SimulatedEnvironment):
    """Simulated clients with a policy; on request without the binding of masks to a model."""

    bound = True

    @classmethod
    def with_rules(
        cls,
        task: Task,
        entropy: Entropy,
        secagg: SecAggSpec,
        population: int,
        *,
        budget: int | None = None,
        bound: bool = True,
    ) -> Self:
        """Return the environment of a population.

        Parameters
        ----------
        task : Task
        entropy : Entropy
        secagg : SecAggSpec
        population : int
        budget : int or None
            Contributions that a client makes.
        bound : bool
            Whether masks are bound to the request, as every real client binds them.

        Returns
        -------
        PolicyClients
        """
        signed = secagg.protocol == "pairwise" and secagg.server == "malicious"
        most = OPEN_POLICY.max_contributions if budget is None else budget
        made = cls(
            task,
            entropy,
            identities=DrawnIdentities(population if signed else 0),
            cache=SharedCache(secagg.groups + 1),
            policy=OPEN_POLICY.model_copy(update={"max_contributions": most}),
        )
        made.bound = bound
        return made

    @property
    def app(self) -> App:
        """The ClientApp of all of them."""
        app: App = build_app(lambda context: self)
        return app

    def request(self, content: RecordDict) -> ModelRequest:
        """Read the request."""
        request = about_model(super().request(content))
        return request_for(request.question, request.model, self.bound)


def request_for(question: ModelQuestion, model: np.ndarray, bound: bool) -> ModelRequest:
    """Return a request whose digest covers the model, or one whose digest does not.

    Parameters
    ----------
    question : ModelQuestion
    model : ndarray
        float32, shape (d,).
    bound : bool
        Whether the digest covers it.

    Returns
    -------
    ModelRequest
    """
    return (ModelRequest if bound else UnboundRequest)(question, model_payload(model))


class TargetingGrid(InProcessGrid):
    """Delivers what a server sends to one client as it is, and another model to all others.

    The others get the digest of their own model, because they decline any other. In their answers
    the digest is changed back, because the server's own side would drop them.

    Parameters
    ----------
    app : callable
        What every client runs.
    population : int
    target : int
        The one client.
    blank : ndarray
        float32, shape (d,): the model that all others get.
    masked, bound : bool
        Whether the sessions mask, and whether their masks are bound to the model.
    """

    def __init__(
        self,
        app: App,
        population: int,
        target: int,
        blank: np.ndarray,
        *,
        masked: bool,
        bound: bool,
    ) -> None:
        super().__init__(self._lied_to, population)
        self._honest, self._masked, self._bound = app, masked, bound
        self._target, self._blank = target, blank
        self._model = flower_messages.payload_record(model_payload(blank))
        self._session: Session | None = None

    def _lied_to(self, message: Message, context: Context) -> Message:
        kind = message.metadata.message_type
        if kind == flower_messages.STAGE_TYPES[Stage.ADVERTISE]:
            self._session = Session.from_bytes(
                flower_messages.bytes_field(message.content, "session")
            )
        target = message.metadata.dst_node_id == FIRST_NODE + self._target
        if target or kind != flower_messages.STAGE_TYPES[Stage.CONTRIBUTE] or self._session is None:
            return self._honest(message, context)
        return self._asked_otherwise(message, context, self._session)

    def _asked_otherwise(self, message: Message, context: Context, session: Session) -> Message:
        """Ask a client about the blank model, and pass its answer off as one to the request."""
        header = flower_messages.bytes_field(message.content, "request")
        data = flower_messages.bytes_field(message.content, "message")
        real: ContributeRequest | CohortQuestion
        if self._masked:
            real = decode(data, ContributeRequest, session)
        else:
            real = decode(data, CohortQuestion, session)
        blank = request_for(ModelRequest.from_bytes(header, b"").question, self._blank, self._bound)
        lie = _with_request(real, blank.digest)
        asked = _with_content(
            message,
            flower_messages.pack({"message": lie.to_bytes(), "request": header}, self._model),
        )
        reply = self._honest(asked, context)
        if not reply.has_content():
            return reply
        answer = decode(
            flower_messages.bytes_field(reply.content, "message"), Contribution, session
        )
        changed = _with_request(answer, real.request)
        return _with_content(reply, flower_messages.pack({"message": changed.to_bytes()}))


def _with_request(message: M, digest: bytes) -> M:
    """Return a message that names another request."""
    return dataclasses.replace(message, request=digest)  # type: ignore[call-arg]


def _with_content(original: Message, content: RecordDict) -> Message:
    """Return a Flower message with another content, addressed as it was."""
    changed = copy.copy(original)
    changed.__dict__["_content"] = content
    return changed
