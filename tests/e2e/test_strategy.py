"""Other people's Flower apps: the same model as without masks, and nothing in plain."""

import json
import logging
import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedProx,
    Krum,
)
from policies import LEAST_TOML

import zerosum.server.flower.private_strategy as strategy_module
from zerosum.client.flower.app_request import AppQuestion, stage_type
from zerosum.client.flower.private_mod import PrivateClientApp, private_mod
from zerosum.client.protocol import flower_messages
from zerosum.secagg import ClientParty, RemoteProtocolError, Session
from zerosum.secagg.messages.all_messages import Contribution, decode
from zerosum.server.config import ConfigError
from zerosum.server.flower.app_grid import AppGrid
from zerosum.server.flower.private_strategy import PrivateStrategy
from zerosum.server.privacy.epsilon_bound import no_bound
from zerosum.server.privacy.observers import OBSERVERS
from zerosum.server.privacy.rounding import epsilon_text
from zerosum.server.runs.resume import held
from zerosum.server.runs.run_folder import RunFolder
from zerosum.server.runs.run_outcome import NothingLearntError
from zerosum.simulations.commands.budget import spending_in
from zerosum.simulations.engine.grid import FIRST_NODE, InProcessGrid
from zerosum.simulations.report import write_public_report, write_report

CLIENTS = 6
POLICY = (
    'models = ["none", "distributed", "local", "central"]\nservers = ["semi-honest"]\n' + LEAST_TOML
)
OPEN = {
    "privacy": {"model": "none", "clip": "none"},
    "encoding": {"bits": 24, "range": 4.0},
    "secagg": {"server": "semi-honest", "dropout": 0.4},
}
STEP = 4.0 / (2**23 - 1)
"""Of the encoding above: each client rounds each entry by less than this."""


def model():
    rng = np.random.default_rng(3)
    return ArrayRecord(
        {
            "layer.weight": Array(rng.normal(size=(7, 5)).astype(np.float32)),
            "layer.bias": Array(rng.normal(size=5)),
            "batches": Array(np.array(3, dtype=np.int64)),
        }
    )


def trained(arrays, index, config):
    """What client ``index`` makes of a model: moved by an amount of its own and of the round."""
    moved = {}
    for name, array in arrays.items():
        value = array.numpy()
        if value.dtype.kind == "f":
            amount = 0.05 * (index + 1) * np.cos(np.arange(value.size) + config["server-round"])
            value = value + amount.reshape(value.shape).astype(value.dtype)
        else:
            value = value + 10
        moved[name] = Array(np.asarray(value))
    return ArrayRecord(moved)


def client_app(mods, examples=lambda index: 20, fails=lambda *who: False, make=ClientApp):
    """An ordinary ClientApp; all that is ours are its mods."""
    app = make(mods=mods)

    @app.train()
    def train(message, context):
        index, config = context.node_config["partition-id"], message.content["config"]
        if fails(index, config["server-round"]):
            raise RuntimeError("no data today")
        content = RecordDict(
            {
                "arrays": trained(message.content["arrays"], index, config),
                "metrics": MetricRecord({"train_loss": 7.25, "num-examples": examples(index)}),
            }
        )
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        index = context.node_config["partition-id"]
        metrics = {
            "eval_loss": 0.5 + index,
            "eval_acc": 0.1 * index,
            "num-examples": examples(index),
        }
        return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)

    return app


@pytest.fixture
def grid_of(tmp_path):
    """Return a grid whose clients have a folder and a policy of their own."""
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)

    def grid(app, clients=CLIENTS, **config):
        return InProcessGrid(
            app,
            clients,
            node_config=lambda index: {
                "state-dir": str(tmp_path / "state" / str(index)),
                "policy": str(policy),
                **config,
            },
        )

    return grid


def plain(strategy, app=None, rounds=3, **start):
    grid = InProcessGrid(app or client_app([]), CLIENTS)
    return strategy.start(grid, model(), rounds, **start)


def arrays_of(result):
    return {name: array.numpy() for name, array in result.arrays.items()}


STRATEGIES = {
    "FedAvg": lambda **settings: FedAvg(**settings),
    "FedProx": lambda **settings: FedProx(proximal_mu=0.1, **settings),
    "FedAvgM": lambda **settings: FedAvgM(server_momentum=0.5, **settings),
    "FedAdam": lambda **settings: FedAdam(eta=0.1, tau=0.1, **settings),
}


@pytest.mark.parametrize("kind", STRATEGIES)
def test_without_noise_the_model_is_that_of_the_plain_strategy(kind, grid_of, tmp_path):
    make = STRATEGIES[kind]
    expected = arrays_of(plain(make(fraction_evaluate=0.0)))
    strategy = PrivateStrategy(make(fraction_evaluate=0.0), out=tmp_path / "run", **OPEN)
    found = arrays_of(strategy.start(grid_of(client_app([private_mod])), model(), 3))
    assert found.keys() == expected.keys()
    for name in ("layer.weight", "layer.bias"):
        moved = np.abs(expected[name] - model()[name].numpy()).max()
        assert moved > 0.02, "a model that stayed where it was would show nothing"
        # FedAdam divides by as little as tau = 0.1.
        np.testing.assert_allclose(found[name], expected[name], atol=100 * STEP, rtol=0)
        assert found[name].shape == expected[name].shape
    assert found["batches"] == 3, "counters are the server's"


