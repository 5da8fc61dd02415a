"""Find integers that a model or a loss cannot take, on the CPU.

On a CPU an index that is out of range raises, and one client drops out. On a GPU it ends all work
of the process. So records meet a copy of the model on the CPU first: those whose integers are
smaller or larger than any that it has taken.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from zerosum.client.training.examples import Examples, moved, rows_of
from zerosum.client.training.model_checks import called
from zerosum.client.training.torch_seed import seeded

Losses = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class IndexGuard:
    """Raises what integers of a batch would make a model or its loss raise.

    Integers between two that were taken are taken as well: true of classes, tokens and other
    indices that count from zero.

    Parameters
    ----------
    model : nn.Module
        On the CPU, this guard's own: its parameters do not matter, their shapes do.
    losses : callable
        From outputs and targets.
    """

    def __init__(self, model: nn.Module, losses: Losses) -> None:
        self._model = model.eval()
        self._losses = losses
        self._taken: dict[int, tuple[int, int]] = {}

    def check(self, inputs: Any, targets: torch.Tensor) -> None:
        """Raise what the model or the loss raises for the extreme integers of a batch.

        Parameters
        ----------
        inputs : tensor or structure of tensors
            A batch, as the model takes it.
        targets : torch.Tensor
            Shape (n, ...).
        """
        ranges: dict[int, tuple[int, int]] = {}
        rows: set[int] = set()
        for place, leaf in enumerate(_integers((inputs, targets))):
            lowest, highest = int(leaf.argmin()), int(leaf.argmax())
            flat, entries = leaf.reshape(-1), max(1, leaf[:1].numel())
            low, high = int(flat[lowest]), int(flat[highest])
            known = self._taken.get(place, (low, low - 1))
            if low < known[0] or high > known[1]:
                rows |= {lowest // entries, highest // entries}
                ranges[place] = min(low, known[0]), max(high, known[1])
        if rows:
            self._try(inputs, targets, sorted(rows))
            self._taken |= ranges

    def _try(self, inputs: Any, targets: torch.Tensor, rows: list[int]) -> None:
        if len(rows) == 1 and len(targets) > 1:  # some layers refuse a lone record
            rows = [*rows, 0 if rows[0] else 1]
        some = torch.tensor(rows)
        with torch.no_grad(), seeded(0):
            self._losses(called(self._model, rows_of(inputs, some)), targets[some])


@dataclass(frozen=True)
class GuardedExamples:
    """Examples on the CPU, each batch checked there before it is moved."""

    source: Examples
    guard: IndexGuard
    device: torch.device

    def __len__(self) -> int:
        return len(self.source)

    def take(self, indices: torch.Tensor) -> tuple[Any, torch.Tensor]:
        """Return a batch by index."""
        return self._checked(self.source.take(indices))

    def all(self) -> tuple[Any, torch.Tensor]:
        """Return every example, in order."""
        return self._checked(self.source.all())

    def _checked(self, batch: tuple[Any, torch.Tensor]) -> tuple[Any, torch.Tensor]:
        self.guard.check(*batch)
        inputs, targets = batch
        return moved(inputs, self.device), moved(targets, self.device)


def _integers(batch: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of integers in a batch, those without entries aside."""
    if isinstance(batch, torch.Tensor):
        plain = not (batch.is_floating_point() or batch.is_complex() or batch.dtype == torch.bool)
        if plain and batch.numel():
            yield batch
    elif isinstance(batch, dict):
        for value in batch.values():
            yield from _integers(value)
    elif isinstance(batch, tuple | list):
        for value in batch:
            yield from _integers(value)
