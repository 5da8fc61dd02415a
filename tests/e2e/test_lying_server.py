"""A server that lies, around deployed clients: state in contexts, decisions in files."""

import copy
import dataclasses
import threading
from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from policies import LEAST_TOML

from zerosum.client.flower.client_app import DeployedEnvironment, build_app
from zerosum.client.protocol import flower_messages
from zerosum.client.protocol.admission import Declined
from zerosum.client.protocol.file_store import FileStore
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
from zerosum.secagg import Session
from zerosum.secagg.messages.all_messages import (
    ConfirmRequest,
    ContributeRequest,
    UnmaskRequest,
    decode,
)
from zerosum.secagg.wire import to_bitmap
from zerosum.server.private_sum.coordinator import Coordinator, Nodes, RoundAbandoned
from zerosum.simulations.engine.grid import InProcessGrid, nodes

CLIENTS, VICTIM, LENGTH = 7, 2, 20
EVERYBODY = (tuple(range(CLIENTS)),)
pytestmark = pytest.mark.usefixtures("one_thread")


class Constant(DeployedEnvironment):
    """A deployed client that trains nothing and answers with ones."""

    def task(self, request, client):
        return None

    def update(self, request, task, client):
        return np.ones(LENGTH)


def request(**changes):
    values: dict[str, Any] = {
        "kind": "train",
        "round": 1,
        "seed": 0,
        "population": CLIENTS,
        "task": "digits",
        "data": DataSpec(),
        "model": ModelSpec(),
        "training": TrainSpec(),
        "privacy": PrivacySpec(model="none", clip=None),
        "encoding": EncodingSpec(bits=20, range=1.0),
        "noise_draw": "per_client",
        "max_loss": 1.0,
    }
    return ModelRequest(
        ModelQuestion(**(values | changes)), model_payload(np.zeros(LENGTH, dtype=np.float32))
    )


class Lab:
    """A private sum among deployed clients, with a hand on every message to the victim."""

    def __init__(self, folder, keys):
        policy = folder / "policy.toml"
        policy.write_text('models = ["none"]\n' + LEAST_TOML)
        self.folder, self.keys, self.policy = folder, keys, policy
        self.app = build_app(Constant)
        self.session = None
        self.mistakes = []

    def node_config(self, index):
        state = {"state-dir": str(self.folder / "state" / str(index)), "policy": str(self.policy)}
        return state | self.keys.node_config(index)

    def sum(self, tamper, round=1, asked=None):
        def through(message, context):
            kind = message.metadata.message_type
            if kind == flower_messages.STAGE_TYPES["advertise"]:
                data = flower_messages.bytes_field(message.content, "session")
                self.session = Session.from_bytes(data)
            if context.node_config["partition-id"] == VICTIM:
                return self.watched(tamper, message, context)
            return self.app(message, context)

        grid = InProcessGrid(through, CLIENTS, node_config=self.node_config)
        coordinator = Coordinator(
            grid,
            Nodes(nodes(CLIENTS), self.keys.roster),
            SecAggSpec(dropout=0.15),
            run_id=b"run",
            entropy=SeededEntropy(0),
        )
        try:
            return coordinator.private_sum(asked or request(), EVERYBODY, round=round)
        finally:
            if self.mistakes:  # of the test, which the grid would take for a client's
                raise self.mistakes[0]

    def watched(self, tamper, message, context):
        try:
            return tamper(message, context)
        except Exception as error:
            if not isinstance(error, Declined):
                self.mistakes.append(error)
            raise

    def with_message(self, original, /, **fields):
        """Return the message with other fields in its record, and the model that it carries."""
        other = copy.copy(original)
        content = flower_messages.pack(dict(original.content[flower_messages.RECORD]) | fields)
        if flower_messages.MODEL in original.content:
            content[flower_messages.MODEL] = original.content[flower_messages.MODEL]
        other.__dict__["_content"] = content
        return other

    def is_refused(self, message, context):
        """Return whether the victim declines a message; a decline is an exception."""
        try:
            self.app(message, context)
        except Declined:
            return True
        return False