def without(lost, app):
    """Return an app whose clients ``lost[stage]`` answer no message of that stage in round 2."""

    def losing(message, context):
        stage = stage_type(message.content)
        name = next((n for n, kind in flower_messages.STAGE_TYPES.items() if kind == stage), "")
        if message.metadata.group_id == "2" and context.node_config["partition-id"] in lost.get(
            name, ()
        ):
            raise RuntimeError("gone")
        return app(message, context)

    return losing


def carried(app):
    """Return an app whose messages and replies pass through Flower's own bytes."""

    def through_bytes(message):
        data = message_to_proto(message).SerializeToString()
        return message_from_proto(ProtoMessage.FromString(data))

    return lambda message, context: through_bytes(app(through_bytes(message), context))


def test_what_is_sent_survives_flowers_own_bytes(grid_of, tmp_path):
    expected = arrays_of(plain(FedAvg(), rounds=2))
    strategy = PrivateStrategy(
        FedAvg(), out=tmp_path / "run", metrics={"eval_loss": 10.0, "eval_acc": 1.0}, **OPEN
    )
    result = strategy.start(grid_of(carried(client_app([private_mod]))), model(), 2)
    np.testing.assert_allclose(
        arrays_of(result)["layer.weight"], expected["layer.weight"], atol=10 * STEP, rtol=0
    )
    assert set(result.evaluate_metrics_clientapp[2]) == {"eval_loss", "eval_acc"}


LOST = {
    "before the vectors": ({"advertise": (0,), "contribute": (3,)}, (0, 3)),
    "after the vectors": ({"share": (0,), "unmask": (5,)}, (0,)),
}


@pytest.mark.parametrize("when", LOST)
def test_the_mean_is_that_of_those_whose_vector_came(when, grid_of, tmp_path):
    lost, missing = LOST[when]
    bare = client_app([], fails=lambda index, round: round == 2 and index in missing)
    expected = arrays_of(plain(FedAvg(fraction_evaluate=0.0), bare))
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **OPEN)
    result = strategy.start(grid_of(without(lost, client_app([private_mod]))), model(), 3)
    np.testing.assert_allclose(
        arrays_of(result)["layer.weight"], expected["layer.weight"], atol=10 * STEP, rtol=0
    )
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["survivors"] for line in lines] == [6, 6 - len(missing), 6]


def test_an_app_that_fails_is_a_dropout_and_says_so_at_home_only(grid_of, tmp_path, caplog):
    def fails(index, round):
        return round == 2 and index in (0, 3)

    expected = arrays_of(plain(FedAvg(fraction_evaluate=0.0), client_app([], fails=fails)))
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **OPEN)
    seen = Wire(client_app([private_mod], fails=fails))
    result = strategy.start(grid_of(seen), model(), 3)
    np.testing.assert_allclose(
        arrays_of(result)["layer.bias"], expected["layer.bias"], atol=10 * STEP, rtol=0
    )
    assert len(seen.errors) == 2
    assert not any("no data today" in error for error in seen.errors)
    assert "no data today" in caplog.text


def test_where_all_rounds_are_abandoned_the_start_ends_with_an_error_and_the_first_model(
    grid_of, tmp_path
):
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **OPEN)
    app = client_app([private_mod], fails=lambda index, round: index < 4)
    with pytest.raises(NothingLearntError) as ended:
        strategy.start(grid_of(app), model(), 2)
    said = str(ended.value)
    assert "all 2 rounds were abandoned" in said
    assert "of 12 clients asked 12 passed advertise, 12 passed share, 4 passed contribute" in said
    assert "(8 refused it)" in said
    assert "each node's own log" in said
    assert "no data today" not in said
    kept = ended.value.result.arrays
    np.testing.assert_array_equal(kept["layer.bias"].numpy(), model()["layer.bias"].numpy())
    assert strategy.epsilon["sum"].value == math.inf
    (first, second) = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(first)["status"] == json.loads(second)["status"] == "abandoned"


def test_where_every_average_is_zero_the_start_ends_with_an_error(grid_of, tmp_path):
    idle = ClientApp(mods=[private_mod])

    @idle.train()
    def train(message, context):
        metrics = MetricRecord({"num-examples": 3})
        content = RecordDict({"arrays": message.content["arrays"], "metrics": metrics})
        return Message(content, reply_to=message)

    def start(app, out):
        strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / out, **OPEN)
        return strategy.start(grid_of(app), model(), 2)

    with pytest.raises(NothingLearntError, match="the average of each of 2 rounds was zero") as end:
        start(idle, "idle")
    assert "encoding.bits" in str(end.value)
    assert end.value.result.arrays
    assert start(client_app([private_mod]), "trains").arrays


