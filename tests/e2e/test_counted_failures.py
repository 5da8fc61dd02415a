"""Clients that fail to train are counted in a simulation, whatever computes and protects them."""

import json

import numpy as np
import pytest
import tomli_w
import torch
from pydantic import ValidationError
from typer.testing import CliRunner

from zerosum.client import TaskError
from zerosum.client.protocol.training_outcomes import NOT_FINITE_CURE
from zerosum.client.training.initial_model import initial_vector
from zerosum.server.runs.run_folder import CLIENT_LOG, METRICS, MODEL, SUMMARY
from zerosum.server.runs.run_outcome import NothingLearntError
from zerosum.simulations import api, load_experiment
from zerosum.simulations.commands import plan
from zerosum.simulations.commands.main import app
from zerosum.simulations.commands.summary import summary_table
from zerosum.simulations.engine.trial_client import MOST_TRIED
from zerosum.simulations.terminal.round_lines import describe

CLIENTS = 8
pytestmark = pytest.mark.usefixtures("one_thread")


class Failing:
    """A task of whose clients some fail: to load, to compute, or to compute anything finite."""

    def __init__(self, loads=(), computes=(), infinite=(), empty=()):
        self.loads, self.computes = set(loads), set(computes)
        self.infinite, self.empty = set(infinite), set(empty)

    def model(self):
        return torch.nn.Linear(4, 3)

    def num_clients(self):
        return CLIENTS

    def data(self, client):
        index = client.index
        if index in self.loads:
            raise OSError(f"disk of {index}\ncannot be read")
        inputs = torch.eye(4).repeat(2, 1) + index / 10
        targets = torch.arange(8) % 3
        if index in self.computes:
            targets = targets + 7  # no such class: cross_entropy raises
        if index in self.infinite:
            inputs = inputs * torch.inf
        rows = 0 if index in self.empty else 8
        return inputs[:rows], targets[:rows]

    def test_data(self):
        return torch.ones(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])

    def loss(self, outputs, targets):
        return torch.nn.functional.cross_entropy(outputs, targets, reduction="none")


SOME = {"loads": [1], "computes": [2, 3], "infinite": [4], "empty": [5]}
"""Four fail, one has nothing, three train."""

FIRST = "client 1: OSError: disk of 1"

BASE = {
    "task": "failing",
    "rounds": 2,
    "engine": "serial",
    "sampling": {"kind": "everyone"},
    "secagg": {"dropout": 0.6, "server": "semi-honest", "protocol": "ideal"},
    "privacy": {"delta": 0.01, "clip": 0.5, "noise_multiplier": 0.5, "honest_fraction": 0.3},
    "training": {"epochs": 1},
}
PLAIN = ["privacy.model=none"]
BY_EXAMPLE = [
    *("privacy.unit=example", "privacy.examples=64", "privacy.lot=60", "encoding.range=100.0"),
]
INSIDE = [
    *("privacy.model=local", "training.steps=2", "secagg.dropout=0.1"),
    *("privacy.honest_fraction=0.5", *BY_EXAMPLE),
]

SETTINGS = {
    "trusted sum": [],
    "masks": ["secagg.protocol=pairwise"],
    "no masks": ["secagg.protocol=none"],
    "no noise, trusted sum": PLAIN,
    "no noise, masks": [*PLAIN, "secagg.protocol=pairwise"],
    "local noise": ["privacy.model=local", "encoding.range=10.0"],
    "central noise": ["privacy.model=central"],
    "general trainer": ["trainer=general"],
    "fast trainer": ["trainer=fast"],
    "batched trainer": ["trainer=batched"],
    "batched trainer, no noise": ["trainer=batched", *PLAIN],
    "two processes": ["engine=processes", "workers=2"],
    "two processes, masks, no noise": [
        *("engine=processes", "workers=2", "secagg.protocol=pairwise", *PLAIN)
    ],
    "sums of gradients": BY_EXAMPLE,
    "sums of gradients, masks": [*BY_EXAMPLE, "secagg.protocol=pairwise"],
    "noise inside training": INSIDE,
}


@pytest.fixture
def simulate(tmp_path, monkeypatch):
    """Return a function that runs a task with some settings."""

    def simulate(task, *settings, report=False, **options):
        monkeypatch.setattr(api, "resolve_task", lambda *arguments: task)
        experiment = load_experiment(BASE, settings)
        return api.run(experiment, out=tmp_path / "run", report=report, **options)

    return simulate


