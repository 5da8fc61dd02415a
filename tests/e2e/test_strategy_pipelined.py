"""Rounds of other people's strategies overlap: fewer exchanges, the same models and charges."""

import json
import logging
from functools import partial
from typing import Any

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg
from policies import LEAST_TOML
from strategy_apps import (
    CLIENTS,
    NOISY,
    OPEN,
    STEP,
    arrays_of,
    carried,
    client_app,
    model,
    parts_of,
    without,
    wrong_shares_of,
)

from zerosum.client.flower.app_request import stage_type
from zerosum.client.flower.private_mod import AppEnvironment, private_mod
from zerosum.client.protocol.noise_source import SeededEntropy
from zerosum.secagg import ClientParty
from zerosum.server.flower.private_strategy import PrivateStrategy
from zerosum.simulations.engine.grid import InProcessGrid

METRICS: dict[str, Any] = {"metrics": {"eval_loss": 10.0, "eval_acc": 1.0}}
SEQUENTIAL: dict[str, Any] = {"deployment": {"pipeline": False}}


class Turns:
    """What each client is sent, in turn: stage and sum of a message, and of what rides on it."""

    def __init__(self, app):
        self.app = app
        self.seen: dict[int, list[Any]] = {index: [] for index in range(CLIENTS)}
        self.kinds: list[Any] = []

    def __call__(self, message, context):
        if stage_type(message.content) != "query.hello":
            self.seen[context.node_config["partition-id"]].append(parts_of(message))
            self.kinds.append((message.metadata.message_type, *parts_of(message)))
        return self.app(message, context)


def lines_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def charges(folder):
    """Return the ledger's lines without what differs from run to run."""
    lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    return [line["type"] for line in lines]


def started(grid, out, rounds=4, inner=None, **settings):
    inner = FedAvg(fraction_evaluate=0.0) if inner is None else inner
    strategy = PrivateStrategy(inner, out=out, **settings)
    return strategy.start(grid, model(), rounds)


@pytest.fixture
def same_coins(monkeypatch):
    """Let clients round, and draw their noise, by coins that a round and a client fix."""
    monkeypatch.setattr(AppEnvironment, "entropy", SeededEntropy(5))
    monkeypatch.setattr(PrivateStrategy, "entropy", SeededEntropy(6))


@pytest.mark.slow
@pytest.mark.usefixtures("same_coins")
@pytest.mark.parametrize("settings", [OPEN, NOISY])
def test_a_steady_round_takes_two_exchanges_and_the_model_keeps_its_bits(
    settings, grid_of, tmp_path
):
    turns = Turns(client_app([private_mod]))
    found = started(grid_of(turns), tmp_path / "a", **settings)
    control = started(grid_of(client_app([private_mod])), tmp_path / "b", **settings, **SEQUENTIAL)
    assert [line["exchanges"] for line in lines_of(tmp_path / "a")] == [4, 2, 2, 2]
    assert [line["exchanges"] for line in lines_of(tmp_path / "b")] == [4, 4, 4, 4]
    for name, array in arrays_of(control).items():
        assert arrays_of(found)[name].tobytes() == array.tobytes()
    for seen in turns.seen.values():
        assert seen[2:6] == [
            (("contribute", 1), ("advertise", 2)),
            (("unmask", 1), ("share", 2)),
            (("contribute", 2), ("advertise", 3)),
            (("unmask", 2), ("share", 3)),
        ]
        assert seen[-1] == (("unmask", 4), None), "after the last round nothing is prepared"


@pytest.mark.slow
@pytest.mark.usefixtures("same_coins")
def test_against_a_malicious_server_a_steady_round_takes_three(tmp_path, make_keys):
    keys = make_keys(tmp_path / "keys", CLIENTS)
    policy = tmp_path / "strict.toml"
    policy.write_text('models = ["none"]\n' + LEAST_TOML)

    def node_config(name, index):
        return {
            "state-dir": str(tmp_path / f"state{name}" / str(index)),
            "policy": str(policy),
            **keys.node_config(index),
        }

    found = []
    for name in ("a", "b"):
        grid = InProcessGrid(
            client_app([private_mod]),
            CLIENTS,
            node_config=partial(node_config, name),
        )
        deployment = {"roster": str(keys.path), "authority": keys.authority}
        settings = OPEN | {
            "secagg": {"server": "malicious", "dropout": 0.3},
            "deployment": deployment | (SEQUENTIAL["deployment"] if name == "b" else {}),
        }
        found.append(arrays_of(started(grid, tmp_path / name, 3, **settings)))
    assert [line["exchanges"] for line in lines_of(tmp_path / "a")] == [5, 3, 3]
    assert [line["exchanges"] for line in lines_of(tmp_path / "b")] == [5, 5, 5]
    assert all(found[0][name].tobytes() == array.tobytes() for name, array in found[1].items())


