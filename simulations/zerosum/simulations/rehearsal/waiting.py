"""Wait until a run on a federation has ended."""

import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread

ASK_SECONDS = 30.0
"""Between two questions to Flower about a run: each costs a process, half a minute on a busy
machine."""

AGAIN_SECONDS = 2.0
"""The same, once there is a sign that the run has ended."""

LOOK_SECONDS = 0.5
"""Between two looks at files and processes."""


def wait_for_end(
    status: Callable[[], str],
    seconds: float,
    *,
    sign: Path | None = None,
    look: Callable[[], None] = lambda: None,
    over: Callable[[], bool] = lambda: False,
) -> str:
    """Wait until a run has ended, and return its status.

    Parameters
    ----------
    status : callable
        Asks Flower for the run's status, as ``running`` or ``finished:completed``.
    seconds : float
        That the run may take.
    sign : Path, optional
        A file that a run which ends well writes last: once it is written, Flower is asked at once.
    look : callable, optional
        Called at every look; what it raises ends the wait.
    over : callable, optional
        Another sign: Flower is asked at once where it returns True.

    Returns
    -------
    str
        Begins with ``finished``.

    Raises
    ------
    TimeoutError
        If the run takes longer.
    """
    began = asked = time.monotonic()
    before, signed = modified_ns(sign), False
    question: _Question | None = None
    while time.monotonic() - began < seconds:
        look()
        first = signed
        signed = modified_ns(sign) != before or over()
        pause = min(AGAIN_SECONDS, ASK_SECONDS) if signed else ASK_SECONDS
        if question is None and (signed > first or time.monotonic() - asked > pause):
            question = _Question(status)
        if question is not None and question.answered:
            answer = question.answer()
            if answer.startswith("finished"):
                look()  # rounds that ended since the last look
                return answer
            question, asked = None, time.monotonic()
        time.sleep(LOOK_SECONDS)
    raise TimeoutError(f"the run did not end in {seconds:g} s")


class _Question:
    """A question that a thread asks, so that looks go on meanwhile.

    The command that asks is ended with the federation's other processes, so that a wait that is
    given up leaves no process behind.
    """

    def __init__(self, status: Callable[[], str]) -> None:
        self._answers: list[str | Exception] = []
        Thread(target=self._ask, args=(status,), daemon=True).start()

    def _ask(self, status: Callable[[], str]) -> None:
        try:
            self._answers.append(status())
        except Exception as error:  # raised where the answer is wanted
            self._answers.append(error)

    @property
    def answered(self) -> bool:
        return bool(self._answers)

    def answer(self) -> str:
        (answer,) = self._answers
        if isinstance(answer, Exception):
            raise answer
        return answer


def modified_ns(path: Path | None) -> int:
    """Return when a file was last written, in nanoseconds; 0 where there is none."""
    try:
        return 0 if path is None else path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
