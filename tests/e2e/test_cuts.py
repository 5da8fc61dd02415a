"""Updates beyond the encoding's range in whole runs: none arrives cut without a word."""

import logging
import re
from contextlib import suppress
from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from narrowed import present
from policies import LEAST_TOML
from rich.console import Console

from zerosum.client.flower.private_mod import private_mod
from zerosum.client.protocol.admission import Declined
from zerosum.client.protocol.client_vector import protection_for
from zerosum.client.protocol.protection import Protection
from zerosum.client.request import ModelRequest, model_payload
from zerosum.secagg import Session
from zerosum.server.flower.private_strategy import PrivateStrategy
from zerosum.server.privacy.protections import question_of
from zerosum.server.runs.run_folder import CLIENT_LOG, METRICS, SERVER_LOG, RunFolder
from zerosum.server.runs.run_outcome import NothingLearntError
from zerosum.simulations import api, load_experiment
from zerosum.simulations.commands.summary import summary_table
from zerosum.simulations.engine.grid import InProcessGrid
from zerosum.simulations.report.record import read_run
from zerosum.simulations.report.words import cautions
from zerosum.simulations.terminal.round_lines import describe

CLIENTS, WEIGHTS = 4, 4
pytestmark = pytest.mark.usefixtures("one_thread")


class Moving:
    """A task whose clients move their four weights by known amounts: one step along -moves."""

    def __init__(self, moves, loss=0.0):
        self._moves, self._loss = np.asarray(moves, dtype=np.float32), loss

    def model(self):
        layer = torch.nn.Linear(1, WEIGHTS, bias=False)
        torch.nn.init.zeros_(layer.weight)
        return layer

    def num_clients(self):
        return len(self._moves)

    def data(self, client):
        return torch.ones(1, 1), torch.from_numpy(self._moves[client.index][None])

    def test_data(self):
        return None

    def loss(self, outputs, targets):
        return self._loss - (outputs * targets).sum(1)


MOVES = np.zeros((CLIENTS, WEIGHTS))
MOVES[:, 0] = [1.0, 2.0, -3.0, 4.0]
MOVES[2, 1] = 100.0
"""Of one weight of one client: beyond ten times a range of 8, within a hundred times it."""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return a function that runs a task of known moves with some settings."""

    def run(*settings, moves=MOVES, name="run", loss=0.0, report=False):
        task = Moving(moves, loss)
        monkeypatch.setattr(api, "resolve_task", lambda *arguments: task)
        base = {
            "task": "moving",
            "rounds": 1,
            "engine": "serial",
            "trainer": "general",
            "sampling": {"kind": "everyone"},
            "secagg": {"dropout": 0.25},
            "privacy": {"model": "none", "clip": "none"},
            "encoding": {"range": 8.0, "bits": 24},
            "training": {"epochs": 1, "lr": 1.0, "momentum": 0.0},
        }
        return api.run(load_experiment(base, settings), out=tmp_path / name, report=report)

    run.folder = tmp_path  # type: ignore[attr-defined] # read beside what it returns
    return run


def records_of(run, *settings, name="run", **given):
    """Run, and return the lines of metrics, however a run of abandoned rounds alone ends."""
    with suppress(Exception):
        run(*settings, name=name, **given)
    return RunFolder(run.folder / name).read_lines(METRICS)


def weights(result):
    return next(iter(result.model.values())).ravel()


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("protocol", ["pairwise", "ideal", "none"])
def test_one_of_four_that_moves_by_a_hundred_ends_the_round_and_the_range_named_holds(
    run, protocol
):
    """Pasting the range's line gives the plain mean of the moves."""
    settings = [f"secagg.protocol={protocol}"]
    (record,) = records_of(run, *settings)
    assert record["status"] == "abandoned"
    assert "1 of 16 coordinates of 4 clients were beyond encoding.range = 8.0" in record["reason"]
    assert (record["cut"], record["cut_of"]) == ([1, 1, 0, 0], 16)
    cure = present(re.search(r"^set (encoding.range) = (\S+): 1 of 16", record["reason"]))
    assert cure.group(2) == "800.0"
    held = run(*settings, "=".join(cure.groups()), name="held")
    (record,) = held.rounds
    assert record["status"] == "completed"
    assert "cut" not in record
    assert held.summary["cut"] == [0, 0, 0, 0]
    np.testing.assert_allclose(weights(held), MOVES.mean(0), atol=800 / (2**23 - 1))


