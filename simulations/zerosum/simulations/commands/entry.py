"""Start the ``zerosum`` command, so that ctrl-C ends it in one line while it still loads.

Loading takes seconds, before the command line's own endings are in place. This module imports
nothing that does.
"""

import gc
import os
import signal
import sys

from zerosum.simulations.terminal.loading import loading

_INTERRUPTED = 128 + signal.SIGINT
"""Exit code, as shells give it."""


def main() -> None:
    """Load and run the command line; the console script."""
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
        command()
    finally:
        # Python collects as it ends: over all that torch is made of, half a second for nothing.
        gc.freeze()


def _leave(number: int, frame: object) -> None:
    try:
        sys.stderr.write("\nInterrupted. Nothing was begun.\n")
        sys.stderr.flush()
    finally:
        os._exit(_INTERRUPTED)
