"""One private sum over a Flower Grid: ask a cohort a question, get back the sum and no more."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from flwr.app import ArrayRecord, Message, RecordDict
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
    Ring,
    ServerParty,
    Session,
    SharedCache,
    TooFewSurvivors,
)
from zerosum.secagg.messages import Contribution, decode
from zerosum.secagg.messages import Message as SecAggMessage
from zerosum.secagg.party import Server
from zerosum.secagg.randomness import derive_seed
from zerosum.server.spec import DeploymentSpec
from zerosum.server.thresholds import Thresholds

log = logging.getLogger("zerosum.server")

POLL_SECONDS = 0.2
"""Pause between two looks for replies in a deployment."""

Charge = Callable[[Literal["contributions", "sum"], tuple[int, ...]], None]
"""Called before vectors are asked for (with those asked) and before a sum is opened."""


class RoundAbandoned(Exception):
    """No sum was released; the message says at which stage, with the counts."""

    def __init__(self, reason: str, traffic: "Traffic") -> None:
        super().__init__(reason)
        self.traffic = traffic


@dataclass
class Traffic:
    """What a session cost: bytes to and from each client, seconds and losses by stage.

    ``sample`` is the first contribution, as the bytes that came.
    """

    up: dict[int, int] = field(default_factory=dict)
    down: dict[int, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    dropouts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    sample: bytes = b""


@dataclass(frozen=True)
class Aggregate:
    """The outcome of a private sum.

    Parameters
    ----------
    total : numpy.ndarray
        float64, shape (request.dimension,): sum of the survivors' protected vectors.
    survivors : tuple of int
        Roster indices of the clients in the sum.
    protection : Protection
        What each vector went through.
    traffic : Traffic
        What the session cost.
    sample : numpy.ndarray, optional
        One masked contribution as received, in the ring's container: for the report. Only under
        ``pairwise``; elsewhere a contribution is not the server's to keep.
    contributions : dict, optional
        Under protocol ``none`` alone: each survivor's noised vector, float64, shape (d,).
    """

    total: np.ndarray
    survivors: tuple[int, ...]
    protection: Protection
    traffic: Traffic
    sample: np.ndarray | None = None
    contributions: Mapping[int, np.ndarray] | None = None


@dataclass(frozen=True)
class Roster:
    """Who there is: the Flower node of each client, by the client's index."""

    nodes: Mapping[int, int]
    version: int = 0

    def __len__(self) -> int:
        return len(self.nodes)


