"""The parts of a client that differ by where it runs: on its own node, or in a simulation.

The stages of the protocol are written once (:mod:`~zerosum.client.protocol.stages`) and ask an
environment for everything else.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

import numpy as np
from flwr.app import Context, RecordDict

from zerosum.client.protocol.client_vector import Future, OnCollection, Work, protected
from zerosum.client.protocol.decision_store import DecisionStore
from zerosum.client.protocol.node_keys import Credentials
from zerosum.client.protocol.noise_source import Entropy
from zerosum.client.protocol.query_answer import QUERY_COINS, query_answer
from zerosum.client.queries.table import Table
from zerosum.client.request import (
    ModelRequest,
    QueryQuestion,
    QueryRequest,
    Request,
    about_model,
)
from zerosum.client.spec import ClientPolicy
from zerosum.client.task import ClientInfo, Task
from zerosum.secagg import Client, Session


class Environment(Protocol):
    """The parts of a client that differ by where it runs: state, policy, entropy, data and keys."""

    entropy: Entropy

    @property
    def policy(self) -> ClientPolicy:
        """Return the client's own policy."""
        ...

    def index(self, context: Context) -> int:
        """Return this client's index in the roster."""
        ...

    def store(self, context: Context) -> DecisionStore:
        """Return the durable record of this client's decisions."""
        ...

    def credentials(self, context: Context) -> Credentials | None:
        """Return the client's signing key and roster; None where it was given none."""
        ...

    def open_party(self, context: Context, session: Session) -> Client:
        """Make the party of a new session that the policy admitted, for the session's protocol.

        Parameters
        ----------
        context : flwr.app.Context
            Of the message that opens the session.
        session : Session
            As the policy admitted it.

        Returns
        -------
        Client
            At its first stage.
        """
        ...

    def party(self, context: Context, message: bytes) -> Client:
        """Return the party of a message's session.

        Parameters
        ----------
        context : flwr.app.Context
            Of the message; its state may hold the party.
        message : bytes
            Names the session.

        Returns
        -------
        Client
            As the stage before left it.

        Raises
        ------
        Declined
            If no such session is open here.
        """
        ...

    def keep(self, context: Context, party: Client) -> None:
        """Keep a party until its session's next message.

        Parameters
        ----------
        context : flwr.app.Context
            Whose state may hold it.
        party : Client
            Between two stages.
        """
        ...

    def forget(self, context: Context, party: Client) -> None:
        """Forget a party: its session is over here.

        Parameters
        ----------
        context : flwr.app.Context
            Whose state may hold it.
        party : Client
            Answers nothing any more.
        """
        ...

    def check_ready(self) -> None:
        """Raise PolicyError where something of the client's own is missing, before it is asked."""
        ...

    def request(self, content: RecordDict) -> Request:
        """Read the request that a contribute message carries."""
        ...

    def task(self, request: ModelRequest, client: ClientInfo) -> Task:
        """Return the task that the request names.

        Parameters
        ----------
        request : ModelRequest
            As admitted.
        client : ClientInfo
            Whose node config may name other data.

        Returns
        -------
        Task
            For one answer.
        """
        ...

    def update(self, request: ModelRequest, task: Task, client: ClientInfo) -> np.ndarray:
        """Compute the answer to a request before protection.

        Parameters
        ----------
        request : ModelRequest
            As admitted.
        task : Task
            As :meth:`task` gave it.
        client : ClientInfo
            Who answers.

        Returns
        -------
        numpy.ndarray
            float, shape (request.dimension,).
        """
        ...

    def table(self, question: QueryQuestion, client: ClientInfo) -> Table:
        """Return the client's table, coded by the columns that a query reads.

        Parameters
        ----------
        question : QueryQuestion
            As admitted.
        client : ClientInfo
            Whose table it is.

        Returns
        -------
        Table
            For one answer, coded by :func:`~.query_answer.columns_read`.
        """
        ...

    def row_secret(self, client: ClientInfo) -> bytes:
        """Return the 32 bytes that order the client's rows, the same for every query."""
        ...

    def compute(self, work: Work, client: ClientInfo) -> Future:
        """Begin to compute the client's vector, where no engine does it for many.

        Parameters
        ----------
        work : Work
            Admitted and priced.
        client : ClientInfo
            Who answers.

        Returns
        -------
        Future
            Collected once.
        """
        ...


def compute_here(environment: Environment, work: Work, client: ClientInfo) -> Future:
    """Compute a client's vector in this process when it is collected.

    Parameters
    ----------
    environment : Environment
        Gives the task and the answer, or the table of a query.
    work : Work
        Admitted and priced.
    client : ClientInfo
        Who answers.

    Returns
    -------
    Future
        Computes on collection.
    """
    answer: Callable[[], np.ndarray]
    if isinstance(work.request, QueryRequest):
        # Now: a secret that cannot be read is no matter of records, and declines the request.
        secret = environment.row_secret(client)
        answer = partial(_answer_to_query, environment, work.request, work.session, client, secret)
    else:
        answer = partial(_update, environment, about_model(work.request), client)
    return OnCollection(partial(protected, work, client.index, environment.entropy, answer))


def _update(environment: Environment, request: ModelRequest, client: ClientInfo) -> np.ndarray:
    return environment.update(request, environment.task(request, client), client)


def _answer_to_query(
    environment: Environment,
    request: QueryRequest,
    session: Session,
    client: ClientInfo,
    secret: bytes,
) -> np.ndarray:
    key = session.round, session.attempt, client.index
    return query_answer(
        request,
        partial(environment.table, request.question, client),
        secret,
        partial(environment.entropy.keystream, QUERY_COINS, *key),
        index=client.index,
    )
