"""Note how clients' training ended, and count outcomes in a simulation.

In a deployment a failure is as private as the records that caused it. A node's notes are read by
nobody there, and no message has a place for them.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from zerosum.client.task import error_line

LONGEST_ERROR_CHARACTERS = 200
"""An error is quoted in a round's line and in a table: its first line, up to here."""

ANSWER_FAILED = "its answer to round"
ZERO_SENT = "zero plus noise is sent instead"
EMPTY_SAMPLE = "an empty sample is taken instead"
NOISE_ALONE = "this client sends noise alone"

FAILED_AT_HOME = (ANSWER_FAILED, ZERO_SENT, EMPTY_SAMPLE, NOISE_ALONE)
"""What lines of a node's own log hold, one of these each, where a client's answer holds nothing of
its records for an error: its operator counts by them, and so does a rehearsal."""


NOT_FINITE_CURE = (
    "look for NaN in the data and for logarithms or divisions by zero in loss(), "
    "or lower training.lr"
)
"""What to do where a step, a gradient or an update is NaN or infinite. It goes to the client's own
log, and in a simulation to its owner: short enough that the line is quoted whole."""


class Notes:
    """Notes on one client's answer at a time.

    A trainer notes failures that it passes over, as of single examples under DP-SGD, and the
    envelope those that become zero and noise.

    Attributes
    ----------
    error : str or None
        The first error, as :func:`zerosum.client.task.error_line` quotes it.
    learnt : bool
        Whether anything of the client's records is in its answer.
    examples_failed : int
        Examples of which none of their gradient was used.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget the client before."""
        self.error: str | None = None
        self.learnt = False
        self.examples_failed = 0

    @property
    def plain(self) -> bool:
        """Return whether there is nothing to tell but that the client has learnt."""
        return self.learnt and self.error is None and not self.examples_failed

    def fail(self, error: BaseException | str) -> None:
        """Note an error; of several the first is kept."""
        if self.error is None:
            self.error = quoted(error)

    def spoil(self, error: BaseException | str) -> None:
        """Note that the answer cannot be used, as one with NaN in it: zero takes its place."""
        self.learnt = False
        self.fail(error)


@dataclass(frozen=True)
class OutcomeCounts:
    """Counts of clients by the outcome of their training.

    Attributes
    ----------
    trained : int
        Clients whose answer holds something of their records.
    failed : int
        Clients with nothing in the sum but zero and noise, or who dropped out, for an error.
    idle : int
        Clients without error whose answer is zero: without records, or without a gradient.
    examples_failed : int
        Single examples left out for an error of their own, under DP-SGD.
    first : tuple of int and str, or None
        The failed client of the lowest index, and its error. Under DP-SGD a client that lost
        examples counts too. Lowest, and not first in time: that depends on the workers.
    """

    trained: int = 0
    failed: int = 0
    idle: int = 0
    examples_failed: int = 0
    first: tuple[int, str] | None = None

    @classmethod
    def of(cls, client: int, notes: Notes) -> Self:
        """Count one client.

        Parameters
        ----------
        client : int
            Its index.
        notes : Notes
            What was noted of its answer.

        Returns
        -------
        OutcomeCounts
            Of this client alone.
        """
        failed = notes.error is not None and not notes.learnt
        return cls(
            trained=int(notes.learnt),
            failed=int(failed),
            idle=int(not notes.learnt and not failed),
            examples_failed=notes.examples_failed,
            first=None if notes.error is None else (client, notes.error),
        )

    @classmethod
    def lost(cls, client: int, error: str) -> Self:
        """Count a client whose worker process ended before it answered.

        Parameters
        ----------
        client : int
            Its index.
        error : str
            Why the process ended.

        Returns
        -------
        OutcomeCounts
            Of this client alone.
        """
        return cls(failed=1, first=(client, quoted(error)))

    def __add__(self, other: "OutcomeCounts") -> "OutcomeCounts":
        """Count the clients of both."""
        firsts = [counts.first for counts in (self, other) if counts.first is not None]
        return OutcomeCounts(
            self.trained + other.trained,
            self.failed + other.failed,
            self.idle + other.idle,
            self.examples_failed + other.examples_failed,
            min(firsts, default=None),
        )


def quoted(error: BaseException | str) -> str:
    """Return an error in one short printable line."""
    line = error if isinstance(error, str) else error_line(error)
    line = "".join(c if c.isprintable() else " " for c in line)
    longest = LONGEST_ERROR_CHARACTERS
    return line if len(line) <= longest else line[: longest - 1] + "…"


def holds_anything(update: object, *, weighted: bool) -> bool:
    """Test whether an update is anything but zero, its weight aside.

    Parameters
    ----------
    update : object
        Whatever a task answered; an array of shape (d,), or (d + 1,) with a weight behind it.
    weighted : bool
        Whether the last entry is the client's weight.

    Returns
    -------
    bool
        True for what is no vector, too: it is refused later, with its reason.
    """
    if not isinstance(update, np.ndarray) or update.ndim != 1:
        return True
    entries = update[:-1] if weighted else update
    # A bias at the end mostly tells: numpy looks at all entries, however early one is not zero.
    return bool(entries.size and (entries.item(-1) or entries.any()))
