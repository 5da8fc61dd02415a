"""Keep the vectors of spectral norms true to the weights that are loaded."""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn.utils import parametrize

from zerosum.client.training.torch_internals import (
    forward_pre_hooks,
    is_spectral_hook,
    is_spectral_parametrization,
)

_ITERATIONS = 15
"""Power iterations of a new layer in torch."""


class SpectralNorms:
    """The vectors by which spectral norm is estimated, kept true to weights that are loaded.

    Each forward pass in training mode moves them one power iteration on. They are buffers, which
    do not travel: beside weights of a later round, those of ``model()`` give a norm that is far
    too small. They follow from the weights, so every party finds the same ones by itself, with
    as many iterations as torch makes for a new layer.

    Parameters
    ----------
    model : nn.Module
        Any; norms of both of torch's kinds are found.
    """

    def __init__(self, model: nn.Module) -> None:
        self._passes: list[tuple[nn.Module, Callable[[], object]]] = []
        self._owners: set[int] = set()
        for module in model.modules():
            own = {id(m) for m in module.children() if is_spectral_parametrization(m)}
            if own and isinstance(module, parametrize.ParametrizationList):
                self._passes.append((module, module))
                self._owners |= own
            for hook in forward_pre_hooks(module):
                if is_spectral_hook(hook):
                    self._passes.append((module, partial(hook, module, ())))
                    self._owners.add(id(module))

    def __bool__(self) -> bool:
        return bool(self._passes)

    def keeps(self, module: nn.Module) -> bool:
        """Tell whether a module's buffers are such vectors."""
        return id(module) in self._owners

    @torch.no_grad()
    def renew(self) -> None:
        """Iterate from where the vectors are."""
        for module, step in self._passes:
            modes = [(part, part.training) for part in module.modules()]
            module.train()
            for _ in range(_ITERATIONS):
                step()
            for part, mode in modes:
                part.training = mode
