"""Hold the result of a run, and refuse one in which nothing was learnt."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from zerosum.client.training.model_file import as_arrays
from zerosum.server.config import ConfigError
from zerosum.server.runs.records import Best, RoundRecord, Summary
from zerosum.server.runs.reference_words import reference_of
from zerosum.server.runs.result_display import Weights, result_html, result_line
from zerosum.server.runs.run_folder import BEST, MODEL, TEST_SET, RunFolder
from zerosum.server.runs.run_outcome import (
    NothingLearntError,
)
from zerosum.server.runs.saved_model import load_whole, read_model, round_of


@dataclass(frozen=True, repr=False)
class Result:
    """The result of a run; a notebook shows it as a table.

    Parameters
    ----------
    folder : Path
        The run folder.
    summary : Summary
        What ``summary.json`` holds, typed; ``summary["epsilon"]`` reads it by the file's keys.
    rounds : list of RoundRecord
        What ``metrics.jsonl`` holds, likewise.
    model : dict of str to numpy.ndarray
        The final model's whole state dict: trained parameters in float32, frozen ones and buffers
        as the task's model has them.
    """

    folder: Path
    summary: Summary
    rounds: list[RoundRecord]
    model: Mapping[str, np.ndarray]

    def __post_init__(self) -> None:
        """Let the model be displayed by its shapes."""
        object.__setattr__(self, "model", Weights(self.model))

    @property
    def metrics(self) -> Mapping[str, float]:
        """Final metrics, as ``test_accuracy``."""
        return dict(self.summary.metrics)

    @property
    def reference(self) -> Mapping[str, float]:
        """What a predictor that looks at nothing gives on the same test data, by metric."""
        return reference_of(self.summary)

    @property
    def test_set(self) -> Mapping[str, Any]:
        """What ``test-set.json`` holds: the final model's confusion matrix, classes, calibration.

        Empty where there are no public test data.
        """
        return RunFolder(self.folder).read_json(TEST_SET)

    @property
    def best(self) -> Best | None:
        """Round and value of ``evaluation.best``, whose model is ``best.safetensors``, if any."""
        return self.summary.best

    @classmethod
    def open(cls, folder: str | Path) -> "Result":
        """Read the result of a finished run from its folder.

        Parameters
        ----------
        folder : str or Path
            The run folder.

        Returns
        -------
        Result
            What the run returned.

        Raises
        ------
        ConfigError
            If the folder holds no run, an unfinished one, or damaged files.
        """
        found = RunFolder.open(Path(folder))
        summary, rounds = found.read_summary(), found.read_rounds()
        if not summary or summary.rounds != len(rounds):
            raise ConfigError(
                f"{folder}: the run has no result yet; go on with it: zerosum run --resume {folder}"
            )
        return cls(found.path, summary, rounds, as_arrays(read_model(found.path / MODEL)))

    def load_into(self, model: nn.Module, *, best: bool = False) -> nn.Module:
        """Load the run's model into a module, strictly: every entry, or nothing.

        Parameters
        ----------
        model : torch.nn.Module
            As the task's ``model()`` makes it; overwritten. Its mode (train or eval) stays.
        best : bool
            Whether to load the best model (``evaluation.best``) in place of the last.

        Returns
        -------
        torch.nn.Module
            The same.

        Raises
        ------
        ConfigError
            If names or shapes differ, which the message names; if the run kept no best model.
        """
        if not best:
            state = {name: torch.from_numpy(value) for name, value in self.model.items()}
        elif self.best is None:
            raise ConfigError(
                f"{self.folder}: the run kept no best model: write evaluation.best=accuracy, or "
                "another metric of its tests, and run it again"
            )
        else:
            state = read_model(self.folder / BEST)
            if round_of(self.folder / BEST) != self.best.round:
                raise ConfigError(
                    f"{self.folder / BEST} is not the model of round {self.best.round}, the best "
                    "one: restore the file, or run it again"
                )
        load_whole(model, state, self.folder)
        return model

    def __repr__(self) -> str:
        """Return one line: the model alone would be pages."""
        return result_line(self.folder, self.summary, self.rounds)

    def _repr_html_(self) -> str:
        return result_html(self.folder, self.summary, self.rounds)


def check_learnt(result: Result, reasons: str | None) -> None:
    """Refuse to end well without a client's training in the model; everything is written by now.

    Parameters
    ----------
    result : Result
        With its summary.
    reasons : str or None
        Where the reasons of clients that failed or fell away are to be read; None where none is:
        clients without records, say, write nothing.

    Raises
    ------
    NothingLearntError
        If all rounds were abandoned, or no client trained. It carries the result.
    """
    if why := result.summary.nothing_learnt:
        message = why if reasons is None else f"{why}; the clients' reasons are in {reasons}"
        raise NothingLearntError(f"{message}, the run folder is {result.folder}", result)
