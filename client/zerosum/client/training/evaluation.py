"""Evaluate a model on records: losses and metrics an example, and their sums."""

from typing import TYPE_CHECKING

import torch
from torch import nn

from zerosum.client.task import Task, TaskError
from zerosum.client.training.default_metrics import default_metrics, why_unscored
from zerosum.client.training.examples import Examples, as_examples, copied
from zerosum.client.training.metric_names import ALLOWED, is_metric_name
from zerosum.client.training.model_checks import called
from zerosum.client.training.torch_seed import seeded
from zerosum.client.training.whole_set import OutputsKept

if TYPE_CHECKING:
    from zerosum.client.task import Dataset


def evaluate(
    model: nn.Module, dataset: "Dataset", task: Task, batch_size: int = 1000
) -> dict[str, float]:
    """Sum the loss and each metric over a data set.

    Parameters
    ----------
    model : nn.Module
        Put into evaluation mode.
    dataset : torch Dataset or pair of tensors
        The records.
    task : Task
        Supplies the loss and the metrics.
    batch_size : int
        Records at a time.

    Returns
    -------
    dict of str to float
        ``loss``, each metric, and ``count``. Sums, because they add up over clients; divide by
        ``count`` for means. An empty data set gives ``loss`` and ``count`` alone, both 0.

    Raises
    ------
    TaskError
        If a metric or the loss is not one value per example.
    """
    real = (value for value in model.parameters() if value.is_floating_point())
    like = next(real, torch.zeros(()))  # inputs are no complex numbers where a frozen weight is one
    examples = as_examples(dataset, like.dtype, like.device)
    return evaluated_sums(model, examples, task, batch_size)[0]


def evaluated_sums(
    model: nn.Module,
    examples: Examples,
    task: Task,
    batch_size: int,
    records: int | None = None,
    kept: OutputsKept | None = None,
) -> tuple[dict[str, float], str, int]:
    """Sum the loss and each metric over the first records, and say what is missing.

    Parameters
    ----------
    model : nn.Module
        Put into evaluation mode.
    examples : Examples
        The records, on the model's device.
    task : Task
        Supplies the loss and the metrics.
    batch_size : int
        Records at a time.
    records : int, optional
        How many to evaluate; default all.
    kept : OutputsKept, optional
        Is given outputs and targets of each batch.

    Returns
    -------
    sums : dict of str to float
        As :func:`evaluate` returns them.
    unscored : str
        Why there is no accuracy; empty where there is, or the task has metrics.
    lost : int
        Records with a loss or a metric that is NaN or infinite, and so the sum of all.
    """
    sums: dict[str, float] = {"loss": 0.0}
    known: set[str] | None = None
    unscored, lost = "", 0
    count = len(examples) if records is None else min(records, len(examples))
    model.eval()
    with torch.no_grad(), seeded(0):  # seeded: a data set with random transforms stays repeatable
        for start in range(0, count, batch_size):
            inputs, targets = examples.take(torch.arange(start, min(start + batch_size, count)))
            outputs = called(model, inputs)
            if kept is not None:  # before a metric or the loss may work in place
                kept.add(outputs, targets)
            values = per_example_metrics(task, outputs, targets)
            if not values and getattr(task, "metrics", None) is None:
                unscored = unscored or why_unscored(outputs, targets)
            known = set(values) if known is None else known & values.keys()
            values["loss"] = per_example_losses(task, outputs, targets)
            finite = torch.ones(len(targets), dtype=torch.bool, device=values["loss"].device)
            for name, value in values.items():
                sums[name] = sums.get(name, 0.0) + value.double().sum().item()
                finite &= value.isfinite().to(finite.device)
            lost += int((~finite).sum())
    # A metric that one batch has and another lacks is none of the data set: its sum over the
    # batches that have it would be divided by the records of all.
    common = {"loss"} | (known or set())
    sums = {name: value for name, value in sums.items() if name in common}
    return {**sums, "count": float(count)}, unscored, lost


def per_example_losses(task: Task, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the task's losses, one an example.

    Parameters
    ----------
    task : Task
        Supplies the loss.
    outputs : torch.Tensor
        The model's, of n examples along dimension 0.
    targets : torch.Tensor
        Shape (n, ...).

    Returns
    -------
    torch.Tensor
        Shape (n,).

    Raises
    ------
    TaskError
        If the loss returns anything of another shape.
    """
    losses = task.loss(outputs, targets)
    if not isinstance(losses, torch.Tensor):
        raise TaskError(
            f"loss returned a {type(losses).__name__} and no tensor; return one loss an example, "
            "of shape (n,)"
        )
    if losses.shape != targets.shape[:1]:
        raise TaskError(
            f"loss returned shape {tuple(losses.shape)} for {len(targets)} examples; "
            'return one loss an example, as with reduction="none"'
        )
    return losses


def per_example_metrics(
    task: Task, outputs: torch.Tensor, targets: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Return the task's metrics, or accuracy where it has none and accuracy is certain.

    Parameters
    ----------
    task : Task
        May have ``metrics(outputs, targets)``; otherwise
        :mod:`zerosum.client.training.default_metrics` decides.
    outputs : torch.Tensor
        The model's, of n examples along dimension 0.
    targets : torch.Tensor
        Shape (n, ...).

    Returns
    -------
    dict of str to torch.Tensor
        Each of shape (n,).

    Raises
    ------
    TaskError
        If a metric has no usable name, or is not one real number an example.
    """
    own = getattr(task, "metrics", None)
    if own is None:
        return default_metrics(outputs, targets)
    # Copies: a metric that works in place would change what the loss is computed from.
    values: dict[str, torch.Tensor] = dict(own(copied(outputs), copied(targets)))
    for name, value in values.items():
        _check_metric(name, value, len(targets))
    return values


def _check_metric(name: object, value: object, examples: int) -> None:
    """Refuse a metric of no name, or one that is not a real number an example."""
    if not is_metric_name(name):
        raise TaskError(f"metrics returned the name {name!r}; give it another one, {ALLOWED}")
    if not isinstance(value, torch.Tensor):
        fault = f"a {type(value).__name__} and no tensor"
    elif value.shape != (examples,):
        fault = f"shape {tuple(value.shape)} for {examples} examples"
    elif value.is_complex():
        fault = f"{value.dtype} and no real numbers"
    else:
        return
    raise TaskError(
        f"metrics returned {name} as {fault}; return one real number an example, of shape (n,)"
    )
