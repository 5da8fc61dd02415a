"""Estimate how long something still takes, and write it as people guess it."""

import time

MINUTE_SECONDS = 59.5
"""From here on a time is in minutes."""


def left_in_words(seconds: float) -> str:
    """Write how long something still takes, as "40 s left"."""
    known = f"{round(seconds)} s" if seconds < MINUTE_SECONDS else time_in_words(seconds)
    return f"{known} left"


def time_in_words(seconds: float) -> str:
    """Write a time as people guess it: the two largest units."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return "under a minute"
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} days {hours % 24} h"


class StepTimes:
    """Steps that were done since the start, and the time that the others take.

    Attributes
    ----------
    began : float
        Seconds of the monotonic clock.
    """

    def __init__(self) -> None:
        self.began = time.monotonic()
        self._done = self._own = 0
        self._first: float | None = None
        self._last = self.began

    def step(self, done: int, own: bool = True) -> None:
        """Count steps up to this one; what an earlier process did took no time of this one.

        Parameters
        ----------
        done : int
            Number of steps that are over.
        own : bool
            Whether this process did the last one: of one that was kept nothing is learnt.
        """
        if done <= self._done:
            return
        if own:
            self._last = time.monotonic()
            # Steps before the first are of an earlier process.
            self._own += 1 if self._first is None else done - self._done
            self._first = self._first or self._last
        self._done = done

    def seconds_left(self, total: float | None) -> float | None:
        """Return the time that the steps up to a total take; None before the first is over.

        The first step has the start in it, as loading: once there are more, it counts no more.
        """
        if total is None or self._first is None:
            return None
        alone = self._own == 1
        taken = self._last - (self.began if alone else self._first)
        a_step = taken / max(1, self._own - (not alone))
        left = max(0.0, total - self._done)
        passed = time.monotonic() - self._last
        # A step that takes longer than the others says nothing of those after it.
        return max(left * a_step - passed, (left - 1) * a_step, 0.0)
