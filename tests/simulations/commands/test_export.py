"""zerosum export: what ONNX's own reference evaluator computes is what the model computes."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from zerosum.client.task import resolve_task
from zerosum.server.config import ConfigError
from zerosum.server.runs.run_folder import RunFolder
from zerosum.simulations import Result, api
from zerosum.simulations.commands.export import EXTRA, export_onnx
from zerosum.simulations.commands.main import app

onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
pytest.importorskip("onnxscript", reason="the extra onnx is not installed")

PLAIN = {
    "name": "exported",
    "task": "digits",
    "rounds": 2,
    "engine": "serial",
    "data": {"clients": 4, "limit": 400},
    "model": {"name": "mlp"},
    "privacy": {"model": "none"},
    "secagg": {"protocol": "ideal"},
    "sampling": {"kind": "everyone"},
    "evaluation": {"best": "loss", "mode": "max"},
}

TASK = """
import torch
from torch import nn


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(7, 7)
        self.out = nn.Linear(7, 7, bias=False)
        self.out.weight = self.words.weight
        self.norm = nn.BatchNorm1d(7)
        for parameter in self.norm.parameters():
            parameter.requires_grad_(False)
        self.norm.eval()
        self.spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(7, 7))

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, tokens):
        return self.out(self.spectral(self.norm(self.words(tokens).mean(1))))


class Branching(nn.Linear):
    def forward(self, inputs):
        return super().forward(inputs) * (2.0 if float(inputs.sum()) > 0 else 1.0)


class Task:
    def __init__(self, make, tested=True):
        self.model, self.tested = make, tested

    def num_clients(self):
        return 4

    def records(self, seed):
        generator = torch.Generator().manual_seed(seed)
        if self.model is Odd:
            return torch.randint(0, 7, (12, 5), generator=generator), torch.arange(12) % 7
        return torch.randn(12, 3, generator=generator), torch.arange(12) % 2

    def data(self, client):
        return self.records(client.index)

    def test_data(self):
        return self.records(99) if self.tested else None

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets, reduction="none")


odd, branching = Task(Odd), Task(lambda: Branching(3, 2))
untested = Task(lambda: nn.Linear(3, 2), tested=False)
"""


@pytest.fixture
def task(tmp_path, monkeypatch):
    name = f"exported_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(TASK)
    monkeypatch.chdir(tmp_path)
    yield lambda which: f"task={name}:{which}"
    sys.modules.pop(name, None)


def run(path: Path, *overrides: str) -> Result:
    return api.run(PLAIN, overrides=overrides, out=path, report=False)


def differences(result: Result, path: Path, *, best: bool) -> tuple[float, float]:
    """Return the largest difference from torch, of the model exported and of the other one."""
    experiment = RunFolder.open(result.folder).experiment
    task = resolve_task(experiment.task, experiment.data, experiment.model, experiment.seed)
    data = task.test_data()
    assert isinstance(data, tuple)
    inputs = data[0][:7]
    exported = onnx.load(str(path))
    onnx.checker.check_model(exported)
    given = {exported.graph.input[0].name: inputs.numpy()}
    (outputs,) = onnx.reference.ReferenceEvaluator(exported).run(None, given)
    found = []
    for which in (best, not best):
        model = result.load_into(task.model(), best=which).eval()
        with torch.no_grad():
            found.append(float(np.abs(outputs - model(inputs).numpy()).max()))
    return found[0], found[1]


@pytest.mark.parametrize(("model", "best"), [("mlp", True), ("cnn", False), ("odd", True)])
def test_the_exported_model_computes_what_torchs_computes(tmp_path, task, model, best):
    settings = [task("odd")] if model == "odd" else [f"model.name={model}"]
    result = run(tmp_path / "run", *settings)
    assert result.best is not None
    assert result.best.round == 1, "the largest loss: another model than the last"
    export_onnx(result.folder, tmp_path / "model.onnx", best=best)
    same, other = differences(result, tmp_path / "model.onnx", best=best)
    assert same < 1e-5
    assert other > 1e-3, "the control: the other model"
    assert {path.name for path in tmp_path.glob("*.onnx*")} == {"model.onnx"}


def exported(*arguments: str):
    return CliRunner().invoke(app, ["export", *arguments])


def test_the_command_writes_the_file_and_says_where(tmp_path):
    result = run(tmp_path / "run")
    done = exported(str(result.folder), "--onnx", str(tmp_path / "a.onnx"), "--best")
    assert done.exit_code == 0, done.output
    assert f"ONNX  {tmp_path / 'a.onnx'}" in done.output
    assert differences(result, tmp_path / "a.onnx", best=True)[0] < 1e-5


REFUSED = {
    "branching": "torch cannot export Branching",
    "untested": "of which there are 0 records",
}


@pytest.mark.parametrize("which", REFUSED)
def test_what_cannot_be_exported_ends_in_one_line(tmp_path, task, which):
    settings = [task(which), "evaluation.best=unset", "evaluation.mode=unset"]
    result = run(tmp_path / "run", *settings)
    with pytest.raises(ConfigError) as caught:
        export_onnx(result.folder, tmp_path / "model.onnx")
    assert REFUSED[which] in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("*.onnx*"))


def test_a_missing_extra_and_folder_are_named(tmp_path, monkeypatch):
    missing = exported(str(tmp_path / "none"), "--onnx", str(tmp_path / "a.onnx"))
    assert missing.exit_code == 2
    assert "holds no run" in missing.output
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ConfigError, match="onnxscript is not installed") as caught:
        export_onnx(tmp_path, tmp_path / "a.onnx")
    assert EXTRA in str(caught.value)


@pytest.mark.parametrize("link", [False, True], ids=["as it is called", "through a link"])
def test_a_file_of_the_run_is_not_written_over(tmp_path, link):
    folder = tmp_path / "run"
    folder.mkdir()
    model = folder / "model.safetensors"
    model.write_bytes(b"the model")
    (tmp_path / "link").symlink_to(folder)
    target = (tmp_path / "link" if link else folder) / model.name
    with pytest.raises(ConfigError, match="is a file of the run"):
        export_onnx(folder, target)
    assert model.read_bytes() == b"the model"
