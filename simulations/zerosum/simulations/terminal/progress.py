"""Show progress: a bar with the time left on a terminal, a line now and then elsewhere."""

import re
import time

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.progress import Progress, ProgressColumn, Task
from rich.progress_bar import ProgressBar as RichBar
from rich.table import Column
from rich.text import Text

from zerosum.simulations.terminal.durations import StepTimes, left_in_words

LINES = 10
"""Lines printed in all, about, where there is no terminal."""

BAR_COLUMNS, BAR_PART = 24, 0.15
"""Of the bar: at most so many columns, and so much of the terminal."""

LONG_CHARACTERS = 30
"""Of words that may be cut, as a reason; of shorter ones a figure would be cut into another."""

CUT = "..."

_PARTS = re.compile(r"(?=  )|(?<=\))(?= )")
"""Between parts: two spaces, or the end of what stands in brackets."""


class _Words(ProgressColumn):
    """What is going on, in the room that the bar and the time leave: whole parts, no wrapping."""

    def __init__(self, bar: "ProgressBar") -> None:
        super().__init__(Column(no_wrap=True))
        self._bar = bar

    def render(self, task: Task) -> Text:
        """Return as many parts of the words as there is room for; no markup is read."""
        return Text(fitting(task.description, self._bar.room(task)))


class _Time(ProgressColumn):
    """The time that has passed, and the time that is left."""

    def __init__(self, bar: "ProgressBar") -> None:
        super().__init__(Column(no_wrap=True))
        self._bar = bar

    def render(self, task: Task) -> Text:
        """Return both where there is room."""
        return Text(self._bar.times(task), style="progress.remaining")


class _Bar(ProgressColumn):
    """A bar whose width goes with that of the terminal."""

    def __init__(self, bar: "ProgressBar") -> None:
        super().__init__(Column(no_wrap=True))
        self._bar = bar

    def render(self, task: Task) -> RichBar | Text:
        """Return rich's bar; without colours one of signs, of which rich draws no rest."""
        width = self._bar.bar_width
        if task.total is not None and not self._bar.coloured:
            done = int(width * min(1.0, task.completed / max(1, task.total)))
            return Text("#" * done + "-" * (width - done))
        return RichBar(task.total, task.completed, width, pulse=not task.started)


def fitting(text: str, room: int) -> str:
    """Return the parts of a text, which two spaces part, that fit into a number of columns.

    Parameters
    ----------
    text : str
        The first part is the most important.
    room : int
        Columns.

    Returns
    -------
    str
        Whole parts, so that no figure is cut into another one; a long one may be cut.
    """
    kept = ""
    for part in re.split(_PARTS, text):
        longer = kept + part
        if cell_len(longer) <= room:
            kept = longer
            continue
        cut = set_cell_size(longer, max(0, room - len(CUT))).rstrip() + CUT
        seen = len(cut) - len(kept)
        if not kept or (cell_len(part) > LONG_CHARACTERS and seen > LONG_CHARACTERS // 2):
            return cut[:room]
        break
    return kept


class ProgressBar:
    """Progress of a long command: a bar on a terminal, a line now and then elsewhere.

    Used as a context manager, which draws the bar.

    Parameters
    ----------
    total : int, optional
        Steps in all; None where they are not known yet.
    noun : str
        What a step is, for those that have no other words.
    console : Console, optional
        Where to; standard output where absent.
    done : int
        Steps that an earlier run has completed.
    guesses : bool
        Whether the time left follows from the steps; else it is what :meth:`show` is told alone.
    """

    def __init__(
        self,
        total: int | None,
        noun: str,
        console: Console | None = None,
        done: int = 0,
        guesses: bool = True,
    ) -> None:
        self._guesses = guesses
        self._total, self._noun, self._console = total, noun, console or Console()
        self._pace, self._told = StepTimes(), 0.0
        self._left: float | None = None
        columns = (_Bar(self), _Words(self), _Time(self))
        self._bar = Progress(*columns, console=self._console)
        self._task = self._bar.add_task("starting", total=total, completed=done)

    def __enter__(self) -> "ProgressBar":
        if self.drawn:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.drawn:
            self._bar.stop()

    @property
    def drawn(self) -> bool:
        """Return whether there is a terminal to draw the bar on, one that can move its cursor."""
        return self._console.is_terminal and not self._console.is_dumb_terminal

    @property
    def coloured(self) -> bool:
        """Return whether the terminal may show colours: NO_COLOR is not set."""
        return not self._console.no_color and self._console.color_system is not None

    @property
    def bar_width(self) -> int:
        """Return the columns of the bar."""
        return min(BAR_COLUMNS, int(self._console.width * BAR_PART))

    def room(self, task: Task) -> int:
        """Return the columns that are there for words, a space on either side of them."""
        return max(0, self._console.width - self.bar_width - len(self.times(task)) - 2)

    def times(self, task: Task) -> str:
        """Return the time passed and the time left; one of them where words need the room."""
        minutes, seconds = divmod(int(time.monotonic() - self._pace.began), 60)
        hours, minutes = divmod(minutes, 60)
        passed = f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
        if task.total is not None and task.completed >= task.total:
            return passed
        left = self._pace.seconds_left(task.total) if self._guesses else None
        if self._left is not None:  # told by whoever knows more
            left = max(0.0, self._left - (time.monotonic() - self._told))
        if left is None:
            return passed
        words = left_in_words(left)
        both = f"{passed}, {words}"
        taken = self.bar_width + cell_len(task.description) + len(both) + 2
        return both if taken <= self._console.width else words

    def step(self, done: int, text: str | None = None) -> None:
        """Say that a step is over: beside the bar; elsewhere on a line, for some of the steps.

        Parameters
        ----------
        done : int
            Number of steps that are over.
        text : str, optional
            What to say of the last one; its number where absent.
        """
        text = text or f"{self._noun} {done}/{self._total}"
        if self.drawn:
            self.show(text, done)
        elif self.due(done):
            self.line(text)

    def due(self, done: int) -> bool:
        """Return whether a step has a line of its own where no bar is drawn."""
        every = max(1, (self._total or 0) // LINES)
        return done in (1, self._total) or done % every == 0

    def show(
        self,
        text: str,
        done: int | None = None,
        total: int | None = None,
        left: float | None = None,
        own: bool = True,
    ) -> None:
        """Put words beside the bar, and move it; elsewhere nothing.

        Parameters
        ----------
        text : str
            What is going on: parts with two spaces between them, the first one always shown.
        done, total : int, optional
            Where the bar stands; unchanged where absent.
        left : float, optional
            Seconds left, where more is known of them than the steps so far.
        own : bool
            Whether this process did the step; of one that was kept nothing is learnt.
        """
        if left is not None:
            self._left, self._told = left, time.monotonic()
        if done is not None:
            self._pace.step(done, own)
        if self.drawn:
            self._bar.update(self._task, description=text, completed=done, total=total)

    def line(self, text: str) -> None:
        """Print a line, above the bar where one is drawn."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)
