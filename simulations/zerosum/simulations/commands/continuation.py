"""Describe what an ended run keeps, and the command that continues it."""

from collections.abc import Iterable
from pathlib import Path

from zerosum.server.runs.resume import completed_rounds
from zerosum.server.runs.run_folder import CONFIG, RunFolder
from zerosum.simulations.terminal.signals import continue_with, start_again


def run_left(
    path: Path, rounds: int, settings: Iterable[str] = (), experiment: str | None = None
) -> str:
    """Describe what an ended simulation keeps, and last how to continue it.

    Parameters
    ----------
    path : Path
        Its folder, if it got so far as to make one.
    rounds : int
        That were asked for.
    settings : iterable of str
        What a resumed run was given: its folder has that only once it goes on.
    experiment : str, optional
        The experiment that it was given, which may have more rounds than its folder.

    Returns
    -------
    str
        Lines; the last one is a command.
    """
    if not (path / CONFIG).is_file():
        return start_again("Nothing was begun.")
    folder = RunFolder(path)
    completed = f"{completed_rounds(folder)} of {rounds} rounds are completed and kept in {path}"
    if folder.experiment.privacy.exact:
        return start_again(
            f"{completed}, with what they spent. This run cannot be continued: its noise cannot be "
            "drawn again (privacy.exact).",
            without="--out",
        )
    asked = [] if experiment is None else [experiment]
    given = [word for setting in settings for word in ("--set", setting)]
    command = ["zerosum", "run", *asked, "--resume", str(path), *given]
    return continue_with(f"{completed}{_reported(folder)}.", command)


def _reported(folder: RunFolder) -> str:
    """Draw the report of the rounds so far, which says of how many they are."""
    from zerosum.simulations.report import write_report

    if not folder.read_rounds():
        return ""
    try:
        return f"; report: {write_report(folder)}"
    except OSError as error:  # of the disk that was full before: the command is worth more
        return f"; no report: {error.strerror or error}"