class Coordinator:
    """Runs private sums with one roster over one grid.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        The only transport.
    roster : Roster
        All clients of the run.
    spec : SecAggSpec
        Protocol, threshold, assumed dropout and corruption.
    run_id : bytes
        Enters every session.
    entropy : Entropy
        Source of the server's share of the noise.
    timeouts : DeploymentSpec, optional
        How long to wait for answers; without it, until all have answered.
    cache : SharedCache, optional
        Shared with the client parties of a simulation.
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
        self._grid = grid
        self._roster = roster
        self._index_of = {node: index for index, node in roster.nodes.items()}
        self._spec = spec
        self._run_id = run_id
        self._entropy = entropy
        self._timeouts = timeouts
        self._cache = cache

    def private_sum(
        self,
        request: Request,
        cohort: tuple[int, ...],
        *,
        round: int,
        attempt: int = 0,
        charge: Charge = lambda kind, clients: None,
    ) -> Aggregate:
        """Ask a cohort a question and open the sum of the answers.

        Parameters
        ----------
        request : Request
            The question and the model.
        cohort : tuple of int
            Roster indices, ascending.
        round, attempt : int
            Number of the session, never used before in this run.
        charge : callable
            The ledger, written ahead of what it charges for.

        Raises
        ------
        RoundAbandoned
            If too few clients are left at any stage, or a secret cannot be recovered.
        """
        traffic = Traffic()
        try:
            session, protection = self._open(request, cohort, round, attempt)
        except CohortTooSmallError as error:
            raise RoundAbandoned(f"the cohort is too small: {error}", traffic) from error
        party = self._party(session)
        try:
            self._walk(party, session, request, traffic, charge)
        except (TooFewSurvivors, ReconstructionFailed) as error:
            raise RoundAbandoned(str(error), traffic) from error
        ring = Ring(session.ring_bits)
        result = party.result
        if result.faulty:
            log.warning("clients %s gave wrong shares, decoded around", result.faulty)
        total = ring.centre(result.total)
        noise = self._noise(protection, request, session, len(result.survivors))
        if noise is not None:
            total = ring.centre(ring.encode(total + noise))
        return Aggregate(
            total=protection.decode(total),
            survivors=result.survivors,
            protection=protection,
            traffic=traffic,
            sample=_vector_of(traffic.sample, session),
            contributions=_contributions(party, protection, ring, self._spec.protocol == "none"),
        )

    def _open(
        self, request: Request, cohort: tuple[int, ...], round: int, attempt: int
    ) -> tuple[Session, Protection]:
        question, n = request.question, len(cohort)
        thresholds = Thresholds.of(
            n, roster=len(self._roster), secagg=self._spec, privacy=question.privacy
        )
        protection = Protection.build(
            question.privacy,
            question.encoding,
            cohort=n,
            dimension=request.dimension,
            rotation_seed=derive_seed(question.seed, "rotation", round, attempt),
        )
        session = Session(
            run_id=self._run_id,
            round=round,
            attempt=attempt,
            roster_version=self._roster.version,
            cohort=cohort,
            threshold=thresholds.threshold,
            min_survivors=thresholds.min_survivors,
            ring_bits=protection.ring_bits,
            vector_length=protection.length,
            degree=n - 1,
            bounds=protection.bounds,
        )
        return session, protection

    def _party(self, session: Session) -> Server:
        if self._spec.protocol == "pairwise":
            return ServerParty(session, cache=self._cache)
        return IdealServerParty(session, keep=self._spec.protocol == "none")

    def _walk(
        self,
        party: Server,
        session: Session,
        request: Request,
        traffic: Traffic,
        charge: Charge,
    ) -> None:
        """Walk the four stages; each sends what the one before it produced."""
        opening = wire.pack({"session": session.to_bytes(), "protocol": self._spec.protocol})
        contents: dict[int, RecordDict] = dict.fromkeys(session.cohort, opening)
        model = wire.model_record(request.model_bytes, len(request.model))
        for stage in wire.STAGE_TYPES:
            if stage == "contribute":
                charge("contributions", tuple(contents))
            elif stage == "unmask":
                charge("sum", tuple(contents))
            self._exchange(party, stage, contents, session.round, traffic)
            messages = party.close(request.digest if stage == "share" else None)
            extra: dict[str, wire.Value] = {}
            if stage == "share":
                extra["request"] = request.header
            contents = _packed(messages, extra, model if stage == "share" else None)

    def _exchange(
        self,
        party: Server,
        stage: str,
        contents: Mapping[int, RecordDict],
        round: int,
        traffic: Traffic,
    ) -> None:
        started = time.perf_counter()
        for index, content in contents.items():
            traffic.down[index] = traffic.down.get(index, 0) + wire.size(content)
        answered: set[int] = set()
        for index, reply in self._ask(stage, contents, round):
            message = _message(reply)
            try:
                party.receive(index, message)
            except RemoteProtocolError as error:
                log.warning("client %d is dropped at %s: %s", index, stage, error)
                continue
            if stage == "contribute" and self._spec.protocol == "pairwise":
                traffic.sample = traffic.sample or message
            answered.add(index)
            traffic.up[index] = traffic.up.get(index, 0) + wire.size(reply)
        traffic.dropouts[stage] = tuple(index for index in contents if index not in answered)
        traffic.seconds[stage] = time.perf_counter() - started

    def _ask(
        self, stage: str, contents: Mapping[int, RecordDict], round: int
    ) -> Iterable[tuple[int, RecordDict]]:
        """Send each client its content; yield the readable replies, one a client."""
        messages = [
            Message(
                content=content,
                dst_node_id=self._roster.nodes[index],
                message_type=wire.STAGE_TYPES[stage],
                group_id=str(round),
            )
            for index, content in contents.items()
        ]
        answered = set()
        for reply in self._replies(stage, messages):
            index = self._index_of.get(reply.metadata.src_node_id)
            if index is None or index not in contents or index in answered:
                log.warning("a reply from node %d was not asked for", reply.metadata.src_node_id)
                continue
            answered.add(index)
            if reply.has_content():
                yield index, reply.content

    def _replies(self, stage: str, messages: list[Message]) -> Iterable[Message]:
        if self._timeouts is None:
            return self._grid.send_and_receive(messages)
        training = stage == "contribute"
        wait = self._timeouts.train_timeout if training else self._timeouts.stage_timeout
        return poll(self._grid, messages, wait)

    def _noise(
        self, protection: Protection, request: Request, session: Session, survivors: int
    ) -> np.ndarray | None:
        """Return the server's share of the noise, shape (protection.length,), int64."""
        noise = self._entropy.keystream("top-up", session.round, session.attempt)
        if request.question.noise_draw == "summed":
            return protection.summed_noise(survivors, noise)
        return protection.top_up(survivors, noise)


def _message(reply: RecordDict) -> bytes:
    """Return the message of a reply; empty bytes, which no party accepts, where it has none."""
    try:
        return wire.bytes_field(reply, "message")
    except ValueError:
        return b""


def _vector_of(message: bytes, session: Session) -> np.ndarray | None:
    return decode(message, Contribution, session).vector if message else None


def _packed(
    messages: Mapping[int, SecAggMessage], extra: dict[str, wire.Value], model: ArrayRecord | None
) -> dict[int, RecordDict]:
    """Pack each client's message; a broadcast, one object for all, is packed once."""
    packed: dict[int, RecordDict] = {}
    for message in messages.values():
        if id(message) not in packed:
            packed[id(message)] = wire.pack({"message": message.to_bytes(), **extra}, model)
    return {index: packed[id(message)] for index, message in messages.items()}


def _contributions(
    party: Server, protection: Protection, ring: Ring, keep: bool
) -> Mapping[int, np.ndarray] | None:
    if not keep or not isinstance(party, IdealServerParty):
        return None
    return {
        index: protection.decode(ring.centre(vector))
        for index, vector in party.contributions.items()
    }


def poll(grid: Grid, messages: list[Message], timeout: float) -> Iterable[Message]:
    """Send messages and yield replies as they come, until all are there or time is up.

    Flower's own ``send_and_receive`` sleeps three seconds between two looks.
    """
    deadline = time.monotonic() + timeout
    waiting = {key for key in grid.push_messages(messages) if key}
    while waiting:
        for reply in grid.pull_messages(list(waiting)):
            waiting.discard(reply.metadata.reply_to_message_id)
            yield reply
        if time.monotonic() > deadline:
            log.warning("%d clients did not answer within %g s", len(waiting), timeout)
            return
        if waiting:
            time.sleep(POLL_SECONDS)
