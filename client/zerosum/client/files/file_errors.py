"""Say why a file or folder cannot be used, where the system's own words name another cause."""

from pathlib import Path


def reason(path: Path, error: Exception) -> str:
    """Return why a path cannot be used, in a few words.

    To make a folder where a link leads nowhere fails with "File exists": of a folder that nobody
    sees.

    Parameters
    ----------
    path : Path
        What was to be read or written.
    error : Exception
        Raised over it: an OSError, or a ValueError of a path that holds NUL.

    Returns
    -------
    str
        Without the path, unless it is a link above it that is wrong.
    """
    if isinstance(error, FileExistsError):
        for each in (path, *path.parents):
            if each.is_symlink() and not each.exists():
                which = "it" if each == path else str(each)
                return f"{which} is a symbolic link that leads nowhere"
    return str(getattr(error, "strerror", None) or error)
