"""Flower's simulation runtime: the same apps, the same experiment, the same model, bit for bit."""

import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from flwr.superlink.grid.inmemory_grid import InMemoryGrid
from narrowed import present

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
from zerosum.simulations.rehearsal.processes import free_port, processes_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-digits"
BIN = Path(sys.executable).parent
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


class Simulation:
    """A SuperLink that simulates, what it starts, and ``flwr`` in a folder of the example's."""

    def __init__(self, folder):
        self.app = folder / "app"
        self.mark = ("ZEROSUM_TEST", uuid.uuid4().hex)
        self.port = free_port()
        shutil.copytree(EXAMPLE, self.app)
        self.env = os.environ | {
            "FLWR_HOME": str(folder / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            self.mark[0]: self.mark[1],
        }
        (folder / "flwr").mkdir()
        (folder / "flwr" / "config.toml").write_text(
            '[superlink]\ndefault = "simulation"\n\n[superlink.simulation]\n'
            f'address = "127.0.0.1:{self.port}"\ninsecure = true\n'
        )
        command = ["flower-superlink", "--insecure", "--simulation", "--host", "127.0.0.1"]
        command += ["--port", str(self.port), "--disable-runtime-dependency-installation"]
        self.log = folder / "superlink.log"
        with self.log.open("wb") as log:
            self.superlink = subprocess.Popen(
                [BIN / command[0], *command[1:]],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.env,
                cwd=folder,
                start_new_session=True,
            )

    def wait(self, seconds=300):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.2)
        pytest.fail("the SuperLink does not listen")

    def flwr(self, *arguments):
        done = subprocess.run(
            [BIN / "flwr", *arguments],
            env=self.env,
            cwd=self.app,
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def run(self, nodes, out, overrides, tries=5):
        """Run the example to its end, and return what was printed meanwhile."""
        before = self.log.read_text().count("Finished task")
        answer = self.flwr(
            *("run", ".", "simulation", "--format", "json"),
            *("--federation-config", f"num-supernodes={nodes} client-resources-num-cpus=1"),
            *("--run-config", f'out="{out}" overrides="{" ".join(overrides)}"'),
        )
        deadline = time.monotonic() + 600
        while self.log.read_text().count("Finished task") == before:
            assert time.monotonic() < deadline, self.log.read_text()[-3000:]
            time.sleep(0.5)
        run_id = present(re.search(r'"run-id": "(\d+)"', answer))
        printed = self.flwr("log", run_id[1], "simulation", "--show")
        # Ray gives itself 30 seconds to start: a busy machine may need more.
        if tries and "node timed out during startup" in printed:
            return self.run(nodes, out, overrides, tries - 1)
        return printed

    def completed(self):
        """Return how many runs ended well."""
        return self.flwr("list", "simulation", "--format", "json").count("finished:completed")

    def processes(self):
        """Return the ids of all that was started here, and still runs."""
        return processes_of("=".join(self.mark))

    def end(self, seconds):
        """End the SuperLink, by its id and no other; return what outlives it."""
        self.superlink.terminate()
        deadline = time.monotonic() + seconds
        while (left := self.processes()) and time.monotonic() < deadline:
            self.superlink.poll()
            time.sleep(0.5)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        self.superlink.wait(60)
        return left


@pytest.fixture
def flower(tmp_path):
    built = Simulation(tmp_path)
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
        printed = flower.run(4, out, CASES[case])
        assert (out / SUMMARY).exists(), printed[-3000:]
        summary = json.loads((out / SUMMARY).read_text())
        assert (summary["rounds"], summary["rounds_abandoned"]) == (2, 0)
        assert (summary["population"], summary["engine"]["name"]) == (4, "flower")
        assert not any(summary["dropouts"].values()), (out / METRICS).read_text()
        assert summary["noise_from_seed"] is True
        assert "round 2 completed: 4 of 4 survived" in printed
        run = api.run(experiment_of(case), out=tmp_path / f"run-{number}", report=False)
        assert (out / MODEL).read_bytes() == (run.folder / MODEL).read_bytes(), case
    assert flower.completed() == 2
    assert flower.superlink.pid in flower.processes()
    assert not flower.end(seconds=60)
