"""Estimate how long something still takes, and write it as people guess it."""

import time

MINUTE_SECONDS = 59.5
"""From here on a time is in minutes."""


def left_in_words(seconds: float) -> str:
    """Write how long something still takes, as "40 s left"."""
    known = f"{round(seconds)} s" if seconds < MINUTE_SECONDS else in_words(seconds)
    return f"{known} left"


def in_words(seconds: float) -> str:
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
        self._done = self._base = 0
        self._first: float | None = None
        self._last = self.began

    def step(self, done: int) -> None:
        """Count steps up to this one; what an earlier process did took no time of this one."""
        if done <= self._done:
            return
        self._last = time.monotonic()
        if self._first is None:
            self._first, self._base = self._last, done - 1
        self._done = done

    def seconds_left(self, total: float | None) -> float | None:
        """Return the time that the steps up to a total take; None before the first is over.

        The first step has the start in it, as loading: once there are more, it counts no more.
        """
        if total is None or self._first is None:
            return None
        steps = self._done - self._base
        alone = steps == 1
        taken = self._last - (self.began if alone else self._first)
        a_step = taken / max(1, steps - (not alone))
        left = max(0.0, total - self._done)
        passed = time.monotonic() - self._last
        # A step that takes longer than the others says nothing of those after it.
        return max(left * a_step - passed, (left - 1) * a_step, 0.0)
