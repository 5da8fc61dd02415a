"""Keep the best model of a run by a metric on public test data, and end a run that waits in vain.

Nothing here is state of its own: it follows from the rounds' records, and the file of the best
model from the checkpoint. So a run that was killed between any two writes goes on to the same end.
"""

import json
import logging
import math
from collections.abc import Callable, Iterable

import torch
from safetensors.torch import save as save_tensors

from zerosum.client.nearest_word import did_you_mean
from zerosum.client.task import Task
from zerosum.client.training.seeded_task import public_records
from zerosum.client.training.trial_step import task_named
from zerosum.server.config import ConfigError
from zerosum.server.runs.records import Best, RoundRecord
from zerosum.server.runs.run_folder import BEST, RunFolder
from zerosum.server.runs.saved_model import round_of
from zerosum.server.spec import EvaluationSpec, Experiment
from zerosum.server.training.federated_metrics import tested_names

log = logging.getLogger("zerosum.server")


def check_best(experiment: Experiment, task: Task) -> None:
    """Refuse an ``evaluation.best`` that no test of the run is going to report.

    Parameters
    ----------
    experiment : Experiment
        Checked.
    task : Task
        What is trained.

    Raises
    ------
    ConfigError
        If the task has no public test data, or no such metric on them.
    TaskError
        If its model cannot be evaluated on them.
    """
    name = experiment.evaluation.best
    if name is None:
        return
    data = public_records(task, experiment.seed)
    with task_named(experiment.task, "its model cannot be evaluated on test_data()"):
        known = None if data is None else tested_names(task, experiment, data)
    if not known:
        raise ConfigError(
            f'evaluation.best = "{name}": the task has no public test data to find the best model '
            "by: give it test_data(), or take out evaluation.best"
        )
    if name not in known:
        raise ConfigError(
            f'evaluation.best = "{name}" is not measured on the task\'s test data, which have '
            f"{', '.join(known)}{did_you_mean(name, known)}"
        )


class BestSoFar:
    """Follows which round is the best, and for how long none was better.

    Parameters
    ----------
    evaluation : EvaluationSpec
        Its ``best`` may be absent: then there is none, and no end.
    records : iterable of RoundRecord
        Of the rounds so far.

    Attributes
    ----------
    best : Best or None
        The first round with the best value. Never one with NaN or infinity, nor one before any
        client's training is in the model.
    """

    def __init__(self, evaluation: EvaluationSpec, records: Iterable[RoundRecord] = ()) -> None:
        self._spec = evaluation
        self._reference: float | None = None
        self._waited = 0
        self._looked = False
        self.best: Best | None = None
        for record in records:
            self.take(record)

    def take(self, record: RoundRecord) -> bool:
        """Follow the next round.

        Parameters
        ----------
        record : RoundRecord

        Returns
        -------
        bool
            Whether its model is the best so far.
        """
        spec = self._spec
        if spec.best is None:
            return False
        value = record.metrics.get(f"test_{spec.best}")
        self._looked = value is not None
        known = value is not None and math.isfinite(value) and not record.untrained
        if known and value is not None and self._improves(value):
            self._reference, self._waited = value, 0
        elif record.completed:
            # A round without enough clients says nothing of the training, however many there are.
            self._waited += 1
        if not known or value is None:
            return False
        if self.best is not None and self._gain(value, self.best.value) <= 0:
            return False
        mode = "max" if spec.largest_is_best else "min"
        self.best = Best(metric=spec.best, mode=mode, round=record.round, value=value)
        return True

    @property
    def out_of_patience(self) -> bool:
        """Return whether the run ends with the latest round: it was tested, and waited for."""
        patience = self._spec.patience
        return patience is not None and self._looked and self._waited >= patience

    def _improves(self, value: float) -> bool:
        """Return whether a value counts for patience: it is beyond the last such one by more."""
        if self._reference is None:
            return True
        return self._gain(value, self._reference) > self._spec.min_delta

    def _gain(self, value: float, over: float) -> float:
        return value - over if self._spec.largest_is_best else over - value


class BestModel:
    """Keeps ``best.safetensors`` in step with the rounds.

    The file is written after the checkpoint of its round. So while the checkpoint is of that round,
    the file can be made from it again; and before the next one is written, it is on the disk.

    Parameters
    ----------
    evaluation : EvaluationSpec
    folder : RunFolder
    records : sequence of RoundRecord
        Of the rounds so far.
    state : callable
        Returns the current model's whole state dict.
    """

    def __init__(
        self,
        evaluation: EvaluationSpec,
        folder: RunFolder,
        records: Iterable[RoundRecord],
        state: Callable[[], dict[str, torch.Tensor]],
    ) -> None:
        self._evaluation, self._folder, self._state = evaluation, folder, state
        self.so_far = BestSoFar(evaluation, records)

    def restore(self, done: int) -> None:
        """Make sure of the file, as a run goes on.

        Parameters
        ----------
        done : int
            Rounds that are over: the current model is that of the last.

        Raises
        ------
        ConfigError
            If the best round is an earlier one, and its model is gone.
        """
        best = self.so_far.best
        if best is None:
            return
        if best.round == done:
            self._write(best)
        elif round_of(self._folder.path / BEST) != best.round:
            raise ConfigError(
                f"--resume {self._folder.path}: {BEST} is not the model of round {best.round}, "
                "the best one: restore the file, or start a new run with --out"
            )

    def follow(self, record: RoundRecord) -> None:
        """Follow a round whose checkpoint is written, and keep its model if it is the best."""
        if self.so_far.take(record) and self.so_far.best is not None:
            self._write(self.so_far.best)

    @property
    def ends_run(self) -> bool:
        """Return whether patience is over, and say so once."""
        if not self.so_far.out_of_patience:
            return False
        best, spec = self.so_far.best, self._evaluation
        since = "no round had a value of it" if best is None else f"the best is round {best.round}"
        log.info(
            "evaluation.patience = %d: %s has not improved for so many rounds (%s), so the run "
            "ends", spec.patience, spec.best, since,
        )  # fmt: skip
        return True

    def _write(self, best: Best) -> None:
        facts = {"zerosum": json.dumps({"round": best.round, "metric": best.metric})}
        self._folder.write(BEST, save_tensors(self._state(), metadata=facts))
