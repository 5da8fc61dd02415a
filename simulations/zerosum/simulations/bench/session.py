"""A whole session in one process: CPU time and bytes by stage, and peak memory.

Messages travel as bytes: reading, checking and writing them is part of what is measured. Each
client is run on its own, its vector is drawn when it contributes and forgotten, and the server
adds up as it goes, so that no two vectors are alive beside the server's. What is not measured:
identity keys and roster, which outlive a session; durable writes; the network.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg import (
    ClientParty,
    IdentityKey,
    Message,
    Roster,
    SecAggError,
    ServerParty,
    Session,
    SharedCache,
)
from zerosum.secagg.crypto.prg import keystream_cipher
from zerosum.secagg.messages.all_messages import advert_bytes
from zerosum.secagg.randomness import numpy_generator
from zerosum.secagg.stages import Stage
from zerosum.simulations.bench import primitives
from zerosum.simulations.bench.process import BenchError, Values, peak_memory_mb, timed
from zerosum.simulations.bench.setting import REQUEST, BenchedSession


@dataclass
class StageCost:
    """Cost of one stage: CPU seconds and bytes over all clients, and the server's."""

    clients: int = 0
    client_cpu_s: float = 0.0
    server_receive_cpu_s: float = 0.0
    server_close_cpu_s: float = 0.0
    bytes_up: int = 0
    bytes_down: int = 0

    def row(self) -> Values:
        """Return a client's mean, and the server's sum over all clients."""
        clients = max(1, self.clients)
        return {
            "clients": self.clients,
            "client_cpu_s": self.client_cpu_s / clients,
            "server_cpu_s": self.server_receive_cpu_s + self.server_close_cpu_s,
            "server_receive_cpu_s": self.server_receive_cpu_s,
            "server_close_cpu_s": self.server_close_cpu_s,
            "bytes_up_per_client": self.bytes_up / clients,
            "bytes_down_per_client": self.bytes_down / clients,
        }


@dataclass
class Play:
    """A session under way."""

    session: Session
    vector_bits: int
    seed: int
    share: bool
    threads: int
    gone: frozenset[int]
    stages: dict[str, StageCost] = field(default_factory=lambda: defaultdict(StageCost))
    outside_s: float = 0.0

    def __post_init__(self) -> None:
        self.expected = np.zeros(self.session.vector_length, np.int64)
        self._cache = SharedCache() if self.share else None
        self._identities: dict[int, IdentityKey] = {}
        self._roster: Roster | None = None
        self._clients: dict[int, ClientParty] = {}

    def run(self, identities: dict[int, IdentityKey], roster: Roster | None) -> NDArray[Any]:
        """Play all stages and return the sum.

        Parameters
        ----------
        identities : dict of int to IdentityKey
            Signing key of each client; empty without a roster.
        roster : Roster or None
            Public keys of the clients.

        Returns
        -------
        numpy.ndarray
            Integers of the ring, shape (d,).
        """
        first = self.stages[self.session.stages[0]]
        server, spent = timed(lambda: self._server_party(roster))
        first.server_close_cpu_s += spent
        self._walk(server, self.session.stages, identities, roster)
        return server.result.total

    def until_unmask(
        self, server: ServerParty, identities: dict[int, IdentityKey], roster: Roster | None
    ) -> dict[int, bytes]:
        """Play all stages but the last with a given server; return what clients say there.

        Parameters
        ----------
        server : ServerParty
        identities : dict of int to IdentityKey
            Signing key of each client; empty without a roster.
        roster : Roster or None
            Public keys of the clients.

        Returns
        -------
        dict of int to bytes
            What each client answers at unmask.
        """
        asked = self._walk(server, self.session.stages[:-1], identities, roster)
        messages = {index: message.to_bytes() for index, message in asked.items() if message}
        return {i: self._client_answer(Stage.UNMASK, i, each)() for i, each in messages.items()}

    def _walk(
        self,
        server: ServerParty,
        stages: Sequence[str],
        identities: dict[int, IdentityKey],
        roster: Roster | None,
    ) -> Mapping[int, Message | None]:
        """Play some stages and return the messages of the one after them."""
        self._identities, self._roster = identities, roster
        messages: Mapping[int, Message | None] = dict.fromkeys(self.session.cohort)
        for name in stages:
            stage = self.stages[name]
            for index, message in messages.items():
                self._answer(name, stage, server, index, message)
            if self._cache is not None and name == Stage.CONTRIBUTE:
                self._cache.of(self.session.digest).end_contribute()
            request = REQUEST if name == Stage.SHARE else None
            messages, spent = timed(partial(server.close, request))
            stage.server_close_cpu_s += spent
        return messages

    def _server_party(self, roster: Roster | None) -> ServerParty:
        # Never with the clients' cache: the server's figures are its own.
        return ServerParty(self.session, roster=roster, threads=self.threads)

    def _answer(
        self, name: str, stage: StageCost, server: ServerParty, index: int, message: Message | None
    ) -> None:
        """Carry one client's message of one stage there and back."""
        if name == Stage.CONTRIBUTE and index in self.gone:
            self._clients.pop(index)
            return
        asked, spent = timed(lambda: b"" if message is None else message.to_bytes())
        stage.server_close_cpu_s += spent
        answer = self._client_answer(name, index, asked)
        sent, spent = timed(answer)
        stage.client_cpu_s += spent
        _, spent = timed(lambda: server.receive(index, sent))
        stage.server_receive_cpu_s += spent
        stage.clients += 1
        stage.bytes_up += len(sent)
        stage.bytes_down += len(asked)

    def _client_answer(self, name: str, index: int, asked: bytes) -> Callable[[], bytes]:
        if name == Stage.ADVERTISE:
            return lambda: self._join(index).advertise().send.to_bytes()
        if name == Stage.UNMASK:
            client = self._clients.pop(index)
            return lambda: client.unmask(asked).send.to_bytes()
        client = self._clients[index]
        if name == Stage.CONTRIBUTE:
            vector = self._vector(index)
            return lambda: client.contribute(asked, vector).send.to_bytes()
        return lambda: getattr(client, name)(asked).send.to_bytes()

    def _join(self, index: int) -> ClientParty:
        client = self._clients[index] = ClientParty(
            self.session,
            index,
            identity=self._identities.get(index),
            roster=self._roster,
            cache=self._cache,
            threads=self.threads,
        )
        return client

    def _vector(self, index: int) -> NDArray[np.int64]:
        start = time.perf_counter()
        limit = 1 << (self.vector_bits - 1)
        rng = numpy_generator(self.seed, "bench vector", index)
        vector = rng.integers(-limit, limit, self.session.vector_length)
        self.expected += vector
        self.outside_s += time.perf_counter() - start
        return vector