def test_the_clients_log_says_it_once_and_the_servers_in_each_round(run):
    records_of(run, "rounds=3", "secagg.protocol=ideal")
    lines = (run.folder / "run" / CLIENT_LOG).read_text().splitlines()
    said = [line for line in lines if "were cut" in line]
    assert len(said) == 1  # equal ones at powers of ten
    assert "client 2, round 1: 1 of 4 coordinates were cut to 8; the largest was 100" in said[0]
    server = (run.folder / "run" / SERVER_LOG).read_text()
    assert (
        server.count("is abandoned: set encoding.range = 800.0: 1 of 16 coordinates of 4 clients")
        == 3
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "protocol", ["pairwise", pytest.param("ideal", marks=pytest.mark.slow), "none"]
)
def test_workers_count_what_one_process_does(run, protocol):
    settings = [f"secagg.protocol={protocol}", "rounds=2"]
    few = np.zeros((1200, WEIGHTS))
    few[7, 3] = 9.0  # one of 4,800: borne, and told
    moves = few if protocol == "ideal" else few[:9]
    one = records_of(run, *settings, moves=moves, name="one")
    two = records_of(run, *settings, "engine=processes", "workers=2", moves=moves, name="two")
    for records in (one, two):
        assert [r["cut"] for r in records] == [[1, 0, 0, 0]] * 2
        status = "completed" if protocol == "ideal" else "abandoned"
        assert [r["status"] for r in records] == [status] * 2
        assert [r["cut_of"] for r in records] == [moves.size] * 2
    assert [r.get("average_norm") for r in one] == [r.get("average_norm") for r in two]


@pytest.mark.slow
def test_what_is_cut_and_borne_is_told_in_line_table_and_report(run):
    moves = np.zeros((1200, WEIGHTS))
    moves[7, 3] = 9.0
    result = run("secagg.protocol=ideal", moves=moves)
    line = describe(result.rounds[0], 1)
    assert line.endswith(", cut to the range: 1 of 4,800 coordinates")
    console = Console(width=200, file=(text := StringIO()))
    console.print(summary_table(result.summary))
    assert "1, of which 0 tenfold beyond it" in text.getvalue()
    said = " ".join(cautions(read_run(RunFolder(result.folder))))
    assert "In 1 round clients cut 1 of 4,800 coordinates" in said


@pytest.mark.slow
def test_a_run_goes_on_where_it_was_and_counts_both_parts(run):
    moves = np.zeros((1200, WEIGHTS))
    moves[7, 3] = 9.0
    whole = run("secagg.protocol=ideal", "rounds=3", moves=moves, name="whole")
    part = run("secagg.protocol=ideal", "rounds=1", moves=moves, name="part")
    resumed = api.resume(part.folder, overrides=["rounds=3"], report=False)
    assert resumed.summary["cut"] == whole.summary["cut"] == [3, 0, 0, 0]
    assert (weights(resumed) == weights(whole)).all()


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        ((-1, 0, 0, 0), "exceeds what they can send"),
        ((5, 5, 0, 6), "exceeds what they can send"),
        ((4, 4, 4, 4), "beyond 1,000 times it"),
    ],
)
def test_a_client_that_lies_about_its_cuts_costs_the_round_and_no_more(
    run, monkeypatch, lie, reason
):
    def lying(self, update, total, *, whose, **streams):
        sent = self.protect(update, whose=whose, **streams)
        if whose == "client 1, round 1":
            sent[-4:] = lie
        total.add(sent)

    monkeypatch.setattr(Protection, "add_protected", lying)
    moves = np.ones((CLIENTS, WEIGHTS))
    result = run("rounds=2", moves=moves)
    assert [r["status"] for r in result.rounds] == ["abandoned", "completed"]
    assert reason in result.rounds[0]["reason"]
    np.testing.assert_allclose(weights(result), 1.0, atol=1e-5)


def test_under_a_robust_rule_a_far_client_is_borne_and_counts_are_no_coordinates(run):
    settings = ["secagg.protocol=none", "server.rule=krum", "server.rule_malicious=1"]
    moves = np.ones((7, WEIGHTS))
    moves[3] = 1e6
    moves[:3, 0] = [0.5, 0.75, 1.25]
    result = run(*settings, moves=moves)
    assert result.rounds[0]["status"] == "completed"
    assert result.rounds[0]["cut"] == [4, 4, 4, 4]
    np.testing.assert_allclose(weights(result), 1.0, atol=1e-5)
    (far,) = records_of(run, *settings, moves=100 * np.ones((7, WEIGHTS)), name="far")
    assert "set encoding.range = 800.0" in far["reason"]


@pytest.mark.slow
def test_losses_beyond_what_is_summed_end_the_evaluation_with_its_own_cure(run):
    settings = ["evaluation.federated_every=1"]
    result = run(*settings, moves=np.ones((CLIENTS, WEIGHTS)), loss=2e6)
    assert result.rounds[0]["status"] == "completed"
    assert result.rounds[0]["federated_status"] == "abandoned"
    assert "4 of 8 coordinates" in result.rounds[0]["federated_reason"]
    assert "evaluation.federated_every = 0" in result.rounds[0]["federated_reason"]
    right = run(*settings, moves=np.ones((CLIENTS, WEIGHTS)), loss=2e5, name="right")
    assert right.rounds[0]["federated_status"] == "completed"
    assert right.rounds[0]["federated_loss"] == pytest.approx(2e5 - 4, abs=0.1)


