"""A ClientApp whose messages travel as bytes: how many, and whose CPU time each side takes."""

import time
from collections.abc import Callable
from dataclasses import astuple, dataclass

from flwr.app import Context, Message

from zerosum.client.flower.flower_internals import as_received, as_sent


@dataclass(frozen=True)
class Counts:
    """What has been spent so far.

    Attributes
    ----------
    messages : int
        To all clients.
    bytes_up, bytes_down : int
        Of all clients, as Flower writes messages.
    client_cpu_s : float
        Of all clients; reading and writing their messages is among it.
    cpu_s : float
        Of the process: what is not the clients' is the server's.
    wall_s : float
        Clock.
    """

    messages: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    client_cpu_s: float = 0.0
    cpu_s: float = 0.0
    wall_s: float = 0.0

    def since(self, before: "Counts") -> "Counts":
        """Return what was spent after an earlier moment."""
        pairs = zip(astuple(self), astuple(before), strict=True)
        return Counts(*(now - then for now, then in pairs))


class CountedApp:
    """Stand between a grid of this process and an app.

    Parameters
    ----------
    app : callable
        A ClientApp, or like one.
    """

    def __init__(self, app: Callable[[Message, Context], Message]) -> None:
        self._app = app
        self._messages = self._up = self._down = 0
        self._client_cpu_s = 0.0

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer a message, and count what it costs.

        Parameters
        ----------
        message : flwr.app.Message
        context : flwr.app.Context

        Returns
        -------
        flwr.app.Message
        """
        asked = as_sent(message)
        self._messages += 1
        self._down += len(asked)
        start = time.process_time()
        try:
            answer = as_sent(self._app(as_received(asked), context))
        finally:
            self._client_cpu_s += time.process_time() - start
        self._up += len(answer)
        return as_received(answer)

    def counts(self) -> Counts:
        """Return what has been spent so far."""
        clocks = time.process_time(), time.perf_counter()
        return Counts(self._messages, self._up, self._down, self._client_cpu_s, *clocks)
