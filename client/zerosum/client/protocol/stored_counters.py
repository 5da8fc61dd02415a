"""Read the counters of a state directory, and refuse all but what a store writes.

A file that lacks a key, or has another type in it, is damaged: whatever was to be remembered is
not guessed. Only a directory in which no session was ever begun may have no counters.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zerosum.client.files.private_files import read_private
from zerosum.client.privacy.spending import Spending
from zerosum.client.protocol.decision_store import DamagedStoreError
from zerosum.client.session_limits import are_openings

COUNTERS, SESSIONS, CLOSED = "counters.json", "sessions", "closed"
"""Names of what a state directory holds: counters, lines of sessions, runs that are over."""

_CHECKSUM = "checksum"
"""Key of the SHA-256 of all others: a digit that a disk lost is a cost that was never charged."""

NO_WAY_BACK = (
    "this node's state is lost. Do not restore a backup, which forgets what came after it: the "
    "node would contribute twice. Have its index and identity taken out of the roster, and enrol "
    "it with a new index, identity and state-dir"
)


def read_spending(folder: Path) -> Spending:
    """Read what a node has spent without writing anything, not even a lock.

    Counters are replaced whole, so that they can be read while the node answers.

    Parameters
    ----------
    folder : Path
        The node's state directory.

    Raises
    ------
    DamagedStoreError
        If the record cannot be read.
    OpenToOthersError
        If others than its owner can reach the record.
    """
    return spending_of(read_counters(folder))


def written_counters(counters: Mapping[str, Any]) -> bytes:
    """Return the content of a file of counters, with their checksum.

    Parameters
    ----------
    counters : mapping
        Plain values.

    Returns
    -------
    bytes
        JSON, as :func:`read_counters` reads it.
    """
    return json.dumps({**counters, _CHECKSUM: _checksum(counters)}).encode()


def _checksum(counters: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(counters).encode()).hexdigest()


def read_counters(folder: Path) -> dict[str, Any]:
    """Read a node's counters; those of a new node are zero.

    Parameters
    ----------
    folder : Path
        The node's state directory.

    Returns
    -------
    dict
        With every key.

    Raises
    ------
    DamagedStoreError
        If they are lost or damaged: counted from nothing, everything could be done twice.
    """
    path, sessions = folder / COUNTERS, folder / SESSIONS
    try:
        counters = json.loads(read_private(path))
    except FileNotFoundError:
        # They are written before the first session is: beside one they have been lost.
        begun = sessions.is_dir() and any(sessions.iterdir())
        counters = None if begun or (folder / CLOSED).exists() else {}
    except (ValueError, RecursionError):
        counters = None
    if not (_is_intact(counters) and _are_counters(counters)):
        raise DamagedStoreError(f"{path} is damaged or lost: {NO_WAY_BACK}")
    checked: dict[str, Any] = counters
    empty: dict[str, Any] = {
        "high_water": {},
        "sessions": {},
        "runs": {},
        "day": None,
        "closed": 0,
        "roster": None,
        "contributions": 0,
        "spending": {},
        "flower_runs": {},
    }
    return empty | checked


def spending_of(counters: Mapping[str, Any]) -> Spending:
    """Read what was spent from a record's counters.

    Raises
    ------
    ValueError
        If that is not what this version writes, nor a record from before it did.
    """
    return Spending.from_json(counters.get("contributions", 0), counters.get("spending", {}))


def _is_intact(counters: object) -> bool:
    """Take the checksum off and compare it; an earlier version wrote none."""
    if not isinstance(counters, dict) or _CHECKSUM not in counters:
        return True
    said = counters.pop(_CHECKSUM)
    return bool(said == _checksum(counters))


def _are_counters(counters: object) -> bool:
    """Check that parsed JSON has the keys and types that a store writes."""
    if not isinstance(counters, dict):
        return False
    marks, roster = counters.get("high_water", {}), counters.get("roster")
    sessions = counters.get("sessions", {})
    pairs = marks.values() if isinstance(marks, dict) else [None]
    opened = sessions.values() if isinstance(sessions, dict) else [None]
    try:
        spending_of(counters)
    except ValueError:
        return False
    # A run's mark goes with all that is known of it: one that was lost alone would be begun again.
    known = set(sessions) | set(counters["runs"] if isinstance(counters.get("runs"), dict) else ())
    return (
        all(_is_pair(pair, int) for pair in pairs)
        and all(map(_is_hexadecimal, marks))
        and known <= set(marks)
        and all(isinstance(entries, list) and all(map(_is_session, entries)) for entries in opened)
        and (roster is None or _is_pair(roster, str))
        and are_openings(counters)
        and _are_names(counters.get("flower_runs", {}))
    )


def _are_names(value: object) -> bool:
    """Return whether a value is Flower's ids of runs; an earlier version kept none."""
    return isinstance(value, dict) and all(isinstance(name, str) for name in value.values())


def _is_session(value: object) -> bool:
    """Return whether a value is a round and a session digest."""
    if not _is_pair(value, str):
        return False
    return _is_hexadecimal(value[1])  # type: ignore[index]


def _is_hexadecimal(value: str) -> bool:
    return set(value) <= set("0123456789abcdef") and len(value) % 2 == 0


def _is_pair(value: object, second: type) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and type(value[0]) is int
        and type(value[1]) is second
    )
