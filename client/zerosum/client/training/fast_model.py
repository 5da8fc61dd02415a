"""Read the layers of models that have hand-derived rules, and take a step of SGD on them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import torch
from torch import nn

from zerosum.client.task import Task
from zerosum.client.training.fast_images import Conv2d, Geometry, Pooling
from zerosum.client.training.fast_layers import (
    Arena,
    BoundLayer,
    Cast,
    Flatten,
    Layer,
    Linear,
    Parameter,
    Place,
    Project,
    ReLU,
    UnsupportedLayer,
    Update,
)
from zerosum.client.training.flat_parameters import FlatModel, trainable
from zerosum.client.training.projection import Projection
from zerosum.client.training.torch_internals import (
    has_accumulation_hooks,
    has_gradient_hooks,
    has_pass_hooks,
    padding_of,
)
from zerosum.client.training.torch_seed import seeded

_ENTRIES = 1 << 20
"""Outputs on which a loss is compared with cross-entropy, at most."""


def read_layers(flat: FlatModel, update: Update) -> tuple[list[Layer], int]:
    """Read a model's layers in order, and its number of classes.

    Parameters
    ----------
    flat : FlatModel
    update : Update
        What becomes of the gradients.

    Returns
    -------
    layers : list of Layer
        In order.
    classes : int
        Width of the last layer.

    Raises
    ------
    UnsupportedLayer
        If one of them has no rules, or may not compute what its type says.
    """
    modules = _pooled_first(list(_leaves(flat.model)))
    parameters = _Parameters(flat, update)
    layers = [_layer(module, parameters) for module in modules if not _does_nothing(module)]
    parameters.check_all_used()
    trained = [place for place, layer in enumerate(layers) if isinstance(layer, Linear | Conv2d)]
    last = layers[trained[-1]] if trained else None
    if not isinstance(last, Linear) or not all(
        isinstance(layer, ReLU | Flatten) for layer in layers[trained[-1] + 1 :]
    ):
        raise UnsupportedLayer("the last layer is not linear")
    if any(isinstance(layer, Project) for layer in layers[trained[0] :]):
        raise UnsupportedLayer("a projection of what is trained")
    classes = len(last.weight.value)
    if classes < 2:
        raise UnsupportedLayer("one output is no choice between classes")
    return layers, classes


def in_bf16(layers: Sequence[Layer]) -> list[Layer]:
    """Return layers of which all but the last trained one compute in bfloat16.

    Parameters
    ----------
    layers : sequence of Layer
        As :func:`read_layers` gives them.

    Returns
    -------
    list of Layer
        With casts before the first trained layer and before the last.

    Raises
    ------
    UnsupportedLayer
        If one layer alone is trained, whose outputs, the scores of the classes, stay float32.
    """
    trained = [place for place, layer in enumerate(layers) if isinstance(layer, Linear | Conv2d)]
    first, last = trained[0], trained[-1]
    if first == last:
        raise UnsupportedLayer("the last layer stays float32, and no other is trained")
    return [
        *layers[:first],
        Cast(torch.bfloat16),
        *layers[first:last],
        Cast(torch.float32),
        *layers[last:],
    ]


def cross_entropy(task: Task, classes: int, dtype: torch.dtype, tolerance: float) -> bool:
    """Tell whether a task's loss and its gradient are those of cross-entropy.

    Compared on random outputs from nearly equal to far apart, for every class that fits into a
    million outputs, and for one record alone.

    Parameters
    ----------
    task : Task
        Supplies the loss.
    classes : int
        Outputs of the model.
    dtype : torch.dtype
        Of the outputs.
    tolerance : float
        Largest difference, in parts of the largest entry.

    Returns
    -------
    bool
        False also where the loss raises.
    """
    generator = torch.Generator().manual_seed(0)
    rows = max(1, min(2 * classes, _ENTRIES // classes))
    targets = torch.randperm(rows, generator=generator) % classes
    for scale, count in ((0.1, rows), (1.0, rows), (30.0, rows), (1000.0, rows), (1.0, 1)):
        drawn = torch.randn(count, classes, generator=generator, dtype=torch.float64) * scale
        try:
            own = _with_gradient(task.loss, drawn.to(dtype), targets[:count])
        except Exception:  # a loss of another kind may refuse such outputs in any way
            return False
        expected = _with_gradient(
            lambda outputs, classes: nn.functional.cross_entropy(
                outputs, classes, reduction="none"
            ),
            drawn.to(dtype),
            targets[:count],
        )
        if not all(close(a, b, tolerance) for a, b in zip(own, expected, strict=True)):
            return False
    return True


def close(found: torch.Tensor, wanted: torch.Tensor, tolerance: float) -> bool:
    """Tell whether two tensors differ little, by their largest entry; NaN equals NaN."""
    if found.shape != wanted.shape:
        return False
    if torch.equal(found, wanted):
        return True
    largest = wanted.nan_to_num(0.0, 0.0, 0.0).abs().max().item()
    return torch.allclose(found, wanted, rtol=0, atol=tolerance * largest, equal_nan=True)


class Program:
    """A chain of layers bound to one batch shape, ended by cross-entropy.

    Parameters
    ----------
    layers : sequence of Layer
        The chain.
    shape : tuple
        Of the batch; of a stack (clients, records, width).
    arena : Arena
    inner : bool
        Whether something before the chain is trained: its inputs are then ours, may be overwritten,
        and need a gradient.

    Raises
    ------
    UnsupportedLayer
        If the layers do not take such a batch.
    """

    def __init__(
        self, layers: Sequence[Layer], shape: Sequence[int], arena: Arena, inner: bool = False
    ) -> None:
        bound: list[BoundLayer] = []
        first = 0
        kinds = [isinstance(layer, Linear | Conv2d) for layer in layers]
        trained = -1 if inner else kinds.index(True)
        place = Place(tuple(shape), arena, 0, not inner, inner)
        for key, layer in enumerate(layers):
            if isinstance(layer, Flatten) and len(place.shape) == 2:
                continue
            place = replace(place, key=key, first=key <= trained)
            if key == trained:
                first = len(bound)
            bound.append(layer.bind(place))
            dtype = layer.dtype if isinstance(layer, Cast) else place.dtype
            place = replace(place, shape=bound[-1].shape, owned=bound[-1].owned, dtype=dtype)
        if len(place.shape) != (len(shape) if inner else 2):
            raise UnsupportedLayer(f"outputs have shape {place.shape[1:]}")
        self._forward = [layer.forward for layer in bound]
        self._backward = [layer.backward for layer in reversed(bound[first:])]
        *records, classes = place.shape
        self._shares = arena.take("shares of the classes", place.shape)
        self._flat, self._plain = self._shares.view(-1), self._shares.numpy()
        self._starts = torch.arange(0, prod(place.shape), classes).view(records)
        self._marks = torch.zeros_like(self._starts)
        self._places = self._marks.view(-1)
        self._minus = torch.full((prod(records),), -1.0, dtype=arena.dtype)
        self._mean = 1 / records[-1]

    def outputs(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs of a batch, valid until the next."""
        for function in self._forward:
            inputs = function(inputs)
        torch.softmax(inputs, -1, out=self._shares)
        return inputs

    def descend(self, targets: torch.Tensor) -> torch.Tensor:
        """Go back from the mean loss of the batch just seen, and update every parameter.

        Targets must lie among the classes: they are not checked here.

        Returns
        -------
        torch.Tensor
            Gradient of the inputs, valid until the next batch; without meaning where it is not
            needed.
        """
        # The gradient of cross-entropy: the softmax, less 1 at the target. torch's own way to it is
        # three operators, by logarithms.
        torch.add(targets, self._starts, out=self._marks)
        self._flat.index_add_(0, self._places, self._minus)
        np.multiply(self._plain, self._mean, out=self._plain)  # a third of the cost of mul_
        gradient = self._shares
        for function in self._backward:
            gradient = function(gradient)
        return gradient


