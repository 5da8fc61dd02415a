"""Stack clients' records side by side, as a group is trained on them step by step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from zerosum.client.spec import TrainSpec
from zerosum.client.training.batches import batch_size, batches, schedule
from zerosum.client.training.examples import SubsetExamples, TensorExamples
from zerosum.client.training.index_check import GuardedExamples
from zerosum.client.training.torch_seed import seeded
from zerosum.secagg.randomness import derive_seed

if TYPE_CHECKING:
    from zerosum.client.task import Dataset


class UnstackableError(Exception):
    """Something that is not trained in groups; the message says what."""


@dataclass(frozen=True)
class Member:
    """One client of a cohort to be trained.

    Attributes
    ----------
    load : callable
        Returns its data set; what it raises is this client's failure alone.
    seed : bytes or int
        Fixes batch order; derive it from (experiment, round, client).
    """

    load: "Callable[[], Dataset]"
    seed: bytes | int = field(repr=False)

    @property
    def number(self) -> int:
        """The seed as a number."""
        return int.from_bytes(self.seed, "little") if isinstance(self.seed, bytes) else self.seed


@dataclass(frozen=True)
class TrainedClient:
    """The outcome of one client's training.

    Attributes
    ----------
    delta : numpy.ndarray
        Local model minus the global one, shape (d,).
    count : int
        Its examples.
    together : bool
        Whether it was trained with others.
    """

    delta: np.ndarray = field(repr=False)
    count: int
    together: bool


@dataclass(frozen=True)
class StackedRecords:
    """One client's records on the CPU, and which of them make up each step.

    Attributes
    ----------
    dataset : torch Dataset or pair of tensors
        Where they are from.
    number : int
        The client's seed.
    count : int
        Examples in the data set.
    inputs, targets : torch.Tensor
        Rows; inputs are None where they are no single tensor.
    steps : tuple of torch.Tensor
        Rows of each step, int64.
    """

    dataset: Any = field(repr=False)
    number: int = field(repr=False)
    count: int
    inputs: Any = field(repr=False)
    targets: torch.Tensor = field(repr=False)
    steps: tuple[torch.Tensor, ...] = field(repr=False)

    @property
    def form(self) -> tuple[Any, ...]:
        """Return the properties that stacked records must share."""
        if self.inputs is None:
            return (self.number,)
        inputs, targets = self.inputs, self.targets
        return inputs.shape[1:], inputs.dtype, targets.shape[1:], targets.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the rows."""
        return sum(part.numel() * part.itemsize for part in (self.inputs, self.targets))

    def some(self, count: int) -> "StackedRecords":
        """Return the first few of these records, as one step."""
        targets = self.targets[:count]
        steps = (torch.arange(len(targets)),)
        return replace(self, inputs=self.inputs[:count], targets=targets, steps=steps)

    def with_one_again(self) -> "StackedRecords":
        """Return these records, with the first once more in each step."""
        return replace(self, steps=tuple(torch.cat([step, step[:1]]) for step in self.steps))


def loaded(
    dataset: "Dataset", examples: GuardedExamples, spec: TrainSpec, number: int
) -> StackedRecords:
    """Read a client's records, and plan its steps as :func:`batches` would give them.

    Tensors are taken as they are. A data set of another kind may draw transforms as it is read,
    so every step has rows of its own.

    Parameters
    ----------
    dataset : torch Dataset or pair of tensors
        The client's.
    examples : GuardedExamples
        The same, checked.
    spec : TrainSpec
        Epochs or steps, and the batch size.
    number : int
        Draws the orders.

    Returns
    -------
    StackedRecords
        With the rows of each step.
    """
    count = len(examples)
    nothing = torch.zeros(0)
    if not count:
        return StackedRecords(dataset, number, 0, nothing, nothing, ())
    if isinstance(examples.source, TensorExamples | SubsetExamples):
        rows, steps = _used(count, _steps(count, spec, number))
        inputs, targets = examples.all() if rows is None else examples.take(rows)
        return StackedRecords(dataset, number, count, inputs, targets, steps)
    with seeded(derive_seed(number, "training")):
        parts = [batch.taken() for _, batch in batches(examples, spec, number)]
    if not all(isinstance(part, torch.Tensor) for batch in parts for part in batch):
        return StackedRecords(dataset, number, count, None, nothing, ())
    if len({(part.shape[1:], part.dtype) for part, _ in parts}) > 1:
        return StackedRecords(dataset, number, count, None, nothing, ())
    inputs, targets = (torch.cat(column) for column in zip(*parts, strict=True))
    sizes = [len(rows) for _, rows in parts]
    steps = torch.split(torch.arange(len(targets)), sizes)
    return StackedRecords(dataset, number, count, inputs, targets, steps)


