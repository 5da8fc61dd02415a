"""Readers of bytes, each with valid bytes to start from and the errors that others may raise.

A target takes any bytes. Its reader gives success or the error that its documentation names, never
anything else, and what was read encodes to the same bytes again: one that does not raises here.
"""

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from zerosum.secagg import (
    ClientParty,
    HighWater,
    IdealClientParty,
    IdealServerParty,
    IdentityKey,
    LocalProtocolError,
    Policy,
    RemoteProtocolError,
    Roster,
    ServerParty,
    Session,
    SignedRoster,
    WrongRoster,
    decode,
    request_digest,
)
from zerosum.secagg.messages.durable_record import Decisions

SIZE = 9
COHORT = (*range(3, 3 + SIZE - 1), 2**64 - 1)
KINDS: dict[str, dict[str, Any]] = {
    "semi-honest": {},
    "semi-honest sparse": {"degree": 4, "threshold": 2, "graph_seed": b"g" * 32},
    "malicious": {"mode": "malicious"},
    "malicious sparse": {"mode": "malicious", "degree": 5, "threshold": 2},
}
REQUEST = request_digest(b"fuzz")


class NotCanonical(Exception):
    """What was read does not encode to the bytes that it was read from."""


def same(again: bytes, data: bytes) -> None:
    """Refuse two encodings of one value."""
    if again != data:
        raise NotCanonical(f"{data.hex()} was read, and encodes to {again.hex()}")


def nothing(body: bytes) -> bytes:
    """Repair nothing: there is no checksum."""
    return body


def half_checksum(data: bytes) -> bytes:
    """Put the right checksum at the end of a message."""
    return data[:-16] + hashlib.sha256(data[:-16]).digest()[:16]


def full_checksum(data: bytes) -> bytes:
    """Put the right checksum at the end of a state."""
    return data[:-32] + hashlib.sha256(data[:-32]).digest()


@dataclass(frozen=True)
class Target:
    """A reader: bytes in; nothing but what may happen comes out."""

    name: str
    seeds: tuple[bytes, ...]
    read: Callable[[bytes], None]
    repair: Callable[[bytes], bytes] = nothing


def key(index: int) -> IdentityKey:
    """The identity key of a client."""
    return IdentityKey(hashlib.sha256(b"fuzz %d" % index).digest())


ROSTER = Roster(1, {index: key(index).public for index in COHORT})
POLICIES = (
    Policy(
        corruption=0.0,
        smallest_cohort=2,
        server_modes=frozenset({"malicious", "semi-honest"}),  # type: ignore[arg-type]
    ),
    Policy(corruption=0.2, dropout=0.1, smallest_cohort=3, longest_vector=1000, min_survivors=0.3),
)


def make_session(kind: str, protocol: str = "pairwise") -> Session:
    """A session of nine clients."""
    values: dict[str, Any] = {
        "run_id": b"run", "round": 1, "attempt": 0, "roster_version": 1, "cohort": COHORT,
        "threshold": 5, "min_survivors": 2, "ring_bits": 13, "vector_length": 5,
        "degree": SIZE - 1, "bounds": b"bounds",
    }  # fmt: skip
    values |= {"mode": "semi-honest", "protocol": protocol} | KINDS[kind]
    if values["mode"] == "malicious":
        values["roster_digest"] = ROSTER.digest
    return Session(**values)


@dataclass
class Played:
    """A session that was played to its end: what was said, and states from before each stage."""

    session: Session
    asked: dict[str, dict[int, Any]] = field(default_factory=dict)
    sent: dict[str, dict[int, Any]] = field(default_factory=dict)
    states: dict[str, bytes] = field(default_factory=dict)
    lines: list[bytes] = field(default_factory=list)

    @property
    def ideal(self) -> bool:
        """Return whether the server is trusted."""
        return not self.session.masked

    def given(self, index: int) -> dict[str, Any]:
        """A client's keys and inputs."""
        return {"identity": key(index), "roster": ROSTER} if self.session.signed else {}

    def server(self, until: str) -> Any:
        """A server that has closed all stages before ``until``, client 4 gone at contribute."""
        roster = ROSTER if self.session.signed else None
        party: Any = IdealServerParty if self.ideal else ServerParty
        server = party(self.session, roster=roster)
        while server.stage != until:
            stage = server.stage
            for index, message in self.sent[stage].items():
                server.receive(index, message)
            server.close(REQUEST if stage == "share" else None)
        return server

    def play(self) -> "Played":
        """Play it."""
        kind: Any = IdealClientParty if self.ideal else ClientParty
        clients = {i: kind(self.session, i, **self.given(i)) for i in COHORT}
        messages: dict[int, Any] = dict.fromkeys(COHORT)
        for stage in self.session.stages:
            if stage == "contribute":
                messages.pop(4, None)
            self.states[stage] = clients[3].export()
            self.asked[stage], self.sent[stage] = messages, {}
            for index, message in messages.items():
                arguments: tuple[Any, ...] = () if message is None else (message,)
                arguments += (np.arange(5),) if stage == "contribute" else ()
                step = getattr(clients[index], stage)(*arguments)
                self.sent[stage][index] = step.send
                self.lines += step.persist
            server = self.server(stage)
            for index, message in self.sent[stage].items():
                server.receive(index, message)
            messages = dict(server.close(REQUEST if stage == "share" else None))
        self.states["done"] = clients[3].export()
        return self


