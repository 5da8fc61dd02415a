"""A SuperLink and its SuperNodes on this machine, over TLS: what a deployment is rehearsed on.

On loopback, or each in a network namespace with an address of its own, whose link can be cut.
Whatever was started is ended by its id.
"""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from zerosum.client.files.private_files import write_private
from zerosum.client.protocol.node_keys import read_roster
from zerosum.secagg import IdentityKey, Roster, SignedRoster
from zerosum.simulations.rehearsal.certificates import (
    make_certificates,
    make_node_key,
)
from zerosum.simulations.rehearsal.namespaces import Host, Loopback, namespaces
from zerosum.simulations.rehearsal.processes import DeploymentError, FlowerPrograms, free_port
from zerosum.simulations.rehearsal.waiting import wait_for_end
from zerosum.simulations.terminal.signals import terminable, undisturbed

CONNECTION = "test"

SERVERAPP = "serverapp"
"""Name of the process that follows a ServerApp's log."""

AUTHORITY_FILE = "authority.pub"
"""The key that signed the roster: written last of what is kept."""


class Federation(FlowerPrograms):
    """The files of a deployment, in one folder.

    Parameters
    ----------
    folder : Path
        Of certificates, keys, logs, node states and runs: empty or absent; all is made here. One
        that :func:`tidied` left has roster, keys and states already.
    link : Host
        Where the SuperLink runs.
    hosts : sequence of Host
        Where each node runs.
    """

    def __init__(self, folder: Path, link: Host, hosts: Sequence[Host]) -> None:
        self.link, self.hosts, self.prefix = link, hosts, link.prefix
        self.certificates = make_certificates(folder / "tls", [link.address, "127.0.0.1"])
        super().__init__(folder, CONNECTION, link.address, self.certificates.authority)
        self._keep_roster()
        from zerosum.server.flower.serving import AUTHORITY, ROSTER  # which imports flwr

        # Of an app whose code names neither.
        self.env |= {ROSTER: str(self.roster), AUTHORITY: self.authority}

    def _keep_roster(self) -> None:
        """Take the roster that the folder has, with its nodes' keys and states; else make it."""
        authority_file = self.folder / AUTHORITY_FILE
        self.roster = self.folder / "roster"
        if authority_file.is_file():
            self.authority = authority_file.read_text(encoding="utf-8").strip()
            self.signed_roster = read_roster(str(self.roster), self.authority)
            return
        self._make_roster()
        authority_file.write_text(self.authority + "\n", encoding="utf-8", newline="\n")

    def _make_roster(self) -> None:
        """Give every node a signing key, and sign the list of them as one who is not the server."""
        identities = [IdentityKey.generate() for _ in self.hosts]
        signer = IdentityKey.generate()
        self.signed_roster = Roster(1, {index: key.public for index, key in enumerate(identities)})
        self.roster.write_bytes(SignedRoster.sign(self.signed_roster, signer).to_bytes())
        self.authority = signer.public.hex()
        for index, key in enumerate(identities):
            write_private(self.folder / f"node{index}.key", key.to_bytes())

    @property
    def keys_of_server(self) -> list[str]:
        """Settings that tell the server of the roster."""
        return [f"deployment.roster={self.roster}", f"deployment.authority={self.authority}"]

    def start_superlink(self, *arguments: str) -> None:
        """Start the SuperLink, over TLS, for registered nodes alone, which it keeps in a file."""
        tls = self.certificates
        self.start(
            "superlink",
            "flower-superlink",
            *("--ssl-ca-certfile", str(tls.authority)),
            *("--ssl-certfile", str(tls.certificate), "--ssl-keyfile", str(tls.key)),
            *("--host", self.link.listen, "--port", str(self.port)),
            *self.port_of_nodes_given(self.link.listen),
            *("--database", str(self.folder / "federation.db")),
            "--enable-supernode-auth",
            "--disable-runtime-dependency-installation",
            *arguments,
            prefix=self.link.prefix,
        )
        self.wait_for_port("superlink")

    def register(self, index: int) -> None:
        """Make a node's key for the SuperLink, and register its public part."""
        public = make_node_key(self.folder / f"supernode{index}.pem")
        self.flwr("supernode", "register", str(public), CONNECTION)

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
        node_config = [f"partition-id={index}", f"num-partitions={len(self.hosts)}"]
        node_config += [f'{key}="{value}"' for key, value in given.items()]
        self.start(
            f"supernode{index}",
            "flower-supernode",
            *("--root-certificates", str(authority or self.certificates.authority)),
            *("--superlink", f"{self.link.address}:{self.port_of_nodes}"),
            *("--auth-supernode-private-key", str(self.folder / f"supernode{index}.pem")),
            *("--port", str(free_port())),
            *("--node-config", " ".join([*node_config, config]).strip()),
            prefix=self.hosts[index].prefix,
        )

    def submit(self, app: Path, settings: Sequence[str], out: Path) -> int:
        """Start a run of an app of ours, and return its id.

        Parameters
        ----------
        app : Path
            Its folder.
        settings : sequence of str
            Overrides, as ``--set`` takes them.
        out : Path
            The run folder.

        Returns
        -------
        int
            The run's id.
        """
        overrides = " ".join(settings)
        return self.submit_config(app, f'out="{out}" overrides="{overrides}"')

    def submit_config(self, app: Path, config: str) -> int:
        """Start a run of any Flower app with a run config, and return its id.

        Parameters
        ----------
        app : Path
            Its folder.
        config : str
            As ``flwr run --run-config`` takes it.

        Returns
        -------
        int
            The run's id.

        Raises
        ------
        DeploymentError
            If Flower does not take it, with its reason.
        """
        given = ("--run-config", config, "--format", "json")
        answer = json.loads(self.flwr("run", ".", CONNECTION, *given, cwd=app))
        if "run-id" not in answer:  # Flower ends with 0 all the same
            said = " ".join(str(answer.get("error-message", answer)).split())
            raise DeploymentError(f"flwr run: {said}")
        return int(answer["run-id"])

    def follow(self, run: int) -> Path:
        """Keep what a run's ServerApp logs, as it is logged, and return the file.

        Parameters
        ----------
        run : int
            Its id. The process that is started ends when the run does.

        Returns
        -------
        Path
            The log.
        """
        self.start(SERVERAPP, "flwr", "log", str(run), CONNECTION, prefix=self.prefix)
        return self.folder / f"{SERVERAPP}.log"

    def status(self, run: int) -> str:
        """Return what the SuperLink says of a run."""
        output = json.loads(self.flwr("list", CONNECTION, "--run-id", str(run), "--format", "json"))
        status: str = output["runs"][0]["status"]
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

        Returns
        -------
        str
            The status, as ``finished:completed``.

        Raises
        ------
        DeploymentError
            If it takes longer.
        """
        try:
            return wait_for_end(partial(self.status, run), seconds, sign=sign)
        except TimeoutError as error:
            raise DeploymentError(f"{error}:\n{self.run_log(run)}") from None

    def run_log(self, run: int) -> str:
        """Return the last words of a run's ServerApp."""
        return self.flwr("log", str(run), CONNECTION, "--show")[-6000:]