def test_a_first_round_that_is_abandoned_ends_nothing(grid_of, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **NOISY)
    app = client_app([private_mod], fails=lambda index, round: False)
    seen = []

    def lost(message, context):
        """Four of six do not come to contribute in the first round."""
        contributes = stage_type(message.content) == flower_messages.STAGE_TYPES["contribute"]
        index = context.node_config["partition-id"]
        if contributes and index < 4 and seen.count(index) < 1:
            seen.append(index)
            raise RuntimeError("out of reach")
        return app(message, context)

    result = strategy.start(grid_of(lost), model(), 2)
    assert result.arrays
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["rounds"], summary["rounds_abandoned"]) == (2, 1)
    first = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0])
    assert first["epsilon_charged"]["local"] > 0
    assert "charged epsilon" in next(
        line for line in caplog.messages if "round 1 abandoned" in line
    )


class Wire:
    """What passes between server and clients: every message and reply."""

    def __init__(self, app):
        self.app = app
        self.sent, self.replies, self.errors = [], [], []

    def __call__(self, message, context):
        self.sent.append(message.content)
        try:
            reply = self.app(message, context)
        except Exception as error:
            self.errors.append(str(error))
            raise
        self.replies.append(reply.content)
        return reply

    def contributions(self):
        """Return the masked vectors of the first session."""
        opening = next(
            c for c in self.sent if stage_type(c) == flower_messages.STAGE_TYPES["advertise"]
        )
        session = Session.from_bytes(flower_messages.bytes_field(opening, "session"))
        found = []
        for content in self.replies:
            try:
                message = flower_messages.bytes_field(content, "message")
                found.append(decode(message, Contribution, session).vector)
            except (ValueError, RemoteProtocolError):
                continue
        return session, found


def says(content, needle):
    """Return whether some bytes are in any record of a message."""
    for record in content.values():
        for key, value in record.items():
            data = value.data if isinstance(value, Array) else value
            data = data if isinstance(data, bytes) else str(data).encode()
            if needle in data or needle in key.encode():
                return True
    return False


def test_nothing_leaves_in_plain(grid_of, tmp_path):
    seen = Wire(client_app([private_mod]))
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=1.0), out=tmp_path / "run", **OPEN)
    strategy.start(grid_of(seen), model(), 1)
    assert len(seen.replies) == CLIENTS * 5
    bare = Wire(client_app([]))
    plain(FedAvg(), bare, rounds=1)
    weight = trained(model(), 2, {"server-round": 1})["layer.weight"].numpy()
    needles = [b"train_loss", b"7.25", b"num-examples", b"eval_acc", weight[0].tobytes()]
    for needle in needles:
        assert any(says(content, needle) for content in bare.replies), "the control shows it"
        assert not any(says(content, needle) for content in seen.replies)
    for content in seen.replies:
        assert list(content) == [flower_messages.RECORD]
        assert set(content[flower_messages.RECORD]) <= {"message", "index"}


def test_a_contribution_is_uniform(grid_of, tmp_path):
    """Of a model of 4,000 equal steps, the sixteen highest values of a word are equally likely."""
    big = ArrayRecord({"layer": Array(np.zeros(4_000, dtype=np.float32))})
    seen = Wire(client_app([private_mod]))
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **OPEN)
    strategy.start(grid_of(seen), big, 1)
    session, vectors = seen.contributions()
    assert len(vectors) == CLIENTS
    updates = trained(big, 0, {"server-round": 1})["layer"].numpy()
    unmasked = np.round(updates / STEP).astype(np.int64) % (1 << session.ring_bits)
    for vector, uniform in [*((v, True) for v in vectors), (unmasked, False)]:
        counts = np.bincount(vector.astype(np.int64) >> (session.ring_bits - 4), minlength=16)
        chi_square = float(np.sum((counts - 250.0) ** 2) / 250.0)
        # 15 degrees of freedom: above 60 once in two million.
        assert (chi_square < 60) == uniform


@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_a_message_that_is_no_private_sum_gets_no_answer(kind, grid_of, caplog):
    grid = grid_of(client_app([private_mod]))
    content = RecordDict({"arrays": model(), "config": ConfigRecord({"server-round": 1})})
    (reply,) = grid.send_and_receive([Message(content, FIRST_NODE, kind)])
    assert reply.has_error()
    assert "only private sums" in reply.error.reason
    assert "would leave this node in plain" in caplog.text


def test_a_client_shown_another_model_than_it_was_told_of_declines(grid_of, tmp_path, caplog):
    app = client_app([private_mod])

    def lying(message, context):
        if "app.arrays" in message.content and context.node_config["partition-id"] == 1:
            other = trained(message.content["app.arrays"], 1, {"server-round": 1})
            message.content = RecordDict({**message.content, "app.arrays": other})
        return app(message, context)

    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **OPEN)
    result = strategy.start(grid_of(lying), model(), 1)
    assert result.train_metrics_clientapp[1]["survivors"] == CLIENTS - 1
    assert "not those that the request speaks of" in caplog.text


NOISY = {
    "clip": 1.0,
    "noise_multiplier": 2.0,
    "delta": 0.01,
    "privacy": {"honest_fraction": 0.6},
    "secagg": {"server": "semi-honest", "dropout": 0.3},
}


