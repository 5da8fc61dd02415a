"""Write figures as TensorBoard's events, in folder ``tensorboard`` of the run."""

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary import Writer

FOLDER: Final = "tensorboard"


class TensorBoard:
    """Events of a run, of which a file that is there has some.

    Parameters
    ----------
    folder : Path
        Of the events.
    began : int
        Unix time of the run's first round.
    """

    def __init__(self, folder: Path, began: int) -> None:
        self._began, self._written = began, written(folder)
        # The library names its file after the machine.
        socket.gethostname = lambda: "zerosum"
        self._writer = Writer(str(folder))

    def write(self, round: int, figures: Mapping[str, float]) -> None:
        """Write what it has not of a round; times would tell how long the round took."""
        for name, value in figures.items():
            if (name, round) not in self._written:
                self._writer.add_scalar(name, value, round, wall_time=self._began + round)
        self._writer.flush()

    def close(self, completed: bool) -> None:
        """Close the file."""
        self._writer.close()


def written(folder: Path) -> set[tuple[str, int]]:
    """Return names and rounds of the figures that a folder's events have; a torn one is none."""
    if not folder.is_dir():
        return set()
    events = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    events.Reload()
    return {
        (name, event.step) for name in events.Tags()["tensors"] for event in events.Tensors(name)
    }


def opened(start: Mapping[str, Any]) -> TensorBoard:
    """Return the logger of a run."""
    return TensorBoard(Path(start["folder"]) / FOLDER, start["began"])
