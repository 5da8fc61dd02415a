"""Sums of clipped per-example gradients: both ways equal a loop over examples."""

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
from torch import Tensor, nn

from zerosum.client.task import TaskError
from zerosum.client.training import ghost_norms, per_example_clipping, products
from zerosum.client.training.flat_parameters import flatten
from zerosum.client.training.ghost_norms import Capture, measure
from zerosum.client.training.per_example_clipping import ClippedGradients
from zerosum.client.training.torch_internals import onednn_product

CLIP = 0.3

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same':UserWarning")


def losses(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs.flatten(1), targets, reduction="none")


def lone_gradients(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """One backward pass an example: the definition."""
    rows = []
    parameters = [p for p in model.parameters() if p.requires_grad]
    for i in range(len(targets)):
        loss = losses(model(inputs[i : i + 1]), targets[i : i + 1]).sum()
        found = torch.autograd.grad(loss, parameters, allow_unused=True)
        parts = [
            (torch.zeros_like(p) if g is None else g).reshape(-1)
            for p, g in zip(parameters, found, strict=True)
        ]
        rows.append(torch.cat(parts))
    return torch.stack(rows)


def loop(model: nn.Module, inputs: Tensor, targets: Tensor, clip: float) -> Tensor:
    return clipped_rows(lone_gradients(model, inputs, targets), clip)


def clipped_rows(rows: Tensor, clip: float) -> Tensor:
    return (rows * (clip / rows.norm(dim=1, keepdim=True)).clamp(max=1)).sum(0)


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make().double()


def batch(count: int, *shape: int, classes: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(count, *shape, generator=generator, dtype=torch.float64)
    scales = torch.logspace(-2, 1, count, dtype=torch.float64) if count else torch.ones(0)
    targets = torch.randint(0, classes, (count,), generator=generator)
    return inputs * scales.view(-1, *[1] * len(shape)), targets


def image(layer: nn.Module, side: int = 7) -> Callable[[], nn.Module]:
    """Return a maker of a model: the layer, a nonlinearity, pooling, three classes."""

    def make() -> nn.Module:
        channels = layer(torch.zeros(1, 4, side, side)).shape[1]
        return nn.Sequential(
            copy.deepcopy(layer),
            nn.Tanh(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(4 * channels, 3),
        )

    return make


class Tokens(nn.Module):
    """Linear layers over positions, some few and some many."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 40, bias=bias), nn.Linear(40, 3, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(x))).mean(1)


class Twice(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


def pooling() -> nn.Module:
    """Return two convolutions with ReLU and overlapping or cut-off windows, and three classes."""
    return nn.Sequential(
        nn.Conv2d(4, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1),
        nn.Conv2d(6, 8, 3), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, ceil_mode=True),
        nn.Flatten(), nn.Linear(32, 3),
    )  # fmt: skip


CONVOLUTIONS = {
    "plain": nn.Conv2d(4, 6, 3),
    "padding": nn.Conv2d(4, 6, 3, padding=1),
    "stride": nn.Conv2d(4, 6, 3, stride=2, padding=1),
    "uneven": nn.Conv2d(4, 6, (3, 2), stride=(1, 2), padding=(0, 1), dilation=(2, 1)),
    "dilation": nn.Conv2d(4, 6, 3, dilation=2),
    "groups": nn.Conv2d(4, 6, 3, groups=2, padding=1),
    "depthwise": nn.Conv2d(4, 8, 3, groups=4),
    "no bias": nn.Conv2d(4, 6, 3, bias=False),
    "same": nn.Conv2d(4, 6, 4, padding="same"),
    "reflect": nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"),
    "pointwise": nn.Conv2d(4, 40, 1),
    "whole image": nn.Conv2d(4, 40, 7),
}
SHAPES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(6, 3), (6,)),
    "linear without bias": (lambda: nn.Linear(6, 3, bias=False), (6,)),
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)), (6,)),
    "in place": (lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU(True), nn.Linear(5, 3)), (6,)),
    "another in place": (
        lambda: nn.Sequential(nn.Linear(6, 5), nn.ELU(inplace=True), nn.Linear(5, 3)),
        (6,),
    ),
    "pooling": (pooling, (4, 11, 11)),
    "few positions": (lambda: Tokens(True), (2, 6)),
    "many positions": (lambda: Tokens(False), (90, 6)),
    "two axes of positions": (
        lambda: nn.Sequential(nn.Linear(6, 2), nn.Tanh(), nn.Flatten(), nn.Linear(16, 3)),
        (4, 2, 6),
    ),
} | {f"convolution: {name}": (image(layer), (4, 7, 7)) for name, layer in CONVOLUTIONS.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("count", [1, 9])
def test_one_backward_pass_gives_what_a_loop_gives(name: str, count: int) -> None:
    make, shape = SHAPES[name]
    flat = flatten(seeded(make))
    inputs, targets = batch(count, *shape)
    clipped = ClippedGradients(flat, losses)
    expected = loop(flat.model, inputs, targets, CLIP)
    found = clipped.clipped_sum(inputs, targets, CLIP).clone()
    assert clipped.layerwise
    assert torch.allclose(found, expected, rtol=0, atol=1e-10)
    each = ClippedGradients(flat, losses, layerwise=False)
    assert torch.allclose(each.clipped_sum(inputs, targets, CLIP), expected, rtol=0, atol=1e-10)
    assert each.way == "vmap"


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("name", ["linear without bias", "mlp", "in place", "few positions"])
def test_large_float32_products_of_layers_are_onednn_s_where_mkl_is_narrow(
    monkeypatch: pytest.MonkeyPatch, name: str, narrow: bool
) -> None:
    products_by_onednn: list[torch.dtype] = []

    def counted(left: Tensor, right: Tensor) -> Tensor | None:
        products_by_onednn.append(left.dtype)
        return onednn_product(left, right)

    monkeypatch.setattr(products, "LARGE", 1)
    monkeypatch.setattr(products, "mkl_is_narrow", lambda: narrow)
    monkeypatch.setattr(products, "onednn_product", counted)
    make, shape = SHAPES[name]
    model = seeded(make)
    inputs, targets = batch(9, *shape)
    expected = loop(model, inputs, targets, CLIP)
    clipped = ClippedGradients(flatten(model), losses, apart=True)
    assert torch.allclose(clipped.clipped_sum(inputs, targets, CLIP), expected, rtol=0, atol=1e-10)
    assert not products_by_onednn
    clipped = ClippedGradients(flatten(seeded(make).float()), losses, apart=True)
    found = clipped.clipped_sum(inputs.float(), targets, CLIP).double()
    assert bool(products_by_onednn) == narrow
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-6)
    for other in (0.999 * CLIP, 1.001 * CLIP):  # what the comparison can tell
        assert (found - loop(model, inputs, targets, other)).abs().max() > 2e-5


@pytest.mark.slow
@pytest.mark.parametrize("room", [0, 1000, 1 << 24])
@pytest.mark.parametrize("name", [*CONVOLUTIONS, "pooling"])
def test_examples_of_a_convolution_taken_one_after_another_are_measured_alike(
    monkeypatch: pytest.MonkeyPatch, name: str, room: int
) -> None:
    monkeypatch.setattr(ghost_norms, "ALONE_MULTIPLICATIONS", 1)
    monkeypatch.setattr(ghost_norms, "KEPT_ENTRIES", room)
    make, shape = SHAPES[name if name in SHAPES else f"convolution: {name}"]
    flat = flatten(seeded(make))
    clipped = ClippedGradients(flat, losses, apart=True)
    for count in (4, 2, 5):  # memory that one batch left is not read by the next
        inputs, targets = batch(count, *shape)
        rows = lone_gradients(flat.model, inputs, targets)
        found = clipped.clipped_sum(inputs, targets, CLIP)
        assert clipped.way == "one pass"
        assert torch.allclose(found, clipped_rows(rows, CLIP), rtol=0, atol=1e-10)
        # What the comparison can tell: norms that are a thousandth too large or too small.
        for other in (0.999 * CLIP, 1.001 * CLIP):
            assert not torch.allclose(found, clipped_rows(rows, other), rtol=0, atol=1e-10)
    inputs[1].view(-1)[0] = torch.nan
    found = clipped.clipped_sum(inputs, targets, CLIP)
    assert clipped.not_finite == 1
    assert torch.allclose(found, clipped_rows(rows[[0, 2, 3, 4]], CLIP), rtol=0, atol=1e-10)


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize("least", [1, 1 << 20], ids=["one by one", "over patches"])
@pytest.mark.parametrize("unseen", [1e9, float("nan")], ids=["large", "nan"])
def test_what_no_window_reaches_has_no_part_in_a_norm(
    monkeypatch: pytest.MonkeyPatch, least: int, unseen: float
) -> None:
    monkeypatch.setattr(ghost_norms, "ALONE_MULTIPLICATIONS", least)
    flat = flatten(seeded(image(nn.Conv2d(4, 6, 3, stride=2), side=8)))
    clipped = ClippedGradients(flat, losses, apart=True)
    inputs, targets = batch(5, 4, 8, 8)
    inputs[1:3, :, 7] = unseen  # three windows of three rows end at the seventh
    found = clipped.clipped_sum(inputs, targets, CLIP)
    assert clipped.way == "one pass"
    assert clipped.not_finite == 0
    torch.testing.assert_close(found, loop(flat.model, inputs, targets, CLIP))


def test_only_models_that_draw_coins_have_them_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    real = per_example_clipping.coins_apart

    def counted() -> AbstractContextManager[None]:
        drawn.append(1)
        return real()

    monkeypatch.setattr(per_example_clipping, "coins_apart", counted)
    plain = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    dropping = nn.Sequential(nn.Linear(6, 5), nn.Dropout(), nn.Linear(5, 3))
    for model, times in ((plain, 0), (dropping, 1)):
        drawn.clear()
        clipped = ClippedGradients(flatten(model.double()), losses, apart=True)
        clipped.clipped_sum(*batch(4, 6), CLIP)
        assert len(drawn) == times


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize("name", SHAPES)
def test_norms_are_exact(name: str) -> None:
    make, shape = SHAPES[name]
    flat = flatten(seeded(make))
    inputs, targets = batch(9, *shape)
    norms = lone_gradients(flat.model, inputs, targets).norm(dim=1)
    below = ClippedGradients(flat, losses).clipped_sum(inputs, targets, 0.9 * norms.min().item())
    directions = lone_gradients(flat.model, inputs, targets) / norms[:, None]
    assert torch.allclose(below, 0.9 * norms.min() * directions.sum(0), rtol=0, atol=1e-10)


@pytest.mark.parametrize("positions", [2, 200])
def test_ghost_norm_and_product_measure_the_same(positions: int) -> None:
    layer = nn.Linear(7, 11).double()
    generator = torch.Generator().manual_seed(0)
    inputs, gradient = (
        torch.randn(5, positions, width, generator=generator, dtype=torch.float64)
        for width in (7, 11)
    )
    product = gradient.transpose(1, 2) @ inputs
    expected = product.square().sum((1, 2)) + gradient.sum(1).square().sum(1)
    assert torch.allclose(measure(Capture(layer, inputs, gradient)).squares, expected, rtol=1e-12)


class Summing(nn.Module):
    """A layer over positions whose outputs are summed, so that opposite positions cancel."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(40, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).sum(1)[:, :3]


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("outputs", [4, 40])
@pytest.mark.parametrize("scale", [1e2, 1e5, 1e7, 1e8, 1e9, 1e10, 1e12, 1e15])
def test_positions_that_cancel_do_not_take_an_example_beyond_the_clip(
    outputs: int, scale: float
) -> None:
    flat = flatten(seeded(lambda: Summing(outputs)))
    inputs, targets = batch(6, 2, 40)
    clipped = ClippedGradients(flat, losses)
    clipped.clipped_sum(inputs, targets, CLIP)  # settles that layers tell the gradients
    torch.nn.init.zeros_(flat.model.get_parameter("layer.weight"))
    others = clipped.clipped_sum(inputs, targets, CLIP).clone()
    base = scale * inputs[:1, :1]
    odd = torch.cat([base, 50 * inputs[1:2, 1:] - base], dim=1)
    found = clipped.clipped_sum(torch.cat([inputs, odd]), torch.cat([targets, targets[:1]]), CLIP)
    assert clipped.layerwise
    assert 0 < (found - others).norm() <= CLIP * (1 + 1e-9)


class Reused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.layer(torch.tanh(self.layer(x)))))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = (nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3))
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.second(torch.tanh(self.first(x)))))


