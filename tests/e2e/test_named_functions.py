"""Apps whose functions have names: hello finds none that is called otherwise, and that is told."""

import time

import numpy as np
import pytest
from flwr.app import Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from query_apps import POLICY, SECAGG, SUMS, answered
from strategy_apps import CLIENTS, OPEN, arrays_of, client_app, model, plain, trained

from zerosum.client import PrivateClientApp, private_mod
from zerosum.server import PrivateQueries
from zerosum.server.config import ConfigError
from zerosum.server.flower.private_strategy import PrivateStrategy
from zerosum.server.runs.run_outcome import NothingLearntError
from zerosum.simulations.engine.grid import InProcessGrid


class Warm(FedAvg):
    """Trains by a function with a name."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.configured: list[int] = []

    def configure_train(self, server_round, arrays, config, grid):
        self.configured.append(server_round)
        messages = list(super().configure_train(server_round, arrays, config, grid))
        for message in messages:
            message.metadata.message_type = "train.warm"
        return messages


class Uncopied(Warm):
    """Holds something that cannot be copied, as a writer of logs."""

    def __deepcopy__(self, memo):
        raise TypeError("cannot be copied")


def warm(app, category="train"):
    """Register one function, with a name, of a category."""

    @getattr(app, category)("warm")
    def function(message, context):
        index, config = context.node_config["partition-id"], message.content["config"]
        arrays = trained(message.content["arrays"], index, config)
        metrics = MetricRecord({"num-examples": 20})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    return app


def started(grid, out, inner, rounds=1):
    return PrivateStrategy(inner, out=out, **OPEN).start(grid, model(), rounds)


def evaluating():
    app = ClientApp(mods=[private_mod])
    app.evaluate()(lambda message, context: message)
    return app


CANNOT = {
    "a bare strategy": (lambda: warm(ClientApp(mods=[private_mod])), FedAvg, "train()"),
    "to evaluate alone": (evaluating, FedAvg, "train()"),
    "another name": (
        lambda: warm(ClientApp(mods=[private_mod]), "evaluate"),
        Warm,
        'train("warm")',
    ),
    "no copy": (lambda: warm(ClientApp(mods=[private_mod])), Uncopied, "train()"),
}


@pytest.mark.parametrize("case", CANNOT)
def test_an_app_without_the_training_function_is_told_the_cause_and_the_cure(
    case, grid_of, tmp_path
):
    make, inner, lacks = CANNOT[case]
    began = time.monotonic()
    with pytest.raises(ConfigError) as ended:
        started(grid_of(make()), tmp_path / "run", inner(fraction_evaluate=0.0))
    said = str(ended.value)
    assert "all 6 nodes that are connected" in said
    assert f"the ClientApp has no @app.{lacks}" in said
    assert f"add @app.{lacks}" in said
    assert ("PrivateClientApp()" in said) is (lacks == "train()")
    assert "\n" not in said
    assert "first among its mods" not in said
    assert time.monotonic() - began < 10, "no second look: no node can change it"


@pytest.mark.quick_one_in(2)
@pytest.mark.parametrize("rounds", [1, 3])
def test_an_app_whose_one_function_has_a_name_is_met_by_the_type_of_the_strategy(
    rounds, grid_of, tmp_path
):
    inner = Warm(fraction_evaluate=0.0)
    grid = grid_of(warm(ClientApp(mods=[private_mod])))
    result = started(grid, tmp_path / "run", inner, rounds)
    expected = arrays_of(plain(FedAvg(fraction_evaluate=0.0), rounds=rounds))["layer.bias"]
    np.testing.assert_allclose(arrays_of(result)["layer.bias"], expected, atol=1e-5)
    assert inner.configured == list(range(1, rounds + 1)), "the trial was a copy's"


def test_the_cure_that_is_told_trains_by_a_named_function(grid_of, tmp_path):
    grid = grid_of(warm(PrivateClientApp()))
    result = started(grid, tmp_path / "run", Warm(fraction_evaluate=0.0))
    expected = arrays_of(plain(FedAvg(fraction_evaluate=0.0), rounds=1))["layer.bias"]
    np.testing.assert_allclose(arrays_of(result)["layer.bias"], expected, atol=1e-5)


def test_a_function_that_the_strategy_names_and_no_app_has_is_told_once(grid_of, tmp_path, caplog):
    with pytest.raises(NothingLearntError, match="all 3 rounds were abandoned"):
        started(grid_of(client_app([private_mod])), tmp_path / "run", Warm(), 9)
    (line,) = [line for line in caplog.messages if "the ClientApp has no" in line]
    assert '@app.train("warm")' in line
    assert line.endswith('add @app.train("warm")')


def query_grid(app, tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(POLICY)

    def config(index):
        return {"state-dir": str(tmp_path / "state" / str(index)), "policy": str(path)}

    return InProcessGrid(app, CLIENTS, node_config=config)


@pytest.mark.parametrize("make", [ClientApp, PrivateClientApp])
def test_a_query_function_with_a_name_answers_or_is_told_the_cure(make, tmp_path):
    app = make(mods=[private_mod]) if make is ClientApp else make()

    @app.query("lengths")
    def lengths(message, context):
        index = context.node_config["partition-id"]
        return Message(RecordDict({"results": MetricRecord(answered(index))}), reply_to=message)

    grid = PrivateQueries(
        query_grid(app, tmp_path),
        SUMS,
        privacy={"model": "none"},
        secagg=SECAGG,
        out=tmp_path / "run",
    )
    if make is ClientApp:
        with pytest.raises(ConfigError, match=r"no @app.query\(\), .* PrivateClientApp\(\)"):
            list(grid.get_node_ids())
        return
    messages = [Message(RecordDict(), node, "query.lengths") for node in grid.get_node_ids()]
    (reply,) = grid.send_and_receive(messages)
    total = sum(answered(index)["length_count"] for index in range(CLIENTS))
    assert reply.content["results"]["length_count"] == total
