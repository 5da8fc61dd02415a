"""Keep what a long command has completed, so that it can go on after it was ended.

Audits, attacks and rehearsals follow three rules, so that parts of different work never meet in one
table. What was asked for (the request) is written before the first part is. Each part is written as
it ends, whole or not at all. Parts are taken up again only under the same request and version of
the package; once all are complete, they go.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from zerosum.client.files.durable_append import append_durably, replace_file
from zerosum.server.config import ConfigError

PARTIAL = ".partial"
"""After the name of the file that will hold the complete result."""

Request = TypeVar("Request")


def write_request(path: Path, request: Any) -> None:
    """Write what was asked for as JSON, whole or not at all.

    Parameters
    ----------
    path : Path
        The file, in a folder that exists.
    request : dataclass instance
        Its fields are what JSON holds.
    """
    replace_file(path, (json.dumps(asdict(request), indent=2) + "\n").encode())


def read_request(path: Path, kind: type[Request], *, absent: str, cure: str) -> Request:
    """Read what an earlier command was asked for.

    Parameters
    ----------
    path : Path
        The file that :func:`write_request` wrote.
    kind : type
        The request's dataclass.
    absent : str
        Message where there is no such file.
    cure : str
        What to do about a damaged one.

    Returns
    -------
    Request
        The request.

    Raises
    ------
    ConfigError
        If the file is absent, or does not hold such a request.
    """
    try:
        return kind(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise ConfigError(absent) from None
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"{path} is damaged ({error}); {cure}") from None


class PartialRows:
    """Rows of the parts so far: JSON lines after one that identifies the request.

    Parameters
    ----------
    target : Path or None
        The file of the complete result; None keeps rows in memory alone.
    request : str
        Everything that the rows follow from. A file of another request is replaced.

    Attributes
    ----------
    path : Path or None
        Where rows are kept, beside the target.
    rows : list of dict
        In the order in which parts ended.

    Raises
    ------
    ConfigError
        If the file cannot be read or written.
    """

    def __init__(self, target: Path | None, request: str) -> None:
        self.path = None if target is None else target.with_name(target.name + PARTIAL)
        self.rows: list[dict[str, Any]] = []
        if self.path is None:
            return
        identity = f"{version('zerosum')} {request}"
        header = json.dumps({"audit": hashlib.sha256(identity.encode()).hexdigest()})
        try:
            first, *lines = _whole_lines(self.path) or [""]
            if first == header:
                self.rows = [json.loads(line) for line in lines]
            # Written anew even where nothing changed: a crash may have torn the last line, and
            # what is appended after it has to begin a line of its own.
            written = (header, *map(json.dumps, self.rows))
            replace_file(self.path, "".join(f"{line}\n" for line in written).encode())
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self.path} cannot be used ({error}); delete it") from None

    def add(self, row: Mapping[str, Any]) -> None:
        """Keep the row of the part that ended, flushed to the disk."""
        self.rows.append(dict(row))
        if self.path is not None:
            append_durably(self.path, json.dumps(self.rows[-1]).encode() + b"\n")

    def remove(self) -> None:
        """Remove the file, once the complete result is written."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def _whole_lines(path: Path) -> list[str]:
    """Return the lines of a file that end as lines do; none where it is absent."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    return data[: data.rfind(b"\n") + 1].decode().splitlines()
