"""A federated evaluation releases the figures that the task has, and invents none."""

import json
import math
from collections.abc import Mapping
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from zerosum.client.task import ClientInfo
from zerosum.client.training.local import LocalTrainer
from zerosum.server.config import ConfigError
from zerosum.server.planning.spent_budget import run_spending
from zerosum.server.runs.run_folder import RunFolder
from zerosum.simulations import api
from zerosum.simulations.commands.summary import summary_table
from zerosum.simulations.report.record import read_run
from zerosum.simulations.report.words import outcome

TASK = """
import torch
from torch import nn


class {name}:
    def model(self):
        return nn.Linear(3, {outputs})

    def num_clients(self):
        return 6

    def data(self, client):
        generator = torch.Generator().manual_seed(client.index)
        inputs = torch.randn(8, 3, generator=generator)
        return inputs, {targets}

    def test_data(self):
        return {test}

    def loss(self, outputs, targets):
        return {loss}
{more}
"""

KINDS = {
    "regression": {
        "outputs": 1,
        "targets": "inputs.sum(1)",
        "loss": "(outputs.squeeze(1) - targets).square()",
    },
    "one_logit": {
        "outputs": 1,
        "targets": "(inputs.sum(1) > 0).long()",
        "loss": "nn.functional.binary_cross_entropy_with_logits("
        "outputs.squeeze(1), targets.float(), reduction='none')",
    },
    "soft_labels": {
        "outputs": 2,
        "targets": "torch.softmax(inputs[:, :2], 1)",
        "loss": "nn.functional.cross_entropy(outputs, targets, reduction='none')",
    },
    "ignored_labels": {
        "outputs": 2,
        "targets": "torch.tensor([0, -100, 1, 0, 1, -100, 0, 1])",
        "loss": "nn.functional.cross_entropy(outputs, targets, reduction='none')",
    },
    "sequences": {
        "outputs": 2,
        "targets": "(inputs[:, None] > 0).long().squeeze(1)",
        "loss": "nn.functional.cross_entropy("
        "outputs[..., None].expand(-1, -1, 3), targets, reduction='none').mean(1)",
    },
    "own_metrics": {
        "outputs": 1,
        "targets": "inputs.sum(1)",
        "loss": "(outputs.squeeze(1) - targets).square()",
        "more": "    def metrics(self, outputs, targets):\n"
        "        return {'bias': outputs.squeeze(1) - targets}",
    },
    "classes": {
        "outputs": 2,
        "targets": "(inputs.sum(1) > 0).long()",
        "loss": "nn.functional.cross_entropy(outputs, targets, reduction='none')",
    },
}
FIGURES = {name: ["loss"] for name in KINDS} | {
    "own_metrics": ["bias", "loss"],
    "classes": ["accuracy", "loss"],
}

TESTED = "torch.ones(8, 3), torch.zeros(8).long()"
WHOLE = ["sampling.kind=everyone", "rounds=2", "evaluation.federated_every=1", "engine=serial"]
NOISED = [
    *WHOLE,
    "privacy.delta=1e-2",
    "evaluation.federated_noise_multiplier=0.05",
    "secagg.protocol=ideal",
]
NOISELESS = [*WHOLE, "privacy.model=none", "secagg.protocol=ideal"]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    def written(kind: str, test: str = "None") -> str:
        name = f"kind_{kind}_{tmp_path.name}".replace("-", "_")
        text = TASK.format(name="Kind", **{"more": "", "test": test} | KINDS[kind])
        (tmp_path / f"{name}.py").write_text(text)
        return f"task={name}:Kind"

    return written


