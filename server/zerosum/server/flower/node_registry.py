"""Registry of Flower nodes and their clients: asked at the start, and again when one returns."""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from flwr.serverapp import Grid

from zerosum.secagg import Roster
from zerosum.server.config import ConfigError
from zerosum.server.flower.hello_refusals import MOST_NAMED, HelloRefusals, in_words, named
from zerosum.server.flower.hellos import Hellos, questions, read
from zerosum.server.private_sum.coordinator import Nodes
from zerosum.server.private_sum.transport import poll
from zerosum.server.spec import DeploymentSpec

log = logging.getLogger("zerosum.server")

OFFSET_SECONDS, MOST_OFFSET_SECONDS = 5.0, 120.0
"""For which nodes may be numbered from another number than 0 on, before it is said and before
nobody waits for the missing ones. An offset is a gap until all are there: no server can tell."""

PRESENT_SECONDS = 0.2
"""The same, for nodes that Flower's simulation runtime is making."""


def meet(grid: Grid, spec: DeploymentSpec, roster: Roster | None) -> Nodes:
    """Wait for the clients of a run: a roster's, or else 0 to n - 1 for an n >= min_nodes.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        Of a deployment.
    spec : DeploymentSpec
        ``min_nodes``, and how long to wait.
    roster : Roster or None
        Where the clients have keys.

    Returns
    -------
    Nodes
        All clients of the run.

    Raises
    ------
    ConfigError
        If the roster has gaps, or somebody is still missing after ``start_timeout``.
    """
    if roster is not None and list(roster.entries) != list(range(len(roster))):
        raise ConfigError(
            f"roster {spec.roster or 'of ZEROSUM_ROSTER'}: it has clients "
            f"{named(roster.entries)}, and needs 0 to {len(roster) - 1}: sign one without gaps"
        )
    return Nodes(wait_for_nodes(grid, spec, None if roster is None else len(roster)), roster)


def wait_for_nodes(grid: Grid, spec: DeploymentSpec, expected: int | None = None) -> dict[int, int]:
    """Wait until everybody has said which client they are.

    Of two nodes that claim one index, the first that is still there has it. A node that does not
    answer is asked again after longer and longer, and what it answers at last counts.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        Of a deployment.
    spec : DeploymentSpec
        ``min_nodes``, and how long to wait.
    expected : int, optional
        Clients 0 to ``expected - 1`` take part, and no others. Default: at least ``min_nodes``,
        and all below the largest index that is claimed.

    Returns
    -------
    dict of int to int
        Node ids by client index.

    Raises
    ------
    ConfigError
        If somebody is still missing after ``start_timeout``: it says who. Sooner, if everybody
        refuses, or is numbered from another number than 0 on.
    """
    deadline = time.monotonic() + spec.start_timeout
    claims: dict[int, int | None] = {}
    refusals, offset, least = HelloRefusals(), _Offset(), expected or spec.min_nodes
    hellos = Hellos(grid, spec.stage_timeout, refusals.note)
    while True:
        online = list(grid.get_node_ids())
        hellos.ask(online, [n for n in online if n not in claims and refusals.over(n)])
        for node, index in hellos.answers():
            _warn_of_claim(node, index, _first(claims, online, expected), expected)
            claims[node] = index
        late = time.monotonic() > deadline
        found = _first(claims, online, expected)
        count = expected or max(spec.min_nodes, 1 + max(found, default=0))
        # Without a roster nobody knows how many there are until all that are asked have answered.
        if len(found) == count and (expected or late or not hellos.awaited()):
            return dict(sorted(found.items()))
        if claims.keys().isdisjoint(online) and (why := refusals.final(online, least)):
            raise refusals.error(why)
        said = [claims[node] for node in online if node in claims]
        offset.check(said, len(said) < len(online), least)
        if late:
            raise _missing(found, count, spec, _answers(online, claims, refusals))
        time.sleep(hellos.pause())


@dataclass
class _Offset:
    """Clients that are numbered without a gap, but not from 0 on, and since when they have been.

    Numbers that begin with 1 look like that, and so do nodes of which the first is late.
    """

    range: tuple[int, int] | None = None
    since: float = 0.0
    said: bool = False

    def check(self, claimed: Iterable[int | None], silent: bool, least: int) -> None:
        """Say so after a moment, and end the wait where nobody has come for a while.

        Parameters
        ----------
        claimed : iterable of int or None
            What the connected nodes say that they are.
        silent : bool
            Whether others are connected that did not say.
        least : int
            Nodes that the run is for.

        Raises
        ------
        ConfigError
            If it has been so for ``MOST_OFFSET_SECONDS``.
        """
        indices = {index for index in claimed if index is not None}
        first, last = min(indices, default=0), max(indices, default=0)
        whole = first > 0 and len(indices) == last - first + 1 >= least and not silent
        found = (first, last) if whole else None
        if found != self.range:
            self.range, self.since, self.said = found, time.monotonic(), False
        passed = time.monotonic() - self.since
        if found is None or passed < OFFSET_SECONDS:
            return
        if passed >= MOST_OFFSET_SECONDS:
            raise ConfigError(self._in_words(first, last))
        if not self.said:
            log.warning("%s", self._in_words(first, last))
            self.said = True

    @staticmethod
    def _in_words(first: int, last: int) -> str:
        return (
            f"node config partition-id: the connected nodes are clients {first} to {last}, and "
            f"none is client 0: number them from 0 to {last - first}, or start the missing ones"
        )


