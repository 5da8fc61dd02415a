"""One private sum: exactly the survivors' vectors, whatever the others do."""

import numpy as np
import pytest
from flwr.app import Message

from zerosum.client import wire
from zerosum.client.entropy import SeededEntropy
from zerosum.client.flower import build_app
from zerosum.client.request import Question, Request
from zerosum.client.spec import (
    DataSpec,
    EncodingSpec,
    ModelSpec,
    PrivacySpec,
    SecAggSpec,
    TrainSpec,
)
from zerosum.secagg import SharedCache
from zerosum.server.coordinator import Coordinator, Roster, RoundAbandoned
from zerosum.simulations.environment import SimulatedEnvironment
from zerosum.simulations.grid import InProcessGrid, nodes

CLIENTS = 9
DIMENSION = 50


class FixedAnswers(SimulatedEnvironment):
    """Clients that train nothing: client u answers with the vector u + 1."""

    def __init__(self):
        super().__init__(task=None, entropy=SeededEntropy(0), cache=SharedCache())

    def update(self, request, task, client):
        return np.full(DIMENSION, (client.index + 1) / 100)


def request(**privacy):
    return Request(
        Question(
            kind="train",
            round=1,
            seed=0,
            population=CLIENTS,
            task="none",
            data=DataSpec(),
            model=ModelSpec(),
            training=TrainSpec(),
            privacy=PrivacySpec(**privacy),
            encoding=EncodingSpec(bits=20, range=1.0),
            noise_draw="per_client",
            max_loss=1.0,
        ),
        np.zeros(DIMENSION, dtype=np.float32),
    )


OPEN = {"model": "none", "clip": None}


def coordinator(app, protocol="pairwise", **secagg):
    spec = SecAggSpec(protocol=protocol, dropout=secagg.pop("dropout", 0.5), **secagg)
    grid = InProcessGrid(app, CLIENTS)
    entropy = SeededEntropy(0)
    return Coordinator(grid, Roster(nodes(CLIENTS)), spec, run_id=b"test", entropy=entropy)


def spoiled(stage, who, spoil):
    """Return an app whose clients ``who`` have their reply at a stage replaced by ``spoil``."""
    environment = FixedAnswers()
    app = build_app(lambda context: environment)

    def spoil_some(message, context):
        reply = app(message, context)
        index = int(context.node_config["partition-id"])
        if message.metadata.message_type == wire.STAGE_TYPES[stage] and index in who:
            return Message(spoil(reply.content), reply_to=message)
        return reply

    return spoil_some


def expected(indices):
    return np.full(DIMENSION, sum(index + 1 for index in indices) / 100)


@pytest.mark.parametrize("protocol", ["pairwise", "ideal", "none"])
def test_without_noise_the_sum_is_the_sum(protocol):
    environment = FixedAnswers()
    app = build_app(lambda context: environment)
    cohort = (0, 2, 3, 5, 8)
    aggregate = coordinator(app, protocol).private_sum(request(**OPEN), cohort, round=1)
    assert aggregate.survivors == cohort
    # Each client rounds to a step of 1 / (2^19 - 1).
    np.testing.assert_allclose(aggregate.total, expected(cohort), atol=5 / 2**19)


RUBBISH = {
    "an empty message": lambda content: wire.pack({}),
    "no bytes": lambda content: wire.pack({"message": "text"}),
    "random bytes": lambda content: wire.pack({"message": bytes(range(256)) * 4}),
    "a flipped bit": lambda content: wire.pack({"message": flipped(content)}),
    "a torn message": lambda content: wire.pack(
        {"message": wire.bytes_field(content, "message")[:-1]}
    ),
}


