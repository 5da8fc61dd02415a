"""The frozen messages of a session, and their canonical bytes.

:mod:`~zerosum.secagg.messages.framing` holds what they share and how they are read,
:mod:`~zerosum.secagg.messages.from_client` and :mod:`~zerosum.secagg.messages.from_server` what
each side says. ``docs/secagg-wire.md`` gives every byte.
"""

from zerosum.secagg.crypto.identity import SIGNATURE_BYTES
from zerosum.secagg.messages.framing import Message, accept, decode, session_of
from zerosum.secagg.messages.from_client import (
    KEY_BYTES,
    SEALED_BYTES,
    SHARE_BYTES,
    Advert,
    Confirmation,
    Contribution,
    Shares,
    UnmaskShares,
    advert_bytes,
    advert_statement,
    check_neighbours,
    neighbours_bytes,
    survivors_statement,
)
from zerosum.secagg.messages.from_server import (
    Adverts,
    ConfirmRequest,
    ContributeRequest,
    UnmaskRequest,
)

__all__ = [
    "KEY_BYTES",
    "SEALED_BYTES",
    "SHARE_BYTES",
    "SIGNATURE_BYTES",
    "Advert",
    "Adverts",
    "ConfirmRequest",
    "Confirmation",
    "ContributeRequest",
    "Contribution",
    "Message",
    "Shares",
    "UnmaskRequest",
    "UnmaskShares",
    "accept",
    "advert_bytes",
    "advert_statement",
    "check_neighbours",
    "decode",
    "neighbours_bytes",
    "session_of",
    "survivors_statement",
]
