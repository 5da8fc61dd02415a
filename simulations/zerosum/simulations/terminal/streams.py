"""Make standard output and error accept any text, whatever the locale."""

import codecs
import io
import sys

_ANY = "zerosum.any"


def _encoded(error: UnicodeError) -> tuple[str | bytes, int]:
    """Give bytes of a file's name back as they were, and other letters as escapes."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    part = error.object[error.start : error.end]
    data = b"".join(
        bytes([ord(letter) - 0xDC00])
        if "\udc80" <= letter <= "\udcff"
        else letter.encode("ascii", "backslashreplace")
        for letter in part
    )
    return data, error.end


def take_any_text() -> None:
    """Escape text that the streams cannot encode: a letter of a report must not end a command."""
    codecs.register_error(_ANY, _encoded)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ANY)
