"""Check that what ``model()`` returns can be trained as PyTorch would, and convert its dtypes.

Training moves a model's weights into one flat vector. That changes nothing for parameters that own
their memory, and would change much, in silence, for those that do not: each kind that would be
trained as something else than plain PyTorch trains is refused here, in one line with the cure.
"""

import inspect
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import nn
from torch.utils.weak import WeakTensorKeyDictionary

from zerosum.client.task import TaskError, error_line
from zerosum.client.training.torch_internals import (
    MissingMember,
    has_accumulation_hooks,
    has_backward_hooks,
    has_gradient_hooks,
    map_tensors,
    run_uncompiled,
)

_SEEN = WeakTensorKeyDictionary()
"""Trained parameters of every model that was checked: a second model may not have them again."""

_TWO_DTYPES = re.compile("same dtype|type .* should be the same")
_INTEGER = re.compile(r"\b(long|int|short|char|byte|bool)\b", re.IGNORECASE)
"""Of torch's messages: products and convolutions, and the names that they give to integers."""

_WIDER = {torch.float64: torch.complex128}


def usable(model: Any) -> nn.Module:
    """Check what ``model()`` returned: a module that is trained as PyTorch would train it.

    Parts under ``torch.compile`` are run as they were written. Compiling takes a client's whole
    time, and a group of clients or of examples is no input that a compiled part takes.

    Parameters
    ----------
    model : object
        What ``model()`` returned.

    Returns
    -------
    nn.Module
        The same object.

    Raises
    ------
    TaskError
        If it is no module, or has parameters that cannot be moved into one vector.
    """
    if not isinstance(model, nn.Module):
        raise TaskError(
            f"model(): returned a {type(model).__name__}, which is no torch.nn.Module: return one"
        )
    run_uncompiled(model)
    for name, tensor in _tensors(model):
        _check_values(model, name, tensor)
    trained = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    if not trained:
        raise TaskError(
            "model: no parameter requires a gradient, so there is nothing to train: let a layer "
            "have requires_grad_(True), and give a quantised model as it was before"
        )
    for name, parameter in trained:
        _check_trained(name, parameter)
    _check_memory(model)
    for name, parameter in trained:
        if parameter in _SEEN:
            raise TaskError(
                f"model(): returned the same model again ({name} is known): each client trains one "
                "of its own, so build it inside model(), or return copy.deepcopy of the one kept"
            )
        _SEEN[parameter] = True
    return model


