"""The report of a run: one self-contained HTML page, made from the run folder alone."""

from pathlib import Path

from zerosum.server.runs.run_folder import REPORT, RunFolder
from zerosum.simulations.report.page import render
from zerosum.simulations.report.public import write_public_report
from zerosum.simulations.report.record import read_run

__all__ = ["write_public_report", "write_report"]


def write_report(folder: RunFolder | Path) -> Path:
    """Write ``report.html`` into a run folder, whole or not at all.

    Works on any run that has a configuration: finished, interrupted or still going. Nothing but
    the folder's files is read, so that it can be called again at any time.

    Parameters
    ----------
    folder : RunFolder or Path
        A run folder, or where one is.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    ConfigError
        If the path holds no run, or its configuration cannot be read.
    """
    if isinstance(folder, Path):
        folder = RunFolder.open(folder)
    # Bytes of file names that the locale has no letters for are letters in UTF-8 again.
    folder.write(REPORT, render(read_run(folder)).encode(errors="surrogateescape"))
    return folder.path / REPORT
