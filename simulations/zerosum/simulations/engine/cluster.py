"""An engine of Ray actors: the same work on the machines of a cluster.

Task and data are put into Ray's object store once and read there by each actor; a round's model,
question and session once a round. Actors return partial sums, which this process adds up, and
what their clients logged, which this process logs.
"""

import logging
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from logging.handlers import QueueHandler
from queue import SimpleQueue
from typing import Any, Literal

import numpy as np
import ray
from ray.exceptions import RayError, RayTaskError

from zerosum.client.protocol.client_vector import Work
from zerosum.client.protocol.training_outcomes import OutcomeCounts
from zerosum.client.request import Request
from zerosum.client.training.threads import use_one_thread
from zerosum.secagg import Session
from zerosum.simulations.engine.work import Contributor, Vector, add_up, chunked, one_by_one, summed

log = logging.getLogger("zerosum.client")

STARTING_SECONDS = 120.0
"""How long a cohort waits for an actor while none is alive."""

Mode = Literal["sum", "vector"]
Chunk = tuple[int, ...]
Said = list[logging.LogRecord]


class NoWorkersError(RuntimeError):
    """No Ray actor is alive, and the cluster starts none."""


class _Actor:
    """Actor that computes chunks of a cohort on one core."""

    def __init__(self, contributor: Contributor) -> None:
        use_one_thread()
        self._contributor = contributor
        self._known: tuple[int, Work] | None = None
        self._said: SimpleQueue[logging.LogRecord] = SimpleQueue()
        ours = logging.getLogger("zerosum")
        # Makes a record's text of its traceback, which could not be sent.
        ours.addHandler(QueueHandler(self._said))
        ours.propagate = False

    def ready(self) -> bool:
        """Say that the actor has task and data, and is alive."""
        return True

    def compute(
        self, number: int, asked: tuple[bytes, bytes, bytes], clients: Chunk, mode: Mode
    ) -> tuple[list[int], Vector, OutcomeCounts, Said]:
        """Compute a chunk: contributors, their sum (or one vector), outcomes and log records."""
        if self._known is None or self._known[0] != number:
            header, session, payload = asked
            request = Request.from_bytes(header, payload)
            self._known = number, Work(request, Session.from_bytes(session))
        work = self._known[1]
        total = np.zeros(work.session.vector_length, dtype=np.int64)
        contributed = add_up(self._contributor, work, clients, total)
        log_records = [self._said.get() for _ in range(self._said.qsize())]
        return contributed, total, self._contributor.take_tally(), log_records


@dataclass
class _Round:
    """Progress of one private sum: chunks to compute, and which actor computes which."""

    number: int
    asked: Any
    mode: Mode
    chunks: deque[tuple[Chunk, bool]]
    busy: dict[Any, tuple[Any, Chunk, bool]] = field(default_factory=dict)


