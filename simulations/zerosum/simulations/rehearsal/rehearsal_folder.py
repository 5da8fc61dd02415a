"""Keep a rehearsal: its run folder, and beside the run its nodes, so that it can go on."""

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from zerosum.client.files.operating_system import KILL
from zerosum.server.runs.run_folder import CONFIG, REHEARSAL, RunFolder
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
    """

    app: str
    nodes: int
    server: str
    namespaces: bool
    mark: str = ""


@dataclass(frozen=True)
class RehearsalFolder:
    """A rehearsal's run folder.

    Attributes
    ----------
    path : Path
        Of the run, as ``zerosum report`` takes it.
    """

    path: Path

    @property
    def nodes(self) -> Path:
        """Folder of roster, nodes' keys and states, and of all logs."""
        return self.path / REHEARSAL

    @property
    def begun(self) -> bool:
        """Return whether the ServerApp met its nodes and wrote the configuration."""
        return (self.path / CONFIG).is_file()

    def rounds_asked(self) -> int:
        """Return how many rounds the run has, by its configuration."""
        return RunFolder(self.path).experiment.rounds

    def completed(self) -> int:
        """Return after how many rounds the run goes on: those of its checkpoint."""
        # torch takes seconds to import: only what has to say this imports it.
        from zerosum.server.runs.resume import completed_rounds

        return completed_rounds(RunFolder(self.path))

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
            If it has no completed round to go on from.
        """
        setting = read_request(
            self.nodes / SETTING,
            RehearsedNodes,
            absent=f"--resume {self.path}: it is no rehearsal's run folder; give what --out named",
            cure="rehearse anew, with another --out",
        )
        if not self.begun or not self.completed():
            raise DeploymentError(
                f"--resume {self.path}: it has no completed round to go on from, and what was sent "
                "of a round with fresh noise is not done again; rehearse anew, with another --out"
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
        if not self.begun or not self.completed():
            return self._start_again(logs)
        metrics = RunFolder(self.path).read_rounds()[: self.completed()]
        lost = sum(not line.completed for line in metrics)
        return continue_with(
            f"{len(metrics)} of {self.rounds_asked()} rounds are over ({lost} abandoned) and kept "
            f"in {self.path}, with ledger, checkpoint and the nodes' records. {logs}",
            ["zerosum", "rehearse", str(app), "--resume", str(self.path), *options],
        )

    def _start_again(self, logs: str) -> str:
        """Return where the logs are, and the command that starts again.

        In the same folder only if that is free: the nodes' records in it are of this one rehearsal,
        and new nodes would take these nodes' places in it.
        """
        nothing = "No round was completed, so there is nothing to go on from."
        if not self.path.exists() or not any(self.path.iterdir()):
            return start_again(nothing)
        why = (
            f"\n{self.path} is not used again, for these logs and the nodes' records are in it: "
            "give another --out, or none for a new folder under runs/."
        )
        named = typed() != typed(without="--out")
        return start_again(f"{nothing} {logs}{why if named else ''}", without="--out")


def end_left_over(setting: RehearsedNodes) -> int:
    """End what a rehearsal that was killed left running, by its mark; return how many there were.

    Its SuperLink, nodes and ServerApp would hold the run folder and the nodes' states.
    """
    running = processes_of(setting.mark) if setting.mark else []
    for number in running:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(number, KILL)
    return len(running)
