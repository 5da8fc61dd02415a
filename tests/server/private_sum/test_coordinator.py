"""One private sum: exactly the survivors' vectors, whatever the others do."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from narrowed import UNUSED

from zerosum.client.flower.client_app import build_app
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
from zerosum.secagg import IdentityKey, Session, SharedCache
from zerosum.secagg.messages.all_messages import Confirmation, Contribution
from zerosum.secagg.messages.framing import decode
from zerosum.server.private_sum.coordinator import Coordinator, Nodes, RoundAbandoned
from zerosum.simulations.engine.grid import InProcessGrid, nodes
from zerosum.simulations.engine.simulated_clients import SimulatedEnvironment, roster_of

CLIENTS = 9
DIMENSION = 50
EVERYBODY = (tuple(range(CLIENTS)),)
IDENTITIES = [IdentityKey.generate() for _ in range(CLIENTS)]


def app_of(environment):
    return build_app(lambda context: environment)


class FixedAnswers(SimulatedEnvironment):
    """Clients that train nothing: client u answers with the vector u + 1."""

    def __init__(self):
        super().__init__(
            task=UNUSED, entropy=SeededEntropy(0), identities=IDENTITIES, cache=SharedCache(4)
        )

    def update(self, request, task, client):
        return np.full(request.dimension, (client.index + 1) / 100)


def request(**privacy):
    return ModelRequest(
        ModelQuestion(
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
        model_payload(np.zeros(DIMENSION, dtype=np.float32)),
    )


OPEN = {"model": "none", "clip": None}


def coordinator(app, protocol="pairwise", **secagg):
    spec = SecAggSpec(protocol=protocol, dropout=secagg.pop("dropout", 0.3), **secagg)
    grid = InProcessGrid(app, CLIENTS)
    entropy = SeededEntropy(0)
    roster = Nodes(nodes(CLIENTS), roster_of(IDENTITIES))
    return Coordinator(grid, roster, spec, run_id=b"test", entropy=entropy)


def spoiled(stage, who, spoil):
    """Return an app whose clients ``who`` have their reply at a stage replaced by ``spoil``."""
    environment = FixedAnswers()
    app = build_app(lambda context: environment)

    def spoil_some(message, context):
        reply = app(message, context)
        index = int(context.node_config["partition-id"])
        if message.metadata.message_type == flower_messages.STAGE_TYPES[stage] and index in who:
            return Message(spoil(reply.content), reply_to=message)
        return reply

    return spoil_some


def expected(indices):
    return np.full(DIMENSION, sum(index + 1 for index in indices) / 100)


@pytest.mark.parametrize("protocol", ["pairwise", "ideal", "none"])
@pytest.mark.parametrize("server", ["malicious", "semi-honest"])
def test_without_noise_the_sum_is_the_sum(protocol, server):
    environment = FixedAnswers()
    app = build_app(lambda context: environment)
    cohort = (0, 2, 3, 5, 8)
    asked = coordinator(app, protocol, server=server, dropout=0.1)
    aggregate = asked.private_sum(request(**OPEN), (cohort,), round=1)
    assert aggregate.survivors == cohort
    # Each client rounds to a step of 1 / (2^19 - 1).
    np.testing.assert_allclose(aggregate.total, expected(cohort), atol=5 / 2**19)


UNPACKED = {
    "of another session": lambda said: replace(said, session=bytes(32)),
    "of another client": lambda said: replace(said, index=3),
    "of another request": lambda said: replace(said, request=bytes(32)),
    "of another ring": lambda said: replace(said, ring_bits=said.ring_bits + 1),
    "too short": lambda said: replace(said, vector=said.vector[:-1].copy()),
    "of another container": lambda said: replace(said, vector=said.vector.astype(np.uint64)),
    "out of the ring": lambda said: replace(
        said, vector=said.vector | said.vector.dtype.type(1 << said.ring_bits)
    ),
    "masked": lambda said: replace(
        said, vector=np.ma.masked_array(said.vector, np.ones(len(said.vector), bool))
    ),
    "of another type": lambda said: Confirmation(said.session, said.index, bytes(64)),
    "none": lambda said: None,
}


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize("kind", ["as it was", *UNPACKED])
def test_an_unpacked_contribution_is_refused_as_its_bytes_would_be(kind, caplog):
    environment, session = FixedAnswers(), []
    app = build_app(lambda context: environment)

    def unpacking(message, context):
        if message.metadata.message_type == flower_messages.STAGE_TYPES["advertise"]:
            session.append(
                Session.from_bytes(flower_messages.bytes_field(message.content, "session"))
            )
        reply = app(message, context)
        if message.metadata.message_type != flower_messages.STAGE_TYPES["contribute"]:
            return reply
        data = flower_messages.bytes_field(reply.content, "message")
        said = decode(data, Contribution, session[0])
        if said.index == 2 and kind in UNPACKED:
            said = UNPACKED[kind](said)
        content = flower_messages.pack({}) if said is None else flower_messages.unpacked(said)
        return Message(content, reply_to=message)

    aggregate = coordinator(unpacking).private_sum(request(**OPEN), (range(8),), round=1)
    left = tuple(i for i in range(8) if i != 2 or kind == "as it was")
    assert aggregate.survivors == left
    np.testing.assert_allclose(aggregate.total, expected(left), atol=8 / 2**19)
    assert ("client 2 is dropped at contribute" in caplog.text) == (kind != "as it was")
    first = aggregate.traffic.sample[1]
    assert decode(first, Contribution, session[0]).index == 0


RUBBISH = {
    "an empty message": lambda content: flower_messages.pack({}),
    "no bytes": lambda content: flower_messages.pack({"message": "text"}),
    "random bytes": lambda content: flower_messages.pack({"message": bytes(range(256)) * 4}),
    "a flipped bit": lambda content: flower_messages.pack({"message": flipped(content)}),
    "a torn message": lambda content: flower_messages.pack(
        {"message": flower_messages.bytes_field(content, "message")[:-1]}
    ),
}


def flipped(content):
    data = bytearray(flower_messages.bytes_field(content, "message"))
    data[len(data) // 2] ^= 1
    return bytes(data)


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize("stage", ["advertise", "share", "contribute"])
@pytest.mark.parametrize("kind", list(RUBBISH))
def test_a_client_that_answers_rubbish_is_a_dropout_of_that_stage(stage, kind):
    app = spoiled(stage, {1, 4}, RUBBISH[kind])
    aggregate = coordinator(app).private_sum(request(**OPEN), EVERYBODY, round=1)
    rest = (0, 2, 3, 5, 6, 7, 8)
    assert aggregate.survivors == rest
    assert aggregate.traffic.dropouts[stage] == (1, 4)
    np.testing.assert_allclose(aggregate.total, expected(rest), atol=9 / 2**19)


@pytest.mark.parametrize("stage", ["confirm", "unmask"])
def test_rubbish_after_the_vector_leaves_it_in_the_sum(stage):
    app = spoiled(stage, {1, 4}, RUBBISH["random bytes"])
    aggregate = coordinator(app).private_sum(request(**OPEN), EVERYBODY, round=1)
    assert aggregate.survivors == tuple(range(CLIENTS))
    np.testing.assert_allclose(aggregate.total, expected(range(CLIENTS)), atol=9 / 2**19)


@pytest.mark.parametrize("stage", list(flower_messages.STAGE_TYPES))
def test_too_few_good_answers_abandon_the_round_at_any_stage(stage):
    app = spoiled(stage, set(range(7)), RUBBISH["random bytes"])
    heard = {}
    with pytest.raises(RoundAbandoned) as caught:
        coordinator(app).private_sum(
            request(**OPEN),
            EVERYBODY,
            round=1,
            charge=lambda what, group, clients: heard.update({what: clients}),
        )
    assert caught.value.traffic.dropouts[stage] == tuple(range(7))
    # The ledger hears who was left, although nothing was opened.
    assert heard["survived"] == tuple(range(7, CLIENTS))


def test_the_ledger_hears_of_vectors_and_of_the_sum_before_they_are_asked_for():
    environment = FixedAnswers()
    app = build_app(lambda context: environment)
    heard: list[Any] = []
    order: list[tuple[str, int]] = []

    def watching(message, context):
        order.append((message.metadata.message_type, len(heard)))
        return app(message, context)

    coordinator(watching).private_sum(
        request(**OPEN),
        EVERYBODY,
        round=1,
        charge=lambda what, group, clients: heard.append((what, clients)),
    )
    assert [what for what, _ in heard] == ["contributions", "sum", "survived"]
    assert heard[0][1] == heard[2][1]
    assert heard[0][1] == tuple(range(CLIENTS))
    seen = dict(order)
    assert seen["query.share"] == 0
    assert seen["train.contribute"] == seen["query.confirm"] == 1
    assert seen["query.unmask"] == 2


def test_contributions_are_shown_under_protocol_none_alone():
    def summed(protocol):
        environment = FixedAnswers()
        app = build_app(lambda context: environment)
        asked = request(clip=1.0, noise_multiplier=1.0, delta=0.01, honest_fraction=0.5)
        return coordinator(app, protocol).private_sum(asked, EVERYBODY, round=1)

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
    asked.private_sum(request(**OPEN), EVERYBODY, round=5)
    for stale in ({"round": 5}, {"round": 4, "attempt": 9}):
        with pytest.raises(RoundAbandoned, match="after advertise, 0 clients"):
            asked.private_sum(request(**OPEN), EVERYBODY, **stale)
    again = asked.private_sum(request(**OPEN), EVERYBODY, round=5, attempt=1)
    assert again.survivors == EVERYBODY[0]


def test_one_masked_contribution_says_nothing_of_its_vector():
    environment = FixedAnswers()
    app = build_app(lambda context: environment)
    aggregate = coordinator(app).private_sum(request(**OPEN), EVERYBODY, round=1)
    words = aggregate.sample.vector.astype(np.float64) / 2.0**aggregate.sample.ring_bits
    assert len(np.unique(aggregate.sample.vector)) > DIMENSION // 2
    # The client's vector is constant; 50 uniform words have mean 1/2 and this deviation.
    assert abs(words.mean() - 0.5) < 5 * 0.2887 / np.sqrt(DIMENSION)


GROUPS = ((0, 2, 4), (1, 5, 8), (3, 6, 7))


@pytest.mark.parametrize("protocol", ["pairwise", "ideal", "none"])
def test_the_sums_of_groups_are_added(protocol):
    environment = FixedAnswers()
    app = build_app(lambda context: environment)
    aggregate = coordinator(app, protocol).private_sum(request(**OPEN), GROUPS, round=1)
    assert aggregate.survivors == EVERYBODY[0]
    assert aggregate.failures == ()
    np.testing.assert_allclose(aggregate.total, expected(range(CLIENTS)), atol=9 / 2**19)


def test_groups_walk_their_stages_side_by_side():
    environment = FixedAnswers()
    app = build_app(lambda context: environment)
    order = []

    def watching(message, context):
        order.append(message.metadata.message_type)
        return app(message, context)

    coordinator(watching).private_sum(request(**OPEN), GROUPS, round=1)
    assert order == [kind for kind in flower_messages.STAGE_TYPES.values() for _ in range(CLIENTS)]


@pytest.mark.parametrize("stage", list(flower_messages.STAGE_TYPES))
def test_a_group_that_fails_costs_only_its_members(stage):
    app = spoiled(stage, {1, 5}, RUBBISH["random bytes"])
    heard = []
    aggregate = coordinator(app).private_sum(
        request(**OPEN),
        (*GROUPS, ()),
        round=1,
        charge=lambda what, group, clients: heard.append((what, group)),
    )
    rest = tuple(sorted(GROUPS[0] + GROUPS[2]))
    assert aggregate.survivors == rest
    assert len(aggregate.failures) == 2
    assert {("sum", 0), ("sum", 2)} <= set(heard)
    assert ("sum", 3) not in heard
    np.testing.assert_allclose(aggregate.total, expected(rest), atol=9 / 2**19)


def test_a_round_is_abandoned_where_every_group_fails():
    app = spoiled("share", {0, 2, 1, 5, 3, 6}, RUBBISH["random bytes"])
    with pytest.raises(RoundAbandoned, match=r"share.*share.*share"):
        coordinator(app).private_sum(request(**OPEN), GROUPS, round=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "draw"),
    [("distributed", "per_client"), ("distributed", "summed"), ("central", "per_client")],
)
@pytest.mark.parametrize("lost", [set(), {1}, {1, 5}])
def test_the_noise_of_a_release_is_as_claimed_whichever_group_failed(model, draw, lost):
    """G V/f, or a trusted server's V: no group failed, one short of a client, or one gone."""
    z, fraction, length, rounds = 2.0, 0.6, 1_000, 6
    app = spoiled("contribute", lost, RUBBISH["random bytes"])
    asked = request(model=model, clip=1.0, noise_multiplier=z, delta=0.01, honest_fraction=fraction)
    question = asked.question.model_copy(update={"noise_draw": draw})
    protocol = "ideal" if draw == "summed" else "none"
    book = coordinator(app, protocol, server="semi-honest", dropout=0.4)
    survivors = [i for g in GROUPS for i in g if not (len(lost) == 2 and i in GROUPS[1])]
    survivors = [i for i in survivors if i not in lost]
    errors = []
    for number in range(rounds):
        model_of_round = np.zeros(length, dtype=np.float32)
        fresh = ModelRequest(
            question.model_copy(update={"round": number}), model_payload(model_of_round)
        )
        aggregate = book.private_sum(fresh, GROUPS, round=number)
        assert set(aggregate.survivors) == set(survivors)
        assert len(aggregate.failures) == (len(lost) == 2)
        norms = {i: (i + 1) / 100 * length**0.5 for i in survivors}
        plain = sum((i + 1) / 100 * min(1.0, 1.0 / norms[i]) for i in survivors)
        errors.append(aggregate.total - plain)
    variance = float(np.mean(np.square(errors)))
    # Delta2 exceeds the clip by the rounding's allowance only: 20 bits, 1,000 coordinates.
    claimed = z**2 if model == "central" else len(GROUPS) * z**2 / fraction
    samples = rounds * length
    assert abs(variance / claimed - 1) < 5 * (2 / samples) ** 0.5
    assert aggregate.noise_std**2 == pytest.approx(claimed, rel=1e-3)


