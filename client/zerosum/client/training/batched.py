"""Train many clients at once: every tensor has one more axis, that of the clients.

For a GPU, which one client's batch does not keep busy. What is computed is what
:class:`LocalTrainer` computes, to rounding.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from zerosum.client.spec import TrainSpec
from zerosum.client.task import Task
from zerosum.client.training.evaluation import per_example_losses
from zerosum.client.training.flat_parameters import trainable
from zerosum.client.training.local import LocalTrainer
from zerosum.client.training.model_checks import gradient_hook, places_of
from zerosum.client.training.stacked_records import (
    Member,
    Stack,
    StackedRecords,
    TrainedClient,
    UnstackableError,
    loaded,
)
from zerosum.client.training.torch_internals import BATCH_NORM, DROPOUT
from zerosum.client.training.torch_seed import seeded
from zerosum.client.training.unfold import by_patches

if TYPE_CHECKING:
    from zerosum.client.task import Dataset

log = logging.getLogger("zerosum.client")

CPU_BYTES = 1 << 28
"""Memory of a group on a CPU, which only stands in for a GPU: small, to stay in reach of caches."""

RESULT_BYTES = 1 << 30
"""Memory of a group's changes, which come back to the CPU together."""

_COPIES = 4
"""Of a client's parameters: weights, gradient, momentum and one in passing."""

_PROBED = 3
"""Records of a comparison at most."""

# Looser than the fast trainer's: the comparison is made on a client's own records and weights,
# where gradients nearly cancel towards the end of training, and GPUs may round products to TF32.
# A model that mixes records or clients is off by the gradient itself.
_AGREEMENT = {torch.float32: 1e-2, torch.float64: 1e-6}
"""Relative difference of gradients below which a model treats clients and records one by one."""


