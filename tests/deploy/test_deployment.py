"""A SuperLink over TLS and registered SuperNodes, killed and cut off: what is left is right."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from zerosum.client.flower.client_app import build_app
from zerosum.server.private_sum.coordinator import Coordinator, Nodes
from zerosum.server.runs.checkpoint import STATE
from zerosum.server.runs.run_folder import MODEL, SUMMARY, RunFolder
from zerosum.server.training.loop import FederatedTraining
from zerosum.simulations import api, load_experiment
from zerosum.simulations.engine.grid import InProcessGrid, nodes
from zerosum.simulations.rehearsal import can_make_namespaces, federation
from zerosum.simulations.rehearsal.certificates import make_certificates
from zerosum.simulations.rehearsal.namespaces import Namespace

pytestmark = pytest.mark.timeout(1500)

APP = Path(__file__).parent / "seeded_app"
POLICY = f'policy="{APP / "policy.toml"}"'
STAGES = {
    "advertise": "query.advertise",
    "share": "query.share",
    "contribute": "train.contribute",
    "confirm": "query.confirm",
    "unmask": "query.unmask",
}
LAST = 4
"""The node that fails."""

JOINED, TAKEN = "SuperNode ID: ", "Exit Code: 305"
"""What a node's log says when the SuperLink lets it in, and while its key counts as there."""

FIRST = 2
"""Session of the first round: a round of training has an even number, its evaluation an odd one."""


class Until:
    """One client answers up to a stage of a round, and never again."""

    def __init__(self, index, round, stage):
        self.index, self.round, self.stage = index, round, list(STAGES).index(stage)

    def vanishes(self, round, index, kind):
        stage = list(STAGES.values()).index(kind)
        return index == self.index and (round, stage) >= (self.round, self.stage)


def in_process(folder, built, settings, faults=None):
    """Run the same app on a grid in this process, with the same keys and seeds."""
    given = [*built.keys_of_server, "deployment.pipeline=false", *settings]
    planned = api.plan(load_experiment(APP / "experiment.toml", given))
    seeded = _module().SeededNode
    count = len(built.hosts)
    grid = InProcessGrid(
        build_app(seeded),
        count,
        faults=faults,
        node_config=lambda index: {
            "state-dir": str(folder / f"state{index}"),
            "policy": str(APP / "policy.toml"),
            "identity": str(built.folder / f"node{index}.key"),
            "roster": str(built.roster),
            "authority": built.authority,
        },
    )
    coordinator = Coordinator(
        grid,
        Nodes(nodes(count), built.signed_roster),
        planned.experiment.secagg,
        run_id=b"in process",
        entropy=seeded.entropy,
    )
    run = RunFolder.create(folder / "run", planned.experiment)
    return FederatedTraining(
        planned.experiment, planned.task, count, coordinator, seeded.entropy, run
    ).run()


