"""Leave out of later cohorts the clients that were proved to give or deal wrong shares.

Nothing changes for anybody else. Cohorts are drawn as before and lose these clients afterwards, so
that every other client takes part with the accounted probability, and a noised sum is divided by
the expected number of clients.
"""

import errno
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

from zerosum.client.files.durable_append import append_durably
from zerosum.secagg import Roster
from zerosum.server.config import ConfigError
from zerosum.server.runs.run_folder import RunFolder
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
    """The clients left out of a run, in a file of one JSON line each; delete a line to readmit.

    Parameters
    ----------
    own : Path
        The run's own file. It tells from which round on the run does without whom it named.
    roster : Roster, optional
        Whose keys tell clients apart; without it their indices do.
    shared : Path, optional
        The file for several runs: who is in it is left out, from the first round on unless the own
        one tells another. Run folders of one name, one after another or in two places, are so many
        runs; without it the own file says who is left out.

    Raises
    ------
    ConfigError
        If a file cannot be read, or a line of it is none.
    """

    def __init__(self, own: Path, roster: Roster | None = None, shared: Path | None = None) -> None:
        self._own, self._shared = own, shared
        self._keys = {} if roster is None else {i: k.hex() for i, k in roster.entries.items()}
        self._since = {e.client: 0 if e.run else e.since for e in self._read(own)}
        if shared is not None:
            self._since = {e.client: self._since.get(e.client, 0) for e in self._read(shared)}

    def _read(self, path: Path) -> list[Entry]:
        return [e for e in _read(path) if not e.key or e.key == self._keys.get(e.client)]

    @classmethod
    def of(cls, folder: RunFolder, spec: DeploymentSpec, roster: Roster | None) -> Self:
        """Read which clients a run leaves out: from its own file, or one for several runs.

        Identity keys of a simulation are drawn anew each time: without ``deployment.roster``
        clients go by their indices.

        Parameters
        ----------
        folder : RunFolder
        spec : DeploymentSpec
            Names the file for several runs, if there is one.
        roster : Roster or None
            Whose keys tell clients apart.

        Returns
        -------
        LeftOut
            As far as the files say.
        """
        shared = None if spec.left_out is None else _checked(spec.left_out)
        return cls(folder.path / LEFT_OUT, None if spec.roster is None else roster, shared)

    @property
    def clients(self) -> tuple[int, ...]:
        """Everybody who is left out of some round, ascending."""
        return tuple(sorted(self._since))

    def before(self, round: int) -> frozenset[int]:
        """Return the clients that a round leaves out, by roster index."""
        return frozenset(client for client, since in self._since.items() if since <= round)

    def without(self, cohort: Iterable[int], round: int) -> tuple[int, ...]:
        """Return a cohort without those who are left out of its round.

        Parameters
        ----------
        cohort : iterable of int
            Roster indices.
        round : int
            Whose cohort it is.

        Returns
        -------
        tuple of int
            In the same order.
        """
        out = self.before(round)
        return tuple(index for index in cohort if index not in out)

    def add(self, clients: Iterable[int], *, round: int, since: int) -> None:
        """Leave clients out from round ``since`` on, durably.

        Parameters
        ----------
        clients : iterable of int
            Roster indices.
        round : int
            The round that named them.
        since : int
            The first round without them.
        """
        run = self._own.parent.resolve().name
        for client in sorted(set(clients) - self._since.keys()):
            entry = Entry(client, self._keys.get(client, ""), "", round, since)
            _append(self._own, entry)
            if self._shared is not None:
                _append(self._shared, replace(entry, run=run))
            self._since[client] = since


def _checked(name: str) -> Path:
    """Return the path of a file for several runs that can be read and written, made if absent."""
    path = Path(name)
    try:
        # Opening a pipe to write would wait for a reader, for ever.
        if path.exists() and not path.is_file():
            raise OSError(errno.EINVAL, "it is no regular file")
        path.open("ab").close()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"deployment.left_out = {name!r} cannot be written: "
            f"{getattr(error, 'strerror', error)}; name a file in a folder that the server may "
            "write to"
        ) from None
    return path


def _append(path: Path, entry: Entry) -> None:
    """Append a line, flushed to the disk, after the last whole one."""
    line = json.dumps(asdict(entry)).encode() + b"\n"
    # Somebody who edits the file may leave its last line without an end.
    ended = not path.exists() or path.read_bytes()[-1:] in (b"", b"\n")
    append_durably(path, line if ended else b"\n" + line)


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
        except (ValueError, TypeError, RecursionError) as error:
            raise ConfigError(
                f"{path}, line {number}: no client that is left out ({error}); a line has "
                '{"client": 3, "key": "", "run": "RUN", "round": 4, "since": 5}: mend it, or '
                "delete it to readmit the client"
            ) from None
        entries.append(entry)
    return entries
