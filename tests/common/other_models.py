"""Small models of other people's kinds, with the data and the loss that go with each."""

import warnings
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize, prune
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Dataset

COUNT, WIDTH, CLASSES = 11, 6, 3


def _drawn() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def vectors() -> tuple[Tensor, Tensor]:
    x = torch.randn(COUNT, WIDTH, generator=_drawn(), dtype=torch.float64)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def binary() -> tuple[Tensor, Tensor]:
    x, _ = vectors()
    return x, (x[:, 0] > 0).double()


def two_targets() -> tuple[Tensor, Tensor]:
    x, y = vectors()
    return x, torch.stack([y.double(), x[:, 2]], 1)


def images() -> tuple[Tensor, Tensor]:
    x = torch.randn(COUNT, 2, 6, 6, generator=_drawn(), dtype=torch.float64)
    return x, (x[:, 0, 0, 0] > 0).long()


def sequences() -> tuple[Tensor, Tensor]:
    x = torch.randn(COUNT, 5, WIDTH, generator=_drawn(), dtype=torch.float64)
    return x, (x[:, 0, 0] > 0).long()


def tokens() -> tuple[Tensor, Tensor]:
    x = torch.randint(0, 9, (COUNT, 4), generator=_drawn())
    return x, x[:, 0] % CLASSES


class Parts(Dataset[Any]):
    """Items of a dict and a target, or of one dict that holds the target too."""

    def __init__(self, *, whole: bool = False) -> None:
        self.x, self.y = vectors()
        self.whole = whole

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, i: int) -> Any:
        parts = {"left": self.x[i, :4], "right": self.x[i, 4:]}
        return parts | {"labels": self.y[i]} if self.whole else (parts, self.y[i])


def cross_entropy(outputs: Any, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


def first(outputs: Any, targets: Tensor) -> Tensor:
    return cross_entropy(outputs[0], targets)


def logits(outputs: Any, targets: Tensor) -> Tensor:
    return cross_entropy(outputs["logits"], targets)


def attribute(outputs: Any, targets: Tensor) -> Tensor:
    return cross_entropy(outputs.logits, targets)


def one_logit(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(outputs.squeeze(1), targets, reduction="none")


def squares(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.reshape(len(targets), -1).sum(1) - targets) ** 2


def both(outputs: Any, targets: Tensor) -> Tensor:
    return cross_entropy(outputs[0], targets[:, 0].long()) + squares(outputs[1], targets[:, 1])


def mean_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets)


def no_tensor(outputs: Tensor, targets: Tensor) -> Any:
    return 0.5


class Net(nn.Module):
    """A body and a head, for most of the models below to build on."""

    def __init__(self, width: int = WIDTH, hidden: int = 4, classes: int = CLASSES) -> None:
        super().__init__()
        self.body = nn.Linear(width, hidden)
        self.head = nn.Linear(hidden, classes)

    def hidden(self, x: Tensor) -> Tensor:
        return torch.tanh(self.body(x))

    def forward(self, x: Any) -> Any:
        return self.head(self.hidden(x))


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, 4), nn.ReLU(), nn.Linear(4, CLASSES))


def over(layer: nn.Module, width: int = 4) -> nn.Module:
    return nn.Sequential(layer, nn.Tanh(), nn.Linear(width, CLASSES))


class ScalarParameter(Net):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * super().forward(x)


class EmptyParameter(Net):
    def __init__(self) -> None:
        super().__init__()
        self.none = nn.Parameter(torch.zeros(0, 4))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.none.sum()


class OnlyScalar(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(0.3))

    def forward(self, x: Tensor) -> Tensor:
        return self.slope * x[:, :1]