def _module():
    import importlib.util

    spec = importlib.util.spec_from_file_location("seeded", APP / "seeded.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def assert_same_model(folder, result):
    found = load_file(folder / MODEL)
    assert found.keys() == result.model.keys()
    for name, value in result.model.items():
        np.testing.assert_array_equal(found[name], value)


def finished(built, run, out, seconds=600):
    status = built.wait_for_run(run, seconds, out / SUMMARY)
    assert status == "finished:completed", built.run_log(run)
    return json.loads((out / SUMMARY).read_text())


@pytest.mark.slow
@pytest.mark.network
def test_three_registered_nodes_over_tls_give_the_simulated_model(tmp_path, one_thread):
    settings = ["deployment.min_nodes=3", "secagg.dropout=0", "data.clients=3"]
    with federation(tmp_path / "all", 3) as built:
        for index in range(3):
            built.start_supernode(index, POLICY)
        out = tmp_path / "run"
        summary = finished(built, built.submit(APP, [*built.keys_of_server, *settings], out), out)
        mark = built.mark
        ours = built.running()
    assert ours
    assert built.running() == []
    assert mark not in Path("/proc/self/environ").read_text()
    assert (summary["rounds"], summary["rounds_abandoned"]) == (3, 0)
    assert summary["server"] == "malicious"
    assert summary["dropouts"] == dict.fromkeys(summary["dropouts"], 0)
    simulated = api.run(
        load_experiment(APP / "experiment.toml", settings), out=tmp_path / "simulated", report=False
    )
    assert_same_model(out, simulated)


@pytest.fixture(scope="module")
def five(tmp_path_factory):
    """Five nodes, of which the last is started, and killed, by each test."""
    with federation(tmp_path_factory.mktemp("five") / "all", 5) as built:
        for index in range(LAST):
            built.start_supernode(index, POLICY)
        yield built


def wait_for_line(built, name, text, out=None, seconds=480):
    """Wait until a program's log says something, which it does no more once its run is over."""
    path = built.folder / f"{name}.log"
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not (out and (out / SUMMARY).exists()):
        if path.exists() and text in path.read_text(errors="replace"):
            return
        time.sleep(0.05)
    pytest.fail(f"{name} never said {text!r}:\n{built.log(name)}\n{built.log('superlink')}")


def join(built, index, seconds=180, **given):
    """Start a node as a service manager does: again, while its key counts as one that is there."""
    name, deadline = f"supernode{index}", time.monotonic() + seconds
    log = built.folder / f"{name}.log"
    if name in built.processes:  # of a test that failed
        built.kill(name)
    while time.monotonic() < deadline:
        log.unlink(missing_ok=True)
        built.start_supernode(index, POLICY, **given)
        while built.processes[name].poll() is None:
            if JOINED in log.read_text(errors="replace"):
                return
            time.sleep(0.1)
        assert TAKEN in log.read_text(errors="replace"), built.log(name)
        time.sleep(5)
    pytest.fail(f"{name} was refused for {seconds} s:\n{built.log(name)}")


@pytest.mark.deployment
@pytest.mark.parametrize("stage", list(STAGES))
def test_a_node_killed_at_a_stage_leaves_what_the_survivors_sum_says(
    five, tmp_path, stage, one_thread
):
    rounds = 2 if stage == "contribute" else 1
    settings = [f"rounds={rounds}", "data.clients=5"]
    join(five, LAST)
    out = tmp_path / "run"
    run = five.submit(APP, [*five.keys_of_server, *settings], out)
    wait_for_line(five, f"supernode{LAST}", f"Receiving: {STAGES[stage]} message", out)
    five.kill(f"supernode{LAST}")
    summary = finished(five, run, out)
    assert (summary["rounds"], summary["rounds_abandoned"]) == (rounds, 0)
    assert summary["dropouts"][stage] == 1
    wanted = in_process(tmp_path / "again", five, settings, Until(LAST, FIRST, stage))
    assert_same_model(out, wanted)


@pytest.mark.deployment
def test_a_tampered_roster_is_refused_by_name_and_the_run_goes_on(five, tmp_path):
    whole = five.roster.read_bytes()
    tampered = five.folder / "tampered"
    tampered.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    join(five, LAST, roster=tampered)
    out = tmp_path / "run"
    settings = ["rounds=1", "data.clients=5"]
    summary = finished(five, five.submit(APP, [*five.keys_of_server, *settings], out), out)
    five.kill(f"supernode{LAST}")
    assert summary["dropouts"]["advertise"] == 1
    assert summary["rounds_abandoned"] == 0
    said = (five.folder / f"supernode{LAST}.log").read_text()
    assert "client 4 declined to advertise" in said
    assert "not signed by its authority" in said


@pytest.mark.deployment
def test_a_node_that_trusts_another_authority_never_joins(five, tmp_path):
    other = make_certificates(tmp_path / "tls", ["127.0.0.1"])
    (five.folder / f"supernode{LAST}.log").unlink(missing_ok=True)
    five.start_supernode(LAST, POLICY, authority=other.authority)
    wait_for_line(five, f"supernode{LAST}", "certificate verify failed", seconds=120)
    five.kill(f"supernode{LAST}")
    assert JOINED not in five.log(f"supernode{LAST}")


@pytest.mark.deployment
@pytest.mark.skipif(not can_make_namespaces(), reason="this user may make no network namespaces")
def test_a_link_that_is_cut_in_a_round_costs_one_dropout(tmp_path, one_thread):
    settings = ["rounds=1", "data.clients=5"]
    with federation(tmp_path / "all", 5, apart=True) as built:
        addresses = {built.link.address, *(host.address for host in built.hosts)}
        assert len(addresses) == 6
        for index in range(5):
            built.start_supernode(index, POLICY)
        out = tmp_path / "run"
        run = built.submit(APP, [*built.keys_of_server, *settings], out)
        wait_for_line(built, f"supernode{LAST}", "Receiving: train.contribute message", out)
        last = built.hosts[LAST]
        assert isinstance(last, Namespace)
        last.cut()
        summary = finished(built, run, out)
        assert summary["dropouts"]["contribute"] == 1
        assert summary["rounds_abandoned"] == 0
        wanted = in_process(tmp_path / "again", built, settings, Until(LAST, FIRST, "contribute"))
    assert_same_model(out, wanted)
    assert built.running() == []


def kill_superlink(built):
    """Kill the SuperLink itself, as the kernel does for want of memory, and nothing beside it."""
    process = built.processes.pop("superlink")
    process.kill()
    process.wait(30)


def command_of(number):
    try:
        return Path(f"/proc/{number}/cmdline").read_text()
    except OSError:  # it ended meanwhile
        return ""


def wait_until_no_server_app(built, seconds=60):
    """Wait until what the SuperLink started for a run has ended, by itself."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any("flwr-serverapp" in command_of(number) for number in built.running()):
            return
        time.sleep(0.2)
    pytest.fail("a ServerApp outlives its SuperLink")


@pytest.mark.deployment
def test_a_superlink_killed_in_a_run_comes_back_and_the_run_is_resumed(tmp_path, one_thread):
    settings = ["rounds=3", "data.clients=5"]
    with federation(tmp_path / "all", 5) as built:
        for index in range(5):
            join(built, index)
        out = tmp_path / "run"
        first = built.submit(APP, [*built.keys_of_server, *settings], out)
        wait_for_line(built, f"supernode{LAST}", "Receiving: train.contribute message", out)
        while not (out / STATE).exists():
            time.sleep(0.1)
        kill_superlink(built)
        wait_until_no_server_app(built)
        assert not (out / SUMMARY).exists()
        built.start_superlink()
        second = built.submit_config(APP, f'resume="{out}"')
        summary = finished(built, second, out, 1200)
        assert built.status(first) == "finished:failed"
        alive = {name for name, process in built.processes.items() if process.poll() is None}
        assert alive == {"superlink", *(f"supernode{index}" for index in range(5))}, "none anew"
        assert (summary["rounds"], summary["rounds_abandoned"]) == (3, 0)
        wanted = in_process(tmp_path / "again", built, settings)
    assert_same_model(out, wanted)
