"""Random small models and losses, most of which would let one example reach another."""

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from without_data import WithoutData

WIDTH, CLASSES = 4, 3


class Piece(nn.Module):
    """Maps (n, WIDTH) to (n, WIDTH); ``k`` is where something begins."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k


class CentredInTraining(Piece):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0) if self.training else x


class ScaledInTraining(Piece):
    def forward(self, x: Tensor) -> Tensor:
        return x / (0.1 + x.std(0, correction=0)) if self.training else x


class MixesAboveK(Piece):
    def forward(self, x: Tensor) -> Tensor:
        return x + 5 * x.roll(1, 0) if len(x) > self.k else x


class ScaledByCount(Piece):
    def forward(self, x: Tensor) -> Tensor:
        return x * x.shape[0]


class MovesBuffer(Piece):
    centre: Tensor

    def __init__(self, k: int) -> None:
        super().__init__(k)
        self.register_buffer("centre", torch.zeros(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        found = x + 3 * self.centre
        self.centre += x.detach().sum(0)
        return found


class MovesBufferInTraining(MovesBuffer):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if self.training else x


class ReplacesBuffer(MovesBuffer):
    def forward(self, x: Tensor) -> Tensor:
        found = x + 3 * self.centre
        self.centre = x.detach().mean(0)
        return found


class MovesBufferByData(MovesBuffer):
    def forward(self, x: Tensor) -> Tensor:
        found = x + 3 * self.centre
        self.centre.data.add_(x.detach().sum(0))
        return found


class MovesFrozenParameter(Piece):
    def __init__(self, k: int) -> None:
        super().__init__(k)
        self.prototype = nn.Parameter(torch.zeros(WIDTH), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        found = x + 3 * self.prototype
        with torch.no_grad():
            self.prototype.mul_(0.5).add_(x.sum(0))
        return found


class MovesWeights(Piece):
    def __init__(self, k: int) -> None:
        super().__init__(k)
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        self.layer.bias.data += x.detach().sum(0)
        return self.layer(x)


class Queue(Piece):
    def __init__(self, k: int) -> None:
        super().__init__(k)
        self.queue: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        found = x + 3 * sum(self.queue[-2:])
        self.queue.append(x.detach().sum(0))
        return found


class ClassQueue(Piece):
    queue: list[Tensor] = []  # noqa: RUF012  # a common mistake

    def forward(self, x: Tensor) -> Tensor:
        found = x + 3 * sum(self.queue[-2:])
        self.queue.append(x.detach().sum(0))
        return found


class Remembers(Piece):
    def __init__(self, k: int) -> None:
        super().__init__(k)
        self.last = torch.zeros(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        found = x + 3 * self.last
        self.last = x.detach().sum(0)
        return found


class RemembersNumber(Piece):
    def __init__(self, k: int) -> None:
        super().__init__(k)
        self.held = {"last": 0.0}

    def forward(self, x: Tensor) -> Tensor:
        found = x * (1 + self.held["last"])
        self.held["last"] = float(x.detach().sum())
        return found


class MixesFromCallK(Piece):
    def __init__(self, k: int) -> None:
        super().__init__(k)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x + 5 * x.roll(1, 0) if self.calls > self.k else x


class EndsTraining(Piece):
    def __init__(self, k: int) -> None:
        super().__init__(k)
        self.inner = CentredInTraining(k)

    def forward(self, x: Tensor) -> Tensor:
        found = self.inner(x)
        self.inner.eval()
        return found


class WritesInPlace(Piece):
    def forward(self, x: Tensor) -> Tensor:
        x = x.clone()
        x[1:] += 5 * x[:1]
        return x


class Reshapes(Piece):
    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(-1).roll(self.k).reshape(x.shape)


class FlattensAll(nn.Sequential):
    def __init__(self, k: int) -> None:
        super().__init__(nn.Flatten(0), nn.Unflatten(0, (-1, WIDTH)), nn.Softmax(0))


class Unbatched(Piece):
    def __init__(self, k: int) -> None:
        super().__init__(k)
        self.attention = nn.MultiheadAttention(WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.attention(x, x, x, need_weights=False)[0]


class Recurrent(Piece):
    def __init__(self, k: int) -> None:
        super().__init__(k)
        self.recurrent = nn.RNN(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.recurrent(x)[0]


class Branches(Piece):
    def forward(self, x: Tensor) -> Tensor:
        return 5 * x if x.sum() > 0 else -x


class PicksRow(Piece):
    def forward(self, x: Tensor) -> Tensor:
        return x + 5 * x[x.sum(1).argmax()]


class OwnRule(torch.autograd.Function):
    """Doubles, but mixes where it is given a batch at once."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Tensor:
        return 2 * gradient

    @staticmethod
    def vmap(info: Any, places: Any, x: Tensor) -> Any:
        return OwnRule.apply(x + 5 * x.roll(1, places[0])), places[0]