def run(*, share: bool = False, **settings: Any) -> Values:
    """Play one session and return what it took.

    Parameters
    ----------
    share : bool
        Whether clients share a cache: never where one client's cost is wanted. The server has no
        part in it.
    **settings
        Those of :class:`~zerosum.simulations.bench.setting.BenchedSession`.

    Returns
    -------
    dict
        ``client_cpu_s`` is the mean over the clients of each stage, summed over the stages;
        ``server_unmask_cpu_s`` all that the server does at unmask; ``total_s`` wall time
        without the drawing of vectors; ``machine`` rates of this machine's primitives, just
        before and after; ``primitives`` what a client and the server would take if they
        did nothing else.

    Raises
    ------
    BenchError
        If the session is refused or ends without a sum.
    """
    setting = BenchedSession(**settings)
    try:
        session, identities, roster = setting.open()
        gone = setting.gone()
        play = Play(session, setting.bits, setting.seed, share, setting.threads, gone)
        machine = [primitives.machine()]
        before_mb, start, cpu = peak_memory_mb(), time.perf_counter(), time.process_time()
        total = play.run(identities, roster)
    except SecAggError as error:
        raise BenchError(f"{type(error).__name__}: {error}") from error
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    peak_mb = peak_memory_mb()
    machine.append(primitives.machine())
    rows = {name: stage.row() for name, stage in play.stages.items()}
    rates = {name: sum(rate[name] for rate in machine) / 2 for name in machine[0]}
    bytes_up = sum(row["bytes_up_per_client"] for row in rows.values())
    peers = rows[Stage.SHARE]["bytes_down_per_client"] // advert_bytes(session) - 1
    return {
        **setting.described(session),
        "corruption": setting.corruption,
        "survivors": setting.n - len(gone),
        "bits": setting.bits,
        "sharing": share,
        "threads": setting.threads,
        "client_cpu_s": sum(row["client_cpu_s"] for row in rows.values()),
        "server_unmask_cpu_s": rows[Stage.UNMASK]["server_cpu_s"],
        "server_cpu_s": sum(row["server_cpu_s"] for row in rows.values()),
        "bytes_up_per_client": bytes_up,
        "bytes_down_per_client": sum(row["bytes_down_per_client"] for row in rows.values()),
        "upload_ratio": bytes_up / (setting.d * setting.bits / 8),
        "peak_memory_mb": peak_mb,
        "memory_before_mb": before_mb,
        "total_s": wall - play.outside_s,
        "vectors_s": play.outside_s,
        "cpu_s": cpu,
        "sum_correct": bool(np.array_equal(total, session.ring.encode(play.expected))),
        "machine": rates,
        "cipher": keystream_cipher(),
        "primitives": primitive_costs(session, peers, len(gone), rates),
        "stages": rows,
    }


def primitive_costs(session: Session, peers: float, gone: int, rates: Values) -> Values:
    """Return the CPU seconds that the primitives alone take at the rates of this run.

    Parameters
    ----------
    session : Session
    peers : float
        Mask neighbours of a client, in the mean.
    gone : int
        Dropouts between share and contribute.
    rates : dict
        As :func:`primitives.machine` returns them.

    Returns
    -------
    dict
        ``client_cpu_s``: signatures checked, two agreements with each peer, a stream of each;
        ``server_unmask_cpu_s``: each survivor's stream, an agreement and a stream for each
        survivor that masked with one who is gone. What is measured beyond is ours: derivations,
        setting ciphers up, adding streams, messages, shares. ``server_unmask_ctr_cpu_s``: the
        server's, if streams were drawn by counter mode.
    """
    agreement, checked = 1 / rates["x25519_per_s"], 1 / rates["ed25519_verify_per_s"]
    size = session.vector_length * session.ring.dtype.itemsize * 1e-9
    stream, counted = size / rates["aes_gb_s"], size / rates["aes_ctr_gb_s"]
    signatures = (peers + 1 + session.threshold) if session.signed else 0
    survivors = session.size - gone
    pairs = gone * peers * survivors / (session.size - 1)
    return {
        "client_cpu_s": signatures * checked + 2 * peers * agreement + (peers + 1) * stream,
        "server_unmask_cpu_s": pairs * agreement + (pairs + survivors) * stream,
        "server_unmask_ctr_cpu_s": pairs * agreement + (pairs + survivors) * counted,
    }