class NoInputs(nn.Module):
    """A layer of no inputs: its weight is empty, its bias is not."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(0, 3, bias=True), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x) + self.layer(x[:, :0])


def _no_inputs() -> nn.Module:
    with warnings.catch_warnings():  # of torch's, that nothing is drawn for it
        warnings.simplefilter("ignore")
        return NoInputs()


class Tied(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.hidden(x) @ self.body.weight)[:, :4])


class TwoNames(Net):
    def __init__(self) -> None:
        super().__init__()
        self.again = nn.ModuleDict({"inner": self.body})

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.hidden(x) + self.again["inner"](x.flip(1)))


class LanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 4)
        self.decoder = nn.Linear(4, 9, bias=False)
        self.decoder.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(torch.tanh(self.table(x).sum(1)))


class Frozen(Net):
    def __init__(self) -> None:
        super().__init__()
        self.body.requires_grad_(False)


class Adapter(nn.Module):
    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(2, base.in_features) / 2)
        self.b = nn.Parameter(torch.zeros(base.out_features, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + x @ self.a.T @ self.b.T


def lora() -> nn.Module:
    net = Net()
    net.body = Adapter(net.body)  # type: ignore[assignment]
    return net


class LowRank(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(2, WIDTH)), nn.Parameter(torch.randn(4, 2) / 3)

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.b @ self.a


def lora_parametrized() -> nn.Module:
    net = Net()
    parametrize.register_parametrization(net.body, "weight", LowRank())
    net.get_parameter("body.parametrizations.weight.original").requires_grad_(False)
    return net


def old_spectral_norm() -> nn.Module:
    return over(nn.utils.spectral_norm(nn.Linear(WIDTH, 4)))


def spectral_norm() -> nn.Module:
    return over(parametrizations.spectral_norm(nn.Linear(WIDTH, 4)))


def old_weight_norm() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return over(nn.utils.weight_norm(nn.Linear(WIDTH, 4)))


def pruned() -> nn.Module:
    layer = nn.Linear(WIDTH, 4)
    prune.random_unstructured(layer, "weight", 0.5)
    return over(layer)


def made_whole() -> nn.Module:
    """A lazy model that saw a batch inside model()."""
    net = nn.Sequential(nn.LazyLinear(4), nn.Tanh(), nn.LazyLinear(CLASSES))
    net(torch.zeros(1, WIDTH))
    return net


Heads = namedtuple("Heads", ["logits", "hidden"])


class ModelOutput(OrderedDict):  # type: ignore[type-arg]
    """As Hugging Face's: keys are attributes, and numbers are places."""

    def __getattr__(self, name: str) -> Any:
        return self[name]

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key) if isinstance(key, str) else list(self.values())[key]


@dataclass
class Outputs:
    logits: Tensor
    hidden: Tensor


class Several(Net):
    """Gives outputs and hidden state, in a form of one's own."""

    def __init__(self, form: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.form = form

    def forward(self, x: Tensor) -> Any:
        hidden = self.hidden(x)
        return self.form(self.head(hidden), hidden)


class InPlaceOnInputs(Net):
    def forward(self, x: Tensor) -> Tensor:
        x.mul_(0.5).clamp_(-1, 1)
        return super().forward(x)


class ComplexWeights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, CLASSES, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        return (x.to(self.weight.dtype) @ self.weight).abs()


class FrozenComplex(Net):
    """Real weights, a frozen complex one and a complex buffer, as rotary embeddings have."""

    turns: Tensor

    def __init__(self) -> None:
        super().__init__()
        turns = torch.polar(torch.ones(2), torch.arange(2.0))
        self.register_buffer("turns", turns)
        self.phase = nn.Parameter(torch.tensor(0.6 + 0.8j), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        turned = torch.view_as_complex(self.hidden(x).view(-1, 2, 2)) * self.turns * self.phase
        return self.head(torch.view_as_real(turned).flatten(1))


class RealView(nn.Module):
    """Complex numbers stored as pairs of reals."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, CLASSES, 2) / 2)

    def forward(self, x: Tensor) -> Tensor:
        weight = torch.view_as_complex(self.weight)
        return (x.to(weight.dtype) @ weight).abs()


class Fourier(Net):
    def forward(self, x: Tensor) -> Tensor:
        found = torch.fft.rfft(self.body(x), dim=1)
        return self.head(torch.fft.irfft(found * 1.5, n=4, dim=1))


def of(dtype: torch.dtype) -> Callable[[], nn.Module]:
    return lambda: Net().to(dtype)


class HalfBody(Net):
    def __init__(self) -> None:
        super().__init__()
        self.body.half()


class TwoHeads(Net):
    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.hidden(x)
        return self.head(hidden), self.value(hidden)


class Unused(Net):
    """A layer that is not called and a branch without parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.spare = nn.Linear(3, 3)
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.branch = nn.Sequential(nn.Identity(), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.branch(x[:, :1])


class Branching(Net):
    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:
        layer = self.body if x.sum() > 0 else self.other
        return self.head(torch.tanh(layer(x)))


class Recurrent(nn.Module):
    def __init__(self, kind: Callable[..., nn.RNNBase], *, packed: bool = False) -> None:
        super().__init__()
        self.inner: Any = kind(WIDTH, 4, batch_first=True)
        self.head = nn.Linear(4, CLASSES)
        self.packed = packed

    def forward(self, x: Any) -> Tensor:
        if self.packed:
            lengths = 1 + (x[:, 0, 0].abs() * 3).long().clamp(max=4)
            x = nn.utils.rnn.pack_padded_sequence(
                x, lengths.cpu(), batch_first=True, enforce_sorted=False
            )
        state = self.inner(x)[1]
        return self.head((state[0] if isinstance(state, tuple) else state)[-1])


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(x, x, x)[0].mean(1))


class Transformer(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 8, dropout=dropout, batch_first=True)
        self.inner = nn.TransformerEncoder(layer, 1)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(x).mean(1))


def convolutions(norm: nn.Module | None = None) -> nn.Module:
    layers = [nn.Conv2d(2, 4, 3), norm or nn.Identity(), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, CLASSES))


