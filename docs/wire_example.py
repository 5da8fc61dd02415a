"""A small session byte by byte, as another implementation would want to see it.

``python docs/wire_example.py`` prints docs/secagg-wire-example.md. Every secret in it comes
from a label: nobody may use these keys.
"""

import hashlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from zerosum.secagg.crypto.identity import IdentityKey, Roster
from zerosum.secagg.messages.all_messages import (
    Advert,
    Adverts,
    ConfirmRequest,
    ContributeRequest,
    Contribution,
    Message,
    Shares,
    UnmaskRequest,
    UnmaskShares,
)
from zerosum.secagg.parties.client import ClientParty
from zerosum.secagg.parties.server import ServerParty
from zerosum.secagg.session import DIGEST_BYTES, PROTOCOL_VERSION, Session, request_digest
from zerosum.secagg.stages import ServerMode, Stage

COHORT = (2, 5, 2**64 - 1)
VECTORS = ((1, -2, 3, 4), (10, 20, -30, 40), (100, 200, 300, -400))
REQUEST_PARTS = (b"model", b"clip 1.0")

_LINE_BYTES = 32


class Label:
    """A source whose bytes are the SHA-256 of a label."""

    def __init__(self, label: str) -> None:
        self._label = label

    def take(self, count: int) -> bytes:
        """Return the first ``count`` bytes, at most 32."""
        return hashlib.sha256(self._label.encode()).digest()[:count]


@dataclass(frozen=True)
class Spoken:
    """One message: at which stage, from whom to whom."""

    stage: str
    way: str
    message: Message


def identity(index: int) -> IdentityKey:
    """Return the identity key of client ``index``."""
    return IdentityKey.generate(Label(f"identity {index}"))


def example_session(version: int = PROTOCOL_VERSION) -> tuple[Session, Roster]:
    """Return the session, of a version, and the roster that it is bound to."""
    roster = Roster(1, {index: identity(index).public for index in COHORT})
    session = Session(
        run_id=b"example",
        round=3,
        attempt=0,
        roster_version=roster.version,
        roster_digest=roster.digest,
        cohort=COHORT,
        degree=2,
        threshold=2,
        min_survivors=2,
        ring_bits=20,
        vector_length=4,
        bounds=b"",
        mode=ServerMode.MALICIOUS,
        version=version,
    )
    return session, roster


def play(version: int = PROTOCOL_VERSION) -> tuple[list[Spoken], tuple[int, ...]]:
    """Return all that is said in the example session, and its sum."""
    session, roster = example_session(version)
    server = ServerParty(session, roster=roster)
    clients = {
        index: ClientParty(
            session, index, identity=identity(index), roster=roster, source=Label(f"seed {index}")
        )
        for index in COHORT
    }
    said: list[Spoken] = []
    asked: dict[int, Message] = {}
    for stage in session.stages:
        said += _distinct(stage, asked)
        for place, (index, client) in enumerate(clients.items()):
            answer = _answer(client, stage, asked.get(index), VECTORS[place])
            said.append(Spoken(stage, f"client {index} to server", answer))
            server.receive(index, answer.to_bytes())
        asked = dict(server.close(request_digest(*REQUEST_PARTS) if stage == Stage.SHARE else None))
    return said, tuple(session.ring.centre(server.result.total).tolist())


def _answer(
    client: ClientParty, stage: Stage, message: Message | None, vector: Sequence[int]
) -> Message:
    if message is None:
        return client.advertise().send
    data = message.to_bytes()
    if stage == Stage.CONTRIBUTE:
        return client.contribute(data, np.array(vector, np.int64)).send
    steps = {Stage.SHARE: client.share, Stage.CONFIRM: client.confirm, Stage.UNMASK: client.unmask}
    return steps[stage](data).send


def _distinct(stage: str, asked: dict[int, Message]) -> Iterator[Spoken]:
    """Give a message that is the same for all once."""
    if len({message.to_bytes() for message in asked.values()}) == 1:
        yield Spoken(stage, "server to all", next(iter(asked.values())))
        return
    for index, message in asked.items():
        yield Spoken(stage, f"server to client {index}", message)


Layout = list[tuple[str, int]]


def layout(message: Message, session: Session) -> Layout:
    """Return the names and sizes of a message's fields, in order."""
    head = [("magic", 4), ("version, type", 2), ("session", DIGEST_BYTES)]
    return [*head, *_body(message, session), ("checksum", 16)]


