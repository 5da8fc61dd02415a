"""Clients computed by Ray actors: on one machine, and on a cluster that loses a node."""

import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest
import torch
from processes import wait_for
from torch import nn

from zerosum.server.config import ConfigError
from zerosum.server.runs.run_folder import CLIENT_LOG, METRICS, MODEL
from zerosum.simulations import api
from zerosum.simulations.engine import choice
from zerosum.simulations.rehearsal.processes import processes_of

SMALL = [
    "rounds=4",
    "data.clients=24",
    "sampling.cohort=12",
    "training.epochs=1",
    "privacy.delta=1e-2",
    "privacy.honest_fraction=0.5",
    "secagg.dropout=0.4",
    "privacy.noise_draw=per_client",
]

installed = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="needs the extra ray"
)


on_ray = [
    installed,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning"),
]


def marked(test):
    for mark in on_ray:
        test = mark(test)
    return test


def run(out, *settings, **more):
    return api.run("digits", overrides=[*SMALL, *settings], out=out, report=False, **more)


def model(result):
    assert '"abandoned"' not in (result.folder / METRICS).read_text()
    return (result.folder / MODEL).read_bytes()


@pytest.fixture
def cluster():
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    try:
        started(lambda: cluster.add_node(num_cpus=1, include_dashboard=False))
        cluster.second = started(lambda: cluster.add_node(num_cpus=2))
        ray.init(address=cluster.address, log_to_driver=False)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def started(node, tries=5):
    """Start a node of Ray, which gives it 30 seconds: a busy machine may need more."""
    for left in reversed(range(tries)):
        try:
            return node()
        except Exception:
            if not left:
                raise
    return None


@marked
@pytest.mark.parametrize("protocol", ["ideal", "pairwise"])
def test_a_node_lost_in_the_middle_costs_time_and_nothing_else(tmp_path, cluster, protocol):
    settings = [f"secagg.protocol={protocol}"]
    rounds = []

    def lose_a_node(record):
        rounds.append(record)
        if len(rounds) == 1:
            cluster.remove_node(cluster.second, allow_graceful=False)

    lost = run(tmp_path / "ray", *settings, "engine=ray", "workers=3", on_round=lose_a_node)
    assert len(rounds) == 4
    assert model(lost) == model(run(tmp_path / "here", *settings, "engine=serial"))


class Slow:
    """Eight clients who take their time, and leave a mark when they begin and one at the end."""

    def __init__(self, folder, seconds=0.0, on_node=None, wrong=lambda index: None):
        self.folder = folder
        self.seconds = seconds
        self.on_node = on_node
        self.wrong = wrong
        self.driver = os.getpid()
        folder.mkdir(exist_ok=True)

    def num_clients(self):
        return 8

    def model(self):
        return nn.Linear(4, 2)

    def data(self, client):
        if os.getpid() != self.driver:
            mark = f"{client.index}-{where()}-{os.getpid()}-{uuid.uuid4().hex}"
            (self.folder / f"{mark}.begun").touch()
            self.wrong(client.index)
            if self.on_node in (None, where()):
                time.sleep(self.seconds)
            else:  # nobody is done before that node has begun
                wait_for(lambda: any(node == self.on_node for _, node, _, _ in self.marks()))
            (self.folder / f"{mark}.done").touch()
        generator = torch.Generator().manual_seed(client.index)
        return torch.randn(3, 4, generator=generator), torch.tensor([0, 1, 0])

    def test_data(self):
        return None

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    def marks(self, kind="begun"):
        """Return (client, node, process, mark) of those who have begun, or are done."""
        found = [path.stem.split("-") for path in self.folder.glob(f"*.{kind}")]
        return [(int(index), node, int(pid), mark) for index, node, pid, mark in found]


def where():
    import ray

    return ray.get_runtime_context().get_node_id()


@pytest.fixture
def simulate(tmp_path, monkeypatch):
    """Return a function that runs a slow task, whose class goes to actors by value."""
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    settings = {
        "task": "slow",
        "rounds": 2,
        "sampling": {"kind": "everyone"},
        "training": {"epochs": 1, "batch_size": 2},
        "privacy": {"model": "none", "clip": "none"},
        "encoding": {"range": 1.0},
        "secagg": {"dropout": 0.25},
    }

    def simulate(task, *overrides, out="run"):
        monkeypatch.setattr(api, "resolve_task", lambda *arguments: task)
        return api.run(settings, overrides=overrides, out=tmp_path / out, report=False)

    yield simulate
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


class Meanwhile:
    """Does something in a thread of its own, as soon as it may, while a simulation runs."""

    def __init__(self, act, when):
        self._act, self._when = act, when
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.done = False

    def _watch(self):
        while not self._over.wait(0.02):
            if found := self._when():
                self._act(found)
                self.done = True
                return

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._over.set()
        self._thread.join()


