"""The memory of a server alone: it runs in a process of its own, the clients in another.

Messages travel as bytes, one at a time; the server's process holds what a deployed server would
hold of one session, and the interpreter with numpy and cryptography, which is given beside it.
"""

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from zerosum.secagg import (
    ClientParty,
    IdentityKey,
    Message,
    Roster,
    SecAggError,
    ServerParty,
    Session,
)
from zerosum.secagg.randomness import numpy_generator
from zerosum.secagg.stages import Stage
from zerosum.simulations.bench.process import BenchError, Values, peak_memory_mb
from zerosum.simulations.bench.setting import REQUEST, BenchedSession


def run(**settings: Any) -> Values:
    """Measure the memory of a server that plays one session in a process of its own.

    The parameters are those of :class:`~zerosum.simulations.bench.setting.BenchedSession`; all
    clients have the same vector.

    Returns
    -------
    dict
        ``server_memory_mb``, the most that the server's process held, in units of 10^6 bytes;
        ``server_memory_before_mb``, before the session.

    Raises
    ------
    BenchError
        If the session is refused or ends without a sum.
    """
    setting = BenchedSession(**settings)
    try:
        session, identities, roster = setting.open()
        with _server(session, roster, setting.threads) as link:
            figures = _play(session, identities, roster, link, setting.gone(), setting.threads)
    except SecAggError as error:
        raise BenchError(f"{type(error).__name__}: {error}") from error
    return {**setting.described(session), **figures}


@contextmanager
def _server(session: Session, roster: Roster | None, threads: int) -> Iterator[Connection]:
    """Start a process that serves one session, and end it."""
    context = multiprocessing.get_context("spawn")
    near, far = context.Pipe()
    encoded = None if roster is None else roster.to_bytes()
    process = context.Process(target=serve, args=(far, session.to_bytes(), encoded, threads))
    process.start()
    far.close()
    try:
        yield near
    finally:
        near.close()
        process.join()


def _play(
    session: Session,
    identities: dict[int, IdentityKey],
    roster: Roster | None,
    link: Connection,
    gone: frozenset[int],
    threads: int,
) -> Values:
    """Play all clients; ask the server for one message at a time."""
    rng = numpy_generator(0, "bench vector")
    vector = rng.integers(-1, 2, session.vector_length)
    clients: dict[int, ClientParty] = {}
    indices: list[int] = list(session.cohort)
    for name in session.stages:
        for index in indices:
            if name == Stage.ADVERTISE:
                clients[index] = ClientParty(
                    session, index, identity=identities.get(index), roster=roster, threads=threads
                )
                step = clients[index].advertise()
            elif name == Stage.CONTRIBUTE and index in gone:
                clients.pop(index)
                continue
            else:
                asked = _ask(link, "message", index)
                more = (vector,) if name == Stage.CONTRIBUTE else ()
                step = getattr(clients[index], name)(asked, *more)
            _ask(link, "receive", index, step.send.to_bytes())
        indices = _ask(link, "close", REQUEST if name == Stage.SHARE else None)
    figures: Values = _ask(link, "memory")
    return figures


def _ask(link: Connection, *question: Any) -> Any:
    link.send(question)
    try:
        good, answer = link.recv()
    except EOFError:
        raise BenchError("the server's process ended") from None
    if not good:
        raise BenchError(answer)
    return answer


def serve(link: Connection, session: bytes, roster: bytes | None, threads: int) -> None:
    """Serve one session, a question at a time, until the other end closes.

    Parameters
    ----------
    link : Connection
        To the process of the clients.
    session : bytes
        The session, serialised.
    roster : bytes or None
        The roster, serialised; None in a semi-honest session.
    threads : int
        That expand masks.
    """
    known = None if roster is None else Roster.from_bytes(roster)
    before = peak_memory_mb()
    server = ServerParty(Session.from_bytes(session), roster=known, threads=threads)
    messages: Any = {}
    while True:
        try:
            kind, *rest = link.recv()
        except EOFError:
            return
        answer: Any = None
        try:
            if kind == "receive":
                server.receive(*rest)
            elif kind == "message":
                message: Message = messages[rest[0]]
                answer = message.to_bytes()
            elif kind == "close":
                messages = server.close(*rest)
                answer = list(messages)
            else:
                answer = {
                    "server_memory_mb": peak_memory_mb(),
                    "server_memory_before_mb": before,
                    "survivors": len(server.result.survivors),
                }
            link.send((True, answer))
        except SecAggError as error:
            link.send((False, f"{type(error).__name__}: {error}"))
