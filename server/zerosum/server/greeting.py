"""Which Flower node is which client: asked at the start, and again when one comes back."""

import logging
import time
from collections.abc import Iterable, Iterator

from flwr.app import Message
from flwr.serverapp import Grid

from zerosum.client import wire
from zerosum.server.config import ConfigError
from zerosum.server.exchange import poll
from zerosum.server.spec import DeploymentSpec

log = logging.getLogger("zerosum.server")

HELLO_SECONDS = 2.0
"""Pause between two looks for nodes."""

PRESENT_SECONDS = 0.2
"""The same, for nodes that Flower's simulation runtime is making."""


def wait_for_nodes(grid: Grid, spec: DeploymentSpec) -> dict[int, int]:
    """Wait until enough nodes have said which client they are; return node ids by index.

    Raises
    ------
    ConfigError
        If two nodes claim one index, or the indices have gaps.
    """
    found: dict[int, int] = {}
    greeted: set[int] = set()
    while len(found) < spec.min_nodes:
        new = [node for node in grid.get_node_ids() if node not in greeted]
        for node, index in _hellos(grid, new, spec):
            greeted.add(node)
            _enter(node, index, found)
        if len(found) < spec.min_nodes:
            time.sleep(HELLO_SECONDS)
    return _complete(found)


def simulated_nodes(grid: Grid) -> dict[int, int]:
    """Greet every node of Flower's simulation runtime; return node ids by index.

    The runtime has made all of them before the first one answers.

    Raises
    ------
    ConfigError
        If one does not answer as it should: it says why in the log.
    """
    found: dict[int, int] = {}
    greeted: set[int] = set()
    while new := [node for node in _present(grid) if node not in greeted]:
        for node, index in _read(grid.send_and_receive(_questions(new))):
            _enter(node, index, found)
        greeted.update(new)
    if len(found) < len(greeted):
        raise ConfigError(
            f"{len(greeted) - len(found)} of {len(greeted)} simulated nodes said no hello: the log "
            "above has their reasons"
        )
    return _complete(found)


def _present(grid: Grid) -> list[int]:
    """Return the nodes, as soon as there are any."""
    while not (nodes := list(grid.get_node_ids())):
        time.sleep(PRESENT_SECONDS)
    return nodes


def _enter(node: int, index: int | None, found: dict[int, int]) -> None:
    """Enter a node that said which client it is."""
    if index is None:
        return
    if index in found:
        raise ConfigError(
            f"node config partition-id = {index} is claimed by two nodes: give each its own"
        )
    found[index] = node


def _complete(found: dict[int, int]) -> dict[int, int]:
    if sorted(found) != list(range(len(found))):
        raise ConfigError(
            f"node config partition-id: nodes have {sorted(found)}, and the roster needs "
            f"0 to {len(found) - 1}"
        )
    return dict(sorted(found.items()))


class Attendance:
    """The clients of a run, and the nodes that they are on now.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
    spec : DeploymentSpec
        How long to wait for a hello.
    by_index : dict
        The node of each client; changed where a client comes back on another.
    """

    def __init__(self, grid: Grid, spec: DeploymentSpec, by_index: dict[int, int]) -> None:
        self.by_index = by_index
        self._grid = grid
        self._spec = spec
        self._strangers: set[int] = set()

    def welcome_back(self) -> None:
        """Find clients whose node restarted, and so has another node id; nobody is added.

        It takes no time where no node is new. Whoever claims the index of a node that is still
        there is left out until that one is gone: without identity keys nothing else tells two
        claims apart.
        """
        online = set(self._grid.get_node_ids())
        new = online - set(self.by_index.values()) - self._strangers
        self._strangers |= new  # until they have said who they are
        for node, index in _hellos(self._grid, new, self._spec):
            before = None if index is None else self.by_index.get(index)
            if index is None or before is None:
                log.warning("node %d is none of this run's clients", node)
            elif before in online:
                log.warning("node %d claims to be client %d, on node %d", node, index, before)
                self._strangers.discard(node)
            else:
                log.info("client %d is back, on another node", index)
                self.by_index[index] = node


def _hellos(
    grid: Grid, nodes: Iterable[int], spec: DeploymentSpec
) -> Iterator[tuple[int, int | None]]:
    """Ask nodes which client they are; yield those that answer, with None for nonsense."""
    messages = _questions(nodes)
    return _read(poll(grid, messages, [spec.stage_timeout] * len(messages)))


def _questions(nodes: Iterable[int]) -> list[Message]:
    return [Message(wire.pack({}), node, wire.HELLO_TYPE) for node in sorted(nodes)]


def _read(replies: Iterable[Message]) -> Iterator[tuple[int, int | None]]:
    for reply in replies:
        if not reply.has_content():
            continue
        node = reply.metadata.src_node_id
        try:
            yield node, wire.int_field(reply.content, "index")
        except ValueError as error:
            log.warning("node %d is left out: %s", node, error)
            yield node, None
