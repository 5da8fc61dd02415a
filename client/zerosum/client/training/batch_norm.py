"""Find the running statistics of normalisation layers, and whether training moves them.

What moves in training is of a client's records. It leaves a client in one way only, as coordinates
of the update under ``training.batchnorm = "average"``; else a model that moves any is refused.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, Self, TypeAlias

import numpy as np
import torch
from torch import nn

from zerosum.client.task import TaskError
from zerosum.client.training.torch_internals import BATCH_NORM, COUNTING_NORM
from zerosum.client.training.torch_seed import seeded

BatchNormMode: TypeAlias = Literal["refuse", "average"]

_PREFIX = "running_"
_USUAL = ("running_mean", "running_var")
_COUNTER = "num_batches_tracked"
_SPREADS = ("running_var", "running_std")
"""Statistics that are no variance or deviation once they are negative."""

_TRIED = 2
"""Records that a layer is tried out on: of one there would be no variance to normalise by."""
_PLACES = ((), (3,), (3, 3), (3, 3, 3))
"""Lengths of a record's further axes: of tables, sequences, images and volumes."""


@dataclass(frozen=True)
class Statistic:
    """One tensor that a module keeps.

    Attributes
    ----------
    name : str
        Path from the model, as in its state dict.
    module : nn.Module
    attribute : str
        Of the module.
    kept : torch.Tensor
        A copy of the value that training starts from.
    """

    name: str
    module: nn.Module
    attribute: str
    kept: torch.Tensor = field(repr=False)

    @property
    def value(self) -> torch.Tensor:
        """The tensor as it is now: training may put another in its place."""
        now: torch.Tensor = getattr(self.module, self.attribute)
        return now

    @property
    def moved(self) -> bool:
        """Return whether training changed the statistic."""
        return not _same(self.value, self.kept)


@dataclass(frozen=True)
class RunningStatistics:
    """Statistics that a model's normalisation layers keep of their records.

    Attributes
    ----------
    moving : tuple of Statistic
        Those that training moves and a client sends, in the order of the model's modules.
    still : tuple of Statistic
        Those that training must not move, because nobody sends them.
    """

    moving: tuple[Statistic, ...] = ()
    still: tuple[Statistic, ...] = ()

    @classmethod
    def of(cls, model: nn.Module, batchnorm: BatchNormMode) -> Self:
        """Find a model's running statistics.

        A layer's do not move if a copy of it, in the mode that ``model.train()`` leaves it in, is
        computed on random records and keeps every bit of them. A layer that takes none of the
        shapes tried, or that only its parents can call, counts as moving.

        Parameters
        ----------
        model : nn.Module
            Left as it is.
        batchnorm : str
            ``training.batchnorm``: whether statistics that move are refused or sent.

        Returns
        -------
        RunningStatistics
            Empty where no layer keeps any.

        Raises
        ------
        TaskError
            If there are some that move, unless they are sent; or that cannot be sent.
        """
        names = {path: _statistics(module) for path, module in model.named_modules()}
        if not any(names.values()):
            return cls()
        moving: list[Statistic] = []
        still: list[Statistic] = []
        with _training(model):
            for path, module in model.named_modules():
                if not names[path]:
                    continue
                if not _moves(module, names[path]):
                    still += _taken(path, module, names[path])
                elif batchnorm == "refuse":
                    raise TaskError(_refusal(path, module))
                else:
                    _check_sendable(path, module, names[path])
                    moving += _taken(path, module, names[path])
                    still += _taken(path, module, _unsent(module))
        return cls(tuple(moving), tuple(still))

    def load(self, values: np.ndarray) -> None:
        """Take values, float, shape (statistics,), for those that training starts from."""
        start = 0
        for statistic in self.moving:
            part = torch.tensor(values[start : start + statistic.kept.numel()])
            statistic.kept.copy_(part.view(statistic.kept.shape))
            start += statistic.kept.numel()
        self.put_back()

    def put_back(self) -> None:
        """Give the layers the values that training starts from."""
        with torch.no_grad():
            for statistic in self.moving:
                statistic.value.copy_(statistic.kept)

    def changes(self) -> torch.Tensor:
        """Return what training added to the statistics that are sent, shape (statistics,).

        Raises
        ------
        TaskError
            If it moved others, in whatever way: nothing of this client may be used then.
        """
        self.check_still()
        parts = [
            (statistic.value.detach() - statistic.kept).reshape(-1) for statistic in self.moving
        ]
        return torch.cat(parts) if parts else torch.zeros(0)

    def check_still(self) -> None:
        """Raise if statistics moved that nobody sends.

        Raises
        ------
        TaskError
            Names the statistic; nothing of this client may be used then.
        """
        for statistic in self.still:
            if statistic.moved:
                raise TaskError(
                    f"model: training moves {statistic.name}, which no client sends; keep it as "
                    "it is in training mode too, or use GroupNorm or LayerNorm"
                )


def mixes(model: nn.Module) -> list[str]:
    """Return the names of layers that normalise a record by others of its batch, in training.

    Torch's batch normalisation does not where the mode that ``model.train()`` leaves it in is
    evaluation and it has statistics to use instead; what inherits from it is taken to.
    """
    own = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
    norms = {p: m for p, m in model.named_modules() if isinstance(m, BATCH_NORM)}
    if not norms:
        return []
    with _training(model):
        return [
            path
            for path, module in norms.items()
            if type(module) not in own or module.training or module.running_mean is None
        ]


