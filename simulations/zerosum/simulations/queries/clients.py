"""Simulated clients that hold tables: the handlers of a deployment, in this process."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from zerosum.client.flower.client_app import build_app
from zerosum.client.protocol.client_vector import Work, client_of
from zerosum.client.protocol.noise_source import Entropy
from zerosum.client.queries.table import Table
from zerosum.client.request import QueryQuestion, Request
from zerosum.client.spec import SecAggSpec
from zerosum.client.task import ClientInfo
from zerosum.secagg import Session, SharedCache
from zerosum.server.analytics.query_plan import PlanFile, plan_toml
from zerosum.server.private_sum.coordinator import Coordinator, Nodes
from zerosum.server.spec import FaultSpec
from zerosum.simulations.engine.faults import FaultPlan
from zerosum.simulations.engine.grid import InProcessGrid, nodes
from zerosum.simulations.engine.simulated_clients import DrawnIdentities, SimulatedEnvironment
from zerosum.simulations.queries.tables import DealtTable

MOST_MESSAGES: Final = 1000
"""Most clients that are each sent messages where the server is trusted with their sum."""


class TableEnvironment(SimulatedEnvironment):
    """Environment of clients that each hold rows of one table, and answer queries alone.

    Parameters
    ----------
    dealt : DealtTable
        Whose rows are whose.
    entropy : Entropy
        Noise, coins and secret orders.
    secagg : SecAggSpec
        Says whether clients sign.
    """

    def __init__(self, dealt: DealtTable, entropy: Entropy, secagg: SecAggSpec) -> None:
        signed = secagg.protocol == "pairwise" and secagg.server == "malicious"
        super().__init__(
            None,
            entropy,
            identities=DrawnIdentities(dealt.clients if signed else 0),
            cache=SharedCache(secagg.groups + 1),
        )
        self._dealt = dealt

    def table(self, question: QueryQuestion, client: ClientInfo) -> Table:
        """Return the rows of one client."""
        return self._dealt.of(client.index)


class TableCohort:
    """All clients of a table at once, for a server that is trusted with their sum.

    A message a client and stage would hold every vector of a large cohort at the same time; here
    one is added after another. Vectors, noise and faults are those of the handlers.

    Parameters
    ----------
    environment : TableEnvironment
        Computes vectors.
    faults : FaultPlan
        Who vanishes when.
    """

    def __init__(self, environment: TableEnvironment, faults: FaultPlan) -> None:
        self._environment, self._faults = environment, faults

    def answering(self, stage: str, clients: Sequence[int], round: int) -> Sequence[int]:
        """Return which of these clients answer at a stage.

        Parameters
        ----------
        stage : str
            Of the session.
        clients : sequence of int
            Who is asked.
        round : int
            Of the session.

        Returns
        -------
        sequence of int
            In order.
        """
        return self._faults.answering(stage, clients, round)

    def total(
        self, request: Request, session: Session, clients: Sequence[int]
    ) -> tuple[Sequence[int], NDArray[np.int64]]:
        """Add the vectors of these clients, one after another.

        Parameters
        ----------
        request : Request
            What is asked.
        session : Session
            Whose sum it is.
        clients : sequence of int
            Who is asked.

        Returns
        -------
        tuple of sequence of int and numpy.ndarray
            The contributors, and int64, shape (session.vector_length,).
        """
        work = Work(request, session)
        total = np.zeros(session.vector_length, dtype=np.int64)
        for index in clients:
            total += self._environment.compute(work, client_of(request, index, {})).result()
        return clients, total


Clients: TypeAlias = Callable[[DealtTable, Entropy, SecAggSpec], TableEnvironment]
"""Makes the clients of a federation."""


def table_coordinator(
    dealt: DealtTable,
    entropy: Entropy,
    secagg: SecAggSpec,
    *,
    run_id: bytes,
    dropout: float,
    seed: int,
    environment: Clients = TableEnvironment,
) -> Coordinator:
    """Return a coordinator of clients that hold tables.

    Parameters
    ----------
    dealt : DealtTable
        Whose rows are whose.
    entropy : Entropy
        Noise, coins and secret orders.
    secagg : SecAggSpec
        Protocol and server.
    run_id : bytes
        16 bytes: enters every session.
    dropout : float
        Part of the clients that vanish before they send their vectors.
    seed : int
        Draws who vanishes.
    environment : callable
        Makes the clients: by default they are honest.

    Returns
    -------
    Coordinator
        Over a grid in this process, whose clients handle the messages of a deployment.
    """
    made = environment(dealt, entropy, secagg)
    faults = FaultPlan(FaultSpec(contribute=dropout), seed)
    at_once = secagg.protocol == "ideal" and dealt.clients > MOST_MESSAGES
    return Coordinator(
        InProcessGrid(build_app(lambda context: made), dealt.clients, faults=faults),
        Nodes(nodes(dealt.clients), made.roster),
        secagg,
        run_id=run_id,
        entropy=entropy,
        cache=made.cache,
        cohort=TableCohort(made, faults) if at_once else None,
    )


def run_id(file: PlanFile) -> bytes:
    """Derive the run id of a simulation from its plan: equal plans open equal sessions.

    Parameters
    ----------
    file : PlanFile
        Its settings and domains; queries that are added later change nothing.

    Returns
    -------
    bytes
        16 of them.
    """
    fixed = plan_toml(replace(file, queries=()).changed(data=None))
    return hashlib.sha256(b"zerosum/1 simulated queries\0" + fixed.encode()).digest()[:16]
