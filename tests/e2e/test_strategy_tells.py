"""What a wrapped strategy or app loses is told: by name, in one line, before it does any harm."""

import copy
import logging
import pickle
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from strategy_apps import (
    CLIENTS,
    NOISY,
    OPEN,
    POLICY,
    Wire,
    arrays_of,
    client_app,
    model,
    plain,
    trained,
)

from zerosum.client.flower.app_request import stage_type
from zerosum.client.flower.private_mod import private_mod
from zerosum.server.config import ConfigError
from zerosum.server.flower.private_strategy import PrivateStrategy
from zerosum.server.runs.run_outcome import NothingLearntError


def started(grid, out, inner, rounds=1, **settings):
    strategy = PrivateStrategy(inner, out=out, **(OPEN | settings))
    return strategy.start(grid, model(), rounds)


class Counting(FedAvg):
    def aggregate_train(self, server_round, replies):
        self.clients = len(replies)
        return super().aggregate_train(server_round, replies)


class Picking(FedAvg):
    def aggregate_train(self, server_round, replies):
        first = replies[0]
        return first.content["arrays"], None


class PerClient(FedAvg):
    def aggregate_train(self, server_round, replies):
        self.losses = [reply.content["metrics"]["train_loss"] for reply in list(replies)]
        return super().aggregate_train(server_round, replies)


class Naming(FedAvg):
    def aggregate_train(self, server_round, replies):
        kept = list(replies)
        self.who = {reply.metadata.src_node_id for reply in kept}
        return super().aggregate_train(server_round, kept)


class Evaluating(FedAvg):
    def aggregate_evaluate(self, server_round, replies):
        self.worst = max(reply.content["metrics"]["eval_loss"] for reply in replies)
        return super().aggregate_evaluate(server_round, replies)


LOOKS = {
    Counting: r"Counting\.aggregate_train reads the number of replies",
    Picking: r"Picking\.aggregate_train reads single replies",
    PerClient: r"PerClient\.aggregate_train reads the content of single replies",
    Naming: r"Naming\.aggregate_train reads the metadata of single replies",
    Evaluating: r"Evaluating\.aggregate_evaluate reads the content of single replies",
}


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("kind", LOOKS)
def test_a_strategy_that_looks_at_replies_is_refused_by_name(kind, grid_of, tmp_path):
    grid, inner = grid_of(client_app([private_mod])), kind()
    with pytest.raises(ConfigError, match=LOOKS[kind]) as refused:
        started(grid, tmp_path / "run", inner, metrics={"eval_loss": 10.0})
    said = str(refused.value)
    assert said.startswith(f"PrivateStrategy({kind.__name__}(...)): ")
    assert "call super()" in said
    assert "averages=True" in said
    assert "\n" not in said


class Saving(FedAvg):
    """The commonest override: hand on, look at what comes back."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.saved: list[Any] = []

    def aggregate_train(self, server_round, replies):
        if not replies:
            return None, None
        replies = [reply for reply in list(replies) if not reply.has_error()]
        arrays, metrics = super().aggregate_train(server_round, replies)
        self.saved.append(arrays)
        return arrays, metrics

    def aggregate_evaluate(self, server_round, replies):
        metrics = super().aggregate_evaluate(server_round, replies)
        self.saved.append(metrics)
        return metrics


def test_a_strategy_that_works_on_what_was_averaged_runs(grid_of, tmp_path):
    inner = Saving()
    settings = OPEN | {"metrics": {"eval_loss": 10.0}}
    result = started(grid_of(client_app([private_mod])), tmp_path / "run", inner, **settings)
    arrays, metrics = inner.saved
    assert dict(metrics)["eval_loss"] == pytest.approx(3.0, abs=1e-3)
    expected = arrays_of(plain(FedAvg(fraction_evaluate=0.0), rounds=1))["layer.bias"]
    np.testing.assert_allclose(arrays["layer.bias"].numpy(), expected, atol=1e-5)
    np.testing.assert_array_equal(arrays_of(result)["layer.bias"], arrays["layer.bias"].numpy())


class Averaging(FedAvg):
    """An average of one's own: of one reply it is the reply."""

    def aggregate_train(self, server_round, replies):
        contents = [reply.content for reply in replies]
        sums = [content["arrays"]["layer.bias"].numpy() for content in contents]
        mean = ArrayRecord({"layer.bias": Array(sum(sums) / len(sums))})
        return mean, None


