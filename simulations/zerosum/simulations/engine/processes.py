"""Run orders in worker processes that may die: what one of them does not survive is lost alone.

Why not a library: ``concurrent.futures``, and loky and joblib which are built on it, answer the
death of one worker by failing every order that was queued or running, and do not say which one the
worker died of. They end workers by force through private members alone before Python 3.14, leave
orphans where the parent is killed, and pass every answer through two threads and a queue. What is
left to them is the queue, which is the short part.
"""

import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from types import ModuleType
from typing import Any, Generic, Literal, Protocol, TypeVar

from zerosum.client.files.operating_system import KILL
from zerosum.client.task import current_directory_importable, error_line
from zerosum.client.training.threads import use_one_thread
from zerosum.simulations.terminal.signals import exit_in_words, terminable

log = logging.getLogger("zerosum.client")  # which a run keeps in its folder, as attacks do

GRACE_SECONDS = 3.0
"""For a worker at work, which was told to end, to tidy up."""

IDLE_GRACE_SECONDS = 30.0
"""For an idle worker to end by itself: leaving a process that imported torch takes a while."""


class Order(Protocol):
    """An order to a worker; it can be pickled."""

    @property
    def answers(self) -> int:
        """Return the number of its answers."""
        ...


GivenOrder = TypeVar("GivenOrder", bound=Order)

Answering = Callable[[Any, Any], Iterable[Any]]
"""Answers an order: called with what all orders of a call share, and with the order."""


@dataclass(frozen=True)
class Failure:
    """The reason why an answer will not come.

    Attributes
    ----------
    reason : str
    lost : str
        "answer": this one alone. "order": the order's remaining ones, while its worker lives.
        "worker": the order's remaining ones, and the worker died.
    """

    reason: str
    lost: Literal["answer", "order", "worker"]


@dataclass(frozen=True)
class Answered(Generic[GivenOrder]):
    """One answer to an order.

    Attributes
    ----------
    order : Order
    number : int
        Of the answer among the order's, from 0.
    answer : object
        What the worker yielded, or a :class:`Failure`.
    place : int
        Of the worker, which does nothing until the next answer is asked for; -1 where none had it.
    """

    order: GivenOrder
    number: int
    answer: Any
    place: int


@dataclass
class _Worker(Generic[GivenOrder]):
    place: int
    process: BaseProcess
    connection: Connection
    ready: bool = False
    shared: object = None  # what it was sent last: it is sent once
    order: GivenOrder | None = None
    answered: int = 0