@pytest.mark.parametrize("server", ["malicious", "semi-honest"])
def test_a_sparse_graph_gives_the_sum_too(server):
    environment = FixedAnswers()
    asked = coordinator(
        build_app(lambda context: environment), server=server, degree=6, dropout=0.0
    )
    aggregate = asked.private_sum(request(**OPEN), EVERYBODY, round=1)
    assert aggregate.survivors == EVERYBODY[0]
    np.testing.assert_allclose(aggregate.total, expected(range(CLIENTS)), atol=9 / 2**19)


def test_an_unsafe_graph_opens_no_round():
    environment = FixedAnswers()
    asked = coordinator(
        build_app(lambda context: environment), degree=2, dropout=0.0, corruption=0.3
    )
    with pytest.raises(RoundAbandoned, match=r"secagg\.degree = 2: no threshold"):
        asked.private_sum(request(**OPEN), EVERYBODY, round=1)


def test_a_malicious_server_needs_keys_in_the_roster():
    environment = FixedAnswers()
    grid = InProcessGrid(build_app(lambda context: environment), CLIENTS)
    with pytest.raises(ValueError, match="identity keys"):
        Coordinator(
            grid, Nodes(nodes(CLIENTS)), SecAggSpec(), run_id=b"x", entropy=SeededEntropy(0)
        )


