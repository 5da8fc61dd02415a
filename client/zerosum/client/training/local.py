"""Train one client after another by autograd: the general trainer, which any model can use."""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from zerosum.client.protocol.training_outcomes import NOT_FINITE_CURE
from zerosum.client.spec import TrainSpec
from zerosum.client.task import Task, TaskError
from zerosum.client.training.batch_norm import lone_record_named, mixes
from zerosum.client.training.batches import Batch, batch_size, batches
from zerosum.client.training.channels_last import ChannelsLast
from zerosum.client.training.evaluation import (
    evaluated_sums,
    per_example_losses,
    per_example_metrics,
)
from zerosum.client.training.examples import Examples, as_examples, moved
from zerosum.client.training.flat_parameters import flatten, trainable
from zerosum.client.training.index_check import GuardedExamples, IndexGuard
from zerosum.client.training.initial_model import build_model, initial_vector
from zerosum.client.training.model_checks import called, cast_of, check_unchanged, converted
from zerosum.client.training.model_file import entries, whole_state
from zerosum.client.training.optimizers import ClientOptimizer
from zerosum.client.training.precision import refuse_bf16
from zerosum.client.training.projection import projection_of
from zerosum.client.training.restored_state import Snapshot
from zerosum.client.training.sgd import Sgd
from zerosum.client.training.spectral_norms import SpectralNorms
from zerosum.client.training.torch_seed import all_seeded, seeded, seeded_anew
from zerosum.client.training.whole_set import OutputsKept
from zerosum.secagg.randomness import derive_seed

if TYPE_CHECKING:
    from zerosum.client.task import Dataset

log = logging.getLogger("zerosum.client")

TRIAL_RECORDS = 2
"""Records of a trial: enough for a mistake that only a batch shows, as a loss that is a mean."""


