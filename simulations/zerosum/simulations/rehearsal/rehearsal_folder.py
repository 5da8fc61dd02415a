"""Keep a rehearsal: its run folder, and beside the run its nodes, so that it can go on."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from zerosum.client.files.operating_system import KILL
from zerosum.server.analytics.query_files import ENDED
from zerosum.server.analytics.query_folder import is_query_folder, read_folder
from zerosum.server.analytics.stored_answers import read_answers
from zerosum.server.runs.run_folder import CONFIG, REHEARSAL, SUMMARY, RunFolder
from zerosum.simulations.partial_results import read_request, write_request
from zerosum.simulations.rehearsal.processes import DeploymentError, processes_of
from zerosum.simulations.terminal.signals import continue_with, start_again, typed

SETTING = "setting.json"


@dataclass(frozen=True)
class RehearsedNodes:
    """Settings of a rehearsal's nodes, which ``--resume`` reads instead of asking again.

    Attributes
    ----------
    app : str
        Its folder.
    nodes : int
    server : str
        What the server is trusted with.
    namespaces : bool
    mark : str
        ``NAME=VALUE`` in the environment of every process that was started.
    data : tuple of str
        A file of its own for each node; empty where all read the experiment's data.
    config : tuple of str
        More node config of every node, in which ``{}`` is its index.
    """

    app: str
    nodes: int
    server: str
    namespaces: bool
    mark: str = ""
    data: tuple[str, ...] = ()
    config: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Take the lists that JSON has for the tuples that were written."""
        object.__setattr__(self, "data", tuple(self.data))
        object.__setattr__(self, "config", tuple(self.config))


@dataclass(frozen=True)
class News:
    """One part of a run that is over: a line, its shorter text for the bar, and its number.

    Attributes
    ----------
    line, text : str
    number, of : int
    """

    line: str
    text: str
    number: int
    of: int


