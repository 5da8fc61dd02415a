"""Make foreign text safe for a terminal or a line of a file."""

import shlex
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def printable(text: str) -> str:
    """Return text as one line; control and bidirectional characters become escapes."""
    return "".join(map(_seen, text)).strip()


def printable_lines(text: str) -> str:
    """Return text as :func:`printable` does, but keep its line ends."""
    return "\n".join("".join(map(_seen, line)) for line in text.splitlines())


def whole_words(text: str, console: "Console") -> str:
    """Break lines between words on a terminal, which itself would break within a path.

    Parameters
    ----------
    text : str
        Lines. One that follows a colon at a line's end is a command, and stays one line.
    console : Console
        Where it is printed, with ``soft_wrap``; nothing is broken in a file or pipe.

    Returns
    -------
    str
        A word that is longer than a line has one of its own.
    """
    if not console.is_terminal:
        return text
    lines: list[str] = []
    command = False
    for line in text.split("\n"):
        broken = textwrap.wrap(line, console.width, break_long_words=False, break_on_hyphens=False)
        lines += [line] if command or not broken else broken
        command = line.endswith(":")
    return "\n".join(lines)


def shell_command(words: Iterable[str]) -> str:
    """Return words as one line that a shell reads back to them, bytes that show nothing included.

    Between single quotes a shell takes every character for itself, and so a newline of a folder's
    name would end the line, and an escape seen in place of a character would be another name.
    Words with such characters are written as ``$'...'``, which bash, zsh and ksh read (POSIX 2024).
    """
    return " ".join(
        shlex.quote(word) if word.isprintable() else f"$'{''.join(map(_escaped, word))}'"
        for word in words
    )


def _escaped(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable():
        return character
    # Octal: three digits at most in every shell, where hexadecimal ones go on in some.
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogateescape"))


def _seen(character: str) -> str:
    if character.isspace():
        return " "
    return character if character.isprintable() else ascii(character)[1:-1]