def test_the_noise_is_what_was_promised_and_its_epsilon_is_reported(grid_of, tmp_path, caplog):
    caplog.set_level(logging.INFO, "flwr")
    big = ArrayRecord({"layer": Array(np.zeros(4_000, dtype=np.float32))})
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **NOISY)
    result = strategy.start(grid_of(client_app([private_mod])), big, 2)
    updates = [trained(big, i, {"server-round": 1})["layer"].numpy() for i in range(CLIENTS)]
    again = [trained(big, i, {"server-round": 2})["layer"].numpy() for i in range(CLIENTS)]
    mean = sum(u / max(1.0, np.linalg.norm(u)) for u in updates + again) / CLIENTS
    errors = arrays_of(result)["layer"] - mean
    promised = np.sqrt(2) * 2.0 / np.sqrt(0.6) / CLIENTS
    assert errors.std() == pytest.approx(promised, rel=0.06)
    figures = strategy.epsilon
    assert 0 < figures["release"].value < figures["sum"].value < figures["local"].value
    first, second = (result.train_metrics_clientapp[r]["epsilon-sum"] for r in (1, 2))
    assert first < second == figures["sum"].value
    assert f"{epsilon_text(figures['sum'].value)} (sum, zero_out)" in caplog.text
    lines = (tmp_path / "run" / "ledger.jsonl").read_text().splitlines()
    kinds = [json.loads(line)["type"] for line in lines]
    assert kinds == ["run", *2 * ("contributions", "sum", "survived")]
    assert "epsilon" in write_report(tmp_path / "run").read_text(encoding="utf-8")


def test_under_privacy_an_app_that_fails_shows_nowhere(grid_of, tmp_path):
    seen = Wire(client_app([private_mod], fails=lambda index, round: index < 4))
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **NOISY)
    result = strategy.start(grid_of(seen), model(), 1)
    assert result.train_metrics_clientapp[1]["survivors"] == CLIENTS
    assert seen.errors == []


def test_under_privacy_the_weight_does_not_tell_how_many_answered(grid_of, tmp_path):
    weights = []

    class Watching(FedAvg):
        def aggregate_train(self, server_round, replies):
            replies = list(replies)
            weights.append(replies[0].content["metrics"]["num-examples"])
            return super().aggregate_train(server_round, replies)

    lost = without({"advertise": (0,)}, client_app([private_mod]))
    for name, settings in (("noisy", NOISY), ("open", OPEN)):
        strategy = PrivateStrategy(Watching(fraction_evaluate=0.0), out=tmp_path / name, **settings)
        strategy.start(grid_of(lost), model(), 2)
    assert weights == [CLIENTS, CLIENTS, CLIENTS, CLIENTS - 1]


def test_a_liar_is_left_out_of_later_rounds_and_counts_in_the_divisor_still(
    grid_of, tmp_path, monkeypatch, caplog
):
    caplog.set_level(logging.INFO, "flwr")
    honest, liar, weights = ClientParty.unmask, 2, []

    def unmask(party, request):
        step = honest(party, request)
        if step.send.index != liar:
            return step
        table = np.frombuffer(step.send.shares, "<u4") ^ 1
        return replace(step, send=replace(step.send, shares=table.tobytes()))

    class Watching(FedAvg):
        def aggregate_train(self, server_round, replies):
            replies = list(replies)
            weights.append(replies[0].content["metrics"]["num-examples"])
            return super().aggregate_train(server_round, replies)

    monkeypatch.setattr(ClientParty, "unmask", unmask)
    big = ArrayRecord({"layer": Array(np.zeros(400, dtype=np.float32))})
    settings = NOISY | {"noise_multiplier": 0.01}
    (tmp_path / "policy.toml").write_text(POLICY + "min_noise_multiplier = 0.01\n")
    strategy = PrivateStrategy(Watching(fraction_evaluate=0.0), out=tmp_path / "run", **settings)
    result = strategy.start(grid_of(client_app([private_mod])), big, 2)
    found = arrays_of(result)["layer"]
    asked = [range(CLIENTS), [i for i in range(CLIENTS) if i != liar]]
    updates = [
        trained(big, i, {"server-round": round})["layer"].numpy()
        for round, clients in enumerate(asked, 1)
        for i in clients
    ]
    expected = sum(u / max(1.0, np.linalg.norm(u)) for u in updates) / CLIENTS
    assert found @ expected / (expected @ expected) == pytest.approx(1.0, abs=0.03)
    assert weights == [CLIENTS, CLIENTS]
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    first, second = map(json.loads, lines)
    assert (first["cohort"], first["liars"]) == (CLIENTS, [liar])
    assert (second["cohort"], second["left_out"], second["survivors"]) == (CLIENTS - 1, 1, 5)
    assert "6 of 6 clients are in the sum, proved to lie: 2" in caplog.text
    assert "5 of 5 clients are in the sum, left out: 1" in caplog.text
    assert json.loads((tmp_path / "run/summary.json").read_text())["left_out"] == [liar]
    # Another start in this folder does without it as well, until its line is deleted.
    again = PrivateStrategy(Watching(fraction_evaluate=0.0), out=tmp_path / "run", **settings)
    again.start(grid_of(client_app([private_mod])), big, 1)
    (tmp_path / "run/left-out.jsonl").write_text("")
    again.start(grid_of(client_app([private_mod])), big, 1)
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["cohort"] for line in lines] == [6, 5, 5, 6]


