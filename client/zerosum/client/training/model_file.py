"""Build a model's whole state dict, which a run writes and ``load_state_dict`` takes strictly."""

from collections.abc import Mapping
from functools import cache

import numpy as np
import torch
from safetensors.torch import save
from torch import nn

from zerosum.client.task import TaskError
from zerosum.client.training.batch_norm import BatchNormMode, RunningStatistics
from zerosum.client.training.flat_parameters import (
    Layout,
    load_vector,
    parameters_to_vector,
    trainable,
)
from zerosum.client.training.projection import projection_of
from zerosum.client.training.spectral_norms import SpectralNorms

FILE = "model.safetensors"


def whole_state(
    model: nn.Module, vector: np.ndarray, public: int = 0, batchnorm: BatchNormMode = "refuse"
) -> dict[str, torch.Tensor]:
    """Return every entry of a model's state dict, under every name that it has there.

    What was trained or averaged is float32, exact; all else is as the model has it: its frozen
    parameters and buffers in their own dtypes. A tensor of several names is copied to each, because
    a file of tensors cannot say that two are one, and a strict load asks for all names.

    Parameters
    ----------
    model : nn.Module
        As the experiment's seed builds it; overwritten.
    vector : numpy.ndarray
        float32, shape (public + d,): the components, if the model has any, and the global model.
    public : int
        Entries of the components.
    batchnorm : str
        ``training.batchnorm``.

    Returns
    -------
    dict of str to torch.Tensor
        Contiguous, on the CPU, no two of one memory.
    """
    trained = vector[public:]
    norms = SpectralNorms(model)
    first = parameters_to_vector(model, batchnorm) if norms else trained
    load_vector(model, trained, batchnorm)
    if not np.array_equal(trained, first):
        norms.renew()  # as training and evaluation do, which the file has to agree with
    exact = _exact(model, torch.tensor(trained), batchnorm)
    projection = projection_of(model)
    if projection is not None:
        exact[id(projection[1])] = torch.tensor(vector[:public]).view(projection[1].shape)
    return {
        name: exact.get(id(value), value)
        .detach()
        .cpu()
        .clone(memory_format=torch.contiguous_format)
        for name, value in entries(model).items()
    }


def _exact(
    model: nn.Module, vector: torch.Tensor, batchnorm: BatchNormMode
) -> dict[int, torch.Tensor]:
    """Return the part of a vector that each tensor of a model stands for, by the tensor's id."""
    running = RunningStatistics.of(model, batchnorm)
    layout = Layout.of(model, batchnorm, running)
    exact = {
        id(parameter): vector[where].view(parameter.shape)
        for parameter, where in zip(trainable(model).values(), layout.slices, strict=True)
    }
    start = layout.length
    for statistic in running.moving:
        part = vector[start : start + statistic.kept.numel()]
        exact[id(statistic.value)] = part.view(statistic.kept.shape)
        start += statistic.kept.numel()
    return exact


def entries(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return a model's state dict, its own tensors.

    Parameters
    ----------
    model : nn.Module
        Left as it is.

    Returns
    -------
    dict of str to torch.Tensor
        The model's own tensors.

    Raises
    ------
    TaskError
        If it holds what no file of tensors can.
    """
    state = model.state_dict(keep_vars=True)
    for name, value in state.items():
        if not isinstance(value, torch.Tensor):
            raise TaskError(
                f"model: {name} is extra state ({type(value).__name__}), which {FILE} cannot hold; "
                "let get_extra_state return a tensor, or keep it in a buffer"
            )
        if value.layout != torch.strided or value.is_quantized or not _storable(value.dtype):
            kind = "quantized" if value.is_quantized else f"{value.layout} {value.dtype}"
            raise TaskError(
                f"model: {name} is a {kind} tensor, which {FILE} cannot hold; register_buffer(..., "
                "persistent=False) leaves it out of the file, or keep it dense in another dtype"
            )
    return dict(state)


@cache
def _storable(dtype: torch.dtype) -> bool:
    try:
        save({"tried": torch.empty(0, dtype=dtype)})
    except Exception:
        return False
    return True


def as_arrays(state: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """Return a state dict as numpy arrays; floats that numpy lacks, as bfloat16, in float32."""
    return {name: _as_array(value) for name, value in state.items()}


def _as_array(value: torch.Tensor) -> np.ndarray:
    try:
        array: np.ndarray = value.numpy()
    except TypeError:
        array = value.float().numpy()
    return array
