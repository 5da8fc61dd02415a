"""Remove from this process what Windows lacks: for a subprocess, before zerosum is imported."""

import os
import signal
import sys
import types
from typing import Any

MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "syslog")
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