def test_a_second_start_goes_on_with_the_first_ones_ledger(grid_of, tmp_path):
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **NOISY)
    grid = grid_of(client_app([private_mod]))
    strategy.start(grid, model(), 1)
    once = strategy.epsilon["sum"]
    strategy.start(grid, model(), 1)
    twice = strategy.epsilon["sum"]
    assert twice.participations == 2 * once.participations == 2
    assert twice.value > once.value


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_rounds_are_numbered_on_in_one_file(grid_of, tmp_path):
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **NOISY)
    grid = grid_of(client_app([private_mod]))
    strategy.start(grid, model(), 2)
    strategy.start(grid, model(), 1)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == [1, 2, 3]
    assert RunFolder(tmp_path / "run").experiment.rounds == 3
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["rounds"] == 3


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"noise_multiplier": 3.0}, r"privacy\.noise_multiplier = 3\.0: the run in"),
        ({"clip": 2.0}, r"privacy\.clip = 2\.0: the run in"),
        ({"sampling": {"kind": "poisson", "cohort": 6}}, r"sampling\.kind = 'poisson': the run in"),
    ],
)
def test_a_folder_of_other_settings_is_left_as_it_was(changed, message, grid_of, tmp_path):
    out, grid = tmp_path / "run", grid_of(client_app([private_mod]))
    PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=out, **NOISY).start(grid, model(), 1)
    before = files(out)
    other = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=out, **(NOISY | changed))
    with pytest.raises(ConfigError, match=message):
        other.start(grid, model(), 1)
    assert files(out) == before


def test_a_folder_in_use_is_refused(grid_of, tmp_path):
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **NOISY)
    grid = grid_of(client_app([private_mod]))
    strategy.start(grid, model(), 1)
    with held(RunFolder(tmp_path / "run")):
        before = files(tmp_path / "run")
        with pytest.raises(ConfigError, match="still goes on in another process"):
            strategy.start(grid, model(), 1)
    assert files(tmp_path / "run") == before


def test_a_used_folder_without_its_ledger_is_refused(grid_of, tmp_path):
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **NOISY)
    grid = grid_of(client_app([private_mod]))
    strategy.start(grid, model(), 1)
    (tmp_path / "run" / "ledger.jsonl").unlink()
    with pytest.raises(ConfigError, match="what was spent is not known"):
        strategy.start(grid, model(), 1)


def test_whoever_is_asked_once_is_not_asked_by_a_second_start(grid_of, tmp_path):
    settings = NOISY | {"sampling": {"kind": "once", "cohort": 3}}
    settings |= {"secagg": {"server": "semi-honest", "dropout": 0.0}}
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **settings)
    grid = grid_of(client_app([private_mod]))
    strategy.start(grid, model(), 1)
    with pytest.raises(ConfigError, match="clients were asked already"):
        strategy.start(grid, model(), 1)
    assert strategy.epsilon == {}


def test_a_folder_of_something_else_is_refused_before_nodes_are_met(grid_of, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("mine")
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **NOISY)
    with pytest.raises(ConfigError, match="is not an empty folder"):
        strategy.start(grid_of(client_app([private_mod])), model(), 1)
    assert list(files(tmp_path / "run")) == ["thesis.txt"]


def test_an_adaptive_clip_follows_the_norms(grid_of, tmp_path):
    settings = NOISY | {"privacy": {"honest_fraction": 0.6, "clipping": "adaptive"}, "clip": 1e-3}
    seen = Wire(client_app([private_mod]))
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **settings)
    strategy.start(grid_of(seen), model(), 3)
    headers = [
        c[flower_messages.RECORD]["request"]
        for c in seen.sent
        if "request" in c[flower_messages.RECORD]
    ]
    clips = [AppQuestion.model_validate_json(h).privacy.clip for h in headers[::CLIENTS]]
    # 1[norm <= 0.001] is never true: a step up each round, or, as noise makes of it, one down.
    assert clips[0] == 1e-3
    assert len(clips) == 3
    assert all(before != after for before, after in pairwise(clips))


def test_groups_are_sums_of_their_own(grid_of, tmp_path):
    settings = OPEN | {"secagg": {"server": "semi-honest", "dropout": 0.0, "groups": 2}}
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **settings)
    seen = Wire(client_app([private_mod]))
    result = strategy.start(grid_of(seen), model(), 2)
    expected = arrays_of(plain(FedAvg(fraction_evaluate=0.0), rounds=2))
    np.testing.assert_allclose(
        arrays_of(result)["layer.weight"], expected["layer.weight"], atol=10 * STEP, rtol=0
    )
    opening = [c for c in seen.sent if stage_type(c) == flower_messages.STAGE_TYPES["advertise"]]
    cohorts = [
        Session.from_bytes(flower_messages.bytes_field(c, "session")).cohort for c in opening
    ]
    assert {len(cohort) for cohort in cohorts} == {3}


def test_a_target_epsilon_is_met(grid_of, tmp_path):
    settings = NOISY | {"noise_multiplier": None, "epsilon": 3.0}
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **settings)
    strategy.start(grid_of(client_app([private_mod])), model(), 3)
    assert 2.9 < strategy.epsilon["release"].value <= 3.0


