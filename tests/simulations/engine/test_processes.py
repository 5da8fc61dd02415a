"""Worker processes: an order that a worker does not survive is lost alone."""

import os
import signal
import time
from collections import deque
from contextlib import closing
from dataclasses import dataclass

import pytest
from processes import alive

from zerosum.simulations.engine.processes import Failure, WorkerProcesses


@dataclass(frozen=True)
class Steps:
    """An order with an answer a step."""

    steps: tuple[str, ...]

    @property
    def answers(self):
        return len(self.steps)


class Unreadable:
    def __reduce__(self):
        return _refuse, ()


def _refuse():
    raise LookupError("nobody reads this")


def _raise():
    raise ValueError("a bug")


DO = {
    "shared": lambda shared, place: shared,
    "place": lambda shared, place: place,
    "pid": lambda shared, place: os.getpid(),
    "die": lambda shared, place: os._exit(3),
    "raise": lambda shared, place: _raise(),
    "unsendable": lambda shared, place: lambda: None,
    "unreadable": lambda shared, place: Unreadable(),
    "sleep": lambda shared, place: time.sleep(600),
}


def prepare(place):
    return lambda shared, order: (DO[step](shared, place) for step in order.steps)


@pytest.fixture
def start():
    """Return a function that starts workers, which are ended with the test."""
    started: list[WorkerProcesses] = []

    def start(count, prepare=prepare):
        started.append(WorkerProcesses(prepare, count, "fork", grace_seconds=0))
        return started[-1]

    yield start
    for processes in started:
        processes.close()


def answers_of(processes, *orders, shared=None):
    with closing(processes.answers(deque(map(Steps, orders)), shared)) as answers:
        return [(answered.order.steps, answered.number, answered.answer) for answered in answers]


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize(
    ("step", "lost", "reason", "survives"),
    [
        ("die", "worker", "its worker ended with exit code 3", False),
        ("raise", "order", "a worker failed: ValueError: a bug", False),
        ("unsendable", "answer", "its outcome cannot be sent to another process", True),
        ("unreadable", "answer", "its outcome cannot be read (LookupError", True),
    ],
)
def test_a_failure_loses_what_it_says_and_no_other_order(start, step, lost, reason, survives):
    odd = ("place", step, "place")
    answers = answers_of(start(1), odd, ("place",))
    of_odd = [answer for steps, _, answer in answers if steps == odd]
    assert of_odd[0] == 0
    assert of_odd[1].lost == lost
    assert of_odd[1].reason.startswith(reason)
    assert of_odd[2:] == ([0] if survives else [])
    assert answers[-1] == (("place",), 0, 0)


def test_a_worker_that_dies_is_replaced_in_its_place(start):
    processes = start(1)
    ((_, _, before),) = answers_of(processes, ("pid",))
    os.kill(before, signal.SIGKILL)
    (_, _, after), (_, _, place) = answers_of(processes, ("pid",), ("place",))
    assert (after != before, place) == (True, 0)


@pytest.mark.slow
def test_workers_that_never_start_fail_every_order(start):
    def prepare(place):
        raise SystemExit(4)

    failed = Failure("no process could be started: its worker ended with exit code 4", "order")
    answers = answers_of(start(2, prepare), ("place",), ("pid",), ("shared",))
    assert [answer for _, _, answer in answers] == [failed] * 3


def test_what_orders_share_is_that_of_their_own_call(start):
    processes = start(1)
    for shared in ({"round": 1}, {"round": 2}):
        answers = answers_of(processes, ("shared",), ("shared",), shared=shared)
        assert [answer for _, _, answer in answers] == [shared] * 2


@pytest.mark.slow
def test_a_caller_that_stops_ends_the_workers_at_work_and_no_others(start):
    processes = start(2)
    answers = processes.answers(deque([Steps(("pid", "sleep")), Steps(("pid",))]))
    pids = {answered.order.answers: answered.answer for answered in (next(answers), next(answers))}
    answers.close()
    assert not alive(pids[2])
    ((_, _, other),) = answers_of(processes, ("pid",))
    assert other == pids[1]


@pytest.mark.slow
def test_idle_workers_end_by_themselves_once_their_pipe_is_closed():
    """A fork that held the other end of a pipe would wait for ever, and be killed after a while."""
    processes: WorkerProcesses[Steps] = WorkerProcesses(prepare, 2, "fork", grace_seconds=30)
    answers_of(processes, ("pid",), ("pid",))
    workers = [worker.process for worker in processes._workers]
    for worker in processes._workers:
        worker.connection.close()
    try:
        for process in workers:
            process.join(20)
        assert [process.exitcode for process in workers] == [0, 0]
    finally:
        for process in workers:
            process.kill()
        processes.close()


def test_an_order_with_too_few_answers_fails(start):
    processes = start(1, lambda place: lambda shared, order: iter(order.steps[1:]))
    assert answers_of(processes, ("one", "two"), ("three",)) == [
        (("one", "two"), 0, "two"),
        (("one", "two"), 1, Failure("a worker gave 1 answers of 2", "order")),
        (("three",), 0, Failure("a worker gave 0 answers of 1", "order")),
    ]
