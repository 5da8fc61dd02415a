"""Keep repetitions of an audit as they end, so that the same command goes on with the rest."""

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from zerosum.client.files.durable_append import append_durably, replace_file
from zerosum.server.config import ConfigError

PARTIAL = ".partial"
"""After the name of the file that the whole audit is written to."""


class KeptRows:
    """Rows of the repetitions so far, a JSON line each after a line that says of which audit.

    Parameters
    ----------
    target : Path or None
        The file of the whole audit; None keeps nothing.
    audit : str
        Everything that the rows follow from. A file of another audit is replaced.

    Raises
    ------
    ConfigError
        If the file cannot be read or written.
    """

    def __init__(self, target: Path | None, audit: str) -> None:
        self.path = None if target is None else target.with_name(target.name + PARTIAL)
        self.rows: list[dict[str, Any]] = []
        if self.path is None:
            return
        whole = f"{version('zerosum')} {audit}"
        header = json.dumps({"audit": hashlib.sha256(whole.encode()).hexdigest()})
        try:
            first, *lines = _whole_lines(self.path) or [""]
            if first == header:
                self.rows = [json.loads(line) for line in lines]
            # Also where a crash tore the last line: what is appended has to begin a new one.
            replace_file(self.path, "".join(f"{x}\n" for x in (header, *self._written())).encode())
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self.path}: {error}; delete it") from None

    def add(self, row: Mapping[str, Any]) -> None:
        """Keep the row of the next repetition, flushed to the disk."""
        self.rows.append(dict(row))
        if self.path is not None:
            append_durably(self.path, self._written()[-1].encode() + b"\n")

    def forget(self) -> None:
        """Remove the file, once the whole audit is written."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def _written(self) -> list[str]:
        return [json.dumps(row) for row in self.rows]


def _whole_lines(path: Path) -> list[str]:
    """Return the lines of a file that end as lines do; none where it is absent."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    return data[: data.rfind(b"\n") + 1].decode().splitlines()