def _answers(
    online: Iterable[int], claims: Mapping[int, int | None], refusals: HelloRefusals
) -> str:
    """Say how many of the connected nodes answered what."""
    there = set(online)
    refused = len(refusals.counts.keys() & there - claims.keys())
    answered = len(claims.keys() & there)
    silent = len(there) - answered - refused
    return (
        f"of {len(there)} nodes connected {answered} answered, {refused} refused and {silent} did "
        "not answer"
    )


def _first(
    claims: Mapping[int, int | None], online: Iterable[int], expected: int | None
) -> dict[int, int]:
    """Return the node of each client: of those online, the first that claimed to be it."""
    there, found = set(online), dict[int, int]()
    for node, index in claims.items():
        if index is not None and _belongs(index, expected) and node in there:
            found.setdefault(index, node)
    return found


def _belongs(index: int, expected: int | None) -> bool:
    return index >= 0 and (expected is None or index < expected)


def _warn_of_claim(
    node: int, index: int | None, found: Mapping[int, int], expected: int | None
) -> None:
    if index is None:
        return  # nonsense, which was said already
    if not _belongs(index, expected):
        log.warning("node %d claims to be client %d, who is none of this run's", node, index)
    elif index in found:
        log.warning(
            "node %d claims to be client %d, on node %d, and is left out: give each its own "
            "partition-id", node, index, found[index],
        )  # fmt: skip


def _missing(
    found: Mapping[int, int], count: int, spec: DeploymentSpec, answers: str
) -> ConfigError:
    absent = islice((index for index in range(count) if index not in found), MOST_NAMED + 1)
    return ConfigError(
        f"deployment.start_timeout = {spec.start_timeout:g}: {count - len(found)} of {count} "
        f"clients have not said hello: {named(absent)}; {answers}; start their nodes, look into "
        "their logs, or wait longer"
    )


def simulated_nodes(grid: Grid) -> dict[int, int]:
    """Greet every node of Flower's simulation runtime.

    The runtime has made all of them before the first one answers.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        Of the runtime.

    Returns
    -------
    dict of int to int
        Node ids by client index.

    Raises
    ------
    ConfigError
        If one does not answer as it should: it says why in the log.
    """
    found: dict[int, int] = {}
    greeted: set[int] = set()
    refusals = HelloRefusals()
    while new := [node for node in _present(grid) if node not in greeted]:
        for node, index in read(grid.send_and_receive(questions(new)), refusals.note):
            _enter(node, index, found)
        greeted.update(new)
    if len(found) < len(greeted):
        reason = next(iter(refusals.reasons.values()), "")
        raise refusals.error(
            f"{len(greeted) - len(found)} of {len(greeted)} simulated nodes said no hello: "
            + (in_words(reason) if reason else "the log above has their reasons")
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


class NodeRegistry:
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
        self._silences: dict[int, int] = {}
        self._looks = 0

    def welcome_back(self) -> None:
        """Find clients whose node restarted, and so has another node id; nobody is added.

        It takes no time where no node is new. Whoever claims the index of a node that is still
        there is left out until that one is gone: without identity keys nothing else tells two
        claims apart. One that does not answer is asked again, less and less often: each time the
        round waits for it.
        """
        online = set(self._grid.get_node_ids())
        new = online - set(self.by_index.values()) - self._strangers
        asked = {n for n in new if self._looks % 2 ** self._silences.get(n, 0) == 0}
        self._looks += 1
        silent = set(asked)
        for node, index in _hellos(self._grid, asked, self._spec):
            silent.discard(node)
            before = None if index is None else self.by_index.get(index)
            if index is None or before is None:
                log.warning("node %d is none of this run's clients", node)
                self._strangers.add(node)
            elif before in online:
                log.warning("node %d claims to be client %d, on node %d", node, index, before)
            else:
                log.info("client %d is back, on another node", index)
                self.by_index[index] = node
        for node in silent:
            self._silences[node] = self._silences.get(node, 0) + 1


def _hellos(
    grid: Grid, nodes: Iterable[int], spec: DeploymentSpec
) -> Iterator[tuple[int, int | None]]:
    """Ask nodes which client they are; yield those that answer in time, with None for nonsense."""
    messages = questions(nodes)
    return read(poll(grid, messages, [spec.stage_timeout] * len(messages)))
