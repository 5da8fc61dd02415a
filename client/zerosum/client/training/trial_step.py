"""Take a trial step of training before a run, so that a task that never trains is refused.

Under privacy a client that fails adds zero and its noise, as one that trained does. A task whose
loss has no gradient, or whose model fails in train mode, would give a run that ends well.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from zerosum.client.spec import PrivacySpec, TrainSpec
from zerosum.client.task import Task, TaskError, error_line
from zerosum.client.task_errors import FAILURES
from zerosum.client.training.dpsgd import ExampleTrainer
from zerosum.client.training.fast import FastTrainer
from zerosum.client.training.local import LocalTrainer
from zerosum.client.training.whole_set import (
    HOOK,
    OutputsKept,
    has_whole_set_metrics,
    not_finite,
    whole_set_metrics,
)

if TYPE_CHECKING:
    from zerosum.client.task import Dataset

log = logging.getLogger("zerosum.client")


@contextmanager
def task_named(task: str, fault: str) -> Iterator[None]:
    """Name the task in whatever its code raises inside the block.

    Parameters
    ----------
    task : str
        As the experiment names it.
    fault : str
        What fails, before the error's own line.

    Yields
    ------
    None
        While code of the task runs.

    Raises
    ------
    TaskError
        One line; a TaskError is passed on as it is.
    """
    try:
        yield
    except TaskError:
        raise
    except FAILURES as error:
        raise TaskError(f"task = {task!r}: {fault}: {error_line(error)}") from error


class TrialStep:
    """Takes steps of training from the initial model, on models of its own, and keeps nothing.

    Parameters
    ----------
    task : Task
    training : TrainSpec
    privacy : PrivacySpec
        Says whether single examples are protected, each of which then needs a gradient.
    seed : int
        The experiment's.

    Raises
    ------
    TaskError
        If the task's model cannot be trained by this program at all.
    """

    def __init__(self, task: Task, training: TrainSpec, privacy: PrivacySpec, *, seed: int) -> None:
        self.trainer = LocalTrainer(task, training, seed=seed)
        self._stepper = self.trainer
        if training.precision == "bf16":  # whether its rules know the model shows in a step alone
            self._stepper = FastTrainer(task, training, seed=seed)
        if privacy.private and privacy.by_example:
            self._stepper = ExampleTrainer(task, training, privacy, seed=seed)
        self._start = self.trainer.initial_vector()

    def evaluate(self, dataset: "Dataset") -> None:
        """Compute loss and metrics of a few records, and raise what goes wrong."""
        self.trainer.trial_evaluation(self._start, dataset)

    def score(self, dataset: "Dataset", batch_size: int) -> list[str]:
        """Compute the task's figures of a whole data set with the initial model, where it has any.

        All records, for a figure may not exist of a few: an AUC of one class.

        Parameters
        ----------
        dataset : torch Dataset or pair of tensors
            All public test data.
        batch_size : int
            Records at a time.

        Returns
        -------
        list of str
            Names of those that are NaN or infinite.

        Raises
        ------
        TaskError
            If what the task returns is no figure. Whatever it raises is passed on.
        """
        if not has_whole_set_metrics(self.trainer.task):
            return []
        kept = OutputsKept()
        sums = self.trainer.evaluate(self._start, dataset, batch_size, kept=kept)
        if not kept:
            return []
        figures = whole_set_metrics(self.trainer.task, *kept.joined(), measured=sums)
        return not_finite(figures)

    def take(self, dataset: "Dataset") -> bool:
        """Take one step on one batch of a client's records.

        Returns
        -------
        bool
            False where there are no records to take it on.

        Raises
        ------
        TaskError
            If the step is not finite, or single examples have no gradient. Whatever data, model
            or loss raise is passed on.
        """
        return self._stepper.trial_step(self._start, dataset)


def try_whole_set(trial: TrialStep, task: str, dataset: "Dataset", batch_size: int) -> None:
    """Try ``test_metrics`` on all public test data before a run, not after its last round.

    Parameters
    ----------
    trial : TrialStep
        Of the task.
    task : str
        As the experiment names it.
    dataset : torch Dataset or pair of tensors
        All public test data.
    batch_size : int
        Records at a time.

    Raises
    ------
    TaskError
        One line, where the task's code fails or returns no figures. What is NaN of the initial
        model alone, as a correlation of equal outputs, is logged and not refused.
    """
    with task_named(task, f"{HOOK}(outputs, targets) fails on all of test_data()"):
        lost = trial.score(dataset, batch_size)
    if lost:
        log.warning(
            "%s of the initial model is NaN or infinite: %s; a later model may have a figure",
            HOOK, ", ".join(lost),
        )  # fmt: skip
