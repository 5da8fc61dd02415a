"""Hosts of a rehearsal on one machine: loopback, or network namespaces on a bridge of their own."""

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from os import getpid

_BRIDGE = "zs{0}"
_NETWORK = "10.213.{0}.{1}"


@dataclass(frozen=True)
class Loopback:
    """The machine's own loopback address, without namespaces."""

    address: str = "127.0.0.1"
    listen: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()


@dataclass(frozen=True)
class Namespace:
    """A network namespace with one link, which can be cut and mended."""

    name: str
    address: str
    listen: str = "0.0.0.0"  # within the namespace alone

    @property
    def prefix(self) -> tuple[str, ...]:
        """Words before a command that start it in this namespace."""
        return ("ip", "netns", "exec", self.name)

    def cut(self) -> None:
        """Take the link down: packets are lost, and neither end is notified."""
        _ip("-n", self.name, "link", "set", "eth0", "down")

    def mend(self) -> None:
        """Bring the link up again."""
        _ip("-n", self.name, "link", "set", "eth0", "up")


Host = Loopback | Namespace


def can_make_namespaces() -> bool:
    """Return whether this process may make network namespaces, by making one."""
    try:
        with namespaces(1):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


@contextlib.contextmanager
def namespaces(count: int) -> Iterator[list[Namespace]]:
    """Make namespaces on one bridge, named after this process; delete them afterwards."""
    number = getpid()
    bridge, network = _BRIDGE.format(number), number % 250 + 1
    hosts = [
        Namespace(f"{bridge}n{place}", _NETWORK.format(network, place + 2))
        for place in range(count)
    ]
    with contextlib.ExitStack() as stack:
        _ip("link", "add", bridge, "type", "bridge")
        stack.callback(_ip, "link", "del", bridge)
        _ip("addr", "add", f"{_NETWORK.format(network, 1)}/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for place, host in enumerate(hosts):
            _ip("netns", "add", host.name)
            stack.callback(_ip, "netns", "del", host.name)
            port = f"{bridge}p{place}"
            _ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host.name)
            _ip("link", "set", port, "master", bridge, "up")
            _ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", "eth0")
            _ip("-n", host.name, "link", "set", "lo", "up")
            _ip("-n", host.name, "link", "set", "eth0", "up")
        yield hosts


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
