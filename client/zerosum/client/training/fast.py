"""Train models of common layers without Module, autograd or optimizer: the fast trainer.

Whole clients are streamed through one set of parameters and buffers that stays in the processor's
cache. What is computed is what :class:`LocalTrainer` computes, to rounding.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import torch
from torch import nn

from zerosum.client.spec import TrainSpec
from zerosum.client.task import Task, error_line
from zerosum.client.training.batches import (
    batch_size,
    batches,
    passes,
    places_after_first,
    schedule,
    step_count,
)
from zerosum.client.training.deferred_linear import deferred, deferring, set_aside
from zerosum.client.training.evaluation import per_example_losses
from zerosum.client.training.examples import Examples, SubsetExamples, TensorExamples, as_examples
from zerosum.client.training.fast_dual import (
    ROUNDED,
    Behind,
    DualLayer,
    DualProgram,
    Form,
    full_precision,
)
from zerosum.client.training.fast_layers import (
    Arena,
    Cast,
    Flatten,
    Layer,
    Linear,
    UnsupportedLayer,
    Update,
)
from zerosum.client.training.fast_model import (
    Program,
    close,
    cross_entropy,
    in_bf16,
    read_layers,
)
from zerosum.client.training.flat_parameters import trainable
from zerosum.client.training.initial_model import draw_weights
from zerosum.client.training.local import LocalTrainer
from zerosum.client.training.precision import missing_bf16, refuse_bf16
from zerosum.client.training.torch_internals import MissingMember, kernels
from zerosum.client.training.torch_seed import seeded, seeded_anew
from zerosum.secagg.randomness import derive_seed

if TYPE_CHECKING:
    from zerosum.client.task import Dataset

log = logging.getLogger("zerosum.client")

Records = tuple[torch.Tensor, torch.Tensor]
"""Inputs and targets of all records of a client."""

HELD_BYTES = 1 << 26
"""A client's inputs up to this size are shuffled as a whole; larger ones are gathered a batch."""

_PROBED = 3
"""Records of a comparison: more than one, so that a mean over the batch shows."""

_PROGRAMS = 64
"""Batch shapes for which functions are kept: each last batch of an epoch may have its own."""

# Rounding of a few layers comes to 1e-6 in float32 and 1e-15 in float64. A rule that is wrong, as
# of a layer with another meaning than its type says, is wrong by the gradient itself. The bounds
# lie far from both, so that no model falls on either side by chance.
AGREEMENT = {torch.float32: 1e-3, torch.float64: 1e-9}
"""Relative error of a gradient, or of losses, at which the rules are those of the model."""

_BF16_PROBED = 32
_BF16_AGREEMENT = 0.3
"""Records and relative error at which rules that hold in float32 hold in bfloat16 too: rounding
moves a unit's output across zero now and then, which among few records is a tenth of a gradient."""


@dataclass(frozen=True, repr=False)
class _Held:
    """Memory for all records of a client of some shape, and its batches with their programs."""

    rows: torch.Tensor
    classes: torch.Tensor
    batches: tuple[tuple[Program, torch.Tensor, torch.Tensor], ...]