@dataclass(frozen=True)
class RehearsalFolder:
    """A rehearsal's run folder.

    Attributes
    ----------
    path : Path
        Of the run, as ``zerosum report`` takes it.
    """

    path: Path

    unit: ClassVar[str] = "round"
    """What a run consists of."""
    begins: ClassVar[str] = "completed"
    """What one must be, so that the run can go on."""

    @property
    def run(self) -> Path:
        """Folder of the run's records: this one."""
        return self.path

    @property
    def sign(self) -> Path | None:
        """File that a run which ends well writes last."""
        return self.path / SUMMARY

    @property
    def nodes(self) -> Path:
        """Folder of roster, nodes' keys and states, and of all logs."""
        return self.path / REHEARSAL

    @property
    def begun(self) -> bool:
        """Return whether the ServerApp met its nodes and wrote the configuration."""
        return (self.run / CONFIG).is_file()

    def rounds_asked(self) -> int:
        """Return how many rounds the run has, by its configuration."""
        return RunFolder(self.run).experiment.rounds

    def completed(self) -> int:
        """Return after how many rounds the run goes on: those of its checkpoint."""
        # torch takes seconds to import: only what has to say this imports it.
        from zerosum.server.runs.resume import completed_rounds

        return completed_rounds(RunFolder(self.path))

    @property
    def goes_on(self) -> bool:
        """Return whether there is anything to go on from."""
        return self.begun and bool(self.completed())

    def news(self, seen: int) -> Iterator[News]:
        """Yield the rounds that are over since so many of them were."""
        if not self.begun:
            return
        from zerosum.simulations.terminal.round_lines import describe  # which imports torch

        records = RunFolder(self.run).read_rounds()
        rounds = self.rounds_asked() if len(records) > seen else 0
        for record in records[seen:]:
            text = describe(record, rounds)
            yield News(f"{text}  {record.seconds:.1f} s", text, record.round, rounds)

    def write(self, setting: RehearsedNodes) -> None:
        """Note the nodes, whole or not at all."""
        self.nodes.mkdir(parents=True, exist_ok=True)
        write_request(self.nodes / SETTING, setting)

    def read(self) -> RehearsedNodes:
        """Read which nodes an earlier rehearsal had.

        Returns
        -------
        RehearsedNodes
            The nodes.

        Raises
        ------
        ConfigError
            If the folder is of no rehearsal.
        DeploymentError
            If it has no {self.begins} {self.unit} to go on from.
        """
        setting = read_request(
            self.nodes / SETTING,
            RehearsedNodes,
            absent=f"--resume {self.path}: it is no rehearsal's run folder; give what --out named",
            cure="rehearse anew, with another --out",
        )
        if not self.goes_on:
            raise DeploymentError(
                f"--resume {self.path}: it has no {self.begins} {self.unit} to go on from, and "
                "what was sent of a round with fresh noise is not done again; rehearse anew, with "
                "another --out"
            )
        return setting

    def left(self, app: Path, options: Iterable[str] = ()) -> str:
        """Say what an ended rehearsal left, and last the command that goes on.

        Parameters
        ----------
        app : Path
        options : iterable of str
            Further words of that command.

        Returns
        -------
        str
            Its last line is the command.
        """
        logs = f"Logs of SuperLink and nodes: {self.nodes}/*.log"
        if not self.goes_on:
            return self._start_again(logs)
        return continue_with(
            f"{self._done()}, and the nodes' records. {logs}",
            ["zerosum", "rehearse", str(app), "--resume", str(self.path), *options],
        )

    def _done(self) -> str:
        """Say what is over, and where it is kept."""
        metrics = RunFolder(self.path).read_rounds()[: self.completed()]
        lost = sum(not line.completed for line in metrics)
        return (
            f"{len(metrics)} of {self.rounds_asked()} rounds are over ({lost} abandoned) and kept "
            f"in {self.path}, with ledger and checkpoint"
        )

    def _start_again(self, logs: str) -> str:
        """Return where the logs are, and the command that starts again.

        In the same folder only if that is free: the nodes' records in it are of this one rehearsal,
        and new nodes would take these nodes' places in it.
        """
        nothing = f"No {self.unit} was {self.begins}, so there is nothing to go on from."
        if not self.path.exists() or not any(self.path.iterdir()):
            return start_again(nothing)
        why = (
            f"\n{self.path} is not used again, for these logs and the nodes' records are in it: "
            "give another --out, or none for a new folder under runs/."
        )
        named = typed() != typed(without="--out")
        return start_again(f"{nothing} {logs}{why if named else ''}", without="--out")


class QueryRehearsal(RehearsalFolder):
    """A rehearsal whose run answers queries."""

    unit: ClassVar[str] = "query"
    begins: ClassVar[str] = "asked"

    @property
    def sign(self) -> Path:
        """File that a run which ends well writes last."""
        return self.path / ENDED

    @property
    def begun(self) -> bool:
        """Return whether the ServerApp met its nodes and wrote the plan."""
        return is_query_folder(self.path)

    @property
    def goes_on(self) -> bool:
        """Return whether anything was asked: what was paid for is kept."""
        return self.begun

    def rounds_asked(self) -> int:
        """Return how many queries the plan has."""
        return len(read_folder(self.path).queries)

    def completed(self) -> int:
        """Return how many answers there are."""
        return len(read_answers(self.path))

    def news(self, seen: int) -> Iterator[News]:
        """Yield the answers that were made since there were so many."""
        answers = read_answers(self.path)[seen:]
        asked = self.rounds_asked() if answers else 0
        for number, answer in enumerate(answers, seen + 1):
            name = f"query {number}/{asked}  {answer['name']}"
            yield News(f"{name}: {answer['sentence']}", name, number, asked)

    def _done(self) -> str:
        done, asked = self.completed(), self.rounds_asked()
        return f"{done} of {asked} queries are answered and kept in {self.path}, with ledger"


def end_left_over(setting: RehearsedNodes) -> int:
    """End what a rehearsal that was killed left running, by its mark; return how many there were.

    Its SuperLink, nodes and ServerApp would hold the run folder and the nodes' states.
    """
    running = processes_of(setting.mark) if setting.mark else []
    for number in running:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(number, KILL)
    return len(running)
