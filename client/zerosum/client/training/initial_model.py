"""Build the model that a run starts from."""

from collections.abc import Iterable

import numpy as np
import torch
from torch import nn

from zerosum.client.task import Task
from zerosum.client.training.batch_norm import BatchNormMode
from zerosum.client.training.flat_parameters import parameters_to_vector
from zerosum.client.training.model_checks import usable
from zerosum.client.training.torch_seed import seeded
from zerosum.secagg.randomness import derive_seed


def build_model(task: Task, seed: int) -> nn.Module:
    """Return the task's model, initialised from the experiment's seed.

    Parameters
    ----------
    task : Task
        Whose ``model()`` may draw from torch's generator.
    seed : int
        The experiment's.

    Returns
    -------
    nn.Module
        As ``model()`` returned it, checked.

    Raises
    ------
    TaskError
        If it is no module, or one that would be trained as something else.
    """
    with seeded(derive_seed(seed, "model initialisation")):
        return usable(task.model())


def draw_weights(parameters: Iterable[torch.Tensor], generator: torch.Generator) -> None:
    """Overwrite parameters by normal ones of variance 1 / fan-in, in place.

    A model is compared with another way of computing it on such weights. Those that it starts from
    may hide a difference: an output layer of zeros gives every input the same outputs.

    Parameters
    ----------
    parameters : iterable of torch.Tensor
        Of any shapes; the first axis is that of the outputs.
    generator : torch.Generator
        Draws them.
    """
    for value in parameters:
        fan_in = value[0].numel() if value.dim() and len(value) else 1
        value.copy_(torch.randn(value.shape, generator=generator) / max(1, fan_in) ** 0.5)


def initial_vector(task: Task, seed: int, batchnorm: BatchNormMode = "refuse") -> np.ndarray:
    """Return the model of round 0 as one vector.

    Parameters
    ----------
    task : Task
        Whose model it is.
    seed : int
        The experiment's.
    batchnorm : str
        ``training.batchnorm``: whether running statistics follow the trained parameters.

    Returns
    -------
    numpy.ndarray
        float32, shape (d,).
    """
    return parameters_to_vector(build_model(task, seed), batchnorm)
