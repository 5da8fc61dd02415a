"""Whole runs on a device, and with each trainer; what cannot be had is refused before it starts."""

import json
import multiprocessing

import numpy as np
import pytest
import torch
from narrowed import UNUSED
from torch import nn
from typer.testing import CliRunner

from zerosum.client.protocol.noise_source import SeededEntropy
from zerosum.client.training import devices
from zerosum.server.config import ConfigError
from zerosum.server.planning import preflight
from zerosum.server.runs.run_folder import CLIENT_LOG, MODEL
from zerosum.simulations import api
from zerosum.simulations.commands.main import app
from zerosum.simulations.engine import choice
from zerosum.simulations.engine.work import Contributor, Serial

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = [
    "rounds=2",
    "data.clients=24",
    "sampling.cohort=10",
    "privacy.delta=1e-2",
    "privacy.honest_fraction=0.5",
    "secagg.dropout=0.4",
]
DP_SGD = [
    "privacy.unit=example",
    "privacy.model=local",
    "privacy.examples=1500",
    "privacy.delta=1e-4",
    "privacy.lot=480",
    "encoding.range=10.0",
    "training.steps=2",
]
FEDERATED = ["evaluation.federated_every=1", "evaluation.federated_noise_multiplier=5.0"]
OPEN = ["privacy.model=none", "privacy.clip=none", "encoding.range=1.0"]

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=DEVICES)
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch finds no GPU here")
    return request.param


def run(out, *settings):
    length = [] if any(s.startswith("training.") for s in settings) else ["training.epochs=2"]
    return api.run("digits", overrides=[*SMALL, *length, *settings], out=out, report=False)


def close(found, wanted, tolerance):
    assert found.model.keys() == wanted.model.keys()
    for name, value in wanted.model.items():
        np.testing.assert_allclose(found.model[name], value, rtol=0, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(
    "protocol",
    [
        "ideal",
        pytest.param("none", marks=pytest.mark.slow),
        pytest.param("pairwise", marks=pytest.mark.slow),
    ],
)
def test_a_run_with_batched_clients_is_that_of_general_ones(tmp_path, protocol, device):
    settings = [f"secagg.protocol={protocol}", "engine=serial", *OPEN]
    batched = run(tmp_path / "a", *settings, "trainer=batched", f"device={device}")
    general = run(tmp_path / "b", *settings, "trainer=general")
    # A coordinate that float rounding moves is rounded to the next integer of the ring at most.
    close(batched, general, 1e-3)
    assert batched.summary["engine"]["trainer"] == "batched"
    assert general.summary["engine"]["trainer"] == "general"
    assert batched.summary["engine"]["device"].startswith(device)
    assert not (tmp_path / "a" / CLIENT_LOG).exists()
    other = run(tmp_path / "c", *settings, "trainer=general", "training.epochs=1")
    with pytest.raises(AssertionError):
        close(other, general, 1e-3)


@pytest.mark.slow
def test_noise_and_evaluation_follow_batched_training(tmp_path, device):
    settings = ["secagg.protocol=ideal", "engine=serial", *FEDERATED]
    batched = run(tmp_path / "a", *settings, "trainer=batched", f"device={device}")
    fast = run(tmp_path / "b", *settings, "trainer=fast")
    close(batched, fast, 1e-3)  # the same noise: it is drawn from the seed, after training
    for name, value in fast.metrics.items():
        assert batched.metrics[name] == pytest.approx(value, abs=0.02)
    assert batched.summary["epsilon"] == fast.summary["epsilon"]


@pytest.mark.slow
def test_dp_sgd_inside_training_runs_on_the_device(tmp_path, device):
    settings = ["secagg.protocol=ideal", "engine=serial", *DP_SGD]
    here = run(tmp_path / "a", *settings, f"device={device}")
    close(here, run(tmp_path / "b", *settings), 1e-3)
    assert here.summary["engine"]["trainer"] == "per example"


class Toy:
    """Six clients of three records; `wrong` does something else for client 2."""

    def __init__(self, wrong=lambda targets: targets):
        self.wrong = wrong

    def num_clients(self):
        return 6

    def model(self):
        return nn.Linear(4, 2)

    def data(self, client):
        generator = torch.Generator().manual_seed(client.index)
        inputs, targets = torch.randn(3, 4, generator=generator), torch.tensor([0, 1, 0])
        return inputs, self.wrong(targets) if client.index == 2 else targets

    def test_data(self):
        return None

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets, reduction="none")


def raising(targets):
    raise OSError("the disk is gone")


def outside(targets):
    return targets + 2