@pytest.mark.slow
def test_who_says_that_a_strategy_averages_may_let_it_read(grid_of, tmp_path):
    inner = Averaging(fraction_evaluate=0.0)
    grid = grid_of(client_app([private_mod]))
    with pytest.raises(ConfigError, match="averages=True"):
        started(grid, tmp_path / "a", inner)
    found = started(grid, tmp_path / "b", inner, averages=True)
    expected = arrays_of(plain(FedAvg(fraction_evaluate=0.0), rounds=1))["layer.bias"]
    np.testing.assert_allclose(arrays_of(found)["layer.bias"], expected, atol=1e-5)


class Differing(FedAvg):
    def configure_train(self, server_round, arrays, config, grid):
        messages = list(super().configure_train(server_round, arrays, config, grid))
        for number, message in enumerate(messages):
            content = RecordDict(dict(message.content))
            config = content.config_records["config"]
            content["config"] = ConfigRecord({**config, "seed": number})
            message.content = content
        return messages


class Doubled(FedAvg):
    def configure_train(self, server_round, arrays, config, grid):
        messages = list(super().configure_train(server_round, arrays, config, grid))
        for message in messages:
            message.content = RecordDict({**message.content, "control": model()})
        return messages


@pytest.mark.parametrize(
    ("inner", "said"),
    [(Differing, "different messages"), (Doubled, "exactly one ArrayRecord, and this has 2")],
)
def test_messages_that_no_sum_can_answer_are_refused_before_anybody_is_asked(
    inner, said, grid_of, tmp_path
):
    seen = Wire(client_app([private_mod]))
    with pytest.raises(ConfigError, match=said):
        started(grid_of(seen), tmp_path / "run", inner(fraction_evaluate=0.0))
    assert {stage_type(content) for content in seen.sent} == {"query.hello"}


def test_arrays_that_are_no_numbers_are_refused_before_nodes_are_met(grid_of, tmp_path):
    seen = Wire(client_app([private_mod]))
    names = ArrayRecord({"names": Array(np.array(["a", "b"]))})
    strategy = PrivateStrategy(FedAvg(), out=tmp_path / "run", **OPEN)
    with pytest.raises(ConfigError, match="initial_arrays"):
        strategy.start(grid_of(seen), names, 1)
    assert seen.sent == []


def mean_loss(records, weighted_by):
    losses = [record["metrics"]["train_loss"] for record in records]
    return MetricRecord({"train_loss": sum(losses) / len(losses)})


def spread(records, weighted_by):
    raise ArithmeticError("of one reply there is no variance")


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize(
    ("name", "function", "said"),
    [
        ("train_metrics_aggr_fn", mean_loss, "mean_loss needs 'train_loss'"),
        ("evaluate_metrics_aggr_fn", mean_loss, "mean_loss needs 'train_loss'"),
        ("train_metrics_aggr_fn", spread, "spread fails: ArithmeticError: of one reply"),
    ],
)
def test_a_function_of_metrics_that_are_not_there_ends_in_a_line(
    name, function, said, grid_of, tmp_path
):
    inner = FedAvg(**{name: function})
    settings = OPEN | {"metrics": {"eval_loss": 10.0}}
    with pytest.raises(ConfigError) as ended:
        started(grid_of(client_app([private_mod])), tmp_path / "run", inner, **settings)
    line = str(ended.value)
    assert line.startswith(f"{name} = {said}")
    there = "'metrics' with " + ("survivors" if name.startswith("train") else "eval_loss")
    assert there in line
    assert "\n" not in line
    assert getattr(inner, name) is function, "and the strategy is left as it was"


