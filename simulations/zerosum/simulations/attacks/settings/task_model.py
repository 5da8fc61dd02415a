"""Describe a task's model to an attacker: its code is public, and says where its layers lie.

A view holds data alone. It names the task by a key, and the model is built by the process that
plays the scene, which has the task.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from zerosum.client.task import Task
from zerosum.client.training.torch_seed import seeded
from zerosum.secagg.randomness import derive_seed
from zerosum.simulations.data.tasks import BuiltinTask

_TASKS: dict[str, Task] = {}
"""Tasks of scenes that were played in this process, by key."""


def lend(key: str, task: Task) -> None:
    """Keep a task, so that views that name it build its model and compute its loss.

    Parameters
    ----------
    key : str
        That views have.
    task : Task
    """
    _TASKS[key] = task


def drawn_model(task: Task, seed: int, fixed: int) -> nn.Module:
    """Return a task's model, its trained parameters drawn by a seed.

    Parameters
    ----------
    task : Task
    seed : int
    fixed : int
        Seed of frozen parameters and buffers, the same in every scene: they travel in no vector,
        and a reference model has to share them with its target.

    Returns
    -------
    torch.nn.Module
    """
    model = _seeded(task, seed)
    learnt = {name for name, value in model.named_parameters() if value.requires_grad}
    if seed != fixed and model.state_dict().keys() - learnt:
        others = _seeded(task, fixed).state_dict()
        model.load_state_dict({k: v for k, v in others.items() if k not in learnt}, strict=False)
    return model


def _seeded(task: Task, seed: int) -> nn.Module:
    own = task.reseeded(seed) if isinstance(task, BuiltinTask) else task
    # Not by build_model(): whoever trains this one checks it, and a model is checked once.
    with seeded(derive_seed(seed, "model initialisation")):
        return own.model()


class UnitInputs(nn.Module):
    """Return inputs on the scale of the task, given inputs in [0, 1].

    Parameters
    ----------
    lowest, scale : float
        Of the task's inputs: least, and range.
    """

    def __init__(self, lowest: float, scale: float) -> None:
        super().__init__()
        self._lowest, self._scale = lowest, scale

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Scale inputs of any shape."""
        return inputs * self._scale + self._lowest


def of_unit_inputs(model: nn.Module, lowest: float, scale: float) -> nn.Module:
    """Return a model that takes inputs in [0, 1], of the same parameters in the same order.

    Parameters
    ----------
    model : torch.nn.Module
        Takes inputs on the task's scale.
    lowest, scale : float
        As of :class:`UnitInputs`.

    Returns
    -------
    torch.nn.Module
        The model itself where the scales are the same.
    """
    if lowest == 0.0 and scale == 1.0:
        return model
    inner = model.children() if type(model) is nn.Sequential else [model]
    return nn.Sequential(UnitInputs(lowest, scale), *inner)


@dataclass(frozen=True)
class Place:
    """A fully connected layer's place in the vector of all parameters.

    Attributes
    ----------
    weights, biases : int
        Where each begins.
    rows, columns : int
        Outputs and inputs.
    """

    weights: int
    biases: int
    rows: int
    columns: int

    def slopes(self, vector: np.ndarray) -> np.ndarray:
        """Return the layer's part of a vector, shape (rows, columns + 1), biases last."""
        end = self.weights + self.rows * self.columns
        weights = vector[self.weights : end].reshape(self.rows, self.columns)
        biases = vector[self.biases : self.biases + self.rows]
        return np.concatenate([weights, biases[:, None]], axis=1)


@dataclass(frozen=True)
class TaskModel:
    """Describe a task's model and loss.

    Attributes
    ----------
    key : str
        Of the task, under which :func:`lend` keeps it; empty where the view's ``model`` says all.
    seed, fixed_seed : int
        Of the model's initialisation; of its frozen parameters and buffers.
    lowest, scale : float
        Inputs of the view are in [0, 1]; times ``scale``, plus ``lowest``, they are the task's.
    first : Place or None
        The layer that takes the whole input, if a fully connected one does.
    outputs : Place or None
        The layer whose outputs are the model's, if it has a bias for each class.
    chain : tuple of Place
        All layers, where they are fully connected with ReLU between them; otherwise empty.
    cross_entropy : bool
        Whether the loss is the cross-entropy of class labels.
    free : bool
        Whether a server may ask for another model, as of the tasks of this package.
    """

    key: str
    seed: int = 0
    fixed_seed: int = 0
    lowest: float = 0.0
    scale: float = 1.0
    first: Place | None = None
    outputs: Place | None = None
    chain: tuple[Place, ...] = ()
    cross_entropy: bool = True
    free: bool = False

    @property
    def fixed(self) -> bool:
        """Return whether a malicious server chooses the weights of this model, and no other."""
        return bool(self.key) and not self.free

    def build(self) -> nn.Module:
        """Return the task's model, for inputs in [0, 1]."""
        model = drawn_model(_TASKS[self.key], self.seed, self.fixed_seed)
        return of_unit_inputs(model, self.lowest, self.scale)

    def losses(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the task's loss of each record.

        Parameters
        ----------
        outputs : torch.Tensor
            Of the model, or whatever it returns.
        targets : torch.Tensor
            Shape (n, ...).

        Returns
        -------
        torch.Tensor
            Shape (n,).
        """
        return _TASKS[self.key].loss(outputs, targets)

    def unscaled(self, slopes: np.ndarray) -> np.ndarray:
        """Return a first layer's slopes as they were with inputs in [0, 1].

        A layer's change is g (a + s u)' for inputs u in [0, 1], and g for the bias, so that
        g u' = (change - a g) / s.

        Parameters
        ----------
        slopes : ndarray of float64
            Shape (rows, columns + 1), biases last.

        Returns
        -------
        ndarray of float64
            The same shape.
        """
        if self.lowest == 0.0 and self.scale == 1.0:
            return slopes
        weights = (slopes[:, :-1] - self.lowest * slopes[:, -1:]) / self.scale
        return np.concatenate([weights, slopes[:, -1:]], axis=1)
