"""Train models of common layers without Module, autograd or optimizer: the fast trainer.

Whole clients are streamed through one set of parameters and buffers that stays in the processor's
cache. What is computed is what :class:`LocalTrainer` computes, to rounding.
"""

import logging
from collections.abc import Generator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import torch

from zerosum.client.spec import TrainSpec
from zerosum.client.task import Task, error_line
from zerosum.client.training.batches import batch_size, batches, schedule, trained_records
from zerosum.client.training.deferred_linear import deferred, deferring, set_aside
from zerosum.client.training.evaluation import per_example_losses
from zerosum.client.training.examples import Examples, SubsetExamples, TensorExamples, as_examples
from zerosum.client.training.fast_layers import Arena, Flatten, Layer, UnsupportedLayer, Update
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

HELD_BYTES = 1 << 26
"""A client's inputs up to this size are shuffled as a whole; larger ones are gathered a batch."""

_PROBED = 3
"""Records of a comparison: more than one, so that a mean over the batch shows."""

_PROGRAMS = 64
"""Batch shapes for which functions are kept: each last batch of an epoch may have its own."""

# Rounding of a few layers comes to 1e-6 in float32 and 1e-15 in float64. A rule that is wrong, as
# of a layer with another meaning than its type says, is wrong by the gradient itself. The bounds
# lie far from both, so that no model falls on either side by chance.
_AGREEMENT = {torch.float32: 1e-3, torch.float64: 1e-9}
"""Relative error of a gradient, or of losses, at which the rules are those of the model."""

_BF16_PROBED = 32
_BF16_AGREEMENT = 0.3
"""Records and relative error at which rules that hold in float32 hold in bfloat16 too: rounding
moves a unit's output across zero now and then, which among few records is a tenth of a gradient."""