class BatchedTrainer(LocalTrainer):
    """Trains groups of clients together, each on its own weights, data and batch order.

    Any model that ``torch.func.vmap`` can take: parameters are stacked, Linear layers become
    batched products, convolutions batched products over patches. Clients of any size go together:
    where batches differ, the smaller are filled up with records that weigh nothing, and who is
    done leaves. Models that draw random numbers (dropout), mix the records of a batch
    (batch normalisation) or have no batching rule (LSTM) are trained by :class:`LocalTrainer`, one
    client after another, with its bits on the same device: the log says why. Nothing is taken on
    trust: in each group the first finite gradient is compared with that of the model by itself.
    Whom that, or a client that fails, sends to be trained one by one differs by float rounding.

    A group is as many clients as fit into memory: for each, four times its parameters, its
    records, and twice what autograd keeps of a batch; together at most half of a GPU's memory
    (256 MiB on a CPU), and 1 GiB of results. Out of memory all the same, it is halved.

    Parameters
    ----------
    task, spec, seed, dtype, device
        As for :class:`LocalTrainer`.
    budget : int, optional
        Bytes of a group, in place of that rule.

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
        budget: int | None = None,
    ) -> None:
        super().__init__(task, spec, seed=seed, dtype=dtype, device=device)
        self._budget = _half_of(self.device) if budget is None else budget
        self._names = list(trainable(self.model))
        self._at = places_of(self.model)
        self._kept: dict[tuple[Any, ...], float] = {}
        self._told: set[str] = set()
        self._reason = _never_batched(self.model, dtype)
        if spec.past_fast:
            self._reason = f"{spec.past_fast} is the general trainer's"
        if self.layout.statistics:
            self._reason = f"model: {self.layout.statistics[0][0]} moves with each client's batches"
        if self._reason is not None:
            self._tell(self._reason)

    @property
    def name(self) -> str:
        """``"batched"``, or ``"general"`` where the model is known to be trained one by one."""
        return "general" if self._reason is not None else "batched"

    def settle(self, start: np.ndarray, load: "Callable[[], Dataset]") -> None:
        """Find out on some client's records whether the model can be trained in groups.

        Parameters
        ----------
        start : numpy.ndarray
            The global model, shape (public + d,).
        load : callable
            Returns some client's records.
        """
        if self._reason is not None:
            return
        records = self._records(Member(load, 0))
        if not records.count:
            return
        try:
            self._check_groups([records])
            self._probe(self._load(start), [records])
        except Exception as error:
            self._reason = _first_line(error)
            self._tell(self._reason)

    def train_cohort(
        self, start: np.ndarray, members: Iterable[Member]
    ) -> Iterator[TrainedClient | Exception]:
        """Train clients in groups, and yield each one's change, or what it raised.

        Parameters
        ----------
        start : numpy.ndarray
            The components, if the model has any, and the global model: shape (public + d,).
        members : iterable of Member
            The clients; the data of those in a group are in memory at once.

        Yields
        ------
        TrainedClient or Exception
            In the order of ``members``.
        """
        group: list[StackedRecords | Exception] = []
        room, results = float(self._budget), RESULT_BYTES
        for member in members:
            try:
                one: StackedRecords | Exception = self._records(member)
            except Exception as error:
                one = error
            cost = self._cost(one) if isinstance(one, StackedRecords) else 0.0
            size = self.layout.dimension * self.dtype.itemsize
            if group and (cost > room or size > results):
                yield from self._outcomes(start, group)
                group, room, results = [], float(self._budget), RESULT_BYTES
            group.append(one)
            room, results = room - cost, results - size
        yield from self._outcomes(start, group)

    def _records(self, member: Member) -> StackedRecords:
        dataset = member.load()
        examples = self._guarded(dataset, torch.device("cpu"))
        return loaded(dataset, examples, self.spec, member.number)

    def _cost(self, records: StackedRecords) -> float:
        """Return the bytes that a client takes in a group."""
        if not records.steps or records.inputs is None:
            return 0.0
        size = max(len(rows) for rows in records.steps)
        activations = 2 * size * self._kept_a_row(records)
        return _COPIES * self.layout.length * self.dtype.itemsize + records.nbytes + activations

    def _kept_a_row(self, records: StackedRecords) -> float:
        """Return the bytes that autograd keeps of one record, the parameters aside."""
        if records.form not in self._kept:
            saved = 0
            own = self._flat.weights.untyped_storage().data_ptr()

            def count(value: torch.Tensor) -> torch.Tensor:
                nonlocal saved
                if value.untyped_storage().data_ptr() != own:
                    saved += value.numel() * value.itemsize
                return value

            some = records.some(_PROBED)
            try:
                with (
                    torch.autograd.graph.saved_tensors_hooks(count, lambda value: value),
                    by_patches(self.model),
                    seeded(0),
                ):
                    self._losses_of(some)
            except Exception as error:  # training will raise it again, and say more
                log.debug("memory of a record is not known: %s", error)
                return saved / len(some.targets)
            finally:
                self._restore_buffers()
            self._kept[records.form] = saved / len(some.targets)
        return self._kept[records.form]

    def _losses_of(self, records: StackedRecords) -> torch.Tensor:
        """Return the losses of the first step by the model itself, which may work in place.

        Rows taken by index are copies.
        """
        step = records.steps[0]
        outputs = self.model(records.inputs[step].to(self.device))
        return self._losses(outputs, records.targets[step])

    def _losses(self, outputs: Any, targets: torch.Tensor) -> torch.Tensor:
        if not isinstance(outputs, torch.Tensor):
            raise UnstackableError(f"the model returns no tensor but {type(outputs).__name__}")
        return per_example_losses(self.task, outputs, targets.to(self.device))

    def _outcomes(
        self, start: np.ndarray, group: Sequence[StackedRecords | Exception]
    ) -> Iterator[TrainedClient | Exception]:
        """Yield a group's outcomes in order, those of like records trained together."""
        forms: dict[Any, list[int]] = {}
        outcomes: dict[int, TrainedClient | Exception] = {}
        for place, one in enumerate(group):
            if isinstance(one, Exception):
                outcomes[place] = one
            elif not one.count and len(start) == self.public + self.layout.dimension:
                zero = torch.zeros(self.layout.dimension, dtype=self.dtype).numpy()
                outcomes[place] = TrainedClient(zero, 0, together=True)
            else:
                forms.setdefault(one.form, []).append(place)
        for places in forms.values():
            alike = [one for place in places if isinstance(one := group[place], StackedRecords)]
            outcomes |= zip(places, self._trained(start, alike), strict=True)
        for place in range(len(group)):
            yield outcomes.pop(place)

    def _trained(
        self, start: np.ndarray, group: list[StackedRecords]
    ) -> list[TrainedClient | Exception]:
        """Return the outcomes of clients with records of one form."""
        halved = False
        try:
            self._check_groups(group)
            deltas = self._together(start, group)
            pairs = zip(deltas, group, strict=True)
            return [TrainedClient(delta, one.count, together=True) for delta, one in pairs]
        except torch.OutOfMemoryError as error:
            halved = len(group) > 1
            how = f"in halves of {len(group)} clients" if halved else "by itself"
            self._tell(_first_line(error), how)
        except Exception as error:  # whatever it is, each client alone will raise it or not
            self._tell(_first_line(error))
        # Only here is what failed forgotten, and its memory with it.
        if halved:
            half = len(group) // 2
            return self._trained(start, group[:half]) + self._trained(start, group[half:])
        return [self._alone(start, one) for one in group]

    def _check_groups(self, group: Sequence[StackedRecords]) -> None:
        if self._reason is not None or group[0].inputs is None:
            raise UnstackableError(self._reason or "records are no single tensor")

    def _alone(self, start: np.ndarray, one: StackedRecords) -> TrainedClient | Exception:
        try:
            return TrainedClient(
                self.train(start, one.dataset, one.number), one.count, together=False
            )
        except Exception as error:
            return error

    def _together(self, start: np.ndarray, group: Sequence[StackedRecords]) -> list[np.ndarray]:
        """Return the clients' changes, each of shape (d,)."""
        origin = self._load(start)
        self.model.train()
        self._probe(origin, group)
        stack = Stack.of(group, self.device, self.dtype)
        parts = self._parts(origin)
        weights = [part.expand(len(group), *part.shape).clone() for part in parts]
        momentum = [torch.zeros_like(part) for part in weights] if self.spec.momentum else []
        with self._stacked():
            for number in range(stack.steps):
                inputs, targets, shares = stack.batch(number)
                active = [part[: len(inputs)] for part in weights]
                gradients = self._gradients(active, inputs, targets, shares)
                buffers = [part[: len(inputs)] for part in momentum]
                self._descend_all(active, gradients, buffers, parts, number == 0)
        self._flat.running.check_still()
        self._restore_buffers()
        changes = [(a - b).flatten(1) for a, b in zip(weights, parts, strict=True)]
        deltas = torch.cat(changes, 1).cpu().numpy()
        return [deltas[place] for place in stack.places]

    def _parts(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """Cut a flat vector into parameters."""
        shapes = zip(self.layout.slices, self.layout.shapes, strict=True)
        return [flat[where].view(shape) for where, shape in shapes]

    @contextmanager
    def _stacked(self) -> Iterator[None]:
        """Make the model ready for an axis of clients, and put it back."""
        # Fused attention has no batching rule on every device; as products it needs none.
        with by_patches(self.model), sdpa_kernel(SDPBackend.MATH):
            yield

    def _gradients(
        self,
        weights: Sequence[torch.Tensor],
        inputs: torch.Tensor,
        targets: torch.Tensor,
        shares: torch.Tensor,
    ) -> tuple[torch.Tensor | None, ...]:
        """Return each client's gradient of its mean loss; None of what no loss depends on.

        Parameters
        ----------
        weights : sequence of tensors
            Shapes (clients, ...), in the order of the layout.
        inputs, targets : torch.Tensor
            Shapes (clients, rows, ...).
        shares : torch.Tensor
            Of each record in its client's mean, shape (clients, rows).
        """
        leaves = [part.detach().requires_grad_() for part in weights]

        def outputs_of(parts: list[torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
            named = dict(zip(self._names, parts, strict=True))
            at = {place: named[name] for place, name in self._at.items()}
            outputs = functional_call(self.model, at, (rows,), tie_weights=False)
            if not isinstance(outputs, torch.Tensor):
                raise UnstackableError(f"the model returns no tensor but {type(outputs).__name__}")
            return outputs

        outputs = vmap(outputs_of, randomness="error")(leaves, inputs)
        losses = self._losses(outputs.flatten(0, 1), targets.flatten(0, 1))
        # No client's loss depends on another's weights: one backward pass is that of each.
        total = (losses * shares.flatten()).sum()
        return torch.autograd.grad(total, leaves, allow_unused=True)

    @torch.no_grad()
    def _descend_all(
        self,
        weights: Sequence[torch.Tensor],
        gradients: Sequence[torch.Tensor | None],
        momentum: Sequence[torch.Tensor],
        origin: Sequence[torch.Tensor],
        first: bool,
    ) -> None:
        """Take a step of every client: what :meth:`LocalTrainer._descend` does of one."""
        for place, (part, gradient) in enumerate(zip(weights, gradients, strict=True)):
            if gradient is None:
                if not self._sgd.proximal:
                    continue  # as torch.optim.SGD passes it by
                gradient = torch.zeros_like(part)
            buffer = momentum[place] if momentum else None
            self._sgd.step(part, gradient, buffer, origin[place], first=first)

    def _probe(self, origin: torch.Tensor, group: Sequence[StackedRecords]) -> None:
        """Compare a filled-up batch's gradient with that of the model by itself.

        Raises
        ------
        UnstackableError
            If they differ: the model mixes records, draws at random, or has hooks. Or if it moves
            its parameters while it computes, of which a group's copies would know nothing.
        """
        for one in group:
            # Filled up with one record, beside a client whose batch has it twice. Both are
            # compared: of some layers torch's rule is right for the first client alone.
            few = one.some(_PROBED)
            both = [few, few.with_one_again()]
            lone = [self._lone_gradient(records) for records in both]
            if not torch.equal(self._flat.weights, origin):
                raise UnstackableError("the model moves its parameters while it computes")
            if not all(bool(torch.isfinite(flat).all()) for flat in lone):
                continue  # tells nothing; a client of finite records may follow
            pair = Stack.of(both, self.device, self.dtype)
            twice = [part.expand(2, *part.shape) for part in self._parts(origin)]
            with self._stacked():
                grouped = self._gradients(twice, *pair.batch(0))
            self._restore_buffers()
            for flat, place in zip(lone, pair.places, strict=True):
                self._check_same(flat, grouped, place)
            return

    def _check_same(
        self, wanted: torch.Tensor, found: Sequence[torch.Tensor | None], place: int
    ) -> None:
        """Raise unless one client's part of a group's gradient is its own."""
        parts = zip(found, self.layout.slices, strict=True)
        flat = torch.cat(
            [
                torch.zeros_like(wanted[where]) if part is None else part[place].reshape(-1)
                for part, where in parts
            ]
        )
        distance = torch.linalg.vector_norm(flat - wanted)
        limit = _AGREEMENT[self.dtype] * torch.linalg.vector_norm(wanted)
        if not bool(distance <= limit):
            raise UnstackableError("in a group its gradient is another than by itself")

    def _lone_gradient(self, records: StackedRecords) -> torch.Tensor:
        """Return the flat gradient of the mean loss at the global model, by the model itself."""
        parameters = list(trainable(self.model).values())
        with seeded(0):
            losses = self._losses_of(records)
            parts = torch.autograd.grad(
                losses.mean(), parameters, allow_unused=True, materialize_grads=True
            )
        self._restore_buffers()
        return torch.cat([part.reshape(-1) for part in parts])

    def _tell(self, reason: str, how: str = "one by one") -> None:
        if reason not in self._told:
            self._told.add(reason)
            log.warning("clients are trained %s, not together: %s", how, reason)


def _never_batched(model: nn.Module, dtype: torch.dtype) -> str | None:
    """Return why a model cannot be trained in groups, where its layers say so; else None."""
    if dtype not in _AGREEMENT:
        return f"{dtype} is not compared"
    hooked = gradient_hook(model)
    if hooked is not None:
        return f"model: {hooked} has a gradient hook"
    for name, module in model.named_modules():
        who = f"{name or 'it'} ({type(module).__name__})"
        if isinstance(module, DROPOUT) and getattr(module, "p", 1) > 0:
            return f"model: {who} draws at random"
        if getattr(module, "padding_idx", None) is not None or getattr(module, "max_norm", None):
            return f"model: {who} pads or bounds its rows, which torch does for one client alone"
        if isinstance(module, BATCH_NORM):
            return f"model: {who} mixes the records of a batch"
        if isinstance(module, nn.RNNBase):
            return f"model: {who} has no batching rule in torch"
    return None


def _half_of(device: torch.device) -> int:
    """Return the bytes that a group may take on a device."""
    if device.type != "cuda":
        return CPU_BYTES
    return int(torch.cuda.get_device_properties(device).total_memory) // 2


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