class BehindTheLayersBack(nn.Module):
    """Uses a layer's weight once more, without calling the layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + nn.functional.linear(torch.tanh(x), self.layer.weight)


class Branching(nn.Module):
    """Looks at its values, which vmap cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(6, 3), nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.scale if x.sum() > 0 else self.layer(-x)


OTHERS: dict[str, Callable[[], nn.Module]] = {
    "a layer called twice": Reused,
    "tied weights": Tied,
    "a weight used outside its layer": BehindTheLayersBack,
    "normalisation with parameters": lambda: nn.Sequential(
        nn.Linear(6, 5), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, 3)
    ),
    "one dimension": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3)
    ),
    "a branch on values": Branching,
    "positions folded into the batch": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 3)), Folded(), nn.Flatten(), nn.Linear(8, 3)
    ),
}

WAYS = {"a branch on values": "loop"}


class Folded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x.flatten(0, 1))).unflatten(0, x.shape[:2])


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize("name", OTHERS)
def test_any_other_model_is_taken_example_by_example(name: str) -> None:
    flat = flatten(seeded(OTHERS[name]))
    inputs, targets = batch(9, 6)
    clipped = ClippedGradients(flat, losses)
    found = clipped.clipped_sum(inputs, targets, CLIP)
    folded = name == "positions folded into the batch"  # of one example alone they are positions
    assert clipped.way == ("lone layers" if folded else WAYS.get(name, "vmap"))
    expected = loop(flat.model, inputs, targets, CLIP)
    assert torch.allclose(found, expected, rtol=0, atol=1e-10)


