"""Write figures to Weights & Biases: offline in the run folder, or as WANDB_MODE says."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import wandb

PROJECT: Final = "zerosum"

_MODE: Final = "WANDB_MODE"
_OFFLINE: Final = ("offline", "dryrun")


class WeightsAndBiases:
    """A run of a service, which keeps what it was told before.

    Parameters
    ----------
    start : mapping
        Id, folder, name and settings of the run.
    """

    def __init__(self, start: Mapping[str, Any]) -> None:
        self._began, self._run = int(start["began"]), _begun(start)

    @property
    def folder(self) -> Path:
        """Where the library keeps the run on this machine."""
        return Path(self._run.dir).parent

    def write(self, round: int, figures: Mapping[str, float]) -> None:
        """Write a round, unless it is known; times would tell how long the round took.

        Parameters
        ----------
        round : int
            From 1 on.
        figures : mapping of str to float
            By name.
        """
        if round >= self._run.starting_step:
            self._run.log({**figures, "_timestamp": float(self._began + round)}, step=round)

    def close(self, completed: bool) -> None:
        """End the run."""
        self._run.finish(exit_code=0 if completed else 1)


class Offline:
    """A run that is kept on this machine until ``wandb sync``.

    It is written at the end and from the first round on, under the id that it had: offline the
    library goes on with none, and would write down how long each round took.

    Parameters
    ----------
    start : mapping
        As above.
    """

    def __init__(self, start: Mapping[str, Any]) -> None:
        self._start = start
        self._rounds: dict[int, Mapping[str, float]] = {}

    def write(self, round: int, figures: Mapping[str, float]) -> None:
        """Keep a round for the end.

        Parameters
        ----------
        round : int
            From 1 on.
        figures : mapping of str to float
            By name.
        """
        self._rounds[round] = figures

    def close(self, completed: bool) -> None:
        """Write the run, and take away what it replaces."""
        folder, id = Path(self._start["folder"]) / "wandb", self._start["id"]
        earlier = list(folder.glob(f"offline-run-*-{id}"))
        run = WeightsAndBiases(self._start)
        for round, figures in self._rounds.items():
            run.write(round, figures)
        run.close(completed)
        for replaced in earlier:
            if replaced.resolve() != run.folder.resolve():
                shutil.rmtree(replaced, ignore_errors=True)


def _begun(start: Mapping[str, Any]) -> wandb.Run:
    """Begin or continue a run that is sent what it is told, and nothing of the machine."""
    return wandb.init(
        project=os.environ.get("WANDB_PROJECT", PROJECT),
        id=start["id"],
        name=start["name"],
        dir=start["folder"],
        config=start["settings"],
        resume="allow",
        settings=wandb.Settings(
            console="off",
            silent=True,
            host="",
            disable_code=True,
            disable_git=True,
            disable_job_creation=True,
            save_code=False,
            x_disable_machine_info=True,
            x_disable_meta=True,
            x_disable_stats=True,
            x_save_requirements=False,
        ),
    )


def opened(start: Mapping[str, Any]) -> WeightsAndBiases | Offline:
    """Return the logger of a run."""
    # Set to nothing is not set: the library would refuse it.
    os.environ[_MODE] = os.environ.get(_MODE) or _OFFLINE[0]
    if os.environ[_MODE] in _OFFLINE:
        return Offline(start)
    return WeightsAndBiases(start)