class WorkerProcesses(Generic[GivenOrder]):
    """Worker processes of one thread each, which have one order at a time.

    A worker that dies is replaced while there are orders. One that dies before it ever took an
    order is not: there might be no end.

    Parameters
    ----------
    prepare : callable
        Called in each worker with its place, an int; returns the :data:`Answering` that it does.
    count : int
        Workers.
    method : str
        "fork": workers inherit all data, so that none are sent. "spawn": workers import everything
        anew and may use as many threads as they like, which do not survive a fork.
    grace_seconds : float
        For which a worker at work is given time to tidy up, before it is killed.
    with_script : bool
        Whether spawned workers import the script that runs, as Python lets them: orders may be of
        its classes. Without, a script needs no `if __name__ == "__main__":`, nor to be a file.
    """

    def __init__(
        self,
        prepare: Callable[[int], Answering],
        count: int,
        method: Literal["fork", "spawn"],
        grace_seconds: float = GRACE_SECONDS,
        with_script: bool = True,
    ) -> None:
        self._prepare, self._grace_seconds = prepare, grace_seconds
        self._context: Any = multiprocessing.get_context(method)
        self._method, self._with_script = method, with_script
        self._forked = method == "fork"
        self._places = set(range(count))
        self._workers: list[_Worker[GivenOrder]] = []
        self._unstarted = ""  # why the last worker that never took an order ended
        try:
            self._start_missing(count)
        except BaseException:
            self.close()
            raise

    def answers(
        self, orders: deque[GivenOrder], shared: object = None
    ) -> Generator[Answered[GivenOrder], None, None]:
        """Yield answers as they come, until there are no orders left.

        Close the generator to end the workers that are at work for it.

        Parameters
        ----------
        orders : deque
            Taken from the left. Orders may be added between two answers.
        shared : object, optional
            Sent to each worker once, with its first order of this call; not None.

        Yields
        ------
        Answered
            Of an order in their own order; of several orders as they come.
        """
        try:
            while self._places and (orders or self._at_work()):
                self._start_missing(len(orders))
                yield from self._give(orders, shared)
                if any(worker.order is not None or not worker.ready for worker in self._workers):
                    yield from self._hear()  # else those to which orders were given had died idle
            while orders:
                reason = f"no process could be started: {self._unstarted}"
                yield Answered(orders.popleft(), 0, Failure(reason, "order"), -1)
        finally:
            self._end(self._at_work())  # the caller stopped: nobody waits for their answers

    def close(self) -> None:
        """End all workers, those at work by a signal, and wait until they have."""
        self._places = set()
        self._end(self._workers)

    def _at_work(self) -> list[_Worker[GivenOrder]]:
        return [worker for worker in self._workers if worker.order is not None]

    def _start_missing(self, orders: int) -> None:
        missing = sorted(self._places - {worker.place for worker in self._workers})
        for place in missing[: max(0, orders - len(self._workers) + len(self._at_work()))]:
            self._start(place)

    def _start(self, place: int) -> None:
        ours, theirs = self._context.Pipe()
        # A fork inherits our ends of all pipes. While it holds one, closing ours ends no worker.
        inherited = (*(w.connection for w in self._workers), ours) if self._forked else ()
        # multiprocessing ends daemons that nobody closed, but lets them start no process: an
        # attack may want to, and a task that is trained in a fork may not (see forkless).
        process = self._context.Process(
            target=_serve, args=(theirs, inherited, self._prepare, place), daemon=self._forked
        )
        self._workers.append(_Worker(place, process, ours))
        with _starting(self._method), nullcontext() if self._with_script else _script_hidden():
            process.start()
        theirs.close()

    def _give(self, orders: deque[GivenOrder], shared: object) -> Iterator[Answered[GivenOrder]]:
        """Give orders to idle workers; yield the failures of those that cannot be sent."""
        for worker in list(self._workers):
            while worker.ready and worker.order is None and orders:
                order = orders.popleft()
                news = None if worker.shared is shared else shared
                try:
                    data = ForkingPickler.dumps((news, order))
                except Exception as error:  # whatever pickling runs into
                    reason = f"no process can be sent it ({error_line(error)})"
                    yield Answered(order, 0, Failure(reason, "order"), -1)
                    continue
                try:
                    worker.connection.send_bytes(data)
                except OSError:  # it died idle: not of this order
                    orders.appendleft(order)
                    yield from self._lost(worker)
                    break
                worker.shared, worker.order, worker.answered = shared, order, 0

    def _hear(self) -> Iterator[Answered[GivenOrder]]:
        """Wait until a worker answers or ends."""
        # A child of a worker's own may hold the pipe open after the worker's death: the process
        # is watched beside the pipe.
        ready = wait([end for w in self._workers for end in (w.connection, w.process.sentinel)])
        for worker in list(self._workers):
            if worker.connection in ready:
                yield from self._answered(worker)
            elif worker.process.sentinel in ready:
                yield from self._lost(worker)

    def _answered(self, worker: _Worker[GivenOrder]) -> Iterator[Answered[GivenOrder]]:
        try:
            data = worker.connection.recv_bytes()
        except (EOFError, OSError):
            yield from self._lost(worker)
            return
        if worker.order is None:
            worker.ready = True
            return
        order, number = worker.order, worker.answered
        try:
            answer = ForkingPickler.loads(data)
        except Exception as error:  # whatever unpickling runs into
            answer = Failure(f"its outcome cannot be read ({error_line(error)})", "answer")
        worker.answered += 1
        left = isinstance(answer, Failure) and answer.lost != "answer"
        if left or worker.answered == order.answers:
            worker.order = None
        yield Answered(order, number, answer, worker.place)

    def _lost(self, worker: _Worker[GivenOrder]) -> Iterator[Answered[GivenOrder]]:
        self._workers.remove(worker)
        worker.connection.close()
        worker.process.join(GRACE_SECONDS)
        worker.process.kill()  # where it closed the pipe and lives
        worker.process.join()
        reason = f"its worker {exit_in_words(worker.process.exitcode or 0)}"
        worker.process.close()
        if not worker.ready:
            self._unstarted = reason
            self._places.discard(worker.place)
        if worker.order is None:
            log.error("idle: %s", reason)
            return
        yield Answered(worker.order, worker.answered, Failure(reason, "worker"), worker.place)

    def _end(self, workers: Iterable[_Worker[GivenOrder]]) -> None:
        """End workers: idle ones by closing their pipe, which lets them leave in their own time."""
        ended = list(workers)
        self._workers = [worker for worker in self._workers if worker not in ended]
        started = [worker for worker in ended if worker.process.pid is not None]
        busy = [worker for worker in started if worker.order is not None or not worker.ready]
        for worker in busy:
            worker.process.terminate()
        for worker in ended:
            worker.connection.close()
        seconds = IDLE_GRACE_SECONDS if self._grace_seconds and not busy else self._grace_seconds
        deadline = time.monotonic() + seconds
        try:
            for worker in started:
                worker.process.join(max(0.0, deadline - time.monotonic()))
        finally:
            for worker in started:
                worker.process.kill()
                worker.process.join()
                worker.process.close()