def test_cohorts_of_ones_own_sampling_are_amplified(grid_of, tmp_path):
    def spent(**sampling):
        settings = NOISY | {"secagg": {"server": "semi-honest", "dropout": 0.0}}
        out = tmp_path / f"run{len(sampling)}"
        strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=out, **settings, **sampling)
        result = strategy.start(grid_of(client_app([private_mod]), clients=12), model(), 4)
        assert result.arrays
        return strategy.epsilon["release"]

    known = spent()
    drawn = spent(sampling={"kind": "poisson", "cohort": 6})
    assert "no amplification" in " ".join(known.assumptions)
    assert "Poisson samples" in " ".join(drawn.assumptions)
    assert drawn.value < known.value


def test_evaluation_is_skipped_unless_its_metrics_are_named(grid_of, tmp_path, caplog):
    strategy = PrivateStrategy(FedAvg(), out=tmp_path / "run", **OPEN)
    result = strategy.start(grid_of(client_app([private_mod])), model(), 2)
    assert not result.evaluate_metrics_clientapp
    assert caplog.text.count("federated evaluation is skipped") == 1


def sizes(index):
    return 5 * (index + 1)


def test_named_metrics_are_those_of_a_plain_evaluation(grid_of, tmp_path):
    expected = plain(FedAvg(), client_app([], sizes), rounds=1).evaluate_metrics_clientapp[1]
    strategy = PrivateStrategy(
        FedAvg(), out=tmp_path / "run", metrics={"eval_loss": 10.0, "eval_acc": 1.0}, **OPEN
    )
    seen = Wire(client_app([private_mod], sizes))
    found = strategy.start(grid_of(seen), model(), 1).evaluate_metrics_clientapp[1]
    assert set(found) == set(expected)
    assert dict(found) == pytest.approx(dict(expected), abs=1e-3)
    assert not any(says(content, b"eval_loss") for content in seen.replies)


def test_a_noised_evaluation_is_charged(grid_of, tmp_path, caplog):
    caplog.set_level(logging.INFO, "flwr")
    settings = NOISY | {"evaluation_noise": 0.5, "metrics": {"eval_loss": 10.0, "eval_acc": 1.0}}
    strategy = PrivateStrategy(FedAvg(), out=tmp_path / "run", **settings)
    result = strategy.start(grid_of(client_app([private_mod])), model(), 2)
    assert strategy.epsilon["sum"].participations == 4
    for metrics in result.evaluate_metrics_clientapp.values():
        names = {"eval_loss": 10.0, "eval_acc": 1.0}
        assert set(metrics) == {*names, *(f"{name}_noise_std" for name in names)}
        for name, largest in names.items():
            assert -largest <= metrics[name] <= largest
            assert 0 < metrics[f"{name}_noise_std"] < largest
    spent = spending_in(tmp_path / "run")
    assert spent.observers.keys() == strategy.epsilon.keys()
    for name, against in spent.observers.items():
        assert against.bound.value == strategy.epsilon[name].value
    node = spending_in(tmp_path / "state" / "0")
    assert (node["contributions"], list(node["by_run"].values())) == (4, [4])
    write_public_report(tmp_path / "run", tmp_path / "public")
    assert "publish what zerosum report RUN --public OUT writes" in caplog.text
    public = (tmp_path / "public" / "metrics.jsonl").read_text()
    assert "federated_eval_acc_noise_std" in public
    assert "survivors" not in public


WEIGHTED = OPEN | {"weighting": "examples", "max_examples": 40}


def test_weights_are_one_more_coordinate_under_the_mask(grid_of, tmp_path):
    expected = arrays_of(plain(FedAvg(fraction_evaluate=0.0), client_app([], sizes)))
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **WEIGHTED)
    app = client_app([private_mod], sizes)
    found = arrays_of(strategy.start(grid_of(app), model(), 3))
    np.testing.assert_allclose(
        found["layer.weight"], expected["layer.weight"], atol=30 * STEP, rtol=0
    )
    uniform = arrays_of(plain(FedAvg(fraction_evaluate=0.0)))["layer.weight"]
    assert np.abs(uniform - expected["layer.weight"]).max() > 0.05, "weights make a difference"


def test_the_server_withstood_may_be_a_lying_one(grid_of, tmp_path, make_keys):
    keys = make_keys(tmp_path / "keys", CLIENTS)
    policy = tmp_path / "strict.toml"
    policy.write_text('models = ["none"]\n' + LEAST_TOML)
    grid = InProcessGrid(
        client_app([private_mod]),
        CLIENTS,
        node_config=lambda index: {
            "state-dir": str(tmp_path / "state" / str(index)),
            "policy": str(policy),
            **keys.node_config(index),
        },
    )
    settings = OPEN | {
        "secagg": {"server": "malicious", "dropout": 0.3},
        "deployment": {"roster": str(keys.path), "authority": keys.authority},
    }
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **settings)
    result = strategy.start(grid, model(), 2)
    expected = arrays_of(plain(FedAvg(fraction_evaluate=0.0), rounds=2))
    np.testing.assert_allclose(
        arrays_of(result)["layer.weight"], expected["layer.weight"], atol=10 * STEP, rtol=0
    )


