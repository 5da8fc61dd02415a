"""Collect a logger's lines in a file."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zerosum.client.protocol.saturation_log import CutFilter


def log_to(name: str, path: Path) -> logging.Handler:
    """Send a logger's lines to a file and nowhere else; without lines there is no file.

    Lines of several processes are appended whole. Lines about values that ``encoding.range`` cut
    come in thousands, and few of them are written.

    Parameters
    ----------
    name : str
        The logger.
    path : Path
        The file; it is made with the first line.

    Returns
    -------
    logging.Handler
        To be removed from the logger and closed.
    """
    logger = logging.getLogger(name)
    handler = logging.FileHandler(path, encoding="utf-8", errors="backslashreplace", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    handler.addFilter(CutFilter())
    logger.addHandler(handler)
    logger.propagate = False
    return handler


@contextmanager
def logged(name: str, path: Path) -> Iterator[None]:
    """Send a logger's lines to a file for a while, then restore the logger.

    Parameters
    ----------
    name : str
        The logger.
    path : Path

    Yields
    ------
    None
        While lines go to the file.
    """
    logger = logging.getLogger(name)
    propagate = logger.propagate
    handler = log_to(name, path)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
        handler.close()
