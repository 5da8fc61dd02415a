"""Sum clipped per-example gradients, to which DP-SGD adds noise (Abadi et al. 2016).

Four ways that give the same numbers, the quickest first. One backward pass over a whole batch to
the layers' outputs: an example's squared gradient norm follows from a layer's input and output
gradient, and the clipped sum is one more product in which each example weighs min(1, C / norm).
That is right only where no example reaches another, and used only where that is known. The same
pass with every example alone under ``vmap``, for any model whose parameters all lie in Linear and
Conv2d layers. A gradient an example under ``vmap``, for any other. A backward pass an example.
"""

import logging
import math
from collections.abc import Iterable, Iterator
from functools import partial, reduce
from typing import Any

import torch
from torch import nn

from zerosum.client.task import TaskError, error_line
from zerosum.client.training.batch_norm import mixes
from zerosum.client.training.flat_parameters import FlatModel
from zerosum.client.training.ghost_norms import (
    LAYERS,
    Capture,
    KeptProducts,
    MeasuredLayer,
    measure,
    write_weighted_sum,
)
from zerosum.client.training.independent_examples import (
    Call,
    NotLayerwise,
    Stages,
    known_loss,
    known_stages,
    run,
)
from zerosum.client.training.model_checks import called, gradient_hook, places_of
from zerosum.client.training.per_example_vmap import (
    LoneLayers,
    Losses,
    lone_losses,
    rows,
    vectorised,
)
from zerosum.client.training.restored_state import Moved, Snapshot
from zerosum.client.training.torch_seed import coins_apart

log = logging.getLogger("zerosum.client")

CHUNK_ENTRIES = 1 << 23
"""Entries of per-example gradients that ``torch.func`` holds at once."""

_SPARSE = (nn.Embedding, nn.EmbeddingBag)


