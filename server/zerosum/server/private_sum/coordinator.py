"""One private sum over a Flower Grid: ask a cohort a question, get back the sum and no more.

A cohort is one session, or several groups that are a session each. Groups walk their stages side
by side, so that they cost no more exchanges than one, and one that fails costs only its members.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from flwr.serverapp import Grid

from zerosum.client.protocol.noise_source import Entropy
from zerosum.client.protocol.protection import Protection
from zerosum.client.protocol.survivors import CohortTooSmallError
from zerosum.client.request import Request
from zerosum.client.spec import SecAggSpec
from zerosum.secagg import (
    IdealServerParty,
    NoiseDraw,
    Protocol,
    Roster,
    ServerMode,
    ServerParty,
    Session,
    SharedCache,
)
from zerosum.secagg.parties.interface import Server
from zerosum.secagg.randomness import SEED_BYTES, SystemRandomness, derive_seed
from zerosum.secagg.stages import Stage
from zerosum.server.private_sum.aggregate import Aggregate, Group, aggregate
from zerosum.server.private_sum.pipelining import PipelinedExchange
from zerosum.server.private_sum.sum_in_progress import PrivateSum, Shape, SumPlan
from zerosum.server.private_sum.thresholds import Thresholds
from zerosum.server.private_sum.transport import Exchange, Traffic
from zerosum.server.private_sum.trusted_cohort import TrustedCohort, take_stage
from zerosum.server.spec import DeploymentSpec

log = logging.getLogger("zerosum.server")

ChargeKind = Literal["contributions", "sum", "survived"]
Charge = Callable[[ChargeKind, int, tuple[int, ...]], None]
"""Called with a group's number and clients before their vectors are asked for, before their sum \
is opened, and when all is over, or given up, with those who vanished at no stage."""

_CHARGED: Final[Mapping[str, ChargeKind]] = {
    Stage.CONTRIBUTE: "contributions",
    Stage.UNMASK: "sum",
}

_NO_ROSTER = bytes(32)
"""Stands for the roster in the trusted sum, where nobody signs."""


class RoundAbandoned(Exception):
    """Private sum that released nothing; the message names the stage and the counts."""

    def __init__(self, reason: str, traffic: Traffic) -> None:
        super().__init__(reason)
        self.traffic = traffic


@dataclass(frozen=True)
class Nodes:
    """Flower node of each client, and the clients' identity keys.

    Parameters
    ----------
    by_index : mapping of int to int
        The Flower node of each client, by the client's index.
    roster : Roster, optional
        The clients' identity keys: needed where the protocol withstands a malicious server.

    Raises
    ------
    ValueError
        If the roster is not one of exactly these clients.
    """

    by_index: Mapping[int, int]
    roster: Roster | None = None

    def __post_init__(self) -> None:
        if self.roster is not None and self.roster.entries.keys() != self.by_index.keys():
            raise ValueError(
                f"the roster has {len(self.roster)} clients, {_some(self.roster.entries)}, and "
                f"the run {len(self.by_index)}, {_some(self.by_index)}: they must be the same"
            )

    def __len__(self) -> int:
        return len(self.by_index)