@pytest.mark.parametrize("noise", [None, 1.0])
def test_a_vector_beyond_what_was_asked_spoils_no_model(noise):
    """A client that sends more than its bound is not validated; the sum that it spoils is."""

    class Cheating(FixedAnswers):
        factor = 1

        def open_party(self, context, session):
            party: Any = super().open_party(context, session)
            if self.index(context) == 4:
                honest, ring = party.contribute, session.ring
                party.contribute = lambda message, vector: honest(
                    message, ring.encode(self.factor * ring.centre(vector))
                )
            return party

    environment = Cheating()
    privacy = OPEN if noise is None else {"clip": 1.0, "noise_multiplier": noise, "delta": 0.01}
    asked = coordinator(build_app(lambda context: environment))
    asked.private_sum(request(**privacy), EVERYBODY, round=1)
    environment.factor = 400
    with pytest.raises(RoundAbandoned, match="exceeds what they can send"):
        asked.private_sum(request(**privacy), EVERYBODY, round=2)


class OddAnswers(FixedAnswers):
    """Clients of which one answers with something unusual."""

    def __init__(self, answer):
        super().__init__()
        self._answer = answer

    def update(self, request, task, client):
        return self._answer() if client.index == 4 else super().update(request, task, client)


def failing():
    raise RuntimeError("training failed")