def tidied(folder: Path) -> None:
    """Remove what is of one SuperLink alone: certificates, Flower's home, its database and keys.

    Roster, identities, states and logs of the nodes stay: with them they are the same nodes.
    """
    for name in ("tls", "flwr"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for pattern in ("federation.db*", "supernode*.pem", "supernode*.pub"):
        for file in folder.glob(pattern):
            file.unlink()


@contextlib.contextmanager
def federation(
    folder: Path,
    nodes: int,
    *,
    apart: bool = False,
    tell: Callable[[str], None] = lambda what: None,
) -> Iterator[Federation]:
    """Yield a federation whose SuperLink runs and knows its nodes; end everything afterwards.

    Parameters
    ----------
    folder : Path
        Empty, absent, or what an earlier one left there, of as many nodes.
    nodes : int
        SuperNodes, not started yet.
    apart : bool
        Whether each has a network namespace of its own; needs the rights to make them.
    tell : callable
        Is told what was done.

    Yields
    ------
    Federation
        With its SuperLink running and its nodes registered.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(terminable())
        tidied(folder)
        hosts: list[Host] = [Loopback()] * (nodes + 1)
        if apart:
            hosts = list(stack.enter_context(namespaces(nodes + 1)))
        built = Federation(folder, hosts[0], hosts[1:])
        stack.callback(tidied, folder)
        try:
            built.start_superlink()
            tell(f"started the SuperLink; its log: {built.folder}/superlink.log")
            for index in range(nodes):
                built.register(index)
                tell(f"registered node {index}")
            yield built
        finally:  # a second ctrl-C would leave processes behind
            with undisturbed():
                built.stop()
