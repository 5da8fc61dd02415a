"""Clients who are asked no more: they were proved to have given, or dealt, wrong shares.

Who is left out changes nothing for anybody else. Cohorts are drawn as before and lose those who are
left out afterwards, so that every other client takes part with the probability that is accounted
for, and a noised sum is divided by the number that was expected.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from zerosum.client.durable_files import append_durably
from zerosum.secagg import Roster
from zerosum.server.config import ConfigError
from zerosum.server.runs import RunFolder
from zerosum.server.spec import DeploymentSpec

LEFT_OUT = "left-out.jsonl"
"""The file in a run folder, where the configuration names no other."""


@dataclass(frozen=True)
class Entry:
    """One line of the file.

    Attributes
    ----------
    client : int
        Roster index.
    key : str
        The client's identity key, 64 hexadecimal digits; empty where clients have none. With
        another key in the roster the index is another party, who is asked.
    run : str
        Name of the run folder; empty in a file of one run's own.
    round : int
        The round that named it.
    since : int
        The first round of that run without it; other runs do without it from the start.
    """

    client: int
    key: str
    run: str
    round: int
    since: int


class LeftOut:
    """Who is left out of a run, kept in a file, one JSON line for each: delete a line to readmit.

    Parameters
    ----------
    path : Path
    run : str
        Names this run in the file.
    roster : Roster, optional
        Whose keys tell clients apart; without it their indices do.

    Raises
    ------
    ConfigError
        If the file cannot be read, or a line of it is none.
    """

    def __init__(self, path: Path, run: str, roster: Roster | None = None) -> None:
        self.path = path
        self._run = run
        self._keys = {} if roster is None else {i: k.hex() for i, k in roster.entries.items()}
        self._entries = [e for e in _read(path) if not e.key or e.key == self._keys.get(e.client)]

    @classmethod
    def of(cls, folder: RunFolder, spec: DeploymentSpec, roster: Roster | None) -> Self:
        """Return who is left out of a run: by its own file, or by the one for several runs.

        Identity keys of a simulation are drawn anew each time: without ``deployment.roster``
        clients go by their indices.
        """
        path, run = folder.path / LEFT_OUT, ""
        if spec.left_out is not None:
            path, run = Path(spec.left_out), folder.path.resolve().name
            try:
                path.open("a").close()
            except OSError as error:
                raise ConfigError(
                    f"deployment.left_out = {spec.left_out!r} cannot be written: "
                    f"{error.strerror}; name a file in a folder that the server may write to"
                ) from None
        return cls(path, run, None if spec.roster is None else roster)

    @property
    def clients(self) -> tuple[int, ...]:
        """Everybody who is left out of some round, ascending."""
        return tuple(sorted({entry.client for entry in self._entries}))

    def before(self, round: int) -> frozenset[int]:
        """Return whom a round does without, by roster index."""
        return frozenset(
            entry.client
            for entry in self._entries
            if entry.run != self._run or entry.since <= round
        )

    def without(self, cohort: Iterable[int], round: int) -> tuple[int, ...]:
        """Return a cohort without those who are left out of its round."""
        out = self.before(round)
        return tuple(index for index in cohort if index not in out)

    def add(self, clients: Iterable[int], *, round: int, since: int) -> None:
        """Leave clients out from round ``since`` on, durably."""
        known = {entry.client for entry in self._entries}
        for client in sorted(set(clients) - known):
            entry = Entry(client, self._keys.get(client, ""), self._run, round, since)
            append_durably(self.path, json.dumps(asdict(entry)).encode() + b"\n")
            self._entries.append(entry)


def _read(path: Path) -> list[Entry]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}, who is left out, cannot be read: {error}") from None
    entries = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = Entry(**json.loads(line))
            numbers = (entry.client, entry.round, entry.since)
            if not all(type(n) is int and n >= 0 for n in numbers):
                raise ValueError("client, round and since are whole numbers")
            if type(entry.key) is not str or type(entry.run) is not str:
                raise ValueError("key and run are texts")
        except (ValueError, TypeError) as error:
            raise ConfigError(
                f"{path}, line {number}: no client that is left out ({error}); a line has "
                '{"client": 3, "key": "", "run": "RUN", "round": 4, "since": 5}: mend it, or '
                "delete it to readmit the client"
            ) from None
        entries.append(entry)
    return entries