@contextmanager
def _starting(method: str) -> Iterator[None]:
    """Start a process that ctrl-C does not reach: until it ignores the signal, it is blocked."""
    with ExitStack() as stack:
        if method == "spawn":  # which imports an attack of the user's own
            stack.enter_context(current_directory_importable())
        if hasattr(signal, "pthread_sigmask"):  # else ctrl-C reaches all that share the console
            if method == "spawn":
                from multiprocessing import resource_tracker  # which Windows cannot import

                resource_tracker.ensure_running()  # it unblocks signals as it starts: first it
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            stack.callback(signal.pthread_sigmask, signal.SIG_SETMASK, before)
        stack.enter_context(warnings.catch_warnings())
        # Python warns of threads at a fork; a worker uses none of what they hold.
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


@contextmanager
def _script_hidden() -> Iterator[None]:
    """Let a process that is spawned meanwhile import no script: it asks what `__main__` is."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def _serve(
    connection: Connection,
    inherited: Sequence[Connection],
    prepare: Callable[[int], Answering],
    place: int,
) -> None:
    """Answer orders until the other end is closed: the life of a worker."""
    for end in inherited:
        end.close()
    # ctrl-C and a hangup reach all of a terminal's processes; the parent ends its workers itself.
    for name in ("SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    sys.unraisablehook = _report_unless_ended
    try:
        with terminable():
            threading.Thread(target=_follow_parent, daemon=True).start()
            use_one_thread()
            work = prepare(place)
            connection.send_bytes(b"ready")
            shared: object = None
            while True:
                shared = _answer(connection, work, shared)
    except (KeyboardInterrupt, EOFError, OSError):  # what an order raises is an answer
        pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the worker is about to end, and tidies up
        connection.close()


def _answer(connection: Connection, work: Answering, shared: object) -> object:
    """Answer one order; return what it shares with the next ones."""
    data = connection.recv_bytes()
    try:
        news, order = ForkingPickler.loads(data)
    except Exception as error:  # whatever importing an attack of the user's runs into
        reason = f"no other process can be sent it ({error_line(error)})"
        connection.send(Failure(reason, "order"))
        return shared
    shared = shared if news is None else news
    count = 0
    for answer in _attempted(work, shared, order):
        connection.send_bytes(_packed(answer))
        count += 1
        if isinstance(answer, Failure) and answer.lost != "answer":
            return shared
    if count < order.answers:  # nobody else could know, and the parent would wait for ever
        reason = f"a worker gave {count} answers of {order.answers}"
        connection.send(Failure(reason, "order"))
    return shared


def _attempted(work: Answering, shared: object, order: object) -> Iterator[object]:
    try:
        yield from work(shared, order)
    except Exception as error:
        log.exception("a worker failed")
        yield Failure(f"a worker failed: {error_line(error)}", "order")


def _packed(answer: object) -> memoryview:
    try:
        return ForkingPickler.dumps(answer)
    except Exception as error:  # whatever pickling runs into
        reason = f"its outcome cannot be sent to another process ({error_line(error)})"
        return ForkingPickler.dumps(Failure(reason, "answer"))


def _follow_parent() -> None:
    """End this process when its parent is gone, even in the midst of an order."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE_SECONDS)  # an attack may be deaf to signals: nobody else can end it
        os.kill(os.getpid(), KILL)


def _report_unless_ended(unraisable: "sys.UnraisableHookArgs") -> None:
    """Report what a finaliser raised, unless it is the signal that ends this process."""
    if not isinstance(unraisable.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
