"""Compute what a classifier confuses on public test data, and how well it knows its own errors.

Single-label classifiers alone: one class a target, and outputs of which it is certain how they name
a class. Everything here is a function of the released model and of public test data.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from zerosum.client.task import Task, error_line
from zerosum.client.task_errors import FAILURES
from zerosum.client.training.default_metrics import why_unscored
from zerosum.client.training.evaluation import per_example_losses
from zerosum.client.training.examples import copied

BINS: Final = 15
"""Bins of equal width of the calibration: those of Guo et al. 2017."""

MOST_IN_MATRIX: Final = 100
"""Classes up to which the confusion matrix is kept whole: it has as many entries as their square.
"""

MOST_CLASSES: Final = 1000
"""Classes up to which each has its own line."""

MOST_CONFUSED: Final = 20
"""Pairs of classes that are taken for each other most, kept whatever their number."""

_AGREEMENT: Final = 1e-4
"""Relative difference of float32 losses that are computed two ways, to tell logits from
probabilities: the two differ by a factor wherever they differ."""


@dataclass(frozen=True)
class Classified:
    """Classes and probabilities of test examples.

    Attributes
    ----------
    labels, predictions : numpy.ndarray
        int64, shape (n,), in [0, classes).
    confidences : numpy.ndarray
        float64, shape (n,), in [0, 1]: probability that the model gives its prediction.
    classes : int
        At least two.
    reading : str
        How outputs were read as probabilities.
    undefined : int
        Further examples, whose outputs hold NaN.
    """

    labels: NDArray[np.int64] = field(repr=False)
    predictions: NDArray[np.int64] = field(repr=False)
    confidences: NDArray[np.float64] = field(repr=False)
    classes: int
    reading: str
    undefined: int


def classified(task: Task, outputs: Any, targets: torch.Tensor) -> Classified | str:
    """Read outputs as classes and probabilities, or say why they are none that is certain.

    Parameters
    ----------
    task : Task
        Whose loss tells a logit from a probability, where there is one output an example.
    outputs : object
        Of the whole test set, on the CPU.
    targets : torch.Tensor
        Shape (n, ...).

    Returns
    -------
    Classified or str
        The reason in words, where the task is no single-label classification.
    """
    why = why_unscored(outputs, targets)
    if not why:
        return _of_classes(outputs, targets)
    if isinstance(outputs, torch.Tensor) and _is_binary(outputs, targets):
        return _of_one_output(task, outputs, targets)
    return why


def _is_binary(outputs: torch.Tensor, targets: torch.Tensor) -> bool:
    n = len(targets)
    shapes = ((n,), (n, 1))
    single = tuple(outputs.shape) in shapes and tuple(targets.shape) in shapes
    real = outputs.is_floating_point() and not targets.is_complex()
    return single and real and n > 0 and bool(((targets == 0) | (targets == 1)).all())


def _of_classes(outputs: torch.Tensor, targets: torch.Tensor) -> Classified:
    """Read one output a class: probabilities where they are some already, else logits."""
    values = outputs.double()
    known = ~values.isnan().any(1)
    values, labels = values[known], targets[known].long()
    sums = values.sum(1)
    if len(values) and bool((values >= 0).all()) and bool(((sums - 1).abs() < 1e-4).all()):
        likely, reading = values, "the outputs, which are probabilities"
    else:
        likely, reading = values.softmax(1), "softmax of the outputs"
    predictions = outputs[known].argmax(1)  # as accuracy takes it, ties alike
    confidences = likely.gather(1, predictions[:, None])[:, 0]
    confidences = torch.where(confidences.isnan(), 1.0, confidences)  # of an infinite output
    return Classified(
        labels.numpy(),
        predictions.numpy(),
        confidences.clamp(0, 1).numpy(),
        outputs.shape[1],
        reading,
        int((~known).sum()),
    )


def _of_one_output(task: Task, outputs: torch.Tensor, targets: torch.Tensor) -> Classified | str:
    """Read one output of two classes by what the loss is of it: cross-entropy of either kind."""
    losses = per_example_losses(task, copied(outputs), targets.clone()).double()
    values, truth = outputs.double().reshape(-1), targets.double().reshape(-1)
    known = ~values.isnan()
    functions = torch.nn.functional
    kinds = {"the logistic function of the output": values.sigmoid()}
    entropies = [functions.binary_cross_entropy_with_logits(values, truth, reduction="none")]
    if bool(((values[known] >= 0) & (values[known] <= 1)).all()):
        kinds["the output, which is a probability"] = values
        inside = values.nan_to_num(0.5)
        entropies.append(functions.binary_cross_entropy(inside, truth, reduction="none"))
    for (reading, likely), entropy in zip(kinds.items(), entropies, strict=True):
        if torch.allclose(losses[known], entropy[known], rtol=_AGREEMENT, atol=_AGREEMENT):
            positive = likely[known].numpy()
            predictions = (positive > 0.5).astype(np.int64)
            confidences = np.maximum(positive, 1 - positive)
            labels = truth[known].long().numpy()
            undefined = int((~known).sum())
            return Classified(labels, predictions, confidences, 2, reading, undefined)
    return (
        "the model has one output an example, and its loss is not the cross-entropy of a logit or "
        "of a probability"
    )


def class_figures(found: Classified) -> dict[str, Any]:
    """Return confusion matrix, figures of each class and calibration, as ``test-set.json`` has it.

    Macro figures are means over the classes that the test set has, and no others: a class without
    an example has no recall. Per-class accuracy is recall, right of those of the class.

    Parameters
    ----------
    found : Classified

    Returns
    -------
    dict of str to any
        Numbers, texts and lists, of JSON.
    """
    k = found.classes
    pairs = found.labels * k + found.predictions
    support = np.bincount(found.labels, minlength=k)
    predicted = np.bincount(found.predictions, minlength=k)
    right = np.bincount(found.labels[found.labels == found.predictions], minlength=k)
    present = np.flatnonzero(support)
    figures: dict[str, Any] = {
        "examples": len(pairs),
        "undefined": found.undefined,
        "classes": k,
        "classes_present": len(present),
        "accuracy": _part(right.sum(), len(pairs)),
        "balanced_accuracy": _mean(right[present] / support[present]),
        # 2 tp / (2 tp + fp + fn): defined for each class that has an example.
        "macro_f1": _mean(2 * right[present] / (support + predicted)[present]),
        "confused": _most_confused(pairs, k),
    }
    if k <= MOST_IN_MATRIX:
        figures["confusion"] = np.bincount(pairs, minlength=k * k).reshape(k, k).tolist()
    if k <= MOST_CLASSES:
        figures["per_class"] = [
            {
                "label": label,
                "examples": int(support[label]),
                "predicted": int(predicted[label]),
                "accuracy": _part(right[label], support[label]),
                "precision": _part(right[label], predicted[label]),
            }
            for label in range(k)
        ]
    return figures | {"calibration": calibration(found)}


def class_names(task: Task, classes: int) -> list[str] | str:
    """Return what a task calls its classes, in their order, or say why no names are used.

    Parameters
    ----------
    task : Task
        Its member ``class_names``, if it has one.
    classes : int
        How many there are.

    Returns
    -------
    list of str or str
        Empty where the task does not say.
    """
    try:
        given = getattr(task, "class_names", None)
        if given is None:
            return []
        if isinstance(given, Sequence) and not isinstance(given, str) and len(given) == classes:
            return [str(name) for name in given]
    except FAILURES as error:  # code of the task's
        return f"class_names fails: {error_line(error)}"
    return f"class_names = {given!r:.80}: give a list of {classes} names, one a class"


def calibration(found: Classified, bins: int = BINS) -> dict[str, Any]:
    """Return the reliability diagram and the expected calibration error.

    Guo, Pleiss, Sun and Weinberger 2017, "On Calibration of Modern Neural Networks", equation 3:
    confidences of the predictions in M bins of equal width, ((m - 1)/M, m/M]; the mean of
    ``|accuracy - confidence|`` over bins, weighted by their examples.

    Parameters
    ----------
    found : Classified
    bins : int
        M.

    Returns
    -------
    dict of str to any
        ``ece``; ``reading``, what confidences are; ``reliability``, a bin each, with None where it
        is empty.
    """
    place = np.clip(np.ceil(found.confidences * bins).astype(np.int64) - 1, 0, bins - 1)
    counts = np.bincount(place, minlength=bins)
    right = (found.labels == found.predictions).astype(np.float64)
    sure = np.bincount(place, found.confidences, minlength=bins)
    correct = np.bincount(place, right, minlength=bins)
    total = int(counts.sum())
    return {
        "reading": found.reading,
        "bins": bins,
        "ece": float(np.abs(correct - sure).sum() / total) if total else None,
        "reliability": [
            {
                "from": index / bins,
                "to": (index + 1) / bins,
                "examples": int(counts[index]),
                "confidence": _part(sure[index], counts[index]),
                "accuracy": _part(correct[index], counts[index]),
            }
            for index in range(bins)
        ],
    }


def _most_confused(pairs: NDArray[np.int64], classes: int) -> list[dict[str, int]]:
    """Return the pairs of label and wrong prediction with the most examples, the largest first."""
    values, counts = np.unique(pairs, return_counts=True)
    wrong = values // classes != values % classes
    values, counts = values[wrong], counts[wrong]
    order = np.lexsort((values, -counts))[:MOST_CONFUSED]
    return [
        {
            "label": int(values[i] // classes),
            "predicted": int(values[i] % classes),
            "examples": int(counts[i]),
        }
        for i in order
    ]


def _part(part: Any, whole: Any) -> float | None:
    return float(part / whole) if whole else None


def _mean(values: NDArray[np.float64]) -> float | None:
    return float(values.mean()) if len(values) else None
