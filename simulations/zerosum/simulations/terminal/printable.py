"""Make foreign text safe for a terminal or a line of a file."""

import shlex
from collections.abc import Iterable


def printable(text: str) -> str:
    """Return text as one line; control and bidirectional characters become escapes."""
    return "".join(map(_seen, text)).strip()


def printable_lines(text: str) -> str:
    """Return text as :func:`printable` does, but keep its line ends."""
    return "\n".join("".join(map(_seen, line)) for line in text.splitlines())


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
