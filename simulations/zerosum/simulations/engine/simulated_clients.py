"""Environment of simulated clients: one process, one cache, parties kept as live objects."""

from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Self, overload

import numpy as np
from flwr.app import Context, RecordDict

from zerosum.client.flower.client_app import build_app
from zerosum.client.flower.simulated_node import OPEN_POLICY
from zerosum.client.protocol import flower_messages
from zerosum.client.protocol.admission import Declined
from zerosum.client.protocol.client_vector import Future, Work
from zerosum.client.protocol.decision_store import DecisionStore, MemoryStore
from zerosum.client.protocol.environment import compute_here
from zerosum.client.protocol.node_keys import Credentials
from zerosum.client.protocol.noise_source import Entropy
from zerosum.client.queries.table import Table
from zerosum.client.request import ModelRequest, QueryQuestion, Request
from zerosum.client.spec import ClientPolicy, SecAggSpec
from zerosum.client.task import ClientInfo, Task
from zerosum.secagg import (
    Client,
    ClientParty,
    IdealClientParty,
    IdentityKey,
    Roster,
    Session,
    SharedCache,
)
from zerosum.secagg.crypto.identity import PUBLIC_KEY_BYTES
from zerosum.secagg.randomness import SystemRandomness, derive_seed
from zerosum.server.private_sum.coordinator import Coordinator, Nodes
from zerosum.server.spec import Experiment
from zerosum.simulations.engine.faults import FaultPlan
from zerosum.simulations.engine.grid import App, InProcessGrid, nodes

if TYPE_CHECKING:  # which import torch: clients that answer queries train nothing
    from zerosum.client.training.compute import LocalComputation
    from zerosum.simulations.engine.work import Engine

KEYS_MADE = 4096
"""Signing keys kept ready: as many as take part at once, in most experiments."""


class DrawnIdentities(Sequence[IdentityKey]):
    """Signing keys of a population: drawn once as bytes, made into keys on use.

    Parameters
    ----------
    count : int
        Clients.
    """

    def __init__(self, count: int) -> None:
        self._private = SystemRandomness().take(PUBLIC_KEY_BYTES * count)
        self._count = count
        self._made = lru_cache(maxsize=KEYS_MADE)(self._make)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> IdentityKey: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[IdentityKey]: ...
    def __getitem__(self, index: int | slice) -> IdentityKey | Sequence[IdentityKey]:
        """Return one client's key, or some clients'."""
        if isinstance(index, slice):
            return [self._made(i) for i in range(self._count)[index]]
        return self._made(range(self._count)[index])

    def __iter__(self) -> Iterator[IdentityKey]:
        """Make one key after another, and keep none."""
        return map(self._make, range(self._count))

    def _make(self, index: int) -> IdentityKey:
        start = index * PUBLIC_KEY_BYTES
        return IdentityKey(self._private[start : start + PUBLIC_KEY_BYTES])


def roster_of(identities: Sequence[IdentityKey]) -> Roster | None:
    """Return the roster of clients 0, 1, ... with these keys; None without keys.

    Every public key is needed before the first session, which is bound to the roster's digest.
    """
    if not identities:
        return None
    return Roster(1, {index: identity.public for index, identity in enumerate(identities)})


