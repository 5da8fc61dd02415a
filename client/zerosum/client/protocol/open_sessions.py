"""Parties that wait in a node's volatile state for their next message, two at most.

Rounds are pipelined: while one session is answered, the next one's keys and shares are agreed. A
party's secrets are forgotten at the end of its session, and also when nobody ends it: when the
second round after it begins, when another run begins, and after a time that the policy sets.
"""

import math
import time

from flwr.app import ConfigRecord, RecordDict

from zerosum.client.protocol.decision_store import ROUNDS_KEPT
from zerosum.secagg import Client, Session

PREFIX = "zerosum.party."


def keep_party(state: RecordDict, party: Client, most_seconds: float = math.inf) -> None:
    """Put a party into the state, and drop those whose sessions must be over by now.

    Parameters
    ----------
    state : flwr.app.RecordDict
        The node's volatile state.
    party : Client
        Between two stages.
    most_seconds : float
        Age at which a session's secrets are forgotten, whoever still asks.
    """
    _drop_expired(state, most_seconds)
    session, name = party.session, _name(party.session.digest)
    opened = _opened(state, name)
    if opened is None:
        _drop_older(state, session)
        opened = int(time.time())
    state[name] = ConfigRecord(
        {
            "state": party.export(),
            "run": session.run_id,
            "round": session.round,
            "opened": opened,
        }
    )


def find_party(state: RecordDict, digest: bytes, most_seconds: float) -> bytes | None:
    """Return the exported party of a session, and forget every party that is past its time.

    Parameters
    ----------
    state : flwr.app.RecordDict
        The node's volatile state.
    digest : bytes
        Of the session.
    most_seconds : float
        Age at which a session's secrets are forgotten.

    Returns
    -------
    bytes or None
        None where there is none, or none any more.
    """
    _drop_expired(state, most_seconds)
    record = state.config_records.get(_name(digest))
    data = None if record is None else record.get("state")
    return data if isinstance(data, bytes) else None


def forget_party(state: RecordDict, digest: bytes) -> None:
    """Delete the party of a session, if it is there.

    Parameters
    ----------
    state : flwr.app.RecordDict
        The node's volatile state.
    digest : bytes
        Of the session.
    """
    state.config_records.pop(_name(digest), None)


def _name(digest: bytes) -> str:
    return PREFIX + digest.hex()


def _number(record: ConfigRecord, name: str) -> int:
    """Read a number of a record; a damaged one is -1, which no session in progress has."""
    value = record.get(name)
    return value if isinstance(value, int) else -1


def _opened(state: RecordDict, name: str) -> int | None:
    record = state.config_records.get(name)
    return None if record is None else _number(record, "opened")


def _drop_expired(state: RecordDict, most_seconds: float) -> None:
    now = time.time()
    for name, record in list(state.config_records.items()):
        past = not 0 <= now - _number(record, "opened") <= most_seconds
        if name.startswith(PREFIX) and past:
            del state[name]


def _drop_older(state: RecordDict, new: Session) -> None:
    """Drop all parties but the newest one before the session that begins."""
    rounds: dict[str, int] = {}
    for name, record in list(state.config_records.items()):
        if not name.startswith(PREFIX):
            continue
        number = _number(record, "round")
        if record.get("run") == new.run_id and new.round - ROUNDS_KEPT <= number < new.round:
            rounds[name] = number
        else:
            del state[name]
    for name in sorted(rounds, key=rounds.__getitem__)[:-1]:
        del state[name]
