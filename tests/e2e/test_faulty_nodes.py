"""Nodes that are late, repeat themselves, talk rubbish or restart, while two sessions overlap.

Three sums in a row; client 1 misbehaves in the second, at each stage. Everybody else is not
disturbed: what is released is exactly the sum of those who are said to be in it.
"""

import copy
import logging
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from policies import LEAST_TOML

from zerosum.client.flower.client_app import DeployedEnvironment, build_app
from zerosum.client.protocol import flower_messages
from zerosum.client.protocol.file_store import FileStore
from zerosum.client.protocol.noise_source import Entropy, SeededEntropy
from zerosum.client.request import ModelQuestion, ModelRequest, model_payload
from zerosum.client.spec import (
    DataSpec,
    EncodingSpec,
    ModelSpec,
    PrivacySpec,
    SecAggSpec,
    TrainSpec,
)
from zerosum.server.private_sum.coordinator import Coordinator, Nodes, RoundAbandoned
from zerosum.server.private_sum.sum_in_progress import Shape, SumPlan
from zerosum.server.spec import DeploymentSpec
from zerosum.simulations.engine.grid import FIRST_NODE, InProcessGrid, nodes

CLIENTS, DIMENSION, VICTIM = 6, 20, 1
EVERYBODY = tuple(range(CLIENTS))
OTHERS = tuple(i for i in EVERYBODY if i != VICTIM)
STAGES = {
    "semi-honest": ("advertise", "share", "contribute", "unmask"),
    "malicious": ("advertise", "share", "contribute", "confirm", "unmask"),
}
CASES = [(server, stage) for server, stages in STAGES.items() for stage in stages]
pytestmark = pytest.mark.usefixtures("one_thread")


class Constant(DeployedEnvironment):
    """Clients that train nothing: client u answers with the vector u + 1."""

    entropy: Entropy = SeededEntropy(0)

    def task(self, request, client):
        return None

    def update(self, request, task, client):
        return np.full(DIMENSION, (client.index + 1) / 100)


def request(number):
    question = ModelQuestion(
        kind="train",
        round=number,
        seed=0,
        population=CLIENTS,
        task="digits",
        data=DataSpec(),
        model=ModelSpec(),
        training=TrainSpec(),
        privacy=PrivacySpec(model="none", clip=None),
        encoding=EncodingSpec(bits=20, range=1.0),
        noise_draw="per_client",
        max_loss=1.0,
    )
    return ModelRequest(question, model_payload(np.full(DIMENSION, number, dtype=np.float32)))


def record_of(message, stage):
    """Return the name of the record in which a message asks for a stage, and is answered."""
    return (
        flower_messages.PIGGYBACK
        if flower_messages.piggyback_stage(message.content) == stage
        else flower_messages.RECORD
    )


def parts_of(message):
    """Return the (round, stage) of everything that a message asks for."""
    kind = message.metadata.message_type.split(".")[1]
    found = []
    if flower_messages.RECORD in message.content:
        found.append((int(message.metadata.group_id), kind))
    stage = flower_messages.piggyback_stage(message.content)
    if stage is not None:
        found.append(
            (flower_messages.int_field(flower_messages.piggyback(message.content), "round"), stage)
        )
    return found


