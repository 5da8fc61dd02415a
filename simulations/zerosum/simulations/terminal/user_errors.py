"""Report a user's mistake in one line, with exit code 2."""

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Annotated, Any, TextIO

import click
import typer
from rich.console import Console

from zerosum.client.files.durable_append import replace_file
from zerosum.server.config import ConfigError
from zerosum.server.runs.plain_json import dumps
from zerosum.simulations.terminal.printable import printable_lines

USER_ERROR = 2

STANDARD_OUTPUT = "-"
"""In place of a file's name."""

JsonFile = Annotated[
    Path | None, typer.Option("--json", help="Write figures here; - is standard output.")
]
"""The option of every command that has figures."""

_JSON_STREAM = "zerosum.json"
"""Key of the stream that JSON alone is written to, in the context of a command."""

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


def is_standard_output(path: Path) -> bool:
    """Return whether ``--json`` asks for standard output."""
    return str(path) == STANDARD_OUTPUT


def _leave_standard_output_to_json() -> None:
    """Send all other words of the command to standard error, so that a pipe reads JSON alone."""
    context = click.get_current_context(silent=True)
    if context is not None and _JSON_STREAM not in context.meta:
        context.meta[_JSON_STREAM] = sys.stdout
        context.with_resource(redirect_stdout(sys.stderr))


def check_writable(path: Path, option: str = "--json") -> None:
    """Refuse a ``--json`` that cannot be written, before the work that it is for.

    From then on what a command with ``--json -`` prints goes to standard error.

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
    if is_standard_output(path):
        if option != "--json":
            raise ConfigError(f"{option} -: name a file; --json alone takes - for standard output")
        _leave_standard_output_to_json()
        return
    if not path.parent.is_dir():
        raise ConfigError(f"{option} {path}: there is no folder {path.parent}; create it first")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ConfigError(f"{option} {path}: no file can be written there; name another")


def write_json(path: Path, values: dict[str, Any] | list[dict[str, Any]]) -> None:
    """Write what ``--json`` asked for, whole or not at all.

    Parameters
    ----------
    path : Path
        What ``--json`` named: a file, pipe or terminal, or ``-`` for standard output.
    values : dict or list of dict
        Figures that JSON can hold.

    Raises
    ------
    ConfigError
        If the file cannot be written.
    """
    data = (dumps(values, indent=2) + "\n").encode()
    try:
        if is_standard_output(path):
            _print_bytes(data)
        elif path.exists() and not path.is_file():  # a pipe or terminal has no other name
            path.write_bytes(data)
        else:
            replace_file(path.resolve(), data)
    except OSError as error:
        raise ConfigError(f"--json {path}: {error.strerror or error}") from None


def _print_bytes(data: bytes) -> None:
    """Write to standard output, in UTF-8 in any locale: JSON knows no other escapes."""
    context = click.get_current_context(silent=True)
    kept: TextIO | None = None if context is None else context.meta.get(_JSON_STREAM)
    stream = kept or sys.stdout
    stream.flush()
    if binary := getattr(stream, "buffer", None):
        binary.write(data)
        binary.flush()
    else:
        stream.write(data.decode())
