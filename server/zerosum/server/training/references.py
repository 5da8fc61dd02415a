"""Compute what a predictor that looks at nothing gives on public test data: a reference.

An accuracy of 90 % is none where nine in ten examples are of one class. The constant predictor is
the best one of the test set itself, its most frequent class or its mean: an upper bound of what a
constant could be known to give before. A reference is given only where the same rule gives the
model's own figure from its outputs, so that both are of one kind.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch

from zerosum.client.task import Task, error_line
from zerosum.client.task_errors import FAILURES
from zerosum.client.training.default_metrics import NUMBERS
from zerosum.client.training.evaluation import per_example_losses, per_example_metrics
from zerosum.server.runs.reference_words import MAJORITY, MEAN
from zerosum.server.training.class_figures import Classified

_AROUND: Final = (-0.5, -0.25, 0.25, 0.5)
"""Steps from the mean, in deviations of the targets, of which none may have a smaller loss."""

_SAME: Final = 1e-6
"""Difference of two accuracies of the same examples, one summed in float32."""


def reference(
    task: Task,
    outputs: Any,
    targets: torch.Tensor,
    found: Classified | str,
    measured: Mapping[str, float],
) -> dict[str, Any]:
    """Return the figures of the constant predictor, under the names of the model's.

    Parameters
    ----------
    task : Task
        Supplies loss and metrics.
    outputs : object
        The final model's, of the whole test set.
    targets : torch.Tensor
        Shape (n, ...).
    found : Classified or str
        Of :func:`zerosum.server.training.class_figures.classified`.
    measured : mapping of str to float
        The model's figures, as ``test_accuracy``.

    Returns
    -------
    dict of str to any
        ``predictor``, ``metrics`` and, of classes, ``label`` and ``loss``, that of the logarithms
        of their parts; or ``reason``, why there is none.
    """
    try:
        if isinstance(found, Classified):
            labels = torch.from_numpy(found.labels)
            right = float((labels == torch.from_numpy(found.predictions)).double().mean())
            majority = _majority(labels, right, measured)
            return majority | _constant_loss(task, outputs, targets, majority, measured)
        if found.startswith(NUMBERS):
            return _mean_predictor(task, outputs, targets, measured)
        return _of_positions(outputs, targets, measured, found)
    except FAILURES as error:  # code of the task's, on outputs that no model gave it
        return {"reason": f"a constant predictor cannot be scored: {error_line(error)}"}


def _majority(labels: torch.Tensor, right: float, measured: Mapping[str, float]) -> dict[str, Any]:
    """Return the part of the most frequent label, where accuracy is the part that is right."""
    given = measured.get("test_accuracy")
    if not labels.numel():
        return {"reason": "no test example has outputs that are numbers"}
    if given is None:
        return {"reason": "the task has no accuracy"}
    if math.isfinite(given) and abs(given - right) > _SAME:
        return {"reason": "the task's accuracy is not the part of test examples that is right"}
    values, counts = np.unique(labels.numpy(), return_counts=True)
    most = int(counts.argmax())
    part = float(counts[most] / counts.sum())
    return {
        "predictor": MAJORITY,
        "label": int(values[most]),
        "metrics": {"test_accuracy": part},
    }


def _constant_loss(
    task: Task,
    outputs: Any,
    targets: torch.Tensor,
    majority: Mapping[str, Any],
    measured: Mapping[str, float],
) -> dict[str, float]:
    """Return the loss of one constant output; nothing where outputs are no row of numbers a class.

    The output is the logarithm of each class's part: no constant has a smaller cross-entropy
    (Gibbs' inequality), and under another loss it is a constant all the same.
    """
    fits = isinstance(outputs, torch.Tensor) and outputs.dim() == 2 and targets.dim() == 1
    if not fits or outputs.shape[1] < 2 or "test_loss" not in measured or "metrics" not in majority:
        return {}
    if targets.is_floating_point() or not 0 <= int(targets.min()) <= int(targets.max()):
        return {}
    counts = torch.bincount(targets.long(), minlength=outputs.shape[1])[: outputs.shape[1]]
    # A class without an example has no part in the mean; its logarithm must be finite all the same.
    logits = (counts / counts.sum()).clamp(min=torch.finfo(torch.float32).tiny).log()
    constant = logits.to(outputs.dtype).expand(outputs.shape).contiguous()
    try:
        loss = float(per_example_losses(task, constant, targets.clone()).double().mean())
    except FAILURES:  # code of the task's: then there is the majority's accuracy alone
        return {}
    return {"loss": loss * float(getattr(task, "loss_unit", 1.0))} if math.isfinite(loss) else {}


def _of_positions(
    outputs: Any, targets: torch.Tensor, measured: Mapping[str, float], why: str
) -> dict[str, Any]:
    """Return the most frequent label's part of all positions: of sequences, or pixels."""
    given = measured.get("test_accuracy")
    if not isinstance(outputs, torch.Tensor) or targets.dim() < 2 or given is None:
        return {"reason": why}
    layouts = [
        outputs.argmax(axis)
        for axis in (outputs.dim() - 1, 1)
        if outputs.dim() == targets.dim() + 1
        and outputs.shape[:axis] + outputs.shape[axis + 1 :] == targets.shape
    ]
    for predictions in layouts:
        right = float((predictions == targets).double().mean())
        if not math.isfinite(given) or abs(given - right) <= _SAME:
            return _majority(targets, right, measured)
    return {"reason": "the task's accuracy is not the part of all positions that is right"}


def _mean_predictor(
    task: Task, outputs: Any, targets: torch.Tensor, measured: Mapping[str, float]
) -> dict[str, Any]:
    """Return loss and metrics of the mean of the targets, given for every example."""
    if not isinstance(outputs, torch.Tensor) or outputs[0:1].numel() != targets[0:1].numel():
        return {"reason": "outputs have not the form of targets, so none is their mean"}
    mean, spread = targets.double().mean(0, keepdim=True), targets.double().std(0, keepdim=True)

    def constant(step: float) -> torch.Tensor:
        value = (mean + step * spread.nan_to_num(0.0)).to(outputs.dtype)
        return value.reshape(1, *outputs.shape[1:]).expand(outputs.shape).contiguous()

    def loss(step: float) -> float:
        return float(per_example_losses(task, constant(step), targets.clone()).double().mean())

    least = loss(0.0)
    # Outputs may be logarithms of rates, or logits: their loss is not least at the targets' mean.
    if any(loss(step) < least for step in _AROUND):
        return {"reason": "the loss is not least near the mean of the targets"}
    figures = {"loss": least * float(getattr(task, "loss_unit", 1.0))}
    values = per_example_metrics(task, constant(0.0), targets.clone())
    figures |= {name: float(value.double().mean()) for name, value in values.items()}
    named = {f"test_{name}": value for name, value in figures.items() if math.isfinite(value)}
    return {"predictor": MEAN, "metrics": {n: v for n, v in named.items() if n in measured}}
