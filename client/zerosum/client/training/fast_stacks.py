"""Train clients with as many records each side by side: calls are shared, and no bit is moved.

The steps of a small client are short, so that to ask for them takes as long as to compute them.
Side by side, a product of the clients' matrices is one call, and so is all between the products.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from zerosum.client.spec import TrainSpec
from zerosum.client.task import Task
from zerosum.client.task_errors import FAILURES
from zerosum.client.training.batches import passes, places_after_first
from zerosum.client.training.evaluation import per_example_losses
from zerosum.client.training.examples import as_examples
from zerosum.client.training.fast import AGREEMENT, FastTrainer, Records, holdable, shuffle
from zerosum.client.training.fast_dual import Behind, DualProgram
from zerosum.client.training.fast_layers import (
    Arena,
    Layer,
    Linear,
    Parameter,
    ReLU,
    UnsupportedLayer,
)
from zerosum.client.training.fast_model import Program, close
from zerosum.client.training.stacked_records import Member, TrainedClient
from zerosum.secagg.randomness import numpy_generator

if TYPE_CHECKING:
    from zerosum.client.task import Dataset

Outcome = TrainedClient | BaseException
"""What comes of a client: its change, or what it raised."""

MOST_CLIENTS = 8
"""Of a stack: the half of what a larger one could gain is had by two, nine tenths by eight."""

RECORD_BYTES = 1 << 22
"""Of a stack: its clients' records are read three times, and stay within reach of the cache."""


@dataclass(frozen=True)
class _Waiting:
    """A client whose records are in the stack's memory.

    Attributes
    ----------
    member : Member
        Loads them again, where the client has to be trained by itself.
    places : list of torch.Tensor
        The passes after the first: see :func:`~.batches.places_after_first`.
    """

    member: Member
    places: list[torch.Tensor] = field(repr=False)


class _Slots:
    """Memory for the records of a stack's clients, which :class:`DualProgram` finds there."""

    def __init__(self, arena: Arena, shape: tuple[int, ...], most: int) -> None:
        count = shape[0]
        self.shape, self.most = shape, most
        self.rows = arena.take("dual rows", (most * count, *shape[1:]))
        self.classes = arena.take("dual classes at first", (most * count,), torch.int64)
        self.waiting: list[_Waiting] = []

    def place(self, records: Records, member: Member, spec: TrainSpec) -> None:
        """Copy a client's records, in the order of its first pass."""
        count, number = self.shape[0], len(self.waiting)
        orders = passes(count, spec, member.number)
        own = slice(number * count, (number + 1) * count)
        shuffle(records, orders[0], self.rows[own], self.classes[own])
        self.waiting.append(_Waiting(member, places_after_first(orders, count)))