class FastTrainer(LocalTrainer):
    """Trains as :class:`LocalTrainer` does, by hand-derived rules where they are known to hold.

    Known for nested ``nn.Sequential`` of Linear, Conv2d, ReLU, MaxPool2d, AvgPool2d, Flatten and
    Identity under cross-entropy, on a CPU. Nothing is taken on trust: the loss is compared with
    cross-entropy when the trainer is made and again on the first batch of each client, the
    gradient with autograd's for every shape of inputs. Whatever differs is trained by
    :class:`LocalTrainer`, with its bits. A first linear layer takes its dual form where that saves
    arithmetic (:mod:`zerosum.client.training.fast_dual`). These choices, as all else, follow from
    the arguments and the processor alone, never from clients seen before.

    Parameters
    ----------
    task, spec, seed, dtype, device
        As for :class:`LocalTrainer`.

    Raises
    ------
    TaskError
        If the model moves running statistics that are not sent, or has nothing to train.
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
        self._update = Update(spec.lr if self._sgd.plain else None)
        self._arena = Arena(dtype)
        self._programs: dict[tuple[bool, tuple[int, ...]], Program] = {}
        self._dual_programs: dict[tuple[int, ...], DualProgram | None] = {}
        self._held: dict[tuple[int, ...], _Held] = {}
        self._agreed: dict[tuple[int, ...], bool] = {}
        self._told: set[str] = set()
        self._why = ""
        self._layers: list[Layer] | None = None
        self._claims: list[tuple[Sequence[Layer], int, float]] = []
        self._dual: DualLayer | None = None
        self._behind: list[Layer] = []
        self._beyond_dual: list[slice] = []
        try:
            if self.device.type != "cpu" or dtype not in AGREEMENT:
                raise UnsupportedLayer(f"{dtype} on {self.device}")
            if spec.past_fast:
                raise UnsupportedLayer(spec.past_fast)
            kernels()  # missing ones are found here, not in a round
            layers, self._classes = read_layers(self._flat, self._update)
            if not cross_entropy(task, self._classes, dtype, AGREEMENT[dtype]):
                raise UnsupportedLayer("the loss is not cross-entropy")
            self._claims.append((layers, _PROBED, AGREEMENT[dtype]))
            self._flattens = isinstance(layers[0], Flatten)
            self._find_dual(layers)
            if spec.precision == "bf16":
                layers = self._rounded(layers)
            self._layers = layers
        except (UnsupportedLayer, MissingMember) as reason:
            self._why = str(reason).partition("(\n")[0]  # a model's text may have many lines
            self._tell(reason)

    @property
    def name(self) -> str:
        """``"fast"``, or ``"general"`` where no client can be trained by hand-derived rules."""
        return "general" if self._layers is None else "fast"

    def set_rate(self, spec: TrainSpec) -> None:
        """Take another learning rate, as :meth:`LocalTrainer.set_rate` does: no program is lost.

        Parameters
        ----------
        spec : TrainSpec
            The same but for its rate.
        """
        super().set_rate(spec)
        if self._update.rate is None:
            return
        self._update.rate = spec.lr
        if self._dual is not None:
            self._dual = replace(self._dual, rate=spec.lr)
            for program in self._dual_programs.values():
                if program is not None:
                    program.set_dual(self._dual)

    def _find_dual(self, layers: list[Layer]) -> None:
        """Find a first layer that can be trained in its dual form: under plain SGD alone."""
        place = int(self._flattens)
        first = layers[place]
        if self._update.rate is None or not isinstance(first, Linear):
            return
        self._dual = DualLayer(first, self._update.rate, full_precision(self.dtype))
        self._behind = layers[place + 1 :]
        places = self._dual.places
        self._beyond_dual = [where for where in self.layout.slices if where not in places]

    def _rounded(self, layers: list[Layer]) -> list[Layer]:
        """Return the layers in bfloat16, and let the dual form be in it too."""
        halves = deferring(in_bf16(layers))
        self._claims.append((halves, _BF16_PROBED, _BF16_AGREEMENT))
        if self._dual is not None:
            self._dual = replace(self._dual, large=ROUNDED)
            hidden = [layer for layer in self._behind if isinstance(layer, Linear)][:-1]
            if hidden:
                first = next(i for i, layer in enumerate(halves) if isinstance(layer, Linear))
                self._behind = [Cast(torch.bfloat16), *halves[first + 1 :]]
        return halves

    def train(self, start: np.ndarray, dataset: "Dataset", seed: bytes | int) -> np.ndarray:
        """Train from ``start`` on one client's data and return the change.

        Parameters
        ----------
        start : numpy.ndarray
            Shape (public + d,).
        dataset : torch Dataset or pair of tensors
            The client's records.
        seed : bytes or int
            Fixes batch order.

        Returns
        -------
        numpy.ndarray
            The change, shape (d,), as :meth:`LocalTrainer.train` returns it.

        Raises
        ------
        TaskError
            If bfloat16 is asked for and cannot be had: nothing is trained in float32 instead.
        """
        if self.spec.precision == "bf16":
            refuse_bf16(self.spec, missing_bf16(self.device.type) or self._why or None)
        if self._layers is not None and start.shape == (self.public + self.layout.length,):
            examples = as_examples(dataset, self.dtype, self.device)
            number = int.from_bytes(seed, "little") if isinstance(seed, bytes) else seed
            try:
                with torch.no_grad():
                    return self._train(start, examples, number)
            except UnsupportedLayer as reason:
                refuse_bf16(self.spec, str(reason))
                self._tell(reason)
        return super().train(start, dataset, seed)

    def trial_step(self, vector: np.ndarray, dataset: "Dataset") -> bool:
        """Take the first step, as :meth:`LocalTrainer.trial_step` does, and check the precision.

        Parameters
        ----------
        vector : numpy.ndarray
            As for :meth:`train`.
        dataset : torch Dataset or pair of tensors
            Some client's records.

        Returns
        -------
        bool
            False where there are no records.

        Raises
        ------
        TaskError
            As there, and if bfloat16 is asked for and these records cannot be trained in it.
        """
        if not super().trial_step(vector, dataset):
            return False
        if self.spec.precision == "bf16":
            refuse_bf16(self.spec, self._why or None)
            examples = as_examples(dataset, self.dtype, self.device)
            try:
                inputs, targets = examples.take(torch.arange(batch_size(len(examples), self.spec)))
                _check_batch(inputs, targets, self.dtype, self._classes)
                with torch.no_grad():
                    self._program(tuple((inputs.flatten(1) if self._flattens else inputs).shape))
            except UnsupportedLayer as reason:
                refuse_bf16(self.spec, str(reason))
        return True

    def _train(self, start: np.ndarray, examples: Examples, seed: int) -> np.ndarray:
        weights = self._flat.weights.numpy()
        origin = start[self.public :].astype(weights.dtype, copy=False)
        if len(examples) == 0:
            return np.zeros_like(origin)
        if not holdable(examples):
            self._place(start, origin, len(examples))
            anchor = self._anchor(origin)
            with seeded_anew(derive_seed(seed, "training")):  # a data set may draw transforms
                for first, batch in batches(examples, self.spec, seed):
                    inputs, targets = batch.taken()
                    _check_batch(inputs, targets, self.dtype, self._classes)
                    program = self._program(tuple(inputs.shape))
                    self._step_on(program, inputs, targets, anchor, first)
            return self._change(origin)
        records = self._shared(examples)
        delta = self._train_dual(records, seed, origin)
        if delta is None:
            self._place(start, origin, len(examples))
            self._train_held(records, seed, self._anchor(origin))
            delta = self._change(origin)
        return delta

    def _anchor(self, origin: np.ndarray) -> torch.Tensor:
        """Return the global model for the proximal term; a fused update has none."""
        return self._flat.weights if self._update.rate is not None else torch.tensor(origin)

    def _change(self, origin: np.ndarray) -> np.ndarray:
        for layer in deferred(self._layers or ()):
            layer.end()
        return self._flat.weights.numpy() - origin  # type: ignore[no-any-return]

    def _step_on(
        self,
        program: Program,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        anchor: torch.Tensor,
        first: bool,
    ) -> None:
        outputs = program.outputs(inputs)
        if first:
            self._check(outputs, targets)
        program.descend(targets)
        if self._update.rate is None:
            self._descend(anchor, first)

    def _shared(self, examples: TensorExamples | SubsetExamples) -> Records:
        """Return all records, checked; they may be the data set's own."""
        inputs, targets = examples.shared()  # copied into our own memory below
        if self._flattens and inputs.dim() > 2:
            inputs = inputs.flatten(1)
        _check_batch(inputs, targets, self.dtype, self._classes)
        return inputs, targets

    def _train_held(self, records: Records, seed: int, anchor: torch.Tensor) -> None:
        """Train on records that are shuffled as a whole."""
        shape = tuple(records[0].shape)
        held = self._held.get(shape)
        if held is None:
            held = self._bind_held(shape)
            if len(self._held) >= _PROGRAMS:
                self._held.clear()
            self._held[shape] = held
        for step, turn, order in schedule(shape[0], self.spec, seed):
            if turn == 0 and (step == 0 or order is not None):
                shuffle(records, order, held.rows, held.classes)
            self._step_on(*held.batches[turn], anchor, step == 0)

    def _bind_held(self, shape: tuple[int, ...]) -> _Held:
        with self._growing():
            # Always from our own memory: how others' is aligned must not change a bit.
            rows = self._arena.take("inputs", shape)
            classes = self._arena.take("targets", shape[:1], torch.int64)
        size = batch_size(shape[0], self.spec)
        parts = zip(torch.split(rows, size), torch.split(classes, size), strict=True)
        batches = tuple((self._program(tuple(one.shape)), one, other) for one, other in parts)
        return _Held(rows, classes, batches)

    def _train_dual(self, records: Records, seed: int, origin: np.ndarray) -> np.ndarray | None:
        """Train with the first layer in its dual form, and return the change, where that pays."""
        count = records[0].shape[0]
        dual = self._dual_program(tuple(records[0].shape))
        if dual is None:
            return None
        orders = passes(count, self.spec, seed)
        shuffle(records, orders[0], dual.rows, dual.classes)
        (fits,) = dual.train(origin, [places_after_first(orders, count)], self._check)
        return dual.change(origin, 0) if fits else None

    def _place(self, start: np.ndarray, origin: np.ndarray, count: int) -> None:
        """Load the global model, without copies: see :meth:`~.local.LocalTrainer._load`."""
        np.copyto(self._flat.weights.numpy(), origin)
        if self._projection is not None:
            directions = self._projection[1].detach().numpy()
            np.copyto(directions, start[: self.public].reshape(directions.shape), "same_kind")
        self._begin(self._layers or (), count)

    def _begin(self, layers: Sequence[Layer], count: int) -> None:
        """Tell layers whose weights are loaded that a client of so many records begins."""
        for layer in deferred(layers):
            layer.begin(step_count(count, self.spec) * batch_size(count, self.spec))

    def _program(self, shape: tuple[int, ...], *, inner: bool = False) -> Program:
        """Return the program for a batch, once its rules were found to hold.

        With ``inner``, the program of what follows a first layer in its dual form.
        """
        program = self._programs.get((inner, shape))
        if program is None:
            if not inner:
                self._check_agreement(shape[1:])
            program = self._bind(shape, self._behind if inner else self._layers or [], inner=inner)
            if len(self._programs) >= _PROGRAMS:
                self._programs.clear()
            self._programs[inner, shape] = program
        return program

    def _check_agreement(self, shape: tuple[int, ...]) -> None:
        """Raise unless the rules are the model's on records of a shape."""
        if shape not in self._agreed:
            self._agreed[shape] = self._agrees(shape)
        if not self._agreed[shape]:
            raise UnsupportedLayer(f"hand-derived gradients differ for inputs of shape {shape}")

    def _dual_program(self, shape: tuple[int, ...], clients: int = 1) -> DualProgram | None:
        """Return the dual form for clients' records of a shape, None where it does not pay."""
        key = clients, *shape
        if key not in self._dual_programs:
            if len(self._dual_programs) >= _PROGRAMS:
                self._dual_programs.clear()
            self._dual_programs[key] = self._bind_dual(shape, clients)
        return self._dual_programs[key]

    def _bind_dual(self, shape: tuple[int, ...], clients: int) -> DualProgram | None:
        count, dual = shape[0], self._dual
        if dual is None or not self._pays(dual, shape):
            return None
        self._check_agreement(shape[1:])
        size, steps = batch_size(count, self.spec), step_count(count, self.spec)
        with self._growing():
            form = Form(clients, count, size, steps)
            return DualProgram(dual, self._layers_behind(clients), form, self._arena)

    def _pays(self, dual: DualLayer, shape: tuple[int, ...]) -> bool:
        count = shape[0]
        size, steps = batch_size(count, self.spec), step_count(count, self.spec)
        return shape[1:] == (dual.inputs,) and dual.pays(count, size, steps)

    def _layers_behind(self, clients: int) -> Behind:
        """Return the layers behind a first one in its dual form, of one client."""
        weights = self._flat.weights.numpy()
        values = [(where, weights[None, where]) for where in self._beyond_dual]
        return Behind(self._behind, values, lambda shape: self._program(shape, inner=True))

    @contextmanager
    def _growing(self) -> Iterator[None]:
        """Let go of all programs where the block takes larger memory: they hold the smaller."""
        grown = self._arena.grown
        yield
        if self._arena.grown > grown:
            self._programs.clear()
            self._dual_programs.clear()
            self._held.clear()

    def _bind(
        self, shape: tuple[int, ...], layers: Sequence[Layer], *, inner: bool = False
    ) -> Program:
        with self._growing():
            try:
                return Program(layers, shape, self._arena, inner=inner)
            except RuntimeError as error:  # torch's, of a shape that a layer does not take
                raise UnsupportedLayer(str(error)) from error

    def _agrees(self, shape: tuple[int, ...]) -> bool:
        """Compare gradients with autograd's on random weights and inputs of a shape."""
        before = self._flat.weights.clone(), self._update.rate
        directions = None if self._projection is None else self._projection[1].detach().clone()
        try:
            with set_aside(self._layers or ()):
                return all(self._probe(shape, *claim) for claim in self._claims)
        except Exception as error:  # what the model raises, the general path will on real data
            raise UnsupportedLayer(str(error)) from error
        finally:
            self._flat.weights.copy_(before[0])
            self._update.rate = before[1]
            if self._projection is not None and directions is not None:
                self._projection[1].copy_(directions)

    def _probe(
        self, shape: tuple[int, ...], layers: Sequence[Layer], count: int, most: float
    ) -> bool:
        generator = torch.Generator().manual_seed(0)
        inputs = torch.randn((count, *shape), generator=generator, dtype=self.dtype)
        targets = torch.randint(self._classes, (count,), generator=generator)
        draw_weights(self.model.parameters(), generator)  # directions too
        program = self._bind((count, *shape), layers)
        self.model.train()
        with seeded(0), torch.enable_grad():
            losses = per_example_losses(self.task, self.model(inputs), targets)
            parameters = list(trainable(self.model).values())
            parts = torch.autograd.grad(losses.sum() / count, parameters)
        expected = torch.cat([part.reshape(-1) for part in parts])
        before = self._flat.weights.clone()
        if self._update.rate is not None:
            self._update.rate = 1.0
        patient = deferred(layers)
        for layer in patient:
            layer.begin(count)
        program.outputs(inputs)
        program.descend(targets)
        for layer in patient:
            layer.end()
        gradient = self._flat.gradients
        if self._update.rate is not None:
            gradient = before - self._flat.weights
        distance = torch.linalg.vector_norm(gradient - expected)
        return bool(distance <= most * torch.linalg.vector_norm(expected))

    def _check(self, outputs: torch.Tensor, targets: torch.Tensor) -> None:
        """Raise unless the task's losses of a batch are what the rules are derived from."""
        try:
            # Copies: a loss that works in place would change what the rules go on with.
            task_losses = per_example_losses(self.task, outputs.clone(), targets.clone())
        except Exception as error:
            raise UnsupportedLayer(f"the loss fails: {error_line(error)}") from error
        expected = nn.functional.cross_entropy(outputs, targets, reduction="none")
        if not close(task_losses, expected, AGREEMENT[self.dtype]):
            raise UnsupportedLayer("the loss is not cross-entropy")

    def _tell(self, reason: Exception) -> None:
        if str(reason) not in self._told:
            self._told.add(str(reason))
            log.info("local training takes the general path: %s", reason)


