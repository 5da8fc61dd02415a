"""Convert a model to one flat vector, and back.

The vector holds the trainable parameters, in the order of ``named_parameters``; parameters
shared between modules appear once. Frozen parameters and buffers are not in it: every party
builds the same ones from the task and the experiment's seed. Running statistics of batch
normalisation would leave a client unclipped and unaccounted, so models that move them are
refused; where ``training.batchnorm = "average"``, without privacy, they follow the parameters.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from typing import Self

import numpy as np
import torch
from torch import nn

from zerosum.client.task import TaskError
from zerosum.client.training.batch_norm import BatchNormMode, RunningStatistics


@dataclass(frozen=True)
class Layout:
    """Names and shapes of the parameters in a flat vector, in order; running statistics follow."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    statistics: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @classmethod
    def of(
        cls,
        model: nn.Module,
        batchnorm: BatchNormMode = "refuse",
        running: RunningStatistics | None = None,
    ) -> Self:
        """Return a model's layout.

        Parameters
        ----------
        model : nn.Module
        batchnorm : str
            ``training.batchnorm``: whether running statistics that move are refused or sent.
        running : RunningStatistics, optional
            The model's, where they are known.

        Returns
        -------
        Layout
            In the order of ``model.parameters()``.

        Raises
        ------
        TaskError
            If the model moves running statistics that are not sent, or has nothing to train.
        """
        running = RunningStatistics.of(model, batchnorm) if running is None else running
        parameters = trainable(model)
        if not parameters:
            raise TaskError("model: no parameter requires a gradient, so there is nothing to train")
        return cls(
            tuple(parameters),
            tuple(tuple(value.shape) for value in parameters.values()),
            tuple((statistic.name, tuple(statistic.kept.shape)) for statistic in running.moving),
        )

    @property
    def length(self) -> int:
        """Trainable parameters."""
        return sum(prod(shape) for shape in self.shapes)

    @property
    def dimension(self) -> int:
        """Coordinates of the vector (d): trainable parameters and running statistics."""
        return self.length + sum(prod(shape) for _, shape in self.statistics)

    @property
    def slices(self) -> list[slice]:
        """Return the place of each parameter in the vector."""
        ends = np.cumsum([0, *(prod(shape) for shape in self.shapes)]).tolist()
        return [slice(start, end) for start, end in pairwise(ends)]

    @property
    def layers(self) -> list[slice]:
        """Return each layer's place: neighbouring parameters of one module, as weight and bias."""
        found: list[tuple[str, slice]] = []
        for name, where in zip(self.names, self.slices, strict=True):
            module = name.rpartition(".")[0]
            if found and found[-1][0] == module:
                where = slice(found.pop()[1].start, where.stop)
            found.append((module, where))
        return [where for _, where in found]


@dataclass(frozen=True)
class FlatModel:
    """A model whose parameters and gradients are views of two flat tensors, one entry each.

    Loading a model is then one copy, and an optimizer step one operation on one tensor.
    """

    model: nn.Module
    layout: Layout
    weights: torch.Tensor
    gradients: torch.Tensor
    running: RunningStatistics = field(default_factory=RunningStatistics)

    def views(self) -> list[torch.Tensor]:
        """Return each trained parameter as a view of ``weights`` that may be written to."""
        parts = zip(self.layout.slices, self.layout.shapes, strict=True)
        return [self.weights[where].view(shape) for where, shape in parts]


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that require a gradient, by name, each once."""
    return {name: value for name, value in model.named_parameters() if value.requires_grad}


def flatten(model: nn.Module, batchnorm: BatchNormMode = "refuse") -> FlatModel:
    """Move a model's parameters into one flat tensor, in place.

    Parameters
    ----------
    model : nn.Module
        Its parameters become views of the flat tensor.
    batchnorm : str
        ``training.batchnorm``: whether running statistics that move are refused or sent.

    Returns
    -------
    FlatModel
        The model, its flat weights and gradients, each of shape (d,).

    Raises
    ------
    TaskError
        If the model has no layout, or mixes dtypes or devices.
    """
    running = RunningStatistics.of(model, batchnorm)
    layout = Layout.of(model, batchnorm, running)
    parameters = list(trainable(model).values())
    kinds = {(value.dtype, value.device) for value in parameters}
    if len(kinds) > 1:
        raise TaskError("model: all parameters must have one dtype and lie on one device")
    weights = torch.cat([value.detach().reshape(-1) for value in parameters])
    gradients = torch.zeros_like(weights)
    for value, where in zip(parameters, layout.slices, strict=True):
        value.data = weights[where].view(value.shape)
        value.grad = gradients[where].view(value.shape)
    return FlatModel(model, layout, weights, gradients, running)


def parameters_to_vector(model: nn.Module, batchnorm: BatchNormMode = "refuse") -> np.ndarray:
    """Copy a model's trained parameters into one vector.

    Parameters
    ----------
    model : nn.Module
        Left as it is.
    batchnorm : str
        ``training.batchnorm``.

    Returns
    -------
    numpy.ndarray
        float32, shape (d,), a copy.
    """
    running = RunningStatistics.of(model, batchnorm)
    Layout.of(model, batchnorm, running)
    values = [*trainable(model).values(), *(s.kept for s in running.moving)]
    parts = [value.detach().reshape(-1).float().cpu() for value in values]
    return torch.cat(parts).numpy().copy()


@torch.no_grad()
def load_vector(model: nn.Module, vector: np.ndarray, batchnorm: BatchNormMode = "refuse") -> None:
    """Copy a vector into a model's trained parameters and running statistics.

    Parameters
    ----------
    model : nn.Module
        Written to.
    vector : numpy.ndarray
        Shape (d,).
    batchnorm : str
        ``training.batchnorm``.

    Raises
    ------
    ValueError
        If the length differs from the model's.
    """
    running = RunningStatistics.of(model, batchnorm)
    layout = Layout.of(model, batchnorm, running)
    if vector.shape != (layout.dimension,):
        raise ValueError(f"the vector has shape {vector.shape}, the model ({layout.dimension},)")
    values = torch.tensor(vector)
    for parameter, where in zip(trainable(model).values(), layout.slices, strict=True):
        parameter.copy_(values[where].view(parameter.shape))
    running.load(vector[layout.length :])


def from_state_dict(state: Mapping[str, np.ndarray], layout: Layout) -> np.ndarray:
    """Join what a state dict holds of a layout into one vector.

    What else it holds, frozen parameters and buffers, every party builds by itself. So a file of
    the trained parameters alone, as runs once left them, is read as well.

    Parameters
    ----------
    state : mapping of str to numpy.ndarray
        As a file of the model holds it.
    layout : Layout
        The model's.

    Returns
    -------
    numpy.ndarray
        float32, shape (d,).

    Raises
    ------
    ValueError
        If a name of the layout is missing, or has another shape.
    """
    entries = [*zip(layout.names, layout.shapes, strict=True), *layout.statistics]
    for name, shape in entries:
        if name not in state or state[name].shape != shape:
            given = state[name].shape if name in state else "nothing"
            raise ValueError(f"parameter {name} has shape {shape}, and {given} was given")
    parts = [np.asarray(state[name], dtype=np.float32).reshape(-1) for name, _ in entries]
    return np.concatenate(parts)
