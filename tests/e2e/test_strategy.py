"""Other people's Flower apps: the same model as without masks, and nothing in plain."""

import json
import logging

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, FedProx, Krum

from zerosum.client.mod import private_mod
from zerosum.server.config import ConfigError
from zerosum.server.strategy import PrivateStrategy
from zerosum.simulations.grid import InProcessGrid

CLIENTS = 6
POLICY = 'models = ["none", "distributed", "local", "central"]\nservers = ["semi-honest"]\n'
OPEN = {
    "privacy": {"model": "none", "clip": "none"},
    "encoding": {"bits": 24, "range": 4.0},
    "secagg": {"server": "semi-honest", "dropout": 0.3},
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


def client_app(mods, examples=lambda index: 20, fails=lambda index, round: False):
    """An ordinary ClientApp; all that is ours are its mods."""
    app = ClientApp(mods=mods)

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
