"""Recognise models and losses that are known to keep the examples of a batch apart.

One backward pass tells what each example contributes only if no example reaches another. That
cannot be found out by trying: a model may mix only while it trains, or only above three records.
So it is known of a short list of torch's modules, by their exact types and arguments, in sequences
alone, whose own code calls nothing else. Here they are called by hand, without the hooks and
overrides that an instance may carry.
"""

from collections.abc import Callable, Collection
from typing import Any, TypeVar

import torch
from torch import nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from zerosum.client.training.projection import Projection
from zerosum.client.training.torch_internals import MissingMember, has_any_hooks, version_of

Loss = TypeVar("Loss", bound=Callable[..., torch.Tensor])

_LOSSES: set[Any] = {nn.functional.cross_entropy}

_ROWS: frozenset[type[nn.Module]] = frozenset({
    nn.Linear, nn.Flatten, nn.Identity, nn.Dropout, Projection,
    nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Softplus, nn.Tanh, nn.Sigmoid,
})  # fmt: skip
"""Given two dimensions or more, each output row follows from one input row."""

_IMAGES: frozenset[type[nn.Module]] = frozenset({
    nn.Conv2d, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d,
})  # fmt: skip
"""The same, given four: of three they would take the first for channels."""


class NotLayerwise(Exception):
    """A forward pass in which layers do not tell an example's gradient."""


class Call:
    """A layer's call: its input, that input's version, and the edge of its output."""

    def __init__(self, inputs: torch.Tensor, output: torch.Tensor) -> None:
        self.inputs = inputs.detach()
        try:
            self._version = version_of(inputs)
        except MissingMember as reason:
            raise NotLayerwise(str(reason)) from None
        # The edge, because an operation in place would put another tensor behind the same name.
        self.edge: GradientEdge = get_gradient_edge(output)

    def check_unchanged(self) -> None:
        """Raise unless the input is what the layer was given.

        Raises
        ------
        NotLayerwise
            If it was changed in place since.
        """
        if version_of(self.inputs) != self._version:
            raise NotLayerwise("a layer's input is changed in place")


def keeps_apart(loss: Loss) -> Loss:
    """Mark a function of (outputs, targets) as one whose i-th loss follows from their i-th rows.

    Nothing checks it: for losses of this project. Any other is computed row by row.
    """
    _LOSSES.add(loss)
    return loss


def known_loss(loss: Any) -> bool:
    """Tell whether a loss, a method's function included, is marked; an override is another."""
    return getattr(loss, "__func__", loss) in _LOSSES


def known_stages(model: nn.Module) -> list[nn.Module] | None:
    """Return the modules that a sequence calls, in order, if all of it is known to keep apart."""
    if _as_made(model) and type(model) is nn.Sequential:
        stages: list[nn.Module] = []
        for module in model:
            inner = known_stages(module)
            if inner is None:
                return None
            stages += inner
        return stages
    known = type(model) in _ROWS | _IMAGES and _as_made(model) and _arguments_apart(model)
    return [model] if known else None


def _as_made(module: nn.Module) -> bool:
    """Tell whether a module is as its class makes it: no hooks, overrides or foreign tensors."""
    own = vars(module)
    try:
        hooks = has_any_hooks(module)
    except MissingMember:
        return False
    overrides = any(callable(getattr(type(module), name, None)) for name in own)
    values = (*own.values(), *module.parameters(recurse=False), *module.buffers(recurse=False))
    tensors = (value for value in values if isinstance(value, torch.Tensor))
    plain = all(type(tensor) in (torch.Tensor, nn.Parameter) for tensor in tensors)
    return plain and not hooks and not overrides


def _arguments_apart(module: nn.Module) -> bool:
    if isinstance(module, nn.Flatten):
        return module.start_dim >= 1
    return not getattr(module, "return_indices", False)


def run(
    stages: list[nn.Module], layers: Collection[nn.Module], inputs: Any
) -> tuple[torch.Tensor, dict[nn.Module, Call]]:
    """Run known stages, and record the calls of layers whose gradients are wanted.

    Parameters
    ----------
    stages : list of nn.Module
        As :func:`known_stages` returns them.
    layers : collection of nn.Module
        Whose gradients are wanted.
    inputs : object
        A batch; only a tensor of shape (n, ...) can be run.

    Returns
    -------
    outputs : torch.Tensor
        Shape (n, ...).
    calls : dict of nn.Module to Call
        Of ``layers``.

    Raises
    ------
    NotLayerwise
        If somewhere dimension 0 is not that of the examples.
    """
    if not isinstance(inputs, torch.Tensor):
        raise NotLayerwise("the inputs are no tensor")
    # A copy: another way may have to be taken, and must not find what is changed in place.
    changed = any(getattr(stage, "inplace", False) for stage in stages)
    state, seen = inputs.clone() if changed else inputs, dict[nn.Module, Call]()
    for stage in stages:
        fits = state.dim() == 4 if type(stage) in _IMAGES else state.dim() >= 2
        if not fits or len(state) != len(inputs):
            raise NotLayerwise("a layer's first dimension is not that of the examples")
        given = state
        state = type(stage).forward(stage, given)
        if stage in layers:
            if stage in seen:
                raise NotLayerwise("a layer is called more than once")
            seen[stage] = Call(given, state)
    return state, seen