class Centred(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x - x.mean(0))


def doubled_in_place(outputs: Tensor, targets: Tensor) -> Tensor:
    outputs *= 2
    return losses(outputs, targets)


def doubled_in_place_for_one(outputs: Tensor, targets: Tensor) -> Tensor:
    outputs *= 2
    outputs.detach().sum().item()  # which no vectorised loss can be asked
    return losses(outputs, targets)


@pytest.mark.parametrize(
    ("loss", "apart"),
    [(doubled_in_place, True), (doubled_in_place, False), (doubled_in_place_for_one, False)],
    ids=["of a batch", "of rows together", "of rows one by one"],
)
def test_a_loss_may_work_in_place(loss: Callable[..., Tensor], apart: bool) -> None:
    model = seeded(lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3), nn.ReLU()))
    inputs, targets = batch(5, 6)
    twice = seeded(lambda: nn.Sequential(copy.deepcopy(model), Twice()))
    clipped = ClippedGradients(flatten(model), loss, apart=apart)
    found = clipped.clipped_sum(inputs, targets, CLIP)
    assert clipped.way == "one pass"
    torch.testing.assert_close(found, loop(twice, inputs, targets, CLIP))


def test_a_model_that_mixes_examples_gets_each_alone() -> None:
    flat = flatten(seeded(Centred))
    inputs, targets = batch(9, 6)
    clipped = ClippedGradients(flat, losses)
    whole = clipped.clipped_sum(inputs, targets, CLIP).clone()
    assert clipped.way == "lone layers"
    one = clipped.clipped_sum(inputs[:1], targets[:1], CLIP).clone()
    rest = clipped.clipped_sum(inputs[1:], targets[1:], CLIP)
    assert torch.allclose(whole, one + rest, rtol=0, atol=1e-10)