def cohort(task, protocol, device, trainer="batched"):
    """Return the aggregate of one round over all clients of a toy task."""
    from zerosum.client.request import ModelRequest, model_payload
    from zerosum.client.training.initial_model import initial_vector
    from zerosum.server.privacy.protections import question_of

    experiment = api.load_experiment(
        {
            "task": "toy:task",
            "data": {"clients": 6},
            "training": {"epochs": 1, "batch_size": 2},
            "privacy": {"model": "none", "clip": "none"},
            "encoding": {"range": 1.0},
            "sampling": {"kind": "everyone"},
            "secagg": {"protocol": protocol, "dropout": 0.4},
        }
    )
    entropy = SeededEntropy(0)
    engine = Serial(Contributor(task, entropy, device=device, trainer=trainer))
    environment = api.SimulatedEnvironment.of(task, entropy, experiment.secagg, 6)
    coordinator = environment.coordinator(experiment, 6, bytes(16), engine)
    question = question_of(experiment, 1, 6, noise_draw="per_client")
    return coordinator.private_sum(
        ModelRequest(question, model_payload(initial_vector(Toy(), 0))), [range(6)], round=2
    )


@pytest.mark.parametrize("protocol", ["ideal", "none"])
@pytest.mark.parametrize("wrong", [raising, outside])
def test_a_client_whose_data_is_bad_is_a_dropout_of_one(wrong, protocol, device):
    found = cohort(Toy(wrong), protocol, device)
    wanted = cohort(Toy(wrong), protocol, "cpu", "general")
    assert sorted(found.survivors) == sorted(wanted.survivors) == [0, 1, 3, 4, 5]
    np.testing.assert_allclose(found.total, wanted.total, atol=1e-3)


def test_a_device_that_is_not_there_is_refused_before_anything_starts(tmp_path, monkeypatch):
    for module in (devices, preflight):
        monkeypatch.setattr(module, "here", lambda: ["cpu"])
    out = tmp_path / "run"
    options = [part for setting in [*SMALL, "device=cuda"] for part in ("--set", setting)]
    result = CliRunner().invoke(app, ["run", "digits", *options, "--out", str(out)])
    assert result.exit_code == 2
    assert 'device = "cuda": torch' in result.output
    assert 'write one of "cpu", or leave it' in result.output
    assert not out.exists()


def test_a_gpu_of_another_number_is_refused_with_those_that_are_there(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ConfigError, match=r'device = "cuda:7": no such GPU.*"cuda:0", "cuda:1"'):
        run(tmp_path / "run", "device=cuda:7")
    assert devices.missing("cuda") is devices.missing("cuda:1") is devices.missing("cpu") is None


@pytest.mark.parametrize("value", ["gpu", "cuda:", "cuda:x", "mps", "CPU", "cuda:0 "])
def test_a_device_of_another_form_is_refused(value):
    with pytest.raises(ConfigError, match=f'device = .{value}.: write "cpu", "cuda" or "cuda:N"'):
        api.load_experiment("digits", [f'device="{value}"'])


def test_former_name_of_the_fast_trainer_is_refused_with_the_new_one():
    with pytest.raises(
        ConfigError, match=r"trainer = 'lean': this trainer is called .*trainer=fast"
    ):
        api.load_experiment("digits", ["trainer=lean"])


def test_fast_training_is_refused_on_a_gpu():
    with pytest.raises(ConfigError, match='trainer = "fast" is for device = "cpu"'):
        api.load_experiment("digits", ["device=cuda", "trainer=fast"])


@pytest.mark.parametrize("setting", ["device=cuda", "trainer=batched"])
def test_one_process_trains_groups(setting, monkeypatch):
    """A process that has used a GPU cannot be forked: with one the engine is serial."""
    monkeypatch.setattr(choice, "cores", lambda: 8)
    key, _, value = setting.partition("=")
    assert choice.workers_of(api.load_experiment("digits", [setting, "workers=1"])) == 0
    with choice.started(api.load_experiment("digits", [setting]), UNUSED, (1, 1)) as engine:
        assert isinstance(engine, Serial)
    said = f'{key} = "{value}" one process trains clients in groups'
    for wrong in ("engine=processes", "engine=ray", "workers=2"):
        with pytest.raises(ConfigError, match=said):
            choice.workers_of(api.load_experiment("digits", [setting, wrong]))
    assert not multiprocessing.active_children()


@pytest.mark.slow
@pytest.mark.parametrize("changed", ["device=cuda", "trainer=general"])
def test_a_run_is_resumed_where_it_began(tmp_path, changed, monkeypatch):
    run(tmp_path / "run", "rounds=1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    key = changed.partition("=")[0]
    with pytest.raises(ConfigError, match=f"{key} = .*resume it unchanged"):
        api.resume(tmp_path / "run", overrides=[changed], report=False)


@pytest.mark.slow
def test_a_batched_run_is_resumed_to_the_bits_it_would_have_had(tmp_path):
    settings = ["trainer=batched", "training.epochs=2", "training.momentum=0.5"]
    whole = run(tmp_path / "whole", *settings)
    run(tmp_path / "parts", *settings, "rounds=1")
    parts = api.resume(tmp_path / "parts", overrides=["rounds=2"], report=False)
    assert (parts.folder / MODEL).read_bytes() == (whole.folder / MODEL).read_bytes()
    assert json.loads((parts.folder / "summary.json").read_text())["engine"] == {
        "name": "serial",
        "workers": 1,
        "trainer": "batched",
        "device": "cpu",
        "precision": "float32",
    }
