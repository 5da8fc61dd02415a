"""Define layers with backward rules derived by hand, on buffers that every batch uses again.

A layer is bound to one batch shape: forward and backward then are plain functions of tensors that
write into an :class:`Arena`, without Module, autograd or optimizer. Activations of images are
channels-last (see :mod:`zerosum.client.training.fast_images`). A backward function reads its
parameters before it updates them.
"""

from collections.abc import Callable, Hashable
from copy import copy
from dataclasses import dataclass, replace
from math import prod
from typing import Protocol

import torch

from zerosum.client.training.products import product_of
from zerosum.client.training.torch_internals import kernels

Shape = tuple[int, ...]
Function = Callable[[torch.Tensor], torch.Tensor]


class UnsupportedLayer(Exception):
    """A model, a loss or a batch that has no hand-derived rules; the message says why."""


class Arena:
    """Named pieces of memory that grow to the largest shape asked for, and are zero at first."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.grown = 0
        self._pieces: dict[Hashable, torch.Tensor] = {}

    def take(self, key: Hashable, shape: Shape, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return a contiguous tensor; what was taken under the same key shares its memory."""
        size = prod(shape)
        key = key, dtype or self.dtype
        piece = self._pieces.get(key)
        if piece is None or len(piece) < size:
            piece = self._pieces[key] = torch.zeros(size, dtype=dtype or self.dtype)
            self.grown += 1
        return piece[:size].view(shape)

    def images(self, key: Hashable, shape: Shape, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return a channels-last tensor of a shape.

        Parameters
        ----------
        key : Hashable
            Names the memory; what was taken under it before shares it.
        shape : tuple of int
            (n, channels, height, width).
        dtype : torch.dtype, optional
            Of the tensor, in place of the arena's.

        Returns
        -------
        torch.Tensor
            Of that shape, channels-last in memory.
        """
        count, channels, height, width = shape
        return self.take(key, (count, height, width, channels), dtype).permute(0, 3, 1, 2)


@dataclass
class Update:
    """Use of a gradient: a step of plain SGD at once, or an entry of the flat gradient.

    Attributes
    ----------
    rate : float or None
        Learning rate of the step; None writes gradients.
    """

    rate: float | None


class Parameter:
    """One parameter and its gradient, both views of flat tensors, and what to do with them.

    Attributes
    ----------
    value, gradient : torch.Tensor
        Of the parameter's shape.
    matrix, row : torch.Tensor
        The value seen as one row an output, and as one row. In a stack both have one more axis
        before the others, that of the clients.
    """

    def __init__(self, value: torch.Tensor, gradient: torch.Tensor, update: Update) -> None:
        self.value = value
        self.gradient = gradient
        rows = len(value) if value.dim() else 1
        shape = rows, value.numel() // max(1, rows)  # not -1, which an empty one does not tell
        self.matrix = value.view(shape)
        self.row = value.view(1, value.numel())
        self._matrix = gradient.view(shape)
        self._row = gradient.view(1, value.numel())
        self._update = update

    def stacked(self, arena: Arena, clients: int) -> "Parameter":
        """Return the same parameter of some clients, each with a value of its own.

        For steps of plain SGD alone: there is no gradient.

        Parameters
        ----------
        arena : Arena
            Holds the values.
        clients : int
            Clients.

        Returns
        -------
        Parameter
            Its ``value`` has shape (clients, ...).
        """
        one = copy(self)
        memory = arena.take(("stacked", self.place.start), (clients, self.value.numel()))
        one.value = memory.view(clients, *self.value.shape)
        one.matrix = memory.view(clients, *self.matrix.shape)
        one.row = memory.view(clients, *self.row.shape)
        return one

    @property
    def place(self) -> slice:
        """Return where the parameter lies in the vector of all parameters."""
        start = int(self.gradient.storage_offset())
        return slice(start, start + self.gradient.numel())

    @property
    def rate(self) -> float | None:
        """Learning rate of the steps; None where gradients are written."""
        return self._update.rate

    def product(self, left: torch.Tensor, right: torch.Tensor) -> None:
        """Take ``left @ right`` as the gradient of the parameter, seen as a matrix.

        Parameters
        ----------
        left : torch.Tensor
            Shape (rows, k), in a stack (clients, rows, k).
        right : torch.Tensor
            Shape (k, columns), in a stack (clients, k, columns).
        """
        rate = self._update.rate
        if left.dtype != self.value.dtype:
            self.take(torch.mm(left, right).view(self.value.shape))
        elif rate is None:
            torch.mm(left, right, out=self._matrix)
        elif left.dim() == 3:
            self.matrix.baddbmm_(left, right, alpha=-rate)
        else:
            self.matrix.addmm_(left, right, alpha=-rate)

    def sums(self, rows: torch.Tensor) -> None:
        """Take the sum of some rows as the gradient of the parameter, seen as a row.

        A product with ones would err by more where rows are alike, and is summed in another order
        for many clients at once than for one.

        Parameters
        ----------
        rows : torch.Tensor
            Shape (k, entries), in a stack (clients, k, entries).
        """
        rate = self._update.rate
        if rows.dtype != self.value.dtype:
            self.take(torch.sum(rows, 0).view(self.value.shape))
        elif rate is None:
            torch.sum(rows, 0, keepdim=True, out=self._row)
        else:
            self.row.add_(torch.sum(rows, -2, keepdim=True), alpha=-rate)

    def take(self, gradient: torch.Tensor) -> None:
        """Take a tensor as the gradient."""
        rate = self._update.rate
        if rate is None:
            self.gradient.copy_(gradient)
        else:
            self.value.add_(gradient, alpha=-rate)


@dataclass(frozen=True)
class Place:
    """A layer's place in a chain, for one batch shape.

    Attributes
    ----------
    shape : tuple
        Of the layer's input, the batch included.
    arena : Arena
    key : int
        Which layer it is.
    first : bool
        Whether nothing before it is trained, so that its input needs no gradient.
    owned : bool
        Whether its input lies in the arena, and may be overwritten once it was used.
    dtype : torch.dtype, optional
        Of activations here, in place of the arena's.
    """

    shape: Shape
    arena: Arena
    key: int
    first: bool
    owned: bool
    dtype: torch.dtype | None = None

    def take(self, role: str, shape: Shape) -> torch.Tensor:
        """Return memory of this layer's."""
        return self.arena.take((self.key, role), shape, self.dtype)

    def read(self, parameter: torch.Tensor) -> tuple[torch.Tensor, Callable[[], object]]:
        """Return a parameter in the dtype of activations here, and what brings it up to date."""
        if self.dtype is None or self.dtype == parameter.dtype:
            return parameter, _nothing
        copy = torch.zeros_like(parameter, dtype=self.dtype)
        return copy, lambda: copy.copy_(parameter)

    def like_input(self, role: str) -> torch.Tensor:
        """Return memory of the input's shape."""
        key = (self.key, role)
        taken = self.arena.images if len(self.shape) == 4 else self.arena.take
        return taken(key, self.shape, self.dtype)


def _nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True)
class BoundLayer:
    """A layer at a place: output from input, input gradient from output gradient, output shape."""

    forward: Function
    backward: Function
    shape: Shape
    owned: bool = True


