"""Hello to Flower nodes: asked once, then less and less often, and answered whenever they like.

Each hello is a process on its node, which a slow machine may take minutes to start: whoever asks
again at once adds to what it is slow for. So one that is silent has twice as long each time, and
its answer to any hello counts.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from flwr.app import Error, Message
from flwr.serverapp import Grid

from zerosum.client.protocol import flower_messages
from zerosum.server.private_sum.transport import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    PAUSE_FRACTION,
)

log = logging.getLogger("zerosum.server")

HELLO_SECONDS = 2.0
"""Pause between two looks for nodes."""

LONGEST_SILENCE_SECONDS = 600.0
"""After which a silent node is asked again, at most, if a stage may not take longer."""

Refused = Callable[[int, Error], None]
"""Told of a node that answers with an error, and of that."""


@dataclass
class _Silence:
    """A node that was asked, how often and since when."""

    times: int
    since: float


class Hellos:
    """Hellos that are on their way.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        Carries them.
    seconds : float
        For which a run waits for a node's first answer.
    refused : callable
        Told of errors.
    """

    def __init__(self, grid: Grid, seconds: float, refused: Refused) -> None:
        self._grid, self._seconds, self._refused = grid, seconds, refused
        self._node_of: dict[str, int] = {}
        self._silences: dict[int, _Silence] = {}

    def ask(self, online: Collection[int], nodes: Iterable[int]) -> None:
        """Ask those nodes that are not to be left alone.

        Parameters
        ----------
        online : collection of int
            Who is connected. One that was away starts anew: what it was asked may be lost.
        nodes : iterable of int
            Who may be asked.
        """
        there = set(online)
        for node in self._silences.keys() - there:
            del self._silences[node]
        due = sorted(node for node in nodes if self._is_due(node))
        for node, key in zip(due, self._grid.push_messages(questions(due)), strict=True):
            if key:
                self._node_of[key] = node
                before = self._silences.get(node)
                times = 0 if before is None else before.times
                self._silences[node] = _Silence(times + 1, time.monotonic())

    def answers(self) -> Iterator[tuple[int, int | None]]:
        """Yield nodes that have answered since, and the client each is; None for nonsense."""
        if not self._node_of:
            return
        replies = []
        for reply in self._grid.pull_messages(list(self._node_of)):
            node = self._node_of.pop(reply.metadata.reply_to_message_id, None)
            if node is not None:
                replies.append(reply)
                self._silences.pop(node, None)
        for node, index in read(replies, self._refused):
            # It was asked more than once, perhaps: it has answered now.
            self._node_of = {key: n for key, n in self._node_of.items() if n != node}
            yield node, index

    def awaited(self) -> bool:
        """Return whether a first answer may still come in its time: nobody starts without it."""
        return any(True for _ in self._first())

    def pause(self) -> float:
        """Return the seconds until somebody may have answered: short after a question."""
        passed = [time.monotonic() - since for since in self._first()]
        if not passed:
            return HELLO_SECONDS
        return min(LONGEST_PAUSE_SECONDS, max(FIRST_PAUSE_SECONDS, PAUSE_FRACTION * min(passed)))

    def _first(self) -> Iterator[float]:
        """Yield since when those are asked whose first answer is not late."""
        now = time.monotonic()
        for silence in self._silences.values():
            if silence.times == 1 and now - silence.since <= self._seconds:
                yield silence.since

    def _is_due(self, node: int) -> bool:
        silence = self._silences.get(node)
        if silence is None:
            return True
        longest = max(self._seconds, LONGEST_SILENCE_SECONDS)
        wait = min(self._seconds * 2.0 ** min(silence.times - 1, 10), longest)
        return time.monotonic() - silence.since > wait


def questions(nodes: Iterable[int]) -> list[Message]:
    """Return a hello to each of these nodes, in ascending order."""
    return [
        Message(flower_messages.pack({}), node, flower_messages.HELLO_TYPE)
        for node in sorted(nodes)
    ]


def read(
    replies: Iterable[Message], refused: Refused = lambda node, error: None
) -> Iterator[tuple[int, int | None]]:
    """Read answers to hello.

    Parameters
    ----------
    replies : iterable of flwr.app.Message
        Of nodes.
    refused : callable
        Told of errors.

    Yields
    ------
    tuple of int and int or None
        A node, and the client that it is; None for nonsense, which is logged.
    """
    for reply in replies:
        node = reply.metadata.src_node_id
        if not reply.has_content():
            refused(node, reply.error)
            continue
        try:
            yield node, flower_messages.int_field(reply.content, "index")
        except ValueError as error:
            log.warning("node %d is left out: %s", node, error)
            yield node, None
