"""Figures of the whole public test set: tried before a run, in its rounds, and where they fail."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from zerosum.client import TaskError
from zerosum.client.task import ClientInfo
from zerosum.server.config import ConfigError
from zerosum.server.runs.run_folder import MODEL, SUMMARY, TEST_SET
from zerosum.simulations import api
from zerosum.simulations.commands.summary import summary_table
from zerosum.simulations.report import write_public_report

pytestmark = pytest.mark.usefixtures("one_thread")


class Halves:
    """Two classes of which the first coordinate tells, in batches of 7 of 20 test records."""

    def model(self):
        return torch.nn.Linear(3, 2)

    def num_clients(self):
        return 4

    def data(self, client: ClientInfo):
        return self.records(client.index)

    def test_data(self):
        return self.records(99)

    def records(self, seed):
        inputs = torch.randn(20, 3, generator=torch.Generator().manual_seed(seed))
        return inputs, (inputs[:, 0] > 0).long()

    def loss(self, outputs, targets):
        return torch.nn.functional.cross_entropy(outputs, targets, reduction="none")


class Auc(Halves):
    """With an area under the curve, which no batch of one class has."""

    def __init__(self, fails_at=(), answer=None):
        self.calls, self.fails_at, self.answer = 0, fails_at, answer

    def test_metrics(self, outputs, targets):
        self.calls += 1
        if self.calls in self.fails_at:
            raise ValueError("Input contains NaN")
        if self.answer is not None:
            return self.answer
        assert outputs.shape == (20, 2)
        return {"auc": roc_auc_score(targets, outputs[:, 1] - outputs[:, 0])}


BASE = {
    "task": "digits",
    "rounds": 3,
    "engine": "serial",
    "sampling": {"kind": "everyone"},
    "privacy": {"model": "none", "clip": 10.0},
    "secagg": {"protocol": "ideal", "server": "semi-honest"},
    "training": {"epochs": 1, "lr": 0.5},
    "evaluation": {"batch_size": 7},
}


@pytest.fixture
def run(tmp_path, monkeypatch):
    def run(task, *settings, name="run", **options):
        monkeypatch.setattr(api, "resolve_task", lambda *arguments: task)
        return api.run(BASE, overrides=settings, out=tmp_path / name, **options)

    return run


def test_an_auc_of_all_outputs_is_in_every_round(run) -> None:
    result = run(Auc())
    inputs, targets = Halves().test_data()
    model = torch.nn.Linear(3, 2)
    outputs = result.load_into(model)(inputs).detach()
    expected = roc_auc_score(targets, outputs[:, 1] - outputs[:, 0])
    assert result.metrics["test_auc"] == pytest.approx(expected)
    assert all("test_auc" in record.metrics for record in result.rounds)
    page = (result.folder / "report.html").read_text()
    assert "AUC" in page
    # A mean of batches is another figure, where it is one at all.
    parts = [outputs[i : i + 7] for i in (0, 7, 14)]
    means = [roc_auc_score(t, o[:, 1] - o[:, 0])
             for o, t in zip(parts, targets.split(7), strict=True)]  # fmt: skip
    assert np.mean(means) != pytest.approx(expected, abs=1e-9) or expected == 1.0


@pytest.mark.slow
def test_the_model_is_that_without_figures(run) -> None:
    with_auc, without = run(Auc(), name="a"), run(Halves(), name="b")
    assert (with_auc.folder / MODEL).read_bytes() == (without.folder / MODEL).read_bytes()
    names = ("test_loss", "test_accuracy")
    assert [with_auc.metrics[n] for n in names] == [without.metrics[n] for n in names]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"accuracy": 0.5}, "accuracy, which is measured an example already"),
        ({"auc": "high"}, "auc as a str"),
        ([0.5], "a list and no mapping"),
    ],
)
def test_what_is_no_figure_is_refused_before_the_run(run, tmp_path, answer, said) -> None:
    with pytest.raises(TaskError, match=said):
        run(Auc(answer=answer))
    assert not (tmp_path / "run").exists()


def test_a_method_that_fails_is_refused_before_the_run(run, tmp_path) -> None:
    with pytest.raises(
        TaskError, match=r"test_metrics\(outputs, targets\) fails on all of test_da"
    ):
        run(Auc(fails_at=(1,)))
    assert not (tmp_path / "run").exists()


def test_a_failure_in_a_round_is_said_and_costs_that_figure_alone(run) -> None:
    task = Auc(fails_at=(3,))  # the trial, then round 1, then round 2
    result = run(task)
    assert ["test_auc" in record.metrics for record in result.rounds] == [True, False, True]
    assert "test_accuracy" in result.rounds[1].metrics
    assert "test_metrics failed: ValueError" in (result.folder / "server.log").read_text()


def test_a_failure_in_the_last_round_is_in_the_summary(run) -> None:
    result = run(Auc(fails_at=(4,)))
    assert result.summary.lost_tests == "test_metrics failed: ValueError: Input contains NaN"
    assert result.summary.earlier_metrics == {"test_auc": 2}
    cells = summary_table(result.summary).columns[1].cells
    assert any("test_metrics failed" in str(cell) for cell in cells)


def test_nan_of_the_first_model_is_no_reason_to_refuse(run) -> None:
    result = run(Auc(answer={"auc": float("nan")}))
    assert "NaN or infinity for auc" in result.summary.lost_tests


@pytest.mark.slow
def test_best_can_be_a_figure_of_the_whole_set(run) -> None:
    result = run(Auc(), "evaluation.best=auc")
    assert result.best is not None
    with pytest.raises(ConfigError, match=r"evaluation\.best"):
        run(Auc(), "evaluation.best=f1", name="other")


@pytest.mark.slow
def test_a_federated_evaluation_has_none_of_it(run) -> None:
    result = run(Auc(), "evaluation.federated_every=1")
    federated = {name for record in result.rounds for name in record.metrics
                 if name.startswith("federated_")}  # fmt: skip
    assert federated == {"federated_loss", "federated_accuracy"}


class NoMetrics(Auc):
    """Targets are numbers: a federated evaluation has the loss alone, and no accuracy of 0."""

    def model(self):
        return torch.nn.Linear(3, 1)

    def records(self, seed):
        inputs, _ = super().records(seed)
        return inputs, inputs[:, 0] * 2 + 1

    def loss(self, outputs, targets):
        return (outputs.squeeze(1) - targets) ** 2

    def test_metrics(self, outputs, targets):
        return {"r2": 1 - float(((outputs.squeeze(1) - targets) ** 2).mean() / targets.var())}


@pytest.mark.slow
def test_a_regression_has_its_loss_and_the_mean_predictors(run) -> None:
    result = run(NoMetrics(), "evaluation.federated_every=1")
    last = result.rounds[-1].metrics
    assert set(last) == {"test_loss", "test_r2", "federated_loss"}
    targets = NoMetrics().test_data()[1].double()
    variance = float(targets.var(correction=0))
    assert result.reference == {"test_loss": pytest.approx(variance, rel=1e-5)}
    assert "left_out" in result.test_set


def test_confusion_and_reference_are_of_the_final_model(run) -> None:
    result = run(Halves())
    inputs, targets = Halves().test_data()
    guesses = result.load_into(torch.nn.Linear(3, 2))(inputs).argmax(1)
    expected = [[int(((targets == i) & (guesses == j)).sum()) for j in range(2)] for i in range(2)]
    assert result.test_set["confusion"] == expected
    most = max(int((targets == label).sum()) for label in range(2)) / 20
    assert result.reference == {"test_accuracy": most}


@pytest.mark.quick_one_in(2)
@pytest.mark.parametrize("settings", [[], ["evaluation.every=2"]])
def test_resumed_runs_have_the_same_test_set(run, tmp_path, settings) -> None:
    whole = run(Auc(), *settings, "rounds=4", name="whole")
    (whole.folder / TEST_SET).rename(tmp_path / "kept")
    again = api.resume(whole.folder)
    assert (whole.folder / TEST_SET).read_bytes() == (tmp_path / "kept").read_bytes()
    assert again.reference == whole.reference


def test_a_run_that_ends_early_has_the_last_models(run) -> None:
    result = run(Halves(), "evaluation.every=3", "rounds=9",
                 on_round=lambda record: record.round == 2)  # fmt: skip
    assert len(result.rounds) == 2
    inputs, targets = Halves().test_data()
    guesses = result.load_into(torch.nn.Linear(3, 2))(inputs).argmax(1)
    assert result.test_set["accuracy"] == float((guesses == targets).double().mean())


class Never(Halves):
    """A model that cannot learn: its inputs say nothing."""

    def records(self, seed):
        inputs, targets = super().records(seed)
        return inputs * 0, (torch.arange(20) % 4 == 0).long() if seed == 99 else 1 - 0 * targets


def test_no_better_than_the_majority_is_said_in_terminal_and_report(run) -> None:
    result = run(Never())
    rows = summary_table(result.summary).columns
    said = dict(zip(rows[0].cells, rows[1].cells, strict=True))
    assert "no better than that of a predictor that looks at nothing" in str(said["CAUTION"])
    assert "no better than that of a predictor" in (result.folder / "report.html").read_text()


def test_a_tasks_names_of_its_classes_are_in_folder_and_report(run, tmp_path) -> None:
    task: Any = Halves()
    task.class_names = ["small", "large"]
    result = run(task)
    assert result.test_set["class_names"] == ["small", "large"]
    label = result.summary.reference["label"]
    assert result.summary.reference["label_name"] == ["small", "large"][label]
    assert ">small<" in (result.folder / "report.html").read_text()
    write_public_report(result.folder, tmp_path / "public")
    public = json.loads((tmp_path / "public" / TEST_SET).read_text())
    assert public["class_names"] == ["small", "large"]


def test_outsiders_see_no_name_of_a_class_that_public_records_lack(run, tmp_path) -> None:
    """It would say what private records are of."""
    result = run(Halves())
    document = json.loads((result.folder / TEST_SET).read_text())
    document["per_class"][1]["examples"] = 0
    document["class_names"] = ["small", "SECRET"]
    (result.folder / TEST_SET).write_text(json.dumps(document))
    page = write_public_report(result.folder, tmp_path / "public").read_text()
    assert "SECRET" not in page
    assert "SECRET" not in (tmp_path / "public" / TEST_SET).read_text()
    assert ">small<" in page


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize("names", [["one"], "ab", 7, ["a", "b", "c"]])
def test_names_of_other_classes_are_left_out_and_said(run, names, tmp_path) -> None:
    task: Any = Halves()
    task.class_names = names
    result = run(task)
    assert "class_names" not in result.test_set
    assert result.test_set["confusion"]
    said = "Classes are called by their numbers: class_names = "
    assert said in (result.folder / "report.html").read_text()
    assert said not in write_public_report(result.folder, tmp_path / "public").read_text()


@pytest.mark.slow
def test_outsiders_see_the_test_set_and_no_baselines(run, tmp_path) -> None:
    result = run(Halves(), "baselines=true")
    assert result.summary.baselines["alone"]["clients"] == 4
    inside = (result.folder / "report.html").read_text()
    assert "Each client alone" in inside
    out = tmp_path / "public"
    page = write_public_report(result.folder, out).read_text()
    assert "Class by class" in page
    assert "Majority class" in page
    assert (out / TEST_SET).read_bytes() == (result.folder / TEST_SET).read_bytes()
    document = json.loads((out / SUMMARY).read_text())
    assert document["reference"]["metrics"] == dict(result.reference)
    for text in ("lone", "baselines", "All records, no privacy"):
        assert text not in page
        assert text not in (out / SUMMARY).read_text()
