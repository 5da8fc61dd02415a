"""More small models of other people's kinds, for the table of them."""

import threading
from typing import Any

import torch
from other_models import CLASSES, WIDTH, Net
from torch import Tensor, nn
from torch.nn import functional as F


class IntegerBuffers(Net):
    """A table of places that it reads, and a count of calls that it keeps."""

    places: Tensor
    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("places", torch.tensor([3, 1, 0, 2]))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.head(self.hidden(x)[:, self.places])


class WideOutputs(Net):
    """Outputs in float64, whatever its weights are."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).double()


class Nested(Net):
    """Outputs in a dict of tuples."""

    def forward(self, x: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        hidden = self.hidden(x)
        return {"all": (self.head(hidden), hidden)}


def nested(outputs: Any, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs["all"][0], targets, reduction="none")


class PartlyDetached(Net):
    """A second head that learns nothing of the body."""

    def __init__(self) -> None:
        super().__init__()
        self.probe = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.hidden(x)
        return self.head(hidden) + self.probe(hidden.detach())


class Hyper(nn.Module):
    """The weights of one layer are the outputs of another."""

    def __init__(self) -> None:
        super().__init__()
        self.maker = nn.Linear(2, WIDTH * CLASSES)
        self.code = nn.Parameter(torch.tensor([0.3, -0.7]))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.maker(self.code).view(CLASSES, WIDTH))


class WithLock(Net):
    """What nobody can copy or send: a lock, and a function without a name."""

    def __init__(self) -> None:
        super().__init__()
        self.lock, self.act = threading.Lock(), lambda x: torch.tanh(x)

    def forward(self, x: Tensor) -> Tensor:
        with self.lock:
            return self.head(self.act(self.body(x)))


class Stateless(Net):
    """Calls a part of its own by torch.func."""

    def forward(self, x: Tensor) -> Tensor:
        weights = {name: 0.5 * value for name, value in self.body.named_parameters()}
        return self.head(torch.tanh(torch.func.functional_call(self.body, weights, (x,))))


class Autocast(Net):
    """Computes its body in bfloat16."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=x.dtype == torch.float32):
            hidden = self.body(x)
        return self.head(torch.tanh(hidden).to(x.dtype))


class OwnParameter(nn.Parameter):
    """A parameter of a user's own class."""


class Subclassed(Net):
    def __init__(self) -> None:
        super().__init__()
        self.scale = OwnParameter(torch.tensor([1.0, 0.5, 2.0]))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.scale


class Recurrences(nn.Module):
    """Two layers in both directions, projected, of sequences in the second place."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.LSTM(WIDTH, 4, num_layers=2, bidirectional=True, proj_size=2)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(x.transpose(0, 1))[0][-1])


class Encoder(nn.Module):
    """torch's own stack of layers, normed first."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            WIDTH, 2, 8, dropout=0.0, batch_first=True, norm_first=True, activation="gelu"
        )
        self.inner = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(x).mean(1))


class SharedInList(nn.Module):
    """One layer that stands three times in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH)] * 3)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.head(x)


class SwitchesMode(Net):
    """Asks whether it trains, and does something else then."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(2 * x if self.training else x)


class Squared(nn.Module):
    """Gives a layer of two inputs the same one twice."""

    def __init__(self, layer: nn.Bilinear) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, x)