@pytest.fixture
def lab(tmp_path, make_keys):
    return Lab(tmp_path, make_keys(tmp_path / "keys", CLIENTS))


def lesser(lab):
    """All but client 0: another set of survivors that by itself would do."""
    return to_bitmap(range(1, CLIENTS), CLIENTS)


@pytest.mark.parametrize("restarted", [False, True])
def test_two_sets_of_survivors_are_never_both_signed(lab, restarted):
    seen = []

    def tamper(message, context):
        if message.metadata.message_type != flower_messages.STAGE_TYPES["confirm"]:
            return lab.app(message, context)
        before = copy.deepcopy(context.state)
        lie = ConfirmRequest(lab.session.digest, lesser(lab)).to_bytes()
        reply = lab.app(lab.with_message(message, message=lie), context)
        assert flower_messages.bytes_field(reply.content, "message"), "the first set is signed"
        if restarted:  # from the state before: only the durable record knows
            context.state = before
        seen.append(lab.is_refused(message, context))
        return reply

    # The victim signed another set than the others: they go on without its signature.
    assert lab.sum(tamper).survivors == EVERYBODY[0]
    assert seen == [True]


def test_a_set_that_was_not_signed_is_not_unmasked(lab):
    seen = []

    def tamper(message, context):
        if message.metadata.message_type != flower_messages.STAGE_TYPES["unmask"]:
            return lab.app(message, context)
        real = decode(
            flower_messages.bytes_field(message.content, "message"), UnmaskRequest, lab.session
        )
        lie = UnmaskRequest(real.session, lesser(lab), real.signers, real.signatures).to_bytes()
        seen.append(lab.is_refused(lab.with_message(message, message=lie), context))
        return lab.app(message, context)

    total = lab.sum(tamper)
    assert seen == [True]
    np.testing.assert_allclose(total.total, CLIENTS, atol=CLIENTS / 2**19)


@pytest.mark.slow
@pytest.mark.parametrize("stage", list(flower_messages.STAGE_TYPES)[1:])
def test_a_message_of_another_round_is_refused_at_every_stage(lab, stage, caplog):
    kept, seen = {}, []

    def keep(message, context):
        kept[message.metadata.message_type] = message
        return lab.app(message, context)

    def replay(message, context):
        if message.metadata.message_type == flower_messages.STAGE_TYPES[stage]:
            old = kept[message.metadata.message_type].content[flower_messages.RECORD]["message"]
            seen.append(lab.is_refused(lab.with_message(message, message=old), context))
        return lab.app(message, context)

    lab.sum(keep, round=1)
    # Nothing was answered, and the state is as it was: the true message still is.
    assert lab.sum(replay, round=2).survivors == EVERYBODY[0]
    assert seen == [True]
    assert f"client {VICTIM} declined to {stage}: " in caplog.text


def test_an_opening_is_answered_once_and_rounds_never_go_back(lab):
    lab.sum(lambda message, context: lab.app(message, context), round=3)
    for stale in (3, 2):
        with pytest.raises(RoundAbandoned, match="after advertise, 0 clients"):
            lab.sum(lambda message, context: lab.app(message, context), round=stale)


@pytest.mark.parametrize(
    "lie", [{"mode": "semi-honest"}, {"roster_digest": b"x" * 32}, {"roster_version": 9}]
)
def test_a_downgrade_or_another_roster_is_refused_at_the_door(lab, lie):
    seen = []

    def tamper(message, context):
        if message.metadata.message_type == flower_messages.STAGE_TYPES["advertise"]:
            fields = {
                name: getattr(lab.session, name)
                for name in lab.session.__dataclass_fields__
                if name != "version"
            }
            other = Session(**(fields | lie)).to_bytes()
            seen.append(lab.is_refused(lab.with_message(message, session=other), context))
        return lab.app(message, context)

    assert lab.sum(tamper).survivors == EVERYBODY[0]
    assert seen == [True]


