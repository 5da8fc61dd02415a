"""The lines of ``ledger.jsonl``: typed in memory, JSON on the disk, never taken back.

This is the one place that writes them and the one that reads them. A line with a key that this
version does not know is refused: it may say of something spent that would then not be counted.
"""

import json
import os
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from zerosum.client.files.durable_append import FLUSHED, append_durably, append_flushing
from zerosum.client.spec.complaints import first_complaint
from zerosum.server.config import ConfigError

Key: TypeAlias = tuple[int, int, str, int]
"""Round, attempt, kind of private sum ("train", "evaluate", "components"), group."""

Count: TypeAlias = Annotated[int, Field(ge=0)]


class LedgerMismatchError(ConfigError):
    """A ledger on disk belongs to a run of other parameters, or cannot be read."""


class LedgerLine(BaseModel):
    """A line as it is checked: nothing unknown, and nothing taken for what it is not."""

    # Strict but for tuples, which JSON has as arrays: "3" is no round, and true no client.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class RunHeader(LedgerLine):
    """The first line: the settings that every figure follows from.

    Attributes
    ----------
    population : int
        Clients in the roster.
    sampling : dict
        The section of the configuration.
    kinds : dict or list
        What each kind of private sum guarantees; without noise the names of the kinds alone.
    """

    type: Literal["run"] = "run"
    population: int
    model: str
    protocol: str
    corruption: float
    dropout: float
    groups: int
    sampling: dict[str, Any]
    kinds: dict[str, dict[str, Any]] | list[str]

    @field_validator("kinds")
    @classmethod
    def _lengths_are_whole(
        cls, kinds: dict[str, dict[str, Any]] | list[str]
    ) -> dict[str, dict[str, Any]] | list[str]:
        described = kinds.values() if isinstance(kinds, dict) else ()
        if not all(type(terms.get("length")) is int for terms in described):
            raise ValueError("a kind of sum without the length of its vector")
        return kinds


class ContributionsCharged(LedgerLine):
    """Clients are about to be asked for their vectors; ``cohort`` is the session's n."""

    type: Literal["contributions"] = "contributions"
    key: Annotated[Key, Field(strict=False)]
    cohort: Count
    clients: list[Count]


class SumCharged(LedgerLine):
    """A sum is about to be opened."""

    type: Literal["sum"] = "sum"
    key: Annotated[Key, Field(strict=False)]


class SessionEnded(LedgerLine):
    """A session ended, opened or abandoned, with so many survivors."""

    type: Literal["survived"] = "survived"
    key: Annotated[Key, Field(strict=False)]
    cohort: Count
    survived: Count


LedgerEntry: TypeAlias = ContributionsCharged | SumCharged | SessionEnded
"""One line after the header."""

_HEADER: Final = TypeAdapter(RunHeader)
_ENTRY: Final[TypeAdapter[LedgerEntry]] = TypeAdapter(
    Annotated[LedgerEntry, Field(discriminator="type")]
)


class LedgerFile:
    """Appends entries durably, and reads those that are there.

    Parameters
    ----------
    path : Path or None
        ``ledger.jsonl``; None keeps nothing.
    read_only : bool
        Whether nothing is written, not even a torn last line cut off: in a run that goes on, that
        line is being written.
    """

    def __init__(self, path: Path | None, *, read_only: bool = False) -> None:
        self._path = path
        self._read_only = read_only
        self._flush = FLUSHED

    def open(self, header: RunHeader) -> list[LedgerEntry]:
        """Read the entries of a file that has this header; begin a file that is not there.

        Parameters
        ----------
        header : RunHeader
            Of the run that goes on.

        Returns
        -------
        list of LedgerEntry
            In the order in which they were written.

        Raises
        ------
        LedgerMismatchError
            If the file has another header, or cannot be read.
        """
        if self._path is None:
            return []
        lines = complete_lines(self._path, cut=not self._read_only)
        if not lines:
            self.append(header)
            return []
        if parse_header(lines[0], self._path) != header:
            raise LedgerMismatchError(
                f"{self._path} is the ledger of a run with other privacy parameters: resume it "
                "with those that it was started with, or start a new run"
            )
        return [parse_line(_ENTRY, line, self._path) for line in lines[1:]]

    def append(self, entry: RunHeader | LedgerEntry, *, wait: bool = True) -> None:
        """Write a line that is on the disk when this returns, with all lines before it.

        Parameters
        ----------
        entry : RunHeader or LedgerEntry
            What is about to be released.
        wait : bool
            Whether to wait for the disk; if not, :meth:`settle` does.
        """
        self.settle()
        if self._path is None or self._read_only:
            return
        # By json, not by pydantic, which writes a large float otherwise (1e16 for 1e+16): the same
        # run leaves the same bytes, whichever version began it.
        line = json.dumps(entry.model_dump(mode="json"), separators=(",", ":"))
        data = line.encode() + b"\n"
        if wait:
            append_durably(self._path, data)
        else:
            self._flush = append_flushing(self._path, data)

    def settle(self) -> None:
        """Wait until all lines are on the disk."""
        self._flush.wait()
        self._flush = FLUSHED


