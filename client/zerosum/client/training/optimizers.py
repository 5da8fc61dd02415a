"""Make optimizers of ``torch.optim`` by name, and step a client's parameters by one.

SGD at a client is :mod:`zerosum.client.training.sgd`'s: the first step of any of torch's optimizers
imports torch's compiler, which takes longer than the rounds of many a run.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from zerosum.client.nearest_word import did_you_mean
from zerosum.client.spec import TrainSpec
from zerosum.client.task import TaskError

_UNUSABLE = ("Optimizer", "LBFGS", "SparseAdam")
"""Of a base class, one that evaluates the loss again and again, and one for sparse gradients."""


def optimizer_class(key: str, name: str) -> Any:
    """Return a class of ``torch.optim`` by its name.

    Parameters
    ----------
    key : str
        Of the configuration, for the message.
    name : str
        Of the class.

    Returns
    -------
    type
        It takes parameters, a learning rate and options.

    Raises
    ------
    ValueError
        One line that lists the classes.
    """
    kinds = {
        kind: value
        for kind, value in vars(torch.optim).items()
        if isinstance(value, type) and issubclass(value, torch.optim.Optimizer)
    }
    if name not in kinds or name in _UNUSABLE:
        usable = sorted(kind for kind in kinds if kind not in _UNUSABLE)
        raise ValueError(
            f"{key} = {name!r} is not usable: torch.optim has {', '.join(usable)}"
            f"{did_you_mean(name, usable)}"
        )
    return kinds[name]


def check_finite(section: str, optimizer: str, options: Mapping[str, Any]) -> None:
    """Refuse NaN and infinity: torch compares with bounds, which no NaN is outside of.

    Parameters
    ----------
    section : str
        Whose ``options`` they are.
    optimizer : str
        Name of the class.
    options : mapping of str to any
        Its further arguments.

    Raises
    ------
    ValueError
        One line that names the option.
    """
    for name, value in options.items():
        given = value if isinstance(value, list | tuple) else [value]
        if not all(math.isfinite(number) for number in given if isinstance(number, float)):
            raise ValueError(
                f"{section}.options: {name} = {value}: torch.optim.{optimizer} takes finite numbers"
            )


def refused_by_torch(
    section: str, optimizer: str, options: Mapping[str, Any], lr: float, error: Exception
) -> str:
    """Return one line about what torch does not take, with its own words.

    Parameters
    ----------
    section : str
        Of the configuration.
    optimizer : str
        Name of the class.
    options : mapping of str to any
        Its further arguments.
    lr : float
        Its learning rate.
    error : Exception
        What torch raised.

    Returns
    -------
    str
        Names the keys.
    """
    reason = str(error).partition("\n")[0] or type(error).__name__
    return (
        f"{section}.options = {dict(options)!r}, {section}.lr = {lr}: torch.optim.{optimizer} "
        f"says: {reason}"
    )


def check_optimizer(spec: TrainSpec) -> None:
    """Take one step of a client's optimizer, if it is not SGD, with the torch that is installed.

    Parameters
    ----------
    spec : TrainSpec
        Optimizer, learning rate and options.

    Raises
    ------
    TaskError
        If it can neither be made nor take a step; quotes what torch says.
    """
    if spec.optimizer == "SGD":
        return
    # A matrix, because some optimizers are for nothing else; a model's own shapes are tried later.
    trial = torch.nn.Parameter(torch.zeros(2, 2))
    ClientOptimizer(spec, [trial]).step([torch.ones(2, 2)], first=True)


class ClientOptimizer:
    """Steps of an optimizer of ``torch.optim`` at one client after another.

    Parameters
    ----------
    spec : TrainSpec
        Names another optimizer than SGD.
    parameters : sequence of nn.Parameter
        What is trained.

    Raises
    ------
    TaskError
        If torch.optim has no such class, or it refuses the arguments.
    """

    def __init__(self, spec: TrainSpec, parameters: Sequence[torch.nn.Parameter]) -> None:
        self._spec, self._parameters = spec, list(parameters)
        try:
            self._kind = optimizer_class("training.optimizer", spec.optimizer)
            check_finite("training", spec.optimizer, spec.options)
        except ValueError as error:
            raise TaskError(str(error)) from None
        self._optimizer = self._made()

    def _made(self) -> torch.optim.Optimizer:
        spec = self._spec
        try:
            made: torch.optim.Optimizer = self._kind(self._parameters, lr=spec.lr, **spec.options)
        except Exception as error:  # torch's optimizers check their arguments in many ways
            raise self._refusal(error) from None
        return made

    def _refusal(self, error: Exception) -> TaskError:
        spec = self._spec
        said = refused_by_torch("training", spec.optimizer, spec.options, spec.lr, error)
        return TaskError(said)

    def set_rate(self, spec: TrainSpec) -> None:
        """Take another learning rate, from the next client on.

        Parameters
        ----------
        spec : TrainSpec
            The same but for its rate.
        """
        self._spec = spec

    def step(self, gradients: Sequence[torch.Tensor | None], *, first: bool) -> None:
        """Move the parameters, as the class does by their ``grad``.

        Parameters
        ----------
        gradients : sequence of torch.Tensor or None
            Of each parameter, of its shape; None of what no loss depends on, which torch's
            optimizers pass by.
        first : bool
            Whether this is a client's first step: nothing of the client before is remembered.

        Raises
        ------
        TaskError
            If it cannot take a step; quotes what torch says.
        """
        if first:
            self._optimizer = self._made()
        kept = [parameter.grad for parameter in self._parameters]
        try:
            for parameter, gradient in zip(self._parameters, gradients, strict=True):
                parameter.grad = gradient
            self._optimizer.step()
        except Exception as error:  # what torch checks only when it steps
            raise self._refusal(error) from None
        finally:
            for parameter, before in zip(self._parameters, kept, strict=True):
                parameter.grad = before