LESS_OFTEN = ("sums of gradients, masks", "batched trainer, no noise", "no masks", "fast trainer")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * (n in LESS_OFTEN)) for n in SETTINGS],
)
def test_failed_idle_and_trained_clients_are_counted_under(name, simulate):
    result = simulate(Failing(**SOME), *SETTINGS[name])
    for record in result.rounds:
        counts = {key: record.get(f"clients_{key}") for key in ("trained", "failed", "idle")}
        assert counts == {"trained": 3, "failed": 4, "idle": 1}
        assert record["first_failure"] == FIRST
        assert f"4 of 8 clients failed to train ({FIRST})" in describe(record, 2)
        assert "untrained" not in record
    failures = result.summary["failures"]
    assert (failures["clients_failed"], failures["clients_idle"]) == (8, 2)
    assert failures["first_failure"] == f"round 1, {FIRST}"
    assert result.summary["nothing_learnt"] is None


@pytest.mark.slow
def test_a_run_without_failures_says_nothing_of_them(simulate):
    result = simulate(Failing())
    assert all("failed" not in describe(record, 2) for record in result.rounds)
    table = summary_table(result.summary)
    assert "failures of training" not in list(table.columns[0].cells)


def test_what_a_callback_does_to_its_record_is_in_no_figure_of_the_run(simulate):
    def take_apart(record):
        record.dropouts.clear()
        record["epsilon"].clear()
        with pytest.raises(ValidationError, match="frozen"):
            record.clients_failed = 0

    result = simulate(Failing(**SOME), on_round=take_apart)
    assert all(record.dropouts and record["epsilon"] for record in result.rounds)
    assert [record["clients_failed"] for record in result.rounds] == [4, 4]
    assert result.summary["failures"]["clients_failed"] == 8


def test_failures_are_in_table_and_report(simulate):
    result = simulate(Failing(**SOME), report=True)
    table = summary_table(result.summary)
    rows = dict(zip(table.columns[0].cells, table.columns[1].cells, strict=True))
    assert rows["failures of training"] == "8 of 16"
    assert rows["the first of them"] == f"in round 1, {FIRST}"
    page = (result.folder / "report.html").read_text()
    assert "8 of 16 answers failed in training" in page
    assert FIRST in page


def test_an_example_without_a_gradient_is_counted_and_its_client_trains(simulate):
    class Spoiled(Failing):
        def data(self, client):
            inputs, targets = super().data(client)
            if client.index == 6:
                inputs = inputs.clone()
                inputs[2] = torch.nan
            return inputs, targets

    result = simulate(Spoiled(), *BY_EXAMPLE, "rounds=1", "privacy.lot=64")
    (record,) = result.rounds
    assert (record["clients_trained"], record["examples_failed"]) == (8, 1)
    assert "1 examples failed (client 6: the gradient of an example" in describe(record, 1)
    assert f"infinite: {NOT_FINITE_CURE})" in describe(record, 1)


EVERYBODY = range(CLIENTS)
NOBODY_LEARNS = {
    "all fail to load": ({"loads": EVERYBODY}, "16 failures of training, the first in round 1, c"),
    "all diverge": ({"infinite": EVERYBODY}, "16 failures of training"),
    "all are empty": ({"empty": EVERYBODY}, "16 answers were zero: their clients hold or drew no"),
}


@pytest.mark.slow
@pytest.mark.parametrize("settings", [[], BY_EXAMPLE, INSIDE], ids=["client", "example", "inside"])
@pytest.mark.parametrize("name", NOBODY_LEARNS)
def test_a_run_ends_with_an_error_after_everything_is_written_where(
    name, settings, simulate, monkeypatch
):
    given, message = NOBODY_LEARNS[name]
    monkeypatch.setattr(api, "take_trial_step", tried_with(Failing()))
    with pytest.raises(NothingLearntError, match=message) as ended:
        simulate(Failing(**given), *settings, report=not settings)
    result = ended.value.result
    assert "no client trained in any of 2 rounds" in str(ended.value)
    there = (result.folder / CLIENT_LOG).exists()  # clients without records write nothing
    assert (CLIENT_LOG in str(ended.value)) == there == (name != "all are empty")
    written = {path.name for path in result.folder.iterdir()}
    assert {MODEL, SUMMARY, METRICS} <= written
    if not settings:
        assert "so nothing was learnt" in (result.folder / "report.html").read_text()
    assert "accuracy (of the" not in describe(result.rounds[0], 2)
    assert "of the untrained model" in describe(result.rounds[0], 2)
    table = summary_table(result.summary)
    assert "test accuracy, of the untrained model" in list(table.columns[0].cells)