REFUSED = {
    "Krum": (lambda: PrivateStrategy(Krum(), **OPEN), "looks at each client's reply"),
    "their own noise": (
        lambda: PrivateStrategy(
            DifferentialPrivacyClientSideFixedClipping(FedAvg(), 1.0, 1.0, 6), **OPEN
        ),
        "give it the strategy within",
    ),
    "twice": (lambda: PrivateStrategy(PrivateStrategy(FedAvg(), **OPEN)), "the strategy within"),
    "a key": (lambda: PrivateStrategy(FedAvg(), privacy={"clop": 1.0}), "did you mean privacy.cl"),
    "weights under noise": (
        lambda: PrivateStrategy(FedAvg(), clip=1.0, weighting="examples"),
        "weights are uniform",
    ),
    "a clipped weight": (
        lambda: PrivateStrategy(FedAvg(), privacy={"model": "none"}, weighting="examples"),
        "a weight of up to 1",
    ),
    "metrics without noise": (
        lambda: PrivateStrategy(FedAvg(), clip=1.0, metrics={"eval_acc": 1.0}),
        "evaluation_noise",
    ),
    "examples": (
        lambda: PrivateStrategy(
            FedAvg(),
            privacy={"unit": "example", "examples": 10, "lot": 5},
            encoding={"range": 1.0},
        ),
        "clipped as a whole",
    ),
    "no masks": (lambda: PrivateStrategy(FedAvg(), secagg={"protocol": "ideal"}), "pairwise"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_private_is_refused_before_anything_starts(what):
    make, message = REFUSED[what]
    with pytest.raises(ConfigError, match=message):
        make()


AT_START = {
    "no roster": ({"secagg": {}}, "deployment.roster and deployment.authority"),
    "delta": ({"delta": 0.5}, "is not below 1/population"),
    "survivors": ({"privacy": {"honest_fraction": 1.0}}, "privacy.honest_fraction = 1.0 needs"),
}


@pytest.mark.parametrize("what", AT_START)
def test_what_does_not_fit_the_nodes_is_refused_at_the_start(what, grid_of, tmp_path):
    changed, message = AT_START[what]
    strategy = PrivateStrategy(FedAvg(), out=tmp_path / "run", **(NOISY | changed))
    with pytest.raises(ConfigError, match=message):
        strategy.start(grid_of(client_app([private_mod])), model(), 2)


def test_noise_that_no_accountant_knows_is_refused(grid_of, tmp_path, monkeypatch):
    unknown = {name: no_bound(name, 0.01, "nobody knows", unit="client") for name in OBSERVERS}
    monkeypatch.setattr(strategy_module, "planned_figures", lambda *arguments: unknown)
    strategy = PrivateStrategy(FedAvg(), out=tmp_path / "run", **NOISY)
    with pytest.raises(ConfigError, match="nobody knows"):
        strategy.start(grid_of(client_app([private_mod])), model(), 2)


def test_a_strategy_around_it_cannot_send_in_plain(grid_of):
    inner = PrivateStrategy(FedAvg(), **OPEN)
    outer = DifferentialPrivacyClientSideFixedClipping(inner, 1.0, 1.0, CLIENTS)
    with pytest.raises(ConfigError, match="goes around every other strategy"):
        outer.start(grid_of(client_app([private_mod])), model(), 1)


def test_a_node_without_the_mod_is_named_and_left_out(grid_of, tmp_path, caplog):
    private, bare = client_app([private_mod]), client_app([])

    def mixed(message, context):
        last = context.node_config["partition-id"] == CLIENTS - 1
        return (bare if last else private)(message, context)

    settings = OPEN | {"deployment": {"min_nodes": CLIENTS - 1}}
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **settings)
    result = strategy.start(grid_of(mixed), model(), 1)
    assert result.train_metrics_clientapp[1]["survivors"] == CLIENTS - 1
    assert "needs zerosum.client.flower.private_mod.private_mod" in caplog.text


@pytest.mark.parametrize("missing", ["state-dir", "policy"])
def test_a_node_is_configured_by_itself_or_declines(missing, grid_of, caplog):
    grid = grid_of(client_app([private_mod]))
    given = grid._node_config
    grid._node_config = lambda index: {k: v for k, v in given(index).items() if k != missing}
    grid.send_and_receive([])
    (reply,) = AppGrid(grid, "train").send_and_receive(
        [Message(flower_messages.pack({}), FIRST_NODE, flower_messages.STAGE_TYPES["unmask"])]
    )
    assert reply.has_error()
    assert f"node config {missing} is missing" in caplog.text


def test_the_code_of_the_page_runs_as_it_stands():
    page = Path(__file__).parents[2] / "docs" / "flower-apps.md"
    names = {}
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)  # noqa: S102
    grid = names["grid_of"](client_app([private_mod]), "state")
    assert len(list(grid.get_node_ids())) == 4
    assert Path(grid._node_config(0)["policy"]).name == "policy.toml"
    assert isinstance(names["strategy"], PrivateStrategy)


def test_an_app_that_exits_under_privacy_shows_nowhere_and_is_a_dropout_without(grid_of, tmp_path):
    def exits(index, round):
        if index < 2:
            raise SystemExit("the disk is full")
        return False

    for name, settings, errors in (("noisy", NOISY, 0), ("open", OPEN, 2)):
        seen = Wire(client_app([private_mod], fails=exits))
        strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / name, **settings)
        result = strategy.start(grid_of(seen), model(), 1)
        assert result.train_metrics_clientapp[1]["survivors"] == CLIENTS - errors
        assert len(seen.errors) == errors
        assert not any("disk" in error for error in seen.errors)


