"""One private sum over a Flower Grid: ask a cohort a question, get back the sum and no more.

A cohort is one session, or several groups that are a session each. Groups walk their stages side
by side, so that they cost no more exchanges than one, and one that fails costs only its members.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from flwr.app import ArrayRecord, RecordDict
from flwr.serverapp import Grid

from zerosum.client import wire
from zerosum.client.contribution import CohortTooSmallError, Protection
from zerosum.client.entropy import Entropy
from zerosum.client.request import Request
from zerosum.client.spec import SecAggSpec
from zerosum.secagg import (
    IdealServerParty,
    ReconstructionFailed,
    RemoteProtocolError,
    Roster,
    ServerMode,
    ServerParty,
    Session,
    SharedCache,
    TooFewSurvivors,
)
from zerosum.secagg.messages import Message as SecAggMessage
from zerosum.secagg.party import Server
from zerosum.secagg.randomness import SEED_BYTES, SystemRandomness, derive_seed
from zerosum.server.aggregate import Aggregate, Group, aggregate
from zerosum.server.exchange import Exchange, Traffic
from zerosum.server.spec import DeploymentSpec
from zerosum.server.thresholds import Thresholds
from zerosum.server.trusted import TrustedCohort, take_stage

log = logging.getLogger("zerosum.server")

ChargeKind = Literal["contributions", "sum"]
Charge = Callable[[ChargeKind, int, tuple[int, ...]], None]
"""Called with a group's number and clients before their vectors are asked for, and before their \
sum is opened."""

_CHARGED: Final[Mapping[str, ChargeKind]] = {"contribute": "contributions", "unmask": "sum"}

_NO_ROSTER = bytes(32)
"""Stands for the roster in the trusted sum, where nobody signs."""


class RoundAbandoned(Exception):
    """No sum was released; the message says at which stage, with the counts."""

    def __init__(self, reason: str, traffic: Traffic) -> None:
        super().__init__(reason)
        self.traffic = traffic


