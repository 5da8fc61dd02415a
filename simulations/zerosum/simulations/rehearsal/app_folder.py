"""The run folder of an own app's rehearsal: PrivateStrategy says where its records are."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from zerosum.server.analytics.stored_answers import read_answers
from zerosum.server.runs.run_folder import RunFolder
from zerosum.simulations.rehearsal.federation import SERVERAPP
from zerosum.simulations.rehearsal.processes import DeploymentError
from zerosum.simulations.rehearsal.rehearsal_folder import News, RehearsalFolder, RehearsedNodes
from zerosum.simulations.terminal.signals import start_again

_RUN = re.compile(r"run folder: (.+?)\s*$", re.M)
_QUERIES = re.compile(r"folder of queries: (.+?)\s*$", re.M)


class AppRehearsal(RehearsalFolder):
    """A rehearsal of an app that anybody wrote.

    Its ServerApp works in the folder of the nodes. Where the app names no ``out``, PrivateStrategy
    writes to a folder there; the log has it in any case.
    """

    @property
    def app(self) -> Path:
        """Folder of the app's files, as nodes get them."""
        return self.nodes / "app"

    @property
    def run(self) -> Path:
        """Folder of PrivateStrategy's records; one that is not there before it meets its nodes."""
        return self._told(_RUN) or self.nodes / "runs" / "none"

    @property
    def queries(self) -> Path | None:
        """Folder of PrivateQueries' answers; None where the app has not said one."""
        return self._told(_QUERIES)

    @property
    def answers(self) -> list[dict[str, Any]]:
        """What PrivateQueries has answered."""
        return [] if self.queries is None else read_answers(self.queries)

    def news(self, seen: int) -> Iterator[News]:
        """Yield the rounds, or else the answers, that are over since so many of them were."""
        if self.begun:
            yield from super().news(seen)
            return
        for number, answer in enumerate(self.answers[seen:], seen + 1):
            line = f"query {number}  {answer_in_words(answer)}"
            yield News(line, line, number, number)

    @property
    def sign(self) -> None:
        """Nothing: what such an app writes last is its own matter."""
        return

    @property
    def goes_on(self) -> bool:
        """Return False: who keeps the model is the app."""
        return False

    def read(self) -> RehearsedNodes:
        """Refuse to go on.

        Returns
        -------
        RehearsedNodes
            Never.

        Raises
        ------
        DeploymentError
            Always.
        """
        raise DeploymentError(
            f"--resume {self.path}: an app of one's own keeps no checkpoint to go on from; "
            "rehearse it anew, without --resume"
        )

    def left(self, app: Path, options: Iterable[str] = ()) -> str:
        """Say what an ended rehearsal left, and last the command that starts again.

        Parameters
        ----------
        app : Path
        options : iterable of str
            Not needed: nothing goes on.

        Returns
        -------
        str
            Its last line is the command.
        """
        logs = f"Logs of ServerApp, SuperLink and nodes: {self.nodes}/*.log"
        if self.begun and (done := RunFolder(self.run).read_rounds()):
            rounds = f"{len(done)} of {self.rounds_asked()} rounds are over; records: {self.run}."
            logs = f"{rounds} {logs}"
        return start_again(logs, without="--out")

    def _told(self, what: re.Pattern[str]) -> Path | None:
        """Return the last folder of a kind that the ServerApp's log names."""
        log = self.nodes / f"{SERVERAPP}.log"
        text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
        found = what.findall(text)
        return Path(found[-1]) if found else None


def answer_in_words(answer: Mapping[str, Any]) -> str:
    """Return what an answer of an app's query is, without its values.

    Parameters
    ----------
    answer : mapping
        As the folder of queries has it.

    Returns
    -------
    str
        As ``query-1: ages (10), of 3 nodes, epsilon 0.5``.
    """
    values = answer["values"]
    sums = ", ".join(f"{name} ({len(numbers)})" for name, numbers in values.items())
    cost = "" if answer["asked_epsilon"] is None else f", epsilon {answer['asked_epsilon']:g}"
    return f"{answer['name']}: {sums}, of {answer['clients']} nodes{cost}"