@marked
@pytest.mark.parametrize("protocol", ["ideal", "pairwise"])
def test_a_node_lost_while_it_computes_costs_nobody(tmp_path, cluster, simulate, protocol):
    second = cluster.second.node_id
    task = Slow(tmp_path / "marks", seconds=10.0, on_node=second)

    def computing_there():
        return [mark for _, node, _, mark in task.marks() if node == second]

    def lose_it(found):
        cluster.remove_node(cluster.second, allow_graceful=False)

    settings = [f"secagg.protocol={protocol}"]
    with Meanwhile(lose_it, computing_there) as lost:
        result = simulate(task, *settings, "engine=ray", "workers=3")
    cut_off = set(task.marks()) - set(task.marks("done"))
    assert lost.done
    assert any(node == second for _, node, _, _ in cut_off), "it computed nothing when it was lost"
    assert result.summary["dropouts"]["contribute"] == 0
    assert "was lost while it computed" in (result.folder / CLIENT_LOG).read_text()
    calm = simulate(Slow(tmp_path / "calm"), *settings, "engine=serial", out="serial")
    assert model(result) == model(calm)


@marked
@pytest.mark.parametrize("protocol", ["ideal", "pairwise"])
def test_an_actor_killed_while_it_computes_costs_nobody(tmp_path, simulate, protocol):
    task = Slow(tmp_path / "marks", seconds=0.5)

    def computing():
        return [pid for _, _, pid, _ in task.marks()]

    settings = [f"secagg.protocol={protocol}"]
    with Meanwhile(lambda pids: os.kill(pids[0], signal.SIGKILL), computing) as killed:
        result = simulate(task, *settings, "engine=ray", "workers=2")
    assert killed.done
    assert set(task.marks()) - set(task.marks("done")), "it computed nothing when it was killed"
    assert result.summary["dropouts"]["contribute"] == 0
    calm = simulate(Slow(tmp_path / "calm"), *settings, "engine=serial", out="serial")
    assert model(result) == model(calm)


@marked
@pytest.mark.parametrize("protocol", ["ideal", "pairwise"])
def test_a_client_that_ends_its_actor_is_tried_once_more_and_drops_out(
    tmp_path, simulate, protocol
):
    def end(index):
        if index == 2:
            os._exit(3)

    task = Slow(tmp_path / "marks", wrong=end)
    settings = [f"secagg.protocol={protocol}", "rounds=1"]
    result = simulate(task, *settings, "engine=ray", "workers=2")
    assert result.rounds[0]["dropouts"]["contribute"] == 1
    assert result.rounds[0]["survivors"] == 7
    assert [index for index, _, _, _ in task.marks()].count(2) == 2
    said = (result.folder / CLIENT_LOG).read_text()
    assert "tried once more" in said
    assert "clients (2,)" in said
    assert "again: they drop out" in said
    assert (result.rounds[0]["clients_trained"], result.rounds[0]["clients_failed"]) == (7, 1)
    assert "client 2: it lost two actors" in result.rounds[0]["first_failure"]


@marked
def test_a_client_that_fails_in_an_actor_is_heard_of_here(tmp_path, simulate):
    def fail(index):
        if index == 2:
            raise OSError("no records today")

    task = Slow(tmp_path / "marks", wrong=fail)
    result = simulate(task, "secagg.protocol=ideal", "rounds=1", "engine=ray", "workers=2")
    assert result.rounds[0]["dropouts"]["contribute"] == 1
    said = (result.folder / CLIENT_LOG).read_text()
    assert "client 2: its answer to round 1 failed" in said
    assert "Traceback" in said
    assert "OSError: no records today" in said
    assert said.count("drops out") == 1
    assert result.rounds[0]["first_failure"] == "client 2: OSError: no records today"


@marked
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks in /proc for processes")
def test_an_interrupted_command_leaves_nothing_running(tmp_path):
    mark = f"ZEROSUM_TEST={uuid.uuid4().hex}"
    name, _, value = mark.partition("=")
    command = [sys.executable, "-m", "zerosum.simulations.commands.main", "run", "digits", "--set"]
    command += ["rounds=100000", "--set", "engine=ray", "--set", "workers=2"]
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path / "run")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {name: value},
        start_new_session=True,
    )
    try:
        wait_for(lambda: (tmp_path / "run" / METRICS).exists())
        assert len(processes_of(mark)) > 3, "the mark finds Ray's processes"
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        process.wait(60)
        wait_for(lambda: not processes_of(mark), seconds=30)
    finally:
        process.kill()
        process.wait()
        for pid in processes_of(mark):
            os.kill(pid, signal.SIGKILL)


def test_without_ray_it_is_asked_for_by_name(monkeypatch):
    monkeypatch.setattr(choice, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r'engine = "ray".*zerosum\[ray\]'):
        choice.workers_of(api.load_experiment("digits", ["engine=ray"]))
