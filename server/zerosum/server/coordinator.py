"""One private sum over a Flower Grid: ask a cohort a question, get back the sum and no more.

A cohort is one session, or several groups that are a session each. Groups walk their stages side
by side, so that they cost no more exchanges than one, and one that fails costs only its members.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from flwr.app import ArrayRecord, RecordDict
from flwr.serverapp import Grid

from zerosum import secagg
from zerosum.client import wire
from zerosum.client.contribution import CohortTooSmallError, Protection
from zerosum.client.entropy import Entropy
from zerosum.client.request import Request
from zerosum.client.spec import SecAggSpec
from zerosum.secagg import (
    IdealServerParty,
    ReconstructionFailed,
    RemoteProtocolError,
    Ring,
    ServerMode,
    ServerParty,
    Session,
    SharedCache,
    TooFewSurvivors,
)
from zerosum.secagg.messages import Contribution, decode
from zerosum.secagg.messages import Message as SecAggMessage
from zerosum.secagg.party import Server
from zerosum.secagg.randomness import SystemRandomness, derive_seed
from zerosum.server.exchange import Exchange, Traffic
from zerosum.server.spec import DeploymentSpec
from zerosum.server.thresholds import Thresholds

log = logging.getLogger("zerosum.server")

Charge = Callable[[Literal["contributions", "sum"], int, tuple[int, ...]], None]
"""Called with a group's number and clients before their vectors are asked for, and before their \
sum is opened."""

_NO_ROSTER = bytes(32)
"""Stands for the roster where nobody signs: in the trusted sum."""


class RoundAbandoned(Exception):
    """No sum was released; the message says at which stage, with the counts."""

    def __init__(self, reason: str, traffic: Traffic) -> None:
        super().__init__(reason)
        self.traffic = traffic


@dataclass(frozen=True)
class Sample:
    """One masked contribution: ring words of so many bits, shape (length,), in their container."""

    vector: np.ndarray
    ring_bits: int


@dataclass(frozen=True)
class Aggregate:
    """The outcome of a private sum.

    Parameters
    ----------
    total : numpy.ndarray
        float64, shape (request.dimension,): sum of the survivors' protected vectors.
    survivors : tuple of int
        Roster indices of the clients in the sum, ascending.
    noise_std : float
        Standard deviation of the noise in each coordinate of ``total``.
    traffic : Traffic
        What the sum cost.
    sample : Sample, optional
        One masked contribution as received: for the report. Only under ``pairwise``; elsewhere a
        contribution is not the server's to keep.
    contributions : dict, optional
        Under protocol ``none`` alone: each survivor's noised vector, float64, shape (d,).
    failures : tuple of str
        Why groups failed, if some did; each cost its members.
    """

    total: np.ndarray
    survivors: tuple[int, ...]
    noise_std: float
    traffic: Traffic
    sample: Sample | None = None
    contributions: Mapping[int, np.ndarray] | None = None
    failures: tuple[str, ...] = ()


@dataclass(frozen=True)
class Roster:
    """Who there is.

    Parameters
    ----------
    nodes : mapping of int to int
        The Flower node of each client, by the client's index.
    keys : secagg.Roster, optional
        The clients' identity keys: needed where the protocol withstands a malicious server.
    """

    nodes: Mapping[int, int]
    keys: secagg.Roster | None = None

    def __len__(self) -> int:
        return len(self.nodes)


@dataclass
class _Group:
    """One session of a private sum, from its opening to its sum or its failure."""

    number: int
    session: Session
    protection: Protection
    party: Server
    failure: str = ""


