"""Allow one simulation at a time in a process: generators and loggers are the process' own.

Two runs in two threads would seed and put back the same global generators between each other's
draws: both would end, with other bits each time. A run inside another's ``on_round`` would write
into the other's logs.
"""

import multiprocessing
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from zerosum.client.user_error import UserError


class BusyError(UserError, RuntimeError):
    """Another simulation is running in this process; the message is one line."""


@dataclass(frozen=True)
class _Holder:
    process: int
    thread: int
    what: str
    nests: bool


_guard = threading.Lock()
_holders: list[_Holder] = []


@contextmanager
def alone(what: str, *, nests: bool = False) -> Iterator[None]:
    """Refuse to begin while something else simulates in this process.

    Parameters
    ----------
    what : str
        What begins, as the refusal of another calls it: ``"run"``.
    nests : bool
        Whether others may begin inside the block, in its thread: attacks run simulations.

    Returns
    -------
    context manager
        Around the simulation.

    Raises
    ------
    BusyError
        If something else goes on, in another thread or around this call, or if a process that was
        started to work for a script begins the script anew.
    """
    # As multiprocessing itself finds it out. Left to it, each worker would play all of it again.
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise BusyError(
            f"{what}: a worker process imports the script that started it, and would do all of it "
            'again: put what the script does under: if __name__ == "__main__":'
        )
    mine = _Holder(os.getpid(), threading.get_ident(), what, nests)
    with _guard:
        # Of a process that forked in the midst of a run, that run goes on in its parent alone.
        _holders[:] = [each for each in _holders if each.process == mine.process]
        last = _holders[-1] if _holders else None
        if last is not None and not (last.nests and last.thread == mine.thread):
            # The first one is what was asked for: a run plans before it begins.
            raise BusyError(_refusal(what, _holders[0], mine))
        _holders.append(mine)
    try:
        yield
    finally:
        with _guard:
            _holders.remove(mine)


def _refusal(what: str, first: _Holder, mine: _Holder) -> str:
    where = "around this call" if first.thread == mine.thread else "in another thread"
    return (
        f"{what}: {first.what} goes on {where} of this process, and both would draw from its "
        "global random generators: wait until it has ended, or start a process for each"
    )


if hasattr(os, "register_at_fork"):
    # A thread may have held the guard as another forked: nobody would release it in the child.
    os.register_at_fork(after_in_child=lambda: globals().update(_guard=threading.Lock()))
