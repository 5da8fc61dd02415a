"""Sums that were opened and answers that were made of them, kept so that nobody pays twice.

A folder of queries holds ``sums/ROUND-ATTEMPT.json``, the noisy integers of each sum as they were
released; ``answers.json``, every answer; and ``answers/NAME.csv``, the cells of the latest of that
name. An answer follows from its sums alone: what a crash left out is made of them again, for free.
"""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from zerosum.client.files.durable_append import append_durably, replace_file
from zerosum.server.analytics.asks import LONGEST_NAME, is_name
from zerosum.server.analytics.query_files import ANSWERS, CELLS, REFUSED, SUMS
from zerosum.server.config import ConfigError
from zerosum.server.runs.plain_json import dumps

_SUM: Final = re.compile(r"([0-9]+)-([0-9]+)\.json")
"""Name of a sum's file: its round and attempt."""


@dataclass(frozen=True)
class StoredSum:
    """One released sum.

    Attributes
    ----------
    round, attempt : int
        Of the sum.
    noisy : numpy.ndarray
        int64, shape (dimension,): with all of its noise.
    clients : int
        How many are in it.
    payload : bytes
        What was asked beside the question: the prefixes of a round of words.
    """

    round: int
    attempt: int
    noisy: NDArray[np.int64]
    clients: int
    payload: bytes = b""

    def values(self) -> dict[str, Any]:
        """Return it in plain values."""
        return {
            "round": self.round,
            "attempt": self.attempt,
            "clients": self.clients,
            "payload": self.payload.decode(),
            "noisy": self.noisy.tolist(),
        }


@dataclass(frozen=True)
class AnswerEntry:
    """One answer in plain values, and what it answers.

    Attributes
    ----------
    name : str
        Of its file.
    ask : str
        Digest of the question.
    asked : int
        Which paid answer to it.
    values : dict
        As ``Answer.to_json()``.
    cells : sequence of mapping
        Rows of its CSV file.
    """

    name: str
    ask: str
    asked: int
    values: dict[str, Any]
    cells: Sequence[Mapping[str, Any]]

    def document(self) -> dict[str, Any]:
        """Return it as ``answers.json`` has it."""
        return {"name": self.name, "ask": self.ask, "asked": self.asked, **self.values}


