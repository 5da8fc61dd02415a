"""One stage over a Flower Grid: a message to each client, its reply within time, all counted."""

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from zerosum.client import wire
from zerosum.server.spec import DeploymentSpec

log = logging.getLogger("zerosum.server")

POLL_SECONDS = 0.2
"""Pause between two looks for replies in a deployment."""


@dataclass
class Traffic:
    """What a private sum cost: bytes to and from each client, seconds and losses by stage.

    ``sample`` is the first contribution, as the bytes that came, after the number of its group.
    """

    up: dict[int, int] = field(default_factory=dict)
    down: dict[int, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    dropouts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    sample: tuple[int, bytes] = (-1, b"")


class Exchange:
    """Asks clients, by their roster index, over one grid.

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

    def ask(
        self, stage: str, contents: Mapping[int, RecordDict], round: int, traffic: Traffic
    ) -> Iterable[tuple[int, RecordDict]]:
        """Send each client its content and yield the replies that have one, one a client.

        Bytes and seconds are added to ``traffic``; the seconds include what is done with replies.
        """
        started = time.perf_counter()
        for index, content in contents.items():
            traffic.down[index] = traffic.down.get(index, 0) + wire.size(content)
        messages = [
            Message(
                content=content,
                dst_node_id=self._nodes[index],
                message_type=wire.STAGE_TYPES[stage],
                group_id=str(round),
            )
            for index, content in contents.items()
        ]
        index_of = {self._nodes[index]: index for index in contents}
        answered = set()
        for reply in self._replies(stage, messages):
            sender = index_of.get(reply.metadata.src_node_id)
            if sender is None or sender in answered:
                log.warning("a reply from node %d was not asked for", reply.metadata.src_node_id)
                continue
            answered.add(sender)
            if reply.has_content():
                yield sender, reply.content
        traffic.seconds[stage] = time.perf_counter() - started

    def _replies(self, stage: str, messages: list[Message]) -> Iterable[Message]:
        if self._timeouts is None:
            return self._grid.send_and_receive(messages)
        training = stage == "contribute"
        wait = self._timeouts.train_timeout if training else self._timeouts.stage_timeout
        return poll(self._grid, messages, wait)


def poll(grid: Grid, messages: list[Message], timeout: float) -> Iterable[Message]:
    """Send messages and yield replies as they come, until all are there or time is up.

    Flower's own ``send_and_receive`` sleeps three seconds between two looks.
    """
    deadline = time.monotonic() + timeout
    waiting = {key for key in grid.push_messages(messages) if key}
    while waiting:
        for reply in grid.pull_messages(list(waiting)):
            waiting.discard(reply.metadata.reply_to_message_id)
            yield reply
        if time.monotonic() > deadline:
            log.warning("%d clients did not answer within %g s", len(waiting), timeout)
            return
        if waiting:
            time.sleep(POLL_SECONDS)