class Layer(Protocol):
    """Something that can be bound."""

    def bind(self, place: Place) -> BoundLayer:
        """Return its functions for one batch shape.

        Raises
        ------
        UnsupportedLayer
            If it takes no such input.
        """
        ...


@dataclass(frozen=True)
class Linear:
    """Outputs ``x @ weight.T + bias``."""

    weight: Parameter
    bias: Parameter | None

    def bind(self, place: Place) -> BoundLayer:
        """Bind to inputs of shape (n, fan-in), in a stack (clients, n, fan-in)."""
        *_, width, inputs = self.weight.value.shape
        if len(place.shape) != self.weight.value.dim() or place.shape[-1] != inputs:
            raise UnsupportedLayer(f"a linear layer of {inputs} inputs is given {place.shape[1:]}")
        outputs = place.take("outputs", (*place.shape[:-1], width))
        upstream = place.take("gradient", place.shape)
        weight, bias, first = self.weight, self.bias, place.first
        matrix, load = place.read(weight.matrix)
        transposed = matrix.mT
        count, stacked = place.shape[-2], len(place.shape) == 3
        onward = product_of(count, inputs, width, outputs.dtype, stacked=stacked)
        back = product_of(count, width, inputs, outputs.dtype, stacked=stacked)
        seen = outputs

        def forward(inputs: torch.Tensor) -> torch.Tensor:
            nonlocal seen
            seen = inputs
            load()
            result = onward(inputs, transposed, outputs)
            return result if bias is None else result.add_(bias.row)  # faster than addmm

        def backward(gradient: torch.Tensor) -> torch.Tensor:
            nonlocal seen
            below = gradient if first else back(gradient, matrix, upstream)
            weight.product(gradient.mT, seen)
            seen = outputs
            if bias is not None:
                bias.sums(gradient)
            return below

        return BoundLayer(forward, backward, tuple(outputs.shape))