def test_a_client_whose_epsilon_is_spent_declines_before_it_trains(grid_of, tmp_path, caplog):
    calls = []
    policy = tmp_path / "bounded.toml"
    policy.write_text(POLICY.replace("max_epsilon = inf", "max_epsilon = 8.0"))
    app = client_app([private_mod], fails=lambda index, round: calls.append(round))
    grid = grid_of(app, policy=str(policy))
    start = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **NOISY).start
    start(grid, model(), 9)
    assert calls == [number for number in range(1, 10) for _ in range(CLIENTS)]
    with pytest.raises(NothingLearntError, match=r"0 passed contribute \(6 refused it\)"):
        start(grid, model(), 1)
    assert len(calls) == 9 * CLIENTS, "a new run is no new budget"
    assert "above the policy's max_epsilon = 8" in caplog.text


def of_another_function(message, context):
    message.metadata.message_type = "train.other"


def of_another_run_config(message, context):
    context.run_config = {"lr": 0.0}


@pytest.mark.parametrize(
    ("lie", "said"),
    [(of_another_function, "'train.other'"), (of_another_run_config, "run config")],
)
def test_a_client_for_whom_the_server_chose_another_app_declines(
    lie, said, grid_of, tmp_path, caplog
):
    """Its own action or run config would make the sum's difference to the others its update."""
    inner = client_app([private_mod])

    @inner.train("other")
    def other(message, context):
        content = RecordDict({"arrays": trained(message.content["arrays"], 9, {"server-round": 1})})
        return Message(content, reply_to=message)

    def lying(message, context):
        asks = "request" in message.content[flower_messages.RECORD]
        if asks and context.node_config["partition-id"] == 1:
            lie(message, context)
        return inner(message, context)

    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **OPEN)
    result = strategy.start(grid_of(lying), model(), 1)
    assert result.train_metrics_clientapp[1]["survivors"] == CLIENTS - 1
    assert said in caplog.text


@pytest.mark.parametrize("given", [None, {"lr": 0.1, "name": "x"}])
def test_a_run_config_is_that_of_the_run_or_the_one_that_is_given(given, grid_of, tmp_path):
    grid = grid_of(client_app([private_mod]))
    grid._run_config = {"lr": 0.1, "name": "x"}
    if given is None:
        grid.run.override_config = dict(grid._run_config)
    strategy = PrivateStrategy(
        FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", run_config=given, **OPEN
    )
    result = strategy.start(grid, model(), 1)
    assert result.train_metrics_clientapp[1]["survivors"] == CLIENTS


def test_an_app_sees_its_own_state_and_none_of_the_masks_seeds(grid_of, tmp_path):
    seen = []
    app = ClientApp(mods=[private_mod])

    @app.train()
    def train(message, context):
        seen.append((context.node_config["partition-id"], sorted(context.state)))
        before = context.state.config_records.get("mine", ConfigRecord({"rounds": 0}))
        context.state = RecordDict({"mine": ConfigRecord({"rounds": before["rounds"] + 1})})
        context.state["zerosum.party.x"] = ConfigRecord({"state": b"planted"})
        arrays = trained(message.content["arrays"], 0, message.content["config"])
        return Message(RecordDict({"arrays": arrays}), reply_to=message)

    grid = grid_of(app)
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **OPEN)
    result = strategy.start(grid, model(), 2)
    assert [names for index, names in seen if index == 0] == [[], ["mine"]]
    assert result.train_metrics_clientapp[2]["survivors"] == CLIENTS
    for state in grid._states.values():
        assert state["mine"]["rounds"] == 2
        assert "zerosum.party.x" not in state


@pytest.mark.parametrize("kind", [ClientApp, PrivateClientApp])
@pytest.mark.parametrize("error", [OSError("secret-record-17"), SystemExit("secret-record-17")])
def test_an_error_around_the_mod_leaves_the_node_unless_the_app_is_private(
    kind, error, grid_of, caplog
):
    """The control shows why: Flower sends the text of what an app raises."""
    app = kind(mods=[private_mod]) if kind is ClientApp else kind()

    @app.lifespan()
    def lifespan(context):
        raise error
        yield

    @app.train()
    def train(message, context):
        return message

    said = []
    content = RecordDict({"arrays": model()})

    def watched(message, context):
        try:
            return app(message, context)
        except (Exception, SystemExit) as raised:
            said.append(str(raised))
            raise RuntimeError from None

    grid_of(watched).send_and_receive([Message(content, FIRST_NODE, "train")])
    assert ("secret-record-17" in said[0]) == (kind is ClientApp)
    if kind is PrivateClientApp:
        assert "secret-record-17" in caplog.text


def test_a_private_app_is_an_app_like_any_other(grid_of, tmp_path):
    app = client_app([], make=PrivateClientApp)
    expected = arrays_of(plain(FedAvg(fraction_evaluate=0.0), rounds=1))
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **OPEN)
    found = arrays_of(strategy.start(grid_of(app), model(), 1))
    np.testing.assert_allclose(
        found["layer.weight"], expected["layer.weight"], atol=10 * STEP, rtol=0
    )
