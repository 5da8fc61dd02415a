"""Worker processes, forked from a process that has the task: data are shared, never sent.

A worker inherits task and data by copy-on-write. A round's model stands in memory that all share;
what is sent is the question, once a worker, and the clients' indices; what comes back stands in a
slot of shared memory a worker. Vectors are integers, so that a sum does not depend on who added
what when: results are the same bits for any number of workers.
"""

import contextlib
import logging
import mmap
import multiprocessing
import os
import signal
import warnings
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Literal

import numpy as np

from zerosum.client.protocol.training_outcomes import OutcomeCounts
from zerosum.client.request import Question, Request
from zerosum.client.training.threads import use_one_thread
from zerosum.secagg import Session
from zerosum.simulations.engine.work import (
    Contributor,
    Signed,
    Vector,
    Work,
    add_up,
    chunked,
    one_by_one,
    summed,
)

log = logging.getLogger("zerosum.client")

Mode = Literal["sum", "vector"]

Answered = tuple[list[int], OutcomeCounts]
"""Who of a chunk contributed, and what came of all of it."""


@dataclass
class _Worker:
    process: BaseProcess
    connection: Connection
    slot: Vector
    knows: int = -1
    chunk: tuple[int, ...] = ()
    retried: bool = False


@dataclass
class _Queue:
    """Clients still to be computed, in chunks; those of a worker that died, once more alone."""

    chunks: deque[tuple[tuple[int, ...], bool]] = field(default_factory=deque)

    def put_back(self, clients: tuple[int, ...]) -> None:
        self.chunks.extend(((index,), True) for index in clients)


class WorkerPool:
    """An engine of forked worker processes with one thread each.

    The clients of a worker that dies are computed once more, each by itself, by a worker forked
    anew; whoever ends a worker a second time drops out.

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
        self._contributor = contributor
        self._model = _shared(entries, np.dtype(np.float32))
        self._slots = [_shared(length, np.dtype(np.int64)) for _ in range(workers)]
        self._workers: list[_Worker] = []
        self._number = 0
        self._sent: tuple[bytes, bytes, int] = (b"", b"", 0)
        self._closed = False
        self._tally = OutcomeCounts()
        try:
            for slot in self._slots:
                self._workers.append(self._fork(slot))
        except BaseException:
            self.close()
            raise

    @property
    def workers(self) -> int:
        """Processes that compute at once."""
        return len(self._slots)

    def vectors(self, work: Work, clients: Sequence[int]) -> Iterator[tuple[int, Signed | None]]:
        """Yield clients and vectors as they are done; each vector is the caller's own."""
        parts = self._computed(work, [(index,) for index in clients], "vector")
        with closing(parts):
            yield from one_by_one(clients, ((done, slot.copy()) for done, slot in parts))

    def total(self, work: Work, clients: Sequence[int]) -> tuple[list[int], Vector]:
        """Return who contributed, and the sum of their vectors."""
        with closing(self._computed(work, chunked(clients, self.workers), "sum")) as parts:
            return summed(work, parts)

    def take_tally(self) -> OutcomeCounts:
        """Return what came of all clients since the last call."""
        taken, self._tally = self._tally, OutcomeCounts()
        return taken

    def close(self) -> None:
        """End the workers."""
        self._closed = True
        for worker in self._workers:
            worker.connection.close()
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.process.close()
        self._workers = []

    def _computed(
        self, work: Work, chunks: Sequence[tuple[int, ...]], mode: Mode
    ) -> Generator[tuple[list[int], Vector], None, None]:
        """Yield what each chunk came to: who contributed, and a view of the worker's slot."""
        self._announce(work)
        length = work.session.vector_length
        queue = _Queue(deque((chunk, False) for chunk in chunks))
        idle, busy = list(self._workers), dict[Connection, _Worker]()
        try:
            while queue.chunks or busy:
                while queue.chunks and idle:
                    self._give(idle, busy, queue, mode)
                for ready in wait(list(busy)):
                    worker = busy[ready]  # type: ignore[index]
                    try:
                        answer: Answered | Exception = worker.connection.recv()
                    except (EOFError, OSError):
                        del busy[worker.connection]
                        idle.append(self._replace(worker, queue))
                        continue
                    del busy[worker.connection]
                    if isinstance(answer, Exception):
                        raise answer
                    contributed, tally = answer
                    self._tally += tally
                    if contributed:
                        yield contributed, worker.slot[:length]
                    idle.append(worker)
        finally:
            if not self._closed:  # the caller stopped early: what they do is not wanted
                for worker in busy.values():
                    self._renew(worker)

    def _announce(self, work: Work) -> None:
        self._number += 1
        model = work.request.model
        self._model[: len(model)] = model
        self._sent = work.request.header, work.session.to_bytes(), len(model)

    def _give(
        self, idle: list[_Worker], busy: dict[Connection, _Worker], queue: _Queue, mode: Mode
    ) -> None:
        worker = idle.pop()
        worker.chunk, worker.retried = queue.chunks.popleft()
        try:
            if worker.knows != self._number:
                worker.connection.send(self._sent)
                worker.knows = self._number
            worker.connection.send((worker.chunk, mode))
        except OSError:  # it died while it was idle: nobody's fault that is asked now
            queue.chunks.appendleft((worker.chunk, worker.retried))
            idle.append(self._renew(worker))
            return
        busy[worker.connection] = worker

    def _replace(self, worker: _Worker, queue: _Queue) -> _Worker:
        """Fork a worker in place of one that died, and put its clients back, or drop them."""
        worker.process.join()
        said = f"ended with {worker.process.exitcode} while it computed clients {worker.chunk}"
        if worker.retried:
            log.error("a worker %s, again: they drop out", said)
            for client in worker.chunk:
                ended = f"its worker process ended twice, with {worker.process.exitcode}"
                self._tally += OutcomeCounts.lost(client, ended)
        else:
            log.warning("a worker %s: each is tried once more", said)
            queue.put_back(worker.chunk)
        return self._renew(worker)

    def _renew(self, worker: _Worker) -> _Worker:
        place = self._workers.index(worker)
        worker.connection.close()
        worker.process.kill()
        worker.process.join()
        worker.process.close()
        self._workers[place] = self._fork(worker.slot)
        return self._workers[place]

    def _fork(self, slot: Vector) -> _Worker:
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        # Ends of other workers' pipes, which a fork inherits: they would outlive this process.
        inherited = [worker.connection for worker in self._workers] + [ours]
        process = context.Process(
            target=_serve,
            args=(theirs, inherited, self._contributor, self._model, slot),
            daemon=True,
        )
        with warnings.catch_warnings():
            # Python warns of threads; a worker uses none of what they hold.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        theirs.close()
        return _Worker(process, ours, slot)


