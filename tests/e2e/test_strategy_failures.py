"""Other people's Flower apps that fail, vanish or lie: who is in the mean, and who is told."""

import json
import logging
import math
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import (
    FedAvg,
)
from strategy_apps import (
    CLIENTS,
    NOISY,
    OPEN,
    POLICY,
    STEP,
    Wire,
    arrays_of,
    client_app,
    model,
    plain,
    says,
    trained,
    without,
    wrong_shares_of,
)

from zerosum.client.flower.app_request import stage_type
from zerosum.client.flower.private_mod import private_mod
from zerosum.client.protocol import flower_messages
from zerosum.secagg import ClientParty
from zerosum.server.flower.private_strategy import PrivateStrategy
from zerosum.server.runs.run_outcome import NothingLearntError

LOST = {
    "before the vectors": ({"advertise": (0,), "contribute": (3,)}, (0, 3)),
    "after the vectors": ({"share": (0,), "unmask": (5,)}, (0,)),
}


@pytest.mark.slow
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


@pytest.mark.slow
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
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line).get("refused") for line in lines] == [None, {"contribute": 2}, None]
    assert not any("no data today" in error for error in seen.errors)
    assert not any(says(content, b"no data today") for content in seen.replies)
    assert "no data today" in caplog.text


@pytest.mark.slow
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


@pytest.mark.quick_one_in(2)
@pytest.mark.parametrize("settings", [OPEN, NOISY], ids=["masked", "noised"])
def test_a_run_that_every_client_refuses_ends_after_three_rounds(settings, grid_of, tmp_path):
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **settings)
    app = client_app([private_mod])

    def refusing(message, context):
        if stage_type(message.content) == flower_messages.STAGE_TYPES["contribute"]:
            raise RuntimeError("no")
        return app(message, context)

    with pytest.raises(NothingLearntError, match="all 3 rounds were abandoned") as ended:
        strategy.start(grid_of(refusing), model(), 7)
    said = str(ended.value)
    assert "18 passed share, 0 passed contribute (18 refused it)" in said
    assert "every client refused, which ends a run" in said
    assert "each node's own log" in said
    assert "layer.bias" in ended.value.result.arrays
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == [1, 2, 3]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["rounds"], summary["rounds_abandoned"]) == (3, 3)
    if settings is NOISY:
        spent = summary["epsilon"]["local"]["value"]
        assert spent == json.loads(lines[-1])["epsilon"]["local"] == strategy.epsilon["local"].value
    charged = [json.loads(line).get("epsilon_charged", {}).get("local", 0.0) for line in lines]
    assert all(cost > 0 for cost in charged) is (settings is NOISY)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("refuses", "code"),
    [
        (lambda round, index: index < 5, 2),  # the sixth answers, and is too few
        (lambda round, index: round != 2, 2),  # one round goes well
        (lambda round, index: True, 5),  # away
    ],
    ids=["not all", "not always", "away"],
)
def test_rounds_that_not_every_client_refuses_are_all_played(refuses, code, grid_of, tmp_path):
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **OPEN)
    grid = grid_of(client_app([private_mod]))
    deliver, asked = grid._one_by_one, dict.fromkeys(range(CLIENTS), 0)

    def delivered(messages, contexts):
        """Refuse to contribute."""
        replies = []
        for message, context in zip(messages, contexts, strict=True):
            index = context.node_config["partition-id"]
            contributes = stage_type(message.content) == flower_messages.STAGE_TYPES["contribute"]
            asked[index] += contributes
            if contributes and refuses(asked[index], index):
                replies.append(Message(Error(code, "no"), reply_to=message))
            else:
                replies += deliver([message], [context])
        return replies

    grid._one_by_one = delivered
    with suppress(NothingLearntError):
        strategy.start(grid, model(), 5)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == 5


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_first_round_that_is_abandoned_ends_nothing(grid_of, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **NOISY)
    app = client_app([private_mod], fails=lambda index, round: False)
    seen: list[Any] = []

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


def test_under_privacy_an_app_that_fails_shows_nowhere(grid_of, tmp_path):
    seen = Wire(client_app([private_mod], fails=lambda index, round: index < 4))
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **NOISY)
    result = strategy.start(grid_of(seen), model(), 1)
    assert result.train_metrics_clientapp[1]["survivors"] == CLIENTS
    assert seen.errors == []


def watching(weights):
    """Return a FedAvg that notes the first reply's weight of each round."""

    class Watching(FedAvg):
        def aggregate_train(self, server_round, replies):
            replies = list(replies)
            weights.append(replies[0].content["metrics"]["num-examples"])
            return super().aggregate_train(server_round, replies)

    return Watching(fraction_evaluate=0.0)


@pytest.mark.slow
def test_under_privacy_the_weight_does_not_tell_how_many_answered(grid_of, tmp_path):
    weights: list[float] = []

    lost = without({"advertise": (0,)}, client_app([private_mod]))
    for name, settings in (("noisy", NOISY), ("open", OPEN)):
        strategy = PrivateStrategy(
            watching(weights), out=tmp_path / name, averages=True, **settings
        )
        strategy.start(grid_of(lost), model(), 2)
    assert weights == [CLIENTS, CLIENTS, CLIENTS, CLIENTS - 1]


@pytest.mark.slow
def test_a_liar_is_left_out_of_later_rounds_and_counts_in_the_divisor_still(
    grid_of, tmp_path, monkeypatch, caplog
):
    caplog.set_level(logging.INFO, "flwr")
    liar = 2
    weights: list[float] = []
    monkeypatch.setattr(ClientParty, "unmask", wrong_shares_of(liar))
    big = ArrayRecord({"layer": Array(np.zeros(400, dtype=np.float32))})
    settings = NOISY | {"noise_multiplier": 0.01}
    (tmp_path / "policy.toml").write_text(POLICY + "min_noise_multiplier = 0.01\n")
    strategy = PrivateStrategy(watching(weights), out=tmp_path / "run", averages=True, **settings)
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
    again = PrivateStrategy(watching(weights), out=tmp_path / "run", averages=True, **settings)
    again.start(grid_of(client_app([private_mod])), big, 1)
    (tmp_path / "run/left-out.jsonl").write_text("")
    again.start(grid_of(client_app([private_mod])), big, 1)
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["cohort"] for line in lines] == [6, 5, 5, 6]


def test_a_node_without_the_mod_is_named_and_left_out(grid_of, tmp_path, caplog):
    private, bare = client_app([private_mod]), client_app([])

    def mixed(message, context):
        last = context.node_config["partition-id"] == CLIENTS - 1
        return (bare if last else private)(message, context)

    settings = OPEN | {"deployment": {"min_nodes": CLIENTS - 1}}
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **settings)
    result = strategy.start(grid_of(mixed), model(), 1)
    assert result.train_metrics_clientapp[1]["survivors"] == CLIENTS - 1
    assert "its ClientApp lacks the line `from zerosum.client import private_mod" in caplog.text


@pytest.mark.slow
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