def federated(record: Mapping[str, object]) -> list[str]:
    names = [name.removeprefix("federated_") for name in record if name.startswith("federated_")]
    return sorted(name for name in names if name != "status" and not name.endswith("_noise_std"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_noiseless_evaluation_has_the_figures_of_its_task(kind: str, write, tmp_path) -> None:
    result = api.run({}, overrides=[write(kind), *NOISELESS], out=tmp_path / "run", report=False)
    assert federated(result.rounds[-1]) == FIGURES[kind]
    planned = api.plan(RunFolder.open(result.folder).experiment)
    trainer = LocalTrainer(planned.task, planned.experiment.training)
    vector = np.concatenate([value.ravel() for value in result.model.values()])
    sums = [trainer.evaluate(vector, planned.task.data(ClientInfo(i, 6))) for i in range(6)]
    for name in FIGURES[kind]:
        expected = sum(each[name] for each in sums) / sum(each["count"] for each in sums)
        assert result.metrics[f"federated_{name}"] == pytest.approx(expected, abs=1e-3)


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize(
    ("kind", "length", "names"),
    [("regression", 2, ["loss"]), ("own_metrics", 2, ["loss"]),
     ("classes", 3, ["accuracy", "loss"])],
)  # fmt: skip
def test_under_dp_as_many_coordinates_are_noised_as_are_accounted(
    kind: str, length: int, names: list[str], write, tmp_path
) -> None:
    result = api.run({}, overrides=[write(kind), *NOISED], out=tmp_path / "run", report=False)
    assert federated(result.rounds[-1]) == names
    header = json.loads((result.folder / "ledger.jsonl").read_text().splitlines()[0])
    assert header["kinds"]["evaluate"]["length"] == length
    spent = run_spending(RunFolder.open(result.folder))
    assert spent.kinds["evaluate"].sums == 2
    for against in spent.observers.values():
        planned = pytest.approx(against.planned, rel=1e-9)
        assert against.left == 0.0 or against.bound.value == planned


@pytest.mark.slow
def test_a_metric_with_a_largest_magnitude_is_summed_under_dp(write, tmp_path) -> None:
    settings = [write("own_metrics"), *NOISED, "evaluation.federated_metrics={bias=4.0}"]
    result = api.run({}, overrides=settings, out=tmp_path / "run", report=False)
    noiseless = [write("own_metrics"), *NOISELESS]
    exact = api.run({}, overrides=noiseless, out=tmp_path / "exact", report=False)
    assert federated(result.rounds[-1]) == ["bias", "loss"]
    noise = result.metrics["federated_bias_noise_std"]
    assert 0 < noise < 0.2
    vector = np.concatenate([value.ravel() for value in result.model.values()])
    planned = api.plan(RunFolder.open(result.folder).experiment)
    trainer = LocalTrainer(planned.task, planned.experiment.training)
    means = [trainer.evaluate(vector, planned.task.data(ClientInfo(i, 6)))["bias"] / 8
             for i in range(6)]  # fmt: skip
    assert result.metrics["federated_bias"] == pytest.approx(np.mean(means), abs=5 * noise)
    assert federated(exact.rounds[-1]) == ["bias", "loss"]


def test_a_metric_that_the_task_lacks_is_refused_by_its_name(write, tmp_path) -> None:
    settings = [write("regression"), *NOISED, "evaluation.federated_metrics={accuracy=1.0}"]
    with pytest.raises(ConfigError, match="federated_metrics names accuracy, which the task does"):
        api.run({}, overrides=settings, out=tmp_path / "run", report=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["loss", "count", "status", "cut_of", "loss_noise_std", " "])
def test_a_metric_has_a_name_of_its_own(name: str) -> None:
    values = {"evaluation": {"federated_metrics": {name: 1.0}}}
    with pytest.raises(ConfigError, match="name a metric of the task"):
        api.load_experiment(values)


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize(
    ("kind", "said"),
    [("one_logit", "one output an example"), ("ignored_labels", "label -100"),
     ("sequences", "not one class an example")],
)  # fmt: skip
def test_tests_without_accuracy_say_why(kind: str, said: str, write, tmp_path) -> None:
    test = "self.data(type('C', (), {'index': 99}))"
    settings = [write(kind, test), *NOISELESS]
    result = api.run({}, overrides=settings, out=tmp_path / "run", report=False)
    assert "test_accuracy" not in result.metrics
    assert "test_loss" in result.metrics
    assert said in result.summary["no_accuracy"]
    log = (result.folder / "server.log").read_text()
    assert log.count("no accuracy") == 1
    assert said in log
    assert said in outcome(read_run(RunFolder.open(result.folder)))[1]


def test_numbers_to_regress_on_need_no_word(write, tmp_path) -> None:
    test = "self.data(type('C', (), {'index': 99}))"
    settings = [write("regression", test), *NOISELESS]
    result = api.run({}, overrides=settings, out=tmp_path / "run", report=False)
    assert "no_accuracy" not in result.summary
    assert not (result.folder / "server.log").exists()


@pytest.mark.slow
def test_a_diverged_model_is_shown_as_one_in_files_that_are_json(write, tmp_path) -> None:
    test = "tuple(1e30 * part for part in self.data(type('C', (), {'index': 99})))"
    settings = [write("regression", test), *NOISELESS]
    result = api.run({}, overrides=settings, out=tmp_path / "run")
    assert not math.isfinite(result.metrics["test_loss"])

    def refuse(name: str) -> None:
        raise AssertionError(name)

    for name in ("metrics.jsonl", "summary.json"):
        text = (result.folder / name).read_text()
        for line in text.splitlines() if name.endswith("l") else [text]:
            json.loads(line, parse_constant=refuse)
    run = read_run(RunFolder.open(result.folder))
    assert "infinite" in outcome(run)[1] or "not a number" in outcome(run)[1]


@pytest.mark.slow
def test_a_figure_of_an_earlier_model_says_so_and_counts_are_no_figures(write, tmp_path) -> None:
    """The last round's evaluation is missing: what is shown beside its tests is another model's."""
    settings = [*NOISELESS, write("classes", test=TESTED), "rounds=3"]
    settings += ["evaluation.federated_every=2"]
    result = api.run({}, overrides=settings, out=tmp_path / "run")
    assert result.summary["earlier_metrics"] == {"federated_loss": 2, "federated_accuracy": 2}
    shown = list(summary_table(result.summary).columns[0].cells)
    assert {"test accuracy", "federated accuracy, of round 2"} <= set(shown)
    console = Console(file=(text := StringIO()))
    console.print(summary_table(result.summary | {"metrics": {"test_[/b]": 1.0}}))
    assert "test [/b]" in text.getvalue()
    assert "of round 2" in (result.folder / "report.html").read_text()
    record = read_run(RunFolder(result.folder))
    record.rounds[-1] |= {"federated_cut": [1, 0, 0, 0], "federated_cut_of": 18}
    assert record.metrics == result.metrics
    even = api.run({}, overrides=[*settings, "rounds=2"], out=tmp_path / "even", report=False)
    assert "earlier_metrics" not in even.summary