class RayEngine:
    """Engine of Ray actors, one core each, on a cluster or this machine.

    The clients of an actor or node that is lost are computed once more, each by itself; whoever
    loses an actor a second time drops out. An actor is started in place of each that was lost,
    wherever the cluster has room.

    Parameters
    ----------
    contributor : Contributor
        Pickled once; every node needs this version of zerosum, and the task's module.
    workers : int, optional
        Actors. Default: as many as the cluster has cores.
    """

    name = "ray"

    def __init__(self, contributor: Contributor, workers: int | None = None) -> None:
        self._started = not ray.is_initialized()
        if self._started:
            ray.init(log_to_driver=False, include_dashboard=False)
        self._idle: list[Any] = []
        self._starting: dict[Any, Any] = {}
        self._number = 0
        self._tally = OutcomeCounts()
        self._closed = False
        try:
            self._contributor = ray.put(contributor)
            self._class = ray.remote(num_cpus=1, max_restarts=0)(_Actor)
            cores = int(ray.cluster_resources().get("CPU", 1))
            self._count = cores if workers is None else workers
            for _ in range(self._count):
                self._start()
        except BaseException:
            self.close()
            raise

    @property
    def workers(self) -> int:
        """Actors that were asked for."""
        return self._count

    def vectors(self, work: Work, clients: Sequence[int]) -> Iterator[tuple[int, Vector | None]]:
        """Yield clients and vectors as they are done."""
        parts = self._computed(work, [(index,) for index in clients], "vector")
        with closing(parts):
            yield from one_by_one(clients, parts)

    def total(self, work: Work, clients: Sequence[int]) -> tuple[list[int], Vector]:
        """Return who contributed, and the sum of their vectors."""
        with closing(self._computed(work, chunked(clients, self._count), "sum")) as parts:
            return summed(work, parts)

    def take_tally(self) -> OutcomeCounts:
        """Return what came of all clients since the last call."""
        taken, self._tally = self._tally, OutcomeCounts()
        return taken

    def close(self) -> None:
        """End the actors, and Ray where this engine started it."""
        self._closed = True
        for actor in [*self._idle, *self._starting.values()]:
            ray.kill(actor)
        self._idle, self._starting = [], {}
        if self._started:
            ray.shutdown()

    def _start(self) -> None:
        self._await(self._class.remote(self._contributor))

    def _await(self, actor: Any) -> None:
        """Register an actor that is starting: it gets no work before it is ready."""
        self._starting[actor.ready.remote()] = actor

    def _computed(
        self, work: Work, chunks: Sequence[Chunk], mode: Mode
    ) -> Generator[tuple[list[int], Vector], None, None]:
        self._number += 1
        request = work.request
        asked = ray.put((request.header, work.session.to_bytes(), request.payload))
        round = _Round(self._number, asked, mode, deque((chunk, False) for chunk in chunks))
        while self._idle:  # one may have been lost since, which is no fault of whoever is next
            self._await(self._idle.pop())
        since = time.monotonic()
        try:
            while round.chunks or round.busy:
                self._give(round)
                if self._idle or round.busy:
                    since = time.monotonic()
                elif time.monotonic() - since > STARTING_SECONDS:
                    raise NoWorkersError(
                        f"no Ray actor is alive, and none started within {STARTING_SECONDS:g} s"
                    )
                yield from self._results(round)
        finally:
            for actor, _, _ in round.busy.values():  # the caller stopped early
                ray.kill(actor)
                if not self._closed:
                    self._start()

    def _give(self, round: _Round) -> None:
        while round.chunks and self._idle:
            actor, (chunk, retried) = self._idle.pop(), round.chunks.popleft()
            ref = actor.compute.remote(round.number, round.asked, chunk, round.mode)
            round.busy[ref] = actor, chunk, retried

    def _results(self, round: _Round) -> Iterator[tuple[list[int], Vector]]:
        """Yield finished chunks, after a second at most, and queue lost ones again."""
        waiting = [*round.busy, *self._starting]
        for ref in ray.wait(waiting, timeout=1.0)[0] if waiting else []:
            if ref in self._starting:
                self._join(ref)
                continue
            actor, chunk, retried = round.busy.pop(ref)
            try:
                contributed, part, tally, log_records = ray.get(ref)
            except RayTaskError:
                raise  # an error of ours: what a client raises stays with the client
            except RayError as error:
                self._lost(round, actor, chunk, retried, error)
                continue
            self._idle.append(actor)
            self._tally += tally
            for record in log_records:
                logging.getLogger(record.name).handle(record)
            if contributed:
                yield contributed, part

    def _join(self, ref: Any) -> None:
        """Add an actor that is ready, or start another in its place."""
        actor = self._starting.pop(ref)
        try:
            ray.get(ref)
        except RayError as error:
            log.warning("a Ray actor is not ready: %s", str(error).partition("\n")[0])
            ray.kill(actor)
            self._start()
            return
        self._idle.append(actor)

    def _lost(
        self, round: _Round, actor: Any, chunk: Chunk, retried: bool, error: RayError
    ) -> None:
        """Put clients back, or drop those that lost an actor twice; start another actor."""
        ray.kill(actor)
        event = f"was lost while it computed clients {chunk}: {type(error).__name__}"
        if retried:
            log.error("a Ray actor %s, again: they drop out", event)
            for client in chunk:
                self._tally += OutcomeCounts.lost(
                    client, f"it lost two actors: {type(error).__name__}"
                )
        else:
            log.warning("a Ray actor %s; each is tried once more", event)
            round.chunks.extend(((index,), True) for index in chunk)
        self._start()
