"""Interfaces of all parties: steps, results, and the two roles."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from numpy.typing import NDArray

from zerosum.secagg.messages.all_messages import Message
from zerosum.secagg.session import Session
from zerosum.secagg.stages import End, Stage

Incoming: TypeAlias = "bytes | bytearray | memoryview | Message"


@dataclass(frozen=True)
class Step:
    """Lines and a message: make ``persist`` durable, and only then send ``send``."""

    persist: tuple[bytes, ...]
    send: Message


@dataclass(frozen=True, eq=False)
class SumResult:
    """Outcome of a session.

    Attributes
    ----------
    total : ndarray in the ring's container, shape (vector_length,)
        The sum of the survivors' vectors modulo 2^ring_bits.
    survivors : tuple of int
        Roster indices of those whose vectors are in the sum.
    dropouts : dict
        For each stage, the roster indices of those who vanished in it. Dropouts of unmask are
        survivors: they contributed, and then did not help to open the sum.
    wrong_shares : tuple of (int, int)
        Roster indices of the dealer and the holder of each wrong share that was found: the holder
        gave it, or was dealt it. One that was not in the way may not have been looked for.
    liars : tuple of int
        Roster indices of those proved to have lied, if no more lied than the server was told.
    decodings : int
        How many words were decoded to locate wrong shares: 0 where nobody lied.
    """

    total: NDArray[Any]
    survivors: tuple[int, ...]
    dropouts: dict[Stage, tuple[int, ...]]
    wrong_shares: tuple[tuple[int, int], ...] = ()
    liars: tuple[int, ...] = ()
    decodings: int = 0


class Outbox(Mapping[int, Message]):
    """Messages by roster index, each made when it is asked for and kept by nobody.

    Parameters
    ----------
    recipients : sequence of int
        Roster indices.
    positions : sequence of int
        Their cohort positions.
    make : callable
        Position to message; it must not read what the server changes later.
    """

    def __init__(
        self, recipients: Sequence[int], positions: Sequence[int], make: Callable[[int], Message]
    ) -> None:
        self._positions = dict(zip(recipients, positions, strict=True))
        self._make = make

    def __getitem__(self, recipient: int) -> Message:
        return self._make(self._positions[recipient])

    def __iter__(self) -> Iterator[int]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._positions)


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
    def stage(self) -> Stage | End:
        """The stage that comes next; done after the last."""
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
        """Answer with the vector, once.

        Parameters
        ----------
        message : bytes or Message
            What the server asks at contribute.
        vector : ndarray, shape (vector_length,)
            In the ring: centred int64 or int32, or of the ring's own container; as
            :meth:`~zerosum.secagg.vectors.ring.Ring.contain` takes it.

        Returns
        -------
        Step
            Masked or not, by the session's protocol.
        """
        ...

    def confirm(self, message: Incoming) -> Step:
        """Sign the set of those who contributed; only where the server is not trusted."""
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
    def stage(self) -> Stage | End:
        """The stage whose messages are being received, or how the session ended."""
        ...

    @property
    def result(self) -> SumResult:
        """The outcome, once the last stage is closed."""
        ...

    def receive(self, sender_index: int, message: Incoming) -> None:
        """Take one client's message of the current stage."""
        ...

    def close(self, request: bytes | None = None) -> Mapping[int, Message]:
        """End the current stage and return the next one's messages by roster index."""
        ...