class Coordinator:
    """Runs private sums with one roster over one grid.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        The only transport.
    roster : Roster
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

    Raises
    ------
    ValueError
        If the protocol withstands a malicious server and the roster has no keys.
    """

    def __init__(
        self,
        grid: Grid,
        roster: Roster,
        spec: SecAggSpec,
        *,
        run_id: bytes,
        entropy: Entropy,
        timeouts: DeploymentSpec | None = None,
        cache: SharedCache | None = None,
    ) -> None:
        if spec.protocol == "pairwise" and spec.server == "malicious" and roster.keys is None:
            raise ValueError("against a malicious server the roster holds identity keys")
        self._exchange = Exchange(grid, roster.nodes, timeouts)
        self._roster = roster
        self._spec = spec
        self._run_id = run_id
        self._entropy = entropy
        self._cache = cache

    @property
    def shares_cache(self) -> bool:
        """Whether parties of this process share what they computed: masks that cost less."""
        return self._cache is not None and self._spec.protocol == "pairwise"

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
        RoundAbandoned
            If in every group too few clients are left at some stage, or a secret cannot be
            recovered.
        """
        traffic = Traffic()
        opened: list[_Group] = []
        failures = []
        for number, cohort in enumerate(groups):
            try:
                opened.append(self._open(number, request, cohort, round, attempt))
            except CohortTooSmallError as error:
                failures.append(f"the cohort is too small: {error}")
        self._walk(opened, request, round, traffic, charge)
        failures += [group.failure for group in opened if group.failure]
        complete = [group for group in opened if not group.failure]
        if not complete:
            raise RoundAbandoned("; ".join(failures), traffic)
        key = (round, attempt)
        return self._aggregate(request, complete, len(groups), key, traffic, failures)

    def _open(
        self, number: int, request: Request, cohort: tuple[int, ...], round: int, attempt: int
    ) -> _Group:
        question, n, spec = request.question, len(cohort), self._spec
        limits = Thresholds.of(n, roster=len(self._roster), secagg=spec, privacy=question.privacy)
        protection = Protection.build(
            question.privacy,
            question.encoding,
            cohort=n,
            dimension=request.dimension,
            rotation_seed=derive_seed(question.seed, "rotation", round, attempt),
        )
        mode, keys = ServerMode(spec.server), self._roster.keys
        permuted = mode is ServerMode.SEMI_HONEST and limits.degree < n - 1
        session = Session(
            run_id=self._run_id,
            round=round,
            attempt=attempt,
            roster_version=0 if keys is None else keys.version,
            roster_digest=_NO_ROSTER if keys is None else keys.digest,
            cohort=cohort,
            threshold=limits.threshold,
            min_survivors=limits.min_survivors,
            ring_bits=protection.ring_bits,
            vector_length=protection.length,
            degree=limits.degree,
            graph_seed=SystemRandomness().take(32) if permuted else b"",
            bounds=protection.bounds,
            mode=mode,
        )
        return _Group(number, session, protection, self._party(session))

    def _party(self, session: Session) -> Server:
        if self._spec.protocol == "pairwise":
            return ServerParty(session, roster=self._roster.keys, cache=self._cache)
        return IdealServerParty(session, keep=self._spec.protocol == "none")

    def _walk(
        self,
        groups: list[_Group],
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
            if stage in ("contribute", "unmask"):
                kind: Literal["contributions", "sum"] = (
                    "contributions" if stage == "contribute" else "sum"
                )
                for group in walking:
                    charge(kind, group.number, tuple(contents[group.number]))
            self._exchange_stage(walking, stage, contents, round, traffic)
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
        groups: list[_Group],
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
            if stage == "contribute" and self._spec.protocol == "pairwise":
                traffic.sample = traffic.sample or message
            answered.add(index)
            traffic.up[index] = traffic.up.get(index, 0) + wire.size(reply)
        traffic.dropouts[stage] = tuple(index for index in asked if index not in answered)

    def _aggregate(
        self,
        request: Request,
        complete: list[_Group],
        groups: int,
        key: tuple[int, int],
        traffic: Traffic,
        failures: list[str],
    ) -> Aggregate:
        """Add the groups' sums, each topped up; a failed group's sum is all noise."""
        by_number = {group.number: group for group in complete}
        first = complete[0]
        total = np.zeros(first.protection.length, dtype=np.int64)
        variance = 0.0
        for number in range(groups):
            group = by_number.get(number)
            protection = (group or first).protection
            total += self._topped_up(group, protection, request, (*key, number))
            variance += protection.std_sum**2
        survivors = (index for group in complete for index in group.party.result.survivors)
        return Aggregate(
            total=first.protection.decode(total),
            survivors=tuple(sorted(survivors)),
            noise_std=variance**0.5,
            traffic=traffic,
            sample=_sample(complete, traffic),
            contributions=self._contributions(complete),
            failures=tuple(failures),
        )

    def _topped_up(
        self,
        group: _Group | None,
        protection: Protection,
        request: Request,
        key: tuple[int, int, int],
    ) -> np.ndarray:
        """Return a group's sum with the server's share of the noise, centred int64.

        Noise is added in the ring: what is released is a function of the sum's residue alone.
        """
        ring = Ring(protection.ring_bits)
        total, survivors = np.zeros(protection.length, dtype=np.int64), 0
        if group is not None:
            result = group.party.result
            if result.faulty:
                log.warning("clients %s gave wrong shares, decoded around", result.faulty)
            total, survivors = ring.centre(result.total), len(result.survivors)
        coins = self._entropy.keystream("top-up", *key)
        summed = request.question.noise_draw == "summed"
        draw = protection.summed_noise if summed else protection.top_up
        noise = draw(survivors, coins)
        return total if noise is None else ring.centre(ring.encode(total + noise))

    def _contributions(self, complete: list[_Group]) -> Mapping[int, np.ndarray] | None:
        if self._spec.protocol != "none":
            return None
        return {
            index: group.protection.decode(group.session.ring.centre(vector))
            for group in complete
            if isinstance(group.party, IdealServerParty)
            for index, vector in group.party.contributions.items()
        }


def _close(
    group: _Group, stage: str, request: Request, model: ArrayRecord
) -> dict[int, RecordDict]:
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


def _sample(groups: list[_Group], traffic: Traffic) -> Sample | None:
    """Read the first contribution, if it is of a group that was opened."""
    for group in groups:
        try:
            contribution = decode(traffic.sample, Contribution, group.session)
        except RemoteProtocolError:
            continue
        return Sample(contribution.vector, group.session.ring_bits)
    return None


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
