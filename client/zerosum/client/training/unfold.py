"""Convolve by products over patches, for weights that differ from client to client.

Under ``vmap`` a convolution with a weight a client becomes a grouped one, which libraries do one
group at a time. Patches and one batched product keep a GPU busy.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import nn

from zerosum.client.training.torch_internals import convolution, padding_of


@contextmanager
def by_patches(model: nn.Module) -> Iterator[None]:
    """Let a model's two-dimensional convolutions be products over patches inside the block.

    Grouped ones, padding other than zeros and subclasses stay as they are.
    """
    convolutions = [
        module
        for module in model.modules()
        if type(module) is nn.Conv2d
        and module.groups == 1
        and module.padding_mode == "zeros"
        and not any(callable(getattr(nn.Conv2d, name, None)) for name in vars(module))
    ]
    for module in convolutions:
        vars(module)["forward"] = partial(_convolved, module)
    try:
        yield
    finally:
        for module in convolutions:
            del vars(module)["forward"]


def _convolved(module: nn.Conv2d, inputs: torch.Tensor) -> torch.Tensor:
    """Return what a convolution returns, shape (n, channels, height, width)."""
    weight, bias = module.weight, module.bias
    if inputs.dim() != 4:
        return convolution(module, inputs, weight, bias)
    before = padding_of(module)
    if any(before):
        inputs = nn.functional.pad(inputs, before)
    # A view and one copy: im2col on a GPU would be started once a record.
    spans = [d * (k - 1) + 1 for d, k in zip(module.dilation, module.kernel_size, strict=True)]
    (down, across), (high, wide) = module.stride, module.dilation
    windows = inputs.unfold(2, spans[0], down).unfold(3, spans[1], across)[..., ::high, ::wide]
    ordered = windows.permute(0, 2, 3, 1, 4, 5)
    rows = ordered.reshape(-1, weight[0].numel())
    out = rows @ weight.flatten(1).t()
    if bias is not None:
        out = out + bias
    # Contiguous, for layers whose batching rules ask for that.
    outputs: torch.Tensor = out.view(*ordered.shape[:3], -1).permute(0, 3, 1, 2).contiguous()
    return outputs
