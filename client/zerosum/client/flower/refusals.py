"""Log the messages that a node refuses: each reason once a run, and then its count."""

import hashlib
import logging

from flwr.app import ConfigRecord, RecordDict

log = logging.getLogger("zerosum.client")

_REFUSED = "zerosum.refused"
"""Where a node keeps its counts: each message has a process of its own, and the state outlives it.
"""

MOST_REASONS = 32
"""Reasons counted at once: a server may choose numbers that are in their texts."""


def log_refusal(state: RecordDict, run: int, who: object, stage: str, error: Exception) -> None:
    """Log a refusal the first time that it is made in a run, and at each power of ten.

    A server that waits for its nodes, or a budget that is spent, has the same message refused over
    and over: hundreds of equal lines hide the one of another reason.

    Parameters
    ----------
    state : RecordDict
        Of the run at this node; the count is kept in it.
    run : int
        Flower's id of it.
    who : object
        The client, for the log.
    stage : str
        What was refused.
    error : Exception
        Why.
    """
    record = state.config_records.get(_REFUSED)
    counts = {key: n for key, n in (record or {}).items() if isinstance(n, int)}
    key = hashlib.sha256(f"{stage}: {error}".encode(errors="replace")).hexdigest()[:16]
    count = counts.pop(key, 0) + 1
    latest = list(counts.items())[1 - MOST_REASONS :]
    state[_REFUSED] = ConfigRecord(dict([*latest, (key, count)]))
    if count == 1:
        log.warning("run %d: client %s declined to %s: %s", run, who, stage, error)
    elif str(count).strip("0") == "1":
        log.warning(
            "run %d: client %s declined to %s %d times so far: %s", run, who, stage, count, error
        )
