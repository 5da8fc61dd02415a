"""Other people's Flower apps: nothing leaves in plain, and no server chooses what one app sees."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import (
    FedAvg,
)
from strategy_apps import CLIENTS, OPEN, STEP, Wire, client_app, model, plain, says, trained

from zerosum.client.flower.private_mod import PrivateClientApp, private_mod
from zerosum.client.protocol import flower_messages
from zerosum.server.flower.private_strategy import PrivateStrategy
from zerosum.server.runs.run_outcome import NothingLearntError
from zerosum.simulations.engine.grid import FIRST_NODE


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
    assert "is PrivateStrategy around the server's strategy (a loop over" in reply.error.reason
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


@pytest.mark.parametrize("error", [OSError("secret-record-17"), SystemExit("secret-record-17")])
def test_an_error_around_the_mod_leaves_the_node_unless_the_app_is_private(
    error, grid_of, tmp_path, caplog
):
    """The control shows why: Flower sends the text of what an app raises."""

    def failing(app):
        @app.lifespan()
        def lifespan(context):
            raise error
            yield  # type: ignore[unreachable] # makes it the generator that Flower asks for

        @app.train()
        def train(message, context):
            return message

        return Wire(app)

    control = failing(ClientApp(mods=[private_mod]))
    with pytest.raises(type(error), match="secret-record-17"):
        control(Message(RecordDict(), FIRST_NODE, "train"), None)
    private = failing(PrivateClientApp())
    strategy = PrivateStrategy(FedAvg(fraction_evaluate=0.0), out=tmp_path / "run", **OPEN)
    with pytest.raises(NothingLearntError):
        strategy.start(grid_of(private), model(), 1)
    assert len(private.errors) == CLIENTS
    assert not any("secret-record-17" in said for said in private.errors)
    assert "secret-record-17" in caplog.text
