"""Compute a task's figures of a whole data set at once: those that no mean over examples gives.

An area under the curve, a macro F1 or a calibration error needs all outputs and targets together.
A task has them by ``test_metrics(outputs, targets) -> Mapping[str, float]``: outputs and targets of
all public test data, in their order, on the CPU. Its figures are of public data alone, never of a
federated evaluation, where no sum over clients could give them.
"""

import copy
import math
from collections.abc import Collection, Iterable, Mapping, MutableMapping
from typing import Any

import numpy as np
import torch

from zerosum.client.task import Task, TaskError
from zerosum.client.training.examples import copied, moved
from zerosum.client.training.metric_names import ALLOWED, is_metric_name
from zerosum.client.training.torch_seed import seeded

_CPU = torch.device("cpu")

HOOK = "test_metrics"
"""The optional method of a task."""


class OutputsKept:
    """Outputs and targets of the batches of an evaluation, on the CPU."""

    def __init__(self) -> None:
        self._outputs: list[Any] = []
        self._targets: list[torch.Tensor] = []

    def add(self, outputs: Any, targets: torch.Tensor) -> None:
        """Keep a copy of a batch's outputs and targets.

        Parameters
        ----------
        outputs : tensor or structure of tensors
            Examples along dimension 0.
        targets : torch.Tensor
            Shape (n, ...).
        """
        self._outputs.append(copied(moved(outputs, _CPU)))
        self._targets.append(copied(moved(targets, _CPU)))

    def joined(self) -> tuple[Any, torch.Tensor]:
        """Return all outputs and targets, in the data set's order.

        Dicts, tuples and lists of outputs are of the form that the model gives them, each tensor in
        them joined along dimension 0.

        Returns
        -------
        outputs : tensor or structure of tensors
        targets : torch.Tensor

        Raises
        ------
        TaskError
            If outputs of two batches differ in structure, or in another dimension than the first.
        """
        return _joined(self._outputs, "outputs"), _joined(self._targets, "targets")

    def __bool__(self) -> bool:
        return bool(self._targets)


def has_whole_set_metrics(task: Task) -> bool:
    """Return whether a task has figures of its whole test set."""
    return getattr(task, HOOK, None) is not None


def whole_set_metrics(
    task: Task, outputs: Any, targets: torch.Tensor, measured: Collection[str] = ()
) -> dict[str, float]:
    """Return what a task's ``test_metrics`` says, checked; nothing where it has none.

    Parameters
    ----------
    task : Task
        May have ``test_metrics(outputs, targets)``.
    outputs : tensor or structure of tensors
        Of all examples; the task is given copies.
    targets : torch.Tensor
        Shape (n, ...).
    measured : collection of str
        Names of loss and metrics that are measured an example: none may be given twice.

    Returns
    -------
    dict of str to float
        NaN or infinite where the task says so.

    Raises
    ------
    TaskError
        If what is returned is no mapping of usable names to real numbers. Whatever the task raises
        is passed on.
    """
    own = getattr(task, HOOK, None)
    if own is None:
        return {}
    with torch.no_grad(), seeded(0):
        values = own(copied(outputs), targets.clone())
    if not isinstance(values, Mapping):
        raise TaskError(
            f"{HOOK} returned a {type(values).__name__} and no mapping; return names with one real "
            'number each, as {"auc": 0.5}'
        )
    return {_name(name, measured): _number(name, value) for name, value in values.items()}


def not_finite(values: Mapping[str, float]) -> list[str]:
    """Return the names of figures that are NaN or infinite."""
    return [name for name, value in values.items() if not math.isfinite(value)]


def _name(name: object, measured: Collection[str]) -> str:
    if not is_metric_name(name):
        raise TaskError(f"{HOOK} returned the name {name!r}; give it another one, {ALLOWED}")
    if name in measured:
        raise TaskError(
            f"{HOOK} returned {name}, which is measured an example already, by metrics() or as the "
            "default accuracy: give it another name"
        )
    return str(name)


def _number(name: object, value: object) -> float:
    """Return one real number as a float: Python's, numpy's, or a tensor without dimensions."""
    fault = f"a {type(value).__name__}"
    if isinstance(value, torch.Tensor | np.ndarray):
        fault = f"shape {tuple(value.shape)} of {value.dtype}"
        value = value.item() if value.ndim == 0 else None
    elif isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TaskError(f"{HOOK} returned {name} as {fault}; return one real number a name")
    try:
        return float(value)
    except OverflowError:
        raise TaskError(f"{HOOK} returned {name} as a number beyond any float") from None


def _joined(parts: list[Any], name: str) -> Any:
    """Join what batches gave, by the structure of the first."""
    first = parts[0]
    if isinstance(first, torch.Tensor):
        return _one_tensor(parts, name)
    if isinstance(first, Mapping):
        _check_alike((set(part) for part in parts), name)
        values = {k: _joined([part[k] for part in parts], f"{name}[{k!r}]") for k in first}
        if type(first) is dict or not isinstance(first, MutableMapping):
            return values
        whole = copy.copy(first)  # of a class of its own, whose values may be attributes too
        whole.update(values)
        return whole
    if isinstance(first, tuple | list):
        _check_alike((len(part) for part in parts), name)
        items = [
            _joined(list(same), f"{name}[{place}]")
            for place, same in enumerate(zip(*parts, strict=True))
        ]
        if hasattr(first, "_fields"):
            return type(first)(*items)
        return tuple(items) if isinstance(first, tuple) else items
    return first if all(part is first or part == first for part in parts) else parts


def _one_tensor(parts: list[torch.Tensor], name: str) -> torch.Tensor:
    if not all(isinstance(part, torch.Tensor) for part in parts):
        raise TaskError(f"{name}: a tensor in one batch of test data and none in another")
    if parts[0].dim() == 0:  # of a batch, not of an example, as a loss that the model returns
        return torch.stack(parts)
    if len({part.shape[1:] for part in parts}) > 1:
        shapes = sorted({tuple(part.shape[1:]) for part in parts})
        raise TaskError(
            f"{name}: batches of test data have shapes (n, ...) with {shapes[0]} and {shapes[-1]}, "
            f"and cannot be joined for {HOOK}: pad all records to one length"
        )
    return torch.cat(parts)


def _check_alike(forms: Iterable[Any], name: str) -> None:
    first, *others = forms
    if any(form != first for form in others):
        raise TaskError(f"{name}: batches of test data differ in structure: give all one form")
