"""Make files and folders that their owner alone can reach, whatever the umask.

A node's record of decisions and its keys are worth as much as nobody else can read, change or hold
them. What is made here has its mode set on the open file, for a umask only takes bits away; what
is found here is checked on the open file too, and refused if others can reach it, as ssh refuses a
key: to narrow it silently would hide that it stood open.

Symbolic links are not followed in the last place of a path. Whoever may write to the folder
*above* can put another in the place of what is checked: that folder must be the owner's as well, or
sticky, as /tmp is.
"""

import errno
import os
import stat
from pathlib import Path

from zerosum.client.files.operating_system import NOT_DEPLOYABLE, sync_folder

_OTHERS = 0o077
"""Bits that let anybody but the owner read, write or enter."""

_NO_LINKS = sum(
    getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK", "O_BINARY")
)
"""Never through a link, never handed to a child, no waiting at a pipe, and bytes as they are."""


class OpenToOthersError(Exception):
    """Others than its owner can reach a file or folder; the message says what mends it."""


def private_folder(path: Path) -> None:
    """Make a folder of mode 0700, with the folders above it that are missing, or check one.

    Parameters
    ----------
    path : Path

    Raises
    ------
    OpenToOthersError
        If it is there and a link, no folder, another user's, or open to others.
    """
    _check_system()
    for each in [folder for folder in reversed(path.parents) if not folder.exists()] + [path]:
        try:
            os.mkdir(each, 0o700)
        except FileExistsError:
            continue
        os.chmod(each, 0o700)  # a umask may have taken bits of the owner's own
    found = os.lstat(path)
    if not stat.S_ISLNK(found.st_mode) and not stat.S_ISDIR(found.st_mode):
        raise OpenToOthersError(f"{path} is no folder: name one, or a path that is free")
    _check(path, found, "700")


def open_private(path: Path) -> int:
    """Open a file of mode 0600 to read and write, made if it is absent; return its descriptor.

    Raises
    ------
    OpenToOthersError
        If it is there and a link, no regular file, another user's, or open to others.
    """
    try:
        return _made(path)
    except FileExistsError:
        return _opened(path, os.O_RDWR)


def read_private(path: Path) -> bytes:
    """Return the bytes of a file that its owner alone can reach.

    Raises
    ------
    OpenToOthersError
        As :func:`open_private`.
    OSError
        If it cannot be read.
    """
    with os.fdopen(_opened(path, os.O_RDONLY), "rb") as file:
        return file.read()


def open_regular(path: Path) -> int:
    """Open a regular file that others may read, through links if need be.

    Anything else may hold a node for ever: to open a pipe waits for whoever writes to it, and some
    devices have no end.

    Parameters
    ----------
    path : Path

    Returns
    -------
    int
        An open file descriptor, for the caller to close.

    Raises
    ------
    OSError
        If it cannot be opened, or is something else.
    """
    descriptor = os.open(path, os.O_RDONLY | (_NO_LINKS & ~getattr(os, "O_NOFOLLOW", 0)))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return descriptor


def write_private(path: Path, data: bytes) -> None:
    """Write a new file of mode 0600, and flush it and its folder to the disk.

    Parameters
    ----------
    path : Path
    data : bytes
        All that it shall hold.

    Raises
    ------
    FileExistsError
        If there is one.
    """
    with os.fdopen(_made(path), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)


def replace_private(path: Path, data: bytes) -> None:
    """Write a file of mode 0600 so that a crash leaves the old one or the new one.

    Parameters
    ----------
    path : Path
    data : bytes
        All that it shall hold.
    """
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)  # of a process that was killed
    write_private(temporary, data)
    temporary.replace(path)
    sync_folder(path.parent)


def _check_system() -> None:
    """Refuse where files have neither owner nor mode: everybody could reach them."""
    if NOT_DEPLOYABLE is not None:
        raise OpenToOthersError(NOT_DEPLOYABLE)


def _made(path: Path) -> int:
    _check_system()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_LINKS, 0o600)
    os.fchmod(descriptor, 0o600)
    return descriptor


def _opened(path: Path, access: int) -> int:
    _check_system()
    try:
        descriptor = os.open(path, access | _NO_LINKS)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise _link(path) from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OpenToOthersError(f"{path} is no regular file: name one, or a path that is free")
        _check(path, found, "600")
    except OpenToOthersError:
        os.close(descriptor)
        raise
    return descriptor


def _check(path: Path, found: os.stat_result, wanted: str) -> None:
    """Refuse what is a link, another user's, or open to others."""
    if stat.S_ISLNK(found.st_mode):
        raise _link(path)
    if found.st_uid != os.geteuid():
        raise OpenToOthersError(
            f"{path} belongs to user {found.st_uid}, and this process is user {os.geteuid()}: run "
            f"it as that user, or chown {os.geteuid()} {path}"
        )
    if found.st_mode & _OTHERS:
        raise OpenToOthersError(
            f"{path} is open to others than its owner (mode {stat.S_IMODE(found.st_mode):04o}): "
            f"make sure that nobody read or changed it, then chmod {wanted} {path}"
        )


def _link(path: Path) -> OpenToOthersError:
    return OpenToOthersError(f"{path} is a symbolic link: name what it points to itself")
