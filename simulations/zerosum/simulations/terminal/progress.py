"""Show progress: a bar on a terminal, a line now and then elsewhere."""

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

LINES = 10
"""Lines printed in all, about, where there is no terminal."""


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
    """

    def __init__(
        self, total: int | None, noun: str, console: Console | None = None, done: int = 0
    ) -> None:
        self._total, self._noun, self._console = total, noun, console or Console()
        # No markup: a line quotes errors of tasks, and "[/data]" in one would end the run.
        text = TextColumn("{task.description}", markup=False)
        self._bar = Progress(BarColumn(24), text, TimeElapsedColumn(), console=self._console)
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
        """Return whether there is a terminal to draw the bar on."""
        return self._console.is_terminal

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

    def show(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """Put words beside the bar, and move it; elsewhere nothing.

        Parameters
        ----------
        text : str
            What is going on.
        done, total : int, optional
            Where the bar stands; unchanged where absent.
        """
        if self.drawn:
            self._bar.update(self._task, description=text, completed=done, total=total)

    def line(self, text: str) -> None:
        """Print a line, above the bar where one is drawn."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)
