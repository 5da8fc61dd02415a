"""A run's model is loaded whole, under every name, or not at all."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from zerosum.client.training.batch_norm import BatchNormMode
from zerosum.client.training.initial_model import build_model, initial_vector
from zerosum.client.training.model_file import whole_state
from zerosum.server.config import ConfigError
from zerosum.server.runs.saved_model import load_whole, read_model, round_of


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(7, 4)
        self.out = nn.Linear(4, 7, bias=False)
        self.out.weight = self.words.weight

    def forward(self, tokens):
        return self.out(self.words(tokens)).mean(1)


class Extra(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.state = nn.Linear(3, 2), torch.zeros(1)
        self.register_buffer("scratch", torch.ones(2), persistent=False)

    def forward(self, inputs):
        return self.layer(inputs) + self.state + self.scratch

    def get_extra_state(self):
        return self.state

    def set_extra_state(self, state):
        self.state = state


def frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    model[0].weight.requires_grad_(False)
    return model


def half() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    model[0].to(torch.bfloat16).requires_grad_(False)
    model[0].to(torch.float32)
    model.register_buffer("table", torch.rand(3).to(torch.bfloat16))
    return model


def spectral() -> nn.Module:
    return nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(3, 4)), nn.Linear(4, 2))


def old_norms() -> nn.Module:
    return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)), nn.Linear(4, 2))


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


MODELS = {
    "frozen": (frozen, torch.randn(5, 3)),
    "half buffers": (half, torch.randn(5, 3)),
    "tied": (Tied, torch.randint(0, 7, (5, 6))),
    "spectral": (spectral, torch.randn(5, 3)),
    "weight norm": (old_norms, torch.randn(5, 3)),
    "batchnorm": (normed, torch.randn(5, 3)),
    "extra state": (Extra, torch.randn(5, 3)),
}


def of(make: Callable[[], nn.Module]) -> Any:
    """Return what of a task builds its model."""
    return SimpleNamespace(model=make)


@pytest.mark.parametrize("kind", MODELS)
def test_a_whole_state_loads_strictly_and_computes_the_same(kind, tmp_path):
    make, inputs = MODELS[kind]
    mode: BatchNormMode = "average" if kind == "batchnorm" else "refuse"
    vector = initial_vector(of(make), 3, mode)
    trained = build_model(of(make), 3)
    state = whole_state(trained, vector * 1.5 + 0.01, 0, mode)
    save_file(state, tmp_path / "model.safetensors")
    other = build_model(of(make), 4)  # of another seed: what is not in the file would differ
    load_whole(other, read_model(tmp_path / "model.safetensors"), tmp_path)
    plain = build_model(of(make), 4)
    plain.load_state_dict(read_model(tmp_path / "model.safetensors"), strict=True)
    read = read_model(tmp_path / "model.safetensors")
    for name, value in other.state_dict().items():
        assert torch.equal(value, read[name].to(value.dtype)), name
    assert not torch.equal(build_model(of(make), 4).eval()(inputs), other.eval()(inputs))
    assert torch.equal(plain.eval()(inputs), other.eval()(inputs))


def test_what_differs_is_named_and_nothing_is_loaded():
    run = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).state_dict()
    other = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    before = {name: value.clone() for name, value in other.state_dict().items()}
    with pytest.raises(ConfigError) as caught:
        load_whole(other, run, Path("runs/mine"))
    text = str(caught.value)
    assert "\n" not in text
    assert "runs/mine" in text
    assert "Sequential" in text
    assert "it lacks 1.bias, 1.weight" in text
    assert "the run does not have its 2.bias, 2.weight" in text
    assert "0.weight (5x3 for the run's 4x3)" in text
    assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())
    with pytest.raises(RuntimeError):
        other.load_state_dict(run)  # the control: PyTorch alone
    same = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    half_loaded = {"0.weight": torch.zeros(5, 3), "9": torch.zeros(1)}
    with pytest.raises(RuntimeError):
        same.load_state_dict(half_loaded)
    assert not same.state_dict()["0.weight"].any(), "the control: PyTorch has loaded a half by then"


def test_a_damaged_file_ends_in_one_line(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_model(tmp_path / "model.safetensors")
    assert round_of(tmp_path / "model.safetensors") is None
    assert round_of(tmp_path / "none") is None
