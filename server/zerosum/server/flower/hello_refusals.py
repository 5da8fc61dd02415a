"""Nodes that answer hello with an error: how long each is left alone, and when all have."""

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from flwr.app import Error

from zerosum.client.protocol import flower_messages
from zerosum.client.protocol.training_outcomes import quoted
from zerosum.server.config import ConfigError
from zerosum.server.private_sum.reply_errors import heals, unregistered

log = logging.getLogger("zerosum.server")

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 4.0, 60.0
"""Before a node that refused is asked again; the first time, and at most."""

FINAL_REFUSALS: Final = 3
"""Of every node, after which nobody waits for a change of their minds: twelve seconds."""

MOST_NAMED: Final = 10
"""Nodes or clients that a line names."""

_TEXT: Final = "occurred. Message: "
"""What stands before an app's own words in the errors that Flower makes of them."""


class NoFunctionError(ConfigError):
    """No app has a function for messages of the type by which hello came."""


@dataclass
class HelloRefusals:
    """Nodes that answered hello with an error, and how long each is left alone.

    Each hello is a process on the node, and a line in its log: one that refuses is asked again
    after twice as long each time. It may be busy, or be set right meanwhile.

    Attributes
    ----------
    counts : dict of int to int
        Errors by node.
    reasons : dict of int to str
        The last of each, as the server may see it; empty where time may heal it.
    until : dict of int to float
        When a node may be asked again, in seconds of the monotonic clock.
    """

    counts: dict[int, int] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    until: dict[int, float] = field(default_factory=dict)

    def note(self, node: int, error: Error) -> None:
        """Count a refusal; the first of a node is logged.

        Parameters
        ----------
        node : int
            Who answered.
        error : flwr.app.Error
            Its answer.
        """
        count = self.counts[node] = self.counts.get(node, 0) + 1
        pause = min(FIRST_PAUSE_SECONDS * 2 ** min(count - 1, 10), LONGEST_PAUSE_SECONDS)
        self.until[node] = time.monotonic() + pause
        reason = error.reason or f"Flower's error {error.code}"
        self.reasons[node] = "" if heals(error) else reason
        if count == 1:
            log.warning("node %d answers hello with an error: %s", node, in_words(reason))

    def over(self, node: int) -> bool:
        """Return whether a node may be asked again."""
        return time.monotonic() >= self.until.get(node, 0.0)

    def final(self, online: Iterable[int], least: int) -> str | None:
        """Return why nobody is worth waiting for, in a line; None where somebody may be.

        Parameters
        ----------
        online : iterable of int
            Nodes that are connected.
        least : int
            Nodes that the run is for: fewer, and more are still to come.

        Returns
        -------
        str or None
            Where all that are connected have refused again and again, for a reason of their own.
        """
        there = list(online)
        if len(there) < least or not all(map(self._is_final, there)):
            return None
        # A reason that a server can see says more than the others, which are in their own logs.
        shown = [self.reasons[n] for n in there if flower_messages.OWN_LOG not in self.reasons[n]]
        return (
            f"all {len(there)} nodes that are connected ({named(there)}) answer hello with an "
            f"error: {in_words((shown or [flower_messages.OWN_LOG])[0])}"
        )

    def error(self, why: str) -> ConfigError:
        """Return an error of these words: a :class:`NoFunctionError` where that is the reason."""
        lacking = any(map(unregistered, self.reasons.values()))
        return NoFunctionError(why) if lacking else ConfigError(why)

    def _is_final(self, node: int) -> bool:
        reason = self.reasons.get(node)
        if not reason:
            return False
        # What functions an app has is the same at every node, and until the run ends.
        return self.counts[node] >= FINAL_REFUSALS or unregistered(reason) is not None


def named(numbers: Iterable[int]) -> str:
    """Name the first few of some numbers."""
    first = list(islice(numbers, MOST_NAMED + 1))
    return ", ".join(map(str, first[:MOST_NAMED])) + (", …" if len(first) > MOST_NAMED else "")


def in_words(reason: str) -> str:
    """Say what an error at hello means, and what to do about it.

    Parameters
    ----------
    reason : str
        Of Flower's error.

    Returns
    -------
    str
        In one line.
    """
    if flower_messages.OWN_LOG in reason:
        return (
            "the reason is in that node's own log; most often its node config lacks state-dir, "
            "partition-id or policy, its policy cannot be used, or PrivateClientApp names no "
            "module that is there"
        )
    if cure := unregistered(reason):
        return cure
    before, _, text = reason.rpartition(_TEXT)
    kind, text = before.rpartition("Exception ")[2], text.strip().removesuffix("'>").strip()
    said = quoted(f"{kind}{text}")
    return (
        "most likely its ClientApp lacks the line `from zerosum.client import private_mod; app = "
        'ClientApp(mods=[private_mod])`, or `PrivateClientApp("module:app")`, or, for tasks of '
        f"zerosum, is not zerosum.client.flower.client_app:app (Flower: {said})"
    )
