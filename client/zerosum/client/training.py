"""Local training of one client, and evaluation of a model."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from zerosum.client.examples import Examples, as_examples
from zerosum.client.guard import GuardedExamples, IndexGuard
from zerosum.client.projection import projection_of
from zerosum.client.spec import TrainSpec
from zerosum.client.task import Task, TaskError
from zerosum.client.torch_seed import all_seeded, seeded
from zerosum.client.vectors import flatten, parameters_to_vector, to_state_dict, trainable
from zerosum.secagg.randomness import derive_seed, numpy_generator

if TYPE_CHECKING:
    from zerosum.client.task import Dataset


_CHANNELS_LAST = torch.channels_last
"""The layout of images that convolutions on a CPU are fastest on."""


def build_model(task: Task, seed: int) -> nn.Module:
    """Return the task's model, initialised from the experiment's seed."""
    with seeded(derive_seed(seed, "model initialisation")):
        return task.model()


def draw_weights(parameters: Iterable[torch.Tensor], generator: torch.Generator) -> None:
    """Overwrite parameters by normal ones of variance 1 / fan-in: to try a model out."""
    for value in parameters:
        fan_in = value.numel() // len(value) if value.dim() else 1
        value.copy_(torch.randn(value.shape, generator=generator) / max(1, fan_in) ** 0.5)


def initial_vector(task: Task, seed: int) -> np.ndarray:
    """Return the trained parameters of round 0 as a float32 vector of shape (d,)."""
    return parameters_to_vector(build_model(task, seed))


class LocalTrainer:
    """Trains one client after another on one model that it reuses.

    Nothing of a client outlives its call: parameters are loaded, momentum starts at zero, and
    buffers are put back. The arithmetic is that of ``torch.optim.SGD`` (momentum without
    dampening; a parameter that no loss depends on decays all the same), with the proximal gradient
    of FedProx (Li et al. 2020, equation 2) added after weight decay. On a CPU with one thread,
    equal arguments give equal bits.

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
        If the model keeps running statistics or has nothing to train.
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
        self._flat = flatten(build_model(task, seed).to(self.device, dtype))
        self.model = self._flat.model
        self.layout = self._flat.layout
        self._projection = projection_of(self.model)
        self._buffers = [
            (module, name, buffer, buffer.clone())
            for module in self.model.modules()
            for name, buffer in module.named_buffers(recurse=False)
        ]
        self._momentum = torch.zeros_like(self._flat.weights)
        self._convolves = self.device.type == "cpu" and any(
            isinstance(module, nn.Conv2d) for module in self.model.modules()
        )
        self._minds: dict[tuple[int, ...], bool] = {}
        self._parameters = list(trainable(self.model).values())
        self._views = [
            (self._flat.weights[where].view(value.shape), self._flat.gradients[where])
            for value, where in zip(self._parameters, self.layout.slices, strict=True)
        ]
        self._seed = seed
        self._guard: IndexGuard | None = None

    @property
    def name(self) -> str:
        """How training is done, for the report."""
        return "general"

    @property
    def public(self) -> int:
        """Entries that come before the trained parameters in every vector: the components."""
        return 0 if self._projection is None else self._projection[1].numel()

    def to_state_dict(self, vector: np.ndarray) -> dict[str, np.ndarray]:
        """Cut a vector of shape (public + d,) into named arrays, float32."""
        state = to_state_dict(vector[self.public :], self.layout)
        if self._projection is not None:
            name, directions = self._projection
            state[name] = vector[: self.public].reshape(directions.shape)
        return state

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
        """
        number = int.from_bytes(seed, "little") if isinstance(seed, bytes) else seed
        origin = self._load(start)
        examples = self._examples_of(dataset)
        if len(examples) > 0:
            self.model.train()
            with seeded(derive_seed(number, "training")):
                for first, (inputs, targets) in batches(examples, self.spec, number):
                    self._step(inputs, targets, origin, first)
        delta = (self._flat.weights - origin).cpu().numpy()
        self._restore_buffers()
        return delta

    def settle(self, start: np.ndarray, load: "Callable[[], Dataset]") -> None:
        """Find out on some client's records what :attr:`name` is, where the model does not tell."""

    def evaluate(
        self, vector: np.ndarray, dataset: "Dataset", batch_size: int = 1000
    ) -> dict[str, float]:
        """Evaluate the model given by a vector, as :func:`evaluate` does."""
        self._load(vector)
        return _evaluate(self.model, self._examples_of(dataset), self.task, batch_size)

    def predict(self, vector: np.ndarray, inputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs of the model given by a vector, on the CPU, without gradients."""
        self._load(vector)
        self.model.eval()
        with torch.no_grad():
            outputs: torch.Tensor = self.model(inputs.to(self.device))
        return outputs.cpu()

    def try_out(self, vector: np.ndarray, dataset: "Dataset", records: int = 2) -> None:
        """Compute loss and metrics of the first few records, and raise what goes wrong."""
        self._load(vector)
        examples = self._examples_of(dataset)
        if len(examples):
            inputs, targets = examples.take(torch.arange(min(records, len(examples))))
            self.model.eval()
            with torch.no_grad(), seeded(0):
                outputs = self.model(inputs)
                per_example_losses(self.task, outputs, targets)
                per_example_metrics(self.task, outputs, targets)

    def try_step(self, vector: np.ndarray, dataset: "Dataset") -> bool:
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
            If the step leads to NaN or infinity. Whatever data, model or loss raise is passed on.
        """
        origin = self._load(vector)
        examples = self._examples_of(dataset)
        if not len(examples):
            return False
        self.model.train()
        try:
            with all_seeded(0):
                size = batch_size(len(examples), self.spec)
                inputs, targets = examples.take(torch.arange(size))
                self._step(inputs, targets, origin, first=True)
            finite = bool(self._flat.weights.isfinite().all())
        finally:
            self._load(vector)
            self._momentum.zero_()
        if not finite:
            raise TaskError(
                "the first step of training leads to NaN or infinity: look for NaN in the data and "
                "for logarithms or divisions by zero in loss(), or lower training.lr"
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
            model = build_model(self.task, self._seed).to(dtype=self.dtype)
            self._guard = IndexGuard(model, lambda a, b: per_example_losses(self.task, a, b))
        source = as_examples(dataset, self.dtype, torch.device("cpu"), alike=alike)
        return GuardedExamples(source, self._guard, device)

    def _load(self, start: np.ndarray) -> torch.Tensor:
        length = self.public + self.layout.length
        if start.shape != (length,):
            raise ValueError(f"the vector has shape {start.shape}, the model ({length},)")
        if self._projection is not None:
            directions = self._projection[1]
            directions.copy_(torch.tensor(start[: self.public]).view(directions.shape))
        origin = torch.tensor(start[self.public :], dtype=self.dtype, device=self.device)
        self._flat.weights.copy_(origin)
        self._restore_buffers()  # also after a client whose training raised
        return origin

    def _restore_buffers(self) -> None:
        for module, name, buffer, kept in self._buffers:
            setattr(module, name, buffer.copy_(kept))

    def _step(self, inputs: Any, targets: torch.Tensor, origin: torch.Tensor, first: bool) -> None:
        losses = per_example_losses(self.task, self.model(self._laid_out(inputs)), targets)
        # Of a scalar: given a vector's gradient, torch imports a computer algebra system.
        parts: Sequence[torch.Tensor | None] = torch.autograd.grad(
            losses.mean(), self._parameters, allow_unused=True
        )
        if not (self.spec.momentum or self.spec.weight_decay or self.spec.proximal):
            for (weights, _), part in zip(self._views, parts, strict=True):
                if part is not None:
                    weights.add_(part, alpha=-self.spec.lr)
            return
        for (_, gradient), part in zip(self._views, parts, strict=True):
            if part is None:
                gradient.zero_()
            else:
                gradient.view(part.shape).copy_(part.to_dense())  # embeddings' may be sparse
        self._descend(origin, first)

    def _laid_out(self, inputs: Any) -> Any:
        """Lay a batch of images out channels-last, where the model convolves and does not mind."""
        images = isinstance(inputs, torch.Tensor) and inputs.dim() == 4
        if not images or not self._convolves or not inputs.is_floating_point():
            return inputs
        shape = tuple(inputs.shape[1:])
        if shape not in self._minds:
            self._minds[shape] = not self._same_channels_last(shape)
        return inputs if self._minds[shape] else inputs.contiguous(memory_format=_CHANNELS_LAST)

    def _same_channels_last(self, shape: tuple[int, ...]) -> bool:
        """Compare outputs in both layouts, on random images and weights: no client's data decide.

        Units are dropped by place in memory, so that a model which drops some minds too.
        """
        generator = torch.Generator().manual_seed(0)
        inputs = torch.randn((2, *shape), generator=generator, dtype=self.dtype)
        kept = self._flat.weights.clone()
        found = []
        try:
            draw_weights([weights for weights, _ in self._views], generator)
            for laid_out in (inputs, inputs.contiguous(memory_format=_CHANNELS_LAST)):
                with seeded(0), torch.no_grad():
                    found.append(self.model(laid_out))
            first, second = found
            largest = first.abs().max().item()
            return 0 < largest < math.inf and torch.allclose(
                first, second, rtol=0, atol=1e-3 * largest
            )
        except Exception:  # of a model that views its inputs as contiguous, or needs other ones
            return False
        finally:
            self._flat.weights.copy_(kept)
            self._restore_buffers()

    def _descend(self, origin: torch.Tensor, first: bool) -> None:
        """Take a step along the flat gradient."""
        spec, weights, gradient = self.spec, self._flat.weights, self._flat.gradients
        if spec.weight_decay:
            gradient.add_(weights, alpha=spec.weight_decay)
        if spec.proximal:
            gradient.add_(weights - origin, alpha=spec.proximal)
        if spec.momentum:
            if first:
                self._momentum.copy_(gradient)
            else:
                self._momentum.mul_(spec.momentum).add_(gradient)
            gradient = self._momentum
        weights.add_(gradient, alpha=-spec.lr)


def evaluate(
    model: nn.Module, dataset: "Dataset", task: Task, batch_size: int = 1000
) -> dict[str, float]:
    """Return sums over a data set: ``loss``, each metric, and ``count``.

    Sums, because they add up over clients; divide by ``count`` for means. An empty data set
    gives ``loss`` and ``count`` only, both 0.

    Raises
    ------
    TaskError
        If a metric or the loss is not one value per example.
    """
    like = next(model.parameters())
    return _evaluate(model, as_examples(dataset, like.dtype, like.device), task, batch_size)


def _evaluate(
    model: nn.Module, examples: Examples, task: Task, batch_size: int
) -> dict[str, float]:
    sums: dict[str, float] = {"loss": 0.0}
    model.eval()
    with torch.no_grad(), seeded(0):  # seeded: a data set with random transforms stays repeatable
        for start in range(0, len(examples), batch_size):
            end = min(start + batch_size, len(examples))
            inputs, targets = examples.take(torch.arange(start, end))
            outputs = model(inputs)
            values = per_example_metrics(task, outputs, targets)
            values["loss"] = per_example_losses(task, outputs, targets)
            for name, value in values.items():
                sums[name] = sums.get(name, 0.0) + value.double().sum().item()
    return {**sums, "count": float(len(examples))}


def per_example_losses(task: Task, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the task's losses, checked to have shape (n,)."""
    losses = task.loss(outputs, targets)
    if losses.shape != targets.shape[:1]:
        raise TaskError(
            f"loss returned shape {tuple(losses.shape)} for {len(targets)} examples; "
            'return one loss an example, as with reduction="none"'
        )
    return losses


def per_example_metrics(
    task: Task, outputs: torch.Tensor, targets: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Return the task's metrics, each of shape (n,); accuracy where it has none of its own."""
    own = getattr(task, "metrics", None)
    if own is None:
        classes = not targets.is_floating_point() and targets.dim() == 1 and outputs.dim() == 2
        return {"accuracy": outputs.argmax(1) == targets} if classes else {}
    values: dict[str, torch.Tensor] = dict(own(outputs, targets))
    for name, value in values.items():
        if name in ("loss", "count") or value.shape != targets.shape[:1]:
            raise TaskError(
                f"metrics returned {name} of shape {tuple(value.shape)} for {len(targets)} "
                'examples; return one value an example, under a name other than "loss" and "count"'
            )
    return values


def schedule(
    count: int, spec: TrainSpec, seed: int
) -> Iterator[tuple[int, int, torch.Tensor | None]]:
    """Yield (step, which batch of the epoch, its order): no order where one batch holds all."""
    size = batch_size(count, spec)
    per_epoch = -(-count // size)
    steps = spec.steps if spec.steps is not None else per_epoch * (spec.epochs or 0)
    order: torch.Tensor | None = None
    generator = numpy_generator(seed, "batch order") if per_epoch > 1 else None
    for step in range(steps):
        turn = step % per_epoch
        if generator is not None and turn == 0:
            order = torch.from_numpy(generator.permutation(count))
        yield step, turn, order


def batch_size(count: int, spec: TrainSpec) -> int:
    """Return the examples in all but the last batch of an epoch."""
    return min(spec.batch_size or count, count)


def batches(
    examples: Examples, spec: TrainSpec, seed: int
) -> Iterator[tuple[bool, tuple[Any, torch.Tensor]]]:
    """Yield (is it the first, batch): shuffled anew each epoch, unless one batch holds all."""
    size = batch_size(len(examples), spec)
    for step, turn, order in schedule(len(examples), spec, seed):
        if order is None:
            yield step == 0, examples.all()
        else:
            yield step == 0, examples.take(order[turn * size : (turn + 1) * size])
