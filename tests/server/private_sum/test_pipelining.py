"""Two sums in one exchange: which stages ride along, and what becomes of each part."""

import logging
from typing import Any

import numpy as np
import pytest
from narrowed import UNUSED

from zerosum.client.protocol import flower_messages
from zerosum.client.protocol.noise_source import SeededEntropy
from zerosum.client.request import ModelQuestion, ModelRequest, model_payload
from zerosum.client.spec import (
    DataSpec,
    EncodingSpec,
    ModelSpec,
    PrivacySpec,
    SecAggSpec,
    TrainSpec,
)
from zerosum.secagg import SharedCache
from zerosum.server.private_sum.coordinator import Coordinator, Nodes
from zerosum.server.private_sum.pipelining import PipelinedExchange
from zerosum.server.private_sum.sum_in_progress import Shape, SumPlan
from zerosum.server.private_sum.transport import Exchange
from zerosum.server.spec import DeploymentSpec
from zerosum.simulations.engine.grid import InProcessGrid, nodes

CLIENTS = 4
EVERYBODY = tuple(range(CLIENTS))


def request(number):
    question = ModelQuestion(
        kind="train", round=number, seed=0, population=CLIENTS, task="digits", data=DataSpec(),
        model=ModelSpec(), training=TrainSpec(), privacy=PrivacySpec(model="none", clip=None),
        encoding=EncodingSpec(bits=20, range=1.0), noise_draw="per_client", max_loss=1.0,
    )  # fmt: skip
    return ModelRequest(question, model_payload(np.zeros(3, dtype=np.float32)))


def plan(number, clients=EVERYBODY, attempt=0):
    return SumPlan((clients,), number, attempt, Shape.of(request(number)))


class Scripted(Exchange):
    """An exchange that keeps what is asked, and gives each client's reply by a script."""

    def __init__(self, reply, **timeouts):
        super().__init__(UNUSED, {}, DeploymentSpec(**timeouts))
        self.asked, self._reply = [], reply

    def ask(self, outgoing, refused=lambda index: None):
        self.asked.append(outgoing)
        for index in outgoing:
            content = self._reply(index)
            if content is None:
                refused(index)
            else:
                yield index, content


def opened(number, clients=EVERYBODY):
    grid = InProcessGrid(UNUSED, CLIENTS)
    spec = SecAggSpec(server="semi-honest", dropout=0.0)
    coordinator = Coordinator(
        grid, Nodes(nodes(CLIENTS)), spec, run_id=b"run", entropy=SeededEntropy(0)
    )
    return coordinator._open(plan(number, clients))


def ask(exchange, stage, clients=EVERYBODY):
    """Ask clients of a sum in front for a stage; return who answered it, and who refused."""
    refused: list[int] = []
    outgoing = {i: exchange.address(stage, 1, flower_messages.pack({"of": 1})) for i in clients}
    return [index for index, _ in exchange.ask(outgoing, refused.append)], refused


def both(index):
    part = flower_messages.pack({"message": b"?"})
    return flower_messages.joined(part, part)


@pytest.mark.parametrize("stage", ["contribute", "confirm", "unmask"])
def test_keys_of_the_next_sum_ride_with_later_stages(stage):
    script = Scripted(both)
    exchange = PipelinedExchange(script)
    exchange.prepare(opened(2))
    ask(exchange, stage)
    stages = {flower_messages.piggyback_stage(x.content) for x in script.asked[0].values()}
    assert stages == {"advertise"}


@pytest.mark.parametrize("stage", ["advertise", "share"])
def test_nothing_rides_with_keys_and_shares(stage):
    script = Scripted(both)
    exchange = PipelinedExchange(script)
    exchange.prepare(opened(2))
    ask(exchange, stage)
    stages = {flower_messages.piggyback_stage(x.content) for x in script.asked[0].values()}
    assert stages == {None}


def test_two_stages_in_one_message_have_the_time_of_the_slower():
    script = Scripted(both, stage_timeout=10.0, train_timeout=20.0, timeouts={"advertise": 40.0})
    exchange = PipelinedExchange(script)
    exchange.prepare(opened(2, (0, 1, 2)))
    ask(exchange, "contribute")
    seconds = {index: sent_to.seconds for index, sent_to in script.asked[0].items()}
    assert seconds == {0: 40.0, 1: 40.0, 2: 40.0, 3: 20.0}


def test_each_part_of_a_reply_counts_for_its_own_sum():
    main, riding = flower_messages.pack({"message": b"?"}), flower_messages.pack({"message": b"?"})
    replies = [
        flower_messages.joined(main, None),
        flower_messages.joined(None, riding),
        flower_messages.joined(main, riding),
        None,
    ]
    following = opened(2)
    exchange = PipelinedExchange(Scripted(lambda index: replies[index]))
    exchange.prepare(following)
    assert ask(exchange, "contribute") == ([0, 2], [1, 3])
    assert following.traffic.refused == {"advertise": 2}  # 0 left it out, 3 answered with an error


def test_a_client_of_one_sum_alone_is_sent_that_message_alone():
    script = Scripted(lambda index: flower_messages.pack({"message": b"?"}))
    exchange = PipelinedExchange(script)
    exchange.prepare(opened(2, (1, 2, 3)))
    assert ask(exchange, "contribute", (0, 1)) == ([0, 1], [])
    sent = script.asked[0]
    assert [sent[i].stage for i in range(4)] == ["contribute"] * 2 + ["advertise"] * 2
    assert [sent[i].round for i in range(4)] == [1, 1, 2, 2]
    assert [flower_messages.PIGGYBACK in sent[i].content for i in range(4)] == [0, 1, 0, 0]


def test_a_sum_begins_where_its_messages_have_left_it():
    following = opened(2)
    exchange = PipelinedExchange(Scripted(both))
    exchange.prepare(following)
    ask(exchange, "contribute")
    assert exchange.begin(plan(2)) is following is not None
    assert following.exchanged
    assert exchange.begin(plan(2)) is None


def test_another_sum_under_a_prepared_number_is_refused():
    exchange = PipelinedExchange(Scripted(both))
    exchange.prepare(opened(2))
    for act in (lambda: exchange.prepare(opened(2, (0, 1, 2))),
                lambda: exchange.begin(plan(2, (0, 1, 2)))):  # fmt: skip
        with pytest.raises(ValueError, match="another sum than this was prepared as round 2"):
            act()


def test_a_sum_that_is_passed_over_is_dropped_and_the_log_says_so(caplog):
    caplog.set_level(logging.DEBUG, "zerosum.server")
    exchange = PipelinedExchange(Scripted(both))
    exchange.prepare(opened(2))
    assert exchange.begin(plan(1, attempt=1)) is None  # the next one still rides along
    assert not caplog.records
    assert exchange.begin(plan(3)) is None
    assert "round 2 was prepared and is not asked for" in caplog.text
    assert exchange.begin(plan(2)) is None


def test_a_coordinator_without_pipelining_prepares_nothing():
    grid = InProcessGrid(UNUSED, CLIENTS)
    spec = SecAggSpec(server="semi-honest", dropout=0.0)
    given: dict[str, Any] = {"run_id": b"run", "entropy": SeededEntropy(0)}
    alone = Coordinator(grid, Nodes(nodes(CLIENTS)), spec, **given)
    cached = Coordinator(
        grid, Nodes(nodes(CLIENTS)), spec, **given, pipeline=True, cache=SharedCache(2)
    )
    for coordinator in (alone, cached):
        assert not coordinator.pipelined
        coordinator.prepare(plan(2))
        coordinator.prepare(plan(2, (0, 1, 2)))