@pytest.mark.slow
@pytest.mark.usefixtures("same_coins")
def test_an_evaluations_keys_ride_in_messages_that_train_and_the_other_way(grid_of, tmp_path):
    """A message has one type, that of the sum in front, whatever rides on it."""
    turns = Turns(carried(client_app([private_mod])))
    found = started(grid_of(turns), tmp_path / "a", 3, FedAvg(), **OPEN, **METRICS)
    control = started(
        grid_of(client_app([private_mod])),
        tmp_path / "b",
        3,
        FedAvg(),
        **OPEN,
        **METRICS,
        **SEQUENTIAL,
    )
    assert [line["exchanges"] for line in lines_of(tmp_path / "a")] == [4, 2, 2]
    assert len(turns.seen[0]) == 4 + 5 * 2
    assert ("train", ("contribute", 1), ("advertise", 2)) in turns.kinds
    assert ("evaluate", ("contribute", 2), ("advertise", 3)) in turns.kinds
    assert ("evaluate", ("unmask", 6), None) in turns.kinds
    for name, array in arrays_of(control).items():
        assert arrays_of(found)[name].tobytes() == array.tobytes()
    for round in (1, 2, 3):
        expected = dict(control.evaluate_metrics_clientapp[round])
        assert dict(found.evaluate_metrics_clientapp[round]) == expected


LOST = {
    "advertise": (0,),
    "share": (1,),
    "contribute": (2,),
    "unmask": (3,),
}


@pytest.mark.slow
@pytest.mark.usefixtures("same_coins")
@pytest.mark.parametrize("stage", LOST)
def test_whoever_misses_a_stage_is_missed_in_that_sum_alone(stage, grid_of, tmp_path):
    found = {}
    for name, settings in (("a", {}), ("b", SEQUENTIAL)):
        app = without({stage: LOST[stage]}, client_app([private_mod]))
        found[name] = arrays_of(started(grid_of(app), tmp_path / name, 3, **OPEN, **settings))
        survivors = [line["survivors"] for line in lines_of(tmp_path / name)]
        assert survivors == [6, 6 if stage == "unmask" else 5, 6]
    assert [line["exchanges"] for line in lines_of(tmp_path / "a")] == [4, 2, 2]
    assert all(found["a"][name].tobytes() == array.tobytes() for name, array in found["b"].items())


@pytest.mark.slow
@pytest.mark.usefixtures("same_coins")
@pytest.mark.parametrize("stage", ["advertise", "share"])
def test_a_preparation_that_failed_costs_itself_alone(stage, grid_of, tmp_path, caplog):
    """Four of six are away while sum 2 is prepared, and back when round 2 asks for it."""
    caplog.set_level(logging.DEBUG, "flwr")
    app = without({stage: (0, 1, 2, 3)}, client_app([private_mod]))
    found = arrays_of(started(grid_of(app), tmp_path / "a", 3, **OPEN))
    control = started(grid_of(client_app([private_mod])), tmp_path / "b", 3, **OPEN, **SEQUENTIAL)
    lines = lines_of(tmp_path / "a")
    assert [line["status"] for line in lines] == ["completed"] * 3
    assert [line["survivors"] for line in lines] == [6, 6, 6]
    assert [line["exchanges"] for line in lines] == [4, 4, 2]
    assert "prepared in vain" in caplog.text
    # The coins of rounding are of a session, and this one is another.
    expected = arrays_of(control)["layer.weight"]
    np.testing.assert_allclose(found["layer.weight"], expected, atol=10 * STEP, rtol=0)
    assert charges(tmp_path / "a") == charges(tmp_path / "b")


