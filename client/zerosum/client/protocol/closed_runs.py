"""Keep the names of runs that are over at a node, and nothing else of them.

Deleting an expired record permits no replay. A session's digest binds its run, and a run's name is
in this file, synced, before its high-water mark and its lines are deleted. No session of a run in
here begins or goes on, so that of each (run, round, attempt) one session begins at most, now and
ever. What bounds all runs together (contributions, epsilon, the roster's version) is of no run and
never expires.

The file grows by 32 bytes a run: by no more in a day than sessions begin in one.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from zerosum.client.files.operating_system import sync_folder
from zerosum.client.files.private_files import open_private, read_private

NAME_BYTES = 32
"""SHA-256 of a run's id."""


class ClosedRuns:
    """Hashes of run ids in an append-only file.

    Parameters
    ----------
    path : Path
        Absent until a run is over.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def exists(self) -> bool:
        """Return whether any run is over."""
        return self._path.exists()

    def add(self, runs: Sequence[str]) -> int:
        """Append names, flushed to the disk, and return how many there are now.

        Parameters
        ----------
        runs : sequence of str
            SHA-256 of run ids, in hexadecimal digits.
        """
        with os.fdopen(open_private(self._path), "r+b") as file:
            # After the last whole name: one torn by a crash is of a run that still has its mark.
            file.seek(file.seek(0, os.SEEK_END) // NAME_BYTES * NAME_BYTES)
            file.write(b"".join(map(bytes.fromhex, runs)))
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
            count = file.tell() // NAME_BYTES
        sync_folder(self._path.parent)
        return count

    def holds(self, run: str, least: int) -> bool | None:
        """Return whether a run is over; None where fewer than ``least`` names are left.

        Parameters
        ----------
        run : str
            Name of the run.
        least : int
            How many were added: the counters say so, and a file that lost names may have lost this.

        Returns
        -------
        bool or None
            None where the file holds fewer than were added, or is damaged.
        """
        try:
            names = read_private(self._path)
        except FileNotFoundError:
            names = b""
        if len(names) // NAME_BYTES < least:
            return None
        name = bytes.fromhex(run)
        return any(name == names[at : at + NAME_BYTES] for at in range(0, len(names), NAME_BYTES))