def targets() -> Iterator[Target]:
    """Give every reader."""
    games = {(kind, ideal): Played(make_session(kind, "ideal" if ideal else "pairwise")).play()
             for kind in KINDS for ideal in (False, True)}  # fmt: skip
    yield _session_target([game.session for game in games.values()])
    yield from _roster_targets()
    for (kind, ideal), game in games.items():
        name = f"{kind}{' ideal' if ideal else ''}"
        yield from _message_targets(name, game)
        yield _state_target(name, game)
        yield from _server_targets(name, game)
        yield from _client_targets(name, game)
    yield _record_target(games["malicious", False])


def _session_target(sessions: list[Session]) -> Target:
    def read(data: bytes) -> None:
        with contextlib.suppress(RemoteProtocolError):
            session = Session.from_bytes(data)
            same(session.to_bytes(), data)
            for policy in POLICIES:
                policy.admit(session)
            if not session.signed:
                ClientParty(session, session.cohort[0]).advertise()

    return Target("session", tuple(session.to_bytes() for session in sessions), read)


def _roster_targets() -> Iterator[Target]:
    authority = key(0)
    signed = SignedRoster.sign(ROSTER, authority)

    def read(data: bytes) -> None:
        with contextlib.suppress(RemoteProtocolError):
            same(Roster.from_bytes(data).to_bytes(), data)

    def read_signed(data: bytes) -> None:
        with contextlib.suppress(RemoteProtocolError):
            read = SignedRoster.from_bytes(data)
            same(read.to_bytes(), data)
            read.admit(authority.public, ROSTER)

    yield Target("roster", (ROSTER.to_bytes(),), read)
    yield Target("signed roster", (signed.to_bytes(),), read_signed)


def _message_targets(name: str, game: Played) -> Iterator[Target]:
    said = [*game.asked.values(), *game.sent.values()]
    messages = [message for each in said for message in each.values() if message is not None]
    for kind in sorted({type(message) for message in messages}, key=lambda kind: kind.code):

        def read(data: bytes, kind: Any = kind) -> None:
            with contextlib.suppress(RemoteProtocolError):
                same(decode(data, kind, game.session).to_bytes(), data)

        seeds = {m.to_bytes() for m in messages if type(m) is kind}
        yield Target(f"{name} {kind.__name__}", tuple(sorted(seeds)), read, half_checksum)


def _state_target(name: str, game: Played) -> Target:
    party: Any = IdealClientParty if game.ideal else ClientParty

    def read(data: bytes) -> None:
        with contextlib.suppress(LocalProtocolError, WrongRoster):
            restored = party.restore(data, **({} if game.ideal else game.given(3)))
            same(restored.export(), data)

    return Target(f"{name} state", tuple(game.states.values()), read, full_checksum)


def _record_target(game: Played) -> Target:
    lines = [*game.lines, *HighWater().rise(game.session)]

    def read(data: bytes) -> None:
        split = data.split(b"\n")
        with contextlib.suppress(LocalProtocolError):
            decisions = Decisions(game.session.digest, split)
            if not set(decisions.lines()) <= {line.rstrip(b"\r\n") for line in split}:
                raise NotCanonical(f"{decisions.lines()!r}")
        with contextlib.suppress(LocalProtocolError, RemoteProtocolError):
            HighWater(split).rise(game.session)

    own = [line for line in lines if line.startswith(lines[0][:90])]
    return Target("record", (b"\n".join(own[-3:]), b"\n".join([lines[0], lines[-1]])), read)


def _server_targets(name: str, game: Played) -> Iterator[Target]:
    for stage in game.session.stages:
        seeds = tuple(message.to_bytes() for message in game.sent[stage].values())
        server = [game.server(stage)]

        def read(data: bytes, stage: str = stage, server: list[Any] = server) -> None:
            # Any byte of the message says who sent it.
            sender = COHORT[sum(data[-20:]) % SIZE]
            with contextlib.suppress(RemoteProtocolError):
                server[0].receive(sender, data)
                server[0] = game.server(stage)

        yield Target(f"{name} server at {stage}", seeds, read, half_checksum)


def _client_targets(name: str, game: Played) -> Iterator[Target]:
    party: Any = IdealClientParty if game.ideal else ClientParty
    given = {} if game.ideal else game.given(3)
    for stage in game.session.stages[1:]:
        seeds = tuple({message.to_bytes() for message in game.asked[stage].values()})
        client = [party.restore(game.states[stage], **given)]

        def read(data: bytes, stage: str = stage, client: list[Any] = client) -> None:
            arguments = (np.arange(5),) if stage == "contribute" else ()
            with contextlib.suppress(RemoteProtocolError):
                getattr(client[0], stage)(data, *arguments)
                client[0] = party.restore(game.states[stage], **given)

        yield Target(f"{name} client at {stage}", seeds, read, half_checksum)
