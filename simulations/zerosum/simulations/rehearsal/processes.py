"""Flower's programs on this machine: started in one folder, found by a mark, ended by their ids."""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from zerosum.client.files.operating_system import KILL

BIN = Path(sys.executable).parent

PROGRAMS = ("flower-superlink", "flower-supernode", "flwr")

START_SECONDS = 90.0
"""Seconds that a program may take to listen: the machine may be busy."""


ANSWER_SECONDS = 300.0
"""Seconds that a ``flwr`` command may take."""


class DeploymentError(Exception):
    """A process did not start, or a run did not end; the message ends with its log."""


def check_programs() -> None:
    """Refuse to begin where a program of Flower's that is started here is absent.

    Raises
    ------
    DeploymentError
        If one is.
    """
    absent = [program for program in PROGRAMS if shutil.which(program, path=str(BIN)) is None]
    if absent:
        raise DeploymentError(
            f"Flower's programs are not beside this Python ({', '.join(absent)} in {BIN}): "
            "pip install flwr"
        )


class FlowerPrograms:
    """A SuperLink's connection, and the programs that were started beside it.

    Parameters
    ----------
    folder : Path
        Of Flower's home and of logs; made if it is absent.
    connection : str
        Name under which ``flwr`` knows the SuperLink.
    address : str
        Of the SuperLink, which listens on a port that is free now.
    authority : Path, optional
        The certificate that its own is signed by; None is without TLS.
    """

    prefix: tuple[str, ...] = ()
    """Words before a command that start it where it reaches the SuperLink."""

    def __init__(
        self, folder: Path, connection: str, address: str, authority: Path | None = None
    ) -> None:
        self.folder, self.connection, self.address = folder, connection, address
        self.port = free_port()
        # It imports flwr, and every command reads this file.
        from zerosum.client.flower.flower_internals import nodes_have_a_port_of_their_own

        own = nodes_have_a_port_of_their_own()
        self.port_of_nodes = free_port() if own else self.port
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.mark = f"ZEROSUM_FEDERATION={secrets.token_hex(16)}"
        self.env = os.environ | self._environment()
        (folder / "flwr").mkdir(parents=True)
        trust = "insecure = true" if authority is None else f'root-certificates = "{authority}"'
        (folder / "flwr" / "config.toml").write_text(
            f'[superlink]\ndefault = "{connection}"\n\n[superlink.{connection}]\n'
            f'address = "{address}:{self.port}"\n{trust}\n',
            encoding="utf-8",
            newline="\n",
        )

    def port_of_nodes_given(self, host: str) -> tuple[str, ...]:
        """Return the words by which a SuperLink that listens at a host has nodes connect there."""
        if self.port_of_nodes == self.port:
            return ()
        return ("--fleet-api-address", f"{host}:{self.port_of_nodes}")

    def _environment(self) -> dict[str, str]:
        """Return what every program is started with."""
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

    def start(self, name: str, program: str, *arguments: str, prefix: tuple[str, ...] = ()) -> None:
        """Start a program in a process group of its own, with its log in the folder.

        Parameters
        ----------
        name : str
            By which it is killed, and its log found.
        program, *arguments : str
            A command of this Python's environment.
        prefix : tuple of str
            What starts it elsewhere, as in a network namespace.
        """
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*prefix, str(BIN / program), *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.env,
                cwd=self.folder,
                start_new_session=True,
            )

    def wait_for_port(self, name: str) -> None:
        """Wait until the SuperLink listens.

        Parameters
        ----------
        name : str
            The program, as :meth:`start` was given it.

        Raises
        ------
        DeploymentError
            If it ends, or does not listen in time.
        """
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.processes[name].poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex((self.address, self.port)) == 0:
                    return
            time.sleep(0.2)
        raise DeploymentError(f"{name} does not listen on port {self.port}:\n{self.log(name)}")

    def flwr(self, *arguments: str, cwd: Path | None = None) -> str:
        """Run a ``flwr`` command and return what it printed.

        Parameters
        ----------
        *arguments : str
            Of the command.
        cwd : Path, optional
            Where it runs; the federation's folder where absent.

        Returns
        -------
        str
            Its standard output.

        Raises
        ------
        DeploymentError
            If it fails, or does not answer in time.
        """
        try:
            done = subprocess.run(
                [*self.prefix, str(BIN / "flwr"), *arguments],
                # To pack an app Flower imports it, and its folder is to stay as it is.
                env={**self.env, "PYTHONDONTWRITEBYTECODE": "1"},
                cwd=cwd or self.folder,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=ANSWER_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise DeploymentError(
                f"flwr {arguments[0]}: no answer in {ANSWER_SECONDS:g} s"
            ) from None
        if done.returncode:
            raise DeploymentError(f"flwr {arguments[0]}: {done.stdout}{done.stderr}")
        return done.stdout

    def kill(self, name: str, ending: signal.Signals = KILL) -> None:
        """End one program and all that it started.

        Parameters
        ----------
        name : str
            The program, as :meth:`start` was given it.
        ending : signal.Signals
            What it is sent.
        """
        process = self.processes.pop(name)
        for number in (process.pid, *_descendants(process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, ending)
        process.wait(30)

    def stop(self) -> None:
        """End all processes of the federation, those that its programs started too."""
        for ending in (signal.SIGTERM, KILL):
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
        return processes_of(self.mark)

    def log(self, name: str) -> str:
        """Return the last words of a program."""
        return (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")[-6000:]


def processes_of(mark: str) -> list[int]:
    """Return the ids of the processes whose environment has ``NAME=VALUE``; /proc is needed."""
    return [number for number in _processes() if mark in _environment(number)]


def free_port() -> int:
    """Return a port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _environment(number: int) -> list[str]:
    try:
        return (
            Path(f"/proc/{number}/environ")
            .read_text(encoding="utf-8", errors="replace")
            .split("\0")
        )
    except OSError:  # it ended meanwhile, or is another user's
        return []


def _descendants(number: int) -> list[int]:
    parents = {}
    for other in _processes():
        with contextlib.suppress(OSError, IndexError):
            fields = Path(f"/proc/{other}/stat").read_bytes().rpartition(b")")[2].split()
            parents[other] = int(fields[1])
    found, left = [], [number]
    while left:
        parent = left.pop()
        children = [child for child, of in parents.items() if of == parent]
        found += children
        left += children
    return found
