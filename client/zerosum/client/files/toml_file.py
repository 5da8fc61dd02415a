"""Read TOML files, and say in the same words what is wrong with one, whichever it is."""

import tomllib
from pathlib import Path
from typing import Any

_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class TomlError(ValueError):
    """A TOML file cannot be read; the message is one line that begins with its name."""


def read_toml(path: str | Path, kind: str = "") -> dict[str, Any]:
    """Read the tables of a TOML file, with a byte order mark or without one.

    Parameters
    ----------
    path : str or Path
        Of the file.
    kind : str
        What messages call it, before its path: "experiment file".

    Returns
    -------
    dict
        Its tables.

    Raises
    ------
    TomlError
        If it is missing, cannot be read, is not UTF-8 or not TOML.
    """
    name = f"{kind} {path}" if kind else str(path)
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise TomlError(f"{name} does not exist: check the path") from None
    except OSError as error:
        raise TomlError(
            f"{name} cannot be read: {error.strerror or error}; give a TOML file"
        ) from None
    except ValueError as error:  # a path with NUL
        raise TomlError(f"{name!r} is no path: {error}") from None
    return parse_toml(data, name)


def parse_toml(data: bytes, name: str) -> dict[str, Any]:
    """Read the tables of a TOML document.

    Parameters
    ----------
    data : bytes
        All of the document, as an editor saved it.
    name : str
        Of the document, for messages.

    Returns
    -------
    dict
        Its tables.

    Raises
    ------
    TomlError
        If it is not UTF-8 or not TOML.
    """
    # UTF-16 without a mark decodes as UTF-8 where it is ASCII; its zeros tell, which TOML forbids.
    if data.startswith(_UTF16_MARKS) or b"\0" in data[:2]:
        raise TomlError(f"{name} cannot be read: it is UTF-16; save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TomlError(
            f"{name} cannot be read: byte 0x{data[error.start]:02x} in line {line} is no UTF-8; "
            "save it as UTF-8"
        ) from None
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise TomlError(f"{name} is not valid TOML: it is nested too deeply") from None
    except ValueError as error:  # tomllib's own, and that of integers of too many digits
        raise TomlError(f"{name} is not valid TOML: {error}") from None
