"""A client that fails: a dropout without DP, zero plus its noise with it, never a stop."""

import logging

import numpy as np
import pytest
import torch

from zerosum.client import TaskError
from zerosum.server.runs import CLIENT_LOG
from zerosum.simulations import api, load_experiment

CLIENTS = 8
pytestmark = pytest.mark.usefixtures("one_thread")


class FlakyTask:
    """A task whose clients 1 and 2 fail, each in its own way."""

    def model(self):
        return torch.nn.Linear(4, 3)

    def num_clients(self):
        return CLIENTS

    def data(self, client):
        if client.index == 1:
            raise OSError("secret-record-17 cannot be read")
        inputs = torch.full((5, 4), float(client.index))
        if client.index == 2:
            inputs[0, 0] = torch.nan
        return inputs, torch.tensor([0, 1, 2, 0, 1])

    def test_data(self):
        return torch.ones(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])

    def loss(self, outputs, targets):
        return torch.nn.functional.cross_entropy(outputs, targets, reduction="none")


@pytest.fixture
def simulate(tmp_path, monkeypatch):
    """Return a function that runs the flaky task with some settings."""
    monkeypatch.setattr(api, "resolve_task", lambda *arguments: FlakyTask())

    def simulate(*settings):
        base = {
            "task": "flaky",
            "rounds": 2,
            "sampling": {"kind": "everyone"},
            "secagg": {"dropout": 0.25},
            "privacy": {
                "delta": 0.01,
                "clip": 0.5,
                "noise_multiplier": 0.5,
                "honest_fraction": 0.6,
            },
            "training": {"epochs": 1},
        }
        experiment = load_experiment(base, settings)
        return api.run(experiment, out=tmp_path / "run", report=False)

    return simulate


def test_under_dp_a_failing_client_is_not_told_apart(simulate):
    result = simulate()
    assert [r["survivors"] for r in result.rounds] == [CLIENTS, CLIENTS]
    assert all(count == 0 for r in result.rounds for count in r["dropouts"].values())
    assert all(np.isfinite(value).all() for value in result.model.values())


def test_without_dp_it_drops_out_and_the_run_goes_on(simulate):
    result = simulate("privacy.model=none")
    assert [r["survivors"] for r in result.rounds] == [CLIENTS - 2, CLIENTS - 2]
    assert [r["dropouts"]["contribute"] for r in result.rounds] == [2, 2]
    assert all(np.isfinite(value).all() for value in result.model.values())


@pytest.mark.parametrize("model", ["distributed", "none"])
def test_the_traceback_is_in_the_clients_log_and_nowhere_else(simulate, model, caplog):
    caplog.set_level(logging.DEBUG)
    result = simulate(f"privacy.model={model}")
    log = (result.folder / CLIENT_LOG).read_text()
    assert "secret-record-17" in log
    assert "Traceback" in log
    for path in result.folder.rglob("*"):
        if path.is_file() and path.name != CLIENT_LOG:
            assert b"secret-record-17" not in path.read_bytes(), path
    assert "secret-record-17" not in caplog.text


def test_a_failing_client_still_adds_its_share_of_the_noise(simulate):
    """With every update zero, the sum is all noise, failing clients' shares included."""
    result = simulate("training.lr=1e-30", "rounds=1")
    record = result.rounds[0]
    # 15 coordinates: the norm of the noise scatters, but half of it missing would show in 1/2.
    assert record["average_norm"] == pytest.approx(record["noise_norm"], rel=0.6)
    assert record["average_norm"] > 0


def test_a_task_that_cannot_train_at_all_is_refused_before_the_run(tmp_path):
    with pytest.raises(TaskError, match="task"):
        api.run({"task": "zerosum.client.task:ClientInfo"}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
