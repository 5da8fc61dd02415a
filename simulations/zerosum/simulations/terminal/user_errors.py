"""Report a user's mistake in one line, with exit code 2."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from zerosum.client.files.durable_append import replace_file
from zerosum.server.config import ConfigError
from zerosum.server.runs.plain_json import dumps
from zerosum.simulations.terminal.printable import printable_lines

USER_ERROR = 2

NOTHING_LEARNT = 1
"""Exit code of a valid run in which no client's training entered the model."""


@contextmanager
def user_errors(*kinds: type[Exception], code: int = USER_ERROR) -> Iterator[None]:
    """Print an error of these kinds as one line and exit with a code, 2 unless it is given.

    Parameters
    ----------
    *kinds : type
        Exceptions whose messages are for users.
    code : int
        Exit code.

    Yields
    ------
    None
        While the command runs.

    Raises
    ------
    typer.Exit
        With the code, after the line was printed.
    """
    try:
        yield
    except kinds as error:
        message = printable_lines(f"error: {error}")
        Console(stderr=True).print(
            message, style="red", markup=False, highlight=False, soft_wrap=True
        )
        raise typer.Exit(code) from None


def number(value: float | None) -> float | None:
    """Refuse an option's value that is no number: NaN is within all bounds.

    Parameters
    ----------
    value : float or None
        The option's value.

    Returns
    -------
    float or None
        The same.

    Raises
    ------
    typer.BadParameter
        If it is.
    """
    if value is not None and math.isnan(value):
        raise typer.BadParameter("nan is no number")
    return value


def check_writable(path: Path, option: str = "--json") -> None:
    """Refuse a ``--json`` that cannot be written, before the work that it is for.

    Parameters
    ----------
    path : Path
        What ``--json`` named.
    option : str
        Another option that names a file.

    Raises
    ------
    ConfigError
        If nothing can be written there.
    """
    if not path.parent.is_dir():
        raise ConfigError(f"{option} {path}: there is no folder {path.parent}; create it first")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ConfigError(f"{option} {path}: no file can be written there; name another")


def write_json(path: Path, values: dict[str, Any] | list[dict[str, Any]]) -> None:
    """Write what ``--json`` asked for, whole or not at all.

    Parameters
    ----------
    path : Path
        What ``--json`` named: a file, pipe or terminal.
    values : dict or list of dict
        Figures that JSON can hold.

    Raises
    ------
    ConfigError
        If the file cannot be written.
    """
    data = (dumps(values, indent=2) + "\n").encode()
    try:
        if path.exists() and not path.is_file():  # a pipe or terminal has no other name
            path.write_bytes(data)
        else:
            replace_file(path.resolve(), data)
    except OSError as error:
        raise ConfigError(f"--json {path}: {error.strerror or error}") from None
