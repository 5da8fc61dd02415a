"""Train a first linear layer in its dual form: by the client's Gram matrix, not by its weights.

Under plain SGD the weights of a first layer only ever move along a client's own records. With
records X of shape (n, inputs) and, for each record, the sum of the gradients of its outputs so far,
G of shape (n, width), they are W0 - rate * G'X. Outputs then are X W0' - rate * (X X') G. One
product gives X W0' and, beside it, the Gram matrix X X'; another G'X at the end; a step multiplies
a batch's rows of the Gram matrix, which are shorter than the records. The bias is the weight of one
more input that is 1 in every record: it adds 1 to each entry of the Gram matrix.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import torch

from zerosum.client.training.fast_layers import Arena, Linear
from zerosum.client.training.fast_model import Program
from zerosum.client.training.torch_internals import (
    has_onednn_product,
    mkl_is_narrow,
    onednn_product,
)

Check = Callable[[torch.Tensor, torch.Tensor], None]
"""Looks at the outputs and the classes of a batch, or raises."""

LARGEST_BYTES = 1 << 26
"""Of a Gram matrix, and of the outputs of all records."""

# Below this the calls that the dual form adds cost more than the arithmetic that it saves.
_LEAST_OPERATIONS = 1 << 23

# Squared norms of records within these bounds: beyond them the Gram matrix may overflow, or lose
# to underflow what a product with the weights would keep.
_NORMS = (2.0**-60, 2.0**100)


@dataclass(frozen=True)
class LargeProduct:
    """The way in which the two large products of the dual form are computed.

    Attributes
    ----------
    multiply : callable
        Multiplies a float tensor of shape (m, k) by the transpose of one of shape (n, k), both
        strided in any way and left as they are, and returns a tensor of their dtype, or of the one
        that they were rounded to, shape (m, n), in memory of its own.
    cost : float
        Time of an operation, in those of an operation of a batch's products in float32.
    """

    multiply: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    cost: float


def product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Multiply a large matrix by the transpose of another, in their own precision.

    In float32 by oneDNN, which asks the processor what it can do. MKL asks who made it: on an AMD
    with AVX-512 its products run at half the rate.

    Parameters
    ----------
    left, right : torch.Tensor
        float32 or float64, shapes (m, k) and (n, k).

    Returns
    -------
    torch.Tensor
        Shape (m, n).
    """
    fast = onednn_product(left, right) if left.dtype == torch.float32 else None
    return torch.mm(left, right.t()) if fast is None else fast


FULL_PRECISION = LargeProduct(product, cost=0.95)
"""At least as fast as a batch's products on every processor that was measured. To count on more
would let one epoch of many batches take the dual form, which gained nothing where these were fast
and lost a fifth where they were not."""

_TWICE_AS_FAST = replace(FULL_PRECISION, cost=0.45)


def full_precision(dtype: torch.dtype) -> LargeProduct:
    """Return the way of large products in a dtype, with its cost on this processor.

    Where MKL leaves half of the processor's width unused, products of float32 by oneDNN take less
    than half the time of a batch's, and one epoch takes the dual form too. The form, and with it
    the bits, follow from the processor and the arguments alone.

    Parameters
    ----------
    dtype : torch.dtype
        Of both matrices.

    Returns
    -------
    LargeProduct
        ``product``.
    """
    fast = dtype == torch.float32 and mkl_is_narrow() and has_onednn_product()
    return _TWICE_AS_FAST if fast else FULL_PRECISION


