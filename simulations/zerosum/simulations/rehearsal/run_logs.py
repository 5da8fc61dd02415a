"""Read in the logs of a rehearsal why something failed: nodes and ServerApp are all its owner's."""

import re
from pathlib import Path
from typing import Final

from zerosum.client.protocol.training_outcomes import FAILED_AT_HOME
from zerosum.simulations.rehearsal.federation import SERVERAPP

LINES_SHOWN: Final = 6
"""Lines of the nodes' logs in an error."""

DECLINED: Final = ("declined", "drops out")
"""What lines of a node's log hold where it does not take part."""

_STAMP: Final = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d+)? ")
"""Time of a line of a node's log: without it, equal lines are one."""

_TRACEBACK: Final = "Traceback (most recent call last):"
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_OF_A_MODULE: Final = re.compile(r"^(?:\w+\.)+(?=\w+:|\w+$)")


def log_lines(nodes: Path, parts: tuple[str, ...]) -> list[list[str]]:
    """Return the lines of each node's log that hold one of these parts.

    Parameters
    ----------
    nodes : Path
        Folder of the logs.
    parts : tuple of str

    Returns
    -------
    list of list of str
        By node.
    """
    return [
        [line.strip() for line in text.splitlines() if any(part in line for part in parts)]
        for text in _texts(nodes)
    ]


def first_failures(nodes: Path) -> list[str]:
    """Return what nodes logged of their own failures and refusals, each line once.

    Parameters
    ----------
    nodes : Path
        Folder of the logs.

    Returns
    -------
    list of str
        A few of them; a failure with the error that its traceback ends in.
    """
    found: dict[str, None] = {}
    for text in _texts(nodes):
        lines = text.splitlines()
        for place, line in enumerate(lines):
            if any(part in line for part in (*DECLINED, *FAILED_AT_HOME)):
                error = _error_after(lines[place + 1 :])
                found[_STAMP.sub("", line.strip()) + (f": {error}" if error else "")] = None
    return list(found)[:LINES_SHOWN]


def server_error(nodes: Path) -> str | None:
    """Return the error that the ServerApp's log ends with.

    Parameters
    ----------
    nodes : Path
        Folder of the logs.

    Returns
    -------
    str or None
        The last traceback's last line; None where there is none.
    """
    log = nodes / f"{SERVERAPP}.log"
    return last_error(_read(log)) if log.is_file() else None


def last_error(text: str) -> str | None:
    """Return the error that the last traceback of a log ends with, without its module.

    Parameters
    ----------
    text : str
        Of a log.

    Returns
    -------
    str or None
        As ``ValueError: no such column``.
    """
    _, found, after = text.rpartition(_TRACEBACK)
    return _error_after([found, *after.splitlines()]) if found else None


def _error_after(lines: list[str]) -> str | None:
    """Return the error of the traceback that these lines begin with; None where they do not."""
    if not lines or _TRACEBACK not in lines[0]:
        return None
    for line in lines[1:]:
        if line.strip() and not line[0].isspace():
            return _OF_A_MODULE.sub("", line.strip())
    return None


def _texts(nodes: Path) -> list[str]:
    return [_read(log) for log in sorted(nodes.glob("supernode*.log"))]


def _read(log: Path) -> str:
    return _COLOURS.sub("", log.read_text(encoding="utf-8", errors="replace"))