class _Parameters:
    """The trained parameters of a model, each to be used once."""

    def __init__(self, flat: FlatModel, update: Update) -> None:
        self._places = {
            id(value): Parameter(
                flat.weights[where].view(value.shape),
                flat.gradients[where].view(value.shape),
                update,
            )
            for value, where in zip(trainable(flat.model).values(), flat.layout.slices, strict=True)
        }

    def of(self, value: nn.Parameter | None) -> Parameter | None:
        """Return a parameter, None for none."""
        if value is None:
            return None
        if has_gradient_hooks(value) or has_accumulation_hooks(value):
            raise UnsupportedLayer("a parameter has hooks")
        if id(value) not in self._places:
            raise UnsupportedLayer("a parameter is shared or not trained")
        return self._places.pop(id(value))

    def weight(self, module: Any) -> Parameter:
        """Return the weight of a module."""
        parameter = self.of(module.weight)
        if parameter is None:
            raise UnsupportedLayer(f"{type(module).__name__} without a weight")
        return parameter

    def check_all_used(self) -> None:
        """Raise if a parameter belongs to no layer."""
        if self._places:
            raise UnsupportedLayer("a parameter belongs to no layer")


def _leaves(module: nn.Module) -> Iterator[nn.Module]:
    if has_pass_hooks(module) or "forward" in vars(module):
        raise UnsupportedLayer(f"{type(module).__name__} with hooks or a forward of its own")
    if type(module) is nn.Sequential:
        if next(module.parameters(recurse=False), None) is not None:
            raise UnsupportedLayer("a Sequential with parameters of its own")
        for child in module:
            yield from _leaves(child)
    else:
        yield module


