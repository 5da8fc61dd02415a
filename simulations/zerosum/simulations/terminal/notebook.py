"""Show progress below the cell of a notebook: one line that changes, and nothing elsewhere.

Jupyter's own display is updated, which any front end knows. A bar of rich or tqdm needs ipywidgets
there, or leaves a line for each step.
"""

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from zerosum.server.runs.records import RoundRecord
from zerosum.simulations.terminal.durations import StepTimes, left_in_words

PAUSE_SECONDS = 0.25
"""Between two updates: each is a message that the front end draws."""


class LiveLine:
    """A line of text below the cell that runs, where there is a notebook.

    Attributes
    ----------
    shown : bool
        Whether anybody sees it.
    """

    def __init__(self) -> None:
        self.shown = in_notebook()
        self._handle: Any = None
        self._text, self._drawn, self._when = "", "", -PAUSE_SECONDS

    def show(self, text: str) -> None:
        """Show a text in place of the one before, unless that has stood too short a while."""
        self._text = text
        if time.monotonic() - self._when >= PAUSE_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Show the last text, however short a while the one before has stood."""
        if not self.shown or self._text == self._drawn:
            return
        self._when, self._drawn = time.monotonic(), self._text
        data = {"text/plain": self._text}
        if self._handle is None:
            ipython: Any = sys.modules["IPython"]
            self._handle = ipython.display.display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook, and runs one of its cells."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    # A forked worker has the kernel's objects, and no cell.
    return getattr(shell, "kernel", None) is not None and multiprocessing.parent_process() is None


@contextmanager
def rounds_shown(
    rounds: int, on_round: Callable[[RoundRecord], Any]
) -> Iterator[Callable[[RoundRecord], Any]]:
    """Show the rounds of a run in one line, with the time left.

    Parameters
    ----------
    rounds : int
        Of the run.
    on_round : callable
        The user's.

    Yields
    ------
    callable
        To be called with each round's record; returns what ``on_round`` does.
    """
    line, times = LiveLine(), StepTimes()
    if not line.shown:
        yield on_round
        return
    from zerosum.simulations.terminal.round_lines import describe

    def both(record: RoundRecord) -> Any:
        times.step(record.round)
        left = times.seconds_left(rounds)
        line.show(f"{describe(record, rounds)}  {left_in_words(left) if left else ''}".rstrip())
        return on_round(record)

    line.show(f"round 1/{rounds}")
    try:
        yield both
    finally:
        line.flush()
