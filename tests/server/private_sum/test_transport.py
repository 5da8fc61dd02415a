"""Polling for replies: soon at first, seldom later, no longer than the timeout."""

import pytest
from flwr.app import Message

from zerosum.client.protocol import flower_messages
from zerosum.secagg.stages import Stage
from zerosum.server.private_sum import transport
from zerosum.server.private_sum.transport import Exchange, poll
from zerosum.server.spec import DeploymentSpec
from zerosum.simulations.engine.grid import InProcessGrid, nodes


class Clock:
    """Time passes where somebody sleeps, and nowhere else."""

    def __init__(self, monkeypatch):
        self.now, self.pauses = 0.0, []
        monkeypatch.setattr(transport.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(transport.time, "sleep", self.sleep)

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds


class SlowGrid(InProcessGrid):
    """Clients whose answers take so many seconds each."""

    def __init__(self, clock, seconds):
        super().__init__(lambda m, c: Message(flower_messages.pack({}), reply_to=m), len(seconds))
        self.clock, self.seconds = clock, seconds

    def pull_messages(self, message_ids):
        ready = [key for key in message_ids if self.seconds[int(key[1:]) - 1] <= self.clock.now]
        return super().pull_messages(ready)


def outgoing(grid, stages, timeouts):
    asking = Exchange(grid, nodes(len(stages)), timeouts)
    sent = {i: asking.address(stage, 1, flower_messages.pack({})) for i, stage in enumerate(stages)}
    return [index for index, _ in asking.ask(sent)]


def test_pauses_are_short_at_first_and_a_small_part_of_the_wait_later(monkeypatch):
    clock = Clock(monkeypatch)
    grid = SlowGrid(clock, [0.0, 3.0, 100.0])
    assert outgoing(grid, ["share"] * 3, DeploymentSpec(stage_timeout=200.0)) == [0, 1, 2]
    assert clock.pauses[0] == transport.FIRST_PAUSE_SECONDS
    assert max(clock.pauses) == transport.LONGEST_PAUSE_SECONDS
    assert clock.now - 100.0 <= transport.LONGEST_PAUSE_SECONDS
    assert len(clock.pauses) < 220


def test_each_message_has_the_time_of_its_stage(monkeypatch):
    clock = Clock(monkeypatch)
    grid = SlowGrid(clock, [15.0, 15.0, 15.0, 15.0])
    spec = DeploymentSpec(stage_timeout=10.0, train_timeout=20.0, timeouts={Stage.UNMASK: 30.0})
    assert outgoing(grid, ["share", "contribute", "unmask", "confirm"], spec) == [1, 2]
    assert clock.now < 17.0, "nobody is waited for who is too late"


def test_a_stage_that_does_not_exist_has_no_time():
    with pytest.raises(ValueError, match="timeouts"):
        DeploymentSpec(timeouts={"sing": 3.0})  # type: ignore[dict-item] # a stage that is none


def test_a_message_that_could_not_be_pushed_is_not_waited_for(monkeypatch):
    clock = Clock(monkeypatch)
    grid = SlowGrid(clock, [0.0])
    monkeypatch.setattr(grid, "push_messages", lambda messages: [None])
    assert not list(poll(grid, [Message(flower_messages.pack({}), 1000, "query.share")], [10.0]))
    assert clock.now == 0.0
