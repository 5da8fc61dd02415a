"""Step the global model by a ``torch.optim`` optimizer: FedAvg is SGD with lr = 1."""

from typing import Any

import numpy as np
import torch

from zerosum.client.training.optimizers import check_finite, optimizer_class, refused_by_torch
from zerosum.client.training.sgd import Sgd
from zerosum.server.config import ConfigError
from zerosum.server.spec import ServerSpec


class PlainSgd:
    """``torch.optim.SGD`` with momentum and nothing else, bit for bit.

    The first step of any of torch's optimizers imports its compiler, which takes longer than many
    a run's rounds.

    Parameters
    ----------
    parameters : list of nn.Parameter
        One flat parameter.
    lr, momentum : float
        As torch's.

    Raises
    ------
    ValueError
        If the momentum is negative.
    """

    def __init__(
        self, parameters: list[torch.nn.Parameter], lr: float, momentum: float = 0.0
    ) -> None:
        if not momentum >= 0:
            raise ValueError(f"Invalid momentum value: {momentum}")
        (self._parameter,) = parameters
        self.param_groups: list[dict[str, Any]] = [{"lr": lr, "momentum": momentum}]
        self.state: dict[torch.nn.Parameter, dict[str, Any]] = {}

    @torch.no_grad()
    def step(self) -> None:
        """Move the parameter against its gradient.

        Raises
        ------
        ValueError
            If there is no gradient.
        """
        gradient = self._parameter.grad
        if gradient is None:
            raise ValueError("the parameter has no gradient")
        sgd = Sgd(**self.param_groups[0])
        state = self.state.setdefault(self._parameter, {}) if sgd.momentum else {}
        first = "momentum_buffer" not in state  # torch's name: a checkpoint of either is the same
        buffer = state.setdefault("momentum_buffer", torch.empty_like(gradient))
        sgd.step(self._parameter, gradient, buffer, first=first)


class ServerOptimizer:
    """A ``torch.optim`` optimizer over the flat global model (Reddi et al. 2021, FedOpt).

    The negated average update stands in for the gradient, so SGD with lr = 1 adds the average.

    Parameters
    ----------
    spec : ServerSpec
        Class name, learning rate and further arguments.
    model : numpy.ndarray
        float32, shape (d,): the initial global model; copied.

    Raises
    ------
    ConfigError
        If torch.optim has no such class or it refuses the arguments.
    """

    def __init__(self, spec: ServerSpec, model: np.ndarray) -> None:
        try:
            kind = optimizer_class("server.optimizer", spec.optimizer)
            check_finite("server", spec.optimizer, spec.options)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        if spec.optimizer == "SGD" and set(spec.options) <= {"momentum"}:
            kind = PlainSgd
        self._lr = spec.lr
        self._parameter = torch.nn.Parameter(torch.from_numpy(model.copy()))
        try:
            self._optimizer = kind([self._parameter], lr=spec.lr, **spec.options)
        except Exception as error:  # torch's optimizers check their arguments in many ways
            raise _unusable(spec, error) from None

    @classmethod
    def check(cls, spec: ServerSpec) -> None:
        """Check that the optimizer can be made and can take a step.

        Parameters
        ----------
        spec : ServerSpec
            Optimizer, learning rate and options.

        Raises
        ------
        ConfigError
            If it can neither be made nor take a step; quotes what torch says.
        """
        trial = cls(spec, np.zeros(2, dtype=np.float32))
        try:
            trial.step(np.ones(2))
        except Exception as error:  # what torch checks only when it steps
            raise _unusable(spec, error) from None

    @property
    def model(self) -> np.ndarray:
        """The flat global model, float32, shape (d,): a copy."""
        return self._parameter.detach().numpy().copy()

    def step(self, average: np.ndarray, lr: float | None = None) -> None:
        """Move the model along an average update.

        Parameters
        ----------
        average : numpy.ndarray
            float64, shape (d,).
        lr : float, optional
            The learning rate in force, of a schedule. Default: ``spec.lr``.
        """
        for group in self._optimizer.param_groups:
            group["lr"] = self._lr if lr is None else lr
        descent = average.astype(np.float32)
        self._parameter.grad = torch.from_numpy(np.negative(descent, out=descent))
        self._optimizer.step()
        self._parameter.grad = None

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
        """Return the optimizer's tensors and scalars, for a checkpoint."""
        state: dict[str, Any] = self._optimizer.state.get(self._parameter, {})
        tensors = {k: v for k, v in state.items() if isinstance(v, torch.Tensor)}
        scalars = {k: v for k, v in state.items() if isinstance(v, int | float)}
        return tensors, scalars

    def restore(
        self, model: torch.Tensor, tensors: dict[str, torch.Tensor], scalars: dict[str, float]
    ) -> None:
        """Continue from a model and the state of its optimizer.

        Parameters
        ----------
        model : torch.Tensor
            float32, shape (d,).
        tensors, scalars : dict
            As :meth:`state` returned them.
        """
        with torch.no_grad():
            self._parameter.copy_(model)
        if tensors or scalars:
            self._optimizer.state[self._parameter] = {**tensors, **scalars}


def _unusable(spec: ServerSpec, error: Exception) -> ConfigError:
    return ConfigError(refused_by_torch("server", spec.optimizer, spec.options, spec.lr, error))