def _body(message: Message, session: Session) -> Layout:
    index, request = ("index", 8), ("request", DIGEST_BYTES)
    bitmap = (session.size + 7) // 8
    match message:
        case Advert():
            keys = [("channel key", 32), ("mask key", 32), ("commitment", 32)]
            return [index, *keys, ("signature", 64)]
        case Adverts():
            return [("present", bitmap), *_each("advert", 160, message.entries)]
        case Shares():
            return [index, ("recipients", bitmap), *_each("envelope", 88, message.sealed)]
        case ContributeRequest():
            envelopes = _each("envelope", 88, message.sealed)
            return [("recipient", 8), request, ("sharers", bitmap), *envelopes]
        case Contribution():
            return [index, request, ("vector", session.ring.packed_bytes(session.vector_length))]
        case ConfirmRequest():
            return [("survivors", bitmap)]
        case UnmaskRequest():
            signatures = _each("signature", 64, message.signatures)
            return [("survivors", bitmap), ("signers", bitmap), *signatures]
        case UnmaskShares():
            return [index, ("dealers", bitmap), *_each("share", 36, message.shares)]
        case _:
            return [index, ("signature", 64)]


def _each(name: str, size: int, data: bytes) -> Layout:
    return [(f"{name} {i + 1}", size) for i in range(len(data) // size)]


def session_layout(session: Session) -> Layout:
    """Return the names and sizes of the fields of a session's bytes."""
    names = (
        "version",
        "mode",
        "protocol",
        "noise draw",
        "round",
        "attempt",
        "roster",
        "degree",
        "threshold",
    )
    numbers = [(name, 8) for name in (*names, "min survivors", "ring bits", "coordinates")]
    parts = {
        "run id": len(session.run_id),
        "bounds": len(session.bounds),
        "cohort": 8 * session.size,
        "roster digest": len(session.roster_digest),
        "graph seed": len(session.graph_seed),
    }
    prefixed = [each for name, size in parts.items() for each in (("length", 8), (name, size))]
    return [("tag", 16), *numbers, *prefixed]


def roster_layout(roster: Roster) -> Layout:
    """Return the names and sizes of the fields of a roster's bytes."""
    entries = [("index", 8), ("key", 32)] * len(roster)
    return [("tag", 15), ("version", 8), ("entries", 8), *entries]


def _hex(name: str, data: bytes) -> Iterator[str]:
    for start in range(0, len(data), _LINE_BYTES):
        yield f"{name if not start else '':14} {data[start : start + _LINE_BYTES].hex()}"


def _block(data: bytes, pieces: Layout) -> str:
    lines: list[str] = []
    start = 0
    for name, size in pieces:
        lines += _hex(name, data[start : start + size])
        start += size
    return "```text\n" + "\n".join(lines) + "\n```\n"


_HEAD = """# An example session of secure aggregation

Three clients, indices 2, 5 and 2^64 - 1, sum vectors of four 20-bit numbers against a malicious
server on the complete graph, degree 2, threshold 2; nobody drops out. The format is that of
[secagg-wire.md](secagg-wire.md). This page is generated:
`python docs/wire_example.py > docs/secagg-wire-example.md`.

Secrets are the SHA-256 of labels: the identity key (Ed25519 seed) of client 2 that of
`identity 2`, its 32-byte seed that of `seed 2`, and so on. The request digest is that of the parts
`model` and `clip 1.0`.
"""


def page(version: int = PROTOCOL_VERSION) -> str:
    """Return the page in Markdown, of a session of a version."""
    session, roster = example_session(version)
    said, total = play(version)
    asked = request_digest(*REQUEST_PARTS)
    parts = [
        _HEAD,
        f"## Roster: {len(roster.to_bytes())} bytes\n",
        _block(roster.to_bytes(), roster_layout(roster)),
        f"## Session: {len(session.to_bytes())} bytes\n",
        _block(session.to_bytes(), session_layout(session)),
        "Digests:\n",
        _block(session.digest + asked, [("session", 32), ("request", 32)]),
    ]
    for spoken in said:
        message = spoken.message
        kind, size = type(message).__name__, message.wire_bytes
        parts.append(f"## {spoken.stage.capitalize()}: {kind}, {spoken.way}, {size} bytes\n")
        parts.append(_block(message.to_bytes(), layout(message, session)))
    rows = (f"| {index} | `{list(row)}` |" for index, row in zip(COHORT, VECTORS, strict=True))
    table = "\n".join(["| client | vector |", "|---|---|", *rows, f"| sum | `{list(total)}` |"])
    return "\n".join([*parts, "## The sum\n", table, ""])


if __name__ == "__main__":
    sys.stdout.write(page())
