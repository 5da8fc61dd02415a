"""Write so that a crash loses nothing: replace files whole, append lines, flush folders."""

import os
from contextlib import suppress
from pathlib import Path

from zerosum.client.files.operating_system import sync_folder


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that a crash leaves the old one or the new one, never a part.

    Parameters
    ----------
    path : Path
    data : bytes
        All that it shall hold.
    """
    temporary = path.with_name(path.name + ".new")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
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
