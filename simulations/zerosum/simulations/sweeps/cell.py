"""One cell of a sweep: the life of a child process.

A process for each: a crash, a leak or a changed global generator is the one cell's alone.
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path

from zerosum.client.files.file_lock import HeldError, held_alone
from zerosum.client.files.operating_system import KILL
from zerosum.client.files.private_files import OpenToOthersError
from zerosum.client.task import TaskError
from zerosum.client.training.threads import use_one_thread
from zerosum.server.config import ConfigError
from zerosum.server.runs.run_folder import CONFIG, LOCK
from zerosum.simulations import api
from zerosum.simulations.engine.processes import GRACE_SECONDS
from zerosum.simulations.sweeps.grid import Cell
from zerosum.simulations.sweeps.sweep_folder import SweepFolder
from zerosum.simulations.terminal.printable import printable
from zerosum.simulations.terminal.signals import FAILED, INTERRUPTED, Terminated, terminable
from zerosum.simulations.terminal.user_errors import USER_ERROR

_WAIT_SECONDS = 4 * GRACE_SECONDS


def run_cell(folder: SweepFolder, cell: Cell) -> None:
    """Run a cell, or go on with it from its last checkpoint.

    Parameters
    ----------
    folder : SweepFolder
        Of the sweep.
    cell : Cell
        One that is not over.

    Raises
    ------
    ConfigError, TaskError, NothingLearntError
        As :func:`zerosum.simulations.api.run`.
    """
    path = folder.run_path(cell)
    if path.is_dir():
        _wait_for(path)
    folder.clear_unusable(cell)
    if (path / CONFIG).is_file():
        api.resume(path)
    else:
        api.run(cell.experiment, out=path)


def _wait_for(path: Path) -> None:
    """Wait for a child of a sweep that was killed to end: it does so once it knows."""
    try:
        with held_alone(path / LOCK, longest=_WAIT_SECONDS):
            pass
    except (HeldError, OpenToOthersError) as error:
        raise ConfigError(f"{path}: the run still goes on in another process ({error})") from None


def main(path: str, index: str) -> int:
    """Run a cell of a sweep, as a process of its own.

    Parameters
    ----------
    path : str
        Folder of the sweep.
    index : str
        Number of the cell, from 0.

    Returns
    -------
    int
        The exit code.
    """
    threading.Thread(target=_follow_parent, daemon=True).start()
    use_one_thread()
    try:
        with terminable():
            folder = SweepFolder.open(Path(path))
            run_cell(folder, folder.cells[int(index)])
    except (ConfigError, TaskError, api.NothingLearntError) as error:
        sys.stderr.write(f"error: {printable(str(error))}\n")
        return FAILED if isinstance(error, api.NothingLearntError) else USER_ERROR
    except KeyboardInterrupt as ended:
        return ended.code if isinstance(ended, Terminated) else INTERRUPTED
    return 0


def _follow_parent() -> None:
    """End this process when its parent is gone: nobody holds the other end of its input then."""
    # Not sys.stdin, whose lock a thread would hold while the interpreter shuts down.
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)  # a task may be deaf to signals: nobody else can end it
    os.kill(os.getpid(), KILL)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
