"""What nodes are given before a run, and a federation of real processes."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from zerosum.secagg import IdentityKey, Roster, SignedRoster

BIN = Path(sys.executable).parent


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
            (folder / f"{index}.key").write_bytes(key.to_bytes())
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


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_port(port, process, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    pytest.fail(f"nothing listens on port {port}")


class Federation:
    """A SuperLink and SuperNodes on loopback, each in a process group that is ended by its id."""

    def __init__(self, folder):
        self.folder = folder
        self.port = free_port()
        self.processes = []
        self.env = os.environ | {
            "FLWR_HOME": str(folder / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        }
        (folder / "flwr").mkdir()
        (folder / "flwr" / "config.toml").write_text(
            '[superlink]\ndefault = "test"\n\n[superlink.test]\n'
            f'address = "127.0.0.1:{self.port}"\ninsecure = true\n'
        )

    def start(self, name, *arguments):
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [BIN / arguments[0], *arguments[1:]],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.env,
                cwd=self.folder,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def superlink(self):
        """Start the SuperLink and wait until it listens."""
        process = self.start(
            "superlink",
            "flower-superlink",
            "--insecure",
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--disable-runtime-dependency-installation",
        )
        wait_for_port(self.port, process)

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
            f"127.0.0.1:{self.port}",
            "--port",
            str(free_port()),
            "--node-config",
            " ".join(f"{key}={json.dumps(value)}" for key, value in given.items()),
        )

    def stop(self):
        for ending in (signal.SIGTERM, signal.SIGKILL):
            for process in reversed(self.processes):
                try:
                    os.killpg(process.pid, ending)
                except ProcessLookupError:
                    continue
            deadline = time.monotonic() + 10
            for process in self.processes:
                try:
                    process.wait(max(0.1, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    continue

    def flwr(self, *arguments):
        return subprocess.run(
            [BIN / "flwr", *arguments],
            env=self.env,
            cwd=self.folder / "app",
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout

    def wait_for_run(self, seconds):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            (run,) = json.loads(self.flwr("list", "test", "--format", "json"))["runs"]
            if run["status"].startswith("finished"):
                return run["status"]
            time.sleep(8)  # each look is a process of its own, seconds of the nodes' time
        return "unfinished"


@pytest.fixture
def federation(tmp_path):
    built = Federation(tmp_path)
    yield built
    built.stop()
