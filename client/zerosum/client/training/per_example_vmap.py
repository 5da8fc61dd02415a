"""Compute each example alone in one vectorised pass: under ``vmap`` none can see another.

Where all trained parameters lie in layers that are understood, such a pass gives what each layer
was given by each example and the gradient by its output, and no gradient an example is ever held.
Whatever these are, what an example adds to a sum follows from that example alone.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from zerosum.client.training.ghost_norms import Capture
from zerosum.client.training.independent_examples import NotLayerwise
from zerosum.client.training.torch_internals import convolution

Losses = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""From outputs and targets, one loss an example, shape (n,)."""


class NotVectorised(Exception):
    """A function that ``vmap`` may not be given, or after which its result may not be used."""


def vectorised(function: Callable[..., Any], *arguments: Any, shared: int = 0) -> Any:
    """Apply a function to each row of its arguments by ``vmap``.

    Parameters
    ----------
    function : callable
        Of one row of each argument.
    *arguments : tensor or structure of tensors
        Rows along dimension 0.
    shared : int
        How many of the first arguments every row is given whole.

    Returns
    -------
    object
        What the function returns, stacked along dimension 0.

    Raises
    ------
    NotVectorised
        If an operation brings its own rule for batches, which sees them all; if Python's or
        numpy's generator was drawn from: one coin for all rows, and who shares a coin would hang
        on how many there are; or if torch's coins came from a seed that the function chose: they
        are known to everybody, and a row's are told by its place.
    """
    before = _coins()
    places = (None,) * shared + (0,) * (len(arguments) - shared)
    # Fused attention has no rule, and would go row by row.
    # What packs tensors for the way back unpacks them of all rows at once.
    plain = torch.autograd.graph.disable_saved_tensors_hooks("not for all examples at once")
    with sdpa_kernel(SDPBackend.MATH), _without_own_rules(), _SecretCoins(), plain:
        results = torch.func.vmap(function, places, randomness="different")(*arguments)
    if _coins() != before:
        raise NotVectorised("Python's or numpy's generator is drawn from")
    return results


@contextmanager
def _without_own_rules() -> Iterator[None]:
    """Let operations whose class brings a ``vmap`` of its own raise inside the block."""
    functions = dict.fromkeys(_with_own_rules(torch.autograd.Function))
    rules = [(known, vars(known).get("vmap")) for known in functions]
    for known, _ in rules:
        known.vmap = staticmethod(partial(_refuse, known.__qualname__))
    try:
        yield
    finally:
        for known, rule in rules:
            if rule is None:
                del known.vmap
            else:
                known.vmap = rule


def _with_own_rules(base: Any) -> Iterator[Any]:
    for known in base.__subclasses__():
        own = known.vmap is not torch.autograd.Function.vmap  # of its class or of any base
        if own and known.__module__.partition(".")[0] != "torch":
            yield known
        yield from _with_own_rules(known)


def _refuse(name: str, *arguments: Any) -> None:
    raise NotVectorised(f"{name} has a vmap rule of its own")


class _SecretCoins(TorchFunctionMode):
    """Lets operations draw from torch's own generator alone, as it was seeded outside."""

    def __init__(self) -> None:
        super().__init__()
        self._seed = torch.default_generator.initial_seed()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        given = (*args, *(kwargs or {}).values())
        if any(isinstance(value, torch.Generator) for value in given):
            raise NotVectorised("a generator of the model's own is drawn from")
        if torch.default_generator.initial_seed() != self._seed:
            raise NotVectorised("torch's generator is seeded anew")
        return func(*args, **(kwargs or {}))


def _coins() -> tuple[Any, ...]:
    state: Any = np.random.get_state()  # noqa: NPY002  # looked at, never drawn from
    return random.getstate(), state[1].tobytes(), state[2:]


