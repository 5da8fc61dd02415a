"""Training as a user would write it: a loop around torch.optim.SGD, on rows of other models."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from model_rows import Row
from torch import Tensor, nn
from torch.utils.data import default_collate

from zerosum.client.spec import TrainSpec
from zerosum.client.task import ClientInfo
from zerosum.secagg.randomness import derive_seed, numpy_generator

NUMBER = 12345


class RowTask:
    """The task of a row."""

    def __init__(self, one: Row) -> None:
        self.one = one

    def model(self) -> nn.Module:
        made: nn.Module = self.one.make()
        return made

    def data(self, client: ClientInfo) -> Any:
        return part_of(self.one, client.index)

    def test_data(self) -> None:
        return None

    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        return self.one.loss(outputs, targets)


def part_of(one: Row, client: int) -> Any:
    """Return what a client has: the fewer records the later it comes."""
    found = one.data()
    return tuple(part[: len(part) - 2 * client] for part in found) if client else found


def batches(data: Any, spec: TrainSpec, dtype: torch.dtype, number: int = NUMBER) -> Iterator[Any]:
    """Yield the batches of the documented order, as a user's own loop would build them."""
    generator = numpy_generator(number, "batch order")
    count = len(data[1]) if isinstance(data, tuple) else len(data)
    size = spec.batch_size or count
    for _ in range(spec.epochs or 1):
        order = generator.permutation(count)
        for start in range(0, count, size):
            rows = order[start : start + size]
            if isinstance(data, tuple):
                batch = [part[rows] for part in data]
            else:
                batch = default_collate([data[int(i)] for i in rows])
            yield [cast(part, dtype) for part in batch]


def seed_of(number: int, purpose: str) -> int:
    return int.from_bytes(derive_seed(number, purpose)[:8], "little")


def cast(part: Any, dtype: torch.dtype) -> Any:
    if isinstance(part, dict):
        return {key: cast(value, dtype) for key, value in part.items()}
    return part.to(dtype) if part.is_floating_point() else part


def fresh(one: Row, dtype: torch.dtype) -> nn.Module:
    """Build the model as round 0 does, in a dtype: complex numbers with it, integers not."""
    with torch.random.fork_rng():
        torch.manual_seed(seed_of(0, "model initialisation"))
        model = one.make()
    twice = torch.complex128 if dtype == torch.float64 else torch.complex64
    return model._apply(
        lambda t: t.to(dtype) if t.is_floating_point() else t.to(twice) if t.is_complex() else t
    )


def trained_plainly(
    one: Row,
    spec: TrainSpec,
    dtype: torch.dtype,
    *,
    lr: float | None = None,
    start: np.ndarray | None = None,
    client: int = 0,
    number: int = NUMBER,
) -> tuple[np.ndarray, np.ndarray]:
    """Train by torch.optim.SGD, and return the trained parameters before and after, each flat."""
    model = fresh(one, dtype)
    parameters = [p for p in model.parameters() if p.requires_grad]
    if start is not None:
        with torch.no_grad():
            place = 0
            for p in parameters:
                part = start[place : place + p.numel()]
                p.copy_(torch.from_numpy(part).view(p.shape))
                place += p.numel()
    before = [p.detach().clone() for p in parameters]
    optimizer = torch.optim.SGD(
        parameters, lr or spec.lr, momentum=spec.momentum, weight_decay=spec.weight_decay
    )
    if any(getattr(module, "sparse", False) for module in model.modules()):
        optimizer = Dense(parameters, lr or spec.lr, spec)  # type: ignore[assignment]
    model.train()
    with torch.random.fork_rng():
        torch.manual_seed(seed_of(number, "training"))
        for inputs, targets in batches(part_of(one, client), spec, dtype, number):
            optimizer.zero_grad()
            one.loss(model(inputs), targets).mean().backward()
            optimizer.step()
    return flat(before), flat(list(parameters))


class Dense:
    """SGD of sparse gradients written out, which torch.optim.SGD does not decay."""

    def __init__(self, parameters: list[nn.Parameter], lr: float, spec: TrainSpec) -> None:
        self.parameters, self.lr, self.spec = parameters, lr, spec
        self.speed = [torch.zeros_like(p) for p in parameters]

    def zero_grad(self) -> None:
        for p in self.parameters:
            p.grad = None

    @torch.no_grad()
    def step(self) -> None:
        for p, speed in zip(self.parameters, self.speed, strict=True):
            assert p.grad is not None
            speed.mul_(self.spec.momentum).add_(p.grad.to_dense() + self.spec.weight_decay * p)
            p.sub_(self.lr * speed)


def flat(parts: list[Tensor]) -> np.ndarray:
    found: np.ndarray = torch.cat([part.detach().reshape(-1) for part in parts]).double().numpy()
    return found