class Transposed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.head = nn.ConvTranspose2d(2, 3, 3, stride=2), nn.Linear(3, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.up(x)).mean((2, 3)))


class Tokens(nn.Module):
    def __init__(self, table: nn.Module) -> None:
        super().__init__()
        self.table, self.head = table, nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        found = self.table(x)
        return self.head(found.mean(1) if found.dim() == 3 else found)


def compiled_child() -> nn.Module:
    net = Net()
    net.body = torch.compile(net.body, backend="eager")  # type: ignore[assignment]
    return net


def compiled_in_place() -> nn.Module:
    net = Net()
    net.compile(backend="eager")
    return net


def _quietly(make: Callable[[], nn.Module]) -> nn.Module:
    with warnings.catch_warnings():  # of torch's, that scripts will be gone one day
        warnings.simplefilter("ignore")
        return make()


def scripted() -> nn.Module:
    return _quietly(lambda: torch.jit.script(mlp()))


def traced() -> nn.Module:
    return _quietly(lambda: torch.jit.trace(mlp(), torch.zeros(2, WIDTH)))


def scripted_child() -> nn.Module:
    return _quietly(lambda: nn.Sequential(torch.jit.script(nn.Linear(WIDTH, 4)), nn.Linear(4, 3)))


class Lists(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList([torch.randn(WIDTH, 4) / 3, torch.randn(4, CLASSES) / 3])
        self.offsets = nn.ParameterDict({"in": torch.zeros(4), "out": torch.zeros(CLASSES)})

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(x @ self.weights[0] + self.offsets["in"])
        return hidden @ self.weights[1] + self.offsets["out"]


class MovesBuffer(Net):
    """Divides by a running mean of squares of its own, as many do by hand."""

    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.hidden(x)
        self.scale = 0.9 * self.scale + 0.1 * hidden.detach().square().mean(0)
        return self.head(hidden / self.scale.sqrt())


class KeepsState(Net):
    """Carries a hidden state from batch to batch, as stateful recurrent models do."""

    def __init__(self) -> None:
        super().__init__()
        self.last: Tensor | None = None
        self.seen: list[float] = []

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.hidden(x)
        if self.last is not None:
            hidden = hidden + 0.5 * self.last + 0.01 * len(self.seen)
        self.last = hidden.detach().mean(0)
        self.seen.append(1.0)
        return self.head(hidden)


class FreezesInForward(Net):
    def forward(self, x: Tensor) -> Tensor:
        self.body.requires_grad_(False)
        return super().forward(x)


class ThawsInForward(Frozen):
    def forward(self, x: Tensor) -> Tensor:
        self.body.requires_grad_(True)
        return super().forward(x)


class GrowsInForward(Net):
    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "late"):
            self.late = nn.Parameter(torch.ones(()).to(x.dtype))
        return super().forward(x) * self.late


