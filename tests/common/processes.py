"""Watches processes that a test started, by what the system says of them."""

import time
from collections.abc import Callable
from pathlib import Path


def wait_for(holds: Callable[[], bool], seconds: float = 120) -> None:
    """Wait until something holds; fail if it does not in time."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come to be in time"
        time.sleep(0.1)


def children(pid: int) -> list[int]:
    """Return the ids of a process' children."""
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    """Return whether there is such a process that has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