class OwnOperation(Piece):
    def forward(self, x: Tensor) -> Tensor:
        return OwnRule.apply(x)


class GradientHook(Piece):
    def __init__(self, k: int) -> None:
        super().__init__(k)
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        found = self.layer(x)
        if found.requires_grad:
            found.register_hook(lambda gradient: gradient + 5 * gradient.roll(1, 0))
        return found


class HookedLinear(nn.Sequential):
    def __init__(self, k: int) -> None:
        super().__init__(nn.Linear(WIDTH, WIDTH))
        self[0].register_forward_hook(lambda module, given, found: found + 5 * found.roll(1, 0))


def _mixed(gradients: Any) -> Tensor:
    mixed: Tensor = gradients[0] + 5 * gradients[0].roll(1, 0)
    return mixed


class BackwardHookedLinear(nn.Sequential):
    def __init__(self, k: int) -> None:
        super().__init__(nn.Linear(WIDTH, WIDTH))
        self[0].register_full_backward_hook(lambda module, given, out: (_mixed(given),))


def _rolled(layer: nn.Linear, x: Tensor) -> Tensor:
    return nn.functional.linear(x + 5 * x.roll(1, 0), layer.weight, layer.bias)


class OverriddenLinear(nn.Sequential):
    def __init__(self, k: int) -> None:
        super().__init__(nn.Linear(WIDTH, WIDTH))
        self[0].forward = MethodType(_rolled, self[0])


class OwnGenerator(Piece):
    """Drops units by coins of its own, that everybody may know."""

    def __init__(self, k: int) -> None:
        super().__init__(k)
        self.coins = random.Random(k)

    def forward(self, x: Tensor) -> Tensor:
        return x * float(self.coins.random() < 0.5) * 2


class Folded(Piece):
    """Takes positions for examples, as many do on purpose."""

    def __init__(self, k: int) -> None:
        super().__init__(k)
        self.layer = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.reshape(-1, 2)).reshape(x.shape)


class Tied(Piece):
    def __init__(self, k: int) -> None:
        super().__init__(k)
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(torch.tanh(self.layer(x)))


class Outside(Tied):
    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + torch.tanh(x) @ self.layer.weight


class Image(nn.Sequential):
    def __init__(self, k: int) -> None:
        super().__init__(
            nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 1, 3, padding=1), nn.Flatten(), nn.ReLU()
        )


class Tokens(Piece):
    def __init__(self, k: int) -> None:
        super().__init__(k)
        self.table = nn.Embedding(8, WIDTH, sparse=bool(k % 2))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table((4 * x[:, 0].detach().sigmoid()).long())


PIECES: tuple[Callable[[int], nn.Module], ...] = (
    CentredInTraining, ScaledInTraining, MixesAboveK, ScaledByCount, MovesBuffer,
    MovesBufferInTraining, ReplacesBuffer, MovesBufferByData, MovesFrozenParameter, MovesWeights,
    Queue, ClassQueue, Remembers, RemembersNumber, MixesFromCallK, EndsTraining, WritesInPlace,
    Reshapes, FlattensAll, Unbatched, Recurrent, Branches, PicksRow, OwnOperation, GradientHook,
    HookedLinear, BackwardHookedLinear, OverriddenLinear, OwnGenerator, Folded, Tied, Outside,
    Image, Tokens, lambda k: nn.BatchNorm1d(WIDTH, track_running_stats=False),
)  # fmt: skip
PLAIN: tuple[Callable[[int], nn.Module], ...] = (
    lambda k: nn.Linear(WIDTH, WIDTH), lambda k: nn.Tanh(), lambda k: nn.ReLU(inplace=bool(k % 2)),
    lambda k: nn.GELU(), lambda k: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Sigmoid()),
    lambda k: nn.LayerNorm(WIDTH), lambda k: nn.GroupNorm(2, WIDTH), lambda k: nn.Flatten(),
)  # fmt: skip


class Net(nn.Module):
    """A user's own class, for inputs of several forms."""

    def __init__(self, form: str, inner: nn.Module) -> None:
        super().__init__()
        self.form, self.inner = form, inner

    def forward(self, given: Any) -> Tensor:
        if self.form == "dict":
            return self.inner(given["x"] * given["scale"])
        return self.inner(given[0] + given[1]) if self.form == "pair" else self.inner(given)


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