def read_header(path: Path) -> RunHeader:
    """Read the first line of a ledger.

    Parameters
    ----------
    path : Path
        ``ledger.jsonl``.

    Returns
    -------
    RunHeader
        The settings that the run was started with.

    Raises
    ------
    LedgerMismatchError
        If there is none, or it is damaged.
    """
    try:
        with path.open("rb") as file:
            line = file.readline()
    except FileNotFoundError:
        raise LedgerMismatchError(
            f"{path.parent} holds no {path.name}: this run has not begun"
        ) from None
    return parse_header(line, path)


def read_entries(path: Path) -> list[LedgerEntry]:
    """Read every whole line after the header; none where there is no file.

    Parameters
    ----------
    path : Path
        ``ledger.jsonl``.

    Raises
    ------
    LedgerMismatchError
        If a line is damaged.
    """
    return [parse_line(_ENTRY, line, path) for line in complete_lines(path, cut=False)[1:]]


def parse_header(line: bytes, path: Path) -> RunHeader:
    """Read a first line.

    Parameters
    ----------
    line : bytes
        JSON.
    path : Path
        Where it stands, for the message.

    Returns
    -------
    RunHeader
        What the line says.

    Raises
    ------
    LedgerMismatchError
        If it is no header.
    """
    header: RunHeader = parse_line(_HEADER, line, path)
    return header


def damaged(path: Path, why: object) -> LedgerMismatchError:
    """Return the error of a ledger that cannot be believed.

    Parameters
    ----------
    path : Path
        ``ledger.jsonl``.
    why : object
        What is wrong, as an exception or in words.

    Returns
    -------
    LedgerMismatchError
        To be raised.
    """
    return LedgerMismatchError(
        f"{path} is damaged ({why}): what was spent is not known any more; restore the file, or "
        "start a new run"
    )


def parse_line(adapter: TypeAdapter[Any], line: bytes, path: Path) -> Any:
    """Read a line of a ledger.

    Parameters
    ----------
    adapter : TypeAdapter
        Of the kinds that a line may be of.
    line : bytes
        JSON.
    path : Path
        Where it stands, for the message.

    Returns
    -------
    object
        What the adapter makes of it.

    Raises
    ------
    LedgerMismatchError
        If it is damaged, or has a key that is not known.
    """
    try:
        return adapter.validate_json(line)
    except ValidationError as error:
        first = first_complaint(error)
        if first.kind == "extra_forbidden":
            raise LedgerMismatchError(
                f"{path} has a key that this version does not know ({first.key}): a newer version "
                "wrote it, and what it spent cannot be counted; go on with that version"
            ) from None
        raise damaged(path, first.of_one_key) from None


def complete_lines(path: Path, *, cut: bool) -> list[bytes]:
    """Return the whole lines of a file; none where it is absent.

    A torn last line was not on the disk when the process died, so that what it announces was never
    asked for: it is cut off, or left out.

    Parameters
    ----------
    path : Path
        Of a file of lines.
    cut : bool
        Whether a torn last line is cut off the file.

    Returns
    -------
    list of bytes
        Without their ends.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    whole = content.rfind(b"\n") + 1
    if cut and whole < len(content):
        with path.open("r+b") as file:
            file.truncate(whole)
            os.fsync(file.fileno())
    return content[:whole].splitlines()
