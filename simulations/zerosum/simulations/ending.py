"""Signals that end a command: in order, with what was done so far kept."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM
"""Exit codes, as shells give them."""


class Terminated(KeyboardInterrupt):
    """SIGTERM came: it ends what is going on as ctrl-C does."""


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM raise :class:`Terminated` meanwhile; in other threads than the main nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: object) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


@contextmanager
def ended_in_order() -> Iterator[None]:
    """Let SIGTERM end this process as an exception does, so that nothing is left running."""
    try:
        with terminable():
            yield
    except Terminated:
        sys.exit(TERMINATED)


@contextmanager
def interruptible(left: Callable[[], str]) -> Iterator[None]:
    """End a command on ctrl-C or SIGTERM with a line, and with 130 or 143.

    Parameters
    ----------
    left : callable
        What there is to say, once it ended.
    """
    with terminable():
        try:
            yield
        except KeyboardInterrupt as ended:
            console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
            console.print(f"\nInterrupted. {left()}")
            code = TERMINATED if isinstance(ended, Terminated) else INTERRUPTED
            raise typer.Exit(code) from None
