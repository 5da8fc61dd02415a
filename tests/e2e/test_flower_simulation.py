"""Flower's simulation runtime: the same apps, the same experiment, the same model, bit for bit."""

import importlib.util
import json
from pathlib import Path

import pytest
from flower_simulation import Simulation
from flwr.superlink.grid.inmemory_grid import InMemoryGrid

from zerosum.client.flower.client_app import SimulatedNode, build_app
from zerosum.client.flower.simulated_node import simulated_roster
from zerosum.client.protocol.noise_source import SeededEntropy
from zerosum.server.config import ConfigError
from zerosum.server.flower.node_registry import simulated_nodes
from zerosum.server.flower.serving import is_simulation
from zerosum.server.private_sum.coordinator import Coordinator, Nodes
from zerosum.server.runs.run_folder import METRICS, MODEL, SUMMARY, RunFolder
from zerosum.server.training.loop import FederatedTraining
from zerosum.simulations import api, load_experiment
from zerosum.simulations.engine.grid import InProcessGrid

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-digits"
NOISED = ["privacy.model=distributed", "privacy.clip=1.0", "privacy.delta=0.1"]
NOISED += ["privacy.honest_fraction=1.0"]
CASES = {
    "pairwise, malicious, noised": ["secagg.server=malicious", *NOISED],
    "pairwise, semi-honest": [],
    "ideal, noised": ["secagg.protocol=ideal", *NOISED],
    "none": ["secagg.protocol=none"],
    "none, by a rule": ["secagg.protocol=none", "server.rule=geometric-median"],
}


def experiment_of(case, clients=4):
    return load_experiment(EXAMPLE / "experiment.toml", [*CASES[case], f"data.clients={clients}"])


def played(experiment, out):
    """Run an experiment with the nodes that an actor of Flower's plays, in this process."""
    planned = api.plan(experiment)
    grid = InProcessGrid(build_app(SimulatedNode), planned.population)
    by_index = simulated_nodes(grid)
    entropy = SeededEntropy(experiment.seed)
    nodes = Nodes(by_index, simulated_roster(1, planned.population))
    coordinator = Coordinator(
        grid, nodes, planned.experiment.secagg, run_id=b"played", entropy=entropy
    )
    folder = RunFolder.create(out, planned.experiment)
    task, count = planned.task, planned.population
    return FederatedTraining(planned.experiment, task, count, coordinator, entropy, folder).run()


@pytest.mark.slow
@pytest.mark.parametrize("case", list(CASES))
def test_simulated_nodes_give_the_model_of_zerosum_run_bit_for_bit(tmp_path, one_thread, case):
    nodes = played(experiment_of(case), tmp_path / "nodes")
    run = api.run(experiment_of(case), out=tmp_path / "run", report=False)
    assert nodes.summary["rounds_abandoned"] == 0
    assert not any(nodes.summary["dropouts"].values())
    assert (nodes.folder / MODEL).read_bytes() == (run.folder / MODEL).read_bytes()


def test_a_simulated_node_that_does_not_answer_ends_the_run(tmp_path):
    def broken(context):
        if context.node_config["partition-id"] == 2:
            raise OSError("no disk")
        return SimulatedNode(context)

    with pytest.raises(ConfigError, match="1 of 3 simulated nodes said no hello"):
        simulated_nodes(InProcessGrid(build_app(broken), 3))


def test_a_server_is_in_a_simulation_by_its_own_grid_alone():
    assert is_simulation(InMemoryGrid.__new__(InMemoryGrid))
    assert not is_simulation(InProcessGrid(build_app(SimulatedNode), 3))


@pytest.fixture
def flower(tmp_path):
    built = Simulation(tmp_path, EXAMPLE)
    yield built
    built.end(seconds=0)


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.timeout(1800)
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra ray")
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks in /proc for processes")
def test_flwr_run_plays_the_example_on_flowers_own_simulation_runtime(flower, tmp_path):
    flower.wait()
    for number, case in enumerate(("pairwise, malicious, noised", "ideal, noised")):
        out = tmp_path / str(number)
        printed = flower.run(4, f'out="{out}" overrides="{" ".join(CASES[case])}"')
        assert (out / SUMMARY).exists(), printed[-3000:]
        summary = json.loads((out / SUMMARY).read_text())
        assert (summary["rounds"], summary["rounds_abandoned"]) == (2, 0)
        assert (summary["population"], summary["engine"]["name"]) == (4, "flower")
        assert not any(summary["dropouts"].values()), (out / METRICS).read_text()
        assert summary["noise_from_seed"] is True
        assert "round 2/2 completed: 4 of 4 survived" in printed
        run = api.run(experiment_of(case), out=tmp_path / f"run-{number}", report=False)
        assert (out / MODEL).read_bytes() == (run.folder / MODEL).read_bytes(), case
    assert flower.completed() == 2
    assert flower.superlink.pid in flower.processes()
    assert not flower.end(seconds=60)