@pytest.mark.slow
def test_an_abandoned_round_leaves_the_next_one_prepared(grid_of, tmp_path):
    app = without({"contribute": (0, 1, 2, 3)}, client_app([private_mod]))
    started(grid_of(app), tmp_path / "a", 3, **OPEN)
    lines = lines_of(tmp_path / "a")
    assert [line["status"] for line in lines] == ["completed", "abandoned", "completed"]
    # No unmask of round 2 was sent, so that the shares of round 3 are asked for by themselves.
    assert [line["exchanges"] for line in lines] == [4, 1, 3]
    assert [line["survivors"] for line in lines] == [6, 0, 6]


class Choosing(FedAvg):
    """A strategy that trains on nodes of its own choice."""

    def __init__(self, choice, **settings):
        super().__init__(**settings)
        self.choice = choice

    def configure_train(self, server_round, arrays, config, grid):
        messages = list(super().configure_train(server_round, arrays, config, grid))
        messages.sort(key=lambda message: message.metadata.dst_node_id)
        return [messages[index] for index in self.choice(server_round)]


@pytest.mark.slow
def test_a_strategy_that_asks_others_than_foreseen_costs_a_preparation(grid_of, tmp_path, caplog):
    caplog.set_level(logging.DEBUG, "flwr")
    turns = Turns(client_app([private_mod]))
    inner = Choosing(lambda round: range(6) if round < 3 else range(5), fraction_evaluate=0.0)
    started(grid_of(turns), tmp_path / "a", 6, inner, **NOISY)
    lines = lines_of(tmp_path / "a")
    assert [line["cohort"] for line in lines] == [6, 6, 5, 5, 5, 5]
    # Round 3 asks five of whom six had been prepared; round 4 asks the same five again.
    assert [line["exchanges"] for line in lines] == [4, 2, 4, 4, 2, 2]
    assert "was prepared to train with 6 clients, and is not asked for" in caplog.text
    sums = {main[1] for seen in turns.seen.values() for main, _ in seen}
    assert sums == {1, 2, 4, 5, 6, 7}, "sum 3 was never asked for a vector"
    contributed = [main for main, _ in turns.seen[5] if main[0] == "contribute"]
    assert contributed == [("contribute", 1), ("contribute", 2)]
    assert charges(tmp_path / "a") == ["run", *6 * ("contributions", "sum", "survived")]


@pytest.mark.slow
def test_a_strategy_that_samples_is_not_foreseen(grid_of, tmp_path):
    choices = [(0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5), (0, 2, 4, 5)]
    inner = Choosing(lambda round: choices[round - 1], fraction_evaluate=0.0)
    turns = Turns(client_app([private_mod]))
    started(grid_of(turns), tmp_path / "a", 4, inner, **OPEN)
    assert all(riding is None for seen in turns.seen.values() for _, riding in seen)


@pytest.mark.slow
def test_cohorts_that_the_rounds_draw_are_drawn_ahead(grid_of, tmp_path):
    turns = Turns(client_app([private_mod]))
    settings = OPEN | {"sampling": {"kind": "fixed", "cohort": 4}}
    started(grid_of(turns), tmp_path / "a", 5, **settings)
    lines = lines_of(tmp_path / "a")
    assert [line["exchanges"] for line in lines] == [4, 2, 2, 2, 2]
    assert [line["survivors"] for line in lines] == [4] * 5
    asked = {
        sum_: {
            i for i, seen in turns.seen.items() if (("contribute", sum_) in [m for m, _ in seen])
        }
        for sum_ in range(1, 6)
    }
    assert all(len(clients) == 4 for clients in asked.values())
    assert len(set(map(frozenset, asked.values()))) > 1, "not always the same four"


@pytest.mark.slow
def test_an_adaptive_clip_waits_for_the_sum_that_it_follows_from(grid_of, tmp_path):
    settings = NOISY | {"privacy": {"honest_fraction": 0.6, "clipping": "adaptive"}}
    started(grid_of(client_app([private_mod])), tmp_path / "a", 3, **settings)
    assert [line["exchanges"] for line in lines_of(tmp_path / "a")] == [4, 4, 4]
    evaluated = settings | METRICS | {"evaluation_noise": 2.0}
    turns = Turns(client_app([private_mod]))
    started(grid_of(turns), tmp_path / "b", 3, FedAvg(), **evaluated)
    assert [line["exchanges"] for line in lines_of(tmp_path / "b")] == [4, 2, 2]