def test_the_ideal_protocol_is_no_way_to_a_plain_vector(lab):
    seen = []

    def tamper(message, context):
        if message.metadata.message_type == flower_messages.STAGE_TYPES["advertise"]:
            for protocol in ("ideal", "none"):
                lie = dataclasses.replace(lab.session, protocol=protocol).to_bytes()
                other = lab.with_message(message, session=lie)
                seen.append(lab.is_refused(other, context))
        return lab.app(message, context)

    lab.sum(tamper)
    assert seen == [True, True]


@pytest.mark.parametrize("protocols", ['["pairwise"]', '["pairwise", "ideal", "none"]'])
def test_a_node_draws_its_own_noise_whatever_its_policy_lists(lab, protocols):
    """Noise that a server promises to add is missing in the vectors that it is not trusted with."""
    lab.policy.write_text(
        f'models = ["none", "distributed"]\nprotocols = {protocols}\n{LEAST_TOML}'
    )
    private = PrivacySpec(clip=1.0, noise_multiplier=1.0, delta=0.01)
    honest = request(privacy=private, encoding=EncodingSpec())
    summed = request(privacy=private, encoding=EncodingSpec(), noise_draw="summed")
    seen = {}

    def tamper(message, context):
        kind = message.metadata.message_type
        if kind == flower_messages.STAGE_TYPES["advertise"]:
            for name in ("ideal", "none"):
                trusting = dataclasses.replace(lab.session, protocol=name).to_bytes()
                seen[name] = lab.is_refused(lab.with_message(message, session=trusting), context)
        if kind == flower_messages.STAGE_TYPES["contribute"]:
            asked = decode(flower_messages.bytes_field(message.content, "message"),
            ContributeRequest,
                           lab.session)  # fmt: skip
            told = dataclasses.replace(asked, request=summed.digest).to_bytes()
            lie = lab.with_message(message, message=told, request=summed.header)
            seen["summed"] = lab.is_refused(lie, context)
        return lab.app(message, context)

    total = lab.sum(tamper, asked=honest)
    assert seen == {"ideal": True, "none": True, "summed": True}
    # The victim declined all that was asked of it after the lie, and nobody else noticed.
    assert total.survivors == tuple(i for i in range(CLIENTS) if i != VICTIM)


def test_a_message_that_arrives_many_times_at_once_is_answered_once(lab):
    """Twelve answers would carry twelve noises under one set of masks: their mean has little."""
    answers, refused = [], []

    def tamper(message, context):
        if message.metadata.message_type != flower_messages.STAGE_TYPES["contribute"]:
            return lab.app(message, context)

        def deliver():
            own = copy.copy(context)  # as each process of a node has it
            own.__dict__["state"] = copy.deepcopy(context.state)
            try:
                answers.append((lab.app(message, own), own))
            except Declined:
                refused.append(1)

        threads = [threading.Thread(target=deliver) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        reply, own = answers[0]
        context.state = own.state
        return reply

    assert lab.sum(tamper).survivors == EVERYBODY[0]
    assert (len(answers), len(refused)) == (1, 11)
    assert FileStore(lab.folder / "state" / str(VICTIM)).contributions == 1


def test_what_is_wrong_with_a_node_is_told_to_its_own_log_alone(lab, caplog):
    lab.policy.write_text(LEAST_TOML + 'secret_token = "hunter2"\n')
    grid = InProcessGrid(lab.app, CLIENTS, node_config=lab.node_config)
    message = Message(flower_messages.pack({}), 1000 + VICTIM, flower_messages.HELLO_TYPE)
    (reply,) = grid.send_and_receive([message])
    assert reply.has_error()
    assert reply.error.reason == "no answer to hello: the reason is in this client's log"
    assert "hunter2" in caplog.text


def test_a_node_without_a_folder_for_its_decisions_takes_part_in_nothing(lab, caplog):
    given = lab.node_config
    lab.node_config = lambda index: {k: v for k, v in given(index).items() if k != "state-dir"}
    with pytest.raises(RoundAbandoned):
        lab.sum(lambda message, context: lab.app(message, context))
    assert "state-dir is missing" in caplog.text
