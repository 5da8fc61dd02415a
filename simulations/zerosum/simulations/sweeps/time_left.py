"""How long the rest of a sweep takes, from the rounds that are over."""

from collections.abc import Sequence
from dataclasses import dataclass, field

START_SECONDS = 8.0
"""Of a cell beside its rounds, until one is over: loading, planning, the report."""

DAY_SECONDS = 86_400.0


@dataclass
class Pace:
    """Work that is left, and what it took this process so far.

    Attributes
    ----------
    workers : int
        Cells at a time.
    cells_left, rounds_left : int
        Of all cells that are not over.
    running : sequence of float
        Seconds of each cell that runs, its rounds that are over left out.
    """

    workers: int
    cells_left: int
    rounds_left: int
    rounds_done: int = 0
    round_seconds: float = 0.0
    cells_done: int = 0
    start_seconds: float = 0.0
    running: Sequence[float] = field(default_factory=list)

    def round(self, seconds: float) -> None:
        """Count a round that took so long, in seconds."""
        self.rounds_left = max(0, self.rounds_left - 1)
        self.rounds_done += 1
        self.round_seconds += seconds

    def over(self, seconds: float, rounds: Sequence[float]) -> None:
        """Count a cell that ended.

        Parameters
        ----------
        seconds : float
            That its process took.
        rounds : sequence of float
            Seconds of each of its rounds.
        """
        self.cells_left -= 1
        self.cells_done += 1
        self.start_seconds += max(0.0, seconds - sum(rounds))

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the last cell is over; None before this process has done a round."""
        if not self.rounds_done:
            return None
        start = self.start_seconds / self.cells_done if self.cells_done else START_SECONDS
        a_round = self.round_seconds / self.rounds_done
        work = self.rounds_left * a_round + self.cells_left * start
        # What a cell has begun is done, up to a start and a round: one that takes longer says
        # nothing of those after it.
        begun = sum(min(seconds, start + a_round) for seconds in self.running)
        return max(0.0, work - begun) / max(1, min(self.workers, self.cells_left))