class TakesDict(Net):
    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return super().forward(torch.cat([batch["left"], batch["right"]], 1))


class TakesNames(Net):
    def forward(self, left: Tensor, right: Tensor) -> Tensor:  # type: ignore[override]  # by name
        return super().forward(torch.cat([left, right], 1))


class TakesAnyNames(Net):
    def forward(self, **batch: Tensor) -> Tensor:  # type: ignore[override]  # by name
        return super().forward(torch.cat([batch["left"], batch["right"]], 1))


class Strided(nn.Module):
    """A weight stored transposed, and one that is every other row of a larger one."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, WIDTH).t())
        self.other = nn.Parameter(torch.randn(8, CLASSES)[::2])

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x @ self.weight) @ self.other


class Expanded(Net):
    def __init__(self) -> None:
        super().__init__()
        self.offset = nn.Parameter(torch.zeros(1).expand(CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.offset


class Overlapping(Net):
    """Two parameters in the same memory, which an optimizer moves together."""

    def __init__(self) -> None:
        super().__init__()
        self.twin = nn.Parameter(self.body.weight.data)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.hidden(x) + x @ self.twin.T)


class ViewingBuffer(Net):
    """A buffer that is a view of a weight, and follows it in plain PyTorch."""

    view: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("view", self.body.weight.detach().t())

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.hidden(x) + x @ self.view)


class IntegerParameter(Net):
    def __init__(self) -> None:
        super().__init__()
        self.order = nn.Parameter(torch.tensor([1, 0, 3, 2]), requires_grad=False)
        self.mask = nn.Parameter(torch.tensor([True, True, False, True]), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.hidden(x)[:, self.order] * self.mask)


def quantised() -> nn.Module:
    return _quietly(
        lambda: torch.ao.quantization.quantize_dynamic(mlp(), {nn.Linear}, dtype=torch.qint8)
    )


def on_meta() -> nn.Module:
    with torch.device("meta"):
        return Net()


def hooked() -> nn.Module:
    net = mlp()
    net[0].register_forward_pre_hook(lambda module, given: (given[0] * 2,))
    net[2].register_forward_hook(lambda module, given, found: found * 0.5)
    return net


def _halve(module: nn.Module, into: Any, out: Any) -> tuple[Tensor]:
    return (into[0] * 0.5,)


def backward_hooked() -> nn.Module:
    net = mlp()
    net[0].register_full_backward_hook(lambda module, into, out: into)
    net[2].register_full_backward_hook(_halve)
    return net


def gradient_hooked() -> nn.Module:
    net = mlp()
    net.get_parameter("0.weight").register_hook(lambda gradient: gradient.clamp(-0.05, 0.05))
    return net


def _clamp(parameter: Tensor) -> None:
    if parameter.grad is not None:
        parameter.grad.clamp_(-0.01, 0.01)


def after_hooked() -> nn.Module:
    net = mlp()
    net.get_parameter("0.weight").register_post_accumulate_grad_hook(_clamp)
    return net


class Checkpointed(Net):
    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.hidden(x)
        return checkpoint(self.head, hidden, use_reentrant=self.reentrant)  # type: ignore[no-any-return]


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return gradient * 3 * x**2


class OwnFunction(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(Cube.apply(self.hidden(x)))


class CastsInForward(Net):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.half())


class Detached(Net):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).detach()


class NotTrained(Net):
    def __init__(self) -> None:
        super().__init__()
        self.requires_grad_(False)


class Once:
    """Gives the same model whenever it is asked, as a task that keeps one in an attribute does."""

    def __init__(self) -> None:
        self.kept: nn.Module | None = None

    def __call__(self) -> nn.Module:
        self.kept = self.kept or Net()
        return self.kept