def converted(model: nn.Module, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """Move a model, in place, and cast its real numbers; complex ones stay complex.

    ``model.to(dtype)`` would drop the imaginary parts of weights and buffers.

    Parameters
    ----------
    model : nn.Module
    device : torch.device
        Where to.
    dtype : torch.dtype
        Of real numbers; complex ones get the precision that goes with it.

    Returns
    -------
    nn.Module
        The same object.
    """
    wide = _WIDER.get(dtype, torch.complex64)

    def cast(value: torch.Tensor) -> torch.Tensor:
        if value.is_complex():
            return value.to(device, wide)
        return value.to(device, dtype if value.is_floating_point() else None)

    return map_tensors(model, cast)


def cast_of(model: nn.Module, dtype: torch.dtype) -> str | None:
    """Say which trained parameters get another dtype.

    Parameters
    ----------
    model : nn.Module
        Before it is converted.
    dtype : torch.dtype
        Of training.

    Returns
    -------
    str or None
        None where no trained parameter is cast.
    """
    others = [p.dtype for p in model.parameters() if p.requires_grad and p.dtype != dtype]
    if not others:
        return None
    kinds = " and ".join(sorted({str(kind).removeprefix("torch.") for kind in others}))
    return (
        f"model: {len(others)} parameters are {kinds}, and all are trained and kept as "
        f"{str(dtype).removeprefix('torch.')}"
    )


def called(model: nn.Module, inputs: Any) -> Any:
    """Call a model on a batch, and explain what a user can mend.

    Parameters
    ----------
    model : nn.Module
        Called as it is.
    inputs : tensor or structure of tensors
        A batch, examples along dimension 0.

    Returns
    -------
    object
        What the model returns.

    Raises
    ------
    TaskError
        If a dict is given to a model that wants its parts by name, or dtypes do not go together.
        What else the model raises is raised as it is.
    """
    try:
        return model(inputs)
    except Exception as error:
        names = _wanted_by_name(model, inputs)
        if names is None and isinstance(error, RuntimeError) and _TWO_DTYPES.search(str(error)):
            raise TaskError(_of_two_dtypes(model, error)) from error
        if names is None:
            raise
        raise TaskError(
            f"model: forward takes {names} by name, and is given a batch as one dict: write "
            "forward(self, batch), or wrap the model in one whose forward calls "
            "self.inner(**batch)"
        ) from error


def _of_two_dtypes(model: nn.Module, error: RuntimeError) -> str:
    """Return whose dtype does not go with the weights': torch names its scalar types in words."""
    kinds = sorted({str(p.dtype).removeprefix("torch.") for p in model.parameters()})
    if _INTEGER.search(str(error)):
        return (
            f"data: inputs are integers, and the model computes in {' and '.join(kinds)} "
            f"({error_line(error)}): give x.float(), or cast in forward"
        )
    return (
        f"model: forward casts to a dtype of its own, while weights and inputs are "
        f"{' and '.join(kinds)} ({error_line(error)}): cast to the dtype of a weight, as "
        "x.to(self.weight.dtype)"
    )


def check_unchanged(model: nn.Module, parameters: Mapping[str, nn.Parameter]) -> None:
    """Raise if running a model changed what is trained.

    Parameters
    ----------
    model : nn.Module
        After a forward pass.
    parameters : Mapping
        What was trained when it was built, by name.

    Raises
    ------
    TaskError
        Names a parameter that is trained now and was not, or the reverse.
    """
    now = {name: p for name, p in model.named_parameters() if p.requires_grad}
    for name in [
        *(n for n in parameters if n not in now),
        *(n for n in now if n not in parameters),
    ]:
        raise TaskError(
            f"model: forward changes whether {name} is trained: create every parameter and set "
            "requires_grad in model(), before the first batch"
        )


def gradient_hook(model: nn.Module) -> str | None:
    """Return which parameter or module has a hook that may change gradients, if there is one.

    Only the model's own backward pass calls it, not one on copies of its parameters.
    """
    try:
        for name, module in model.named_modules():
            if has_backward_hooks(module):
                return f"{name or 'it'} ({type(module).__name__})"
        for name, parameter in model.named_parameters():
            if parameter.requires_grad and has_gradient_hooks(parameter):
                return name
    except MissingMember as reason:
        return f"a part that cannot be looked at ({reason})"
    return None


def places_of(model: nn.Module) -> dict[str, str]:
    """Return each place of a trained parameter, once, and the name of what lies there.

    A place is a module and its attribute. Given to ``functional_call`` with ``tie_weights=False``,
    tied weights are all replaced, and put back also where one module has two names: left to find
    the names itself, torch puts back what it has just put there.
    """
    names = {id(p): name for name, p in model.named_parameters() if p.requires_grad}
    return {
        f"{prefix}.{own}" if prefix else own: names[id(value)]
        for prefix, module in model.named_modules()
        for own, value in module.named_parameters(recurse=False, remove_duplicate=False)
        if id(value) in names
    }


def _tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _check_values(model: nn.Module, name: str, tensor: torch.Tensor) -> None:
    if nn.parameter.is_lazy(tensor):
        where = name.rpartition(".")[0]
        kind = type(model.get_submodule(where)).__name__
        raise TaskError(
            f"model: {where or 'it'} ({kind}) has no shape before it sees a batch, and the server "
            f"has none: write {kind.removeprefix('Lazy')} with its sizes, or call the model on a "
            "batch of zeros inside model()"
        )
    if tensor.is_meta:
        raise TaskError(
            f"model: {name} is on the meta device, where it has no values: build the model on the "
            'CPU, or call to_empty(device="cpu") and initialise it inside model()'
        )


def _check_trained(name: str, parameter: nn.Parameter) -> None:
    if parameter.is_complex():
        kind = str(parameter.dtype).removeprefix("torch.")
        raise TaskError(
            f"model: {name} is {kind}, and clips and sums are of real numbers: store "
            f"torch.view_as_real({name}) and use torch.view_as_complex of that in forward"
        )
    if parameter.layout != torch.strided:
        raise TaskError(f"model: {name} is stored sparse: give it as to_dense()")
    hooked = False  # where nobody can tell: the general trainer calls no such hook
    with suppress(MissingMember):
        hooked = has_accumulation_hooks(parameter)
    if hooked:
        raise TaskError(
            f"model: {name} has a hook after its gradient is accumulated, which is not called here:"
            " use register_hook, which is, or clip by privacy.clip"
        )
    if any(
        step == 0 < size - 1 for size, step in zip(parameter.shape, parameter.stride(), strict=True)
    ):
        raise TaskError(
            f"model: {name} is expanded, many entries in one place of memory: keep what it is "
            "expanded from as the parameter, or clone() it"
        )


def _check_memory(model: nn.Module) -> None:
    """Refuse parameters that share memory with anything: an optimizer moves both, one vector one.

    Buffers and plain attributes count as well: a view of a weight follows it in plain PyTorch.
    """
    storages: dict[int, list[tuple[str, torch.Tensor, bool]]] = defaultdict(list)
    for name, tensor, trained in _held(model):
        if tensor.layout == torch.strided and tensor.numel():
            storages[tensor.untyped_storage().data_ptr()].append((name, tensor, trained))
    for sharing in storages.values():
        earlier: list[tuple[str, torch.Tensor, bool]] = []
        for name, tensor, trained in sorted(sharing, key=lambda each: _span(each[1])):
            start = _span(tensor)[0]
            earlier = [each for each in earlier if _span(each[1])[1] > start]
            for other, before, also in earlier:
                if (trained or also) and tensor is not before and _overlap(tensor, before):
                    raise TaskError(
                        f"model: {other} and {name} share memory, so that training one moves the "
                        "other: use one parameter at both places, compute the view in forward, or "
                        "clone() it"
                    )
            earlier.append((name, tensor, trained))


def _held(model: nn.Module) -> Iterator[tuple[str, torch.Tensor, bool]]:
    for name, parameter in model.named_parameters():
        yield name, parameter, parameter.requires_grad
    for name, buffer in model.named_buffers():
        yield name, buffer, False
    for prefix, module in model.named_modules():
        own_parameters = dict(module.named_parameters(recurse=False, remove_duplicate=False))
        for own, value in vars(module).items():
            # A norm's hook writes `weight` anew from `weight_orig` before every pass.
            if isinstance(value, torch.Tensor) and f"{own}_orig" not in own_parameters:
                yield f"{prefix}.{own}" if prefix else own, value, False


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether two tensors of one storage, whose spans have bytes in common, do so too."""
    gapless = all((span := _span(t))[1] - span[0] == t.nbytes for t in (one, other))
    if gapless or one.dtype != other.dtype:
        return True
    return bool(torch.isin(_offsets(one), _offsets(other)).any())


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """Return where a tensor's first byte lies in its storage, and where its last has passed."""
    start = int(tensor.storage_offset())
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    end = start + sum((size - 1) * step for size, step in steps) + 1
    return start * tensor.itemsize, end * tensor.itemsize


def _offsets(tensor: torch.Tensor) -> torch.Tensor:
    offsets = torch.tensor([tensor.storage_offset()])
    for size, step in zip(tensor.shape, tensor.stride(), strict=True):
        offsets = (offsets.unsqueeze(-1) + step * torch.arange(size)).reshape(-1)
    return offsets


def _wanted_by_name(model: nn.Module, inputs: Any) -> str | None:
    """Return the keys of a batch that a model's forward wants by name, if it plainly does."""
    if not isinstance(inputs, Mapping) or not all(isinstance(key, str) for key in inputs):
        return None
    try:
        signature = inspect.signature(model.forward)
        signature.bind(**inputs)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(inputs)
    except TypeError:
        return ", ".join(inputs)
    # One argument that all of it may be, as forward(self, x) of a batch {"x": ...}, tells nothing.
    return ", ".join(inputs) if len(inputs) > 1 else None
