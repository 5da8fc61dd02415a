"""A laboratory for sessions: makes them, plays them, and keeps what was said."""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from zerosum.secagg import (
    ClientParty,
    IdealClientParty,
    IdealServerParty,
    IdentityKey,
    Protocol,
    Roster,
    ServerMode,
    ServerParty,
    Session,
    SharedCache,
    request_digest,
)

REQUEST = request_digest(b"model", b"configuration")
STAGES = ("advertise", "share", "contribute", "unmask")


class Bytes:
    """A source that gives the same bytes again."""

    def __init__(self, name: str) -> None:
        self._name = name.encode()

    def take(self, count: int) -> bytes:
        return hashlib.sha256(self._name).digest()[:count]


@functools.cache
def identity(index: int) -> IdentityKey:
    return IdentityKey.generate(Bytes(f"identity {index}"))


@functools.cache
def make_roster(cohort: tuple[int, ...], version: int = 7, more: int = 2) -> Roster:
    """The roster of a cohort and a few others."""
    others = [index for index in range(len(cohort) + more) if index not in cohort][:more]
    return Roster(version, {index: identity(index).public for index in (*cohort, *others)})


def make_session(n: int = 5, **changes: Any) -> Session:
    cohort = tuple(changes.pop("cohort", range(10, 10 + 3 * n, 3)))
    k = changes.get("degree", len(cohort) - 1)
    changes.setdefault("mode", ServerMode.SEMI_HONEST)
    if ServerMode(changes["mode"]) is ServerMode.MALICIOUS:
        roster = make_roster(cohort, changes.get("roster_version", 7))
        changes.setdefault("roster_digest", roster.digest)
    elif k < len(cohort) - 1:
        changes.setdefault("graph_seed", b"g" * 32)
    values: dict[str, Any] = {
        "run_id": b"a run",
        "round": 1,
        "attempt": 0,
        "roster_version": 7,
        "cohort": cohort,
        "threshold": max(1, 2 * k // 3),
        "min_survivors": 1,
        "ring_bits": 20,
        "vector_length": 11,
        "degree": k,
        "bounds": b"bounds",
    }
    return Session(**{**values, **changes})


def roster_of(session: Session) -> Roster | None:
    return make_roster(session.cohort, session.roster_version) if session.signed else None


def credentials(session: Session, index: int) -> dict[str, Any]:
    """Return a client's other credentials for a session."""
    if not session.signed:
        return {}
    return {"identity": identity(index), "roster": roster_of(session)}


def make_vectors(session: Session, seed: int = 0) -> dict[int, np.ndarray]:
    rng = np.random.default_rng(seed)
    limit = 1 << (session.ring_bits - 1)
    return {
        index: rng.integers(-limit, limit, session.vector_length, dtype=np.int64)
        for index in session.cohort
    }


def plain_sum(session: Session, vectors: dict[int, np.ndarray], who: Iterable[int]) -> np.ndarray:
    total = [0] * session.vector_length
    for index in who:
        total = [a + int(b) for a, b in zip(total, vectors[index], strict=True)]
    return np.array([value % (1 << session.ring_bits) for value in total], session.ring.dtype)


@dataclass
class Play:
    """A session under way; ``sent`` holds what each client said, by stage.

    Two plays that are ``seeded`` say the same.
    """

    session: Session
    ideal: bool = False
    cached: bool = False
    as_bytes: bool = False
    keep: bool = False
    seeded: bool = False
    change: Callable[[str, int, Any], Any] = lambda stage, index, message: message
    sent: dict[str, dict[int, Any]] = field(default_factory=dict)
    asked: dict[str, dict[int, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.ideal:
            protocol = Protocol.NONE if self.keep else Protocol.IDEAL
            self.session = dataclasses.replace(self.session, protocol=protocol)
        cache = SharedCache() if self.cached else None
        kind = IdealClientParty if self.ideal else ClientParty
        self.clients: dict[int, Any] = {
            index: kind(
                self.session,
                index,
                cache=cache,
                source=Bytes(f"seed {index}") if self.seeded else None,
                **credentials(self.session, index),
            )
            for index in self.session.cohort
        }
        roster = roster_of(self.session)
        self.server: Any = (
            IdealServerParty(self.session, keep=self.keep)
            if self.ideal
            else ServerParty(self.session, roster=roster, cache=cache)
        )
        self.vectors = make_vectors(self.session)
        self.messages: dict[int, Any] = dict.fromkeys(self.session.cohort)

    def answer(self, stage: str, index: int, message: Any) -> Any:
        client = self.clients[index]
        if self.as_bytes and message is not None:
            message = message.to_bytes()
        if stage == "advertise":
            return client.advertise()
        if stage == "contribute":
            return client.contribute(message, self.vectors[index])
        return getattr(client, stage)(message)

    def stage(self, gone: Iterable[int] = ()) -> dict[int, Any]:
        """Run one stage in which some do not answer, without closing it."""
        stage, silent = self.server.stage, set(gone)
        self.asked[stage], self.sent[stage] = self.messages, {}
        for index, message in self.messages.items():
            if index in silent:
                continue
            said = self.change(stage, index, self.answer(stage, index, message).send)
            self.sent[stage][index] = said
            self.server.receive(index, said.to_bytes() if self.as_bytes else said)
        return self.sent[stage]

    def close(self, request: bytes = REQUEST) -> dict[int, Any]:
        request_or_none = request if self.server.stage == "share" else None
        self.messages = self.server.close(request_or_none)
        return self.messages

    def until(self, stage: str, gone: dict[int, str] | None = None) -> "Play":
        """Run and close every stage before ``stage``; ``gone`` says who vanishes when."""
        while self.server.stage != stage:
            now = self.server.stage
            self.stage(index for index, when in (gone or {}).items() if when == now)
            self.close()
        return self

    def finish(self, gone: dict[int, str] | None = None) -> Any:
        return self.until("done", gone).server.result


@pytest.fixture(scope="session")
def lab() -> SimpleNamespace:
    return SimpleNamespace(
        session=make_session,
        vectors=make_vectors,
        plain_sum=plain_sum,
        play=lambda *args, **changes: Play(make_session(*args), **changes),
        Play=Play,
        identity=identity,
        roster=make_roster,
        roster_of=roster_of,
        credentials=credentials,
        REQUEST=REQUEST,
        STAGES=STAGES,
    )
