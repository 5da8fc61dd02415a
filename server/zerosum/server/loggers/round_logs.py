"""Tell loggers each round's public figures; a logger that fails or hangs costs a warning."""

import importlib.util
import json
import logging
import math
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Any, Final, Self

from zerosum.server.config import ConfigError
from zerosum.server.planning.public_part import (
    public_line,
    public_settings,
    stated_epsilon,
)
from zerosum.server.planning.spent_budget import ledger_header, planned_figures
from zerosum.server.privacy.epsilon_bound import EpsilonBound
from zerosum.server.runs.records import RoundRecord
from zerosum.server.runs.resume import completed_rounds
from zerosum.server.runs.run_folder import RunFolder
from zerosum.server.spec import Experiment

log = logging.getLogger("zerosum.server")

LOGGERS: Final = "loggers.json"
"""File of the id under which loggers know a run, and of when they first heard of it."""

EPSILON: Final = "epsilon_release"
COMPLETED: Final = "completed"

END_SECONDS: Final = 120.0
"""Seconds that a logger has to end in: libraries load, a service is sent what it lacks."""

CUT_SHORT_SECONDS: Final = 15.0
"""The same where the run was ended early, by a person who waits."""

_NO_REPORTS: Final = {"MLFLOW_DISABLE_TELEMETRY": "true", "WANDB_ERROR_REPORTING": "false"}
"""Environment in which libraries do not tell their makers of their use, unless the user's does."""

_MODULE: Final = "zerosum.server.loggers.log_process"


def check_loggers(experiment: Experiment) -> None:
    """Refuse loggers whose library is not installed; it is looked for, and not imported.

    Raises
    ------
    ConfigError
        With what installs it.
    """
    for name in experiment.log:
        spec = importlib.util.find_spec(name)
        # A folder that happens to be called so, as the one that wandb leaves, is no library.
        if spec is None or not spec.has_location:
            raise ConfigError(
                f"log = [\"{name}\"]: {name} is not installed: pip install 'zerosum[{name}]', or "
                f"take {name} out of log"
            )


def figures(record: RoundRecord, experiment: Experiment) -> dict[str, float]:
    """Return the public figures of a round, by the keys of ``metrics.jsonl``.

    Parameters
    ----------
    record : RoundRecord
        Of the round.
    experiment : Experiment
        Of the run.

    Returns
    -------
    dict of str to float
        And whether the round was completed, as 1 or 0.
    """
    line = public_line(record, experiment)
    numbers = {
        name: float(value)
        for name, value in line.items()
        if type(value) in (int, float) and name != "round"
    }
    return {COMPLETED: float(line.completed), **numbers}


