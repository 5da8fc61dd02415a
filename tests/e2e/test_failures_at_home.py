"""A deployment tells a node's operator of failures and refusals, and its server of neither."""

import json
import logging

import numpy as np
import pytest
from client_answers import answer_by
from flwr.app import Context, Message, RecordDict
from narrowed import present
from policies import LEAST_TOML

from zerosum.client.flower.client_app import DeployedEnvironment, build_app
from zerosum.client.protocol import flower_messages
from zerosum.client.protocol.noise_source import SystemEntropy
from zerosum.client.protocol.training_outcomes import FAILED_AT_HOME
from zerosum.client.task import TaskError
from zerosum.client.training.initial_model import initial_vector
from zerosum.server.config import ConfigError
from zerosum.server.flower import node_registry
from zerosum.server.flower.node_registry import wait_for_nodes
from zerosum.server.flower.server_app import serve
from zerosum.server.runs.run_folder import METRICS, SUMMARY
from zerosum.server.runs.run_outcome import NothingLearntError
from zerosum.server.spec import DeploymentSpec
from zerosum.simulations import api, load_experiment
from zerosum.simulations.engine.grid import FIRST_NODE, InProcessGrid

CLIENTS = 4
EXPERIMENT = """
task = "digits"
rounds = 2
[data]
clients = 4
[model]
name = "linear"
[sampling]
kind = "everyone"
[privacy]
clip = 1.0
noise_multiplier = 2.0
delta = 0.05
honest_fraction = 0.6
allow_large_delta = true
[secagg]
server = "semi-honest"
dropout = 0.2
[deployment]
min_nodes = 4
stage_timeout = 5.0
pipeline = false
"""
PLAIN = "privacy.model=none privacy.clip=none encoding.range=4.0"

pytestmark = pytest.mark.usefixtures("one_thread")


class Federation:
    """Four nodes and the ServerApps that they answer; every reply's size is kept."""

    def __init__(self, folder, policy=""):
        folder.mkdir(exist_ok=True)
        self.folder, self.out, self.runs = folder, folder / "run", 0
        (folder / "experiment.toml").write_text(EXPERIMENT)
        given = policy or 'servers = ["semi-honest"]\nmodels = ["none", "distributed"]\n'
        (folder / "policy.toml").write_text(given + LEAST_TOML)
        self.app = build_app(DeployedEnvironment)
        self.sizes = []

    def node_config(self, index):
        state = str(self.folder / "state" / str(index))
        return {"state-dir": state, "policy": str(self.folder / "policy.toml")}

    def serve(self, overrides="", lost=lambda message: False):
        self.runs += 1

        def app(message, context):
            if lost(message):
                raise RuntimeError("out of reach")
            reply = self.app(message, context)
            kind = message.metadata.message_type
            self.sizes.append((kind, sorted(reply.content), flower_messages.size(reply.content)))
            return reply

        grid = InProcessGrid(app, CLIENTS, node_config=self.node_config, run_id=self.runs)
        config = {
            "experiment": str(self.folder / "experiment.toml"),
            "overrides": overrides,
            "out": str(self.out),
        }
        context = Context(
            run_id=self.runs, node_id=1, node_config={}, state=RecordDict(), run_config=config
        )
        return serve(grid, context, SystemEntropy())

    @property
    def lines(self):
        return [json.loads(line) for line in (self.out / METRICS).read_text().splitlines()]


def broken(self, request, client, entropy):
    raise OSError("secret-record-17 cannot be read")


@pytest.mark.slow
def test_nothing_of_a_failure_reaches_the_servers_records(tmp_path, monkeypatch, caplog):
    calm = Federation(tmp_path / "calm")
    calm.serve()
    failing = Federation(tmp_path / "failing")
    answer_by(monkeypatch, broken)
    result = failing.serve()
    # What travels has the same form and size, and what is written the same keys and counts.
    assert failing.sizes == calm.sizes
    counted = ("cohort", "survivors", "dropouts", "status", "bytes_up_per_client", "epsilon")
    for ours, theirs in zip(failing.lines, calm.lines, strict=True):
        assert ours.keys() == theirs.keys()
        assert [ours[key] for key in counted] == [theirs[key] for key in counted]
    assert result.summary["failures"] is None
    for path in failing.out.rglob("*"):
        assert path.is_dir() or b"secret-record-17" not in path.read_bytes(), path
    # The nodes' own logs say so, in words that a rehearsal counts.
    ours = [r.getMessage() for r in caplog.records if r.name == "zerosum.client"]
    said = [line for line in ours if any(part in line for part in FAILED_AT_HOME)]
    assert len(said) == 2 * CLIENTS
    told = [r.getMessage() for r in caplog.records if r.name == "zerosum.server"]
    assert not any("failed" in line for line in told)


def test_a_simulation_of_the_same_counts_them(tmp_path, monkeypatch):
    """The control: what the test above looks for is there where it may be."""
    (tmp_path / "experiment.toml").write_text(EXPERIMENT)
    experiment = load_experiment(tmp_path / "experiment.toml", ["engine=serial"])
    answer_by(monkeypatch, broken)
    with pytest.raises(NothingLearntError, match="8 failures of training") as ended:
        api.run(experiment, out=tmp_path / "run", report=False)
    assert "secret-record-17" in (tmp_path / "run" / METRICS).read_text()
    assert ended.value.result.rounds[0]["clients_failed"] == CLIENTS


