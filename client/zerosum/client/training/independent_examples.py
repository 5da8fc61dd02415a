"""Recognise models and losses that are known to keep the examples of a batch apart.

One backward pass tells what each example contributes only if no example reaches another. That
cannot be found out by trying: a model may mix only while it trains, or only above three records.
So it is known of a short list of torch's modules, by their exact types and arguments, in sequences
alone, whose own code calls nothing else. Here they are called by hand, without the hooks and
overrides that an instance may carry.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import nn

from zerosum.client.training.products import multiplied
from zerosum.client.training.projection import Projection
from zerosum.client.training.torch_internals import (
    MissingMember,
    has_any_hooks,
    kernels,
    version_of,
)

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


@dataclass(frozen=True, repr=False)
class Call:
    """A stage's call.

    Attributes
    ----------
    stage : nn.Module
    inputs : torch.Tensor
        What it was given; it requires a gradient where autograd goes back through the call.
    output : torch.Tensor
    version : int
        How often the inputs had been changed in place.
    """

    stage: Any
    inputs: torch.Tensor
    output: torch.Tensor
    version: int

    def check_unchanged(self) -> None:
        """Raise unless the input is what the stage was given.

        Raises
        ------
        NotLayerwise
            If it was changed in place since.
        """
        if version_of(self.inputs) != self.version:
            raise NotLayerwise("a layer's input is changed in place")

    def back(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return the gradient by the inputs, from that by the output."""
        rule = _RULES.get(type(self.stage))
        if rule is not None:
            return rule(self, gradient)
        (upstream,) = torch.autograd.grad(self.output, self.inputs, gradient)
        return upstream


def _back_through_relu(call: Call, gradient: torch.Tensor) -> torch.Tensor:
    try:
        backward = kernels().threshold_backward
    except MissingMember as reason:
        raise NotLayerwise(str(reason)) from None
    return backward(gradient, call.output, 0, grad_input=torch.empty_like(call.output))


_RULES: dict[type[nn.Module], Callable[[Call, torch.Tensor], torch.Tensor]] = {
    nn.Linear: lambda call, gradient: multiplied(gradient, call.stage.weight.detach()),
    nn.ReLU: _back_through_relu,
    nn.Flatten: lambda call, gradient: gradient.reshape(call.inputs.shape),
    nn.Identity: lambda call, gradient: gradient,
}
"""Ways back that need no graph, whose making takes a tenth of a step of a small network."""


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


@dataclass(frozen=True)
class Stages:
    """Known stages in the order in which they are run, and what running them asks for.

    Attributes
    ----------
    modules : tuple of nn.Module
    layers : set of nn.Module
        Whose gradients are wanted.
    change_inputs : bool
        Whether one of them may work in place.
    convolve : bool
    draw_coins : bool
        Whether one of them draws from torch's generator.
    """

    modules: tuple[nn.Module, ...]
    layers: set[nn.Module]
    change_inputs: bool
    convolve: bool
    draw_coins: bool

    @classmethod
    def of(cls, known: list[nn.Module], layers: set[nn.Module]) -> "Stages":
        """Prepare known stages to be run.

        Parameters
        ----------
        known : list of nn.Module
            As :func:`known_stages` returns them.
        layers : set of nn.Module
            Whose gradients are wanted.

        Returns
        -------
        Stages
        """
        ordered = list(known)
        for place, (stage, following) in enumerate(pairwise(known)):
            # ReLU is monotone: both orders choose one entry of a window, or give zero and no
            # gradient. The second of them has a window's fraction of the entries to go through.
            if type(stage) is nn.ReLU and type(following) is nn.MaxPool2d:
                ordered[place : place + 2] = following, stage
        return cls(
            tuple(ordered),
            layers,
            change_inputs=any(getattr(stage, "inplace", False) for stage in ordered),
            convolve=any(isinstance(stage, nn.Conv2d) for stage in ordered),
            draw_coins=any(isinstance(stage, nn.Dropout) for stage in ordered),
        )


@torch.no_grad()
def run(stages: Stages, inputs: Any) -> tuple[torch.Tensor, list[Call]]:
    """Run known stages, and record what the way back needs.

    Parameters
    ----------
    stages : Stages
    inputs : object
        A batch; only a tensor of shape (n, ...) can be run.

    Returns
    -------
    outputs : torch.Tensor
        Shape (n, ...); a leaf that requires a gradient.
    calls : list of Call
        From the first layer on, in order.

    Raises
    ------
    NotLayerwise
        If somewhere dimension 0 is not that of the examples.
    """
    state, calls = _laid_out(stages, inputs), list[Call]()
    count, seen = len(state), set[nn.Module]()
    for stage in stages.modules:
        kind = type(stage)
        fits = state.dim() == 4 if kind in _IMAGES else state.dim() >= 2
        if not fits or len(state) != count:
            raise NotLayerwise("a layer's first dimension is not that of the examples")
        if stage in stages.layers:
            if stage in seen:
                raise NotLayerwise("a layer is called more than once")
            seen.add(stage)
        # Nobody goes back through the first layer, or through what stands before it.
        if calls and kind not in _RULES:
            state = state.detach().requires_grad_()
            with torch.enable_grad():
                # A copy: a leaf cannot be changed in place.
                output = kind.forward(stage, state.clone() if stages.change_inputs else state)
        else:
            output = (_linear if kind is nn.Linear else kind.forward)(stage, state)
        if seen:
            calls.append(Call(stage, state, output, _version(state)))
        state = output.detach()
    return state.requires_grad_(), calls


def _linear(layer: Any, state: torch.Tensor) -> torch.Tensor:
    """Return what a layer gives that autograd does not go back through."""
    if state.dim() != 2 or state.dtype != torch.float32:
        return nn.Linear.forward(layer, state)
    output = multiplied(state, layer.weight.t())
    return output if layer.bias is None else output.add_(layer.bias)


def _laid_out(stages: Stages, inputs: Any) -> torch.Tensor:
    """Return inputs that stages may change, images in the order that convolutions like best."""
    if not isinstance(inputs, torch.Tensor):
        raise NotLayerwise("the inputs are no tensor")
    # A copy: another way may have to be taken, and must not find what is changed in place.
    state = inputs.clone() if stages.change_inputs else inputs.detach()
    if stages.convolve and state.dim() == 4:
        # A CPU pools and convolves such images in half of the time. Values are the same: torch's
        # own modules see the order of dimensions, not of memory.
        state = state.to(memory_format=torch.channels_last)
    return state


def _version(tensor: torch.Tensor) -> int:
    try:
        return version_of(tensor)
    except MissingMember as reason:
        raise NotLayerwise(str(reason)) from None
