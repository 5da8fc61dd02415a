"""A SuperLink of Flower's that simulates: what `flwr run` does with an app, to its end."""

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
from narrowed import present

from zerosum.simulations.rehearsal.processes import free_port, processes_of

BIN = Path(sys.executable).parent


class Simulation:
    """A SuperLink that simulates, what it starts, and ``flwr`` in a copy of an app's folder."""

    def __init__(self, folder, app):
        self.app = folder / "app"
        self.mark = ("ZEROSUM_TEST", uuid.uuid4().hex)
        self.port = free_port()
        shutil.copytree(app, self.app)
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

    def run(self, nodes, run_config="", tries=5):
        """Run the app to its end, and return what was printed meanwhile."""
        before = self.log.read_text().count("Finished task")
        answer = self.flwr(
            *("run", ".", "simulation", "--format", "json"),
            *("--federation-config", f"num-supernodes={nodes} client-resources-num-cpus=1"),
            *(("--run-config", run_config) if run_config else ()),
        )
        deadline = time.monotonic() + 600
        while self.log.read_text().count("Finished task") == before:
            assert time.monotonic() < deadline, self.log.read_text()[-3000:]
            time.sleep(0.5)
        run_id = present(re.search(r'"run-id": "(\d+)"', answer))
        printed = self.flwr("log", run_id[1], "simulation", "--show")
        # Ray gives itself 30 seconds to start: a busy machine may need more.
        if tries and "node timed out during startup" in printed:
            return self.run(nodes, run_config, tries - 1)
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