class Losses:
    """A function with a state: the rounds that it was called in."""

    def __init__(self, wanted):
        self.calls, self.wanted = 0, wanted

    def __call__(self, records, weighted_by):
        self.calls += 1
        return MetricRecord({"found": float(records[0]["metrics"][self.wanted])})


def of_one_argument(records):
    return MetricRecord()


@pytest.mark.parametrize(
    ("of", "function"),
    [("train", mean_loss), ("evaluate", mean_loss), ("train", spread), ("train", of_one_argument),
     ("train", Losses("train_loss")), ("evaluate", Losses("survivors"))],
)  # fmt: skip
def test_a_function_that_fails_on_names_alone_is_refused_before_nodes_are_met(
    of, function, grid_of, tmp_path
):
    seen = Wire(client_app([private_mod]))
    inner = FedAvg(**{f"{of}_metrics_aggr_fn": function})
    settings = OPEN | {"metrics": {"eval_loss": 10.0}}
    with pytest.raises(ConfigError, match=f"{of}_metrics_aggr_fn = .* of a private sum there is"):
        started(grid_of(seen), tmp_path / "run", inner, **settings)
    assert seen.sent == []
    assert not isinstance(function, Losses) or function.calls == 0


def test_a_function_that_reads_what_is_there_is_called_once_a_round(grid_of, tmp_path):
    functions = [Losses("survivors"), Losses("eval_loss")]
    inner = FedAvg(train_metrics_aggr_fn=functions[0], evaluate_metrics_aggr_fn=functions[1])
    settings = OPEN | {"metrics": {"eval_loss": 10.0}}
    result = started(grid_of(client_app([private_mod])), tmp_path / "run", inner, **settings)
    assert result.train_metrics_clientapp[1]["found"] == CLIENTS
    rounds = len(result.train_metrics_clientapp)
    assert [function.calls for function in functions] == [rounds, rounds]


class OwnAverage(FedAvg):
    """It does without the functions, so that what these lack is no matter."""

    def aggregate_train(self, server_round, replies):
        arrays, _ = FedAvg().aggregate_train(server_round, replies)
        return arrays, MetricRecord({"own": 1.0})


def test_a_function_that_nothing_calls_may_lack_what_it_likes(grid_of, tmp_path):
    inner = OwnAverage(fraction_evaluate=0.0, train_metrics_aggr_fn=mean_loss,
                       evaluate_metrics_aggr_fn=mean_loss)  # fmt: skip
    settings = OPEN | {"metrics": {"eval_loss": 10.0}}
    result = started(grid_of(client_app([private_mod])), tmp_path / "run", inner, **settings)
    assert result.train_metrics_clientapp[1] == {"own": 1.0}


def mean_of_own(records, weighted_by):
    """Read a record of one's own, as an app that sends metrics in one does."""
    total = sum(record["metrics"][weighted_by] for record in records)
    loss = sum(record["mm"]["loss"] * record["metrics"][weighted_by] for record in records)
    return MetricRecord({"loss": loss / total})


def mean_by_another_weight(records, weighted_by):
    return MetricRecord({"weight": records[0]["metrics"]["num-examples"]})


@pytest.mark.quick_one_in(2)
@pytest.mark.parametrize(
    ("function", "lacks"), [(mean_of_own, "mm"), (mean_by_another_weight, "num-examples")]
)
def test_a_function_that_reads_a_record_of_its_own_ends_in_a_line(
    function, lacks, grid_of, tmp_path
):
    inner = FedAvg(fraction_evaluate=0.0, weighted_by_key="n", train_metrics_aggr_fn=function)
    with pytest.raises(ConfigError) as ended:
        started(grid_of(client_app([private_mod])), tmp_path / "run", inner)
    line = str(ended.value)
    assert line.startswith(f"train_metrics_aggr_fn = {function.__name__} needs {lacks!r}; ")
    assert "which has 'metrics' with survivors, n: " in line
    assert "\n" not in line