def tried_with(task):
    """Return a trial that another task passes."""
    return lambda _, count, experiment: real_trial_step(task, count, experiment)


real_trial_step = api.take_trial_step


def test_the_command_exits_with_1_and_the_first_error(tmp_path, monkeypatch):
    monkeypatch.setattr(api, "resolve_task", lambda *arguments: Failing(loads=EVERYBODY))
    monkeypatch.setattr(api, "take_trial_step", tried_with(Failing()))
    experiment, folder = tmp_path / "failing.toml", tmp_path / "run"
    experiment.write_text(tomli_w.dumps(BASE | {"rounds": 1}))
    done = CliRunner().invoke(app, ["run", str(experiment), "--out", str(folder)])
    assert done.exit_code == 1, done.output
    said = " ".join(done.output.split())
    assert "error: no client trained in the one round" in said
    assert "OSError: disk of" in said
    assert (folder / SUMMARY).exists()


def test_a_resumed_run_that_learns_later_ends_well(simulate, tmp_path, monkeypatch):
    monkeypatch.setattr(api, "take_trial_step", tried_with(Failing()))
    with pytest.raises(NothingLearntError):
        simulate(Failing(empty=EVERYBODY), "rounds=1", *PLAIN)
    monkeypatch.setattr(api, "resolve_task", lambda *arguments: Failing())
    result = api.resume(tmp_path / "run", overrides=["rounds=2"], report=False)
    assert [r.get("untrained", False) for r in result.rounds] == [True, False]
    assert not result.summary["untrained"]


class Broken(Failing):
    """A task whose loss has no gradient, which a forward pass does not show."""

    def loss(self, outputs, targets):
        return super().loss(outputs, targets).detach()


class OnlyEvaluates(Failing):
    """A task whose model fails in train mode."""

    def model(self):
        class Model(torch.nn.Linear):
            def forward(self, inputs):
                if self.training:
                    raise NotImplementedError("no train mode")
                return super().forward(inputs)

        return Model(4, 3)


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("settings", [[], BY_EXAMPLE], ids=["client", "example"])
@pytest.mark.parametrize(
    ("task", "message"),
    [
        (Broken(), "depend on no trained parameter|has a gradient of its own"),
        (OnlyEvaluates(), "NotImplementedError: no train mode"),
        (
            Failing(loads=EVERYBODY),
            r"task = 'failing': its data\(\), model or loss\(\) fails for client 0, "
            "and 7 more fail: OSError",
        ),
        (Failing(computes=EVERYBODY), "IndexError"),
    ],
    ids=["detached", "train mode", "loads", "classes"],
)
def test_a_task_that_never_takes_a_step_is_refused_before_anything_is_written(
    task, message, settings, simulate, tmp_path
):
    with pytest.raises(TaskError, match=message) as refused:
        simulate(task, *settings)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", [["plan"], ["run", "--dry-run"]], ids=["plan", "dry run"])
def test_the_plan_of_a_task_that_never_takes_a_step_is_one_line_and_2(
    command, tmp_path, monkeypatch
):
    for module in (api, plan):
        monkeypatch.setattr(module, "resolve_task", lambda *arguments: Broken())
    experiment = tmp_path / "failing.toml"
    experiment.write_text(tomli_w.dumps(BASE))
    done = CliRunner().invoke(app, [*command, str(experiment)])
    assert done.exit_code == 2, done.output
    assert "error: model: the losses depend on no trained parameter" in done.stderr
    assert "is an output detached" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.slow
def test_more_clients_than_there_are_records_for_can_be_planned(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "resolve_task", lambda *arguments: Failing())
    experiment = tmp_path / "failing.toml"
    experiment.write_text(tomli_w.dumps(BASE))
    found = plan.plan(str(experiment), population=1_000_000)
    assert found.values["population"] == 1_000_000


def test_a_first_step_to_infinity_is_refused_where_it_is_every_clients(simulate):
    with pytest.raises(TaskError, match="first step of training leads to NaN or infinity"):
        simulate(Failing(infinite=EVERYBODY))


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize("name", ["loads", "computes", "infinite", "empty"])
def test_a_first_client_that_cannot_train_is_not_the_tasks_fault(name, simulate):
    result = simulate(Failing(**{name: [0, 1]}), "rounds=1")
    assert result.rounds[0]["clients_trained"] == CLIENTS - 2