def rounded_product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Multiply a large matrix by the transpose of another, each rounded to bfloat16.

    Parameters
    ----------
    left, right : torch.Tensor
        float32, shapes (m, k) and (n, k), strided in any way.

    Returns
    -------
    torch.Tensor
        bfloat16, shape (m, n), in memory of its own.
    """
    return torch.mm(left.bfloat16(), right.bfloat16().t())


ROUNDED = LargeProduct(rounded_product, cost=0.45)
"""Casts included; measured on a processor with AVX512_BF16."""


@dataclass(frozen=True)
class DualLayer:
    """A first linear layer, of which ``rate`` steps of plain SGD are taken.

    Attributes
    ----------
    layer : Linear
        Its weights are not read, and stay as they are.
    rate : float
        Learning rate.
    large : LargeProduct
        Computes the two large products.
    """

    layer: Linear
    rate: float
    large: LargeProduct = FULL_PRECISION

    @cached_property
    def places(self) -> list[slice]:
        """Return where weight and bias lie in the vector of all parameters."""
        parts = [self.layer.weight, *([] if self.layer.bias is None else [self.layer.bias])]
        starts = [part.value.storage_offset() for part in parts]
        return [
            slice(start, start + part.value.numel())
            for start, part in zip(starts, parts, strict=True)
        ]

    @cached_property
    def inputs(self) -> int:
        """Return the entries of a record."""
        return self.layer.weight.value.shape[1]

    @cached_property
    def width(self) -> int:
        """Return the outputs of a record."""
        return self.layer.weight.value.shape[0]

    def pays(self, count: int, size: int, steps: int) -> bool:
        """Tell whether the dual form is cheaper, from the client's numbers alone.

        Parameters
        ----------
        count : int
            The client's records.
        size : int
            Records of a batch.
        steps : int
            Batches.

        Returns
        -------
        bool
            False also where it would take more memory than ``LARGEST_BYTES``.
        """
        entries = self.inputs * self.width
        plain = 4 * steps * size * entries
        gram = count * count * self.inputs if steps > 1 else 0
        dual = self.large.cost * (4 * count * entries + 2 * gram)
        dual += 2 * (steps - 1) * size * count * self.width
        itemsize = self.layer.weight.value.element_size()
        return (
            count < self.inputs
            and count * max(count, self.width) * itemsize <= LARGEST_BYTES
            and plain >= _LEAST_OPERATIONS
            and dual < plain
        )


@dataclass(frozen=True, repr=False)
class _Order:
    """What is computed of a client's records before the steps, in one order of the records.

    Outputs of the global model and rows of the Gram matrix, side by side in a matrix of shape
    (n, width + n), or (n, width) where there is one step. Columns of the Gram matrix are always in
    the order of the first pass. Classes, shape (n,).
    """

    products: torch.Tensor
    classes: torch.Tensor

    @classmethod
    def take(cls, arena: Arena, name: str, count: int, columns: int) -> Self:
        """Return memory for a number of records."""
        return cls(
            arena.take(f"dual products {name}", (count, columns)),
            arena.take(f"dual classes {name}", (count,), torch.int64),
        )


@dataclass(frozen=True, repr=False)
class _Batch:
    """Views of a batch's part of an order, of k records.

    Its outputs of the global model, shape (k, width); its part of the Gram matrix, shape (k, seen),
    and the gradients, shape (seen, width), of the records that were in a step; its classes; memory
    for its outputs; the program of the layers behind.
    """

    outputs: torch.Tensor
    gram: torch.Tensor
    seen: torch.Tensor
    classes: torch.Tensor
    memory: torch.Tensor
    program: Program

    def inputs(self, rate: float) -> torch.Tensor:
        """Return what the layers behind are given, shape (k, width), valid until the next batch."""
        if self.seen.shape[0] == 0:
            return self.memory.copy_(self.outputs)
        return torch.addmm(self.outputs, self.gram, self.seen, alpha=-rate, out=self.memory)


class DualProgram:
    """Training of clients with one number of records, in memory that each uses again.

    Parameters
    ----------
    dual : DualLayer
        The first layer.
    behind : callable
        Returns the program of the layers behind it, for a number of records.
    count : int
        Records of a client.
    size : int
        Records of a batch.
    steps : int
        Batches.
    arena : Arena

    Attributes
    ----------
    rows : torch.Tensor
        Shape (count, inputs), to be filled with a client's records.
    classes : torch.Tensor
        int64, shape (count,), their targets.
    """

    def __init__(
        self,
        dual: DualLayer,
        behind: Callable[[int], Program],
        count: int,
        size: int,
        steps: int,
        arena: Arena,
    ) -> None:
        self._dual, self._size, self._gram_needed = dual, size, steps > 1
        width = dual.width
        # Weights and records lie in one matrix, so that one product gives outputs and Gram matrix.
        self._factors = arena.take("dual factors", (width + count, dual.inputs))
        self._weights, self.rows = self._factors[:width].numpy(), self._factors[width:]
        if steps == 1:
            self._factors = self._factors[:width]
        columns = len(self._factors)
        bias = dual.layer.bias is not None
        self._shift = torch.full((columns,), float(bias), dtype=arena.dtype)
        self._gradients = arena.take("dual gradients", (count, width))
        self._trained = min(count, steps * size)
        self._moves = arena.take("dual moves", (width, self._trained))
        self._first = _Order.take(arena, "at first", count, columns)
        self._later = self._first
        if steps * size > count:
            self._later = _Order.take(arena, "later", count, columns)
        self.classes = self._first.classes
        memory = arena.take("dual batch", (size, width))

        def batch(order: _Order, start: int, seen: int) -> _Batch:
            own = slice(start, start + size)
            outputs, gram = order.products[own, :width], order.products[own, width : width + seen]
            program = behind(outputs.shape[0])
            before = self._gradients[:seen]
            part = memory[: outputs.shape[0]]
            return _Batch(outputs, gram, before, order.classes[own], part, program)

        starts = range(0, count, size)
        self._first_batches = [batch(self._first, start, start) for start in starts][:steps]
        self._later_batches = [batch(self._later, start, count) for start in starts]
        self._first_gradients = torch.split(self._gradients, size)

    def begin(self, model: np.ndarray) -> bool:
        """Compute outputs of the global model and the Gram matrix of the records in ``rows``.

        Parameters
        ----------
        model : numpy.ndarray
            Shape (d,): all parameters of the global model.

        Returns
        -------
        bool
            False where records are too large or too small for a Gram matrix, or not finite: then
            nothing was trained.
        """
        dual = self._dual
        weight, *bias = dual.places
        np.copyto(self._weights, model[weight].reshape(self._weights.shape))
        for where in bias:
            np.copyto(self._shift[: dual.width].numpy(), model[where])
        products = dual.large.multiply(self.rows, self._factors)
        if self._gram_needed:
            # The diagonal bounds every entry; it is NaN if one is.
            largest = products.diagonal(dual.width).max().item()
            if not _NORMS[0] <= largest <= _NORMS[1] and self.rows.any():  # zeros are exact
                return False
        torch.add(products, self._shift, out=self._first.products)
        self._gradients.zero_()
        return True

    def first_pass(self, check: Check) -> None:
        """Take the steps of the first pass over the records, in the order of ``rows``.

        Parameters
        ----------
        check : callable
            Is given outputs and classes of the first batch before its step.
        """
        rate = self._dual.rate
        for batch, gradients in zip(self._first_batches, self._first_gradients, strict=False):
            program = batch.program
            outputs = program.outputs(batch.inputs(rate))
            if batch is self._first_batches[0]:
                check(outputs, batch.classes)
            gradients.copy_(program.descend(batch.classes))

    def later_pass(self, places: torch.Tensor, steps: int) -> None:
        """Take steps on records that were in steps before.

        Parameters
        ----------
        places : torch.Tensor
            int64, shape (count,): where in ``rows`` the records of this pass lie, in its order.
        steps : int
            The batches of it that are taken.
        """
        rate, first, later = self._dual.rate, self._first, self._later
        torch.index_select(first.products, 0, places, out=later.products)
        torch.index_select(first.classes, 0, places, out=later.classes)
        parts = torch.split(places, self._size)
        for batch, rows in zip(self._later_batches[:steps], parts, strict=False):
            batch.program.outputs(batch.inputs(rate))
            self._gradients.index_add_(0, rows, batch.program.descend(batch.classes))

    def write_change(self, change: np.ndarray) -> None:
        """Write what training changed of the first layer into the change of all parameters.

        Parameters
        ----------
        change : numpy.ndarray
            Shape (d,), in part overwritten.
        """
        dual = self._dual
        weight, *bias = dual.places
        # A record that was in no step has no part: nought times what is not finite is NaN.
        gradients = self._gradients[: self._trained]
        # Transposed in memory too, for which oneDNN is a quarter faster.
        moves = torch.mul(gradients.t(), -dual.rate, out=self._moves)
        moved = dual.large.multiply(moves, self.rows[: self._trained].t())
        torch.from_numpy(change[weight]).view(moved.shape).copy_(moved)
        for where in bias:
            torch.sum(moves, 1, out=torch.from_numpy(change[where]))
