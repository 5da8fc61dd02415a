"""One logger, in a process of its own: reads lines of JSON, and hands them to a library.

``python -m zerosum.server.loggers.log_process NAME``. The first line says where, under which id and
with which settings; each other one has a round's figures; the last one says whether the run was
completed. Standard output takes one line: why the logger failed.
"""

import importlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Protocol

from zerosum.client.files.file_lock import held_alone

LONGEST_WAIT_SECONDS = 60.0
"""For the logger of a run that died: it still writes what it was told."""


class Writer(Protocol):
    """What hands figures to a library; each module of a logger has an ``opened``."""

    def write(self, round: int, figures: Mapping[str, float]) -> None:
        """Write what it has not of a round.

        Parameters
        ----------
        round : int
            From 1 on.
        figures : mapping of str to float
            By name.
        """

    def close(self, completed: bool) -> None:
        """End; a run that was not completed may be gone on with."""


MODULES: Mapping[str, str] = {
    "tensorboard": "zerosum.server.loggers.to_tensorboard",
    "wandb": "zerosum.server.loggers.to_wandb",
    "mlflow": "zerosum.server.loggers.to_mlflow",
}
"""A logger's module: adding one is a file and a line here, a name in the specs, and an extra."""


def serve(name: str, lines: IO[bytes]) -> None:
    """Write what lines say until they end.

    Parameters
    ----------
    name : str
        Of the logger.
    lines : binary file
        JSON objects. Without a last one that says so, the run that wrote them has died.
    """
    start = json.loads(lines.readline())
    library = importlib.import_module(MODULES[name])
    with held_alone(Path(start["folder"]) / f".{name}.lock", LONGEST_WAIT_SECONDS):
        writer: Writer = library.opened(start)
        completed = False
        for line in lines:
            message = json.loads(line)
            if "end" in message:
                completed = bool(message["end"])
                break
            writer.write(message["round"], message["figures"])
        writer.close(completed)


def main() -> None:
    """Serve standard input; keep a library's own words from standard output."""
    # The run is told by its pipe when to end; Ctrl-C is for the run.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with open(os.dup(1), "w", encoding="utf-8", newline="\n") as answer:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        try:
            serve(sys.argv[1], sys.stdin.buffer)
        except BaseException as error:  # of a library: anything, exits as well
            said = " ".join(str(error).split())
            answer.write(f"{type(error).__name__}: {said[:500]}\n")
            answer.flush()
            # Threads and exit handlers of the library may wait for what has just failed.
            os._exit(1)


if __name__ == "__main__":
    main()