def contributes(message):
    return message.metadata.message_type == flower_messages.STAGE_TYPES["contribute"]


def test_a_run_of_abandoned_rounds_ends_with_an_error_and_the_initial_model(tmp_path):
    nodes = Federation(tmp_path)
    with pytest.raises(NothingLearntError) as ended:
        nodes.serve(lost=contributes)
    said = str(ended.value)
    assert "all 2 rounds were abandoned" in said
    assert "of 8 clients asked 8 passed advertise, 8 passed share, 0 passed contribute" in said
    assert "(8 refused it)" in said
    assert "each node's own log" in said
    result = ended.value.result
    experiment = result_experiment(nodes)
    start = initial_vector(api.plan(experiment).task, experiment.seed)
    found = np.concatenate([value.ravel() for value in result.model.values()])
    np.testing.assert_array_equal(found, start)
    assert json.loads((nodes.out / SUMMARY).read_text())["untrained"]
    assert all(line["epsilon_charged"]["local"] > 0 for line in nodes.lines)


@pytest.mark.slow
def test_refusals_are_counted_where_the_next_round_rides_along(tmp_path, caplog):
    policy = 'servers = ["semi-honest"]\nmodels = ["distributed"]\nmax_clip = 0.001\n'
    nodes = Federation(tmp_path, policy)
    with pytest.raises(NothingLearntError, match=r"0 passed contribute \(12 refused it\)"):
        nodes.serve("rounds=3 deployment.pipeline=true")
    # Three rounds, of one reason: each node's log has it once.
    said = [line for line in caplog.messages if "exceeds the policy's 0.001" in line]
    assert len(said) == CLIENTS


def result_experiment(nodes):
    return load_experiment(nodes.out / "config.toml", [])


@pytest.mark.slow
def test_a_run_whose_first_rounds_were_abandoned_is_resumed_and_ends_well(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    nodes = Federation(tmp_path)
    with pytest.raises(NothingLearntError):
        nodes.serve(lost=contributes)
    result = nodes.serve("rounds=3")
    assert [line["status"] for line in nodes.lines] == ["abandoned", "abandoned", "completed"]
    assert [line.get("untrained", False) for line in nodes.lines] == [True, True, False]
    assert result.summary["nothing_learnt"] is None
    told = [line for line in caplog.messages if "abandoned" in line and "survived" in line]
    assert len(told) == 2
    assert all("of the untrained model" in line for line in told)
    assert all("charged epsilon" in line for line in told)


def test_a_task_that_takes_no_step_on_the_servers_test_data_is_refused(tmp_path, monkeypatch):
    from zerosum.simulations.data.tasks import DigitsTask

    loss = DigitsTask.loss
    monkeypatch.setattr(DigitsTask, "loss", lambda *given: loss(*given).detach())
    nodes = Federation(tmp_path)
    with pytest.raises(TaskError, match=r"losses depend on no trained parameter"):
        nodes.serve(PLAIN)
    assert not nodes.out.exists()


def test_a_loss_that_raises_on_the_servers_test_data_is_named(tmp_path, monkeypatch):
    from zerosum.simulations.data.tasks import DigitsTask

    monkeypatch.setattr(DigitsTask, "loss", lambda *given: 1 / 0)
    with pytest.raises(TaskError, match=r"model or loss\(\) fails on test_data\(\): ZeroDivision"):
        Federation(tmp_path).serve(PLAIN)


def test_a_node_logs_a_refusal_once_and_then_how_often(caplog):
    """Without a state-dir a node refuses each hello, and a server says hello again and again."""
    grid = InProcessGrid(build_app(DeployedEnvironment), 1)
    for _ in range(30):
        (reply,) = grid.send_and_receive(
            [Message(flower_messages.pack({}), FIRST_NODE, flower_messages.HELLO_TYPE)]
        )
        assert flower_messages.OWN_LOG in present(reply.error.reason)
    said = [line for line in caplog.messages if "declined to hello" in line]
    assert len(said) == 2
    assert "state-dir" in said[0]
    assert "10 times so far" in said[1]


def test_the_server_counts_who_answered_what_and_names_no_cause_that_it_does_not_know(
    monkeypatch, caplog
):
    app = build_app(DeployedEnvironment)
    clock = iter(range(10_000))
    monkeypatch.setattr(node_registry.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(node_registry.time, "monotonic", lambda: float(next(clock)))
    hellos = []

    def mixed(message, context):
        index = context.node_config["partition-id"]
        hellos.append(index)
        if index == 0:
            return Message(flower_messages.pack({"index": 0}), reply_to=message)
        if index == 1:
            return app(message, context)
        raise KeyError("no such\nmessage")

    grid = InProcessGrid(mixed, 3)
    spec = DeploymentSpec(min_nodes=3, stage_timeout=0.05, start_timeout=600)
    with pytest.raises(ConfigError, match="of 3 nodes connected 1 answered, 2 refused and 0 did"):
        wait_for_nodes(grid, spec)
    of_ours, of_others = (
        [line for line in caplog.messages if f"node {FIRST_NODE + index} " in line]
        for index in (1, 2)
    )
    assert len(of_ours) == len(of_others) == 1
    assert "in that node's own log" in of_ours[0]
    assert "private_mod" not in of_ours[0]
    assert "private_mod" in of_others[0]
    assert "\n" not in of_others[0]
    # Asked in 600 s: after 4, 8, 16, 32, 60, 60, ... seconds, where it was each 2 s.
    assert hellos.count(1) <= 16
