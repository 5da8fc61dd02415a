"""Remove from this process what Windows lacks: for a subprocess, before zerosum is imported."""

import os
import shutil
import signal
import sys
import types
from contextlib import suppress
from pathlib import Path
from typing import Any

MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog")
OF_OS = (
    "fork", "forkpty", "getuid", "geteuid", "getgid", "getegid", "getpgid", "setsid", "killpg",
    "sched_getaffinity", "sched_setaffinity", "fchmod", "fchown", "chown", "pread", "pwrite",
    "register_at_fork", "O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK", "O_DIRECTORY", "uname",
    "waitid", "getloadavg", "mkfifo", "sysconf",
)  # fmt: skip
OF_SIGNAL = ("SIGKILL", "SIGHUP", "SIGUSR1", "SIGUSR2", "pthread_sigmask", "SIG_BLOCK", "alarm")


class Locks(types.ModuleType):
    """msvcrt's locks of bytes, kept in this process, which have to be of a byte not in use."""

    LK_NBLCK, LK_UNLCK = 2, 0

    def __init__(self) -> None:
        super().__init__("msvcrt")
        self.held: set[tuple[int, int, int]] = set()

    def locking(self, descriptor: int, mode: int, count: int) -> None:
        """Lock or unlock a byte at the descriptor's place."""
        file = os.fstat(descriptor)
        place = os.lseek(descriptor, 0, os.SEEK_CUR)
        assert count == 1
        assert place > file.st_size
        key = (file.st_dev, file.st_ino, place)
        if mode == self.LK_UNLCK:
            self.held.remove(key)
        elif key in self.held:
            raise PermissionError(13, "Permission denied")
        else:
            self.held.add(key)


FORBIDDEN = frozenset('<>:"|?*') | {chr(code) for code in range(32)}
"""Letters that no name has there."""

RESERVED = {
    "con",
    "prn",
    "aux",
    "nul",
    *(f"{kind}{n}" for kind in ("com", "lpt") for n in range(1, 10)),
}


def watched(root: Path) -> None:
    """Refuse under a folder what NTFS refuses: names, links, and to move or remove open files.

    Audit hooks see what any code of this process does, and cannot be taken away.
    """

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in ("open", "os.mkdir", "os.rename", "os.remove", "os.symlink", "os.link"):
            return
        paths = [each for each in arguments[:2] if isinstance(each, str | os.PathLike)]
        inside = [os.path.abspath(path) for path in paths if within(os.path.abspath(path), root)]
        if event in ("os.symlink", "os.link") and inside:
            raise OSError(1314, "A required privilege is not held by the client")
        for path in inside:
            check_name(path, root)
        if event in ("os.rename", "os.remove"):
            for path in inside:
                if path in opened_files():
                    raise PermissionError(13, "The process cannot access the file", path)

    sys.addaudithook(look)


def within(path: str, root: Path) -> bool:
    """Tell whether a path lies under a folder."""
    return path.startswith(f"{root}{os.sep}")


def check_name(path: str, root: Path) -> None:
    """Refuse a name that NTFS does not take."""
    for name in os.path.relpath(path, root).split(os.sep):
        stem = name.partition(".")[0].lower()
        if set(name) & FORBIDDEN or name[-1] in " ." or stem in RESERVED:
            raise OSError(22, "Invalid argument", path)


def opened_files() -> set[str]:
    """Return the files that this process has open, or mapped into its memory."""
    found = set()
    for link in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found.add(os.readlink(f"/proc/self/fd/{link}"))
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return found | {line.split(maxsplit=5)[5].strip() for line in maps if line.count("/")}


def pretend() -> Locks:
    """Take away what Windows lacks, other packages imported, and give it locks of its kind."""
    import flwr.app
    import flwr.serverapp
    import matplotlib.pyplot
    import pandas
    import rich.console
    import torch
    import typer

    _ = flwr, matplotlib, pandas, rich, torch, typer
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    for module, names in ((os, OF_OS), (signal, OF_SIGNAL)):
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    shutil._use_fd_functions = False  # type: ignore[attr-defined]  # by names alone
    given: Any = os.open

    def opened(path: Any, *arguments: Any, **more: Any) -> int:
        if not more and os.path.isdir(path):
            raise PermissionError(13, "Permission denied", str(path))
        descriptor: int = given(path, *arguments, **more)
        return descriptor

    os.open = opened
    locks = Locks()
    sys.modules["msvcrt"] = locks
    return locks
