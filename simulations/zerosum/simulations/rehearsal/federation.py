"""A SuperLink and its SuperNodes on this machine, over TLS: what a deployment is rehearsed on.

On loopback, or each in a network namespace with an address of its own, whose link can be cut.
Whatever was started is ended by its id.
"""

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from zerosum.secagg import IdentityKey, Roster, SignedRoster
from zerosum.simulations.rehearsal.certificates import (
    make_certificates,
    make_node_key,
    write_secret,
)
from zerosum.simulations.rehearsal.namespaces import Host, Loopback, namespaces

BIN = Path(sys.executable).parent
STARTS = 90.0
"""Seconds that a process may take to listen: the machine may be busy."""


ASK_SECONDS = 30.0
"""Between two questions of how a run is."""


class DeploymentError(Exception):
    """A process did not start, or a run did not end; the message ends with its log."""


class Federation:
    """Everything that a deployment needs, in one folder.

    Parameters
    ----------
    folder : Path
        Of certificates, keys, logs, node states and runs: empty or absent; all is made here.
    link : Host
        Where the SuperLink runs.
    hosts : sequence of Host
        Where each node runs.
    """

    def __init__(self, folder: Path, link: Host, hosts: Sequence[Host]) -> None:
        self.folder, self.link, self.hosts = folder, link, hosts
        self.port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.mark = f"ZEROSUM_FEDERATION={secrets.token_hex(16)}"
        self.env = os.environ | self._environment()
        (folder / "flwr").mkdir(parents=True)
        self.certificates = make_certificates(folder / "tls", [link.address, "127.0.0.1"])
        (folder / "flwr" / "config.toml").write_text(
            '[superlink]\ndefault = "test"\n\n[superlink.test]\n'
            f'address = "{link.address}:{self.port}"\n'
            f'root-certificates = "{self.certificates.authority}"\n'
        )
        self._make_roster()

    def _environment(self) -> dict[str, str]:
        """Return what every program of this federation is started with."""
        name, value = self.mark.split("=")
        return {
            name: value,
            "FLWR_HOME": str(self.folder / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": "1",  # all nodes share this machine, and sums of floats a thread
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        }

    def _make_roster(self) -> None:
        """Give every node a signing key, and sign the list of them as one who is not the server."""
        identities = [IdentityKey.generate() for _ in self.hosts]
        signer = IdentityKey.generate()
        self.signed_roster = Roster(1, {index: key.public for index, key in enumerate(identities)})
        self.roster = self.folder / "roster"
        self.roster.write_bytes(SignedRoster.sign(self.signed_roster, signer).to_bytes())
        self.authority = signer.public.hex()
        for index, key in enumerate(identities):
            write_secret(self.folder / f"node{index}.key", key.to_bytes())

    @property
    def keys_of_server(self) -> list[str]:
        """Settings that tell the server of the roster."""
        return [f"deployment.roster={self.roster}", f"deployment.authority={self.authority}"]

    def start_superlink(self, *arguments: str) -> None:
        """Start the SuperLink, over TLS, for nodes that were registered alone."""
        tls = self.certificates
        self.start(
            "superlink",
            self.link,
            "flower-superlink",
            *("--ssl-ca-certfile", str(tls.authority)),
            *("--ssl-certfile", str(tls.certificate), "--ssl-keyfile", str(tls.key)),
            *("--host", self.link.listen, "--port", str(self.port)),
            "--enable-supernode-auth",
            "--disable-runtime-dependency-installation",
            *arguments,
        )
        self.wait_for_port("superlink")

    def register(self, index: int) -> None:
        """Make a node's key for the SuperLink, and register its public part."""
        public = make_node_key(self.folder / f"supernode{index}.pem")
        self.flwr("supernode", "register", str(public), "test")

    def start_supernode(
        self,
        index: int,
        config: str = "",
        *,
        authority: Path | None = None,
        roster: Path | None = None,
    ) -> None:
        """Start a node with its key, its identity, the roster and a folder of its own.

        Parameters
        ----------
        index : int
            In the roster.
        config : str
            More node config, as ``policy="FILE"``.
        authority : Path, optional
            The certificate that it trusts, if not the SuperLink's own authority.
        roster : Path, optional
            The file that it is given, if not the roster that was signed.
        """
        given = {
            "state-dir": self.folder / f"state{index}",
            "identity": self.folder / f"node{index}.key",
            "roster": roster or self.roster,
            "authority": self.authority,
        }
        words = [f"partition-id={index}", f"num-partitions={len(self.hosts)}"]
        words += [f'{key}="{value}"' for key, value in given.items()]
        self.start(
            f"supernode{index}",
            self.hosts[index],
            "flower-supernode",
            *("--root-certificates", str(authority or self.certificates.authority)),
            *("--superlink", f"{self.link.address}:{self.port}"),
            *("--auth-supernode-private-key", str(self.folder / f"supernode{index}.pem")),
            *("--port", str(free_port())),
            *("--node-config", " ".join([*words, config]).strip()),
        )

    def start(self, name: str, host: Host, program: str, *arguments: str) -> None:
        """Start a program in a process group of its own, with its log in the folder."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*host.prefix, str(BIN / program), *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.env,
                cwd=self.folder,
                start_new_session=True,
            )

    def kill(self, name: str, ending: signal.Signals = signal.SIGKILL) -> None:
        """End one program and all that it started."""
        process = self.processes.pop(name)
        for number in (process.pid, *_descendants(process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, ending)
        process.wait(30)

    def stop(self) -> None:
        """End everything, whatever state it is in, and whoever started it."""
        for ending in (signal.SIGTERM, signal.SIGKILL):
            for number in self.running():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(number, ending)
            deadline = time.monotonic() + 10
            while self.running() and time.monotonic() < deadline:
                time.sleep(0.1)
        for process in self.processes.values():
            process.wait(10)
        self.processes.clear()

    def running(self) -> list[int]:
        """Return the ids of all processes that were started here, by whatever way.

        A SuperLink gives its ServerApp a session of its own, so that process groups are not enough.
        """
        return [number for number in _processes() if self.mark in _environment(number)]

    def wait_for_port(self, name: str) -> None:
        """Wait until the SuperLink listens."""
        deadline = time.monotonic() + STARTS
        while time.monotonic() < deadline and self.processes[name].poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex((self.link.address, self.port)) == 0:
                    return
            time.sleep(0.2)
        raise DeploymentError(f"{name} does not listen on port {self.port}:\n{self.log(name)}")

    def flwr(self, *arguments: str, app: Path | None = None) -> str:
        """Run a ``flwr`` command and return what it printed."""
        done = subprocess.run(
            [*self.link.prefix, str(BIN / "flwr"), *arguments],
            env=self.env,
            cwd=app or self.folder,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        if done.returncode:
            raise DeploymentError(f"flwr {arguments[0]}: {done.stdout}{done.stderr}")
        return done.stdout

    def submit(self, app: Path, settings: Sequence[str], out: Path) -> int:
        """Start a run of an app of ours, and return its id."""
        overrides = " ".join(settings)
        return self.submit_config(app, f'out="{out}" overrides="{overrides}"')

    def submit_config(self, app: Path, config: str) -> int:
        """Start a run of any Flower app with a run config, and return its id."""
        said = self.flwr("run", ".", "test", "--run-config", config, "--format", "json", app=app)
        return int(json.loads(said)["run-id"])

    def status(self, run: int) -> str:
        """Return what the SuperLink says of a run."""
        said = json.loads(self.flwr("list", "test", "--run-id", str(run), "--format", "json"))
        status: str = said["runs"][0]["status"]
        return status

    def wait_for_run(self, run: int, seconds: float, sign: Path | None = None) -> str:
        """Wait until a run has ended, and return how.

        Parameters
        ----------
        run : int
            Its id.
        seconds : float
            That it may take.
        sign : Path, optional
            A file that a run which ends well writes last: asking Flower costs a process.

        Raises
        ------
        DeploymentError
            If it takes longer.
        """
        deadline, asked = time.monotonic() + seconds, 0.0
        while time.monotonic() < deadline:
            if time.monotonic() - asked > ASK_SECONDS or (sign is not None and sign.exists()):
                status = self.status(run)
                asked = time.monotonic()
                if status.startswith("finished"):
                    return status
            time.sleep(0.5)
        raise DeploymentError(f"the run did not end in {seconds:g} s:\n{self.run_log(run)}")

    def run_log(self, run: int) -> str:
        """Return the last words of a run's ServerApp."""
        return self.flwr("log", str(run), "test", "--show")[-6000:]

    def log(self, name: str) -> str:
        """Return the last words of a program."""
        return (self.folder / f"{name}.log").read_text(errors="replace")[-6000:]


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _environment(number: int) -> list[str]:
    try:
        return Path(f"/proc/{number}/environ").read_text(errors="replace").split("\0")
    except OSError:  # it ended meanwhile, or is another user's
        return []


def _descendants(number: int) -> list[int]:
    parents = {}
    for other in _processes():
        with contextlib.suppress(OSError, IndexError):
            words = Path(f"/proc/{other}/stat").read_text().rpartition(")")[2].split()
            parents[other] = int(words[1])
    found, left = [], [number]
    while left:
        parent = left.pop()
        children = [child for child, of in parents.items() if of == parent]
        found += children
        left += children
    return found


def free_port() -> int:
    """Return a port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def _ended_in_order() -> Iterator[None]:
    """Let SIGTERM end this process as an exception does, so that nothing is left running."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: object) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def federation(folder: Path, nodes: int, *, apart: bool = False) -> Iterator[Federation]:
    """Yield a federation whose SuperLink runs and knows its nodes; end everything afterwards.

    Parameters
    ----------
    folder : Path
        Empty or absent.
    nodes : int
        SuperNodes, not started yet.
    apart : bool
        Whether each has a network namespace of its own; needs the rights to make them.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_ended_in_order())
        hosts: list[Host] = [Loopback()] * (nodes + 1)
        if apart:
            hosts = list(stack.enter_context(namespaces(nodes + 1)))
        built = Federation(folder, hosts[0], hosts[1:])
        stack.callback(built.stop)
        built.start_superlink()
        for index in range(nodes):
            built.register(index)
        yield built