@pytest.mark.slow
def test_a_default_in_place_of_a_metric_is_told(grid_of, tmp_path, caplog):
    def lenient(records, weighted_by):
        return MetricRecord({"loss": records[0]["metrics"].get("train_loss", 0.0)})

    inner = FedAvg(fraction_evaluate=0.0, train_metrics_aggr_fn=lenient)
    result = started(grid_of(client_app([private_mod])), tmp_path / "run", inner)
    assert result.train_metrics_clientapp[1]["loss"] == 0.0
    assert "a private sum has no 'train_loss'; it has survivors, num-examples" in caplog.text


def test_the_nodes_of_a_sum_are_told_in_place_of_one_result(grid_of, tmp_path, caplog):
    caplog.set_level(logging.INFO, "flwr")
    grid, settings = grid_of(client_app([private_mod])), OPEN | {"metrics": {"eval_loss": 10.0}}
    started(grid, tmp_path / "run", FedAvg(), **settings)
    for of in ("train", "evaluate"):
        said = f"aggregate_{of}: Received one reply, the mean of {CLIENTS} nodes"
        assert said in caplog.messages
    assert f"configure_train: Sampled {CLIENTS} nodes (out of {CLIENTS})" in caplog.messages
    assert "results and" not in caplog.text
    caplog.clear()
    plain(FedAvg(fraction_evaluate=0.0), rounds=1)
    said = f"aggregate_train: Received {CLIENTS} results and 0 failures"
    assert said in caplog.messages, "Flower's own log is as it was"


def test_nodes_that_the_strategy_chose_in_vain_are_told(grid_of, tmp_path, caplog):
    caplog.set_level(logging.INFO, "flwr")
    drawn = OPEN | {"sampling": {"kind": "fixed", "cohort": CLIENTS - 1}}
    inner = FedAvg(fraction_evaluate=0.0)
    started(grid_of(client_app([private_mod])), tmp_path / "run", inner, **drawn)
    assert f"(out of {CLIENTS}): not these are asked, but a cohort by sampling=" in caplog.text
    assert f"Received one reply, the mean of {CLIENTS - 1} nodes" in caplog.text


@pytest.mark.slow
def test_weights_are_told_as_they_are(grid_of, tmp_path, caplog):
    caplog.set_level(logging.INFO, "flwr")
    inner = FedAvg(fraction_evaluate=0.0)
    grid = grid_of(client_app([private_mod]))
    started(grid, tmp_path / "a", inner)
    assert "Weights: uniform" in caplog.text
    assert "Weighted by" not in caplog.text
    caplog.clear()
    PrivateStrategy(inner, **OPEN).summary()
    assert "Weighted by" not in caplog.text
    caplog.clear()
    started(grid, tmp_path / "b", inner, weighting="examples")
    assert "Weighted by: 'num-examples'" in caplog.text
    caplog.clear()
    inner.summary()
    assert "Weighted by" in caplog.text, "Flower's own log is as it was"


class Named(FedAvg):
    def __init__(self):
        super().__init__(fraction_evaluate=0.0, min_available_nodes=4)
        self.save_path = "best.pt"
        self.epsilon = "its own"
        self.note = ""


def test_attributes_pass_through_and_own_names_win():
    inner = Named()
    strategy = PrivateStrategy(inner, **OPEN)
    assert (strategy.fraction_train, strategy.save_path) == (1.0, "best.pt")
    strategy.save_path, strategy.fraction_train, strategy.note = "other.pt", 0.5, "new"
    assert (inner.save_path, inner.fraction_train, inner.note) == ("other.pt", 0.5, "new")
    assert strategy.epsilon == {}
    with pytest.raises(AttributeError, match="'Named' object has no attribute 'absent'"):
        _ = strategy.absent
    with pytest.raises(AttributeError, match="'PrivateStrategy' object has no attribute '_absent'"):
        _ = strategy._absent
    for copied in (
        copy.copy(strategy),
        copy.deepcopy(strategy),
        pickle.loads(pickle.dumps(strategy)),  # noqa: S301
    ):
        assert copied.save_path == "other.pt"
    inner.min_available_nodes = 5
    assert strategy._experiment(1).deployment.min_nodes == 5, "read when it is started"


