"""Small pictures of five classes and a Task of them: what tests of local trainers share."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from zerosum.client.task import ClientInfo

CLASSES = 5


def images(count: int = 11, channels: int = 1, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, channels, 10, 12, generator=generator, dtype=torch.float64)
    inputs[:, :, :4] = 0  # blank as the margins of digits are: windows of equal numbers
    return inputs, torch.randint(0, CLASSES, (count,), generator=generator)


class Task:
    """A model, and cross-entropy unless another loss is given."""

    def __init__(self, make: Callable[[], nn.Module], loss: Any = None) -> None:
        self.make = make
        self.of = loss or (lambda a, b: nn.functional.cross_entropy(a, b, reduction="none"))

    def model(self) -> nn.Module:
        return self.make()

    def data(self, client: ClientInfo) -> tuple[Tensor, Tensor]:
        return images(client.index)

    def test_data(self) -> None:
        return None

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses: Tensor = self.of(outputs, targets)
        return losses


def mlp(*, bias: bool = True) -> nn.Sequential:
    first = nn.Sequential(nn.Flatten(), nn.Linear(120, 9, bias=bias), nn.ReLU())
    return nn.Sequential(first, nn.Dropout(0.0), nn.Identity(), nn.Linear(9, CLASSES, bias=bias))


def ends(entries: int, *layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(entries, CLASSES))


def tied() -> nn.Module:
    one, other = nn.Linear(120, 120), nn.Linear(120, 120)
    other.weight = one.weight
    return nn.Sequential(nn.Flatten(), one, nn.ReLU(), other, nn.Linear(120, CLASSES))


def frozen() -> nn.Module:
    model = mlp()
    next(model.parameters()).requires_grad_(False)
    return model


def gradient_hooked() -> nn.Module:
    model = mlp()
    next(model.parameters()).register_hook(lambda gradient: gradient * 2)
    return model
