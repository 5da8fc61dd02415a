"""An engine of worker processes, forked from a process that has the task: data are shared.

A worker inherits task and data by copy-on-write. A round's model stands in memory that all share;
each worker is sent the question once, and then clients' indices; its sums and vectors come back in
a slot of shared memory. Vectors are integers, so that a sum does not depend on who added what when:
results are the same bits for any number of workers.
"""

import logging
import mmap
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from zerosum.client.protocol.client_vector import Work
from zerosum.client.protocol.training_outcomes import OutcomeCounts
from zerosum.client.request import Request
from zerosum.secagg import Session
from zerosum.simulations.engine.processes import Answered, Answering, Failure, WorkerProcesses
from zerosum.simulations.engine.work import (
    Contributor,
    Signed,
    Vector,
    add_up,
    chunked,
    one_by_one,
    summed,
)

log = logging.getLogger("zerosum.client")

Announcement = tuple[bytes, bytes, int]
"""A request's canonical header, its session, and the entries of its model."""

Contributed = tuple[list[int], OutcomeCounts]
"""Clients of a chunk that contributed, and what came of all of it."""


@dataclass(frozen=True)
class _Chunk:
    """Clients whose sum is computed, or of one client its vector."""

    clients: tuple[int, ...]
    summed: bool
    retried: bool = False
    answers: ClassVar[int] = 1


class WorkerPool:
    """An engine of forked worker processes with one thread each.

    The clients of a worker that dies are computed once more, each by itself. A client that ends a
    worker a second time drops out.

    Parameters
    ----------
    contributor : Contributor
        Inherited by each worker.
    workers : int
        Processes.
    entries : int
        Longest model of a request, in float32.
    length : int
        Longest encoded vector.
    """

    name = "processes"

    def __init__(self, contributor: Contributor, workers: int, entries: int, length: int) -> None:
        self._payload = _shared(4 * entries, np.dtype(np.uint8))
        self._slots = [_shared(length, np.dtype(np.int64)) for _ in range(workers)]
        self._tally = OutcomeCounts()
        self._processes: WorkerProcesses[_Chunk] = WorkerProcesses(
            partial(_computation, contributor, self._payload, self._slots),
            workers,
            "fork",
            grace_seconds=0,  # clients leave nothing that would have to be tidied up
        )

    @property
    def workers(self) -> int:
        """Processes that compute at once."""
        return len(self._slots)

    def vectors(self, work: Work, clients: Sequence[int]) -> Iterator[tuple[int, Signed | None]]:
        """Yield clients and vectors as they are done; each vector is the caller's own.

        Parameters
        ----------
        work : Work
        clients : sequence of int

        Yields
        ------
        tuple of (int, ndarray or None)
            int64, shape (n,); None of a client that drops out.
        """
        chunks = deque(_Chunk((index,), summed=False) for index in clients)
        with closing(self._computed(work, chunks)) as parts:
            yield from one_by_one(clients, ((done, slot.copy()) for done, slot in parts))

    def total(self, work: Work, clients: Sequence[int]) -> tuple[list[int], Vector]:
        """Return the clients that contributed, and the sum of their vectors.

        Parameters
        ----------
        work : Work
        clients : sequence of int

        Returns
        -------
        tuple of (list of int, ndarray)
            Ascending; int64, shape (n,).
        """
        chunks = deque(_Chunk(part, summed=True) for part in chunked(clients, self.workers))
        with closing(self._computed(work, chunks)) as parts:
            return summed(work, parts)

    def take_tally(self) -> OutcomeCounts:
        """Return what came of all clients since the last call."""
        taken, self._tally = self._tally, OutcomeCounts()
        return taken

    def close(self) -> None:
        """End the workers."""
        self._processes.close()

    def _computed(
        self, work: Work, chunks: deque[_Chunk]
    ) -> Generator[tuple[list[int], Vector], None, None]:
        """Yield of each chunk the clients that contributed, and a view of the worker's slot."""
        payload = work.request.payload
        self._payload[: len(payload)] = np.frombuffer(payload, np.uint8)
        announced: Announcement = work.request.header, work.session.to_bytes(), len(payload)
        with closing(self._processes.answers(chunks, announced)) as answers:
            for answered in answers:
                if isinstance(answered.answer, Failure):
                    self._put_back(answered, answered.answer, chunks)
                    continue
                contributed, tally = answered.answer
                self._tally += tally
                if contributed:
                    slot = self._slots[answered.place]
                    yield contributed, slot[: work.session.vector_length]

    def _put_back(
        self, answered: Answered[_Chunk], failure: Failure, chunks: deque[_Chunk]
    ) -> None:
        """Let each client of a worker that died be tried once more, alone; then it drops out."""
        if failure.lost != "worker":  # a mistake of ours, which no other worker would not make
            raise RuntimeError(failure.reason)
        chunk = answered.order
        if not chunk.retried:
            log.warning(
                "%s while it computed clients %s; each is tried once more",
                failure.reason,
                chunk.clients,
            )
            chunks.extend(_Chunk((index,), chunk.summed, True) for index in chunk.clients)
            return
        log.error(
            "%s again while it computed clients %s; they drop out", failure.reason, chunk.clients
        )
        for client in chunk.clients:
            self._tally += OutcomeCounts.lost(client, f"{failure.reason}, twice")


def _shared(length: int, dtype: np.dtype[np.generic]) -> np.ndarray:
    """Return an array of shape (length,) that forked processes share."""
    memory = mmap.mmap(-1, max(1, length) * dtype.itemsize)
    return np.frombuffer(memory, dtype=dtype, count=length)


def _computation(
    contributor: Contributor, payload: np.ndarray, slots: Sequence[Vector], place: int
) -> Answering:
    """Return what computes chunks in a worker, and leaves their vectors in its slot."""
    known: tuple[Announcement, Work] | None = None

    def answer(announced: Announcement, chunk: _Chunk) -> Iterator[Contributed]:
        nonlocal known
        if known is None or known[0] is not announced:
            header, session, size = announced
            request = Request.from_bytes(header, payload[:size].tobytes())
            known = announced, Work(request, Session.from_bytes(session))
        work = known[1]
        slot = slots[place][: work.session.vector_length]
        yield _compute(contributor, work, chunk, slot), contributor.take_tally()

    return answer


def _compute(contributor: Contributor, work: Work, chunk: _Chunk, slot: Vector) -> list[int]:
    """Put the sum or the vector of a chunk into a slot, and return the clients that are in it."""
    if chunk.summed:
        slot[:] = 0
        return add_up(contributor, work, chunk.clients, slot)
    (index,) = chunk.clients
    vector = contributor.vector(work, index)
    if vector is None:
        return []
    slot[:] = vector
    return [index]