METRICS: dict[str, Any] = {"metrics": {"accuracy": 1.0}}


@pytest.mark.slow
def test_a_metric_of_another_name_is_named_at_the_server(grid_of, tmp_path, caplog):
    caplog.set_level(logging.WARNING, "flwr")
    settings = OPEN | METRICS
    started(grid_of(client_app([private_mod])), tmp_path / "run", FedAvg(), **settings)
    (line,) = [
        record.getMessage()
        for record in caplog.records
        if record.name == "flwr" and "abandoned" in record.getMessage()
    ]
    assert "finite number for each of 'num-examples', 'accuracy'" in line
    assert "6 refused; most often the node's policy" in line
    assert "a reply to evaluate needs" in line
    assert "each node's own log" in line


def told_of_counts(caplog):
    said = [record.getMessage() for record in caplog.records if record.name == "flwr"]
    return [line for line in said if "counts" in line and "that answered" in line]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["accuracy", "eval_acc"])
def test_under_privacy_a_noised_count_says_that_metrics_are_missing(
    name, grid_of, tmp_path, caplog
):
    """The control's app has the metric: then nothing is said, whatever the noise."""
    caplog.set_level(logging.WARNING, "flwr")
    settings = NOISY | {"metrics": {name: 1.0}, "evaluation_noise": 0.2}
    grid = grid_of(client_app([private_mod]))
    (tmp_path / "policy.toml").write_text(POLICY + "min_noise_multiplier = 0.1\n")
    started(grid, tmp_path / "run", FedAvg(), **settings)
    lines = told_of_counts(caplog)
    assert len(lines) == (name == "accuracy")
    if lines:
        assert "of 6 that answered" in lines[0]
        assert "'num-examples', 'accuracy'" in lines[0]
        assert not any(str(1_000 + index) in lines[0] for index in range(CLIENTS))


def of_a_list(index):
    return {"accuracy": [0.5, 0.5], "num-examples": 3}


@pytest.mark.slow
def test_a_metric_of_another_kind_is_named_once_where_some_clients_have_it(
    grid_of, tmp_path, caplog
):
    caplog.set_level(logging.WARNING, "flwr")
    app = ClientApp(mods=[private_mod])

    @app.train()
    def train(message, context):
        index, config = context.node_config["partition-id"], message.content["config"]
        arrays = trained(message.content["arrays"], index, config)
        return Message(RecordDict({"arrays": arrays}), reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        one = context.node_config["partition-id"] == 1
        metrics = of_a_list(1) if one else {"accuracy": 0.5, "num-examples": 3}
        return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)

    result = started(grid_of(app), tmp_path / "run", FedAvg(), rounds=2, **(OPEN | METRICS))
    assert dict(result.evaluate_metrics_clientapp[2]) == pytest.approx({"accuracy": 0.5}, abs=1e-3)
    said = [r.getMessage() for r in caplog.records if "of the clients 1 refused" in r.getMessage()]
    assert len(said) == 1
    assert "'num-examples', 'accuracy'" in said[0]


def test_a_reply_of_two_array_records_is_named_where_all_rounds_are_abandoned(grid_of, tmp_path):
    app = ClientApp(mods=[private_mod])

    @app.train()
    def train(message, context):
        arrays = message.content["arrays"]
        return Message(RecordDict({"arrays": arrays, "control": arrays}), reply_to=message)

    with pytest.raises(NothingLearntError, match="a reply to train needs one ArrayRecord"):
        started(grid_of(app), tmp_path / "run", FedAvg(fraction_evaluate=0.0))