class Bench(InProcessGrid):
    """Six nodes, of which one misbehaves when it is asked for something."""

    def __init__(self, folder, make_keys, server, when, how):
        self.folder, self.when, self.how = folder, when, how
        self.server = server
        self.keys = make_keys(folder / "keys", CLIENTS)
        (folder / "policy.toml").write_text(
            f'models = ["none"]\nservers = ["{server}"]\n{LEAST_TOML}'
        )
        self.client = build_app(Constant)
        self.late, self.struck, self.asked, self.before = [], 0, [], {}
        super().__init__(self.handle, CLIENTS, node_config=self.node_config)

    def node_config(self, index):
        state = {"state-dir": str(self.folder / str(index))}
        state["policy"] = str(self.folder / "policy.toml")
        return state | (self.keys.node_config(index) if self.server == "malicious" else {})

    def strikes(self, message):
        node = message.metadata.dst_node_id
        return node == FIRST_NODE + VICTIM and self.when in parts_of(message)

    def handle(self, message, context):
        if not self.strikes(message):
            return self.kept(message, self.client(message, context))
        self.struck += 1
        return getattr(self, self.how)(message, context)

    def rubbish(self, message, context):
        """Answer with nonsense where it was to answer this; what came along is answered well."""
        reply = self.client(message, context)
        content = RecordDict(dict(reply.content))
        name = record_of(message, self.when[1])
        content[name] = ConfigRecord({"message": bytes(range(256)) * 4})
        return Message(content, reply_to=message)

    def kept(self, message, reply):
        """Remember what the victim answered at each stage."""
        if message.metadata.dst_node_id == FIRST_NODE + VICTIM:
            for _, stage in parts_of(message):
                self.before[stage] = reply.content[record_of(message, stage)]
        return reply

    def of_another_session(self, message, context):
        """Answer with what was the true answer in the session before."""
        reply = self.client(message, context)
        content = RecordDict(dict(reply.content))
        stage = self.when[1]
        content[record_of(message, stage)] = self.before[stage]
        return Message(content, reply_to=message)

    def restarts(self, message, context):
        """Come back without the state of the process before, and with the durable record."""
        context.state = RecordDict()
        return self.client(message, context)

    def twice(self, message, context):
        """Be sent the same message again, in a process that knows only the durable record."""
        before = copy.deepcopy(context.state)
        self.client(message, context)
        context.state = before
        return self.client(message, context)

    def repeats(self, message, context):
        reply = self.client(message, context)
        self.late.append(reply)  # comes again, and again
        return reply

    def is_late(self, message, context):
        reply = self.client(message, context)
        self.late.append(reply)
        return reply

    def push_messages(self, messages):
        sent = list(messages)
        self.asked.append({part for message in sent for part in parts_of(message)})
        return super().push_messages(sent)

    def pull_messages(self, message_ids):
        found = list(super().pull_messages(message_ids))
        if self.how == "is_late":
            found = [m for m in found if all(m is not late for late in self.late)]
        if len(self.asked) > self.struck_at:
            found = [*self.late, *found, *self.late]
        return found

    @property
    def struck_at(self):
        """Number of the exchange at which it strikes, or one more than there are."""
        if self.how == "repeats":
            return 0
        return next((n for n, parts in enumerate(self.asked, 1) if self.when in parts), 10**6)

    def sums(self):
        """Ask for three sums in a row; return each one's aggregate, or why there is none."""
        coordinator = Coordinator(
            self,
            Nodes(nodes(CLIENTS), self.keys.roster if self.server == "malicious" else None),
            SecAggSpec(server=self.server, dropout=0.2),
            run_id=b"run",
            entropy=SeededEntropy(0),
            timeouts=DeploymentSpec(stage_timeout=0.15, train_timeout=0.15),
            pipeline=True,
        )
        found: list[Any] = []
        for number in (1, 2, 3):
            if number < 3:
                shape = Shape.of(request(number + 1))
                coordinator.prepare(SumPlan((EVERYBODY,), number + 1, 0, shape))
            try:
                found.append(coordinator.private_sum(request(number), (EVERYBODY,), round=number))
            except RoundAbandoned as abandoned:
                found.append(str(abandoned))
        return found


@pytest.fixture
def bench(tmp_path, make_keys):
    return lambda server, when, how: Bench(tmp_path, make_keys, server, when, how)


def check(aggregate, survivors):
    assert aggregate.survivors == survivors
    total = sum(index + 1 for index in survivors) / 100
    np.testing.assert_allclose(aggregate.total, total, atol=CLIENTS / 2**19)


def who(in_it):
    return EVERYBODY if in_it else OTHERS