@pytest.mark.slow
@pytest.mark.usefixtures("same_coins")
def test_weights_and_groups_are_prepared_as_they_are_asked_for(grid_of, tmp_path):
    weighted = OPEN | {"weighting": "examples", "max_examples": 40}
    grouped = OPEN | {"secagg": {"server": "semi-honest", "dropout": 0.0, "groups": 2}}
    for name, settings in (("weighted", weighted), ("grouped", grouped)):
        found, control = (
            arrays_of(started(grid_of(client_app([private_mod])), tmp_path / out, 3, **given))
            for out, given in ((name, settings), (name + "b", settings | SEQUENTIAL))
        )
        assert [line["exchanges"] for line in lines_of(tmp_path / name)] == [4, 2, 2]
        if name == "weighted":
            assert all(found[key].tobytes() == array.tobytes() for key, array in control.items())
        np.testing.assert_allclose(found["layer.bias"], control["layer.bias"], atol=1e-5)


@pytest.mark.slow
def test_a_liar_is_left_out_of_the_round_that_was_prepared_with_it(grid_of, tmp_path, monkeypatch):
    monkeypatch.setattr(ClientParty, "unmask", wrong_shares_of(2))
    turns = Turns(client_app([private_mod]))
    started(grid_of(turns), tmp_path / "a", 3, **NOISY)
    lines = lines_of(tmp_path / "a")
    assert [line["cohort"] for line in lines] == [6, 5, 5]
    assert [line["exchanges"] for line in lines] == [4, 4, 2]
    assert [main for main, _ in turns.seen[2] if main[0] == "contribute"] == [("contribute", 1)]


class Raising(FedAvg):
    raises = True

    def aggregate_train(self, server_round, replies):
        averaged = super().aggregate_train(server_round, replies)
        if self.raises and server_round == 2:
            raise RuntimeError("the disk is full")
        return averaged


def test_a_strategy_that_raises_leaves_what_can_be_gone_on_with(grid_of, tmp_path):
    inner = Raising(fraction_evaluate=0.0)
    grid = grid_of(client_app([private_mod]))
    with pytest.raises(RuntimeError, match="the disk is full"):
        started(grid, tmp_path / "a", 4, inner, **NOISY)
    assert [line["round"] for line in lines_of(tmp_path / "a")] == [1, 2]
    assert charges(tmp_path / "a") == ["run", *2 * ("contributions", "sum", "survived")]
    inner.raises = False
    started(grid, tmp_path / "a", 2, inner, **NOISY)
    assert [line["round"] for line in lines_of(tmp_path / "a")] == [1, 2, 3, 4]
    assert [line["exchanges"] for line in lines_of(tmp_path / "a")] == [4, 2, 4, 2]


class Now(FedAvg):
    """A strategy that evaluates in some rounds alone."""

    def __init__(self, every):
        super().__init__()
        self.every = every

    def configure_evaluate(self, server_round, arrays, config, grid):
        if server_round % self.every:
            return []
        return super().configure_evaluate(server_round, arrays, config, grid)


@pytest.mark.slow
def test_what_is_foreseen_wrongly_again_and_again_is_foreseen_no_more(grid_of, tmp_path):
    turns = Turns(client_app([private_mod]))
    started(grid_of(turns), tmp_path / "a", 12, Now(2), **OPEN, **METRICS)
    begun = {riding[1] for seen in turns.seen.values() for _, riding in seen if riding}
    begun |= {main[1] for seen in turns.seen.values() for main, _ in seen}
    assert len(begun) <= 18 + 3 + 18 // 4
    assert len(lines_of(tmp_path / "a")) == 12


@pytest.mark.slow
def test_sessions_that_a_policy_counts_are_kept_for_what_is_asked(grid_of, tmp_path):
    """With two openings for two rounds there is none for a preparation in vain."""
    tight = OPEN | {"secagg": OPEN["secagg"] | {"openings": 3}}
    inner = Choosing(lambda round: range(6) if round == 1 else range(4), fraction_evaluate=0.0)
    turns = Turns(client_app([private_mod]))
    started(grid_of(turns), tmp_path / "a", 3, inner, **tight)
    assert all(riding is None for seen in turns.seen.values() for _, riding in seen)
    more = OPEN | {"secagg": OPEN["secagg"] | {"openings": 4}}
    turns = Turns(client_app([private_mod]))
    started(grid_of(turns), tmp_path / "b", 3, inner, **more)
    assert any(riding for seen in turns.seen.values() for _, riding in seen)
