"""Example-level privacy, from the configuration to the figures of a run."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from narrowed import present
from torch import nn

from zerosum.client.task import ClientInfo, TaskError
from zerosum.client.training.dpsgd import ExampleTrainer
from zerosum.client.training.per_example_clipping import ClippedGradients
from zerosum.server.config import ConfigError
from zerosum.server.flower.server_app import _prepared
from zerosum.server.runs.run_folder import METRICS, MODEL
from zerosum.server.runs.run_outcome import NothingLearntError
from zerosum.simulations import api
from zerosum.simulations.config import load_experiment

pytestmark = pytest.mark.usefixtures("one_thread")

STEPS: dict[str, Any] = {
    "task": "digits",
    "rounds": 3,
    "data": {"clients": 10},
    "model": {"name": "linear"},
    "privacy": {
        "unit": "example",
        "examples": 1438,
        "lot": 200,
        "clip": 0.5,
        "noise_multiplier": 1.0,
        "delta": 1e-4,
        "noise_draw": "per_client",
    },
    "encoding": {"range": 40.0},
    "sampling": {"kind": "everyone"},
    "server": {"lr": 8.0},
}
INSIDE = STEPS | {
    "privacy": {
        "unit": "example",
        "model": "local",
        "examples": 1438,
        "lot": 200,
        "clip": 0.5,
        "noise_multiplier": 2.0,
        "delta": 1e-4,
    },
    "training": {"steps": 4, "lr": 1.0},
    "server": {"lr": 1.0},
}


def run(config, folder, *overrides):
    return api.run(config, overrides=overrides, out=folder, report=False)


def model_bytes(folder: Path) -> bytes:
    return (folder / MODEL).read_bytes()


@pytest.mark.parametrize("config", [STEPS, INSIDE], ids=["distributed", "inside"])
def test_more_records_than_the_public_figure_are_refused(config) -> None:
    changed = load_experiment(config, ["privacy.examples=1400"])
    with pytest.raises(ConfigError, match=r"examples = 1400: .* hold 1438 training records"):
        api.plan(changed)
    api.plan(load_experiment(config))


class OwnTask:
    """Says nothing of how many examples there are."""

    def __init__(self, broken=()):
        self.broken = broken

    def model(self):
        return nn.Linear(3, 2)

    def data(self, client):
        if client.index in self.broken:
            raise OSError("no disk")
        return torch.zeros(7, 3), torch.zeros(7, dtype=torch.int64)

    def test_data(self):
        return None

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets, reduction="none")


@pytest.mark.parametrize(("broken", "most"), [((), 70), ((3, 4), 56)])
def test_records_of_a_task_of_one_s_own_are_counted(monkeypatch, broken, most) -> None:
    monkeypatch.setattr(api, "resolve_task", lambda *specs: OwnTask(broken))
    enough = [f"privacy.examples={most}", "privacy.lot=20"]
    api.plan(load_experiment(STEPS, enough))
    with pytest.raises(ConfigError, match=f"hold {most} training records"):
        api.plan(load_experiment(STEPS, [f"privacy.examples={most - 1}", "privacy.lot=20"]))


def test_a_crowd_is_not_counted_and_that_is_said(monkeypatch, caplog) -> None:
    monkeypatch.setattr(api, "resolve_task", lambda *specs: OwnTask())
    api.plan(load_experiment(STEPS, ["data.clients=1001", "privacy.examples=700"]))
    assert "taken on trust" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("config", [STEPS, INSIDE], ids=["distributed", "inside"])
def test_masked_sums_give_the_bits_of_a_trusted_sum(config, tmp_path):
    faults = ["faults.contribute=0.1", "secagg.dropout=0.3", "privacy.honest_fraction=0.6"]
    for protocol in ("pairwise", "ideal"):
        run(config, tmp_path / protocol, f"secagg.protocol={protocol}", *faults)
    assert model_bytes(tmp_path / "pairwise") == model_bytes(tmp_path / "ideal")
    lines = (tmp_path / "ideal" / METRICS).read_text().splitlines()
    assert any(json.loads(line)["survivors"] < 10 for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize(
    "config", [STEPS, pytest.param(INSIDE, marks=pytest.mark.slow)], ids=["distributed", "inside"]
)
def test_a_run_that_was_interrupted_ends_as_if_it_had_not_been(config, tmp_path):
    whole = run(config, tmp_path / "whole", "secagg.protocol=ideal")
    run(config, tmp_path / "parts", "secagg.protocol=ideal", "rounds=1")
    resumed = api.resume(tmp_path / "parts", overrides=["rounds=3"], report=False)
    assert model_bytes(tmp_path / "parts") == model_bytes(tmp_path / "whole")
    assert resumed.summary["epsilon"] == whole.summary["epsilon"]


def test_without_noise_a_round_is_a_step_on_all_examples(tmp_path):
    plain = {
        **STEPS,
        "rounds": 1,
        "privacy": {"model": "none", "clip": "none", "unit": "example"}
        | {"examples": 1438, "lot": 1438},
        "encoding": {"range": 4000.0, "bits": 32},
        "server": {"lr": 0.5},
    }
    result = run(plain, tmp_path / "run", "secagg.protocol=ideal")
    planned = api.plan(load_experiment(plain))
    inputs, targets = planned.task._train  # type: ignore[attr-defined]
    model = planned.task.model().double()
    loss = nn.functional.cross_entropy(model(inputs.double()), targets, reduction="sum") / 1438
    loss.backward()
    for (name, found), parameter in zip(result.model.items(), model.parameters(), strict=True):
        expected = (parameter - 0.5 * present(parameter.grad)).detach().numpy()
        assert np.allclose(found, expected, atol=1e-5), name


@pytest.mark.slow
def test_figures_are_of_examples_and_amplified_by_their_own_coins(tmp_path):
    epsilon = run(STEPS, tmp_path / "run", "secagg.protocol=ideal").summary["epsilon"]
    assert {figure["unit"] for figure in epsilon.values()} == {"example"}
    for figure in epsilon.values():
        assert sum("no item of a client's data set" in note for note in figure["assumptions"]) == 1
    assert 0 < epsilon["release"]["value"] < epsilon["sum"]["value"] < epsilon["local"]["value"]
    whole = run(STEPS, tmp_path / "all", "secagg.protocol=ideal", "privacy.lot=1438")
    assert whole.summary["epsilon"]["sum"]["value"] > 3 * epsilon["sum"]["value"]


@pytest.mark.slow
def test_noise_inside_training_protects_from_the_server_without_masks_too(tmp_path):
    epsilon = run(INSIDE, tmp_path / "run", "secagg.protocol=none").summary["epsilon"]
    assert epsilon["sum"]["value"] == epsilon["local"]["value"] > 0
    assert epsilon["local"]["unit"] == "example"


@pytest.mark.slow
def test_a_target_epsilon_finds_the_noise(tmp_path):
    for config in (STEPS, INSIDE):
        target = ["privacy.epsilon=2.0", "privacy.epsilon_for=sum", "secagg.protocol=ideal"]
        result = run(config, tmp_path / config["privacy"].get("model", "steps"), *target)
        assert 1.99 <= result.summary["epsilon"]["sum"]["value"] <= 2.0


@pytest.mark.slow
def test_a_client_whose_gradients_fail_answers_like_any_other(tmp_path, monkeypatch):
    def broken(*arguments):
        raise RuntimeError("no gradient")

    monkeypatch.setattr(ExampleTrainer, "trial_step", lambda *arguments: True)
    monkeypatch.setattr(ClippedGradients, "clipped_sum", broken)
    logging.getLogger("zerosum.client").setLevel(logging.CRITICAL)
    try:
        for config in (STEPS, INSIDE):
            name = config["privacy"].get("model", "steps")
            with pytest.raises(NothingLearntError, match="no gradient") as ended:
                run(config, tmp_path / name, "secagg.protocol=ideal")
            lines = ended.value.result.rounds
            assert all(line["survivors"] == line["clients_failed"] == 10 for line in lines)
    finally:
        logging.getLogger("zerosum.client").setLevel(logging.NOTSET)


class TextTask(OwnTask):
    """Token counts by an embedding with sparse gradients, behind a layer that may not train."""

    def __init__(self, layer=nn.Identity):
        super().__init__()
        self.layer = layer

    def model(self):
        return nn.Sequential(nn.EmbeddingBag(5, 3, sparse=True), self.layer(), nn.Linear(3, 2))

    def data(self, client):
        generator = torch.Generator().manual_seed(client.index)
        tokens = torch.randint(0, 5, (7, 4), generator=generator)
        return tokens, (tokens[:, 0] > 2).long()


class Raising(nn.Module):
    def forward(self, x):
        return x if not self.training else 1 / 0


TEXT = ("privacy.examples=70", "privacy.lot=60", "rounds=8")


@pytest.mark.slow
@pytest.mark.parametrize(
    "config", [STEPS, pytest.param(INSIDE, marks=pytest.mark.slow)], ids=["distributed", "inside"]
)
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
def test_sparse_embeddings_are_trained_and_not_on_noise_alone(tmp_path, monkeypatch, config):
    monkeypatch.setattr(api, "resolve_task", lambda *specs: TextTask())
    result = run(config, tmp_path / "run", "secagg.protocol=ideal", *TEXT, "server.lr=8")
    model = nn.Sequential(nn.EmbeddingBag(5, 3), nn.Identity(), nn.Linear(3, 2))
    model.load_state_dict({name: torch.from_numpy(value) for name, value in result.model.items()})
    right = [
        (model(tokens).argmax(1) == targets).float().mean()
        for tokens, targets in (TextTask().data(ClientInfo(i, 10)) for i in range(10))
    ]
    assert torch.stack(right).mean() > 0.7


@pytest.mark.parametrize("config", [STEPS, INSIDE], ids=["distributed", "inside"])
def test_a_model_of_whose_examples_none_can_be_trained_on_is_refused(tmp_path, monkeypatch, config):
    monkeypatch.setattr(api, "resolve_task", lambda *specs: TextTask(Raising))
    with pytest.raises(TaskError, match=r"no example has a gradient of its own.*ZeroDivisionError"):
        run(config, tmp_path / "run", "secagg.protocol=ideal", *TEXT)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("encoding={}", "encoding.range is required"),
        ("sampling.kind=fixed", 'sampling.kind = "fixed" is not for privacy.unit = "example"'),
        ("privacy.lot=2000", "privacy.lot = 2000 exceeds privacy.examples = 1438"),
        ("privacy.delta=1e-3", "is not below 1/privacy.examples"),
        ("privacy.clipping=adaptive", 'is for privacy.unit = "client"'),
    ],
)
def test_what_cannot_be_is_refused_by_name(override, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        run(STEPS, tmp_path / "run", override)


def test_training_inside_needs_its_number_of_steps(tmp_path):
    with pytest.raises(ConfigError, match=r"training\.steps is required"):
        run(INSIDE, tmp_path / "run", "training.epochs=2")


@pytest.mark.timeout(60)
def test_noise_inside_training_that_rounds_to_nothing_is_refused_before_a_run(tmp_path):
    with pytest.raises(ConfigError, match=r"noise_multiplier = 1e-09, .*: a rounded Gauss"):
        run(INSIDE, tmp_path / "run", "privacy.noise_multiplier=1e-9")


@pytest.mark.parametrize("public", [True, False])
def test_a_server_tries_the_gradients_of_public_records_before_it_asks_anybody(public) -> None:
    class Public(TextTask):
        def test_data(self):
            return self.data(ClientInfo(0, 10)) if public else None

    experiment = load_experiment(STEPS, [*TEXT, "data.clients=10"])
    assert _prepared(experiment, Public(), 10).privacy.noise_multiplier == 1.0
    if public:
        with pytest.raises(TaskError, match="no example has a gradient of its own"):
            _prepared(experiment, Public(Raising), 10)
    else:  # nothing to try it on: each client says so at home
        _prepared(experiment, Public(Raising), 10)
