"""Train a first linear layer in its dual form: by the client's Gram matrix, not by its weights.

Under plain SGD the weights of a first layer only ever move along a client's own records. With
records X of shape (n, inputs) and, for each record, the sum of the gradients of its outputs so far,
G of shape (n, width), they are W0 - rate * G'X. Outputs then are X W0' - rate * (X X') G. One
product gives X W0', of many clients at once; others the Gram matrix X X', and G'X at the end; a
step multiplies a batch's rows of the Gram matrix, which are shorter than the records. The bias is
the weight of one more input that is 1 in every record: it adds 1 to each entry of the Gram matrix.

Clients with as many records each are trained side by side: what a step asks for beside products is
asked for once for all of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import torch

from zerosum.client.training.deferred_linear import deferred
from zerosum.client.training.fast_layers import Arena, Layer, Linear
from zerosum.client.training.fast_model import Program
from zerosum.client.training.products import product_with_transpose
from zerosum.client.training.torch_internals import has_onednn_product, mkl_is_narrow

Check = Callable[[torch.Tensor, torch.Tensor], None]
"""Looks at the outputs and the classes of a batch, or raises."""

LARGEST_BYTES = 1 << 26
"""Of a Gram matrix, and of the outputs of all records."""

# Below this the calls that the dual form adds cost more than the arithmetic that it saves.
_LEAST_OPERATIONS = 1 << 23

# Largest norm of a client's records within these bounds: beyond them the Gram matrix may overflow,
# or lose to underflow what a product with the weights would keep.
_NORMS = (2.0**-30, 2.0**50)


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


FULL_PRECISION = LargeProduct(product_with_transpose, cost=0.95)
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
        By :func:`~.products.product_with_transpose`.
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
        bias = self.layer.bias
        return [self.layer.weight.place, *([] if bias is None else [bias.place])]

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


@dataclass(frozen=True)
class Form:
    """The form of clients that are trained side by side.

    Attributes
    ----------
    clients : int
        Clients.
    count : int
        Records of each.
    size : int
        Records of a batch.
    steps : int
        Batches.
    """

    clients: int
    count: int
    size: int
    steps: int

    @property
    def trained(self) -> int:
        """Return how many of a client's records are in a step."""
        return min(self.count, self.steps * self.size)

    @property
    def per_pass(self) -> int:
        """Return the batches of one pass over the records."""
        return -(-self.count // self.size)

    @property
    def compared(self) -> tuple[range, range]:
        """Return the rows and the columns of a client's Gram matrix that are read.

        In one pass a batch meets the records of batches before it alone: the first batch has no
        rows, the last one no columns.
        """
        if self.steps > self.per_pass:
            return range(self.count), range(self.count)
        return range(self.size, self.trained), range((self.steps - 1) * self.size)


@dataclass(frozen=True, repr=False)
class Behind:
    """The layers behind the first one.

    Attributes
    ----------
    layers : sequence of Layer
        Those that defer steps are told when clients begin and end.
    weights : sequence of (slice, ndarray)
        Where each of their parameters lies among all, and its values, shape (clients, entries).
    program : callable
        Returns the program of these layers for inputs of a shape: (records, width), of more than
        one client (clients, records, width).
    """

    layers: Sequence[Layer]
    weights: Sequence[tuple[slice, np.ndarray]]
    program: Callable[[tuple[int, ...]], Program]


@dataclass(frozen=True, repr=False)
class _Order:
    """What is computed of clients' records before the steps, in one order of the records.

    Outputs of the global model, shape (clients * n, width). Gram matrices, shape (clients * rows,
    columns), of which columns are always in the order of the first pass. Classes, (clients * n,).
    """

    outputs: torch.Tensor
    gram: torch.Tensor
    classes: torch.Tensor

    @classmethod
    def take(cls, arena: Arena, name: str, form: Form, width: int) -> Self:
        """Return memory for clients of a form."""
        records = form.clients * form.count
        rows, columns = map(len, form.compared)
        return cls(
            arena.take(f"dual outputs {name}", (records, width)),
            arena.take(f"dual gram {name}", (form.clients * rows, columns)),
            arena.take(f"dual classes {name}", (records,), torch.int64),
        )


@dataclass(frozen=True, repr=False)
class _Batch:
    """Views of a batch's part of an order, of k records; in a stack with a first axis of clients.

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
        if self.seen.shape[-2] == 0:
            return self.memory.copy_(self.outputs)
        add = torch.baddbmm if self.outputs.dim() == 3 else torch.addmm
        return add(self.outputs, self.gram, self.seen, alpha=-rate, out=self.memory)


class DualProgram:
    """Training of clients of one form, in memory that each uses again.

    Clients side by side share the calls, not the arithmetic: each product of theirs is the one that
    a client by itself would have, so that the bits are the same (see :mod:`~.fast_stacks`).

    Parameters
    ----------
    dual : DualLayer
        The first layer.
    behind : Behind
        The layers behind it.
    form : Form
        Of the clients.
    arena : Arena

    Attributes
    ----------
    form : Form
    rows : torch.Tensor
        Shape (clients * count, inputs), to be filled with the clients' records.
    classes : torch.Tensor
        int64, shape (clients * count,), their targets.
    """

    def __init__(self, dual: DualLayer, behind: Behind, form: Form, arena: Arena) -> None:
        self._dual, self._behind, self.form = dual, behind, form
        width, count, size = dual.width, form.count, form.size
        self._weights = arena.take("dual weights", (width, dual.inputs))
        self._bias = torch.zeros(width, dtype=arena.dtype)
        self._shift = torch.full((1,), float(dual.layer.bias is not None), dtype=arena.dtype)
        self.rows = arena.take("dual rows", (form.clients * count, dual.inputs))
        self._gradients = arena.take("dual gradients", (form.clients * count, width))
        # Of the arena's dtype, so that it rounds no product in a shorter one.
        self._move = torch.full((1,), -dual.rate, dtype=arena.dtype)
        self._first = self._later = _Order.take(arena, "at first", form, width)
        starts = range(0, count, size)
        if form.steps > form.per_pass:
            self._later = _Order.take(arena, "later", form, width)
        self.classes = self._first.classes
        memory = self._by_client(arena.take("dual batch", (form.clients * size, width)))
        self._first_batches = [
            self._batch(self._first, start, start, memory) for start in starts[: form.steps]
        ]
        self._later_batches = [
            self._batch(self._later, start, count, memory)
            for start in starts
            if form.steps > form.per_pass
        ]
        gradients = self._by_client(self._gradients)
        self._first_gradients = torch.split(gradients, size, gradients.dim() - 2)

    def set_dual(self, dual: DualLayer) -> None:
        """Take the same first layer at another learning rate."""
        self._dual = dual
        self._move.fill_(-dual.rate)

    def _by_client(self, rows: torch.Tensor) -> torch.Tensor:
        """View rows of all clients by client; those of one client stay as they are."""
        clients = self.form.clients
        apart = clients, len(rows) // clients, *rows.shape[1:]
        return rows if clients == 1 else rows.view(apart)

    def _batch(self, order: _Order, start: int, seen: int, memory: torch.Tensor) -> _Batch:
        own = slice(start, min(start + self.form.size, self.form.count))
        first = self.form.compared[0].start
        compared = slice(max(0, start - first), max(0, own.stop - first))
        outputs = self._by_client(order.outputs)[..., own, :]
        return _Batch(
            outputs,
            self._by_client(order.gram)[..., compared, :seen],
            self._by_client(self._gradients)[..., :seen, :],
            self._by_client(order.classes)[..., own],
            memory[..., : own.stop - start, :],
            self._behind.program(tuple(outputs.shape)),
        )

    def train(
        self, model: np.ndarray, orders: Sequence[Sequence[torch.Tensor]], check: Check
    ) -> list[bool]:
        """Take all steps on the records in ``rows``, the first pass in their order there.

        Parameters
        ----------
        model : numpy.ndarray
            Shape (d,): all parameters of the global model.
        orders : sequence of sequence of torch.Tensor
            Of each client the passes after the first: int64, shape (count,), where among its
            ``rows`` the records of that pass lie.
        check : callable
            Is given outputs and classes of the first batch before its step.

        Returns
        -------
        list of bool
            Of each client; False where records are too large or too small for a Gram matrix, or
            not finite: the steps of such a client mean nothing.
        """
        form, behind = self.form, deferred(self._behind.layers)
        fits = self._begin(model)
        if not any(fits):
            return fits
        for layer in behind:
            layer.begin(form.steps * form.size)
        self._first_pass(check)
        left = form.steps - form.per_pass
        for places in zip(*orders, strict=True):
            self._later_pass(places, min(form.per_pass, left))
            left -= form.per_pass
        for layer in behind:
            layer.end()
        return fits

    def _begin(self, model: np.ndarray) -> list[bool]:
        """Compute outputs of the global model and Gram matrices; return which of these serve."""
        weight, *bias = self._dual.places
        np.copyto(self._weights.numpy(), model[weight].reshape(self._weights.shape))
        for where in bias:
            np.copyto(self._bias.numpy(), model[where])
        for where, values in self._behind.weights:
            np.copyto(values, model[where])
        outputs = self._dual.large.multiply(self.rows, self._weights)
        torch.add(outputs, self._bias, out=self._first.outputs)
        if self.form.steps == 1:
            return [True] * self.form.clients
        records = self.rows.view(self.form.clients, self.form.count, -1)
        rows, columns = (slice(part.start, part.stop) for part in self.form.compared)
        grams = self._first.gram.chunk(self.form.clients)
        for own, gram in zip(records, grams, strict=True):
            torch.add(self._dual.large.multiply(own[rows], own[columns]), self._shift, out=gram)
        read = records[:, : self.form.trained]
        # Norms bound every entry of a Gram matrix, and are NaN if an entry of a record is.
        norms = torch.linalg.vector_norm(read, dim=2).amax(1).tolist()
        return [
            _NORMS[0] <= norm <= _NORMS[1] or not own.any()  # zeros are exact
            for norm, own in zip(norms, read, strict=True)
        ]

    def _first_pass(self, check: Check) -> None:
        """Take the steps of the first pass over the records, in the order of ``rows``."""
        rate = self._dual.rate
        for batch, gradients in zip(self._first_batches, self._first_gradients, strict=False):
            program = batch.program
            outputs = program.outputs(batch.inputs(rate))
            if batch is self._first_batches[0]:
                check(outputs, batch.classes)
            gradients.copy_(program.descend(batch.classes))

    def _later_pass(self, places: Sequence[torch.Tensor], steps: int) -> None:
        """Take steps on records that were in steps before: see :meth:`train`."""
        rate, first, later, count = self._dual.rate, self._first, self._later, self.form.count
        whole = torch.cat([own + start * count for start, own in enumerate(places)])
        torch.index_select(first.outputs, 0, whole, out=later.outputs)
        torch.index_select(first.gram, 0, whole, out=later.gram)
        torch.index_select(first.classes, 0, whole, out=later.classes)
        parts = torch.split(whole.view(-1, count), self.form.size, 1)
        for batch, rows in zip(self._later_batches[:steps], parts, strict=False):
            batch.program.outputs(batch.inputs(rate))
            gradients = batch.program.descend(batch.classes)
            self._gradients.index_add_(
                0, rows.reshape(-1), gradients.reshape(-1, gradients.shape[-1])
            )

    def change(self, model: np.ndarray, client: int) -> np.ndarray:
        """Return what training changed of a client's parameters.

        Parameters
        ----------
        model : numpy.ndarray
            Shape (d,), as :meth:`train` was given it.
        client : int
            Its place among the form's.

        Returns
        -------
        numpy.ndarray
            A new array of the model's shape.
        """
        dual, change = self._dual, np.empty_like(model)
        weight, *bias = dual.places
        for where, values in self._behind.weights:
            np.subtract(values[client], model[where], out=change[where])
        # A record that was in no step has no part: nought times what is not finite is NaN.
        start = client * self.form.count
        own = slice(start, start + self.form.trained)
        gradients = self._gradients[own]
        sums = dual.large.multiply(gradients.t(), self.rows[own].t())
        torch.mul(sums, self._move, out=torch.from_numpy(change[weight]).view(sums.shape))
        for where in bias:
            moved = torch.from_numpy(change[where])
            torch.mul(torch.sum(gradients, 0, out=moved), self._move, out=moved)
        return change