@contextmanager
def lone_record_named(records: int, batch: int) -> Iterator[None]:
    """Name the key where a layer is handed one record, which has no variance to normalise by.

    Parameters
    ----------
    records, batch : int
        A client's, and those of all batches but the last.

    Yields
    ------
    None
        While the training of one client runs.

    Raises
    ------
    TaskError
        In place of what torch raises for a batch of one record.
    """
    try:
        yield
    except ValueError as error:
        if not str(error).startswith("Expected more than 1 value per channel"):
            raise
        raise TaskError(
            f"a batch of one record has no variance to normalise by, and {records} records in "
            f"batches of {batch} leave one: choose another training.batch_size"
        ) from error


def is_spread(name: str) -> bool:
    """Tell whether a statistic of this name cannot be negative."""
    return name.rpartition(".")[2] in _SPREADS


@contextmanager
def _training(model: nn.Module) -> Iterator[None]:
    """Put a model into the mode that it trains in, and every module back into its own."""
    modes = [(module, module.training) for module in model.modules()]
    model.train()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _statistics(module: nn.Module) -> list[str]:
    """Return the names of a module's own running statistics; the usual ones need be no buffers.

    What is trained by its gradient is a parameter, whatever its name. A module that hands out what
    a child has, as a compiled layer does, keeps nothing itself.
    """
    names = [name for name, _ in module.named_buffers(recurse=False) if name.startswith(_PREFIX)]
    trained = {
        name for name, value in module.named_parameters(recurse=False) if value.requires_grad
    }
    return names + [
        name
        for name in _USUAL
        if name not in (*names, *trained)
        and (value := getattr(module, name, None)) is not None
        and not any(getattr(child, name, None) is value for child in module.children())
    ]


def _unsent(module: nn.Module) -> list[str]:
    """Return the names of the buffers that stay at home, torch's count of batches aside.

    The count decides nothing where momentum is a number, so training may move it: it is put back.
    """
    known = {*_statistics(module), *([_COUNTER] if _of_torch(module) else [])}
    return [name for name, _ in module.named_buffers(recurse=False) if name not in known]


def _of_torch(module: nn.Module) -> bool:
    """Tell whether a layer is, or inherits from, one of torch's that counts its batches."""
    if isinstance(module, torch.jit.ScriptModule):
        made = getattr(nn, str(module.original_name), None)
        return isinstance(made, type) and issubclass(made, COUNTING_NORM)
    return isinstance(module, COUNTING_NORM)


def _taken(path: str, module: nn.Module, names: list[str]) -> list[Statistic]:
    return [
        Statistic(f"{path}.{name}" if path else name, module, name, kept=_copy(module, name))
        for name in names
    ]


def _copy(module: nn.Module, name: str) -> torch.Tensor:
    value: torch.Tensor = getattr(module, name)
    return value.detach().clone()


def _moves(module: nn.Module, names: list[str]) -> bool:
    """Tell whether a layer moves its statistics, or cannot be shown not to."""
    values = [getattr(module, name) for name in names]
    if not all(isinstance(v, torch.Tensor) and not nn.parameter.is_lazy(v) for v in values):
        return True
    try:
        tried = copy.deepcopy(module)
    except Exception:
        return True
    ran = False
    generator = torch.Generator().manual_seed(0)
    for places in _PLACES:
        # Far from the mean 0 and variance 1 that layers start from: what moves shows.
        inputs = 5 + 3 * torch.randn((_TRIED, values[0].numel(), *places), generator=generator)
        try:
            with torch.no_grad(), seeded(0):
                tried(inputs.to(values[0].device, values[0].dtype))
        except Exception:  # of a layer for records of another shape
            continue
        ran = True
    return not ran or any(
        not _same(getattr(tried, name), value) for name, value in zip(names, values, strict=True)
    )


def _same(left: object, right: object) -> bool:
    """Compare two tensors bit by bit, as far as a value tells them; nothing else is the same."""
    if not (isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor)):
        return False
    return torch.equal(left, right)


def _named(path: str, module: nn.Module) -> str:
    return f"model: {path or 'it'} ({type(module).__name__})"


def _refusal(path: str, module: nn.Module) -> str:
    return (
        f"{_named(path, module)} keeps running statistics of private data; use GroupNorm or "
        "LayerNorm, or track_running_stats=False; or freeze it, with a train() of the model that "
        'leaves it in eval(); or, where privacy.model = "none", write training.batchnorm = '
        '"average"'
    )


def _check_sendable(path: str, module: nn.Module, names: list[str]) -> None:
    """Refuse statistics whose average over clients is not what it seems, or has no place."""
    buffers, stored = dict(module.named_buffers(recurse=False)), module.state_dict()
    for name in names:
        value = buffers.get(name)
        if value is None or name not in stored:
            raise TaskError(
                f"{_named(path, module)}: its {name} is no buffer of its state dict, so no file "
                "of the model would hold it; write self.register_buffer in the layer"
            )
        if nn.parameter.is_lazy(value):
            raise TaskError(
                f"{_named(path, module)} has no size before it sees data; give it num_features"
            )
        if not value.is_floating_point():
            raise TaskError(
                f"{_named(path, module)}: its {name} is {value.dtype}, and only floating-point "
                "statistics are averaged"
            )
    if _of_torch(module) and getattr(module, "momentum", None) is None:
        raise TaskError(
            f"{_named(path, module)}: momentum = None averages over the batches that it counted, "
            'and under training.batchnorm = "average" no client sends its count; give it a '
            "number, as 0.1"
        )