BEFORE_THE_VECTOR = ("advertise", "share", "contribute")


@pytest.mark.slow
@pytest.mark.parametrize(("server", "stage"), CASES)
def test_rubbish_costs_its_own_sum_and_not_the_other_in_the_same_message(bench, server, stage):
    grid = bench(server, (2, stage), "rubbish")
    one, two, three = grid.sums()
    assert grid.struck == 1
    check(one, EVERYBODY)
    check(two, who(stage not in BEFORE_THE_VECTOR))
    check(three, EVERYBODY)
    assert two.traffic.dropouts[stage] == (VICTIM,)
    assert [a.traffic.dropouts.get(stage) for a in (one, three)] == [(), ()]


@pytest.mark.slow
@pytest.mark.parametrize(("server", "stage"), CASES)
def test_an_answer_of_another_session_is_refused_by_name(bench, server, stage, caplog):
    one, two, three = bench(server, (2, stage), "of_another_session").sums()
    check(one, EVERYBODY)
    check(two, who(stage not in BEFORE_THE_VECTOR))
    check(three, EVERYBODY)
    assert two.traffic.dropouts[stage] == (VICTIM,)
    assert f"client {VICTIM} is dropped at {stage}: " in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize(("server", "stage"), CASES)
def test_a_late_answer_is_a_dropout_and_is_never_taken_for_another(bench, server, stage, caplog):
    grid = bench(server, (2, stage), "is_late")
    one, two, three = grid.sums()
    check(one, who(stage != "advertise"))  # it came with the vector of the first
    check(two, who(stage not in BEFORE_THE_VECTOR))
    # A late vector took the keys for the third with it, and in a semi-honest sum so do shares.
    lost = {"contribute", "unmask"} if server == "semi-honest" else {"contribute", "confirm"}
    check(three, who(stage not in lost))
    said = [record.getMessage() for record in caplog.records]
    assert any("did not answer within" in line for line in said)
    assert any("comes late, or again" in line for line in said), "it did come, in the end"
    assert two.traffic.dropouts[stage] == (VICTIM,)


@pytest.mark.slow
@pytest.mark.parametrize(("server", "stage"), CASES)
def test_an_answer_that_comes_again_counts_once(bench, server, stage, caplog):
    for aggregate in bench(server, (2, stage), "repeats").sums():
        check(aggregate, EVERYBODY)
    assert any("comes late, or again" in record.getMessage() for record in caplog.records)


@pytest.mark.slow
@pytest.mark.parametrize(("server", "stage"), CASES)
def test_a_message_that_comes_twice_is_answered_with_the_same_or_not_at_all(
    bench, server, stage, tmp_path
):
    grid = bench(server, (2, stage), "twice")
    one, two, three = grid.sums()
    # Deterministic stages repeat themselves; a vector is never sent twice, nor is a session
    # opened twice.
    check(one, who(stage != "advertise"))
    check(two, who(stage not in ("advertise", "contribute")))
    check(three, who(stage != "contribute"))
    assert FileStore(tmp_path / str(VICTIM)).contributions <= 3


@pytest.mark.slow
@pytest.mark.parametrize(("server", "stage"), CASES)
def test_a_restart_between_stages_is_a_dropout_and_no_second_contribution(
    bench, server, stage, tmp_path, caplog
):
    caplog.set_level(logging.WARNING)
    grid = bench(server, (2, stage), "restarts")
    one, two, three = grid.sums()
    # What is lost is what was open: a session that begins with the same message goes on.
    check(one, who(stage != "advertise"))
    check(two, who(stage not in ("share", "contribute")))
    lost = {"share", "unmask"} if server == "semi-honest" else {"confirm", "unmask"}
    check(three, who(stage not in lost - {"share"}))
    counted = FileStore(tmp_path / str(VICTIM)).contributions
    assert counted == sum(VICTIM in aggregate.survivors for aggregate in (one, two, three))
    assert any("no such session is open here" in r.getMessage() for r in caplog.records)
