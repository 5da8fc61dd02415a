"""Read the model that a run left, and load it into a module whole or not at all."""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import nn
from torch.nn.parameter import is_lazy

from zerosum.server.config import ConfigError

_NAMED = 3
"""Names that a message lists of each kind."""

_EXTRA = "_extra_state"
"""End of an entry whose shape is the module's own business, as PyTorch calls it."""


def read_model(path: Path) -> dict[str, torch.Tensor]:
    """Read a whole state dict that a run wrote.

    Parameters
    ----------
    path : Path
        Of a safetensors file.

    Returns
    -------
    dict of str to torch.Tensor
        On the CPU, in the dtypes of the file.

    Raises
    ------
    ConfigError
        If it is missing or damaged.
    """
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise ConfigError(
            f"{path} cannot be read ({error}); restore the file, or run it again"
        ) from None


def round_of(path: Path) -> int | None:
    """Return the round that a best model is of, as its file says; None of any other file."""
    try:
        with safe_open(path, framework="pt") as file:
            return int(json.loads(file.metadata()["zerosum"])["round"])
    except (OSError, SafetensorError, ValueError, KeyError, TypeError):
        return None


def load_whole(model: nn.Module, state: Mapping[str, torch.Tensor], whose: Path) -> None:
    """Load a state dict into a module, all of it or nothing.

    ``load_state_dict`` loads what fits before it says what does not: a model that is half another
    one's. So names and shapes are compared first.

    Parameters
    ----------
    model : torch.nn.Module
        Overwritten.
    state : mapping of str to torch.Tensor
        The run's.
    whose : Path
        The run folder, for messages.

    Raises
    ------
    ConfigError
        If names or shapes differ.
    """
    own = model.state_dict()
    lacking, further = sorted(state.keys() - own.keys()), sorted(own.keys() - state.keys())
    other = [
        f"{name} ({_shape(own[name])} for the run's {_shape(value)})"
        for name, value in state.items()
        if name in own and not _fits(name, own[name], value)
    ]
    kinds = {
        "it lacks": lacking,
        "the run does not have its": further,
        "of another shape are": other,
    }
    parts = [f"{kind} {_listed(names)}" for kind, names in kinds.items() if names]
    try:
        if not parts:
            model.load_state_dict(dict(state), strict=True)
    except RuntimeError as error:  # a module with a way of its own to load
        parts = [" ".join(str(error).split())]
    if parts:
        raise ConfigError(
            f"{whose}: its model is another one than this {type(model).__name__}: "
            f"{'; '.join(parts)}; give the model of the run's task, as task.model() makes it"
        )


def _fits(name: str, own: object, value: torch.Tensor) -> bool:
    if name.endswith(_EXTRA) or not isinstance(own, torch.Tensor) or is_lazy(own):
        return True
    return own.shape == value.shape


def _shape(value: torch.Tensor) -> str:
    return "x".join(map(str, value.shape)) or "one number"


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
