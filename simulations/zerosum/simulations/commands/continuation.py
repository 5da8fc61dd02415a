"""Say what an ended run leaves, and the command that goes on with it."""

from collections.abc import Iterable
from pathlib import Path

from zerosum.server.runs.resume import completed_rounds
from zerosum.server.runs.run_folder import CONFIG, RunFolder
from zerosum.simulations.terminal.printable import shell_command
from zerosum.simulations.terminal.signals import typed


def run_left(
    path: Path, rounds: int, settings: Iterable[str] = (), experiment: str | None = None
) -> str:
    """Say what a simulated run left that was ended, and last how to go on.

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
        return f"Nothing was begun. Start again with:\n{typed()}"
    folder = RunFolder(path)
    kept = f"{completed_rounds(folder)} of {rounds} rounds are completed and kept in {path}"
    if folder.experiment.privacy.exact:
        return (
            f"{kept}, with what they spent. Their noise cannot be drawn again (privacy.exact), so "
            f"this run is not continued. Start another with:\n{typed(without='--out')}"
        )
    asked = [] if experiment is None else [experiment]
    given = [word for setting in settings for word in ("--set", setting)]
    return (
        f"{kept}{_reported(folder)}.\nContinue with:\n"
        f"{shell_command(['zerosum', 'run', *asked, '--resume', str(path), *given])}"
    )


def _reported(folder: RunFolder) -> str:
    """Draw the report of the rounds so far, which says of how many they are."""
    from zerosum.simulations.report import write_report

    if not folder.read_rounds():
        return ""
    try:
        return f"; report: {write_report(folder)}"
    except OSError as error:  # of the disk that was full before: the command is worth more
        return f"; no report: {error.strerror or error}"
