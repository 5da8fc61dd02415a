"""Exact modular sums of integer vectors that nobody but their owners sees.

A :class:`Session` says who takes part and under which parameters. Each client runs a
:class:`ClientParty`, the server a :class:`ServerParty`: messages in, messages out, no sockets, no
clocks. :class:`IdealClientParty` and :class:`IdealServerParty` do the same with a trusted server.
"""

from zerosum.secagg.cache import SharedCache
from zerosum.secagg.client import ClientParty
from zerosum.secagg.errors import (
    AdvertMismatch,
    AlreadyContributed,
    BadKey,
    BadShare,
    BadSurvivorSet,
    ConflictingMessage,
    DuplicateKey,
    DuplicateMessage,
    LocalProtocolError,
    LowOrderKey,
    MalformedMessage,
    NoFeasibleGraph,
    NonCanonicalKey,
    OutOfOrder,
    ReconstructionFailed,
    RemoteProtocolError,
    RequestMismatch,
    SecAggError,
    StateLost,
    TooFewSurvivors,
    UnknownVersion,
    UnsafeGraph,
    WrongParty,
    WrongSession,
)
from zerosum.secagg.graph import colluders, complete_threshold
from zerosum.secagg.ideal import IdealClientParty, IdealServerParty
from zerosum.secagg.messages import (
    Advert,
    Adverts,
    ContributeRequest,
    Contribution,
    Message,
    Shares,
    UnmaskRequest,
    UnmaskShares,
    decode,
)
from zerosum.secagg.parameters import GraphParameters
from zerosum.secagg.party import Client, Result, Server, Step
from zerosum.secagg.ring import Ring
from zerosum.secagg.server import ServerParty
from zerosum.secagg.session import ServerMode, Session, request_digest

__all__ = [
    "Advert",
    "AdvertMismatch",
    "Adverts",
    "AlreadyContributed",
    "BadKey",
    "BadShare",
    "BadSurvivorSet",
    "Client",
    "ClientParty",
    "ConflictingMessage",
    "ContributeRequest",
    "Contribution",
    "DuplicateKey",
    "DuplicateMessage",
    "GraphParameters",
    "IdealClientParty",
    "IdealServerParty",
    "LocalProtocolError",
    "LowOrderKey",
    "MalformedMessage",
    "Message",
    "NoFeasibleGraph",
    "NonCanonicalKey",
    "OutOfOrder",
    "ReconstructionFailed",
    "RemoteProtocolError",
    "RequestMismatch",
    "Result",
    "Ring",
    "SecAggError",
    "Server",
    "ServerMode",
    "ServerParty",
    "Session",
    "SharedCache",
    "Shares",
    "StateLost",
    "Step",
    "TooFewSurvivors",
    "UnknownVersion",
    "UnmaskRequest",
    "UnmaskShares",
    "UnsafeGraph",
    "WrongParty",
    "WrongSession",
    "colluders",
    "complete_threshold",
    "decode",
    "request_digest",
]
