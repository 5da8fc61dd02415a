"""Train one client for one step before a run, so that a task that never trains is refused."""

import logging

from zerosum.client.task import ClientInfo, Task, TaskError, error_line
from zerosum.client.task_errors import FAILURES
from zerosum.client.training.local import LocalTrainer
from zerosum.client.training.seeded_task import client_records, public_records
from zerosum.client.training.trial_step import TrialStep, task_named, try_whole_set
from zerosum.server.spec import Experiment

MOST_TRIED = 20
"""Clients tried, spread over the roster, before a task is refused: some may fail, or be empty."""

log = logging.getLogger("zerosum.simulations")


def take_trial_step(task: Task, count: int, experiment: Experiment) -> LocalTrainer:
    """Train one client for one step, and evaluate the initial model on a few test records.

    A client that fails is no reason to refuse a run, which goes on without it and counts it. So
    further clients are tried until one takes its step. Where each that was tried fails, the task
    or the settings are at fault. Clients without records say nothing.

    Parameters
    ----------
    task : Task
    count : int
        Clients.
    experiment : Experiment

    Returns
    -------
    LocalTrainer
        Made for the trial step: knows the model's layout, and holds the initial model.

    Raises
    ------
    TaskError
        One line that names the task, the class of the error and its text.
    """
    trial = TrialStep(task, experiment.training, experiment.privacy, seed=experiment.seed)
    _step_of_some_client(trial, task, count, experiment)
    with task_named(experiment.task, "its model cannot be evaluated on test_data()"):
        public = public_records(task, experiment.seed)
        if public is not None:
            trial.evaluate(public)
            try_whole_set(trial, experiment.task, public, experiment.evaluation.batch_size)
    return trial.trainer


def _step_of_some_client(trial: TrialStep, task: Task, count: int, experiment: Experiment) -> None:
    first: tuple[int, BaseException] | None = None
    failed, step = 0, max(1, -(-count // MOST_TRIED))
    for index in range(0, count, step):
        client = ClientInfo(index=index, count=count, seed=experiment.seed)
        try:
            dataset = client_records(task, client)
            trial.evaluate(dataset)
            if trial.take(dataset):
                break
        except FAILURES as error:
            failed += 1
            first = first or (index, error)
    else:
        if first is not None:
            raise _refusal(experiment, *first, failed) from first[1]
    if first is not None:
        log.warning("client %d fails to train: %s", first[0], error_line(first[1]))


def _refusal(experiment: Experiment, index: int, error: BaseException, failed: int) -> TaskError:
    """Return the error of a refused run: a TaskError as it is, any other with its task's name."""
    if isinstance(error, TaskError):
        return TaskError(str(error))
    others = f", and {failed - 1} more fail" if failed > 1 else ""
    return TaskError(
        f"task = {experiment.task!r}: its data(), model or loss() fails for client {index}"
        f"{others}: {error_line(error)}"
    )
