"""The sum of clipped per-example gradients: what DP-SGD adds noise to (Abadi et al. 2016).

Two ways that give the same numbers. For models whose parameters all lie in Linear and Conv2d
layers, one backward pass to the layers' outputs: an example's squared gradient norm follows from
a layer's input and output gradient, and the clipped sum is one more product in which each example
weighs min(1, C / norm). For any other model, ``torch.func``: a gradient an example.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from zerosum.client.layer_norms import LAYERS, Capture, Measured, measure, write_weighted_sum
from zerosum.client.task import TaskError
from zerosum.client.vectors import FlatModel

log = logging.getLogger("zerosum.client")

Losses = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""From outputs and targets, one loss an example, shape (n,)."""

CHUNK_ENTRIES = 1 << 23
"""Entries of per-example gradients that ``torch.func`` holds at once."""

_PROBED = 3
_MIXING = nn.modules.batchnorm._BatchNorm


class _NotLayerwise(Exception):
    """A forward pass in which layers do not tell an example's gradient."""


class ClippedGradients:
    """Computes the sum over a batch of each example's gradient, cut to norm C.

    Formal guarantees: on models that treat examples one by one, adding or removing an example
    changes the result by a vector of L2 norm at most C, float rounding aside: integer encoding
    with its own bound, not this, carries the sensitivity. An example whose gradient is NaN or
    infinite contributes zero, and one whose positions cancel to a thousandth is cut shorter. Models
    that mix the examples of a batch are found by comparing both ways on the first that has two,
    and are given the second, in which every example is alone. Which way it is may hang on an
    example, and changes the others' gradients by float rounding; where the model drops units at
    random it also draws their coins anew, so these have to be secret.

    What one example raises, the whole batch raises: ask again for each alone.

    Parameters
    ----------
    flat : FlatModel
        The model: its weights are read, its gradients overwritten.
    losses : callable
        From outputs and targets, one loss an example.
    layerwise : bool
        Whether the fast way may be used where it can be.

    Raises
    ------
    TaskError
        If the model has batch normalisation, for which no example has a gradient of its own.
    """

    def __init__(self, flat: FlatModel, losses: Losses, *, layerwise: bool = True) -> None:
        for name, module in flat.model.named_modules():
            if isinstance(module, _MIXING):
                raise TaskError(
                    f"model: {name or 'it'} ({type(module).__name__}) mixes the examples of a "
                    "batch, so none has a gradient of its own; use GroupNorm or LayerNorm"
                )
        self._flat = flat
        self._losses = losses
        self._places = _places(flat)
        self._layers = _layers(flat.model) if layerwise else None
        self._settled = False

    @property
    def layerwise(self) -> bool:
        """Whether the fast way is in use: settled by the first batch with two gradients."""
        return self._layers is not None

    def clipped_sum(self, inputs: Any, targets: torch.Tensor, clip: float) -> torch.Tensor:
        """Return the sum of clipped gradients.

        Parameters
        ----------
        inputs : tensor or structure of tensors
            A batch, as the model takes it; examples along dimension 0.
        targets : torch.Tensor
            Shape (n, ...).
        clip : float
            The norm C, above 0; infinite for plain sums.

        Returns
        -------
        torch.Tensor
            The model's flat gradients, shape (d,), overwritten; zero for an empty batch.
        """
        if not len(targets):
            return self._flat.gradients.zero_()
        if self._layers is not None and not self._settled:
            self._probe(self._layers, inputs, targets)
        # A lone example is mixed with no other, so it need not wait for two that agree.
        if self._layers is not None and (self._settled or len(targets) == 1):
            try:
                return self._by_layers(self._layers, inputs, targets, clip)
            except _NotLayerwise as reason:
                log.info("per-example gradients one by one: %s", reason)
                self._layers = None
        return self._one_by_one(inputs, targets, clip)

    def _probe(self, layers: set[nn.Module], inputs: Any, targets: torch.Tensor) -> None:
        """Give up layers where they disagree with lone gradients, as where a batch is mixed.

        Two examples that have gradients settle it. Whatever one raises leaves it open, so that it
        does not decide how those after it are computed.
        """
        few, some = _rows(inputs, slice(_PROBED)), targets[:_PROBED]
        training = self._flat.model.training
        self._flat.model.eval()  # without dropout, whose coins the two ways draw differently
        try:
            rows = self._lone_gradients(few, some)
            slow = self._clip_rows([rows], 1.0).clone()
            fast = self._by_layers(layers, few, some, 1.0)
            agree = bool(torch.dist(fast, slow) <= 1e-2 * slow.norm() + 1e-6)
        except _NotLayerwise as reason:
            log.info("per-example gradients one by one: %s", reason)
            agree = False
        finally:
            self._flat.model.train(training)
        if not agree:
            self._layers = None
        telling = rows.isfinite().all(1) & rows.any(1)
        self._settled = not agree or int(telling.sum()) > 1

    def _by_layers(
        self, layers: set[nn.Module], inputs: Any, targets: torch.Tensor, clip: float
    ) -> torch.Tensor:
        with _captured(layers) as seen:
            losses = self._losses(self._flat.model(inputs), targets)
        captures = _backward(losses, seen)
        if not captures:
            return self._flat.gradients.zero_()
        measured = [measure(capture) for capture in captures]
        norms = _norms(measured)
        if not bool(norms.isfinite().all()):
            # NaN, infinity, or squares that overflow float32: rare, so it may be slow.
            wide = [capture.double() for capture in captures]
            usable = _norms([measure(capture) for capture in wide]).isfinite()
            measured = [measure(capture.where(usable)) for capture in wide]
            norms = _norms(measured)
        return self._weighted(measured, (clip / norms).clamp(max=1.0))

    def _weighted(self, measured: list[Measured], factors: torch.Tensor) -> torch.Tensor:
        if len(measured) < len(self._layers or ()):  # a layer that no loss depends on
            self._flat.gradients.zero_()
        for layer in measured:
            write_weighted_sum(layer, factors, self._places)
        return self._flat.gradients

    def _one_by_one(self, inputs: Any, targets: torch.Tensor, clip: float) -> torch.Tensor:
        size = max(1, CHUNK_ENTRIES // len(self._flat.weights))
        parts = [slice(start, start + size) for start in range(0, len(targets), size)]
        rows = (self._gradients(_rows(inputs, part), targets[part]) for part in parts)
        return self._clip_rows(rows, clip)

    def _clip_rows(self, chunks: Iterable[torch.Tensor], clip: float) -> torch.Tensor:
        """Return the sum of rows cut to norm C; each scaled first, so that no square overflows."""
        total = torch.zeros_like(self._flat.weights)
        for rows in chunks:
            largest = rows.abs().amax(1, keepdim=True)
            unit = rows / torch.where(largest > 0, largest, 1.0)
            norms = unit.norm(dim=1, keepdim=True)
            factors = torch.minimum(largest, clip / norms)
            usable = largest.isfinite() & (largest > 0)
            total += torch.where(usable, factors * unit, 0.0).sum(0)
        return self._flat.gradients.copy_(total)

    def _lone_gradients(self, inputs: Any, targets: torch.Tensor) -> torch.Tensor:
        """Return a gradient an example, shape (n, d), by a backward pass each."""
        parameters = [p for p in self._flat.model.parameters() if p.requires_grad]
        found = []
        for i in range(len(targets)):
            one = slice(i, i + 1)
            loss = self._losses(self._flat.model(_rows(inputs, one)), targets[one]).sum()
            parts = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
            found.append(torch.cat([part.reshape(-1) for part in parts]))
        return torch.stack(found)

    def _gradients(self, inputs: Any, targets: torch.Tensor) -> torch.Tensor:
        """Return a gradient an example, shape (n, d)."""
        model = self._flat.model
        parameters = {n: p.detach() for n, p in model.named_parameters() if p.requires_grad}
        buffers = dict(model.named_buffers())

        def loss(values: dict[str, torch.Tensor], one: Any, target: torch.Tensor) -> torch.Tensor:
            outputs = torch.func.functional_call(model, (values, buffers), (_rows(one, None),))
            return self._losses(outputs, target.unsqueeze(0)).sum()

        each = torch.func.vmap(torch.func.grad(loss), (None, 0, 0), randomness="different")
        try:
            found = each(parameters, inputs, targets)
        except RuntimeError as error:  # branches on values, or an operation without a batching rule
            log.info("per-example gradients by a loop: %s", error)
            return self._lone_gradients(inputs, targets)
        return torch.cat([found[name].flatten(1) for name in self._flat.layout.names], dim=1)


def _places(flat: FlatModel) -> dict[torch.Tensor, torch.Tensor]:
    """Return each trainable parameter's part of the flat gradients, of its shape."""
    parameters = [p for p in flat.model.parameters() if p.requires_grad]
    return {
        parameter: flat.gradients[where].view(parameter.shape)
        for parameter, where in zip(parameters, flat.layout.slices, strict=True)
    }


def _layers(model: nn.Module) -> set[nn.Module] | None:
    """Return the layers that hold all trainable parameters, each once; None if others do."""
    found: set[nn.Module] = set()
    owned: list[nn.Parameter] = []
    for module in model.modules():
        if type(module) not in LAYERS:
            continue
        own = [p for p in module.parameters(recurse=False) if p.requires_grad]
        if own:
            found.add(module)
            owned += own
    trained = [p for p in model.parameters() if p.requires_grad]
    same = len(owned) == len(set(owned)) == len(trained) and set(owned) == set(trained)
    return found if same else None


@dataclass
class _Seen:
    """A layer's call: its input, that input's version, and the edge of its output."""

    inputs: torch.Tensor
    version: int
    edge: GradientEdge


@contextmanager
def _captured(layers: set[nn.Module]) -> Iterator[dict[nn.Module, _Seen]]:
    """Record every call of the layers inside the block."""
    seen: dict[nn.Module, _Seen] = {}

    def record(module: nn.Module, given: tuple[Any, ...], output: torch.Tensor) -> None:
        if module in seen:
            raise _NotLayerwise("a layer is called more than once")
        if len(given) != 1:
            raise _NotLayerwise("a layer is called by keyword")
        # The edge, because an operation in place would put another tensor behind the same name.
        seen[module] = _Seen(given[0].detach(), given[0]._version, get_gradient_edge(output))

    handles = [layer.register_forward_hook(record) for layer in layers]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _backward(losses: torch.Tensor, seen: dict[nn.Module, _Seen]) -> list[Capture]:
    """Go back once, to the outputs of the layers and no further."""
    gradients: tuple[torch.Tensor | None, ...] = torch.autograd.grad(
        losses.sum(), [s.edge for s in seen.values()], allow_unused=True
    )
    captures = []
    for (layer, call), gradient in zip(seen.items(), gradients, strict=True):
        if gradient is None:  # the losses do not depend on it
            continue
        if call.inputs._version != call.version:
            raise _NotLayerwise("a layer's input is changed in place")
        expected = 4 if isinstance(layer, nn.Conv2d) else max(2, call.inputs.dim())
        if call.inputs.dim() != expected or len(call.inputs) != len(losses):
            raise _NotLayerwise("a layer's first dimension is not that of the examples")
        captures.append(Capture(layer, call.inputs, gradient))
    return captures


def _norms(measured: list[Measured]) -> torch.Tensor:
    """Return the norm of each example's whole gradient, shape (n,)."""
    return torch.stack([layer.squares for layer in measured]).sum(0).sqrt()


def _rows(batch: Any, part: slice | None) -> Any:
    """Return some examples of a batch; with None, one example as a batch of one."""
    if isinstance(batch, torch.Tensor):
        return batch.unsqueeze(0) if part is None else batch[part]
    if isinstance(batch, dict):
        return {key: _rows(value, part) for key, value in batch.items()}
    return type(batch)(_rows(value, part) for value in batch)
