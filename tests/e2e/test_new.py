"""A new app on a real SuperLink, as it is: its code comes with the app, its data are the nodes'."""

import json

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from zerosum.client.spec import DataSpec
from zerosum.server.runs.run_folder import MODEL, SUMMARY
from zerosum.simulations import api, load_experiment
from zerosum.simulations.data.datasets import Records, split_off_test
from zerosum.simulations.data.partition import partition
from zerosum.simulations.new.app import Asked, make_app


def files_of_clients(sample, folder, count):
    """Write what each of so many simulated clients trains on into a file of its own."""
    table = pd.read_csv(sample)
    classes = (table["diagnosis"] == "malignant").to_numpy(np.int64)
    spec = DataSpec()
    rows = split_off_test(Records(np.arange(len(table)), classes), spec.test_fraction, 2).train
    parts = partition(spec, rows, count, seed=0)
    files = []
    for index in range(count):
        files.append(folder / f"node{index}.csv")
        table.iloc[rows.inputs[parts[index]]].to_csv(files[-1], index=False)
    return files


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.timeout(1500)
def test_a_new_app_runs_on_a_real_superlink_as_in_a_simulation(federation, tmp_path, monkeypatch):
    made = make_app(tmp_path / "app", Asked())
    sample = made.folder / "data" / "sample.csv"
    files = files_of_clients(sample, tmp_path, 2)
    federation.superlink()
    for index, file in enumerate(files):
        config = {"policy": str(made.folder / "policy.toml"), "data-path": str(file)}
        federation.supernode(index, 2, config)
    settings = ["rounds=2", f"data.path={sample}"]
    run_config = f'out="{tmp_path}/run" overrides="{" ".join(settings)}"'
    federation.flwr("run", ".", "test", "--run-config", run_config)
    status = federation.wait_for_run(seconds=1400)
    assert status == "finished:completed", (tmp_path / "superlink.log").read_text()[-3000:]
    summary = json.loads((tmp_path / "run" / SUMMARY).read_text())
    assert (summary["rounds"], summary["rounds_abandoned"]) == (2, 0)

    monkeypatch.chdir(made.folder)
    experiment = load_experiment("experiment.toml", [*settings, "data.clients=2"])
    simulated = api.run(experiment, out=tmp_path / "simulated", report=False)
    deployed_model = load_file(tmp_path / "run" / MODEL)
    for name, value in simulated.model.items():
        # A step is 4 / (2^23 - 1), rounded up or down by each client in each round.
        np.testing.assert_allclose(deployed_model[name], value, atol=4e-6, rtol=0)
    assert summary["metrics"]["test_accuracy"] == pytest.approx(simulated.metrics["test_accuracy"])
