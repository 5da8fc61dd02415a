"""End a command in order on signals and failures, and say what it keeps."""

import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

import click
import typer
from rich.console import Console

from zerosum.client.files.operating_system import KILL
from zerosum.client.task import TaskError, error_line
from zerosum.server.config import ConfigError
from zerosum.server.runs.run_outcome import NothingLearntError
from zerosum.simulations.terminal.printable import printable_lines, shell_command, whole_words

INTERRUPTED = 128 + signal.SIGINT
"""Exit code after ctrl-C, as shells give it."""

FAILED = 1
"""Exit code of a command that failed through no fault of its user."""

# Windows has no SIGHUP.
_ENDINGS = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]


def exit_in_words(code: int) -> str:
    """Return how a process ended, from its exit code: negative, the signal that ended it."""
    if code == -KILL:
        return "was killed (out of memory?)"
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP arrived; it ends the command as ctrl-C does.

    Attributes
    ----------
    code : int
        With which the command exits.
    """

    def __init__(self, number: int = signal.SIGTERM) -> None:
        super().__init__()
        self.code = 128 + number


@contextmanager
def terminable() -> Iterator[None]:
    """Raise :class:`Terminated` on SIGTERM and SIGHUP; no effect outside the main thread.

    A hangup that is ignored stays ignored: ``nohup`` was asked for.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: object) -> None:
        raise Terminated(number)

    before = {
        sign: signal.signal(sign, leave)
        for sign in _ENDINGS
        if sign == signal.SIGTERM or signal.getsignal(sign) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler or signal.SIG_DFL)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore ctrl-C, SIGTERM and SIGHUP while a command cleans up.

    An impatient user presses ctrl-C twice; the second one would leave processes behind.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signs = (signal.SIGINT, *_ENDINGS)
    before = {sign: signal.signal(sign, signal.SIG_IGN) for sign in signs}
    try:
        yield
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler or signal.SIG_DFL)


def typed(*, without: str | None = None) -> str:
    """Return the command as it was typed.

    Parameters
    ----------
    without : str, optional
        An option that is left out with its value: ``--out`` of a folder that is taken now.
    """
    words = iter(sys.argv[1:])
    command = ["zerosum"]
    for word in words:
        if word == without:
            next(words, None)
        elif without is None or not word.startswith(f"{without}="):
            command.append(word)
    return shell_command(command)


def start_again(what: str, *, without: str | None = None) -> str:
    """Return what an ended command left, and the command that does all of it once more.

    Parameters
    ----------
    what : str
        One or two sentences.
    without : str, optional
        As for :func:`typed`.

    Returns
    -------
    str
        Its last line is the command.
    """
    return f"{what}\nStart again with:\n{typed(without=without)}"


def continue_with(what: str, command: Iterable[str] | None = None) -> str:
    """Return what an ended command left, and the command that goes on from there.

    Parameters
    ----------
    what : str
        One or two sentences.
    command : iterable of str, optional
        Its words; those that were typed where absent.

    Returns
    -------
    str
        Its last line is the command.
    """
    return f"{what}\nContinue with:\n{typed() if command is None else shell_command(command)}"


_PASSING = (
    ConfigError,
    TaskError,
    NothingLearntError,
    click.exceptions.Exit,
    click.ClickException,
)


@contextmanager
def interruptible(
    left: Callable[[], str], failures: tuple[type[Exception], ...] | None = None
) -> Iterator[None]:
    """End a command on ctrl-C, SIGTERM or SIGHUP with a line, and with 130, 143 or 129.

    Parameters
    ----------
    left : callable
        Returns the message: what is kept, and last the command that continues.
    failures : tuple of exception types, optional
        Where given, errors and closed output pipes end the command in the same way, with 1. These
        types have messages for users; a full disk or memory costs one line; any other error prints
        its traceback first. Users' mistakes and :class:`NothingLearntError` pass through.

    Yields
    ------
    None
        While the command runs.

    Raises
    ------
    typer.Exit
        With the code, after the line was printed.
    """
    with terminable():
        try:
            yield
        except KeyboardInterrupt as ended:
            _say(f"\nInterrupted. {_words(left)}")
            code = ended.code if isinstance(ended, Terminated) else INTERRUPTED
            raise typer.Exit(code) from None
        except SystemExit as ended:
            # rich leaves by it, without a word, where whoever read the output is gone.
            if failures is None or not isinstance(ended.__context__, BrokenPipeError):
                raise
            _say(f"\nNobody reads the output any more. {_words(left)}")
            raise typer.Exit(FAILED) from None
        except _PASSING:
            raise
        except Exception as error:
            if failures is None:
                raise
            if not isinstance(error, (OSError, MemoryError, *failures)):
                traceback.print_exc()
            message = str(error) if isinstance(error, failures) else error_line(error)
            _say(f"error: {message}\n{_words(left)}")
            raise typer.Exit(FAILED) from None


def _words(left: Callable[[], str]) -> str:
    """Return what is left; where not even that can be read, why."""
    with undisturbed():
        try:
            return left()
        except Exception as error:  # of a disk that is full or gone, as one
            return f"What is kept cannot be read: {error_line(error)}"


def _say(text: str) -> None:
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    with suppress(OSError):  # the terminal hung up
        console.print(whole_words(printable_lines(text), console))
