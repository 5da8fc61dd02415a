"""Hold the global model: weights that an optimizer moves, statistics that are averaged."""

import numpy as np
import torch

from zerosum.client.training.batch_norm import is_spread
from zerosum.client.training.flat_parameters import Layout
from zerosum.server.spec import ServerSpec
from zerosum.server.training.optimizers import ServerOptimizer


class GlobalModel:
    """The flat global model and what a round's average does to it.

    An optimizer is for gradients: momentum would carry a running variance below zero, Adam would
    move a mean by its sign. So running statistics take the average of the clients' changes as it
    is, which makes them the average of the clients' statistics, whatever ``server.lr`` is. That of
    variances is not negative; only the rounding of the encoding can make it so, by a step of its
    grid, and is cut off at zero.

    Parameters
    ----------
    spec : ServerSpec
        Optimizer, learning rate and further arguments.
    start : numpy.ndarray
        float32, shape (d,): the initial model, trained parameters before running statistics.
    layout : Layout
        Of the model.

    Raises
    ------
    ConfigError
        As of :class:`ServerOptimizer`.
    """

    def __init__(self, spec: ServerSpec, start: np.ndarray, layout: Layout) -> None:
        weights, self._statistics = np.split(start, [layout.length])
        self._length = layout.length
        self._optimizer = ServerOptimizer(spec, weights)
        self._spreads = np.repeat(
            np.array([is_spread(name) for name, _ in layout.statistics], dtype=bool),
            np.array([np.prod(shape, dtype=int) for _, shape in layout.statistics], dtype=int),
        )

    @property
    def model(self) -> np.ndarray:
        """The flat global model, float32, shape (d,): a copy."""
        weights = self._optimizer.model
        return np.concatenate([weights, self._statistics]) if self._statistics.size else weights

    def weights_of(self, vector: np.ndarray) -> np.ndarray:
        """Return the part of a vector of shape (d,) that is of trained parameters: a view."""
        return vector[: self._length]

    def step(self, average: np.ndarray, lr: float | None = None) -> None:
        """Move the model along an average update.

        Parameters
        ----------
        average : numpy.ndarray
            float64, shape (d,).
        lr : float, optional
            Of the weights, where a schedule has another one than ``spec.lr`` in force.
        """
        weights, changes = np.split(average, [self._length])
        self._optimizer.step(weights, lr)
        if not changes.size:
            return
        moved = (self._statistics + changes).astype(np.float32)
        self._statistics = np.where(self._spreads, np.maximum(moved, 0), moved)

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
        """Return the optimizer's tensors and scalars, for a checkpoint."""
        return self._optimizer.state()

    def restore(
        self, model: torch.Tensor, tensors: dict[str, torch.Tensor], scalars: dict[str, float]
    ) -> None:
        """Continue from a model and the state of its optimizer.

        Parameters
        ----------
        model : torch.Tensor
            float32, shape (d,).
        tensors, scalars : dict
            The optimizer's, as :meth:`state` returned them.
        """
        self._optimizer.restore(model[: self._length], tensors, scalars)
        self._statistics = model[self._length :].numpy().copy()
