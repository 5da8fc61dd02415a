"""Reach what torch keeps private: the one module that names such members.

A new release of torch may move any of them. Each has a test in
``tests/client/training/test_torch_internals.py`` that fails when it does, and a fall-back, so that
a run goes on at the speed of the general trainer:

=====================================  ==========================================================
member                                 where it is missing
=====================================  ==========================================================
kernels of ``torch.ops.aten``          ``trainer = "fast"`` trains by the general trainer
tables of hooks of modules and         a model counts as hooked: general trainer, clients one by
parameters                             one, per-example gradients by a loop
``Tensor._version``                    per-example gradients by ``vmap``
``Module._apply``                      the same loop over parameters and buffers, here
``_compiled_call_impl``, ``_orig_mod`` compiled parts run compiled
``_parameters``, ``_buffers``,         state is found and put back as plain attributes
``_modules``
``_flat_weights`` and its references   lists that torch makes anew are put back too
``_SpectralNorm``, ``SpectralNorm``    vectors of spectral norms start as ``model()`` leaves them
``_foreach_*``                         the benchmark's plain loop does not run
``torch.cpu._is_*_supported``          flags of the processor are read from ``/proc/cpuinfo``
``torch.ops.mkldnn._linear_pointwise`` large products by ``torch.mm``
=====================================  ==========================================================

Base classes and a convolution's padding are derived from public names, to which no release can do
harm in silence.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn


class MissingMember(Exception):
    """A private member of torch that this release lacks; the message names it."""


# --- Kernels ------------------------------------------------------------------------------------
# Hand-derived rules call the operators that autograd would call, some with an output of our own.
# Public functions do not reach them: they record a graph, and their backward passes are operators
# without a public name.

_ATEN: Any = torch.ops.aten


@dataclass(frozen=True, repr=False)
class Kernels:
    """Operators of the fast trainer, each as ``torch.ops.aten`` documents it."""

    threshold_backward: Callable[..., torch.Tensor]
    convolution: Callable[..., torch.Tensor]
    convolution_backward: Callable[..., tuple[Any, ...]]
    max_pool2d: Callable[..., tuple[torch.Tensor, torch.Tensor]]
    max_pool2d_backward: Callable[..., torch.Tensor]
    max_unpool2d: Callable[..., torch.Tensor]
    avg_pool2d: Callable[..., torch.Tensor]
    avg_pool2d_backward: Callable[..., torch.Tensor]


@cache
def kernels() -> Kernels:
    """Return the operators of the fast trainer.

    Returns
    -------
    Kernels
        Looked up once.

    Raises
    ------
    MissingMember
        If this torch lacks one of them.
    """
    try:
        return Kernels(
            threshold_backward=_ATEN.threshold_backward.grad_input,
            convolution=_ATEN.convolution.default,
            convolution_backward=_ATEN.convolution_backward.default,
            max_pool2d=_ATEN.max_pool2d_with_indices.default,
            max_pool2d_backward=_ATEN.max_pool2d_with_indices_backward.default,
            max_unpool2d=_ATEN.max_unpool2d.default,
            avg_pool2d=_ATEN.avg_pool2d.default,
            avg_pool2d_backward=_ATEN.avg_pool2d_backward.default,
        )
    except AttributeError as error:
        raise MissingMember(f"torch {torch.__version__} lacks a kernel: {error}") from None


@cache
def _onednn_linear() -> Callable[..., torch.Tensor] | None:
    """Return oneDNN's product with a transpose, if this build has it and it is what it was."""
    try:
        linear: Callable[..., torch.Tensor] = torch.ops.mkldnn._linear_pointwise.default
        left, right = torch.arange(6.0).view(3, 2).t(), torch.arange(12.0).view(3, 4).t() - 5
        # Of small integers, so that it is exact in any order and at any precision.
        same = torch.equal(linear(left, right, None, "none", [], ""), torch.mm(left, right.t()))
    except (AttributeError, RuntimeError):
        return None
    return linear if same else None


def has_onednn_product() -> bool:
    """Tell whether this torch has :func:`onednn_product`."""
    return _onednn_linear() is not None


def onednn_product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor | None:
    """Multiply a matrix by the transpose of another, by oneDNN.

    Parameters
    ----------
    left, right : torch.Tensor
        float32, shapes (m, k) and (n, k), strided in any way. Not bfloat16, which oneDNN refuses
        on a processor without AVX-512.

    Returns
    -------
    torch.Tensor or None
        float32, shape (m, n); None where this torch has no such operator.
    """
    linear = _onednn_linear()
    return None if linear is None else linear(left, right, None, "none", [], "")


