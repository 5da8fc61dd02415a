"""Read and write a run folder, so that a crash never leaves half of a file."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from zerosum.client.files.durable_append import (
    FLUSHED,
    Flush,
    append_durably,
    append_flushing,
    replace_file,
)
from zerosum.client.files.file_errors import reason
from zerosum.client.files.operating_system import named_path
from zerosum.server.config import ConfigError, parse_experiment, read_toml, to_toml
from zerosum.server.runs.plain_json import dumps, numbers
from zerosum.server.runs.records import RoundRecord, Summary, read_rounds, read_summary
from zerosum.server.spec import Experiment

RUNS = Path("runs")
"""Where a folder is made that nobody named."""

CONFIG = "config.toml"
METRICS = "metrics.jsonl"
LEDGER = "ledger.jsonl"
SUMMARY = "summary.json"
MODEL = "model.safetensors"
TEST_SET = "test-set.json"
"""What the final model confuses on public test data, and its calibration."""
BEST = "best.safetensors"
"""The model of the round that ``evaluation.best`` puts first."""
TABLE = "metrics.csv"
REPORT = "report.html"
CHECKPOINT = "checkpoint"
PUBLISH = (
    "epsilon_release is for outsiders who see no counts of clients: publish what zerosum report "
    "RUN --public OUT writes, not the run folder or this log"
)
"""Remark in a server's log beside epsilon_release: the same log shows counts of clients."""
DATA = f"{CHECKPOINT}/data.sha256"
CLIENT_LOG = "clients.log"
SERVER_LOG = "server.log"
LOCK = ".lock"
REHEARSAL = "rehearsal"
"""Folder of what a rehearsal's SuperLink and nodes keep beside the run."""

_CURE = "restore the file, or start a new run"
_CONFIG_HEADER = "# Resolved configuration of this run. docs/configuration.md explains every key.\n"