class StackingTrainer(FastTrainer):
    """Trains as :class:`FastTrainer` does, clients that follow one another side by side.

    That is for clients with as many records of one shape each, whose first layer takes its dual
    form and whose other layers are Linear and ReLU, in float32 or float64. A stack gives each
    client the bits that it has by itself, whoever else is in it: this is compared for each number
    of clients and records, on records drawn at random. Where a library multiplies many matrices
    otherwise than one, each client is trained by itself.
    """

    def __init__(
        self,
        task: Task,
        spec: TrainSpec,
        *,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
    ) -> None:
        super().__init__(task, spec, seed=seed, dtype=dtype, device=device)
        self._alike: dict[tuple[int, ...], bool] = {}
        self._apart: set[tuple[int, ...]] = set()
        self._turns = 0
        kinds = {type(layer) for layer in self._behind} <= {Linear, ReLU}
        self.stacks = self._dual is not None and kinds and spec.precision == "float32"
        """Whether any clients can be trained side by side."""

    def train(self, start: np.ndarray, dataset: "Dataset", seed: bytes | int) -> np.ndarray:
        """Train one client by itself, as :meth:`FastTrainer.train` does.

        Parameters
        ----------
        start, dataset, seed
            As there.

        Returns
        -------
        numpy.ndarray
            The change, shape (d,).
        """
        self._turns += 1
        return super().train(start, dataset, seed)

    def train_cohort(self, start: np.ndarray, members: Iterable[Member]) -> Iterator[Outcome]:
        """Train clients, and yield each one's change, or what it raised.

        Parameters
        ----------
        start : numpy.ndarray
            The components, if the model has any, and the global model: shape (public + d,).
        members : iterable of Member
            The clients. Records are copied before the next client's are loaded.

        Yields
        ------
        TrainedClient or exception
            In the order of ``members``.

        Raises
        ------
        RuntimeError
            If something else was trained between two outcomes.
        """
        slots: _Slots | None = None
        for member in members:
            dataset: Dataset | BaseException
            try:
                dataset = member.load()
                records = self._stackable(start, dataset)
            except FAILURES as error:
                dataset, records = error, None
            if slots and (records is None or tuple(records[0].shape) != slots.shape):
                yield from self._outcomes(start, slots)
                slots = None
            if records is None:
                yield (
                    dataset
                    if isinstance(dataset, BaseException)
                    else self._alone(start, dataset, member)
                )
                continue
            slots = slots or self._slots(tuple(records[0].shape))
            slots.place(records, member, self.spec)
            if len(slots.waiting) == slots.most:
                yield from self._outcomes(start, slots)
                slots = None
        if slots:
            yield from self._outcomes(start, slots)

    def _stackable(self, start: np.ndarray, dataset: "Dataset") -> Records | None:
        """Return a client's inputs and targets, None where it is trained by itself."""
        if not self.stacks or start.shape != (self.public + self.layout.length,):
            return None
        examples = as_examples(dataset, self.dtype, self.device)
        if len(examples) == 0 or not holdable(examples):
            return None
        try:
            records = self._shared(examples)
        except UnsupportedLayer:
            return None  # by itself it will say why
        shape = tuple(records[0].shape)
        pays = self._dual is not None and self._pays(self._dual, shape)
        return records if pays and shape not in self._apart and self._room(shape) > 1 else None

    def _room(self, shape: tuple[int, ...]) -> int:
        """Return the clients of a stack, at most."""
        return min(MOST_CLIENTS, RECORD_BYTES // (prod(shape) * self.dtype.itemsize))

    def _slots(self, shape: tuple[int, ...]) -> _Slots:
        with self._growing():
            return _Slots(self._arena, shape, self._room(shape))

    def _outcomes(self, start: np.ndarray, slots: _Slots) -> Iterator[Outcome]:
        """Yield what comes of the clients in the slots; who cannot be stacked is loaded again."""
        waiting = slots.waiting
        origin = start[self.public :].astype(self._flat.weights.numpy().dtype, copy=False)
        # Gradients are off for no longer than a call: what runs between two outcomes may want them.
        with torch.no_grad():
            changes = self._changes(origin, slots)
        for one, change in zip(waiting, changes, strict=True):
            if change is None:
                yield self._alone(start, None, one.member)
            else:
                yield TrainedClient(change, slots.shape[0], together=len(waiting) > 1)

    def _changes(self, origin: np.ndarray, slots: _Slots) -> Iterable[np.ndarray | None]:
        """Return the clients' changes, None of those that have to be trained by themselves."""
        clients, right = len(slots.waiting), list[bool]()
        try:
            program = self._stack(slots.shape, clients)
        except UnsupportedLayer:  # by itself each will say why
            program = None
        if program is None:
            self._apart.add(slots.shape)
            return [None] * clients
        read, filled = ((one.rows.data_ptr(), one.classes.data_ptr()) for one in (program, slots))
        if read != filled:
            raise RuntimeError("records of a stack lie in other memory than it reads")

        def check(outputs: torch.Tensor, targets: torch.Tensor) -> None:
            right[:] = self._right(outputs.view(clients, -1, outputs.shape[-1]), targets)

        fits = program.train(origin, [one.places for one in slots.waiting], check)
        good = [all(both) for both in zip(fits, right or fits, strict=True)]
        if all(good):
            return self._read_in_turn(program, origin)
        # Those that are trained by themselves will take the same memory.
        return [program.change(origin, k) if good[k] else None for k in range(clients)]

    def _read_in_turn(self, program: DualProgram, origin: np.ndarray) -> Iterator[np.ndarray]:
        """Yield each client's change when it is asked for: it is used while it is in the cache."""
        turns = self._turns
        for client in range(program.form.clients):
            if self._turns != turns:
                raise RuntimeError("another client was trained in the memory of a stack")
            with torch.no_grad():
                change = program.change(origin, client)
            yield change

    def _alone(self, start: np.ndarray, dataset: "Dataset | None", member: Member) -> Outcome:
        try:
            dataset = member.load() if dataset is None else dataset
            change = self.train(start, dataset, member.seed)
            return TrainedClient(change, len(as_examples(dataset, self.dtype, self.device)), False)
        except FAILURES as error:
            return error

    def _stack(self, shape: tuple[int, ...], clients: int) -> DualProgram | None:
        """Return the program of some clients side by side, None where bits would differ."""
        program, key = self._dual_program(shape, clients), (clients, *shape)
        if program is None or clients == 1:
            return program
        if key not in self._alike:
            alone = self._dual_program(shape)
            program = self._dual_program(shape, clients)  # memory may have grown
            size = self.layout.length
            self._alike[key] = (
                alone is not None
                and program is not None
                and stacks_alike(alone, program, size, self._classes)
            )
        return program if self._alike[key] else None

    def _layers_behind(self, clients: int) -> Behind:
        if clients == 1:
            return super()._layers_behind(clients)
        layers: list[Layer] = []
        values: list[tuple[slice, np.ndarray]] = []

        def stacked(one: Parameter) -> Parameter:
            parameter = one.stacked(self._arena, clients)
            values.append((one.place, parameter.row.numpy()[:, 0]))
            return parameter

        for layer in self._behind:
            if isinstance(layer, Linear):
                bias = None if layer.bias is None else stacked(layer.bias)
                layer = Linear(stacked(layer.weight), bias)
            layers.append(layer)
        return Behind(layers, values, lambda shape: Program(layers, shape, self._arena, inner=True))

    def _right(self, outputs: torch.Tensor, targets: torch.Tensor) -> list[bool]:
        """Tell of each client whether the task's losses are what the rules are derived from.

        Parameters
        ----------
        outputs : torch.Tensor
            Of each client's first batch: shape (clients, k, classes).
        targets : torch.Tensor
            As many classes.
        """
        own, classes = outputs.clone(), targets.reshape(outputs.shape[:2]).clone()
        expected = nn.functional.cross_entropy(
            outputs.flatten(0, 1), targets.reshape(-1), reduction="none"
        )
        wanted, right = expected.view(classes.shape), []
        for one, other, losses in zip(own, classes, wanted, strict=True):
            try:  # each by itself: what a loss weighs may add up over the clients
                found = per_example_losses(self.task, one, other)
                right.append(close(found, losses, AGREEMENT[self.dtype]))
            except FAILURES:  # by itself it will say so
                right.append(False)
        return right


def stacks_alike(alone: DualProgram, stacked: DualProgram, dimension: int, classes: int) -> bool:
    """Tell whether clients side by side have the bits that each has by itself.

    Parameters
    ----------
    alone, stacked : DualProgram
        Of clients of one form, the first of one client. Records in their memory are kept.
    dimension : int
        Parameters of the model.
    classes : int
        Its outputs.

    Returns
    -------
    bool
        Of records and a model drawn at random.
    """
    form, generator = stacked.form, numpy_generator(0, "stacks")
    kept = stacked.rows.clone(), stacked.classes.clone()
    model = generator.uniform(-0.3, 0.3, dimension).astype(stacked.rows.numpy().dtype)
    rows = torch.from_numpy(generator.random(kept[0].shape)).to(kept[0].dtype)
    targets = torch.from_numpy(generator.integers(0, classes, kept[1].shape))
    later = max(0, -(-(form.steps - form.per_pass) // form.per_pass))
    orders = [
        [torch.from_numpy(generator.permutation(form.count)) for _ in range(later)]
        for _ in range(form.clients)
    ]

    def changes(program: DualProgram, clients: range) -> list[np.ndarray]:
        own = slice(clients.start * form.count, clients.stop * form.count)
        program.rows.copy_(rows[own])
        program.classes.copy_(targets[own])
        program.train(model, [orders[client] for client in clients], lambda *first: None)
        return [program.change(model, place) for place in range(len(clients))]

    together = changes(stacked, range(form.clients))
    one_by_one = [changes(alone, range(k, k + 1))[0] for k in range(form.clients)]
    stacked.rows.copy_(kept[0])
    stacked.classes.copy_(kept[1])
    return all(map(np.array_equal, together, one_by_one))
