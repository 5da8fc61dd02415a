"""Hide what operating systems differ in: locks, folders, signals, memory, cores.

Linux and macOS have all of it. Windows imports and simulates without what it lacks; a deployment,
which keeps keys and decisions in files that nobody else may reach, is refused there.
"""

import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Any


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


_fcntl, _msvcrt, _resource = _module("fcntl"), _module("msvcrt"), _module("resource")

OWNED_FILES = hasattr(os, "geteuid") and hasattr(os, "fchmod")
"""Whether files have an owner and a mode, by which others are kept out."""

KILL: Any = getattr(signal, "SIGKILL", signal.SIGTERM)
"""Ends a process that may be deaf to all other signals; on Windows SIGTERM does."""

_LOCKED_BYTE = 1 << 30
"""Of a lock file on Windows, where nobody can read what is locked: far behind what is written."""


NOT_DEPLOYABLE = (
    None
    if OWNED_FILES
    else "a deployment keeps keys and decisions in files that nobody else can reach, which this "
    "system does not have: deploy on Linux, macOS or in WSL; simulations run here"
)
"""Why this system can play no part in a deployment; None where it can."""


def lock(descriptor: int) -> bool:
    """Lock an open file, unless another process has it locked; a process that ends holds nothing.

    Returns
    -------
    bool
        Whether this process holds it.
    """
    if _fcntl is not None:
        try:
            _fcntl.flock(descriptor, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
    return _locking(descriptor, "LK_NBLCK")


def unlock(descriptor: int) -> None:
    """Release the lock of an open file."""
    if _fcntl is not None:
        _fcntl.flock(descriptor, _fcntl.LOCK_UN)
    else:
        _locking(descriptor, "LK_UNLCK")


def _locking(descriptor: int, mode: str) -> bool:
    if _msvcrt is None:
        raise OSError(f"{sys.platform} has neither flock nor msvcrt to lock a file with")
    os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
    try:
        _msvcrt.locking(descriptor, getattr(_msvcrt, mode), 1)
    except OSError:
        return False
    return True


def open_shared(path: Path) -> int:
    """Open a file to read and write, made if it is absent, where files have no owner."""
    own = getattr(os, "O_NOINHERIT", 0) | getattr(os, "O_BINARY", 0)
    return os.open(path, os.O_RDWR | os.O_CREAT | own)


def sync_folder(folder: Path) -> None:
    """Flush a folder, so that the names in it outlive a crash; where folders cannot be opened, not.

    NTFS, where they cannot, keeps a journal of names itself.
    """
    if not OWNED_FILES:
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def peak_bytes() -> int | None:
    """Return the largest resident size of this process so far; None where nothing tells it."""
    if _resource is None:
        return None
    peak = int(_resource.getrusage(_resource.RUSAGE_SELF).ru_maxrss)
    return peak if sys.platform == "darwin" else peak << 10


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def named_path(name: str) -> Path:
    """Return the path that a text names, also where the locale has no letters for it.

    Under the C locale Python takes the bytes of file names for ASCII, and stands in for those that
    are not; a configuration, which is UTF-8, has the letters.
    """
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        name = os.fsdecode(name.encode("utf-8", "surrogateescape"))
    return Path(name).expanduser()


def readable(name: str) -> str:
    """Return a file's name as text, with letters for what Python stands in for under C locales."""
    if name.isascii() or not any("\udc80" <= letter <= "\udcff" for letter in name):
        return name
    try:
        return name.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError:  # its bytes are no UTF-8
        return name
