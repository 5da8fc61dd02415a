"""Find out what a federated evaluation can sum, and read its metrics off the opened sum."""

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from zerosum.client.spec import TrainSpec
from zerosum.client.task import Task
from zerosum.client.task_errors import FAILURES
from zerosum.client.training.local import LocalTrainer
from zerosum.client.training.trial_step import task_named
from zerosum.client.training.whole_set import (
    OutputsKept,
    has_whole_set_metrics,
    whole_set_metrics,
)
from zerosum.server.config import ConfigError
from zerosum.server.privacy.noised_ratio import NoisedRatio, noised_ratio
from zerosum.server.privacy.protections import federated_metrics
from zerosum.server.private_sum.aggregate import Aggregate
from zerosum.server.spec import Experiment

if TYPE_CHECKING:
    from zerosum.client.task import Dataset

log = logging.getLogger("zerosum.server")

Sample = Callable[[], "Dataset | None"]
"""Loads some records of a task, if it has them."""

KEY = "evaluation.federated_metrics"
_TRIED = 2
"""Records that the first model is scored on, to see which metrics there are."""


def with_metrics(experiment: Experiment, task: Task, samples: Iterable[Sample]) -> Experiment:
    """Resolve ``evaluation.federated_metrics`` by trying the task's first model.

    Under DP a metric is summed only where its largest magnitude is known: a client's part of a
    noised sum is bounded, or nothing protects it.

    Parameters
    ----------
    experiment : Experiment
        Checked.
    task : Task
        What is evaluated.
    samples : iterable of Sample
        Each returns some data of the task or None; the first that has records, and that the
        model can be evaluated on, decides. Clients that fail are counted in the rounds.

    Returns
    -------
    Experiment
        Unchanged where nothing is evaluated on clients' data.

    Raises
    ------
    ConfigError
        If a metric is named that the task lacks.
    TaskError
        If all samples that have records fail.
    """
    if not experiment.evaluation.federated_every:
        return experiment
    asked_for = experiment.evaluation.federated_metrics
    fault = (
        "its model cannot be evaluated on the data that clients have for it, data() with "
        'split = "test"'
    )
    with task_named(experiment.task, fault):
        measured = metric_names(task, experiment.training, experiment.seed, samples)
    if asked_for is not None:
        lacking = [] if measured is None else [name for name in asked_for if name not in measured]
        if lacking:
            raise ConfigError(
                f"{KEY} names {lacking[0]}, which the task does not measure: write metrics that "
                f"it has ({', '.join(measured or ()) or 'it has none'}), or {{}} for the loss alone"
            )
        return experiment
    if measured is None:
        log.warning(
            "%s is absent and there are no records here to find the task's metrics by: clients "
            "are asked for the loss alone; name them, as { accuracy = 1.0 }", KEY,
        )  # fmt: skip
    known = [name for name in measured or () if name == "accuracy"]
    left = [name for name in measured or () if name not in known]
    if experiment.privacy.private and left:
        log.warning(
            "%s is absent: %s cannot be summed under DP without a largest magnitude; give it, as "
            "{ %s = 1.0 }", KEY, ", ".join(left), left[0],
        )  # fmt: skip
    names = known if experiment.privacy.private else sorted(measured or ())
    evaluation = experiment.evaluation.model_copy(
        update={"federated_metrics": dict.fromkeys(names, 1.0)}
    )
    return experiment.model_copy(update={"evaluation": evaluation})


def metric_names(
    task: Task, training: TrainSpec, seed: int, samples: Iterable[Sample]
) -> list[str] | None:
    """Find the names of a task's metrics on the first sample that has records.

    Parameters
    ----------
    task : Task
    training : TrainSpec
        What a trainer is made with.
    seed : int
        The experiment's seed.
    samples
        As for :func:`with_metrics`.

    Returns
    -------
    list of str or None
        None where no sample has records.

    Raises
    ------
    Exception
        The first of the task, where it fails on all samples that have records.
    """
    public = getattr(task, "public_metrics", ())
    trainer = LocalTrainer(task, training, seed=seed)
    start = trainer.initial_vector()
    first: BaseException | None = None
    for load in samples:
        try:
            dataset = load()
            if dataset is None:
                continue
            sums = trainer.evaluate(start, dataset, records=_TRIED)
        except FAILURES as error:
            first = first or error
            continue
        if sums["count"]:
            return [name for name in sums if name not in ("loss", "count", *public)]
    if first is not None:
        raise first
    return None


def tested_names(task: Task, experiment: Experiment, data: "Dataset") -> list[str]:
    """Find the names of what a test on public data reports, the loss first.

    Parameters
    ----------
    task : Task
    experiment : Experiment
        Says how its model is made.
    data : torch Dataset or pair of tensors
        The task's public test data.

    Returns
    -------
    list of str
        Empty where the data hold no record.

    Raises
    ------
    Exception
        Of the task, where its model cannot be evaluated.
    """
    trainer = LocalTrainer(task, experiment.training, seed=experiment.seed)
    # Figures of the whole set are of all of it: of two records there may be none.
    kept = OutputsKept() if has_whole_set_metrics(task) else None
    records, size = (_TRIED, _TRIED) if kept is None else (None, experiment.evaluation.batch_size)
    sums = trainer.evaluate(trainer.initial_vector(), data, size, records, kept)
    if not sums["count"]:
        return []
    whole = {} if kept is None else whole_set_metrics(task, *kept.joined(), measured=sums)
    return [name for name in (*sums, *whole) if name != "count"]


def released_metrics(
    aggregate: Aggregate, experiment: Experiment, loss_unit: float
) -> dict[str, Any]:
    """Read the metrics of a federated evaluation off its opened sum.

    Divided is by the number of those who answered, noised as well: of two released figures.

    Parameters
    ----------
    aggregate : Aggregate
        Sums of the loss, of each metric and of the examples.
    experiment : Experiment
    loss_unit : float
        A loss of 1 in the labels' own unit.

    Returns
    -------
    dict of str to any
        For a line of metrics.
    """
    loss, *sums, count = aggregate.total.tolist()
    metrics = federated_metrics(experiment)
    if experiment.privacy.private:
        std, most = aggregate.noise_std, experiment.evaluation.federated_max_loss
        found = {"loss": noised_ratio(loss, count, std, scale=most * loss_unit)}
        for (name, scale), total in zip(metrics.items(), sums, strict=True):
            least = 0.0 if name == "accuracy" else -1.0
            found[name] = noised_ratio(total, count, std, scale=scale, least=least)
    elif count <= 0:
        return {"federated_status": "no examples"}
    else:
        named = zip(metrics, sums, strict=True)
        found = {"loss": NoisedRatio(loss * loss_unit / count, 0.0)}
        found |= {name: NoisedRatio(total / count, 0.0) for name, total in named}
    record: dict[str, Any] = {"federated_status": "completed"}
    for name, ratio in found.items():
        if ratio is None:
            return {"federated_status": "drowned in noise"}
        record |= ratio.record(f"federated_{name}")
    return record