def _pooled_first(modules: list[nn.Module]) -> list[nn.Module]:
    """Let ReLU come after max pooling, which is the same on fewer numbers."""
    modules = [module for module in modules if not _does_nothing(module)]
    for place in range(len(modules) - 1):
        if type(modules[place]) is nn.ReLU and type(modules[place + 1]) is nn.MaxPool2d:
            modules[place : place + 2] = modules[place + 1], modules[place]
    return modules


def _does_nothing(module: nn.Module) -> bool:
    return type(module) is nn.Identity or (type(module) is nn.Dropout and module.p == 0)


def _layer(module: Any, parameters: _Parameters) -> Layer:
    kind = type(module)
    if kind is nn.Linear:
        return Linear(parameters.weight(module), parameters.of(module.bias))
    if kind is nn.Conv2d:
        return Conv2d(parameters.weight(module), parameters.of(module.bias), _geometry(module))
    if kind is nn.ReLU:
        return ReLU()
    if kind is nn.MaxPool2d and not module.return_indices:
        sizes = (module.kernel_size, module.stride, module.padding, module.dilation)
        return Pooling(True, (*map(_pair, sizes), module.ceil_mode))
    if kind is nn.AvgPool2d:
        windows = map(_pair, (module.kernel_size, module.stride, module.padding))
        rest = (module.ceil_mode, module.count_include_pad, module.divisor_override)
        return Pooling(False, (*windows, *rest))
    if kind is nn.Flatten and module.start_dim == 1 and module.end_dim == -1:
        return Flatten()
    if kind is Projection:
        return Project(module.directions.detach())
    raise UnsupportedLayer(f"no rules for {module}")


def _geometry(module: nn.Conv2d) -> Geometry:
    if module.groups != 1 or module.padding_mode != "zeros":
        raise UnsupportedLayer(f"no rules for {module}")
    left, right, up, down = padding_of(module)
    if left != right or up != down:
        raise UnsupportedLayer(f"no rules for {module}")
    sizes = [_two(value) for value in (module.kernel_size, module.stride, module.dilation)]
    return Geometry(sizes[0], sizes[1], (up, left), sizes[2])


def _pair(value: int | Iterable[int]) -> list[int]:
    return [value, value] if isinstance(value, int) else list(value)


def _two(value: int | Iterable[int]) -> tuple[int, int]:
    down, across = _pair(value)
    return down, across


def _with_gradient(
    loss: Any, outputs: torch.Tensor, targets: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    outputs.requires_grad_()
    with seeded(0), torch.enable_grad():
        losses = loss(outputs, targets)
        # Of a sum: given gradients of outputs, autograd imports a second's worth of modules.
        (gradient,) = torch.autograd.grad(losses.sum() / len(targets), outputs)
    return losses.detach(), gradient
