"""Start the ``zerosum`` command, so that ctrl-C ends it in one line while it still loads.

Loading takes seconds, before the command line's own endings are in place. This module imports
nothing that does.
"""

import errno
import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from zerosum.simulations.terminal.loading import loading

_INTERRUPTED = 128 + signal.SIGINT
"""Exit code, as shells give it."""

_FAILED = 1
"""Exit code of a command that broke off."""

_OF_THE_SYSTEM = frozenset(
    getattr(errno, name)
    for name in (
        *("EACCES", "EPERM", "EROFS", "ENOSPC", "EDQUOT", "EFBIG", "EIO"),
        *("ENAMETOOLONG", "ELOOP", "ENOTDIR", "EMFILE", "ENFILE"),
    )
    if hasattr(errno, name)
)
"""Errors that the machine has to mend, or another path: the code has not made them."""


def main() -> None:
    """Load and run the command line; the console script."""
    _open_closed_streams()
    # Left at once, not by an exception: half-made extension modules turn that into errors of
    # their own, and nothing has begun that needs an end. Who ignores ctrl-C goes on doing so.
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    with loading():
        from zerosum.simulations.commands.main import main as command

    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, before)
    try:
        with _system_errors_in_words():
            command()
    finally:
        # Python collects as it ends: over all that torch is made of, half a second for nothing.
        gc.freeze()


@contextmanager
def _system_errors_in_words() -> Iterator[None]:
    """End in one line where the system refuses a file, as of a full disk or another user's."""
    try:
        try:
            yield
        finally:
            _flush()
    except OSError as error:
        if error.errno not in _OF_THE_SYSTEM:
            raise
        # Only the output has no name: it was open before.
        name = "the output cannot be written" if error.filename is None else str(error.filename)
        with suppress(OSError):
            sys.stderr.write(f"error: {name}: {error.strerror}\n")
            sys.stderr.flush()
        _leave_unread()


def _flush() -> None:
    """Write what is left of the output now: as Python ends, nobody hears of an error."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read it has enough, as rich takes it
        _leave_unread()


def _leave_unread() -> NoReturn:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still to flush
    sys.exit(_FAILED)


def _open_closed_streams() -> None:
    """Give streams that were closed before the start to nothing: a run's file would get theirs."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it takes the lowest number that is free
        setattr(sys, name, open(os.devnull, "w" if number else "r", encoding="utf-8"))  # noqa: SIM115


def _leave(number: int, frame: object) -> None:
    try:
        sys.stderr.write("\nInterrupted. Nothing was begun.\n")
        sys.stderr.flush()
    finally:
        os._exit(_INTERRUPTED)
