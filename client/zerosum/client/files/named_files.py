"""Find the files that one path, a pattern or a list of either names."""

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from zerosum.client.files.operating_system import named_path


def named_files(path: str | Sequence[str]) -> tuple[Path, ...]:
    """Return the paths that a configuration names, in order.

    A name that leads somewhere is that path, whatever it is made of: files may be called
    ``a[1].csv``. Any other with ``*``, ``?`` or ``[`` is a pattern; its files come in the order of
    their names, on every machine.

    Parameters
    ----------
    path : str or sequence of str
        One name or pattern, or several.

    Returns
    -------
    tuple of Path
        What is named, whether it is there or not; nothing of a pattern that nothing fits.

    Raises
    ------
    OSError, ValueError, TypeError, RuntimeError
        If a text names no path at all.
    """
    if not isinstance(path, str):
        return tuple(file for name in path for file in named_files(name))
    whole = named_path(path)
    if not glob.has_magic(path) or os.path.lexists(whole):
        return (whole,)
    return tuple(Path(name) for name in sorted(glob.glob(str(whole))))