def rows(batch: Any, part: slice | None) -> Any:
    """Copy some examples of a batch.

    A view would show the batch that it is of, and what is changed in place be found changed by a
    second pass over the same batch, which not every batch goes through.

    Parameters
    ----------
    batch : tensor or structure of tensors
        Examples along dimension 0.
    part : slice or None
        Which; None: the batch is one example without that dimension, and gets it.

    Returns
    -------
    tensor or structure of tensors
        A copy.

    Raises
    ------
    TypeError
        If the batch holds anything but tensors.
    """
    if isinstance(batch, torch.Tensor):
        return (batch.unsqueeze(0) if part is None else batch[part]).clone()
    if isinstance(batch, dict):
        return {key: rows(value, part) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        copies = [rows(value, part) for value in batch]
        return tuple(copies) if isinstance(batch, tuple) else copies
    raise TypeError(f"inputs hold a {type(batch).__name__}: give tensors, or structures of them")


def lone_losses(losses: Losses, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Compute each example's loss from its own outputs and target alone.

    Parameters
    ----------
    losses : callable
        From outputs and targets, one loss an example.
    outputs : torch.Tensor
        Shape (n, ...).
    targets : torch.Tensor
        Shape (n, ...).

    Returns
    -------
    torch.Tensor
        Shape (n,).
    """
    return vectorised(  # type: ignore[no-any-return]
        lambda output, target: losses(output.unsqueeze(0), rows(target, None)).sum(),
        outputs, targets,
    )  # fmt: skip


class LoneLayers:
    """Finds what each example does to the layers of a model, with every example alone.

    Formal guarantees: the row of an example in every capture follows from that example. The
    captures tell the gradients, because the weights are cut off inside the layers' calls, where
    they are seen to be the layers' own, and the losses are seen to depend on them nowhere else.

    Parameters
    ----------
    model : nn.Module
    layers : set of nn.Linear and nn.Conv2d
        Which hold all trained parameters.
    losses : callable
        From outputs and targets, one loss an example.
    """

    def __init__(self, model: nn.Module, layers: set[nn.Module], losses: Losses) -> None:
        self._model = model
        self._layers = [layer for layer in model.modules() if layer in layers]
        self._own = [(layer.weight, layer.bias) for layer in self._layers]
        self._losses = losses
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._shapes: dict[Any, list[torch.Size | None]] = {}

    def captures(
        self, inputs: Any, targets: torch.Tensor, put_back: Callable[[], None]
    ) -> list[Capture]:
        """Return a capture of each layer that the losses depend on.

        Parameters
        ----------
        inputs, targets
            A batch.
        put_back : callable
            Puts back what a pass moves, between two.

        Returns
        -------
        list of Capture
            One a layer.

        Raises
        ------
        NotLayerwise
            If layers do not tell the gradients.
        NotVectorised, or whatever vmap raises
            If the model cannot be taken example by example at once.
        """
        probes = self._probes(inputs, targets)
        put_back()
        given: list[torch.Tensor | None]
        losses, given = self._pass(inputs, targets, probes)
        if not losses.requires_grad:
            return []
        used = [place for place, tensor in enumerate(given) if tensor is not None]
        gradients = torch.autograd.grad(
            losses.sum(), [*(probes[i] for i in used), *self._parameters], allow_unused=True
        )
        if any(gradient is not None for gradient in gradients[len(used) :]):
            raise NotLayerwise("a layer's parameter is used outside its layer")
        return [
            _captured(self._layers[place], given[place], gradient)
            for place, gradient in zip(used, gradients[: len(used)], strict=True)
            if gradient is not None
        ]

    def _probes(self, inputs: Any, targets: torch.Tensor) -> list[torch.Tensor]:
        """Return zeros to be added to the layers' outputs, whose gradients are asked for."""
        key = _form(inputs), _form(targets)
        if key not in self._shapes:
            one = slice(0, 1)
            with torch.no_grad(), self._cut(None) as calls:
                self._alone(rows(inputs, one), rows(targets, one))
            self._shapes[key] = [None if c is None else c[1] for c in _each_once(calls)]
        like = self._parameters[0]
        return [
            like.new_zeros(len(targets), *(shape or ()), requires_grad=True)
            for shape in self._shapes[key]
        ]

    def _alone(self, inputs: Any, targets: torch.Tensor) -> torch.Tensor:
        return self._losses(self._model(inputs), targets).sum()

    def _pass(
        self, inputs: Any, targets: torch.Tensor, probes: list[torch.Tensor]
    ) -> tuple[torch.Tensor, list[torch.Tensor | None]]:
        called: list[bool] = []

        def one(inputs: Any, target: torch.Tensor, probes: list[torch.Tensor]) -> Any:
            with self._cut(probes) as calls:
                loss = self._alone(rows(inputs, None), rows(target, None))
            recorded = _each_once(calls)
            called[:] = [call is not None for call in recorded]
            return loss, [call[0] for call in recorded if call is not None]

        losses, tensors = vectorised(one, inputs, targets, probes)
        tensors = iter(tensors)
        return losses, [next(tensors) if there else None for there in called]

    @contextmanager
    def _cut(self, probes: list[torch.Tensor] | None) -> Iterator[list[list[Any]]]:
        """Let the layers record their calls inside the block, and use their weights cut off."""
        calls: list[list[Any]] = [[] for _ in self._layers]
        for place, layer in enumerate(self._layers):
            probe = None if probes is None else probes[place]
            recorded = partial(_recorded, layer, self._own[place], calls[place], probe)
            vars(layer)["forward"] = recorded
        try:
            yield calls
        finally:
            for layer in self._layers:
                del vars(layer)["forward"]


def _recorded(
    layer: Any,
    own: tuple[Any, Any],
    calls: list[Any],
    probe: torch.Tensor | None,
    inputs: torch.Tensor,
) -> torch.Tensor:
    # functional_call puts others in their place, made of them perhaps: cut off, nothing would tell.
    if layer.weight is not own[0] or layer.bias is not own[1]:
        raise NotLayerwise("a layer computes with other weights than its own")
    bias = None if layer.bias is None else layer.bias.detach()
    weight = layer.weight.detach()
    output: torch.Tensor
    if isinstance(layer, nn.Conv2d):
        output = convolution(layer, inputs, weight, bias)
    else:
        output = nn.functional.linear(inputs, weight, bias)
    calls.append((inputs.detach().clone(), output.shape))  # a copy: it may be changed in place
    if probe is None:
        return output
    if probe.shape != output.shape:
        raise NotLayerwise("a layer's output is not always of one shape")
    return output + probe


def _each_once(calls: list[list[Any]]) -> list[Any]:
    if any(len(recorded) > 1 for recorded in calls):
        raise NotLayerwise("a layer is called more than once")
    return [recorded[0] if recorded else None for recorded in calls]


def _captured(layer: nn.Module, given: torch.Tensor | None, gradient: torch.Tensor) -> Capture:
    """Return a capture, of an example's own leading dimensions made one of positions."""
    if given is None:
        raise NotLayerwise("a layer is not called")
    if isinstance(layer, nn.Conv2d):
        if given.dim() != 5 or given.shape[1] != 1:
            raise NotLayerwise("a convolution is given other than one image an example")
        return Capture(layer, given.squeeze(1), gradient.squeeze(1))
    if given[0].numel() == given.shape[-1]:
        return Capture(layer, given.flatten(1), gradient.flatten(1))
    return Capture(layer, given.flatten(1, -2), gradient.flatten(1, -2))


def _form(batch: Any) -> Any:
    """Return shapes and dtypes of one example."""
    if isinstance(batch, torch.Tensor):
        return batch.shape[1:], batch.dtype
    if isinstance(batch, dict):
        return tuple((key, _form(value)) for key, value in batch.items())
    return tuple(_form(value) for value in batch)
