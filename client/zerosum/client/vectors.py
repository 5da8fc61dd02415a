"""A model as one flat vector, and back.

The vector holds the trainable parameters, in the order of ``named_parameters``; parameters
shared between modules appear once. Frozen parameters and buffers are not in it: every party
builds the same ones from the task and the experiment's seed. Running statistics of batch
normalisation would leave a client unclipped and unaccounted, so models that keep them are
refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Self

import numpy as np
import torch
from torch import nn

from zerosum.client.task import TaskError


@dataclass(frozen=True)
class Layout:
    """Names and shapes of the parameters in a flat vector, in order."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, model: nn.Module) -> Self:
        """Return a model's layout.

        Raises
        ------
        TaskError
            If the model keeps running statistics or has nothing to train.
        """
        for name, module in model.named_modules():
            if getattr(module, "running_mean", None) is not None:
                raise TaskError(
                    f"model: {name or 'it'} ({type(module).__name__}) keeps running statistics of "
                    "private data; use GroupNorm or LayerNorm, or track_running_stats=False"
                )
        found = trainable(model)
        if not found:
            raise TaskError("model: no parameter requires a gradient, so there is nothing to train")
        return cls(tuple(found), tuple(tuple(value.shape) for value in found.values()))

    @property
    def length(self) -> int:
        """Coordinates of the vector (d)."""
        return sum(prod(shape) for shape in self.shapes)

    @property
    def slices(self) -> list[slice]:
        """Where each parameter lies in the vector."""
        ends = np.cumsum([0, *(prod(shape) for shape in self.shapes)]).tolist()
        return [slice(start, end) for start, end in pairwise(ends)]

    @property
    def layers(self) -> list[slice]:
        """Where each layer lies: neighbouring parameters of one module, as weight and bias."""
        found: list[tuple[str, slice]] = []
        for name, where in zip(self.names, self.slices, strict=True):
            module = name.rpartition(".")[0]
            if found and found[-1][0] == module:
                where = slice(found.pop()[1].start, where.stop)
            found.append((module, where))
        return [where for _, where in found]


@dataclass(frozen=True)
class FlatModel:
    """A model whose parameters and gradients are views of two flat tensors of shape (d,).

    Loading a model is then one copy, and an optimizer step one operation on one tensor.
    """

    model: nn.Module
    layout: Layout
    weights: torch.Tensor
    gradients: torch.Tensor


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that require a gradient, by name, each once."""
    return {name: value for name, value in model.named_parameters() if value.requires_grad}


def flatten(model: nn.Module) -> FlatModel:
    """Move a model's parameters into one flat tensor, in place.

    Raises
    ------
    TaskError
        If the model has no layout, or mixes dtypes or devices.
    """
    layout = Layout.of(model)
    parameters = list(trainable(model).values())
    kinds = {(value.dtype, value.device) for value in parameters}
    if len(kinds) > 1:
        raise TaskError("model: all parameters must have one dtype and lie on one device")
    weights = torch.cat([value.detach().reshape(-1) for value in parameters])
    gradients = torch.zeros_like(weights)
    for value, where in zip(parameters, layout.slices, strict=True):
        value.data = weights[where].view(value.shape)
        value.grad = gradients[where].view(value.shape)
    return FlatModel(model, layout, weights, gradients)


def parameters_to_vector(model: nn.Module) -> np.ndarray:
    """Return a model's trainable parameters as a float32 array of shape (d,), a copy."""
    Layout.of(model)
    parts = [value.detach().reshape(-1).float().cpu() for value in trainable(model).values()]
    return torch.cat(parts).numpy().copy()


@torch.no_grad()
def load_vector(model: nn.Module, vector: np.ndarray) -> None:
    """Copy a vector of shape (d,) into a model's trainable parameters.

    Raises
    ------
    ValueError
        If the length differs from the model's.
    """
    layout = Layout.of(model)
    _check_length(vector, layout)
    values = torch.tensor(vector)
    for parameter, where in zip(trainable(model).values(), layout.slices, strict=True):
        parameter.copy_(values[where].view(parameter.shape))


def to_state_dict(vector: np.ndarray, layout: Layout) -> dict[str, np.ndarray]:
    """Cut a vector of shape (d,) into named arrays, as ``safetensors.numpy`` saves them."""
    _check_length(vector, layout)
    return {
        name: np.ascontiguousarray(vector[where]).reshape(shape)
        for name, shape, where in zip(layout.names, layout.shapes, layout.slices, strict=True)
    }


def from_state_dict(state: Mapping[str, np.ndarray], layout: Layout) -> np.ndarray:
    """Join named arrays into a float32 vector of shape (d,).

    Raises
    ------
    ValueError
        If names or shapes differ from the layout's.
    """
    for name, shape in zip(layout.names, layout.shapes, strict=True):
        if name not in state or state[name].shape != shape:
            found = state[name].shape if name in state else "nothing"
            raise ValueError(f"parameter {name} has shape {shape}, and {found} was given")
    if len(state) != len(layout.names):
        raise ValueError(f"unknown parameters: {sorted(set(state) - set(layout.names))}")
    parts = [np.asarray(state[name], dtype=np.float32).reshape(-1) for name in layout.names]
    return np.concatenate(parts)


def _check_length(vector: np.ndarray, layout: Layout) -> None:
    if vector.shape != (layout.length,):
        raise ValueError(f"the vector has shape {vector.shape}, the model ({layout.length},)")