@dataclass(frozen=True)
class ReLU:
    """max(x, 0), in place where the input is nobody's."""

    def bind(self, place: Place) -> BoundLayer:
        """Bind to inputs of any shape."""
        upstream = place.like_input("gradient")
        result = None if place.owned else place.like_input("outputs")
        threshold_backward = kernels().threshold_backward
        held = upstream

        def forward(inputs: torch.Tensor) -> torch.Tensor:
            nonlocal held
            held = torch.relu_(inputs if result is None else result.copy_(inputs))
            return held

        def backward(gradient: torch.Tensor) -> torch.Tensor:
            nonlocal held
            threshold_backward(gradient, held, 0, grad_input=upstream)
            held = upstream
            return upstream

        return BoundLayer(forward, backward, place.shape)


@dataclass(frozen=True)
class Flatten:
    """From (n, ...) to (n, entries), in the order of the model."""

    def bind(self, place: Place) -> BoundLayer:
        """Bind to inputs of any shape."""
        shape = (place.shape[0], prod(place.shape[1:]))
        if len(place.shape) != 4:
            return BoundLayer(
                lambda inputs: inputs.reshape(shape),
                lambda gradient: gradient.view(place.shape),
                shape,
                owned=place.owned,
            )
        outputs = place.take("outputs", place.shape)
        rows, upstream = outputs.view(shape), place.like_input("gradient")

        def forward(inputs: torch.Tensor) -> torch.Tensor:
            if inputs.is_contiguous():
                return inputs.view(shape)
            outputs.copy_(inputs)
            return rows

        def backward(gradient: torch.Tensor) -> torch.Tensor:
            return upstream.copy_(gradient.view(place.shape))

        return BoundLayer(forward, backward, shape, owned=place.owned)


@dataclass(frozen=True)
class Cast:
    """The same numbers, rounded to another type."""

    dtype: torch.dtype

    def bind(self, place: Place) -> BoundLayer:
        """Bind to inputs of any shape."""
        outputs = replace(place, dtype=self.dtype).like_input("outputs")
        upstream = place.like_input("gradient")
        return BoundLayer(outputs.copy_, upstream.copy_, place.shape)


@dataclass(frozen=True)
class Project:
    """Coordinates along directions that are not trained."""

    directions: torch.Tensor

    def bind(self, place: Place) -> BoundLayer:
        """Bind to inputs of any shape."""
        count, inputs = place.shape[0], prod(place.shape[1:])
        if inputs != len(self.directions):
            raise UnsupportedLayer(
                f"directions of {len(self.directions)} entries are given {inputs}"
            )
        outputs = place.take("outputs", (count, self.directions.shape[1]))

        def forward(inputs: torch.Tensor) -> torch.Tensor:
            return torch.mm(inputs.reshape(count, -1), self.directions, out=outputs)

        return BoundLayer(forward, lambda gradient: gradient, tuple(outputs.shape))
