"""Lock a file for one process at a time, and for no other user of the machine.

flock asks for no more than an open descriptor, of whichever mode: whoever may read a lock file can
hold it for ever. This one is the owner's alone (mode 0600), opened through no link, and its holder
writes its process id into it, so that who waits in vain can be told whom to look at.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from zerosum.client.files.operating_system import OWNED_FILES, lock, open_shared, unlock
from zerosum.client.files.private_files import open_private

_LOOKS_PER_SECOND = 20


class HeldError(Exception):
    """Another process holds the lock; the message names it, as far as it is known."""


@contextmanager
def held_alone(
    path: Path, longest: float = 0.0, waiting: Callable[[float, str], None] | None = None
) -> Iterator[None]:
    """Hold a lock; a process that dies holds nothing.

    Parameters
    ----------
    path : Path
        Of the lock file: made if it is absent.
    longest : float
        Seconds to wait for another process.
    waiting : callable, optional
        Is given the seconds that have passed, and who holds the lock, at each look.

    Yields
    ------
    None
        While the lock is held.

    Raises
    ------
    HeldError
        If that is not enough.
    OpenToOthersError
        If others can reach the file.
    """
    descriptor, began, holder = _opened(path), time.monotonic(), -1
    try:
        while not lock(descriptor):
            waited = time.monotonic() - began
            if waited >= longest:
                raise HeldError(_holder(descriptor))
            if waiting is not None:
                waiting(waited, _holder(descriptor))
            time.sleep(1 / _LOOKS_PER_SECOND)
        holder = os.getpid()
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, b"%d\n" % holder)
        yield
    finally:
        # A process that was forked meanwhile, to load data perhaps, has the lock as well: closed
        # here alone it would last as long as that lives. Nor may that one end it, should it unwind.
        if holder == os.getpid():
            unlock(descriptor)
        os.close(descriptor)


def _opened(path: Path) -> int:
    return open_private(path) if OWNED_FILES else open_shared(path)


def _holder(descriptor: int) -> str:
    os.lseek(descriptor, 0, os.SEEK_SET)
    number = os.read(descriptor, 32).strip()
    return f"process {int(number)}" if number.isdigit() else "another process"
