"""Write so that a crash loses nothing: replace files whole, append lines, flush folders."""

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from zerosum.client.files.operating_system import sync_folder


class Flush:
    """Flush of a file to the disk that goes on while other work is done.

    A disk waits for its own cache, and makes what is flushed at once durable together: two files
    take hardly longer than one.

    Parameters
    ----------
    file : file object, optional
        Written to, and closed when it is flushed. Without one there is nothing to wait for.
    """

    def __init__(self, file: BinaryIO | None = None) -> None:
        self._error: OSError | None = None
        self._thread: threading.Thread | None = None
        if file is not None:
            self._thread = threading.Thread(target=self._flush, args=(file,), name="flush")
            self._thread.start()

    def _flush(self, file: BinaryIO) -> None:
        try:
            with file:
                os.fsync(file.fileno())
        except OSError as error:
            self._error = error

    def wait(self) -> None:
        """Wait until the file is on the disk.

        Raises
        ------
        OSError
            If it could not be flushed; each time again.
        """
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error


FLUSHED = Flush()
"""What is on the disk already."""


def replace_file(path: Path, data: bytes, after: Flush = FLUSHED) -> None:
    """Write a file so that a crash leaves the old one or the new one, never a part.

    Parameters
    ----------
    path : Path
    data : bytes
        All that it shall hold.
    after : Flush
        Of another file, which is on the disk before the new one takes its place.
    """
    temporary = path.with_name(path.name + ".new")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        after.wait()
        temporary.replace(path)
    except OSError:  # on a full disk its part would keep others from being written
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def append_durably(path: Path, data: bytes) -> None:
    """Append to a file, flushed to the disk with the name of a file that is new.

    Parameters
    ----------
    path : Path
        Of the file, which may be new.
    data : bytes
        What is added.
    """
    created = not path.exists()
    with path.open("ab") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if created:
        sync_folder(path.parent)


def append_flushing(path: Path, data: bytes) -> Flush:
    """Append to a file as :func:`append_durably` does, and do not wait for the disk.

    Parameters
    ----------
    path : Path
        Of the file.
    data : bytes
        What is added; whoever reads the file finds it.

    Returns
    -------
    Flush
        To be waited for before anything that builds on what was added.
    """
    if not path.exists():  # its name has to be flushed, too
        append_durably(path, data)
        return FLUSHED
    file = path.open("ab")
    try:
        file.write(data)
        file.flush()
        return Flush(file)
    except BaseException:
        file.close()
        raise