@dataclass(frozen=True)
class Nodes:
    """Where the clients of a run are.

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
    """Runs private sums with one roster over one grid.

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
    ) -> None:
        if spec.protocol == "pairwise" and spec.server == "malicious" and nodes.roster is None:
            raise ValueError("against a malicious server the nodes have a roster of identity keys")
        if cohort is not None and spec.protocol != "ideal":
            raise ValueError(f"protocol {spec.protocol!r} has no trusted cohort")
        self._cohort = cohort
        self._exchange = Exchange(grid, nodes.by_index, timeouts)
        self._nodes = nodes
        self._spec = spec
        self._run_id = run_id
        self._entropy = entropy
        self._cache = cache

    @property
    def shares_cache(self) -> bool:
        """Whether parties of this process share what they computed: masks that cost less."""
        return self._cache is not None and self._masked

    @property
    def _masked(self) -> bool:
        return self._spec.protocol == "pairwise"

    def private_sum(
        self,
        request: Request,
        groups: Sequence[tuple[int, ...]],
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
        groups : sequence of tuple of int
            Roster indices, ascending; disjoint. A cohort that is one session is one group.
        round, attempt : int
            Number of the session, never used before in this run.
        charge : callable
            The ledger, written ahead of what it charges for.

        Raises
        ------
        ValueError
            If a client is in two groups.
        RoundAbandoned
            If in every group too few clients are left at some stage, or a secret cannot be
            recovered.
        """
        _check_disjoint(groups)
        if self._cache is not None:
            self._cache.clear()  # of the sum before, and before this one's parties are made
        traffic = Traffic()
        opened: list[Group] = []
        failures = []
        for number, cohort in enumerate(groups):
            try:
                opened.append(self._open(number, request, cohort, round, attempt))
            except CohortTooSmallError as error:
                failures.append(f"the cohort is too small: {error}")
        self._walk(opened, request, round, traffic, charge)
        for group in opened:
            group.check_sum(noised=request.question.noise_draw == "per_client")
        failures += [group.failure for group in opened if group.failure]
        complete = [group for group in opened if not group.failure]
        if not complete:
            raise RoundAbandoned("; ".join(failures), traffic)
        return aggregate(request, complete, failures, self._entropy, traffic)

    def _open(
        self, number: int, request: Request, cohort: tuple[int, ...], round: int, attempt: int
    ) -> Group:
        question, n, spec = request.question, len(cohort), self._spec
        limits = Thresholds.of(n, roster=len(self._nodes), secagg=spec, privacy=question.privacy)
        protection = Protection.build(
            question.privacy,
            question.encoding,
            cohort=n,
            dimension=request.dimension,
            rotation_seed=derive_seed(question.seed, "rotation", round, attempt),
        )
        mode, roster = ServerMode(spec.server), self._nodes.roster
        permuted = mode is ServerMode.SEMI_HONEST and limits.degree < n - 1
        unsigned = _NO_ROSTER if mode is ServerMode.MALICIOUS else b""
        session = Session(
            run_id=self._run_id,
            round=round,
            attempt=attempt,
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
        )
        return Group(number, session, protection, self._party(session))

    def _party(self, session: Session) -> Server:
        if self._spec.protocol == "pairwise":
            return ServerParty(session, roster=self._nodes.roster, cache=self._cache)
        return IdealServerParty(session, keep=self._spec.protocol == "none")

    def _walk(
        self,
        groups: list[Group],
        request: Request,
        round: int,
        traffic: Traffic,
        charge: Charge,
    ) -> None:
        """Walk the stages of all groups; each sends what the one before it produced."""
        contents: dict[int, dict[int, RecordDict]] = {
            group.number: self._opening(group.session) for group in groups
        }
        model = wire.model_record(request.model_bytes, len(request.model))
        for stage in groups[0].session.stages if groups else ():
            walking = [group for group in groups if not group.failure]
            if not walking:
                return
            if stage in _CHARGED:
                for group in walking:
                    charge(_CHARGED[stage], group.number, tuple(contents[group.number]))
            if self._cohort is None:
                self._exchange_stage(walking, stage, contents, round, traffic)
            else:
                take_stage(self._cohort, walking, stage, contents, request, round, traffic)
            for group in walking:
                contents[group.number] = _close(group, stage, request, model)

    def _opening(self, session: Session) -> dict[int, RecordDict]:
        fields: dict[str, wire.Value] = {
            "session": session.to_bytes(),
            "protocol": self._spec.protocol,
        }
        return dict.fromkeys(session.cohort, wire.pack(fields))

    def _exchange_stage(
        self,
        groups: list[Group],
        stage: str,
        contents: Mapping[int, Mapping[int, RecordDict]],
        round: int,
        traffic: Traffic,
    ) -> None:
        group_of = {index: group for group in groups for index in contents[group.number]}
        asked = {index: contents[group.number][index] for index, group in group_of.items()}
        answered: set[int] = set()
        for index, reply in self._exchange.ask(stage, asked, round, traffic):
            message = _message(reply)
            try:
                group_of[index].party.receive(index, message)
            except RemoteProtocolError as error:
                log.warning("client %d is dropped at %s: %s", index, stage, error)
                continue
            if stage == "contribute" and self._masked and not traffic.sample[1]:
                traffic.sample = group_of[index].number, message
            answered.add(index)
            traffic.up[index] = traffic.up.get(index, 0) + wire.size(reply)
        traffic.dropouts[stage] = tuple(index for index in asked if index not in answered)


def _some(indices: Mapping[int, object]) -> str:
    ordered = sorted(indices)
    return "none" if not ordered else f"{ordered[0]} to {ordered[-1]}"


def _check_disjoint(groups: Sequence[tuple[int, ...]]) -> None:
    seen: set[int] = set()
    for cohort in groups:
        if twice := seen & set(cohort):
            raise ValueError(f"client {min(twice)} is in two groups of one private sum")
        seen.update(cohort)


def _close(group: Group, stage: str, request: Request, model: ArrayRecord) -> dict[int, RecordDict]:
    """End a group's stage; return what goes to its clients next, nothing if the group failed."""
    sharing = stage == "share"
    try:
        messages = group.party.close(request.digest if sharing else None)
    except (TooFewSurvivors, ReconstructionFailed) as error:
        group.failure = str(error)
        return {}
    extra: dict[str, wire.Value] = {"request": request.header} if sharing else {}
    return _packed(messages, extra, model if sharing else None)


def _message(reply: RecordDict) -> bytes:
    """Return the message of a reply; empty bytes, which no party accepts, where it has none."""
    try:
        return wire.bytes_field(reply, "message")
    except ValueError:
        return b""


def _packed(
    messages: Mapping[int, SecAggMessage], extra: dict[str, wire.Value], model: ArrayRecord | None
) -> dict[int, RecordDict]:
    """Pack each client's message; a broadcast, one object for all, is packed once."""
    packed: dict[int, RecordDict] = {}
    last: SecAggMessage | None = None
    for index, message in messages.items():
        if message is not last:
            last, content = message, wire.pack({"message": message.to_bytes(), **extra}, model)
        packed[index] = content
    return packed
