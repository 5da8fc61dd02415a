"""What every kind of party looks like from outside: steps, results, and the two roles."""

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from numpy.typing import NDArray

from zerosum.secagg.messages import Message
from zerosum.secagg.session import Session

Incoming: TypeAlias = "bytes | bytearray | memoryview | Message"


@dataclass(frozen=True)
class Step:
    """What a client wants done: make ``persist`` durable, and only then send ``send``."""

    persist: tuple[bytes, ...]
    send: Message


@dataclass(frozen=True, eq=False)
class Result:
    """How a session ended.

    Attributes
    ----------
    total : ndarray in the ring's container, shape (vector_length,)
        The sum of the survivors' vectors modulo 2^ring_bits.
    survivors : tuple of int
        Roster indices of those whose vectors are in the sum.
    dropouts : dict
        For each stage, the roster indices of those who vanished in it. Those of "unmask" are
        survivors: they contributed, and then did not help to open the sum.
    faulty : tuple of int
        Roster indices of holders who gave wrong shares that were decoded around.
    """

    total: NDArray[Any]
    survivors: tuple[int, ...]
    dropouts: dict[str, tuple[int, ...]]
    faulty: tuple[int, ...] = ()


class Client(Protocol):
    """A client of a session, whatever protects its vector."""

    @property
    def session(self) -> Session:
        """The session that the party takes part in."""
        ...

    @property
    def index(self) -> int:
        """The client's roster index."""
        ...

    @property
    def stage(self) -> str:
        """The stage that comes next; "done" after the last."""
        ...

    def advertise(self) -> Step:
        """Answer the invitation."""
        ...

    def share(self, message: Incoming) -> Step:
        """Answer the broadcast of adverts."""
        ...

    def admit(self, message: Incoming) -> bytes:
        """Check the contribute message and return its request digest."""
        ...

    def contribute(self, message: Incoming, vector: NDArray[Any]) -> Step:
        """Answer with the vector, once."""
        ...

    def unmask(self, message: Incoming) -> Step:
        """Help to open the sum of those who contributed."""
        ...

    def export(self) -> bytes:
        """Return the volatile state, for another process to go on from."""
        ...

    def wipe(self) -> None:
        """Forget all secrets and end."""
        ...


class Server(Protocol):
    """The server of a session, whatever protects the clients' vectors."""

    @property
    def session(self) -> Session:
        """The session that the party serves."""
        ...

    @property
    def stage(self) -> str:
        """The stage whose messages are being received; "done" or "failed" at the end."""
        ...

    @property
    def result(self) -> Result:
        """The outcome, once the last stage is closed."""
        ...

    def receive(self, sender_index: int, message: Incoming) -> None:
        """Take one client's message of the current stage."""
        ...

    def close(self, request: bytes | None = None) -> dict[int, Message]:
        """End the current stage and return the next one's messages by roster index."""
        ...