def one_bad(value):
    vector = np.full(DIMENSION, 0.01)
    vector[3] = value
    return vector


ODD = {
    "NaN": lambda: one_bad(np.nan),
    "infinite": lambda: one_bad(-np.inf),
    "zero": lambda: np.zeros(DIMENSION),
    "integer": lambda: np.full(DIMENSION, 3),
    "huge": lambda: np.full(DIMENSION, 1e38, dtype=np.float32),
    "empty": lambda: np.zeros(0),
    "failing": failing,
}
SENT = {"integer": 1.0, "huge": 1.0}
"""Norms that odd answers are clipped to; the others count as zero."""

SIZES = {"clip": 1.0, "noise_multiplier": 0.001, "honest_fraction": 0.9}
NOISES = {
    "skellam": {},
    "discrete-gaussian": {"mechanism": "discrete-gaussian"},
    "adaptive": {"clipping": "adaptive"},
    "local": {"model": "local"},
    "discrete-laplace": {"model": "local", "mechanism": "discrete-laplace"},
    "central": {"model": "central"},
}


def odd_request(**privacy):
    asked = request(**SIZES, **privacy)
    question = asked.question.model_copy(update={"encoding": EncodingSpec(bits=20)})
    return ModelRequest(question, asked.payload)


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("noise", NOISES)
def test_under_privacy_nothing_odd_about_an_update_shows_at_the_server(odd, noise):
    """Nobody drops out, every message is as long, and the sum is that of clipped updates."""
    settings = NOISES[noise]
    seen = []
    for answer in (ODD[odd], ODD["zero"]):
        environment = OddAnswers(answer)
        app = app_of(environment)
        asked = coordinator(app, server="semi-honest", dropout=0.1)
        seen.append(asked.private_sum(odd_request(**settings), EVERYBODY, round=1))
    found, plain = seen
    assert found.survivors == plain.survivors == tuple(range(CLIENTS))
    assert found.traffic.up == plain.traffic.up
    assert found.traffic.dropouts == plain.traffic.dropouts
    # The same noise in both: what is left is the odd update, rounded, as it was clipped.
    left = found.total - plain.total
    order = 1 if noise == "discrete-laplace" else 2
    assert np.linalg.norm(left, order) == pytest.approx(SENT.get(odd, 0.0), abs=1e-3)


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("odd", ODD)
def test_without_privacy_an_unusable_update_drops_out_and_no_other_does(odd):
    environment = OddAnswers(ODD[odd])
    app = build_app(lambda context: environment)
    asked = coordinator(app, server="semi-honest", dropout=0.3)
    aggregate = asked.private_sum(request(model="none", clip=1.0), EVERYBODY, round=1)
    usable = odd in ("zero", "integer", "huge")
    assert (4 in aggregate.survivors) == usable
    assert len(aggregate.survivors) == CLIENTS - (not usable)


def test_the_bit_counts_the_small_norms():
    environment = FixedAnswers()
    app = build_app(lambda context: environment)
    asked = coordinator(app, server="semi-honest", dropout=0.3)
    question = odd_request(clipping="adaptive").question
    # Norms are (u + 1) sqrt(50) / 100: four of nine are at most 0.3.
    privacy = PrivacySpec(model="none", clipping="adaptive", clip=0.3)
    question = question.model_copy(update={"privacy": privacy})
    open_sum = asked.private_sum(ModelRequest(question, request().payload), EVERYBODY, round=1)
    assert open_sum.bit == 4 * 0.5 - 5 * 0.5
    assert open_sum.total.shape == (DIMENSION,)
    flat = asked.private_sum(request(**OPEN), EVERYBODY, round=2)
    assert flat.bit is None
