"""Secure aggregation: exact modular sums of integer vectors that only their owners see.

A :class:`Session` says who takes part and under which parameters. Each client runs a
:class:`ClientParty`, the server a :class:`ServerParty`: messages in, messages out, no sockets, no
clocks. :class:`IdealClientParty` and :class:`IdealServerParty` do the same with a trusted server.

Against a server that may lie (``mode=ServerMode.MALICIOUS``) clients have an :class:`IdentityKey`,
hold a :class:`Roster` signed by an authority (:class:`SignedRoster`), and check sessions by a
:class:`Policy`. Degree and threshold come from :func:`graph_parameters`.

A client's method returns a :class:`Step`. The caller makes ``persist`` durable (file and directory
fsynced), and only then sends ``send``. All durable lines go back in as ``record`` whenever a party
is built. :class:`HighWater` admits rounds in ascending order only.

A peer's mistake is a :class:`RemoteProtocolError`, and the state is as it was. The caller's mistake
is a :class:`LocalProtocolError`. A session that cannot end in a sum raises
:class:`TooFewSurvivors` or :class:`ReconstructionFailed` at the server.

The order of the stages, and why, stands in :mod:`zerosum.secagg.stages`.

``docs/secagg.md`` has a session with restarts and dropouts, and what is promised;
``docs/secagg-wire.md`` every byte.

Examples
--------
Five clients sum three numbers each, against a server that may lie:

>>> import numpy as np
>>> from zerosum.secagg import graph_parameters
>>> keys = {index: IdentityKey.generate() for index in range(5)}
>>> roster = Roster(1, {index: key.public for index, key in keys.items()})
>>> graph = graph_parameters(n=5, dropout=0.2, corruption=0.2, server="malicious")
>>> session = Session(
...     run_id=b"example", round=1, attempt=0, roster_version=1, roster_digest=roster.digest,
...     cohort=tuple(range(5)), degree=graph.degree, threshold=graph.threshold,
...     min_survivors=4, ring_bits=16, vector_length=3, mode=ServerMode.MALICIOUS)
>>> policy = Policy(corruption=0.2, dropout=0.2, smallest_cohort=5)
>>> clients = {
...     index: ClientParty(session, index, identity=keys[index], roster=roster, policy=policy)
...     for index in session.cohort}
>>> server = ServerParty(session, roster=roster)
>>> request = request_digest(b"what is asked")
>>> for index, client in clients.items():
...     server.receive(index, client.advertise().send.to_bytes())
>>> messages = server.close()
>>> while server.stage is not End.DONE:
...     stage = server.stage
...     for index, message in messages.items():
...         if stage is Stage.CONTRIBUTE:
...             step = clients[index].contribute(message.to_bytes(), np.array([index, 1, -1]))
...         else:
...             step = getattr(clients[index], stage)(message.to_bytes())
...         server.receive(index, step.send.to_bytes())  # step.persist was made durable before
...     messages = server.close(request if stage is Stage.SHARE else None)
>>> session.ring.centre(server.result.total)
array([10,  5, -5])
>>> server.result.survivors
(0, 1, 2, 3, 4)
"""

from zerosum.secagg.crypto.cache import SharedCache
from zerosum.secagg.crypto.identity import IdentityKey, Roster, SignedRoster
from zerosum.secagg.errors import (
    AdvertMismatch,
    AlreadyContributed,
    BadKey,
    BadShare,
    BadSignature,
    BadSurvivorSet,
    BoundsRefused,
    CohortTooSmall,
    ConflictingMessage,
    DuplicateKey,
    DuplicateMessage,
    LocalProtocolError,
    LowOrderKey,
    MalformedMessage,
    MinSurvivorsTooLow,
    NoFeasibleGraph,
    NonCanonicalKey,
    OldRoster,
    OutOfOrder,
    PolicyRefusal,
    ProtocolRefused,
    ReconstructionFailed,
    RemoteProtocolError,
    RequestMismatch,
    SecAggError,
    ServerModeRefused,
    StaleSession,
    StateLost,
    TooFewSignatures,
    TooFewSurvivors,
    UnknownVersion,
    UnsafeGraph,
    VectorTooLong,
    WrongParty,
    WrongRoster,
    WrongSession,
)
from zerosum.secagg.graph.parameters import GraphParameters, graph_parameters
from zerosum.secagg.messages.all_messages import (
    Advert,
    Adverts,
    Confirmation,
    ConfirmRequest,
    ContributeRequest,
    Contribution,
    Message,
    Shares,
    UnmaskRequest,
    UnmaskShares,
    decode,
)
from zerosum.secagg.messages.durable_record import HighWater
from zerosum.secagg.parties.client import ClientParty
from zerosum.secagg.parties.ideal import IdealClientParty, IdealServerParty
from zerosum.secagg.parties.interface import Client, Server, Step, SumResult
from zerosum.secagg.parties.policy import Policy
from zerosum.secagg.parties.server import ServerParty
from zerosum.secagg.session import NoiseDraw, Protocol, Session, request_digest
from zerosum.secagg.stages import End, ServerMode, Stage
from zerosum.secagg.vectors.ring import Ring

__all__ = [
    "Advert",
    "AdvertMismatch",
    "Adverts",
    "AlreadyContributed",
    "BadKey",
    "BadShare",
    "BadSignature",
    "BadSurvivorSet",
    "BoundsRefused",
    "Client",
    "ClientParty",
    "CohortTooSmall",
    "ConfirmRequest",
    "Confirmation",
    "ConflictingMessage",
    "ContributeRequest",
    "Contribution",
    "DuplicateKey",
    "DuplicateMessage",
    "End",
    "GraphParameters",
    "HighWater",
    "IdealClientParty",
    "IdealServerParty",
    "IdentityKey",
    "LocalProtocolError",
    "LowOrderKey",
    "MalformedMessage",
    "Message",
    "MinSurvivorsTooLow",
    "NoFeasibleGraph",
    "NoiseDraw",
    "NonCanonicalKey",
    "OldRoster",
    "OutOfOrder",
    "Policy",
    "PolicyRefusal",
    "Protocol",
    "ProtocolRefused",
    "ReconstructionFailed",
    "RemoteProtocolError",
    "RequestMismatch",
    "Ring",
    "Roster",
    "SecAggError",
    "Server",
    "ServerMode",
    "ServerModeRefused",
    "ServerParty",
    "Session",
    "SharedCache",
    "Shares",
    "SignedRoster",
    "Stage",
    "StaleSession",
    "StateLost",
    "Step",
    "SumResult",
    "TooFewSignatures",
    "TooFewSurvivors",
    "UnknownVersion",
    "UnmaskRequest",
    "UnmaskShares",
    "UnsafeGraph",
    "VectorTooLong",
    "WrongParty",
    "WrongRoster",
    "WrongSession",
    "decode",
    "graph_parameters",
    "request_digest",
]