def _shared(length: int, dtype: np.dtype[np.generic]) -> np.ndarray:
    """Return an array that forked processes share."""
    memory = mmap.mmap(-1, max(1, length) * dtype.itemsize)
    return np.frombuffer(memory, dtype=dtype, count=length)


def _serve(
    connection: Connection,
    inherited: Sequence[Connection],
    contributor: Contributor,
    model: np.ndarray,
    slot: Vector,
) -> None:
    """Compute chunks until the other end is closed: the life of a worker."""
    for sign in (signal.SIGINT, signal.SIGHUP):
        signal.signal(sign, signal.SIG_IGN)  # the parent ends its workers itself
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in inherited:
        other.close()
    use_one_thread()
    work: Work | None = None
    while True:
        try:
            order = connection.recv()
        except (EOFError, OSError):
            os._exit(0)
        if len(order) == 3:
            header, session, entries = order
            question = Question.from_canonical(header)
            work = Work(Request(question, model[:entries]), Session.from_bytes(session))
            continue
        clients, mode = order
        if work is None:
            os._exit(1)
        found = slot[: work.session.vector_length]
        answer: Answered | Exception
        try:
            answer = _compute(contributor, work, clients, mode, found), contributor.take_tally()
        except Exception as error:  # of ours: what a client raises stays with the client
            log.exception("a worker failed")
            answer = RuntimeError(f"a worker failed: {type(error).__name__}: {error}")
        with contextlib.suppress(OSError):
            connection.send(answer)


def _compute(
    contributor: Contributor, work: Work, clients: tuple[int, ...], mode: Mode, found: Vector
) -> list[int]:
    """Put the vector or the sum of some clients into a slot, and return who is in it."""
    if mode == "sum":
        found[:] = 0
        return add_up(contributor, work, clients, found)
    (index,) = clients
    vector = contributor.vector(work, index)
    if vector is None:
        return []
    found[:] = vector
    return [index]
