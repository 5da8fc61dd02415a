"""One exchange over a Flower Grid: a message to each client, its reply within time."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from zerosum.client.protocol import flower_messages
from zerosum.server.private_sum.reply_errors import heals, unregistered
from zerosum.server.spec import DeploymentSpec

log = logging.getLogger("zerosum.server")

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 1.0
"""Between two looks for replies: at first, and at most. A stage of a small model takes tenths of a
second, and one of an hour's training must not be asked for twenty times a second."""

SKEW_SECONDS = 600.0
"""Largest difference between the clocks of two nodes. Flower compares a message's age by the clock
of either end, so that a shorter allowance drops messages to nodes whose clock is wrong."""

PAUSE_FRACTION = 0.05
"""Pause between two looks, as a fraction of the time waited so far: the most that waiting adds."""


@dataclass
class Traffic:
    """Cost of a private sum: bytes of each client, seconds and losses of each stage.

    ``exchanges`` are the times that messages went out and replies were waited for; a stage that
    rode along with another sum's cost none. ``refused`` counts, by stage, those who answered that
    they do not take part, and neither were away nor busy: their own logs say why. ``sample`` is the
    first contribution, as the bytes that came, after the number of its group. ``wrong_shares`` are
    (dealer, holder): the holder gave a wrong share, or was dealt it; ``liars`` are those proved to
    be at fault.
    """

    up: dict[int, int] = field(default_factory=dict)
    down: dict[int, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    dropouts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    sample: tuple[int, bytes] = (-1, b"")
    exchanges: int = 0
    wrong_shares: list[tuple[int, int]] = field(default_factory=list)
    liars: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Outgoing:
    """Message to one client, and the time that its answer may take.

    Attributes
    ----------
    stage : str
        Names the type of the message.
    round : int
        Of the session: in the logs of the nodes.
    content : RecordDict
    seconds : float or None
        Whatever comes later is not waited for.
    """

    stage: str
    round: int
    content: RecordDict
    seconds: float | None


class Exchange:
    """Exchange of messages with clients, by roster index, over one grid.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        The only transport.
    nodes : mapping of int to int
        The Flower node of each client.
    timeouts : DeploymentSpec, optional
        How long to wait for answers; without it, until all have answered.
    """

    def __init__(
        self, grid: Grid, nodes: Mapping[int, int], timeouts: DeploymentSpec | None = None
    ) -> None:
        self._grid = grid
        self._nodes = nodes
        self._timeouts = timeouts
        self._told = False

    def address(self, stage: str, round: int, content: RecordDict) -> Outgoing:
        """Address a message of a stage, and say how long its answer may take.

        Parameters
        ----------
        stage : str
            Names the type of the message, and how long it is waited for.
        round : int
            Of the session.
        content : flwr.app.RecordDict
            As it is sent.

        Returns
        -------
        Outgoing
            For any client.
        """
        seconds = None if self._timeouts is None else self._timeouts.seconds(stage)
        return Outgoing(stage, round, content, seconds)

    def ask(
        self,
        outgoing: Mapping[int, Outgoing],
        refused: Callable[[int], None] = lambda index: None,
    ) -> Iterable[tuple[int, RecordDict]]:
        """Send each client its message and yield the replies with content, one for each client.

        Parameters
        ----------
        outgoing : mapping of int to Outgoing
            By client.
        refused : callable
            Told of each client that answers with an error that time does not heal.

        Yields
        ------
        tuple of int and flwr.app.RecordDict
            A client and its reply.
        """
        client_of = {self._nodes[index]: index for index in outgoing}
        answered: set[int] = set()
        for reply in self._replies(outgoing):
            index = client_of.get(reply.metadata.src_node_id)
            if index is None or index in answered:
                log.warning("a reply from node %d was not asked for", reply.metadata.src_node_id)
                continue
            answered.add(index)
            if reply.has_content():
                yield index, reply.content
                continue
            self._tell(unregistered(reply.error.reason))
            if not heals(reply.error):
                refused(index)

    def _tell(self, why: str | None) -> None:
        """Say once what no node has and Flower told us itself: no private log has it."""
        if why is not None and not self._told:
            log.warning("%s", why)
            self._told = True

    def _replies(self, outgoing: Mapping[int, Outgoing]) -> Iterable[Message]:
        messages = [self._message(index, sent) for index, sent in outgoing.items()]
        if self._timeouts is None:
            return self._grid.send_and_receive(messages)
        return poll(self._grid, messages, [sent.seconds or 0.0 for sent in outgoing.values()])

    def _message(self, index: int, sent: Outgoing) -> Message:
        # What waits at the SuperLink for a node that is away is not delivered long after its time.
        return Message(
            content=sent.content,
            dst_node_id=self._nodes[index],
            message_type=flower_messages.STAGE_TYPES[sent.stage],
            group_id=str(sent.round),
            ttl=None if sent.seconds is None else sent.seconds + SKEW_SECONDS,
        )


def poll(grid: Grid, messages: list[Message], seconds: list[float]) -> Iterable[Message]:
    """Send messages and yield the reply to each as it comes, until its time is up.

    Flower's own ``send_and_receive`` sleeps three seconds between two looks. Here the first
    pauses are short and the later ones a small part of the time waited so far.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        Carries the messages.
    messages : list of flwr.app.Message
        One for each client.
    seconds : list of float
        How long to wait for each message's reply.

    Yields
    ------
    flwr.app.Message
        A reply; late ones and repeated ones are logged and dropped.
    """
    started = time.monotonic()
    keys = grid.push_messages(messages)
    waiting = {key: limit for key, limit in zip(keys, seconds, strict=True) if key}
    while waiting:
        for reply in grid.pull_messages(list(waiting)):
            if waiting.pop(reply.metadata.reply_to_message_id, None) is None:
                log.warning("a reply from node %d comes late, or again", reply.metadata.src_node_id)
                continue
            yield reply
        passed = time.monotonic() - started
        late = [key for key, limit in waiting.items() if passed > limit]
        if late:
            log.warning("%d clients did not answer within %g s", len(late), waiting[late[0]])
        for key in late:
            del waiting[key]
        if waiting:
            time.sleep(
                min(LONGEST_PAUSE_SECONDS, max(FIRST_PAUSE_SECONDS, PAUSE_FRACTION * passed))
            )