class RoundLogs:
    """The loggers of a run: nothing is started where the experiment has none.

    Parameters
    ----------
    experiment : Experiment
        With its noise resolved.
    folder : RunFolder
        Of the run.
    population : int
        Clients in the roster.
    noise_from_seed : bool
        Whether noise and cohorts can be drawn again from the seed.
    """

    def __init__(
        self, experiment: Experiment, folder: RunFolder, population: int, *, noise_from_seed: bool
    ) -> None:
        self._experiment, self._folder = experiment, folder
        self._facts = {"population": population, "noise_from_seed": noise_from_seed}
        self._planned: EpsilonBound | None = None
        self._processes: list[LogProcess] = []

    def __enter__(self) -> Self:
        """Start the loggers and tell them the rounds that are over: they write what they lack."""
        if not self._experiment.log:
            return self
        with self._softly():
            identity = self._identity()
            done = completed_rounds(self._folder)
            before = [record for record in self._folder.read_rounds() if record.round <= done]
            for name in self._experiment.log:
                self._processes.append(LogProcess(name, identity | self._start()))
            for record in before:
                self._tell(record)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the loggers, all at once; wait for them, and not longer than a while."""
        self._end(completed=kind is None)

    def _end(self, *, completed: bool) -> None:
        for process in self._processes:
            process.begin_to_end(completed=completed)
        deadline = time.monotonic() + (END_SECONDS if completed else CUT_SHORT_SECONDS)
        for process in self._processes:
            process.end(deadline - time.monotonic())

    def after(self, on_round: Callable[[RoundRecord], Any]) -> Callable[[RoundRecord], Any]:
        """Return a callback that tells the loggers of a round, and then does what another does."""

        def noted(record: RoundRecord) -> Any:
            if self._processes:
                with self._softly():
                    self._tell(record)
            return on_round(record)

        return noted

    @contextmanager
    def _softly(self) -> Iterator[None]:
        """Turn what goes wrong into one warning, and the end of all loggers."""
        try:
            yield
        except Exception as error:  # of a damaged file, say: a run does not end of its loggers
            log.warning(
                "log: no more rounds are told to loggers: %s: %s", type(error).__name__, error
            )
            self._end(completed=False)
            self._processes.clear()

    def _tell(self, record: RoundRecord) -> None:
        told = figures(record, self._experiment) | self._epsilon(record)
        for process in self._processes:
            process.tell({"round": record.round, "figures": told})

    def _epsilon(self, record: RoundRecord) -> dict[str, float]:
        """Return the figure of the whole run that a public report would state after this round.

        The ledger's figure of a single round depends on counts of clients.
        """
        charged = record.epsilon.get("release", math.inf)
        if not self._experiment.privacy.private or not math.isfinite(charged):
            return {}
        if self._planned is None:
            header = ledger_header(self._folder)
            self._planned = planned_figures(self._experiment, header)["release"]
        stated = stated_epsilon(self._planned, charged)
        return {EPSILON: stated} if math.isfinite(stated) else {}

    def _start(self) -> dict[str, Any]:
        return {
            "folder": str(self._folder.path.resolve()),
            "name": self._experiment.name,
            "settings": public_settings(self._experiment) | self._facts,
        }

    def _identity(self) -> dict[str, Any]:
        """Return the id of the run, which it keeps when it is gone on with."""
        path = self._folder.path / LOGGERS
        if not path.is_file():
            new = {"id": secrets.token_hex(8), "began": int(time.time())}
            self._folder.write_json(LOGGERS, new)
        known = json.loads(path.read_text(encoding="utf-8"))
        return {"id": str(known["id"]), "began": int(known["began"])}


class LogProcess:
    """One logger's process, and the thread that talks to it: a run waits for neither.

    Parameters
    ----------
    name : str
        Of the logger.
    start : mapping
        What it is told first.
    """

    def __init__(self, name: str, start: Mapping[str, Any]) -> None:
        self._name, self._over = name, False
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        self._process = subprocess.Popen(
            # -P: a user's own wandb.py, or the folder of runs so called, is not the library.
            [sys.executable, "-P", "-m", _MODULE, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**_NO_REPORTS, **os.environ},
            start_new_session=True,  # no Ctrl-C of the terminal ends it, no prompt reaches a person
        )
        self._thread = Thread(target=self._send, name=f"zerosum-{name}", daemon=True)
        self._thread.start()
        self.tell(start)

    def tell(self, message: Mapping[str, Any]) -> None:
        """Say something as soon as the process reads; warn if it has ended."""
        if not self._over and self._process.poll() is not None:
            self.end(0.0)
        if not self._over:
            self._lines.put(json.dumps(message).encode() + b"\n")

    def begin_to_end(self, *, completed: bool) -> None:
        """Say that there is no more."""
        self.tell({"end": completed})
        self._lines.put(None)

    def end(self, seconds: float) -> None:
        """Wait until the process has ended, or end it; warn if it wrote less than it was told.

        Parameters
        ----------
        seconds : float
            At most.
        """
        if self._over:
            return
        self._over, why = True, ""
        try:
            self._process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            why = "it took too long to end"
        self._lines.put(None)
        self._thread.join(1.0)
        if self._process.stdout is not None:
            told = self._process.stdout.read().decode(errors="replace").strip()
            self._process.stdout.close()
            why = why or told
        if why or self._process.returncode:
            log.warning(
                "log: %s failed and lacks rounds: %s; the run is whole, and --resume tells it them",
                self._name,
                why or f"exit code {self._process.returncode}",
            )

    def _send(self) -> None:
        pipe = self._process.stdin
        if pipe is None:
            return
        with suppress(OSError):  # it has ended, of which poll() tells
            for line in iter(self._lines.get, None):
                pipe.write(line)
                pipe.flush()
        with suppress(OSError):
            pipe.close()