def test_a_private_run_sends_no_counts_and_logs_its_cuts_at_home(run):
    private = ["privacy.model=distributed", "privacy.clip=200.0", "privacy.delta=0.01"]
    private += ["privacy.noise_multiplier=1.0", "privacy.honest_fraction=0.5"]
    private += ["encoding.bits=16", "secagg.server=semi-honest"]
    private += ["evaluation.federated_every=1", "evaluation.federated_noise_multiplier=1.0"]
    result = run(*private, loss=2e6)
    assert result.rounds[0]["status"] == "completed"
    assert "cut" not in result.rounds[0]
    assert result.summary["cut"] is None
    log = (result.folder / CLIENT_LOG).read_text()
    assert "client 2, round 1: 1 of 4 coordinates were cut to 8" in log
    assert re.search(r"client 0, round 1: a mean loss of \S+ was cut to 10", log)


def test_a_client_of_a_version_that_counts_otherwise_takes_no_part(run):
    """Its session names no counts: nothing is sent whose layout the two sides read differently."""
    experiment = load_experiment(
        {"task": "moving", "privacy": {"model": "none", "clip": "none"}, "encoding": {"range": 8.0}}
    )
    question = question_of(experiment, 1, CLIENTS, noise_draw="per_client")
    request = ModelRequest(question, model_payload(np.zeros(WEIGHTS, np.float32)))
    protection = Protection.build(
        question.privacy, question.encoding, cohort=4, dimension=WEIGHTS, rotation_seed=bytes(32)
    )
    now = Session(
        run_id=bytes(16), round=1, attempt=0, roster_version=0, roster_digest=bytes(32),
        cohort=(0, 1, 2, 3), threshold=3, min_survivors=3, ring_bits=protection.ring_bits,
        vector_length=protection.length, degree=3, bounds=protection.bounds,
    )  # fmt: skip
    assert protection_for(request, now) == protection
    earlier = re.sub(rb'"cuts":\[[^]]*\],', b"", protection.bounds)
    assert earlier != protection.bounds
    before = replace(now, bounds=earlier, vector_length=WEIGHTS)
    with pytest.raises(Declined, match="update the older one"):
        protection_for(request, before)


def moving_app():
    """An ordinary ClientApp whose client moves its weights as MOVES says."""
    app = ClientApp(mods=[private_mod])

    @app.train()
    def train(message, context):
        move = MOVES[context.node_config["partition-id"]].astype(np.float32)
        arrays = ArrayRecord({"w": Array(message.content["arrays"]["w"].numpy() + move)})
        metrics = MetricRecord({"num-examples": 1})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        loss = 100.0 * context.node_config["partition-id"]
        metrics = MetricRecord({"eval_loss": loss, "num-examples": 1})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


@pytest.fixture
def started(tmp_path):
    """Return a function that starts PrivateStrategy over four nodes with files of their own."""
    policy = tmp_path / "policy.toml"
    policy.write_text('models = ["none", "distributed"]\nservers = ["semi-honest"]\n' + LEAST_TOML)

    def started(name, strategy, **settings):
        grid = InProcessGrid(
            moving_app(),
            CLIENTS,
            node_config=lambda index: {
                "state-dir": str(tmp_path / name / str(index)),
                "policy": str(policy),
            },
        )
        private = PrivateStrategy(
            strategy,
            out=tmp_path / f"run-{name}",
            privacy={"model": "none", "clip": "none"},
            secagg={"server": "semi-honest", "dropout": 0.25},
            **settings,
        )
        initial = ArrayRecord({"w": Array(np.zeros(WEIGHTS, np.float32))})
        return private.start(grid, initial, 1)

    return started


@pytest.mark.slow
def test_a_deployed_round_ends_like_a_simulated_one(started, caplog):
    silent = FedAvg(fraction_evaluate=0.0)
    with caplog.at_level(logging.INFO):
        with suppress(Exception):  # however a run of abandoned rounds alone ends
            started("cut", silent, encoding={"range": 8.0, "bits": 24})
        assert 'set encoding={"range": 800.0}: 1 of 16' in caplog.text
        assert "client 2, round 1: 1 of 4 coordinates were cut to 8" in caplog.text
    held = started("held", silent, encoding={"range": 800.0, "bits": 24})
    np.testing.assert_allclose(held.arrays["w"].numpy(), MOVES.mean(0), atol=800 / (2**23 - 1))


@pytest.mark.slow
def test_a_metric_beyond_its_magnitude_is_whole_without_noise(started):
    result = started(
        "metrics", FedAvg(), encoding={"range": 800.0, "bits": 24}, metrics={"eval_loss": 10.0}
    )
    found = result.evaluate_metrics_clientapp[1]["eval_loss"]
    assert found == pytest.approx(150.0, abs=1e-3)  # cut to 10: 7.5


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("protocol", ["pairwise", "ideal", "none"])
def test_a_range_under_which_all_updates_round_to_zero_ends_the_run_with_an_error(run, protocol):
    """Every round completes and every client trained; the model is the initial one all the same."""
    moves = 1e-3 * np.ones((CLIENTS, WEIGHTS))
    with pytest.raises(NothingLearntError, match=r"lower encoding\.range") as ended:
        run(f"secagg.protocol={protocol}", "encoding.range=1e15", moves=moves)
    (record,) = ended.value.result.rounds
    assert record["status"] == "completed"
    assert record["clients_trained"] == CLIENTS
    assert "the average is zero" in describe(record, 1)
    assert ended.value.result.summary["untrained"]