class FastTrainer(LocalTrainer):
    """Trains as :class:`LocalTrainer` does, by hand-derived rules where they are known to hold.

    Known for nested ``nn.Sequential`` of Linear, Conv2d, ReLU, MaxPool2d, AvgPool2d, Flatten and
    Identity under cross-entropy, on a CPU. Nothing is taken on trust: the loss is compared with
    cross-entropy when the trainer is made and again on the first batch of each client, the
    gradient with autograd's for every shape of inputs. Whatever differs is trained by
    :class:`LocalTrainer`, with its bits. That choice, as all else, follows from the arguments
    alone, never from clients seen before.

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
        self._programs: dict[tuple[int, ...], Program] = {}
        self._agreed: dict[tuple[int, ...], bool] = {}
        self._told: set[str] = set()
        self._why = ""
        self._layers = None
        self._claims: list[tuple[Sequence[Layer], int, float]] = []
        try:
            if self.device.type != "cpu" or dtype not in _AGREEMENT:
                raise UnsupportedLayer(f"{dtype} on {self.device}")
            kernels()  # missing ones are found here, not in a round
            layers, self._classes = read_layers(self._flat, self._update)
            if not cross_entropy(task, self._classes, dtype, _AGREEMENT[dtype]):
                raise UnsupportedLayer("the loss is not cross-entropy")
            self._claims.append((layers, _PROBED, _AGREEMENT[dtype]))
            if spec.precision == "bf16":
                layers = deferring(in_bf16(layers))
                self._claims.append((layers, _BF16_PROBED, _BF16_AGREEMENT))
            self._layers = layers
            self._flattens = isinstance(layers[0], Flatten)
        except (UnsupportedLayer, MissingMember) as reason:
            self._why = str(reason).partition("(\n")[0]  # a model's text may have many lines
            self._tell(reason)

    @property
    def name(self) -> str:
        """``"fast"``, or ``"general"`` where no client can be trained by hand-derived rules."""
        return "general" if self._layers is None else "fast"

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
                with torch.no_grad(), closing(self._batches(examples, 0)) as source:
                    self._program(next(source)[1][0])
            except UnsupportedLayer as reason:
                refuse_bf16(self.spec, str(reason))
        return True

    def _train(self, start: np.ndarray, examples: Examples, seed: int) -> np.ndarray:
        weights = self._flat.weights.numpy()
        origin = start[self.public :].astype(weights.dtype, copy=False)
        if len(examples) == 0:
            return np.zeros_like(origin)
        self._place(start, origin)
        # Without a fused update, the proximal term wants it as a tensor.
        fused = self._update.rate is not None
        anchor = self._flat.weights if fused else torch.tensor(origin)
        patient = deferred(self._layers or ())
        for layer in patient:
            layer.begin(trained_records(len(examples), self.spec))
        with closing(self._batches(examples, seed)) as source:
            for first, (inputs, targets) in source:
                program = self._program(inputs)
                outputs = program.outputs(inputs)
                if first:
                    self._check(outputs, program.losses(targets), targets)
                program.descend(targets)
                if not fused:
                    self._descend(anchor, first)
        for layer in patient:
            layer.end()
        delta: np.ndarray = weights - origin
        return delta

    def _place(self, start: np.ndarray, origin: np.ndarray) -> None:
        """Load the global model, without copies: see :meth:`~.local.LocalTrainer._load`."""
        np.copyto(self._flat.weights.numpy(), origin)
        if self._projection is not None:
            directions = self._projection[1].detach().numpy()
            np.copyto(directions, start[: self.public].reshape(directions.shape), "same_kind")

    def _batches(
        self, examples: Examples, seed: int
    ) -> Generator[tuple[bool, tuple[torch.Tensor, torch.Tensor]]]:
        """Yield what :func:`batches` yields, from inputs shuffled as a whole where they fit."""
        if not _holdable(examples):
            with seeded_anew(derive_seed(seed, "training")):  # a data set may draw transforms
                for first, (inputs, targets) in batches(examples, self.spec, seed):
                    _check_batch(inputs, targets, self.dtype, self._classes)
                    yield first, (inputs, targets)
            return
        inputs, targets = examples.shared()  # copied into our own memory below
        if self._flattens and inputs.dim() > 2:
            inputs = inputs.flatten(1)
        _check_batch(inputs, targets, self.dtype, self._classes)
        # Always from our own memory: how others' is aligned must not change a bit.
        rows = self._arena.take("inputs", tuple(inputs.shape))
        classes = self._arena.take("targets", tuple(targets.shape), torch.int64)
        size = batch_size(len(targets), self.spec)
        parts = list(zip(torch.split(rows, size), torch.split(classes, size), strict=True))
        for step, turn, order in schedule(len(targets), self.spec, seed):
            if order is None and step == 0:
                rows.copy_(inputs)
                classes.copy_(targets)
            elif order is not None and turn == 0:
                torch.index_select(inputs, 0, order, out=rows)
                torch.index_select(targets, 0, order, out=classes)
            yield step == 0, parts[turn]

    def _program(self, inputs: torch.Tensor) -> Program:
        """Return the program for a batch, once its rules were found to hold."""
        shape = tuple(inputs.shape)
        program = self._programs.get(shape)
        if program is None:
            if shape[1:] not in self._agreed:
                self._agreed[shape[1:]] = self._agrees(shape[1:])
            if not self._agreed[shape[1:]]:
                raise UnsupportedLayer(
                    f"hand-derived gradients differ for inputs of shape {shape[1:]}"
                )
            program = self._bind(shape, self._layers or ())
            if len(self._programs) >= _PROGRAMS:
                self._programs.clear()
            self._programs[shape] = program
        return program

    def _bind(self, shape: tuple[int, ...], layers: Sequence[Layer]) -> Program:
        grown = self._arena.grown
        try:
            program = Program(layers, shape, self._arena)
        except RuntimeError as error:  # torch's, of a shape that a layer does not take
            raise UnsupportedLayer(str(error)) from error
        if self._arena.grown > grown:
            self._programs.clear()  # they hold the memory that was too small
        return program

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

    def _check(self, outputs: torch.Tensor, losses: torch.Tensor, targets: torch.Tensor) -> None:
        """Raise unless the task's losses of a batch are what the rules are derived from."""
        try:
            # Copies: a loss that works in place would change what the rules go on with.
            task_losses = per_example_losses(self.task, outputs.clone(), targets.clone())
        except Exception as error:
            raise UnsupportedLayer(f"the loss fails: {error_line(error)}") from error
        if not close(task_losses, losses, _AGREEMENT[self.dtype]):
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
    made = FastTrainer if kind == "fast" else LocalTrainer
    return made(task, spec, seed=seed, device=device)


def _holdable(examples: Examples) -> TypeGuard[TensorExamples | SubsetExamples]:
    """Tell whether examples are tensors small enough to be shuffled as a whole."""
    whole = examples.whole if isinstance(examples, SubsetExamples) else examples
    if not isinstance(whole, TensorExamples):
        return False
    return whole.inputs[:1].numel() * len(examples) * whole.dtype.itemsize <= HELD_BYTES


def _check_batch(inputs: Any, targets: torch.Tensor, dtype: torch.dtype, classes: int) -> None:
    """Raise unless inputs are of the trainer's dtype and targets are classes, one each."""
    if not isinstance(inputs, torch.Tensor) or inputs.dtype != dtype or inputs.dim() < 2:
        raise UnsupportedLayer(f"inputs are no tensor of {dtype}, one row an example")
    if targets.dtype != torch.int64 or targets.dim() != 1:
        raise UnsupportedLayer("targets are no int64 classes")
    low, high = torch.aminmax(targets)
    if low.item() < 0 or high.item() >= classes:
        raise UnsupportedLayer("targets lie outside the classes")