def foreach_copy_(tensors: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    """Copy each source into its tensor, in one call.

    Parameters
    ----------
    tensors, sources : list of torch.Tensor
        Pairs of one shape; the first are overwritten.
    """
    torch._foreach_copy_(tensors, sources)


def foreach_add_(tensors: list[torch.Tensor], others: Any, alpha: float = 1.0) -> None:
    """Add ``alpha`` times each other to its tensor, in one call.

    Parameters
    ----------
    tensors : list of torch.Tensor
        Added to, in place.
    others : sequence of torch.Tensor
        Of the same shapes.
    alpha : float
        Their factor.
    """
    torch._foreach_add_(tensors, others, alpha=alpha)


def foreach_div_(tensors: list[torch.Tensor], divisor: float) -> None:
    """Divide each tensor by a number, in one call.

    Parameters
    ----------
    tensors : list of torch.Tensor
        Divided, in place.
    divisor : float
        Not 0.
    """
    torch._foreach_div_(tensors, divisor)


# --- Processor ----------------------------------------------------------------------------------

_BF16_PROBES = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
_BF16_FLAGS = {"avx512_bf16", "amx_bf16"}
_CPUINFO = Path("/proc/cpuinfo")


def has_native_bf16() -> bool:
    """Tell whether oneDNN is there and the processor multiplies bfloat16 natively.

    Without such instructions torch still multiplies bfloat16, slower than float32. Processors
    other than x86 count as having none: nothing here was measured on them.
    """
    onednn: Any = torch.backends.mkldnn
    if not onednn.is_available():
        return False
    probes = [getattr(torch.cpu, name, None) for name in _BF16_PROBES]
    if all(callable(probe) for probe in probes):
        return any(bool(probe()) for probe in probes if probe is not None)
    return bool(_BF16_FLAGS & _processor_words())


def mkl_is_narrow() -> bool:
    """Tell whether torch's own products of float32 leave half of the processor's width unused.

    MKL asks who made the processor: on AMD's it multiplies by AVX2, also where there is AVX-512.
    """
    mkl: Any = torch.backends.mkl
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    return wide and mkl.is_available() and "AuthenticAMD" in _processor_words()


@cache
def _processor_words() -> frozenset[str]:
    """Return the words of the system's description of the processor; none where there is no such.

    On Linux these are its maker and its flags, among others.
    """
    try:
        return frozenset(_CPUINFO.read_text(encoding="ascii", errors="replace").split())
    except OSError:
        return frozenset()


# --- Hooks --------------------------------------------------------------------------------------
# Hooks run only where the model itself is called and differentiated by autograd. Every faster way
# passes them by, so it has to know that there are none: a table that cannot be read counts as full.

_FORWARD_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_BACKWARD_HOOKS = ("_backward_hooks", "_backward_pre_hooks")
_ACCUMULATION_HOOKS = "_post_accumulate_grad_hooks"


def has_backward_hooks(module: nn.Module) -> bool:
    """Tell whether a module has hooks on its backward pass; MissingMember where none can tell."""
    return any(_member(module, name) for name in _BACKWARD_HOOKS)


def has_pass_hooks(module: nn.Module) -> bool:
    """Tell whether a module has hooks on its forward or backward pass, or raise MissingMember."""
    return has_backward_hooks(module) or any(_member(module, name) for name in _FORWARD_HOOKS)


def has_any_hooks(module: nn.Module) -> bool:
    """Tell whether a module has hooks of any kind, or raise MissingMember."""
    own = vars(module)
    return has_pass_hooks(module) or any(own[name] for name in own if name.endswith("_hooks"))


def has_gradient_hooks(parameter: torch.Tensor) -> bool:
    """Tell whether a tensor has hooks that see its gradient, or raise MissingMember."""
    return bool(_member(parameter, _BACKWARD_HOOKS[0]))


def has_accumulation_hooks(parameter: torch.Tensor) -> bool:
    """Tell whether a tensor has hooks after its gradient is accumulated, or raise MissingMember."""
    return bool(_member(parameter, _ACCUMULATION_HOOKS))


def forward_pre_hooks(module: nn.Module) -> list[Any]:
    """Return a module's hooks before its forward pass; none where torch keeps them elsewhere."""
    return list(getattr(module, _FORWARD_HOOKS[1], {}).values())


# --- State of modules and tensors ---------------------------------------------------------------

Kind = Literal["parameter", "buffer", "attribute"]
"""What a module may hold."""

MODULE_TABLES: Mapping[str, Kind] = {
    "_modules": "attribute",
    "_parameters": "parameter",
    "_buffers": "buffer",
}
"""Dictionaries in which a module keeps what it holds, and what that is."""

REMADE = ("_flat_weights", "_flat_weight_refs")
"""Lists of a recurrent module's parameters. torch makes them anew whenever the module is called,
so that they always differ from what was kept, and putting them back would undo its work."""


def version_of(tensor: torch.Tensor) -> int:
    """Return how often a tensor was changed in place, or raise MissingMember."""
    return int(_member(tensor, "_version"))


def map_tensors(model: nn.Module, cast: Callable[[torch.Tensor], torch.Tensor]) -> nn.Module:
    """Replace each parameter and buffer of a model by its cast, in place.

    ``Module.to`` drops the imaginary parts of complex weights, so it cannot be used.

    Parameters
    ----------
    model : nn.Module
    cast : callable
        From a tensor to one of the same shape.

    Returns
    -------
    nn.Module
        The model.
    """
    if hasattr(model, "_apply"):
        # Beside the loop below it tells recurrent layers that their weights have moved.
        moved: nn.Module = model._apply(cast)  # type: ignore[no-untyped-call]
        return moved
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.data = cast(parameter.data)
        for module in model.modules():
            for name, buffer in module.named_buffers(recurse=False):
                setattr(module, name, cast(buffer))
    return model


def run_uncompiled(model: nn.Module) -> None:
    """Let parts under ``torch.compile`` be called as they were written, in place."""
    for module in model.modules():
        original = getattr(module, "_orig_mod", None)
        # Told by name: asking for the class would import torch's compiler, a matter of seconds.
        if type(module).__name__ == "OptimizedModule" and isinstance(original, nn.Module):
            vars(module)["forward"] = original
        elif getattr(module, "_compiled_call_impl", None) is not None:
            vars(module)["_compiled_call_impl"] = None


def is_spectral_parametrization(module: nn.Module) -> bool:
    """Tell whether a module is what ``parametrizations.spectral_norm`` adds."""
    return type(module).__name__ == "_SpectralNorm"


def is_spectral_hook(hook: object) -> bool:
    """Tell whether a hook is what ``nn.utils.spectral_norm`` adds."""
    return type(hook).__name__ == "SpectralNorm"


def _member(owner: Any, name: str) -> Any:
    try:
        return getattr(owner, name)
    except AttributeError:
        kind = type(owner).__name__
        raise MissingMember(f"torch {torch.__version__} has no {kind}.{name}") from None


# --- Base classes and padding, from public names ------------------------------------------------


def _common_base(one: type[nn.Module], other: type[nn.Module]) -> type[nn.Module]:
    """Return the nearest class that both inherit from.

    Should torch give up the base, that is ``nn.Module``: then every layer counts as one of them,
    and a model is refused or trained alone rather than taken for harmless.
    """
    return next(base for base in one.__mro__ if issubclass(other, base))


BATCH_NORM = _common_base(nn.BatchNorm1d, nn.BatchNorm2d)
"""What layers of batch normalisation inherit from."""

COUNTING_NORM = _common_base(nn.BatchNorm1d, nn.InstanceNorm1d)
"""What layers inherit from that keep running statistics and count their batches."""

DROPOUT = _common_base(nn.Dropout, nn.Dropout2d)
"""What layers inherit from that drop units at random."""


def padding_of(layer: nn.Conv2d) -> tuple[int, int, int, int]:
    """Return what a convolution adds around an image: columns left and right, rows above and below.

    As ``nn.functional.pad`` takes it.
    """
    if layer.padding == "valid":
        return 0, 0, 0, 0
    if layer.padding == "same":  # an odd row or column goes right or below
        down, across = (d * (k - 1) for d, k in zip(layer.dilation, layer.kernel_size, strict=True))
        return across // 2, across - across // 2, down // 2, down - down // 2
    down, across = (int(size) for size in layer.padding)
    return across, across, down, down


def convolution(
    layer: nn.Conv2d, inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """Apply a convolution with another weight and bias than its own.

    Parameters
    ----------
    layer : nn.Conv2d
        Stride, padding, dilation, groups.
    inputs : torch.Tensor
        Shape (n, channels, height, width), or without n.
    weight : torch.Tensor
        Shape (outputs, channels / groups, height, width) of the kernel.
    bias : torch.Tensor or None
        Shape (outputs,).

    Returns
    -------
    torch.Tensor
        What ``layer.forward`` returns where these are its own, bit for bit.
    """
    padding: Any = layer.padding
    if layer.padding_mode != "zeros":
        inputs = nn.functional.pad(inputs, padding_of(layer), layer.padding_mode)
        padding = 0
    return nn.functional.conv2d(
        inputs, weight, bias, layer.stride, padding, layer.dilation, layer.groups
    )