class Coordinator:
    """Runner of private sums, with one roster over one grid.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        The only transport.
    nodes : Nodes
        All clients of the run.
    spec : SecAggSpec
        Protocol, server, graph, assumed dropout and corruption.
    run_id : bytes
        Enters every session.
    entropy : Entropy
        Source of the server's share of the noise.
    timeouts : DeploymentSpec, optional
        How long to wait for answers; without it, until all have answered.
    cache : SharedCache, optional
        Shared with the client parties of a simulation.
    cohort : TrustedCohort, optional
        Answers in place of messages over the grid: for protocol "ideal" in a simulation.
    pipeline : bool
        Whether a sum's keys and shares travel with the messages of the one before; without a
        cache, which is of one sum.

    Raises
    ------
    ValueError
        If the protocol withstands a malicious server and the roster has no keys.
    """

    def __init__(
        self,
        grid: Grid,
        nodes: Nodes,
        spec: SecAggSpec,
        *,
        run_id: bytes,
        entropy: Entropy,
        timeouts: DeploymentSpec | None = None,
        cache: SharedCache | None = None,
        cohort: TrustedCohort | None = None,
        pipeline: bool = False,
    ) -> None:
        if spec.protocol == "pairwise" and spec.server == "malicious" and nodes.roster is None:
            raise ValueError("against a malicious server the nodes have a roster of identity keys")
        if cohort is not None and spec.protocol != "ideal":
            raise ValueError(f"protocol {spec.protocol!r} has no trusted cohort")
        self._cohort = cohort
        # The cache is of one sum's clients, and a trusted cohort is sent no messages.
        pipelined = pipeline and cache is None and cohort is None
        exchange = Exchange(grid, nodes.by_index, timeouts)
        self._pipeline = PipelinedExchange(exchange) if pipelined else None
        self._exchange = self._pipeline or exchange
        self._nodes = nodes
        self._spec = spec
        self._run_id = run_id
        self._entropy = entropy
        self._cache = cache

    @property
    def roster(self) -> Roster | None:
        """The clients' identity keys, where they have any."""
        return self._nodes.roster

    @property
    def shares_cache(self) -> bool:
        """Return whether parties of this process share what they computed: masks that cost less."""
        return self._cache is not None and self._masked

    @property
    def pipelined(self) -> bool:
        """Return whether a sum's keys and shares travel with the messages of the one before."""
        return self._pipeline is not None

    @property
    def _masked(self) -> bool:
        return self._spec.protocol == "pairwise"

    def private_sum(
        self,
        request: Request,
        groups: Sequence[Sequence[int]],
        *,
        round: int,
        attempt: int = 0,
        charge: Charge = lambda kind, group, clients: None,
    ) -> Aggregate:
        """Ask a cohort a question and open the sum of the answers.

        Parameters
        ----------
        request : Request
            The question and the model.
        groups : sequence of sequence of int
            Roster indices, ascending; disjoint. A cohort that is one session is one group.
        round, attempt : int
            Number of the session, never used before in this run.
        charge : callable
            The ledger, written ahead of what it charges for.

        Returns
        -------
        Aggregate
            The sum, of the groups that could be opened.

        Raises
        ------
        ValueError
            If a client is in two groups, or another sum was prepared under this number.
        RoundAbandoned
            If in every group too few clients are left at some stage, or a secret cannot be
            recovered.
        """
        plan = SumPlan(tuple(map(tuple, groups)), round, attempt, Shape.of(request))
        if self._cache is not None:
            self._cache.clear()  # of the sum before, and before this one's parties are made
        current = self._begin(plan)
        self._walk(current, request, charge)
        vanished = {i for gone in current.traffic.dropouts.values() for i in gone}
        for group in current.groups:
            there = tuple(i for i in group.session.cohort if i not in vanished)
            charge("survived", group.number, there)
        # Before anything is made of a sum: what wrapped, or holds a liar's vector, is not used.
        for group in current.groups:
            group.check_sum(noised=request.question.noise_draw == "per_client")
        complete = [group for group in current.groups if not group.failure]
        if not complete:
            raise RoundAbandoned("; ".join(current.failures), current.traffic)
        return aggregate(request, complete, current.failures, self._entropy, current.traffic)

    def prepare(self, plan: SumPlan) -> None:
        """Send the keys and shares of a later sum with the messages of the next one.

        When that later sum is asked for, it begins where the messages have left it, whatever
        became of the one before. A coordinator that is not pipelined prepares nothing.

        Parameters
        ----------
        plan : SumPlan
            Of the sum after the one that is asked for next.

        Raises
        ------
        ValueError
            If another sum was prepared under its number.
        """
        if self._pipeline is not None:
            self._pipeline.prepare(self._open(plan))

    def _begin(self, plan: SumPlan) -> PrivateSum:
        """Return the sum that was prepared, or a new one."""
        prepared = None if self._pipeline is None else self._pipeline.begin(plan)
        return prepared or self._open(plan)

    def _open(self, plan: SumPlan) -> PrivateSum:
        """Make the sessions of a private sum, before any message is sent."""
        opened: list[Group] = []
        failures = []
        for number, cohort in enumerate(plan.groups):
            try:
                session, protection, colluders = self._session(plan, cohort)
            except CohortTooSmallError as error:
                failures.append(f"the cohort is too small: {error}")
            else:
                party = self._party(session, colluders)
                opened.append(Group(number, session, protection, party))
        return PrivateSum(plan, opened, failures)

    def _session(self, plan: SumPlan, cohort: tuple[int, ...]) -> tuple[Session, Protection, int]:
        shape, n, spec = plan.shape, len(cohort), self._spec
        limits = Thresholds.of(n, roster=len(self._nodes), secagg=spec, privacy=shape.privacy)
        numbers = plan.round, plan.attempt
        protection = Protection.build(
            shape.privacy,
            shape.encoding,
            cohort=n,
            dimension=shape.dimension,
            rotation_seed=derive_seed(shape.seed, "rotation", *numbers),
        )
        mode, roster = ServerMode(spec.server), self._nodes.roster
        permuted = mode is ServerMode.SEMI_HONEST and limits.degree < n - 1
        unsigned = _NO_ROSTER if mode is ServerMode.MALICIOUS else b""
        session = Session(
            run_id=self._run_id,
            round=plan.round,
            attempt=plan.attempt,
            roster_version=0 if roster is None else roster.version,
            roster_digest=unsigned if roster is None else roster.digest,
            cohort=cohort,
            threshold=limits.threshold,
            min_survivors=limits.min_survivors,
            ring_bits=protection.ring_bits,
            vector_length=protection.length,
            degree=limits.degree,
            graph_seed=SystemRandomness().take(SEED_BYTES) if permuted else b"",
            bounds=protection.bounds,
            mode=mode,
            protocol=Protocol(spec.protocol),
            noise_draw=NoiseDraw(shape.noise_draw),
        )
        return session, protection, limits.colluders

    def _party(self, session: Session, colluders: int) -> Server:
        if self._spec.protocol == "pairwise":
            roster, cache = self._nodes.roster, self._cache
            return ServerParty(session, roster=roster, cache=cache, colluders=colluders)
        return IdealServerParty(session, keep=self._spec.protocol == "none")

    def _walk(self, current: PrivateSum, request: Request, charge: Charge) -> None:
        """Walk the stages that are left; each sends what the one before it produced."""
        while stage := current.stage:
            if not current.exchanged:
                current.traffic.exchanges += 1
                # Charged before the messages go out: a server that dies in between has paid for
                # noise that nobody drew, and never released a sum that nobody paid for.
                if stage in _CHARGED:
                    for group in current.walking:
                        clients = tuple(current.contents[group.number])
                        charge(_CHARGED[stage], group.number, clients)
                if self._cohort is None:
                    self._exchange_stage(current)
                else:
                    round, traffic = current.plan.round, current.traffic
                    walking, contents = current.walking, current.contents
                    take_stage(self._cohort, walking, stage, contents, request, round, traffic)
            current.close(request)

    def _exchange_stage(self, current: PrivateSum) -> None:
        """Send a stage's messages and take the answers."""
        started = time.perf_counter()
        stage, round = current.stage, current.plan.round
        outgoing = {i: self._exchange.address(stage, round, c) for i, c in current.send().items()}
        for index, reply in self._exchange.ask(outgoing, current.note_refusal):
            current.receive(index, reply)
        current.note_missing()
        current.traffic.seconds[stage] = time.perf_counter() - started


def _some(indices: Mapping[int, object]) -> str:
    ordered = sorted(indices)
    return "none" if not ordered else f"{ordered[0]} to {ordered[-1]}"