def choose_trainer(
    task: Task, spec: TrainSpec, *, seed: int = 0, device: str = "cpu", kind: str = "auto"
) -> LocalTrainer:
    """Return the fastest trainer of a task's clients, or one by name; its ``name`` says which.

    Parameters
    ----------
    task, spec, seed, device
        As for :class:`LocalTrainer`.
    kind : str
        ``"fast"``, ``"general"``, ``"batched"``, or ``"auto"``: fast on a CPU, batched on a GPU.

    Returns
    -------
    LocalTrainer
        Of one of the three kinds.

    Raises
    ------
    TaskError
        If the model moves running statistics that are not sent, or has nothing to train.
    """
    if kind == "auto":
        kind = "fast" if device == "cpu" else "batched"
    if kind == "batched":
        from zerosum.client.training.batched import BatchedTrainer

        return BatchedTrainer(task, spec, seed=seed, device=device)
    if kind == "fast":
        from zerosum.client.training.fast_stacks import StackingTrainer

        return StackingTrainer(task, spec, seed=seed, device=device)
    return LocalTrainer(task, spec, seed=seed, device=device)


def shuffle(
    records: Records, order: torch.Tensor | None, rows: torch.Tensor, classes: torch.Tensor
) -> None:
    """Copy records into memory of our own, in an order or as they are.

    Parameters
    ----------
    records : tuple of torch.Tensor
        Inputs, shape (n, ...), and targets, shape (n,).
    order : torch.Tensor or None
        int64, shape (n,).
    rows, classes : torch.Tensor
        Written to: of the same shapes.
    """
    inputs, targets = records
    if order is None:
        rows.copy_(inputs)
        classes.copy_(targets)
    else:
        torch.index_select(inputs, 0, order, out=rows)
        torch.index_select(targets, 0, order, out=classes)


def holdable(examples: Examples) -> TypeGuard[TensorExamples | SubsetExamples]:
    """Tell whether examples are tensors small enough to be shuffled as a whole."""
    whole = examples.whole if isinstance(examples, SubsetExamples) else examples
    if not isinstance(whole, TensorExamples):
        return False
    return prod(whole.inputs.shape[1:]) * len(examples) * whole.dtype.itemsize <= HELD_BYTES


def _check_batch(inputs: Any, targets: torch.Tensor, dtype: torch.dtype, classes: int) -> None:
    """Raise unless inputs are of the trainer's dtype and targets are classes, one each."""
    if not isinstance(inputs, torch.Tensor) or inputs.dtype != dtype or inputs.dim() < 2:
        raise UnsupportedLayer(f"inputs are no tensor of {dtype}, one row an example")
    if targets.dtype != torch.int64 or targets.dim() != 1:
        raise UnsupportedLayer("targets are no int64 classes")
    low, high = torch.aminmax(targets)
    if low.item() < 0 or high.item() >= classes:
        raise UnsupportedLayer("targets lie outside the classes")