def flipped(content):
    data = bytearray(wire.bytes_field(content, "message"))
    data[len(data) // 2] ^= 1
    return bytes(data)


@pytest.mark.parametrize("stage", ["advertise", "share", "contribute"])
@pytest.mark.parametrize("kind", list(RUBBISH))
def test_a_client_that_answers_rubbish_is_a_dropout_of_that_stage(stage, kind):
    app = spoiled(stage, {1, 4}, RUBBISH[kind])
    aggregate = coordinator(app).private_sum(request(**OPEN), tuple(range(CLIENTS)), round=1)
    rest = (0, 2, 3, 5, 6, 7, 8)
    assert aggregate.survivors == rest
    assert aggregate.traffic.dropouts[stage] == (1, 4)
    np.testing.assert_allclose(aggregate.total, expected(rest), atol=9 / 2**19)


def test_rubbish_at_unmask_leaves_the_vector_in_the_sum():
    app = spoiled("unmask", {1, 4}, RUBBISH["random bytes"])
    aggregate = coordinator(app).private_sum(request(**OPEN), tuple(range(CLIENTS)), round=1)
    assert aggregate.survivors == tuple(range(CLIENTS))
    np.testing.assert_allclose(aggregate.total, expected(range(CLIENTS)), atol=9 / 2**19)


@pytest.mark.parametrize("stage", ["advertise", "share", "contribute", "unmask"])
def test_too_few_good_answers_abandon_the_round_at_any_stage(stage):
    app = spoiled(stage, set(range(7)), RUBBISH["random bytes"])
    with pytest.raises(RoundAbandoned) as caught:
        coordinator(app).private_sum(request(**OPEN), tuple(range(CLIENTS)), round=1)
    assert caught.value.traffic.dropouts[stage] == tuple(range(7))


def test_the_ledger_hears_of_vectors_and_of_the_sum_before_they_are_asked_for():
    environment = FixedAnswers()
    app = build_app(lambda context: environment)
    heard, order = [], []

    def watching(message, context):
        order.append((message.metadata.message_type, len(heard)))
        return app(message, context)

    coordinator(watching).private_sum(
        request(**OPEN),
        tuple(range(CLIENTS)),
        round=1,
        charge=lambda what, clients: heard.append((what, clients)),
    )
    assert [what for what, _ in heard] == ["contributions", "sum"]
    assert heard[0][1] == tuple(range(CLIENTS))
    seen = dict(order)
    assert seen["query.share"] == 0
    assert seen["train.contribute"] == 1
    assert seen["query.unmask"] == 2


def test_contributions_are_shown_under_protocol_none_alone():
    def summed(protocol):
        environment = FixedAnswers()
        app = build_app(lambda context: environment)
        asked = request(clip=1.0, noise_multiplier=1.0, delta=0.01, honest_fraction=0.5)
        return coordinator(app, protocol).private_sum(asked, tuple(range(CLIENTS)), round=1)

    shown = summed("none")
    assert shown.contributions is not None
    assert set(shown.contributions) == set(range(CLIENTS))
    # Nobody dropped out, so nothing was topped up.
    np.testing.assert_allclose(shown.total, sum(shown.contributions.values()), atol=1e-9)
    for protocol in ("pairwise", "ideal"):
        hidden = summed(protocol)
        assert hidden.contributions is None
        np.testing.assert_array_equal(hidden.total, shown.total)


def test_a_session_is_never_joined_twice():
    environment = FixedAnswers()
    asked = coordinator(build_app(lambda context: environment))
    cohort = tuple(range(CLIENTS))
    asked.private_sum(request(**OPEN), cohort, round=5)
    for stale in ({"round": 5}, {"round": 4, "attempt": 9}):
        with pytest.raises(RoundAbandoned, match="after advertise, 0 clients"):
            asked.private_sum(request(**OPEN), cohort, **stale)
    again = asked.private_sum(request(**OPEN), cohort, round=5, attempt=1)
    assert again.survivors == cohort


def test_one_masked_contribution_says_nothing_of_its_vector():
    environment = FixedAnswers()
    app = build_app(lambda context: environment)
    aggregate = coordinator(app).private_sum(request(**OPEN), tuple(range(CLIENTS)), round=1)
    words = aggregate.sample.astype(np.float64) / 2.0**aggregate.protection.ring_bits
    assert len(np.unique(aggregate.sample)) > DIMENSION // 2
    # The client's vector is constant; 50 uniform words have mean 1/2 and this deviation.
    assert abs(words.mean() - 0.5) < 5 * 0.2887 / np.sqrt(DIMENSION)
