"""What the package logs, collected in a file."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zerosum.client.protocol.saturation_log import CutFilter


def log_to(name: str, path: Path) -> logging.Handler:
    """Send what a logger is given to a file and nowhere else; no file where there is nothing.

    Lines of several processes are appended whole. Of cuts by the range few lines are written.

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
    """Do so for a while, and put the logger back as it was.

    Parameters
    ----------
    name : str
        The logger.
    path : Path
        The file.

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
