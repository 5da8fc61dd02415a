"""Whole runs in bfloat16: the same on any number of workers, told in the summary, or refused."""

import io

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from zerosum.client.training import precision, torch_internals
from zerosum.server.config import ConfigError
from zerosum.server.planning import preflight
from zerosum.server.runs.results import Result
from zerosum.simulations import api
from zerosum.simulations.commands.main import app
from zerosum.simulations.commands.summary import summary_table

pytestmark = pytest.mark.usefixtures("one_thread")
native = pytest.mark.skipif(
    not torch_internals.has_native_bf16(), reason="this processor has no native bfloat16 products"
)

OPEN = [
    "rounds=2",
    "data.clients=24",
    "sampling.cohort=10",
    "training.steps=2",
    "privacy.model=none",
    "privacy.clip=none",
    "encoding.range=1.0",
    "model.name=mlp",
]
BF16 = "training.precision=bf16"
EXAMPLES = [
    "privacy.unit=example",
    "privacy.model=local",
    "privacy.clip=1.0",
    "privacy.examples=1500",
    "privacy.lot=480",
    "privacy.delta=1e-4",
]


def run(out, *settings: str) -> Result:
    return api.run("digits", overrides=[*OPEN, *settings], out=out, report=False)


def command(out, *settings: str):
    given = [word for setting in (*OPEN, *settings) for word in ("--set", setting)]
    return CliRunner().invoke(app, ["run", "digits", *given, "--out", str(out)])


@pytest.mark.slow
@native
def test_bits_do_not_depend_on_the_workers(tmp_path):
    serial = run(tmp_path / "a", BF16, "engine=serial")
    shared = run(tmp_path / "b", BF16, "engine=processes", "workers=2")
    usual = run(tmp_path / "c", "engine=serial")
    for name, value in serial.model.items():
        assert np.array_equal(shared.model[name], value)
        assert not np.array_equal(usual.model[name], value), "the control: float32 is another"
        np.testing.assert_allclose(usual.model[name], value, rtol=0, atol=0.02)
    assert serial.summary["engine"]["precision"] == "bf16"
    assert usual.summary["engine"]["precision"] == "float32"


@native
def test_the_summary_of_a_command_says_which_precision_trained(tmp_path):
    done = run(tmp_path / "run", BF16, "engine=serial")
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(summary_table(done.summary))
    assert "the fast trainer (serial, bf16)" in console.export_text()
    assert 'precision = "bf16"' in (tmp_path / "run" / "config.toml").read_text()


REFUSED = {
    "a GPU": (["device=cuda"], 'device = "cuda"'),
    "the general trainer": (["trainer=general"], 'trainer = "general"'),
    "the batched trainer": (["trainer=batched"], 'trainer = "batched"'),
    "examples": (EXAMPLES, 'privacy.unit = "example"'),
    "statistics": (["training.batchnorm=average"], 'training.batchnorm = "average"'),
    "a root update": (
        ["server.rule=fltrust", "server.rule_examples=9", "secagg.protocol=none"],
        'server.rule = "fltrust"',
    ),
    "one layer": (["model.name=linear"], "no other is trained"),
    "an unknown word": (["training.precision=fp8"], "training.precision"),
}


@native
@pytest.mark.parametrize(("settings", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_the_command_refuses_what_would_train_otherwise(tmp_path, settings, why):
    refused = command(tmp_path / "run", BF16, *settings)
    assert refused.exit_code == 2
    assert "training.precision" in refused.output
    assert why in refused.output
    assert not (tmp_path / "run").exists()


def test_the_command_refuses_a_processor_without_it(tmp_path, monkeypatch):
    monkeypatch.setattr(precision, "has_native_bf16", lambda: False)
    refused = command(tmp_path / "run", BF16)
    assert refused.exit_code == 2
    assert "native bfloat16" in refused.output
    experiment = api.load_experiment("digits", [*OPEN, BF16])
    with pytest.raises(ConfigError, match="native bfloat16"):
        preflight.check_precision(experiment)
    preflight.check_precision(api.load_experiment("digits", OPEN))


@pytest.mark.slow
@native
def test_a_run_is_continued_in_its_own_precision(tmp_path):
    run(tmp_path / "run", BF16)
    with pytest.raises(ConfigError, match="precision"):
        api.resume(tmp_path / "run", overrides=["training.precision=float32", "rounds=3"])
    assert api.resume(tmp_path / "run", overrides=["rounds=3"], report=False).summary["rounds"] == 3