class StoredAnswers:
    """Sums and answers of one folder of queries, or of memory.

    Parameters
    ----------
    folder : Path or None
        None keeps all in memory.

    Raises
    ------
    ConfigError
        If ``answers.json`` is damaged.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._sums: dict[tuple[int, int], StoredSum] = {}
        self._entries = [] if folder is None else read_answers(folder)

    @property
    def entries(self) -> Sequence[Mapping[str, Any]]:
        """All answers in plain values, in the order in which they were made."""
        return tuple(self._entries)

    def sum(self, round: int, attempt: int) -> StoredSum | None:
        """Return a sum that was opened and kept; None where there is none.

        Parameters
        ----------
        round, attempt : int
            Of the sum.

        Returns
        -------
        StoredSum or None
            As it was released.

        Raises
        ------
        ConfigError
            If its file is damaged.
        """
        kept = self._sums.get((round, attempt))
        if kept is None and self._folder is not None:
            kept = _read_sum(self._folder / SUMS / f"{round}-{attempt}.json", (round, attempt))
        if kept is not None:
            self._sums[round, attempt] = kept
        return kept

    def keep_sum(self, opened: StoredSum) -> None:
        """Keep a sum, durably, before anything is made of it."""
        self._sums[opened.round, opened.attempt] = opened
        if self._folder is not None:
            path = self._folder / SUMS / f"{opened.round}-{opened.attempt}.json"
            path.parent.mkdir(exist_ok=True)
            replace_file(path, (dumps(opened.values()) + "\n").encode())

    def note_refused(self, name: str, why: str) -> None:
        """Note a query that the budget refused, for the report: it is no part of the plan.

        Parameters
        ----------
        name, why : str
            What is said of it.
        """
        if self._folder is not None:
            line = json.dumps({"name": name, "why": why})
            append_durably(self._folder / REFUSED, line.encode() + b"\n")

    def complete(self, ask: str) -> int:
        """Return how many answers to a question were paid for and kept."""
        return sum(entry["ask"] == ask for entry in self._entries)

    def names(self) -> dict[str, str]:
        """Return the question that each name was used for."""
        return {entry["name"]: entry["ask"] for entry in self._entries}

    def name_for(self, label: str, ask: str) -> str:
        """Return a name for an answer: its label, numbered where another question has that.

        Parameters
        ----------
        label : str
            As asked.
        ask : str
            Digest of the question, whose answers share a name.

        Returns
        -------
        str
            Of no other question.
        """
        used, number, name = self.names(), 1, label
        while used.get(name, ask) != ask:
            number += 1
            end = f"-{number}"
            name = label[: LONGEST_NAME - len(end)] + end
        return name

    def keep(self, entry: AnswerEntry) -> None:
        """Keep an answer, durably; the same one again replaces itself.

        Parameters
        ----------
        entry : AnswerEntry
            In place of the one of its question and number.
        """
        place = entry.ask, entry.asked
        others = [e for e in self._entries if (e["ask"], e["asked"]) != place]
        self._entries = [*others, entry.document()]
        if self._folder is None:
            return
        cells = self._folder / CELLS / f"{entry.name}.csv"
        cells.parent.mkdir(exist_ok=True)
        replace_file(cells, table_text(entry.cells).encode())
        document = {"format": 1, "answers": self._entries}
        replace_file(self._folder / ANSWERS, (dumps(document, indent=1) + "\n").encode())


def read_answers(folder: Path) -> list[dict[str, Any]]:
    """Read ``answers.json``; nothing where there is none yet.

    Parameters
    ----------
    folder : Path
        Of queries.

    Returns
    -------
    list of dict
        An answer each.

    Raises
    ------
    ConfigError
        If it is damaged, or of a newer format.
    """
    path = folder / ANSWERS
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        answers = document["answers"]
        if document["format"] != 1 or not all(map(_is_answer, answers)):
            raise ValueError("a format that this version does not know")
        if len({(each["ask"], each["asked"]) for each in answers}) < len(answers):
            raise ValueError("an answer stands in it twice")
        return list(answers)
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"{path} is damaged ({error}): delete it, and --resume {folder} makes it again of "
            f"{SUMS}/, for free"
        ) from None


def _is_answer(value: Mapping[str, Any]) -> bool:
    return isinstance(value["ask"], str) and type(value["asked"]) is int and is_name(value["name"])


def released_sums(folder: Path) -> set[tuple[int, int]]:
    """Return the rounds and attempts of all sums that a folder of queries holds.

    Parameters
    ----------
    folder : Path
        Of queries.

    Returns
    -------
    set of (round, attempt)
        By the names of their files.
    """
    found = map(_SUM.fullmatch, (path.name for path in (folder / SUMS).glob("*.json")))
    return {(int(name[1]), int(name[2])) for name in found if name is not None}


def table_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as CSV, with a header.

    Parameters
    ----------
    rows : sequence of mapping
        Of the same columns.

    Returns
    -------
    str
        Empty without rows.
    """
    if not rows:
        return ""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _read_sum(path: Path, number: tuple[int, int]) -> StoredSum | None:
    try:
        values = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise _damaged(path, error) from None
    try:
        integers = [values["round"], values["attempt"], values["clients"], *values["noisy"]]
        if not all(type(each) is int for each in integers) or values["clients"] < 0:
            raise ValueError("numbers that are no counts")
        noisy = np.array(values["noisy"], dtype=np.int64)
        payload = str(values["payload"]).encode()
        kept = StoredSum(values["round"], values["attempt"], noisy, values["clients"], payload)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise _damaged(path, error) from None
    if (kept.round, kept.attempt) != number or noisy.ndim != 1:
        raise _damaged(path, "it is of another sum")
    return kept


def _damaged(path: Path, why: object) -> ConfigError:
    return ConfigError(f"{path} is damaged ({why}): restore the file, or start a new folder")