class LocalTrainer:
    """Trains one client after another on one model that it reuses.

    Nothing of a client outlives its call: parameters are loaded, momentum starts at zero, and
    buffers and what else the model keeps are put back. Running statistics are loaded too, and part
    of the change, where ``spec.batchnorm`` is ``"average"``. The arithmetic is that of
    ``torch.optim.SGD`` (momentum without dampening; a parameter that no loss depends on stays
    where it is), with the proximal gradient of FedProx (Li et al. 2020, equation 2) added after
    weight decay. ``spec.optimizer`` names another class of ``torch.optim``, which takes the steps
    itself, the proximal gradient being part of its gradient. On a CPU with one thread, equal
    arguments give equal bits.

    Parameters
    ----------
    task : Task
        Supplies the model and the loss.
    spec : TrainSpec
        Epochs or steps, batch size, learning rate and the rest.
    seed : int
        The experiment's seed: fixes parameters that are not trained.
    dtype : torch.dtype
        Of parameters, floating-point inputs and the returned delta.
    device : str
        Where to train.

    Raises
    ------
    TaskError
        If the model moves running statistics that are not sent, has nothing to train, or holds
        what no file of it could; if the optimizer cannot be had, or a batch cannot be cut.
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
        self.task = task
        self.spec = spec
        self.dtype = dtype
        self.device = torch.device(device)
        made = build_model(task, seed)
        self.cast = cast_of(made, dtype)
        entries(made)
        self._flat = flatten(converted(made, self.device, dtype), spec.batchnorm)
        self.model = self._flat.model
        self.layout = self._flat.layout
        self._projection = projection_of(self.model)
        self._buffers = [
            (module, name, _writable(buffer), buffer.clone())
            for module in self.model.modules()
            for name, buffer in module.named_buffers(recurse=False)
        ]
        self._sgd = Sgd.of(spec)
        if spec.micro_batch and (mixing := mixes(self.model)):
            raise TaskError(
                f"training.micro_batch = {spec.micro_batch}: {mixing[0]} normalises by the records "
                "of a batch, and parts of it would train another model; take it out"
            )
        self._momentum = torch.zeros_like(self._flat.weights)
        self._named = trainable(self.model)
        self._parameters = list(self._named.values())
        self._optimizer: ClientOptimizer | None = None
        if spec.optimizer != "SGD":
            self._optimizer = ClientOptimizer(spec, self._parameters)
        self._weights = self._flat.views()
        self._gradients_of = [self._flat.gradients[where] for where in self.layout.slices]
        self._channels_last = ChannelsLast(self._flat, self._restore_buffers)
        self._state = _state_of(self.model)
        self._norms = SpectralNorms(self.model)
        self._first = self._flat.weights.clone() if self._norms else None
        self._told_moved = False
        self._seed = seed
        self._guard: IndexGuard | None = None
        self.unscored, self.lost = "", 0
        """Why the last evaluation had no accuracy; empty where it had, or the task has metrics."""

    @property
    def name(self) -> str:
        """Return the trainer's name, for the report."""
        return "general"

    @property
    def public(self) -> int:
        """Entries that come before the trained parameters in every vector: the components."""
        return 0 if self._projection is None else self._projection[1].numel()

    def set_rate(self, spec: TrainSpec) -> None:
        """Take another learning rate, from the next client on: all else of the trainer stays.

        A schedule gives each round its own, and a trainer is costly to make.

        Parameters
        ----------
        spec : TrainSpec
            The same but for its rate.

        Raises
        ------
        ValueError
            If something else differs.
        """
        if spec.model_copy(update={"lr": self.spec.lr}) != self.spec:
            raise ValueError("a trainer takes another learning rate, and nothing else")
        self.spec, self._sgd = spec, Sgd.of(spec)
        if self._optimizer is not None:
            self._optimizer.set_rate(spec)

    def initial_vector(self) -> np.ndarray:
        """Return what round 0 begins with, float32, shape (public + d,): no components are known.

        See :func:`initial_vector`.
        """
        unknown = np.zeros(self.public, dtype=np.float32)
        first = initial_vector(self.task, self._seed, self.spec.batchnorm)
        return np.concatenate([unknown, first])

    def to_state_dict(self, vector: np.ndarray) -> dict[str, torch.Tensor]:
        """Return the whole state dict of the model that a vector of shape (public + d,) gives."""
        made = build_model(self.task, self._seed)
        return whole_state(made, vector, self.public, self.spec.batchnorm)

    def train(self, start: np.ndarray, dataset: "Dataset", seed: bytes | int) -> np.ndarray:
        """Train from ``start`` on one client's data and return the change.

        Parameters
        ----------
        start : numpy.ndarray
            The components, if the model has any, and the global model: shape (public + d,).
        dataset : torch Dataset or pair of tensors
            The client's records; with none the change is zero.
        seed : bytes or int
            Fixes batch order and dropout; derive it from (experiment, round, client).

        Returns
        -------
        numpy.ndarray
            Local model minus ``start``, shape (d,), dtype of the trainer.

        Raises
        ------
        TaskError
            If running statistics moved that are not sent, or another precision is asked for.
        """
        refuse_bf16(self.spec, "autograd trains in float32")
        number = int.from_bytes(seed, "little") if isinstance(seed, bytes) else seed
        origin = self._load(start)
        examples = self._examples_of(dataset)
        if len(examples) > 0:
            self.model.train()
            size = batch_size(len(examples), self.spec)
            again = seeded_anew(derive_seed(number, "training"))
            with again, lone_record_named(len(examples), size):
                for first, parts in batches(examples, self.spec, number):
                    self._step(parts, origin, first)
        delta = self._flat.weights - origin
        statistics = self._flat.running.changes()
        self._tell_moved()
        self._restore_buffers()
        return (torch.cat([delta, statistics]) if len(statistics) else delta).cpu().numpy()

    def settle(self, start: np.ndarray, load: "Callable[[], Dataset]") -> None:
        """Find out on some client's records what :attr:`name` is, where the model does not tell.

        Parameters
        ----------
        start : numpy.ndarray
            The global model, shape (public + d,).
        load : callable
            Returns some client's records.
        """

    def evaluate(
        self,
        vector: np.ndarray,
        dataset: "Dataset",
        batch_size: int = 1000,
        records: int | None = None,
        kept: OutputsKept | None = None,
    ) -> dict[str, float]:
        """Sum losses and metrics of the model that a vector gives.

        Parameters
        ----------
        vector : numpy.ndarray
            As :meth:`train` takes it.
        dataset : torch Dataset or pair of tensors
        batch_size : int
            Examples at a time.
        records : int, optional
            Evaluate the first so many alone.
        kept : OutputsKept, optional
            Is given outputs and targets of each batch.

        Returns
        -------
        dict of str to float
            Sums, as :func:`zerosum.client.training.evaluation.evaluate` returns them.
        """
        self._load(vector)
        examples = self._examples_of(dataset)
        sums, self.unscored, self.lost = evaluated_sums(
            self.model, examples, self.task, batch_size, records, kept
        )
        return sums

    def predict(self, vector: np.ndarray, inputs: torch.Tensor) -> torch.Tensor:
        """Compute the outputs of the model that a vector gives.

        Parameters
        ----------
        vector : numpy.ndarray
            As :meth:`train` takes it.
        inputs : torch.Tensor
            Shape (n, ...).

        Returns
        -------
        torch.Tensor
            Shape (n, ...), on the CPU, without gradients.
        """
        self._load(vector)
        self.model.eval()
        with torch.no_grad():
            outputs: torch.Tensor = self.model(inputs.to(self.device, copy=True))
        return moved(outputs, torch.device("cpu"))  # type: ignore[no-any-return]

    def trial_evaluation(self, vector: np.ndarray, dataset: "Dataset") -> None:
        """Compute loss and metrics of the first records, and raise what goes wrong.

        Parameters
        ----------
        vector : numpy.ndarray
            As :meth:`train` takes it.
        dataset : torch Dataset or pair of tensors
            Nothing is done where it is empty.
        """
        self._load(vector)
        examples = self._examples_of(dataset)
        if len(examples):
            self.model.eval()
            with torch.no_grad(), seeded(0):
                inputs, targets = examples.take(torch.arange(min(TRIAL_RECORDS, len(examples))))
                outputs = called(self.model, inputs)
                check_unchanged(self.model, self._named)
                per_example_metrics(self.task, outputs, targets)
                per_example_losses(self.task, outputs, targets)

    def trial_step(self, vector: np.ndarray, dataset: "Dataset") -> bool:
        """Take the first step of training on a batch of the first records, and undo it.

        The batch is gathered by index, never handed out whole: a model that works in place must
        not change a user's own tensors before the run. Generators, buffers and weights are put
        back, also where the step raises.

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
            If the step leads to NaN or infinity, or moves running statistics that are not sent.
            Whatever data, model or loss raise is passed on.
        """
        origin = self._load(vector)
        examples = self._examples_of(dataset)
        if not len(examples):
            return False
        self.model.train()
        try:
            size = batch_size(len(examples), self.spec)
            with all_seeded(0), lone_record_named(len(examples), size):
                self._step(Batch.of(examples, torch.arange(size), self.spec), origin, first=True)
            self._flat.running.check_still()
            finite = bool(self._flat.weights.isfinite().all())
        finally:
            self._load(vector)
            self._momentum.zero_()
        if not finite:
            raise TaskError(
                f"the first step of training leads to NaN or infinity: {NOT_FINITE_CURE}"
            )
        return True

    def _examples_of(self, dataset: "Dataset", *, alike: bool = False) -> Examples:
        """Return a data set's examples for this trainer's device, checked on the way to a GPU."""
        if self.device.type == "cpu":
            return as_examples(dataset, self.dtype, self.device, alike=alike)
        return self._guarded(dataset, self.device, alike=alike)

    def _guarded(
        self, dataset: "Dataset", device: torch.device, *, alike: bool = False
    ) -> GuardedExamples:
        if self._guard is None:
            cpu = torch.device("cpu")
            model = converted(build_model(self.task, self._seed), cpu, self.dtype)
            self._guard = IndexGuard(model, lambda a, b: per_example_losses(self.task, a, b))
        source = as_examples(dataset, self.dtype, torch.device("cpu"), alike=alike)
        return GuardedExamples(source, self._guard, device)

    def _load(self, start: np.ndarray) -> torch.Tensor:
        length = self.public + self.layout.dimension
        if start.shape != (length,):
            raise ValueError(f"the vector has shape {start.shape}, the model ({length},)")
        weights, statistics = np.split(start[self.public :], [self.layout.length])
        if self._projection is not None:
            directions = self._projection[1]
            directions.copy_(torch.tensor(start[: self.public]).view(directions.shape))
        origin = torch.tensor(weights, dtype=self.dtype, device=self.device)
        self._flat.weights.copy_(origin)
        self._restore_buffers()  # also after a client whose training raised
        self._flat.running.load(statistics)
        if self._first is not None and not torch.equal(origin, self._first):
            self._norms.renew()
        return origin

    def _tell_moved(self) -> None:
        """Log once which buffers training moves: only trained parameters are sent and kept."""
        moved = [
            f"{type(module).__name__}.{name}"
            for module, name, _, original in self._buffers
            if not self._told_moved
            and not self._norms.keeps(module)
            and getattr(module, "running_mean", None) is None  # sent, or refused
            and not torch.equal(getattr(module, name), original)
        ]
        if moved:
            self._told_moved = True
            log.warning(
                "model: training moves %s, and only trained parameters are averaged: each client, "
                "each round and the final model begin with those of model()",
                ", ".join(dict.fromkeys(moved)),
            )

    def _restore_buffers(self) -> None:
        for module, name, buffer, original in self._buffers:
            setattr(module, name, buffer.copy_(original))
        self._flat.running.put_back()
        if self._state is not None:
            self._state.put_back()

    def _step(self, batch: Batch, origin: torch.Tensor, first: bool) -> None:
        gradients = self._batch_gradients(batch, first)
        if self._optimizer is not None:
            self._step_by_torch(self._optimizer, gradients, origin, first)
            return
        if self._sgd.plain:
            for weights, part in zip(self._weights, gradients, strict=True):
                if part is not None:
                    self._sgd.step(weights, part)
            return
        idle: list[slice] = []
        slices = self.layout.slices
        for flat, where, part in zip(self._gradients_of, slices, gradients, strict=True):
            if part is None:
                flat.zero_()
                idle.append(where)
            else:
                flat.view(part.shape).copy_(part.to_dense())  # embeddings' may be sparse
        # As torch.optim.SGD passes a parameter without a gradient by; the proximal term is one.
        self._descend(origin, first, () if self._sgd.proximal else idle)

    def _batch_gradients(self, batch: Batch, first: bool) -> list[torch.Tensor | None]:
        """Return the gradient of a batch's mean loss by parameter; None of what it does not need.

        That of parts of a batch is the sum of theirs, each weighted by its share of the examples.
        """
        total: list[torch.Tensor | None] = [None] * len(self._parameters)
        for number, (inputs, targets) in enumerate(batch.parts()):
            outputs = called(self.model, self._channels_last.lay_out(inputs))
            losses = per_example_losses(self.task, outputs, targets)
            self._check_step(losses, first and not number)
            # Of a scalar: given a vector's gradient, torch imports a computer algebra system.
            mean = losses.mean() if batch.whole else losses.sum() / batch.size
            parts = torch.autograd.grad(mean, self._parameters, allow_unused=True)
            if batch.whole:
                return list(parts)
            total = [_added(one, part) for one, part in zip(total, parts, strict=True)]
        return total

    def _step_by_torch(
        self,
        optimizer: ClientOptimizer,
        gradients: Sequence[torch.Tensor | None],
        origin: torch.Tensor,
        first: bool,
    ) -> None:
        """Let another optimizer take the step, the proximal term being part of the gradient."""
        taken: list[torch.Tensor | None] = []
        for part, weights, where in zip(gradients, self._weights, self.layout.slices, strict=True):
            gradient = None if part is None else part.to_dense()
            if mu := self._sgd.proximal:
                pull = weights - origin[where].view(weights.shape)
                gradient = mu * pull if gradient is None else gradient.add(pull, alpha=mu)
            taken.append(gradient)
        optimizer.step(taken, first=first)

    def _check_step(self, losses: torch.Tensor, first: bool) -> None:
        """Refuse losses that train nothing, and a model that changes what is trained."""
        if first or not all(value.requires_grad for value in self._parameters):
            check_unchanged(self.model, self._named)
        if not losses.requires_grad:
            raise TaskError(
                "model: the losses depend on no trained parameter: is an output detached, taken "
                "under torch.no_grad(), or rounded?"
            )

    def _descend(self, origin: torch.Tensor, first: bool, idle: Sequence[slice] = ()) -> None:
        """Take a step along the flat gradient, in which idle parts neither move nor slow down."""
        weights = self._flat.weights
        if first and self._sgd.momentum and idle:
            self._momentum.zero_()
        still = [flat[where] for where in idle for flat in (weights, self._momentum)]
        unmoved = [(part, part.clone()) for part in still]
        self._sgd.step(weights, self._flat.gradients, self._momentum, origin, first=first)
        for part, value in unmoved:
            part.copy_(value)


def _added(total: torch.Tensor | None, part: torch.Tensor | None) -> torch.Tensor | None:
    """Add a part's gradient; neither is changed, for autograd may hand out an expanded one."""
    if total is None or part is None:
        return part if total is None else total
    return total + part


def _state_of(model: nn.Module) -> Snapshot | None:
    """Return what a model keeps beside parameters and buffers; None of a script, which hides it."""
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        return None
    return Snapshot(model, loaded=(*model.parameters(), *model.buffers()))


def _writable(buffer: torch.Tensor) -> torch.Tensor:
    """Return a buffer that can be copied into: one that was expanded repeats its memory."""
    if buffer.layout != torch.strided:
        return buffer
    axes = zip(buffer.stride(), buffer.shape, strict=True)
    repeats = any(not step and size > 1 for step, size in axes)
    return buffer.clone(memory_format=torch.contiguous_format) if repeats else buffer
