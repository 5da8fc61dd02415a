"""Keys of nodes, and a federation of real processes."""

import json
import time

import pytest
from strategy_apps import CLIENTS, POLICY

from zerosum.client.files.private_files import write_private
from zerosum.secagg import IdentityKey, Roster, SignedRoster
from zerosum.simulations.engine.grid import InProcessGrid
from zerosum.simulations.rehearsal.processes import FlowerPrograms, free_port


class Keys:
    """Identity keys and a signed roster in files, as nodes are given them before a run."""

    def __init__(self, folder, count, version=1):
        self.folder = folder
        folder.mkdir(exist_ok=True)
        authority = IdentityKey.generate()
        self.authority = authority.public.hex()
        entries = {}
        for index in range(count):
            key = IdentityKey.generate()
            write_private(folder / f"{index}.key", key.to_bytes())
            entries[index] = key.public
        self.roster = Roster(version, entries)
        self.path = folder / "roster"
        self.path.write_bytes(SignedRoster.sign(self.roster, authority).to_bytes())

    def node_config(self, index):
        return {
            "identity": str(self.folder / f"{index}.key"),
            "roster": str(self.path),
            "authority": self.authority,
        }


@pytest.fixture
def make_keys():
    """Return the class: ``make_keys(folder, count, version=1)`` writes the files."""
    return Keys


class Federation(FlowerPrograms):
    """A SuperLink and SuperNodes on loopback, without TLS."""

    def __init__(self, folder):
        super().__init__(folder, "test", "127.0.0.1")

    def superlink(self):
        """Start the SuperLink and wait until it listens."""
        self.start(
            "superlink",
            "flower-superlink",
            "--insecure",
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--disable-runtime-dependency-installation",
            *self.port_of_nodes_given("127.0.0.1"),
        )
        self.wait_for_port("superlink")

    def supernode(self, index, count, config):
        """Start a SuperNode with a state folder of its own and further node config."""
        given = {
            "partition-id": index,
            "num-partitions": count,
            "state-dir": f"{self.folder}/state{index}",
            **config,
        }
        self.start(
            f"supernode{index}",
            "flower-supernode",
            "--insecure",
            "--superlink",
            f"127.0.0.1:{self.port_of_nodes}",
            "--port",
            str(free_port()),
            "--node-config",
            " ".join(f"{key}={json.dumps(value)}" for key, value in given.items()),
        )

    def flwr(self, *arguments, cwd=None):
        return super().flwr(*arguments, cwd=cwd or self.folder / "app")

    def wait_for_run(self, seconds):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            (run,) = json.loads(self.flwr("list", "test", "--format", "json"))["runs"]
            if run["status"].startswith("finished"):
                return run["status"]
            time.sleep(20)  # each look is a process of its own, seconds of the nodes' time
        return "unfinished"


@pytest.fixture
def federation(tmp_path):
    built = Federation(tmp_path)
    yield built
    built.stop()


@pytest.fixture
def grid_of(tmp_path):
    """Return a grid whose clients have a folder and a policy of their own."""
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)

    def grid(app, clients=CLIENTS, **config):
        return InProcessGrid(
            app,
            clients,
            node_config=lambda index: {
                "state-dir": str(tmp_path / "state" / str(index)),
                "policy": str(policy),
                **config,
            },
        )

    return grid
