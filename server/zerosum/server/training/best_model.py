"""Keep the best model of a run by a metric on public test data, and end a run that waits in vain.

Nothing here is state of its own: the best round follows from the rounds' records, and its file from
the checkpoint. So a run that was killed between any two writes goes on to the same end.
"""

import json
import logging
from collections.abc import Callable, Iterable

import torch
from safetensors.torch import save as save_tensors

from zerosum.client.nearest_word import did_you_mean
from zerosum.client.task import Task
from zerosum.client.training.seeded_task import public_records
from zerosum.client.training.trial_step import task_named
from zerosum.server.config import ConfigError
from zerosum.server.runs.best_round import BestSoFar
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
        If the task has no public test data, or no such metric on them, or one of which nothing says
        whether large values are good.
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
    try:
        _ = experiment.evaluation.largest_is_best
    except ValueError as error:
        raise ConfigError(str(error)) from None


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