def _steps(count: int, spec: TrainSpec, number: int) -> tuple[torch.Tensor, ...]:
    size, everything = batch_size(count, spec), torch.arange(count)
    return tuple(
        everything if order is None else order[turn * size : (turn + 1) * size]
        for _, turn, order in schedule(count, spec, number)
    )


def _used(
    count: int, steps: tuple[torch.Tensor, ...]
) -> tuple[torch.Tensor | None, tuple[torch.Tensor, ...]]:
    """Return which rows some steps use, None for all, and the steps in terms of them."""
    rows = torch.unique(torch.cat(steps))
    if len(rows) == count:
        return None, steps
    return rows, tuple(torch.searchsorted(rows, step) for step in steps)


class Stack:
    """Stack the records of a group of clients on a device, those with most steps first.

    Parameters
    ----------
    inputs, targets : torch.Tensor
        Rows of all clients, on the device.
    rows : torch.Tensor
        Which of them, int64, shape (steps, clients, longest batch); a batch that is shorter is
        filled up with its first record.
    shares : torch.Tensor
        Of each in its client's mean: one over the batch's size, or zero. Same shape.
    sizes : list of tuple of int
        Of each step: clients that take it, and the longest of their batches.
    places : list of int
        Where each client of the group stands.
    """

    def __init__(
        self,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        rows: torch.Tensor,
        shares: torch.Tensor,
        sizes: list[tuple[int, int]],
        places: list[int],
    ) -> None:
        self._inputs, self._targets = inputs, targets
        self._rows, self._shares, self._sizes = rows, shares, sizes
        self.places = places

    @classmethod
    def of(cls, group: Sequence[StackedRecords], device: torch.device, dtype: torch.dtype) -> Self:
        """Put a group's records side by side, and move them to a device.

        Parameters
        ----------
        group : sequence of StackedRecords
            Of one form.
        device : torch.device
            Where to.
        dtype : torch.dtype
            Of floating-point inputs.

        Returns
        -------
        Stack
            Clients with most steps first.
        """
        order = sorted(range(len(group)), key=lambda place: -len(group[place].steps))
        ordered = [group[place] for place in order]
        offsets = np.cumsum([0, *(len(one.targets) for one in ordered)])
        steps = len(ordered[0].steps)
        longest = max(len(step) for one in ordered for step in one.steps)
        rows = np.zeros((steps, len(group), longest), dtype=np.int64)
        shares = np.zeros(rows.shape)
        sizes = [(0, 0)] * steps
        for place, one in enumerate(ordered):
            for number, step in enumerate(one.steps):
                size = len(step)
                rows[number, place, :size] = step.numpy() + offsets[place]
                # Of its own batch: no record comes into a step that is not in it.
                rows[number, place, size:] = rows[number, place, 0]
                shares[number, place, :size] = 1 / size
                sizes[number] = place + 1, max(size, sizes[number][1])
        return cls(
            torch.cat([one.inputs for one in ordered]).to(device),
            torch.cat([one.targets for one in ordered]).to(device),
            torch.from_numpy(rows).to(device),
            torch.from_numpy(shares).to(device, dtype),
            sizes,
            [order.index(place) for place in range(len(group))],
        )

    @property
    def steps(self) -> int:
        """Steps of the client that takes most."""
        return len(self._sizes)

    def batch(self, number: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return inputs and targets, shape (clients, rows, ...), and shares, of those who step."""
        clients, size = self._sizes[number]
        rows = self._rows[number, :clients, :size]
        return self._inputs[rows], self._targets[rows], self._shares[number, :clients, :size]