class SimulatedEnvironment:
    """Environment of every client of a simulation at once.

    Parameters
    ----------
    task : Task or None
        The task of the run, resolved before it began; None where clients answer queries.
    entropy : Entropy
        Noise and rounding.
    identities : sequence of IdentityKey
        Each client's signing key; empty where nobody signs.
    cache : SharedCache, optional
        Shared by the parties of this process.
    policy : ClientPolicy
        The same for all clients.
    """

    def __init__(
        self,
        task: Task | None,
        entropy: Entropy,
        *,
        identities: Sequence[IdentityKey] = (),
        cache: SharedCache | None = None,
        policy: ClientPolicy = OPEN_POLICY,
    ) -> None:
        self.entropy = entropy
        self.policy = policy
        self.roster = roster_of(identities)
        self.cache = cache
        self._given_task = task
        self._identities = identities
        self._parties: dict[int, Client] = {}
        self._stores: dict[int, MemoryStore] = {}
        self._sum: tuple[bytes, int, int] | None = None
        self._last_request: tuple[object, Request] | None = None

    @classmethod
    def of(cls, task: Task, entropy: Entropy, secagg: SecAggSpec, population: int) -> Self:
        """Return the environment of a population, with keys where clients sign.

        Parameters
        ----------
        task : Task
            Of the run.
        entropy : Entropy
            Noise and rounding.
        secagg : SecAggSpec
            Says whether clients sign.
        population : int
            Clients.

        Returns
        -------
        SimulatedEnvironment
            Of all of them.
        """
        signed = secagg.protocol == "pairwise" and secagg.server == "malicious"
        identities = DrawnIdentities(population if signed else 0)
        # The sessions of one private sum, and the one that a client may still be ending.
        cache = SharedCache(secagg.groups + 1)
        return cls(task, entropy, identities=identities, cache=cache)

    def coordinator(
        self,
        experiment: Experiment,
        population: int,
        run_id: bytes,
        engine: "Engine | None" = None,
    ) -> Coordinator:
        """Return a coordinator of these clients, with the experiment's faults.

        Parameters
        ----------
        experiment : Experiment
        population : int
            Clients.
        run_id : bytes
            Enters every session.
        engine : Engine, optional
            Computes what clients contribute. Without one each does when its message comes.

        Returns
        -------
        Coordinator
            Over a grid in this process.
        """
        from zerosum.simulations.engine.cohort import CohortApp, SimulatedCohort

        faults = FaultPlan(experiment.faults, experiment.seed)
        trusted = engine is not None and experiment.secagg.protocol == "ideal"
        app: App
        if engine is None or trusted:
            app = build_app(lambda context: self)
        else:
            app = CohortApp(lambda context: self, engine)
        return Coordinator(
            InProcessGrid(app, population, faults=faults),
            Nodes(nodes(population), self.roster),
            experiment.secagg,
            run_id=run_id,
            entropy=self.entropy,
            cache=self.cache,
            cohort=SimulatedCohort(engine, faults) if engine is not None and trusted else None,
        )

    def index(self, context: Context) -> int:
        """Return the client's index in the roster."""
        return int(context.node_config["partition-id"])

    def store(self, context: Context) -> DecisionStore:
        """Return the client's decisions, made on its first session."""
        return self._stores.setdefault(self.index(context), MemoryStore())

    def credentials(self, context: Context) -> Credentials | None:
        """Return the client's key and the roster of the run, where clients sign."""
        if self.roster is None:
            return None
        return Credentials(self._identities[self.index(context)], self.roster)

    def open_party(self, context: Context, session: Session) -> Client:
        """Make a party of the session's protocol; a new sum's first session ends all old ones."""
        opened = (session.run_id, session.round, session.attempt)
        if opened != self._sum:
            self._sum = opened
            for index_left in list(self._parties):
                self._end(index_left)
        index = self.index(context)
        if not session.masked:
            return IdealClientParty(session, index)
        identity = self._identities[index] if self._identities else None
        return ClientParty(session, index, identity=identity, roster=self.roster, cache=self.cache)

    def party(self, context: Context, message: bytes) -> Client:
        """Return the live party of this client: one, since simulated rounds do not overlap."""
        try:
            return self._parties[self.index(context)]
        except KeyError:
            raise Declined("no session is open here") from None

    def keep(self, context: Context, party: Client) -> None:
        """Keep the live party."""
        self._parties[self.index(context)] = party

    def forget(self, context: Context, party: Client) -> None:
        """Forget the live party."""
        self._end(self.index(context))

    def _end(self, index: int) -> None:
        """Forget a client's party and its session's lines; its counters stay."""
        self._parties.pop(index, None)
        if index in self._stores:
            self._stores[index].end_session()

    def request(self, content: RecordDict) -> Request:
        """Read the request once for the whole cohort: all messages carry the same model record."""
        record = content[flower_messages.MODEL]
        if self._last_request is None or self._last_request[0] is not record:
            header = flower_messages.bytes_field(content, "request")
            self._last_request = (
                record,
                Request.from_bytes(header, flower_messages.payload_of(content)),
            )
        return self._last_request[1]

    def task(self, request: ModelRequest, client: ClientInfo) -> Task:
        """Return the task of the run."""
        return self._task

    @property
    def _task(self) -> Task:
        if self._given_task is None:
            raise Declined("clients of this simulation have tables, and no task")
        return self._given_task

    @cached_property
    def _computation(self) -> "LocalComputation":
        from zerosum.client.training.compute import LocalComputation

        return LocalComputation(self._task)

    def update(self, request: ModelRequest, task: Task, client: ClientInfo) -> np.ndarray:
        """Train or evaluate with the one trainer of this process."""
        return self._computation.update(request, client, self.entropy)

    def check_ready(self) -> None:
        """Do nothing: a simulated client has nothing of its own."""

    def table(self, question: QueryQuestion, client: ClientInfo) -> Table:
        """Decline: these clients train."""
        raise Declined("clients of this simulation have no tables")

    def row_secret(self, client: ClientInfo) -> bytes:
        """Return a secret that follows from the experiment's seed."""
        return derive_seed(client.seed, "rows", client.index)

    def compute(self, work: Work, client: ClientInfo) -> Future:
        """Compute the vector in this process, where no engine does."""
        return compute_here(self, work, client)