class ClippedGradients:
    """Computes the sum over a batch of each example's gradient, cut to norm C.

    Formal guarantees: adding or removing an example changes the result by a vector of L2 norm at
    most C, float rounding aside: integer encoding with its own bound, not this, carries the
    sensitivity. No model, loss or mode is tried out for that. Modules and losses are known to keep
    examples apart, or every example is computed alone, from the same state of model and task: what
    a pass moves is put back after it. Beyond reach is what
    :mod:`zerosum.client.training.restored_state` cannot find, and an operator with a batching rule
    of its own. An example whose gradient is NaN or infinite contributes zero, and one whose
    positions cancel to a thousandth is cut shorter. Which way is taken may hang on an example, and
    changes the others' gradients by float rounding; where the model drops units at random it also
    draws their coins anew, so these have to be secret.

    What one example raises, the whole batch raises: ask again for each alone.

    Parameters
    ----------
    flat : FlatModel
        The model: its weights are read, its gradients overwritten.
    losses : callable
        From outputs and targets, one loss an example.
    layerwise : bool
        Whether the ways that go by layers may be used.
    apart : bool, optional
        Whether each loss follows from its own row of outputs; default: if the loss is marked so.
    watched : tuple of objects
        What the loss belongs to, beside the model: its state is put back too.

    Raises
    ------
    TaskError
        If the model has batch normalisation that is not frozen, for which no example has a
        gradient of its own, or is a script, whose state cannot be seen.
    """

    def __init__(
        self,
        flat: FlatModel,
        losses: Losses,
        *,
        layerwise: bool = True,
        apart: bool | None = None,
        watched: tuple[Any, ...] = (),
    ) -> None:
        _check_modules(flat.model)
        self._flat = flat
        self._losses = losses
        self._apart = known_loss(losses) if apart is None else apart
        self._watched = watched
        self._places = _places(flat)
        self._parameters = list(self._places)
        for parameter in self._parameters:
            parameter.grad = None  # a view of the last sum, which no forward pass may read
        hooked = gradient_hook(flat.model)
        if hooked is not None:
            log.info("per-example gradients by a loop: %s has a gradient hook", hooked)
        layers = _layers(flat.model) if layerwise and hooked is None else None
        known = known_stages(flat.model) if layers else None
        self._stages = Stages.of(known, layers) if known and layers else None
        self._layers = layers or set()
        self._lone = LoneLayers(flat.model, layers, losses) if layers else None
        self._kept = KeptProducts()
        self._vectorises = hooked is None
        self._loss_vectorises = True
        self.moved: set[Moved] = set()
        self.not_finite = 0
        """Examples of the last sum whose gradients were NaN or infinite."""
        self.way = ""

    @property
    def layerwise(self) -> bool:
        """Return whether the last sum was found layer by layer."""
        return self.way in ("one pass", "lone layers")

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
        self.not_finite = 0
        if not len(targets):
            return self._flat.gradients.zero_()
        if self._stages is None or self._stages.draw_coins or not self._apart:
            with coins_apart():
                return self._sum(inputs, targets, clip)
        return self._sum(inputs, targets, clip)

    def _sum(self, inputs: Any, targets: torch.Tensor, clip: float) -> torch.Tensor:
        if self._stages is not None:
            # Nobody's code but the loss's is run, and torch's modules move nothing.
            state = None if self._apart else Snapshot(None, *self._watched)
            try:
                return self._in_one_pass(self._stages, state, inputs, targets, clip)
            except NotLayerwise as reason:
                self._give_up(reason)
            finally:
                self._put_back(state)
        state = Snapshot(self._flat.model, *self._watched)
        try:
            return self._alone(state, inputs, targets, clip)
        finally:
            self._put_back(state)

    def lone_gradients(self, inputs: Any, targets: torch.Tensor) -> torch.Tensor:
        """Compute each example's gradient, by a backward pass each.

        Parameters
        ----------
        inputs : tensor or structure of tensors
            A batch; examples along dimension 0.
        targets : torch.Tensor
            Shape (n, ...).

        Returns
        -------
        torch.Tensor
            Shape (n, d).
        """
        state = Snapshot(self._flat.model, *self._watched)
        try:
            return torch.cat(list(self._loop(state, inputs, targets)))
        finally:
            self._put_back(state)

    def _alone(
        self, state: Snapshot, inputs: Any, targets: torch.Tensor, clip: float
    ) -> torch.Tensor:
        """Return the sum, by the quickest way in which examples are alone that can be had."""
        while self._vectorises:
            try:
                if self._lone is not None:
                    self.way = "lone layers"
                    return self._weighted(
                        self._lone.captures(inputs, targets, partial(self._put_back, state)), clip
                    )
                self.way = "vmap"
                return self._clip_rows(self._gradients(state, inputs, targets), clip)
            except NotLayerwise as reason:
                self._give_up(reason)
                self._put_back(state)
            except Exception as error:  # whatever it is: if the batch fails, it does alone as well
                self._put_back(state)
                self.not_finite = 0
                total = self._clip_rows(self._loop(state, inputs, targets), clip)
                self._vectorises = False
                log.info("per-example gradients by a loop: %s", error_line(error))
                return total
        return self._clip_rows(self._loop(state, inputs, targets), clip)

    def _give_up(self, reason: NotLayerwise) -> None:
        """Leave the quickest way that there was."""
        if self._stages is None:
            self._lone = None
        self._stages = None
        log.info("per-example gradients not layer by layer at once: %s", reason)

    def _put_back(self, state: Snapshot | None) -> None:
        for moved in state.put_back() if state else ():
            if moved not in self.moved:
                self.moved.add(moved)
                log.warning("%s is moved by a pass, and put back: examples must not meet", moved)

    def _in_one_pass(
        self,
        stages: Stages,
        state: Snapshot | None,
        inputs: Any,
        targets: torch.Tensor,
        clip: float,
    ) -> torch.Tensor:
        self.way = "one pass"
        outputs, calls = run(stages, inputs)
        if state is None:
            losses = self._losses(outputs.clone(), targets)
        else:
            losses = self._lone_losses(state, outputs, targets)
        return self._weighted(_captures(losses, outputs, calls, self._layers), clip)

    def _lone_losses(
        self, state: Snapshot, outputs: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor:
        """Return losses of which each was given its own row of outputs alone.

        A copy of it: a loss may work in place, which a leaf does not stand, and may fail then.
        """
        if self._loss_vectorises:
            try:
                return lone_losses(self._losses, outputs.clone(), targets)
            except Exception as error:
                self._put_back(state)
                log.info("losses by a loop: %s", error_line(error))
        lone = []
        for i in range(len(targets)):
            one = slice(i, i + 1)
            with coins_apart():
                lone.append(self._losses(outputs[one].clone(), rows(targets, one)).sum())
            self._put_back(state)
        self._loss_vectorises = False  # and not where an example is to blame, which raises here
        return torch.stack(lone)

    def _weighted(self, captures: list[Capture], clip: float) -> torch.Tensor:
        if not captures:
            return self._flat.gradients.zero_()
        measured = _measured(captures, self._kept)
        norms = _norms(measured)
        if not math.isfinite(float(norms.sum())):
            # NaN, infinity, or squares that overflow float32: rare, so it may be slow.
            wide = [capture.double() for capture in captures]
            usable = _norms(_measured(wide, self._kept)).isfinite()
            self.not_finite += int((~usable).sum())
            measured = _measured([capture.where(usable) for capture in wide], self._kept)
            norms = _norms(measured)
        factors = (clip / norms).clamp_(max=1.0)
        if len(measured) < len(self._layers):  # a layer that no loss depends on
            self._flat.gradients.zero_()
        for layer in measured:
            write_weighted_sum(layer, factors, self._places)
        return self._flat.gradients

    def _clip_rows(self, chunks: Iterable[torch.Tensor], clip: float) -> torch.Tensor:
        """Return the sum of rows cut to norm C; each scaled first, so that no square overflows."""
        total = torch.zeros_like(self._flat.weights)
        for gradients in chunks:
            largest = gradients.abs().amax(1, keepdim=True)
            unit = gradients / torch.where(largest > 0, largest, 1.0)
            norms = unit.norm(dim=1, keepdim=True)
            factors = torch.minimum(largest, clip / norms)
            finite = largest.isfinite()
            self.not_finite += len(finite) - int(finite.sum())
            usable = finite & (largest > 0)
            total += torch.where(usable, factors * unit, 0.0).sum(0)
        return self._flat.gradients.copy_(total)

    def _loop(self, state: Snapshot, inputs: Any, targets: torch.Tensor) -> Iterator[torch.Tensor]:
        """Yield each example's gradient, shape (1, d)."""
        self.way = "loop"
        for i in range(len(targets)):
            one = slice(i, i + 1)
            with coins_apart():
                outputs = called(self._flat.model, rows(inputs, one))
                loss = self._losses(outputs, rows(targets, one)).sum()
                parts = torch.autograd.grad(
                    loss, self._parameters, allow_unused=True, materialize_grads=True
                )
            self._put_back(state)
            # Sparse, as those of embeddings may be, they cannot be reshaped.
            yield torch.cat([part.to_dense().reshape(-1) for part in parts]).unsqueeze(0)

    def _gradients(
        self, state: Snapshot, inputs: Any, targets: torch.Tensor
    ) -> Iterator[torch.Tensor]:
        """Yield a gradient an example, shape (n, d), for some examples at a time."""
        model = self._flat.model
        parameters = {n: p.detach() for n, p in model.named_parameters() if p.requires_grad}
        buffers, places = dict(model.named_buffers()), places_of(model)

        def loss(values: dict[str, torch.Tensor], one: Any, target: torch.Tensor) -> torch.Tensor:
            at = {place: values[name] for place, name in places.items()} | buffers
            outputs = torch.func.functional_call(model, at, (rows(one, None),), tie_weights=False)
            return self._losses(outputs, rows(target, None)).sum()

        size = max(1, CHUNK_ENTRIES // len(self._flat.weights))
        for start in range(0, len(targets), size):
            part = slice(start, start + size)
            few = rows(inputs, part), rows(targets, part)
            by_name = vectorised(torch.func.grad(loss), parameters, *few, shared=1)
            self._put_back(state)
            yield torch.cat([by_name[name].flatten(1) for name in self._flat.layout.names], dim=1)


def _check_modules(model: nn.Module) -> None:
    mixing = mixes(model)
    for name, module in model.named_modules():
        layer = f"model: {name or 'it'} ({type(module).__name__})"
        if name in mixing:
            raise TaskError(
                f"{layer} mixes the examples of a batch, so none has a gradient of its own; use "
                "GroupNorm or LayerNorm, or freeze it in eval()"
            )
        if isinstance(module, torch.jit.ScriptModule):
            raise TaskError(
                f"{layer} is a script, and what it carries from one example to the next cannot be "
                "seen; give the module that it was made of"
            )
        if getattr(module, "sparse", None) is True and isinstance(module, _SPARSE):
            module.sparse = False  # of one example a gradient is short enough to be written out


def _places(flat: FlatModel) -> dict[torch.Tensor, torch.Tensor]:
    """Return each trainable parameter's part of the flat gradients, of its shape."""
    parameters = [p for p in flat.model.parameters() if p.requires_grad]
    return {
        parameter: flat.gradients[where].view(parameter.shape)
        for parameter, where in zip(parameters, flat.layout.slices, strict=True)
    }


def _layers(model: nn.Module) -> set[nn.Module] | None:
    """Return the layers that hold all trainable parameters, each once; None if others do."""
    layers: set[nn.Module] = set()
    owned: list[nn.Parameter] = []
    for module in model.modules():
        if type(module) not in LAYERS:
            continue
        named = {n: p for n, p in module.named_parameters(recurse=False) if p.requires_grad}
        own = list(named.values())
        if own and named.keys() <= {"weight", "bias"} and "forward" not in vars(module):
            layers.add(module)
            owned += own
    trained = [p for p in model.parameters() if p.requires_grad]
    same = len(owned) == len(set(owned)) == len(trained) and set(owned) == set(trained)
    return layers if same else None


def _captures(
    losses: torch.Tensor, outputs: torch.Tensor, calls: list[Call], layers: set[nn.Module]
) -> list[Capture]:
    """Go back once, to the outputs of the layers and no further."""
    ones = torch.ones_like(losses)
    gradient: torch.Tensor | None
    (gradient,) = torch.autograd.grad(losses, [outputs], ones, allow_unused=True)
    captures: list[Capture] = []
    for place in reversed(range(len(calls))):
        if gradient is None:  # the losses do not depend on it
            break
        call = calls[place]
        if call.stage in layers:
            call.check_unchanged()
            captures.append(Capture(call.stage, call.inputs.detach(), gradient))
        gradient = call.back(gradient) if place else None
    return captures


def _measured(captures: list[Capture], kept: KeptProducts) -> list[MeasuredLayer]:
    """Measure layers, keeping what the sum can use again as far as there is room."""
    kept.clear()
    return [measure(capture, kept) for capture in captures]


def _norms(measured: list[MeasuredLayer]) -> torch.Tensor:
    """Return the norm of each example's whole gradient, shape (n,)."""
    return reduce(torch.add, [layer.squares for layer in measured]).sqrt()