class RandomTask(WithoutData):
    """A model of some pieces and a loss, drawn by a seed."""

    def __init__(self, seed: int, *, plain: bool = False) -> None:
        draw = random.Random(seed)
        self.form = draw.choice(("tensor", "tensor", "tensor", "dict", "pair"))
        pieces = [draw.choice(PLAIN) for _ in range(draw.randint(0, 2))]
        if not plain and draw.random() < 0.85:
            pieces += [draw.choice(PIECES) for _ in range(draw.choice((1, 1, 2)))]
        draw.shuffle(pieces)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            stages = [piece(draw.randint(1, 6)) for piece in pieces]
            inner = nn.Sequential(nn.Linear(WIDTH, WIDTH), *stages, nn.Linear(WIDTH, CLASSES))
        own = self.form != "tensor" or draw.random() < 0.4
        self._model = Net(self.form, inner) if own else inner
        self._loss = plain_loss if plain else draw.choice(LOSSES)
        self.centre, self.calls = torch.zeros(CLASSES), 0

    def model(self) -> nn.Module:
        return copy.deepcopy(self._model)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self._loss(self, outputs, targets)

    def items(self, count: int, seed: int) -> Any:
        """Return a data set of this task's form, some of whose examples are far larger."""
        generator = torch.Generator().manual_seed(seed)
        inputs = torch.randn(count, WIDTH, generator=generator)
        inputs *= 10 ** torch.randint(-1, 2, (count, 1), generator=generator)
        targets = torch.randint(0, CLASSES, (count,), generator=generator)
        if self.form == "dict":
            return [
                ({"x": x, "scale": x.new_tensor(2.0)}, y)
                for x, y in zip(inputs, targets, strict=True)
            ]
        if self.form == "pair":
            return [((x, x.flip(0)), y) for x, y in zip(inputs, targets, strict=True)]
        return list(zip(inputs, targets, strict=True))

    def __repr__(self) -> str:
        return f"{self._model} with {self._loss}"


def plain_loss(task: RandomTask, outputs: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(outputs, targets)


def hardest(task: RandomTask, outputs: Tensor, targets: Tensor) -> Tensor:
    found = cross_entropy(outputs, targets)
    return torch.where(found >= 0.5 * found.max(), 1.0, 0.0) * found


def harder_half(task: RandomTask, outputs: Tensor, targets: Tensor) -> Tensor:
    found = cross_entropy(outputs, targets)
    return found * (found >= found.median())


def against_the_mean(task: RandomTask, outputs: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(5 * (outputs - outputs.mean(0)), targets)


def contrastive(task: RandomTask, outputs: Tensor, targets: Tensor) -> Tensor:
    return -(outputs @ outputs.T).log_softmax(1).diagonal()


def weighed_by_class(task: RandomTask, outputs: Tensor, targets: Tensor) -> Tensor:
    counts = torch.bincount(targets, minlength=CLASSES)
    return cross_entropy(outputs, targets) / counts[targets]


def running_centre(task: RandomTask, outputs: Tensor, targets: Tensor) -> Tensor:
    found = cross_entropy(outputs - 3 * task.centre, targets)
    task.centre = 0.5 * task.centre + outputs.detach().sum(0)
    return found


def curriculum(task: RandomTask, outputs: Tensor, targets: Tensor) -> Tensor:
    task.calls += 1
    return cross_entropy(outputs * (1 if task.calls % 3 else -4), targets)


def threshold(task: RandomTask, outputs: Tensor, targets: Tensor) -> Tensor:
    found = cross_entropy(outputs, targets)
    return found if float(found.detach().max()) > 0.8 else 5 * found


LOSSES: tuple[Callable[[RandomTask, Tensor, Tensor], Tensor], ...] = (
    plain_loss, plain_loss, plain_loss, plain_loss, hardest, harder_half, against_the_mean,
    contrastive, weighed_by_class, running_centre, curriculum, threshold,
)  # fmt: skip


@dataclass(frozen=True)
class Naive:
    """The rule that takes a batch's losses for its examples': the control."""

    model: nn.Module
    loss: Callable[[Tensor, Tensor], Tensor]
    not_finite: int = 0

    def clipped_sum(self, inputs: Any, targets: Tensor, clip: float) -> Tensor:
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        total = torch.zeros(sum(p.numel() for p in parameters), dtype=parameters[0].dtype)
        for loss in self.loss(self.model(inputs), targets):
            parts = torch.autograd.grad(
                loss, parameters, retain_graph=True, allow_unused=True, materialize_grads=True
            )
            row = torch.cat([part.to_dense().reshape(-1) for part in parts])
            total += row * (clip / row.norm()).clamp(max=1.0)
        return total
