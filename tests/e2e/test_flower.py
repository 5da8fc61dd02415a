"""Deployed clients, and a real SuperLink with two SuperNodes, do as a simulation does."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from policies import LEAST_TOML
from safetensors.numpy import load_file

from zerosum.client.flower.client_app import DeployedEnvironment, build_app
from zerosum.client.protocol.file_store import FileStore
from zerosum.client.protocol.noise_source import SystemEntropy
from zerosum.server.config import ConfigError
from zerosum.server.flower.server_app import read_keys
from zerosum.server.private_sum.coordinator import Coordinator, Nodes
from zerosum.server.runs.run_folder import MODEL, SUMMARY, RunFolder
from zerosum.server.spec import FaultSpec
from zerosum.server.training.loop import FederatedTraining
from zerosum.simulations import api, load_experiment
from zerosum.simulations.engine.faults import FaultPlan
from zerosum.simulations.engine.grid import InProcessGrid, nodes

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-digits"


def deployed(experiment, folder, state, faults=None, policy=EXAMPLE / "policy.toml", keys=None):
    """Run an experiment with deployed clients: state in contexts, decisions in files."""
    planned = api.plan(experiment)
    grid = InProcessGrid(
        build_app(DeployedEnvironment),
        planned.population,
        faults=faults,
        node_config=lambda index: {
            "state-dir": str(state / str(index)),
            "policy": str(policy),
            **(keys.node_config(index) if keys else {}),
        },
    )
    entropy = SystemEntropy()
    roster = Nodes(nodes(planned.population), keys.roster if keys else None)
    coordinator = Coordinator(
        grid, roster, planned.experiment.secagg, run_id=b"deployed", entropy=entropy
    )
    folder = RunFolder.create(folder, planned.experiment)
    return FederatedTraining(
        planned.experiment, planned.task, planned.population, coordinator, entropy, folder
    ).run()


@pytest.mark.slow
def test_deployed_clients_give_the_simulated_model_within_rounding(tmp_path, one_thread):
    experiment = load_experiment(EXAMPLE / "experiment.toml", ["data.clients=4", "rounds=2"])
    real = deployed(experiment, tmp_path / "real", tmp_path / "state")
    simulated = api.run(experiment, out=tmp_path / "simulated", report=False)
    for name, value in simulated.model.items():
        # A step is 4 / (2^23 - 1), rounded up or down by each client in each round.
        np.testing.assert_allclose(real.model[name], value, atol=4e-6, rtol=0)
    assert real.metrics["test_accuracy"] > 0.5


def test_deployed_clients_add_fresh_noise_each_time(tmp_path, one_thread):
    settings = ["privacy.model=distributed", "privacy.clip=1.0", "privacy.delta=0.1"]
    settings += ["rounds=1", "data.clients=4", "privacy.honest_fraction=1.0"]
    experiment = load_experiment(EXAMPLE / "experiment.toml", settings)
    first = deployed(experiment, tmp_path / "a", tmp_path / "state-a")
    second = deployed(experiment, tmp_path / "b", tmp_path / "state-b")
    name = next(iter(first.model))
    assert not np.array_equal(first.model[name], second.model[name])
    assert first.summary["noise_from_seed"] is False
    assert first.summary["epsilon"]["sum"]["value"] > 0


@pytest.mark.slow
def test_deployed_clients_survive_each_others_dropouts(tmp_path, one_thread):
    settings = ["data.clients=8", "rounds=2", "secagg.dropout=0.5"]
    experiment = load_experiment(EXAMPLE / "experiment.toml", settings)
    faults = FaultPlan(FaultSpec(share=0.1, contribute=0.15, unmask=0.1), seed=2)
    result = deployed(experiment, tmp_path / "run", tmp_path / "state", faults)
    assert result.summary["rounds_abandoned"] == 0
    assert sum(result.summary["dropouts"].values()) > 0
    assert result.metrics["test_accuracy"] > 0.5


def test_a_policy_that_forbids_a_request_keeps_the_client_out(tmp_path, one_thread):
    policy = tmp_path / "policy.toml"
    policy.write_text(
        'models = ["distributed"]\nmin_noise_multiplier = 3.0\nservers = ["semi-honest"]\n'
        + LEAST_TOML
    )
    experiment = load_experiment(EXAMPLE / "experiment.toml", ["data.clients=3", "rounds=1"])
    result = deployed(experiment, tmp_path / "run", tmp_path / "state", policy=policy)
    assert result.summary["rounds_abandoned"] == 1
    assert result.rounds[0]["dropouts"]["contribute"] == 3


MALICIOUS = ["secagg.server=malicious", "data.clients=8", "rounds=2", "secagg.dropout=0.25"]


def strict(tmp_path):
    policy = tmp_path / "strict.toml"
    policy.write_text(
        'models = ["none"]\n' + LEAST_TOML.replace("corruption = 0.0", "corruption = 0.1")
    )
    return policy


def test_deployed_clients_sign_against_a_malicious_server(tmp_path, one_thread, make_keys):
    experiment = load_experiment(EXAMPLE / "experiment.toml", MALICIOUS)
    keys = make_keys(tmp_path / "keys", 8)
    faults = FaultPlan(FaultSpec(share=0.05, contribute=0.1, confirm=0.05), seed=5)
    result = deployed(
        experiment, tmp_path / "run", tmp_path / "state", faults, strict(tmp_path), keys
    )
    assert result.summary["rounds_abandoned"] == 0
    assert sum(result.summary["dropouts"].values()) > 0
    assert "confirm" in result.summary["dropouts"]
    assert result.metrics["test_accuracy"] > 0.5


FAULTS = {
    "no keys": "needs this node's identity",
    "no identity": "node config identity: missing",
    "another authority": "not signed by its authority",
    "an older roster": "roster version 2 comes before 3",
    "not a key": "no signing key",
    "a key that others can read": "is open to others than its owner (mode 0644)",
    "another client's key": "is not the one that roster version 2 holds",
}


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_client_refuses_what_it_was_not_given(tmp_path, one_thread, caplog, make_keys, fault):
    experiment = load_experiment(EXAMPLE / "experiment.toml", [*MALICIOUS, "rounds=1"])
    keys = make_keys(tmp_path / "keys", 8, version=2)
    given = keys.node_config

    def spoiled(index):
        config = given(index)
        if fault == "no keys":
            return {}
        if fault == "another authority":
            return config | {"authority": "00" * 31 + "01"}
        if fault == "no identity":
            return {key: value for key, value in config.items() if key != "identity"}
        if fault == "not a key":
            keys.path.chmod(0o600)
            return config | {"identity": str(keys.path)}
        if fault == "a key that others can read":
            Path(config["identity"]).chmod(0o644)
        if fault == "another client's key":
            return config | {"identity": given((index + 1) % 8)["identity"]}
        return config

    keys.node_config = spoiled
    if fault == "an older roster":
        for index in range(8):
            FileStore(tmp_path / "state" / str(index)).admit_roster(3, bytes(32))
    result = deployed(
        experiment,
        tmp_path / "run",
        tmp_path / "state",
        policy=strict(tmp_path),
        keys=keys,
    )
    assert result.summary["rounds_abandoned"] == 1
    assert result.rounds[0]["dropouts"]["advertise"] == 8
    said = [record.getMessage() for record in caplog.records if record.name == "zerosum.client"]
    assert sum(FAULTS[fault] in line for line in said) == 8, said
    assert not any(record.exc_info for record in caplog.records), "a refusal is no crash"


def test_a_semi_honest_session_is_refused_unless_the_policy_names_it(tmp_path, one_thread):
    experiment = load_experiment(EXAMPLE / "experiment.toml", ["data.clients=4", "rounds=1"])
    result = deployed(experiment, tmp_path / "run", tmp_path / "state", policy=strict(tmp_path))
    assert result.rounds[0]["dropouts"]["advertise"] == 4


def test_a_server_without_a_roster_says_what_is_missing(tmp_path, make_keys):
    spec = load_experiment(EXAMPLE / "experiment.toml", ["secagg.server=malicious"])
    with pytest.raises(ConfigError, match=r"deployment\.roster and deployment\.authority"):
        read_keys(spec)
    keys = make_keys(tmp_path / "keys", 2)
    given = [f"deployment.roster={keys.path}", f"deployment.authority={keys.authority}"]
    named = load_experiment(EXAMPLE / "experiment.toml", ["secagg.server=malicious", *given])
    assert read_keys(named) == keys.roster
    keys.path.write_bytes(keys.path.read_bytes()[:-1])
    with pytest.raises(ConfigError, match="cannot be used"):
        read_keys(named)


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("server", ["semi-honest", "malicious"])
def test_the_example_runs_on_a_real_superlink_with_two_supernodes(
    federation, tmp_path, server, make_keys
):
    shutil.copytree(EXAMPLE, tmp_path / "app")
    keys, settings = None, [f"secagg.server={server}"]
    if server == "malicious":
        keys = make_keys(tmp_path / "keys", 2)
        settings += [f"deployment.roster={keys.path}", f"deployment.authority={keys.authority}"]
        policy = tmp_path / "app" / "policy.toml"
        policy.write_text(policy.read_text().replace("semi-honest", "malicious"))
    federation.superlink()
    for index in (0, 1):
        federation.supernode(
            index,
            2,
            {"policy": f"{tmp_path}/app/policy.toml"} | (keys.node_config(index) if keys else {}),
        )
    overrides = " ".join(settings)
    run_config = f'out="{tmp_path}/run" overrides="{overrides}"'
    federation.flwr("run", ".", "test", "--run-config", run_config)
    status = federation.wait_for_run(seconds=1400)
    assert status == "finished:completed", (tmp_path / "superlink.log").read_text()[-3000:]
    summary = json.loads((tmp_path / "run" / SUMMARY).read_text())
    assert summary["rounds"] == 2
    assert summary["rounds_abandoned"] == 0
    assert summary["server"] == server
    simulated = api.run(
        load_experiment(EXAMPLE / "experiment.toml", ["data.clients=2"]),
        out=tmp_path / "simulated",
        report=False,
    )
    deployed_model = load_file(tmp_path / "run" / MODEL)
    for name, value in simulated.model.items():
        np.testing.assert_allclose(deployed_model[name], value, atol=4e-6, rtol=0)