class RunFolder:
    """A folder that belongs to one run.

    Parameters
    ----------
    path : Path
        Made by :meth:`create`, or found by :meth:`open`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # How far appended files were read, and the hash up to there.
        self._hashed: dict[str, tuple[int, hashlib._Hash]] = {}

    @classmethod
    def create(cls, path: Path, experiment: Experiment) -> "RunFolder":
        """Make a new run folder.

        Parameters
        ----------
        path : Path
            New, or empty.
        experiment : Experiment
            Written as ``config.toml``.

        Returns
        -------
        RunFolder
            With its configuration.

        Raises
        ------
        ConfigError
            If the path is a file or a folder that is not empty.
        """
        check_unused(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            folder = cls(path)
            folder.write_config(experiment)
        except (OSError, ValueError) as error:
            raise ConfigError(f"--out {path} cannot be written: {reason(path, error)}") from None
        return folder

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Find an earlier run.

        Parameters
        ----------
        path : Path
            With a ``config.toml``.

        Returns
        -------
        RunFolder
            Of the earlier run.

        Raises
        ------
        ConfigError
            If the path holds no run.
        """
        if not (path / CONFIG).is_file():
            raise ConfigError(f"{path} holds no run (no {CONFIG}): give the folder of one")
        return cls(path)

    @property
    def experiment(self) -> Experiment:
        """The experiment that this run was started with."""
        return parse_experiment(read_toml(self.path / CONFIG))

    def write_config(self, experiment: Experiment) -> None:
        """Write the configuration, as first started or with more rounds."""
        self.write(CONFIG, (_CONFIG_HEADER + to_toml(experiment)).encode())

    def write(self, name: str, data: bytes, after: Flush = FLUSHED) -> None:
        """Write a file whole or not at all.

        Parameters
        ----------
        name : str
            Of the file, in the folder.
        data : bytes
            All of it.
        after : Flush
            Of another file, which is on the disk before this one is seen.
        """
        target = self.path / name
        target.parent.mkdir(exist_ok=True)
        self._hashed.pop(name, None)
        replace_file(target, data, after)

    def write_json(self, name: str, value: Mapping[str, Any], indent: int | None = 2) -> None:
        """Write a JSON file whole or not at all.

        Parameters
        ----------
        name : str
            Of the file, in the folder.
        value : mapping
            NaN and infinity are written as words.
        indent : int, optional
            Spaces of a level; None for one line, which a matrix of thousands of numbers takes.
        """
        self.write(name, (dumps(value, indent=indent) + "\n").encode())

    def read_json(self, name: str) -> dict[str, Any]:
        """Read a JSON object; an empty one where there is no file.

        Parameters
        ----------
        name : str
            Of the file, in the folder.

        Returns
        -------
        dict
            Words for NaN and infinity are numbers again.

        Raises
        ------
        ConfigError
            If it is damaged.
        """
        return numbers(self._object(name))

    def _object(self, name: str) -> dict[str, Any]:
        path = self.path / name
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"{path} is damaged ({error}); {_CURE}") from None
        if not isinstance(document, dict):
            raise ConfigError(f"{path} is damaged: it holds no object; {_CURE}")
        return document

    def append_line(self, name: str, value: Mapping[str, Any]) -> None:
        """Append one JSON line, flushed to the disk.

        Parameters
        ----------
        name : str
            Of the file, in the folder.
        value : mapping
            NaN and infinity are written as words.
        """
        append_durably(self.path / name, dumps(value).encode() + b"\n")

    def read_lines(self, name: str) -> list[dict[str, Any]]:
        """Read the whole JSON lines of a file; one torn by a crash is left out.

        Parameters
        ----------
        name : str
            Of the file, in the folder.

        Returns
        -------
        list of dict
            Words for NaN and infinity are numbers again.

        Raises
        ------
        ConfigError
            If a whole line is no JSON object.
        """
        try:
            data = (self.path / name).read_bytes()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        try:
            objects = [json.loads(line) for line in whole.splitlines()]
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{self.path / name} is damaged ({error}); {_CURE}") from None
        if not all(isinstance(line, dict) for line in objects):
            raise ConfigError(f"{self.path / name} is damaged: a line of it is no object; {_CURE}")
        return [numbers(line) for line in objects]

    def read_rounds(self) -> list[RoundRecord]:
        """Read the rounds that are over, from ``metrics.jsonl``; none where there is no file.

        Raises
        ------
        ConfigError
            If a whole line of it is damaged.
        """
        return read_rounds(self.read_lines(METRICS), self.path / METRICS)

    def append_round(self, record: RoundRecord) -> None:
        """Append a round to ``metrics.jsonl``, flushed to the disk."""
        self.append_line(METRICS, record)

    def begin_round(self, record: RoundRecord) -> Flush:
        """Append a round as :meth:`append_round` does, and return its flush, to be waited for."""
        return append_flushing(self.path / METRICS, dumps(record).encode() + b"\n")

    def rewrite_rounds(self, records: Iterable[RoundRecord]) -> None:
        """Replace ``metrics.jsonl``."""
        self.rewrite_lines(METRICS, records)

    def read_summary(self) -> Summary:
        """Read ``summary.json``; an empty one where there is no file.

        Returns
        -------
        Summary
            False in a condition where it is empty.

        Raises
        ------
        ConfigError
            If it is damaged.
        """
        # Not by read_json: its texts are a user's own, as a run that is called NaN.
        return read_summary(self._object(SUMMARY), self.path / SUMMARY)

    def write_summary(self, summary: Summary) -> None:
        """Write ``summary.json`` whole or not at all."""
        self.write_json(SUMMARY, summary)

    def fingerprint(self, name: str) -> tuple[int, str]:
        """Return the size of a file and the SHA-256 of what it holds; an absent one is empty.

        A file that this process only appends to is read once, piece by piece: the last round of a
        long run costs what the first did.
        """
        size, hashed = self._hashed.get(name, (0, hashlib.sha256()))
        try:
            with (self.path / name).open("rb") as file:
                if size > file.seek(0, os.SEEK_END):  # cut off by somebody else
                    size, hashed = 0, hashlib.sha256()
                file.seek(size)
                data = file.read()
        except FileNotFoundError:
            size, hashed, data = 0, hashlib.sha256(), b""
        hashed.update(data)
        self._hashed[name] = size + len(data), hashed
        return size + len(data), hashed.hexdigest()

    def check_beginning(self, name: str, size: int, digest: str) -> None:
        """Raise ConfigError unless a file begins with what :meth:`fingerprint` saw.

        Parameters
        ----------
        name : str
            Of the file, in the folder.
        size : int
            Bytes that it had.
        digest : str
            SHA-256 of these.

        Raises
        ------
        ConfigError
            If they are not what they were.
        """
        try:
            data = (self.path / name).read_bytes()
        except OSError:
            data = b""
        if hashlib.sha256(data[:size]).hexdigest() != digest:
            raise ConfigError(
                f"--resume {self.path}: {name} was changed since the checkpoint, so what was spent "
                "is not known any more; restore the file, or start a new run"
            )

    def rewrite_lines(self, name: str, values: Iterable[Mapping[str, Any]]) -> None:
        """Replace the lines of a file.

        Parameters
        ----------
        name : str
            Of the file, in the folder.
        values : iterable of mapping
            A line each.
        """
        self.write(name, "".join(dumps(value) + "\n" for value in values).encode())


def new_folder(name: str) -> Path:
    """Return an unused folder under ``runs/``, named after something and the time.

    Parameters
    ----------
    name : str
        Of the experiment, or whatever the folder is of.

    Returns
    -------
    Path
        A folder that does not exist yet.

    Raises
    ------
    ConfigError
        If a thousand folders of this second exist.
    """
    stem = f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    for suffix in ("", *(f"-{n}" for n in range(2, 1000))):
        path = RUNS / named_path(stem + suffix)
        if not path.exists():
            return path
    raise ConfigError(f"--out: {RUNS / stem} and 998 more exist: choose a folder")


def check_unused(path: Path) -> None:
    """Raise ConfigError where a new run cannot be written to ``path``.

    Parameters
    ----------
    path : Path
        Where a run is to be written.

    Raises
    ------
    ConfigError
        If it holds something, or cannot be used.
    """
    try:
        exists = path.exists()
        empty = path.is_dir() and all(entry.name in (LOCK, REHEARSAL) for entry in path.iterdir())
        holds_run = (path / CONFIG).exists()
    except (OSError, ValueError) as error:
        why = reason(path, error)
        raise ConfigError(f"--out {str(path)[:200]!r} cannot be used: {why}") from None
    if exists and empty:
        return
    if holds_run:
        raise ConfigError(
            f"--out {path} already holds a run: choose another folder, or continue it with "
            f"--resume {path}"
        )
    if exists:
        raise ConfigError(f"--out {path} exists and is not an empty folder: choose another")
