"""Processes that play jobs, cell by cell: what one of them does not survive fails alone.

An outcome is sent as soon as there is one. A process that dies takes the cell with it that it was
playing; the job's other cells go to a new one, once.
"""

import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

from zerosum.client.files.operating_system import KILL
from zerosum.client.task import current_directory_importable, error_line
from zerosum.client.training.threads import use_one_thread
from zerosum.simulations.attacks.harness.play import Cell, Outcome, play
from zerosum.simulations.terminal.logs import log_to
from zerosum.simulations.terminal.signals import exit_in_words, terminable

log = logging.getLogger("zerosum.simulations")

GRACE, PATIENCE = 3.0, 30.0
"""Seconds that a process at work, which was told to end, has to tidy up; that an idle one has."""


@dataclass(frozen=True)
class Job:
    """What is played one after another in one process.

    Attributes
    ----------
    seed : int
    cells : tuple of (int, Cell)
        With their numbers.
    again : bool
        Whether they are what a process left that died.
    """

    seed: int
    cells: tuple[tuple[int, Cell], ...]
    again: bool = False

    def failed(self, reason: str) -> list[Outcome]:
        """Return the outcomes of a job that cannot be played."""
        return [Outcome(number, self.seed, "failed", reason) for number, _ in self.cells]

    def rest(self, again: bool = False) -> "Job | None":
        """Return the job without its first cell."""
        return Job(self.seed, self.cells[1:], self.again or again) if self.cells[1:] else None


@dataclass(frozen=True)
class Refused:
    """Why a process can play nothing of a job."""

    reason: str


@dataclass
class _Worker:
    process: BaseProcess
    connection: Connection
    ready: bool = False
    job: Job | None = None  # what is left of it, the cell in play first


@dataclass
class _Crew:
    """The processes, and the jobs that none of them has yet."""

    jobs: deque[Job]
    log_path: Path | None
    workers: list[_Worker] = field(default_factory=list)
    unstarted: str = ""  # why the last one that never came to play ended

    def hire(self) -> None:
        """Start a process."""
        context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, self.log_path))
        self.workers.append(_Worker(process, ours))
        with _uninterrupted(), current_directory_importable():  # an attack of the user's own
            process.start()
        theirs.close()

    def assign(self) -> list[Outcome]:
        """Give jobs to idle processes; return what cannot be given to any."""
        refused: list[Outcome] = []
        for worker in self.workers:
            while worker.ready and worker.job is None and self.jobs:
                job = self.jobs.popleft()
                try:
                    data = ForkingPickler.dumps(job)
                except Exception as error:  # whatever pickling runs into
                    refused += job.failed(f"no process can be sent it ({error_line(error)})")
                    continue
                try:
                    worker.connection.send_bytes(data)
                    worker.job = job
                except OSError:  # it died idle, which is nobody's fault; whoever waits sees it
                    self.jobs.appendleft(job)
                    break
        return refused

    def heard(self) -> Iterator[Outcome]:
        """Wait for some process to say something, or to end."""
        ready = wait([end for w in self.workers for end in (w.connection, w.process.sentinel)])
        for worker in list(self.workers):
            if worker.connection in ready:
                yield from self._answered(worker)
            elif worker.process.sentinel in ready:
                yield from self._lost(worker)

    def _answered(self, worker: _Worker) -> Iterator[Outcome]:
        try:
            data = worker.connection.recv_bytes()
        except (EOFError, OSError):
            yield from self._lost(worker)
            return
        if worker.job is None:
            worker.ready = True
            return
        try:
            answer: Outcome | Refused = ForkingPickler.loads(data)
        except Exception as error:  # whatever unpickling runs into
            answer = worker.job.failed(f"its outcome cannot be read ({error_line(error)})")[0]
        if isinstance(answer, Outcome):
            yield answer
            worker.job = worker.job.rest()
        else:
            yield from worker.job.failed(answer.reason)
            worker.job = None

    def _lost(self, worker: _Worker) -> Iterator[Outcome]:
        """Put right what a process that died leaves: its cell fails, others play the rest."""
        reason, job = _end(worker), worker.job
        self.workers.remove(worker)
        where = "idle" if job is None else f"{job.cells[0][1].label}, seed {job.seed}"
        log.error("%s: %s", where, reason)
        if not worker.ready:
            self.unstarted = reason  # no other is started in its place: there might be no end
            return
        if job is not None:
            failed = job.failed(reason)
            yield from failed if job.again else failed[:1]
            left = None if job.again else job.rest(again=True)
            self.jobs.extend([left] if left is not None else [])
        if self.jobs:
            self.hire()

    def dismiss(self) -> None:
        """End all processes, those at work by a signal, and wait until they have."""
        started = [worker for worker in self.workers if worker.process.pid is not None]
        at_work = [worker for worker in started if worker.job is not None or not worker.ready]
        for worker in at_work:
            worker.process.terminate()
        for worker in self.workers:
            worker.connection.close()
        deadline = time.monotonic() + (GRACE if at_work else PATIENCE)
        try:
            for worker in started:
                worker.process.join(max(0.0, deadline - time.monotonic()))
        finally:
            for worker in started:
                worker.process.kill()
                worker.process.join()
            self.workers = []


