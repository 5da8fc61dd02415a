"""Whole runs whose inputs are projected on components that were found in private."""

import json
from typing import Any, cast

import numpy as np
import pytest
from safetensors.numpy import load_file

from zerosum.server.config import ConfigError
from zerosum.server.runs.run_folder import LEDGER, METRICS, MODEL
from zerosum.simulations import api
from zerosum.simulations.commands.plan import plan

SMALL = [
    "task=digits",
    "rounds=2",
    "data.clients=6",
    "model.name=mlp",
    "model.hidden=[8]",
    "model.components=10",
    "model.inputs=64",
    "privacy.unit=example",
    "privacy.examples=1438",
    "privacy.lot=400",
    "privacy.delta=1e-4",
    "privacy.noise_multiplier=2.0",
    "privacy.components_noise=3.0",
    "privacy.honest_fraction=0.6",
    "encoding.range=20.0",
    "sampling.kind=everyone",
    "secagg.dropout=0.4",
    "faults.advertise=0.0",
    "faults.share=0.0",
]

pytestmark = pytest.mark.usefixtures("one_thread")


def run(out, *settings):
    return api.run("digits", overrides=[*SMALL, *settings], out=out, report=False)


def epsilon(result, observer="sum"):
    return result.summary["epsilon"][observer]["value"]


@pytest.mark.slow
def test_masks_and_a_resume_change_no_bit(tmp_path):
    draws = "privacy.noise_draw=per_client"
    whole = run(tmp_path / "pairwise", "secagg.protocol=pairwise", draws)
    run(tmp_path / "ideal", "secagg.protocol=ideal", draws, "rounds=1")
    resumed = api.resume(tmp_path / "ideal", overrides=["rounds=2"], report=False)
    models = [(result.folder / MODEL).read_bytes() for result in (whole, resumed)]
    assert models[0] == models[1]
    found = load_file(whole.folder / MODEL)["0.directions"]
    assert np.allclose(found.T @ found, np.eye(10), atol=1e-5)
    lines = (resumed.folder / METRICS).read_text().splitlines()
    assert ["components" in json.loads(line) for line in lines] == [True, False]


@pytest.mark.slow
def test_components_are_charged_to_the_same_ledger(tmp_path):
    weak, strong = ([f"privacy.components_noise={z}"] for z in (1.0, 50.0))
    results = [run(tmp_path / str(i), "rounds=1", *s) for i, s in enumerate((weak, strong))]
    assert epsilon(results[0]) > epsilon(results[1]) + 1
    kinds = [
        json.loads(line)["key"][2]
        for line in (results[0].folder / LEDGER).read_text().splitlines()[1:]
        if json.loads(line)["type"] == "sum"
    ]
    assert kinds == ["components", "train"]
    planned = plan("digits", [*SMALL, "rounds=1", *weak], population=6, dimension=178)
    assert epsilon(results[0]) <= planned.values["epsilon"]["sum"]["value"] * (1 + 1e-9)


@pytest.mark.slow
def test_a_target_epsilon_leaves_room_for_components():
    target = [s for s in SMALL if "noise_multiplier" not in s] + ["privacy.epsilon_for=sum"]
    found = {
        z: plan(
            "digits",
            [*target, f"privacy.components_noise={z}"],
            population=6,
            dimension=178,
            epsilon=4.0,
        ).values
        for z in (2.0, 50.0)
    }
    for values in found.values():
        assert 3.99 <= values["epsilon"]["sum"]["value"] <= 4.0
    assert found[2.0]["noise_multiplier"] > found[50.0]["noise_multiplier"]


def test_without_noise_they_are_those_of_the_whole_data(tmp_path):
    exact = [s for s in SMALL if "noise" not in s]
    settings = ["privacy.model=none", "privacy.clip=none", "rounds=1", "faults.contribute=0.0"]
    settings += ["encoding.range=200.0"]
    result = api.run("digits", overrides=[*exact, *settings], out=tmp_path / "run", report=False)
    task = api.plan(api.load_experiment("digits", [*exact, *settings])).task
    records = cast(Any, task)._train[0].double().flatten(1).numpy()
    records /= np.maximum(1, np.linalg.norm(records, axis=1, keepdims=True))
    expected = np.linalg.svd(records, full_matrices=False)[2][:10]
    found = load_file(result.folder / MODEL)["0.directions"]
    assert np.linalg.norm(expected @ found, "nuc") == pytest.approx(10, abs=0.01)


@pytest.mark.slow
def test_components_that_cannot_be_had_end_the_run(tmp_path):
    with pytest.raises(ConfigError, match=r"model\.components = 10: .*abandoned"):
        run(tmp_path / "run", "faults.contribute=0.95")
    lines = (tmp_path / "run" / LEDGER).read_text().splitlines()
    assert any(json.loads(line).get("key", [0])[2:3] == ["components"] for line in lines)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["model.inputs=63"], "model.inputs = 63"),
        (["model.components=65"], "components = 65 exceeds model.inputs = 64"),
        (["model.name=cnn"], "leave no image for model.name"),
        (["privacy.model=local", "training.steps=2"], 'than "local"'),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(tmp_path, settings, said):
    with pytest.raises(ValueError, match=said):
        run(tmp_path / "run", *settings)
    assert not (tmp_path / "run").exists()


def test_clients_as_the_unit_have_no_components(tmp_path):
    mine = [s for s in SMALL if not s.startswith(("privacy.unit", "privacy.ex", "privacy.lot"))]
    with pytest.raises(ConfigError, match=r'model.components = .* needs privacy.unit = "example"'):
        api.run("digits", overrides=mine, out=tmp_path / "run", report=False)


def test_noise_of_components_is_asked_for_by_name(tmp_path):
    without = [s for s in SMALL if "components_noise" not in s]
    with pytest.raises(ConfigError, match=r"model.components = .* needs privacy.components_noise"):
        api.run("digits", overrides=without, out=tmp_path / "run", report=False)