def test_batch_normalisation_is_refused_by_name() -> None:
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5, track_running_stats=False))
    with pytest.raises(TaskError, match=r"BatchNorm1d.*GroupNorm"):
        ClippedGradients(flatten(model), losses)


@pytest.mark.parametrize("name", ["mlp", "convolution: padding"])
def test_an_empty_batch_gives_zero(name: str) -> None:
    make, shape = SHAPES[name]
    flat = flatten(seeded(make))
    flat.gradients.fill_(7.0)
    found = ClippedGradients(flat, losses).clipped_sum(*batch(0, *shape), CLIP)
    assert found.shape == flat.weights.shape
    assert not found.any()


@pytest.mark.parametrize("layerwise", [True, False])
def test_zero_gradients_are_no_division_by_zero(layerwise: bool) -> None:
    flat = flatten(seeded(lambda: nn.Linear(6, 3, bias=False)))
    inputs, targets = batch(4, 6)
    inputs[1] = 0
    clipped = ClippedGradients(flat, losses, layerwise=layerwise)
    found = clipped.clipped_sum(inputs, targets, CLIP)
    expected = loop(flat.model, inputs[[0, 2, 3]], targets[[0, 2, 3]], CLIP)
    assert torch.allclose(found, expected, rtol=0, atol=1e-10)


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("name", ["mlp", "convolution: padding", "convolution: whole image"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("layerwise", [True, False])
def test_an_example_that_is_not_finite_contributes_zero(
    name: str, bad: float, layerwise: bool
) -> None:
    make, shape = SHAPES[name]
    flat = flatten(seeded(make))
    inputs, targets = batch(6, *shape)
    inputs[2].view(-1)[0] = bad
    rest = [0, 1, 3, 4, 5]
    found = ClippedGradients(flat, losses, layerwise=layerwise).clipped_sum(inputs, targets, CLIP)
    expected = loop(flat.model, inputs[rest], targets[rest], CLIP)
    assert torch.allclose(found, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("layerwise", [True, False])
def test_squares_beyond_float32_are_clipped_all_the_same(layerwise: bool) -> None:
    flat = flatten(seeded(lambda: nn.Linear(2, 3)).float())
    inputs = torch.tensor([[1e30, 0.0], [1.0, 2.0]])
    targets = torch.tensor([0, 1])
    with torch.no_grad():
        flat.weights.zero_()
    found = ClippedGradients(flat, losses, layerwise=layerwise).clipped_sum(inputs, targets, CLIP)
    expected = loop(flat.model.double(), inputs.double(), targets, CLIP)
    assert torch.allclose(found.double(), expected, rtol=1e-5, atol=1e-6)


def test_frozen_parameters_and_unused_layers_have_no_part() -> None:
    class Partly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.frozen, self.part, self.unused = nn.Linear(6, 5), nn.Linear(5, 3), nn.Linear(2, 2)
            self.frozen.requires_grad_(False)
            self.part.weight.requires_grad_(False)

        def forward(self, x: Tensor) -> Tensor:
            return self.part(torch.tanh(self.frozen(x)))

    flat = flatten(seeded(Partly))
    flat.gradients.fill_(7.0)
    inputs, targets = batch(5, 6)
    clipped = ClippedGradients(flat, losses)
    found = clipped.clipped_sum(inputs, targets, CLIP)
    expected = loop(flat.model, inputs, targets, CLIP)
    assert torch.allclose(found, expected, rtol=0, atol=1e-10)