def played_apart(
    jobs: Sequence[Job], workers: int, log_path: Path | None
) -> Generator[Outcome, None, None]:
    """Yield the outcomes of all cells, as they come; close it to end the processes at once.

    Parameters
    ----------
    jobs : sequence of Job
    workers : int
        Processes, of one thread each.
    log_path : Path or None
        Where they write what is logged.
    """
    crew = _Crew(deque(jobs), log_path)
    try:
        for _ in range(min(workers, len(jobs))):
            crew.hire()
        while crew.workers and (crew.jobs or any(worker.job for worker in crew.workers)):
            yield from crew.assign()
            if crew.jobs or any(worker.job for worker in crew.workers):
                yield from crew.heard()
        for job in crew.jobs:
            yield from job.failed(f"no process could be started: {crew.unstarted}")
    finally:
        crew.dismiss()


def _end(worker: _Worker) -> str:
    """Say how a process ended that nobody ended here."""
    worker.connection.close()
    worker.process.join(GRACE)
    worker.process.kill()  # where it closed the connection and lives
    worker.process.join()
    return f"its worker {exit_in_words(worker.process.exitcode or 0)}"


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Start processes whom ctrl-C does not reach: until they ignore it, it is blocked."""
    if not hasattr(signal, "pthread_sigmask"):  # there ctrl-C reaches whoever shares the console
        yield
        return
    from multiprocessing import resource_tracker  # which Windows cannot import

    resource_tracker.ensure_running()  # which unblocks signals as it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(connection: Connection, log_path: Path | None) -> None:
    """Play jobs until the other end is closed: the life of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers itself
    if hasattr(signal, "SIGHUP"):  # which reaches all of a terminal's processes, as ctrl-C does
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    sys.unraisablehook = _told_unless_ended
    try:
        with terminable():
            threading.Thread(target=_follow_parent, daemon=True).start()
            use_one_thread()
            if log_path is not None:
                log_to("zerosum", log_path)
            connection.send_bytes(b"ready")
            while True:
                _play_job(connection, connection.recv_bytes())
    except (KeyboardInterrupt, EOFError, OSError):  # what a cell raises is an outcome
        pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is on its way, and tidies up
        connection.close()


def _play_job(connection: Connection, data: bytes) -> None:
    try:
        job: Job = ForkingPickler.loads(data)
    except Exception as error:  # whatever importing an attack of the user's runs into
        reason = f"no other process can be sent it ({error_line(error)})"
        connection.send(Refused(reason))
        return
    for number, cell in job.cells:
        connection.send_bytes(_packed(play(number, cell, job.seed)))


def _packed(outcome: Outcome) -> memoryview:
    try:
        return ForkingPickler.dumps(outcome)
    except Exception as error:  # whatever pickling runs into
        reason = f"its outcome cannot be sent to another process ({error_line(error)})"
        return ForkingPickler.dumps(Outcome(outcome.number, outcome.seed, "failed", reason))


def _follow_parent() -> None:
    """End this process when its parent is gone, even in the midst of a cell."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE)  # a cell may be deaf to signals: nobody else is there to end it
        os.kill(os.getpid(), KILL)


def _told_unless_ended(unraisable: "sys.UnraisableHookArgs") -> None:
    """Say what a finaliser raised, but not that it was in the way of the process' end."""
    if not isinstance(unraisable.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
