"""Score outputs that come without metrics of the task's own: accuracy, only where it is certain."""

from typing import Any

import torch


def accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return whether the largest output is the target's: NaN for outputs with a NaN.

    A NaN is no class, and argmax would name one. An infinite output is a class: masked ones are
    minus infinity.

    Parameters
    ----------
    outputs : torch.Tensor
        Real, shape (n, classes) or (n, positions, classes).
    targets : torch.Tensor
        Integers, shape (n,) or (n, positions).

    Returns
    -------
    torch.Tensor
        Shape of the targets, float32: 0, 1 or NaN.
    """
    right = (outputs.argmax(-1) == targets).float()
    return torch.where(outputs.isnan().any(-1), torch.nan, right)


NUMBERS = "targets are numbers"
"""How the reason begins where nothing is amiss: a task of regression has no accuracy."""


def default_metrics(outputs: Any, targets: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the accuracy where outputs and targets can be nothing but classes; else nothing.

    Parameters
    ----------
    outputs : object
        What the model returned.
    targets : torch.Tensor
        Shape (n, ...).

    Returns
    -------
    dict of str to torch.Tensor
        ``accuracy`` of shape (n,), or nothing.
    """
    return {} if why_unscored(outputs, targets) else {"accuracy": accuracy(outputs, targets)}


def why_unscored(outputs: Any, targets: torch.Tensor) -> str:
    """Say why outputs and targets have no accuracy that is certain.

    Certain are integers of shape (n,) that all name one of two or more real outputs, shape
    (n, classes). With one output alone, argmax is always class 0; a threshold would have to know
    logits from probabilities, and nothing here does.

    Parameters
    ----------
    outputs : object
        What the model returned.
    targets : torch.Tensor
        Shape (n, ...).

    Returns
    -------
    str
        Empty where accuracy is certain.
    """
    if not isinstance(outputs, torch.Tensor):
        return f"the model returns a {type(outputs).__name__}, not one tensor"
    if targets.is_floating_point() or targets.is_complex():
        if not bool(((targets == 0) | (targets == 1)).all()):
            return f"{NUMBERS}, not classes"
        return "targets are 0.0 or 1.0 in floating point, not integers that name a class"
    if targets.dim() != 1:
        return f"targets have shape {_shape(targets)}, not one class an example"
    if outputs.dim() == 1 or (outputs.dim() == 2 and outputs.shape[1] == 1):
        return (
            "the model has one output an example, a logit or a probability, and nothing says which"
        )
    if outputs.dim() != 2 or outputs.is_complex():
        fault = f"outputs have shape {_shape(outputs)} and type {outputs.dtype}"
        return f"{fault}, not one real number a class"
    named = targets.long()
    outside = named[(named < 0) | (named >= outputs.shape[1])]
    if len(outside):
        return f"label {int(outside[0])} is none of the model's {outputs.shape[1]} outputs"
    return ""


def _shape(values: torch.Tensor) -> str:
    return f"(n{''.join(f', {size}' for size in values.shape[1:])})"
