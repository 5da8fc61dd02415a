"""Tests that come to NaN say whose fault it is: the test data's, or a diverged model's."""

import math

import pytest
import torch

from zerosum.server.runs.run_folder import SERVER_LOG, RunFolder
from zerosum.simulations import api
from zerosum.simulations.commands.summary import summary_table
from zerosum.simulations.report.record import read_run
from zerosum.simulations.report.words import outcome

DATA = "4 of 20 test examples give NaN or infinity, and did with the initial model: look for NaN"
DIVERGED = "20 of 20 test examples give NaN or infinity, and none did with the initial model"
pytestmark = pytest.mark.usefixtures("one_thread")


class Linear:
    """Two classes of which the first coordinate tells; `bad` test records hold NaN."""

    bad = 0

    def model(self):
        return torch.nn.Linear(3, 2)

    def num_clients(self):
        return 4

    def data(self, client):
        return self.test_data(bad=0)

    def test_data(self, bad=None):
        inputs = torch.randn(20, 3, generator=torch.Generator().manual_seed(1))
        targets = (inputs[:, 0] > 0).long()
        inputs[: self.bad if bad is None else bad, 1] = torch.nan
        return inputs, targets

    def loss(self, outputs, targets):
        return torch.nn.functional.cross_entropy(outputs, targets, reduction="none")


class Exploding(Linear):
    """Its loss falls with its first output, and is infinite once that has."""

    def loss(self, outputs, targets):
        gone = outputs.detach()[:, 0].mean() < -0.3
        return outputs[:, 0] + torch.where(gone, torch.inf, 0.0)


@pytest.fixture
def run(tmp_path, monkeypatch):
    def run(task, rounds=3, **training):
        monkeypatch.setattr(api, "resolve_task", lambda *arguments: task)
        settings = {
            "task": "linear",
            "rounds": rounds,
            "sampling": {"kind": "everyone"},
            "privacy": {"model": "none"},
            "encoding": {"range": 1000.0},
            "secagg": {"protocol": "none"},
            "training": {"steps": 1, **training},
        }
        return api.run(settings, out=tmp_path / "run", report=False)

    return run


def said(result):
    """Return what each place says: log, table, report."""
    path = result.folder / SERVER_LOG
    table = summary_table(result.summary)
    rows = dict(zip(*(list(column.cells) for column in table.columns), strict=True))
    report = outcome(read_run(RunFolder.open(result.folder)))[1]
    return path.read_text() if path.exists() else "", rows.get("WARNING", ""), report


def test_nan_in_the_test_data_is_counted_and_named_once(run):
    task = Linear()
    task.bad = 4
    result = run(task)
    assert math.isnan(result.rounds[-1]["test_accuracy"])
    log, row, report = said(result)
    assert log.count(DATA) == 1
    assert row.startswith(DATA)
    assert DATA in report
    assert "diverged" not in log + row


@pytest.mark.slow
def test_a_model_that_diverges_later_is_no_fault_of_the_data(run):
    result = run(Exploding(), rounds=1, lr=50.0)
    log, row, report = said(result)
    assert log.count(DIVERGED) == 1
    assert row.startswith(DIVERGED)
    assert DIVERGED in report


@pytest.mark.slow
def test_finite_tests_say_nothing(run):
    result = run(Linear())
    assert "lost_tests" not in result.summary
    assert said(result)[:2] == ("", "")