def test_of_many_clients_a_few_are_tried(monkeypatch):
    asked = []

    class Watched(Failing):
        def data(self, client):
            asked.append(client.index)
            raise OSError("gone")

    with pytest.raises(TaskError):
        real_trial_step(Watched(), 1000, load_experiment(BASE))
    assert len(asked) == MOST_TRIED
    assert asked == sorted(set(asked))
    assert asked[-1] > 900


class Stateful(Failing):
    """A task whose model has a buffer, drops units, and works in place on its inputs."""

    def __init__(self):
        super().__init__()
        self.records = torch.eye(4).repeat(2, 1), torch.arange(8) % 3

    def data(self, client):
        return self.records

    def model(self):
        class InPlace(torch.nn.Module):
            def forward(self, inputs):
                return inputs.mul_(0.5)

        return torch.nn.Sequential(InPlace(), torch.nn.Dropout(0.5), torch.nn.Linear(4, 3))


def test_the_trial_leaves_no_trace():
    task = Stateful()
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002  # whether the trial moves it is the question
    expected = torch.rand(1), np.random.rand()  # noqa: NPY002
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    trainer = real_trial_step(task, CLIENTS, load_experiment(BASE))
    assert (torch.rand(1), np.random.rand()) == expected  # noqa: NPY002
    assert torch.equal(task.records[0], torch.eye(4).repeat(2, 1))
    # The trainer that comes back holds the first model.
    weights = trainer.to_state_dict(trainer._flat.weights.numpy())
    first = trainer.to_state_dict(initial_vector(task, load_experiment(BASE).seed))
    assert all(np.array_equal(weights[name], first[name]) for name in first)


@pytest.mark.slow
def test_the_trial_changes_no_bit_of_a_run(simulate, tmp_path, monkeypatch):
    tried = simulate(Failing(), "rounds=2")
    before = (tried.folder / MODEL).read_bytes()
    tried.folder.rename(tmp_path / "tried")
    made = real_trial_step(Failing(), CLIENTS, load_experiment(BASE))
    monkeypatch.setattr(api, "take_trial_step", lambda *arguments: made)
    assert (simulate(Failing(), "rounds=2").folder / MODEL).read_bytes() == before


def test_a_failed_evaluation_is_counted_too(simulate):
    class Blind(Failing):
        def data(self, client):
            if client.split == "test" and client.index == 3:
                raise OSError("no test records")
            return super().data(client)

    settings = ["evaluation.federated_every=1", "rounds=1", *PLAIN]
    result = simulate(Blind(), *settings, report=True)
    (record,) = result.rounds
    assert record["evaluations_failed"] == 1
    said = record["first_failed_evaluation"]
    assert said == "client 3: OSError: no test records"
    table = summary_table(result.summary)
    rows = dict(zip(table.columns[0].cells, table.columns[1].cells, strict=True))
    assert "failures of training" not in rows
    assert rows["failures of evaluation"] == "1"
    assert rows["the first such"] == f"in round 1, {said}"
    assert f"1 evaluation by clients failed; the first in round 1, {said}" in (
        (result.folder / "report.html").read_text()
    )
    assert "1 clients failed to evaluate" in describe(record, 1)


def test_metrics_are_found_where_a_client_can_be_evaluated(simulate):
    class Blind(Failing):
        def __init__(self, blind):
            super().__init__()
            self.blind = blind

        def data(self, client):
            if client.split == "test" and client.index < self.blind:
                raise OSError("no test records")
            return super().data(client)

        def test_data(self):
            return None

    settings = ["evaluation.federated_every=1", "rounds=1", *PLAIN]
    (record,) = simulate(Blind(2), *settings).rounds
    assert record["evaluations_failed"] == 2
    assert 0 <= record["federated_accuracy"] <= 1
    with pytest.raises(TaskError, match=r"cannot be evaluated .*: OSError: no test records"):
        simulate(Blind(CLIENTS), *settings)


@pytest.mark.slow
def test_the_lines_of_a_run_are_the_same_whatever_computes_it(simulate, tmp_path):
    found = []
    for name in ("trusted sum", "two processes"):
        result = simulate(Failing(**SOME), *SETTINGS[name])
        lines = (result.folder / METRICS).read_text().splitlines()
        counted = [
            {k: v for k, v in json.loads(line).items() if k.startswith(("clients_", "first_"))}
            for line in lines
        ]
        found.append(counted)
        result.folder.rename(tmp_path / name)
    assert found[0] == found[1]
