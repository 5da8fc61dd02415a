"""One example never reaches another: models and losses that mixed, one by one."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import random_models as made_of
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from without_data import WithoutData, loader_of

from zerosum.client.privacy.binned_gaussian import BinnedGaussian
from zerosum.client.spec import PrivacySpec, TrainSpec
from zerosum.client.training import dpsgd
from zerosum.client.training.dpsgd import ExampleTrainer
from zerosum.client.training.flat_parameters import flatten
from zerosum.client.training.independent_examples import keeps_apart, known_loss, known_stages
from zerosum.client.training.initial_model import initial_vector
from zerosum.client.training.per_example_clipping import ClippedGradients
from zerosum.client.training.projection import Projection
from zerosum.secagg.randomness import insecure_keystream

WIDTH, CLASSES, CLIP = made_of.WIDTH, made_of.CLASSES, 0.3
COUNT = 30
EVERY = PrivacySpec(unit="example", examples=40, lot=40, clip=CLIP, noise_multiplier=1.0)
LOCAL = EVERY.model_copy(update={"model": "local"})
STEPS = TrainSpec(steps=3, lr=1.0)

pytestmark = pytest.mark.usefixtures("one_thread", "small_batches")


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dpsgd, "BATCH", 8)


class Owned(WithoutData):
    """A task of one model and one loss."""

    def __init__(
        self, piece: Callable[[int], nn.Module], k: int = 3, loss: Any = made_of.plain_loss
    ) -> None:
        self.piece, self.k, self.given = piece, k, loss
        self.centre, self.calls = torch.zeros(CLASSES), 0

    def model(self) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            inner = self.piece(self.k)
            return nn.Sequential(nn.Linear(WIDTH, WIDTH), inner, nn.Linear(WIDTH, CLASSES))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.given(self, outputs, targets)


def records() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(COUNT, WIDTH, generator=generator)
    inputs[0] *= 30
    return inputs, torch.randint(0, CLASSES, (COUNT,), generator=generator)


def sums(task: Owned, inputs: Tensor, targets: Tensor) -> np.ndarray:
    made = ExampleTrainer(task, STEPS, EVERY)
    start = initial_vector(task, 0)
    return made.descent(start, lambda: (inputs, targets), insecure_keystream(5, "examples"))


def tanh(k: int) -> nn.Module:
    return nn.Tanh()


def identity(k: int) -> nn.Module:
    return nn.Identity()


SEEN: dict[str, Callable[[], Owned]] = {
    "centred in training only": lambda: Owned(made_of.CentredInTraining),
    "scaled in training only": lambda: Owned(made_of.ScaledInTraining),
    "mixed above three records": lambda: Owned(made_of.MixesAboveK),
    "a loss of the hardest": lambda: Owned(identity, loss=made_of.hardest),
    "a buffer moved": lambda: Owned(made_of.MovesBuffer),
    "a buffer moved in training only": lambda: Owned(made_of.MovesBufferInTraining),
    "a buffer moved behind autograd's back": lambda: Owned(made_of.MovesBufferByData),
    "a queue": lambda: Owned(made_of.Queue),
    "a queue of the class": lambda: Owned(made_of.ClassQueue),
    "weights moved": lambda: Owned(made_of.MovesWeights),
    "mixed from the seventh call on": lambda: Owned(made_of.MixesFromCallK, 6),
    "a centre in the loss": lambda: Owned(tanh, loss=made_of.running_centre),
    "coins of its own": lambda: Owned(made_of.OwnGenerator),
}


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize("name", SEEN)
def test_one_example_moves_a_sum_by_a_clip_at_most(name: str) -> None:
    inputs, targets = records()
    whole = sums(SEEN[name](), inputs, targets)
    moved = whole - sums(SEEN[name](), inputs[1:], targets[1:])
    assert 0 < np.linalg.norm(moved) <= CLIP * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", SEEN)
def test_one_example_moves_local_training_by_a_clip_a_step_at_most(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without noise, and from equal weights: the second step sees what the first left behind."""
    monkeypatch.setattr(BinnedGaussian, "apply", lambda self, vector, rng: vector)
    start = initial_vector(SEEN[name](), 0)
    inputs, targets = records()
    found = []
    for first in (0, 1):  # a step as long as rounding, whose sums are taken from equal weights
        made = ExampleTrainer(SEEN[name](), STEPS.model_copy(update={"lr": 1e-9}), LOCAL)
        load = loader_of((inputs[first:], targets[first:]))
        found.append(made.train_privately(start, load, insecure_keystream(5, "examples"), 1))
    assert STEPS.steps is not None
    moved = np.linalg.norm(found[0] - found[1]) * 1e9 * 40 / STEPS.steps
    assert 0 < moved <= CLIP * 1.01  # sums are rounded to integers


def test_what_a_client_left_in_a_model_is_not_there_for_the_next() -> None:
    task = Owned(made_of.Remembers)
    inputs, targets = records()
    made, start = ExampleTrainer(task, STEPS, EVERY), initial_vector(task, 0)
    first, _, again = (
        made.descent(start, loader_of(rows), insecure_keystream(5, "examples"))
        for rows in ((inputs, targets), (9 * inputs, targets), (inputs, targets))
    )
    assert np.array_equal(first, again)


KNOWN: dict[str, Callable[[], nn.Module]] = {
    "a linear layer": lambda: nn.Linear(WIDTH, CLASSES),
    "nested sequences": lambda: nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2)), nn.Flatten(),
        nn.Dropout(), nn.Linear(8, 3),
    ),
    "a projection": lambda: nn.Sequential(Projection(8, 2), nn.Linear(2, 3)),
}  # fmt: skip


class OwnLinear(nn.Linear):
    """Another class, whatever it does."""


def hooked(register: str, layer: nn.Module | None = None) -> nn.Module:
    layer = layer or nn.Linear(WIDTH, CLASSES)
    getattr(layer, register)(lambda *arguments: None)
    return nn.Sequential(layer)


def overridden() -> nn.Module:
    model = nn.Sequential(nn.Linear(WIDTH, CLASSES))
    model[0].forward = lambda x: x.mean(0, keepdim=True) + x  # type: ignore[method-assign]
    return model


def hook_on_a_sequence() -> nn.Module:
    return nn.Sequential(hooked("register_forward_hook", nn.Sequential(nn.Linear(WIDTH, CLASSES))))


UNKNOWN: dict[str, Callable[[], nn.Module]] = {
    "a subclass": lambda: nn.Sequential(OwnLinear(WIDTH, CLASSES)),
    "a class of one's own": lambda: made_of.Net("tensor", nn.Linear(WIDTH, CLASSES)),
    "flat from dimension 0": lambda: nn.Sequential(nn.Flatten(0), nn.Linear(WIDTH, CLASSES)),
    "flat from the dimension before the last": lambda: nn.Sequential(
        nn.Flatten(-2), nn.Linear(WIDTH, CLASSES)
    ),
    "another order": lambda: nn.Sequential(nn.Unflatten(0, (2, -1)), nn.Linear(WIDTH, CLASSES)),
    "softmax": lambda: nn.Sequential(nn.Linear(WIDTH, CLASSES), nn.Softmax(0)),
    "batches behind": lambda: nn.Sequential(nn.RNN(WIDTH, CLASSES)),
    "indices of the largest": lambda: nn.Sequential(nn.MaxPool2d(2, return_indices=True)),
    "a hook": lambda: hooked("register_forward_hook"),
    "a hook before": lambda: hooked("register_forward_pre_hook"),
    "a hook behind": lambda: hooked("register_full_backward_hook"),
    "a hook on a sequence": hook_on_a_sequence,
    "an override": overridden,
    "a weight computed": lambda: nn.Sequential(
        parametrizations.spectral_norm(nn.Linear(WIDTH, CLASSES))
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_models_of_common_layers_are_known(name: str) -> None:
    assert known_stages(KNOWN[name]()) is not None


@pytest.mark.parametrize("name", UNKNOWN)
def test_whatever_may_run_other_code_or_mix_is_not_known(name: str) -> None:
    assert known_stages(UNKNOWN[name]()) is None


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.Sequential(nn.Conv2d(6, 6, 1), nn.Flatten(), nn.Linear(4, 3)), (2, 2)),
        (nn.Sequential(nn.MaxPool2d((1, 1)), nn.Flatten(), nn.Linear(4, 3)), (2, 2)),
    ],
)
def test_images_without_channels_are_not_taken_for_one_image(model: nn.Module, shape: Any) -> None:
    """Six examples, and six channels: torch would take the batch for one image."""
    flat = flatten(model.double())
    clipped = ClippedGradients(flat, made_of.cross_entropy)
    inputs = torch.randn(6, *shape, generator=torch.Generator().manual_seed(0)).double()
    targets = torch.zeros(6, dtype=torch.int64)
    try:
        whole = clipped.clipped_sum(inputs, targets, CLIP).clone()
    except RuntimeError:  # of one example alone, a convolution finds one channel
        return
    assert clipped.way != "one pass"
    rest = clipped.clipped_sum(inputs[1:], targets[1:], CLIP)
    assert (whole - rest).norm() <= CLIP * (1 + 1e-9)


def test_a_loss_is_known_by_its_own_function_not_by_its_name() -> None:
    class Marked:
        @keeps_apart
        def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
            return outputs

    class Overriding(Marked):
        def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
            return outputs - outputs.mean(0)

    assert known_loss(Marked().loss)
    assert not known_loss(Overriding().loss)
    assert known_loss(nn.functional.cross_entropy)
    assert not known_loss(made_of.cross_entropy)


class Coin(made_of.Piece):
    """Drops whole batches by a coin of numpy's or Python's, one for all that it is given."""

    def forward(self, x: Tensor) -> Tensor:
        return x * float(np.random.random() < 0.5)  # noqa: NPY002


def test_a_coin_of_numpy_s_is_never_shared_by_examples() -> None:
    flat = flatten(Owned(Coin).model().double())
    clipped = ClippedGradients(flat, made_of.cross_entropy)
    inputs, targets = records()
    rows = clipped.lone_gradients(inputs.double(), targets)[:, : WIDTH * WIDTH].any(1)
    assert 0.1 < rows.double().mean() < 0.9
    clipped.clipped_sum(inputs.double(), targets, CLIP)
    assert clipped.way == "loop"


def test_a_rule_for_batches_of_one_s_own_is_not_used_and_left_as_it_was() -> None:
    flat = flatten(Owned(made_of.OwnOperation).model().double())
    rule = made_of.OwnRule.vmap
    clipped = ClippedGradients(flat, made_of.cross_entropy)
    inputs, targets = (part[:5] for part in records())
    clipped.clipped_sum(inputs.double(), targets, CLIP)
    assert clipped.way == "loop"
    assert made_of.OwnRule.vmap is rule


@pytest.mark.filterwarnings("ignore:`torch.jit.trace:DeprecationWarning")
def test_a_script_is_refused_by_name() -> None:
    scripted = torch.jit.trace(nn.Linear(WIDTH, CLASSES), torch.zeros(1, WIDTH))
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), scripted)
    with pytest.raises(ValueError, match=r"model: 1 \(TopLevelTracedModule\) is a script"):
        ClippedGradients(flatten(model), made_of.cross_entropy)


class Bagged(nn.Module):
    def __init__(self, table: nn.Module) -> None:
        super().__init__()
        self.table, self.last = table, nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        found = self.table(tokens)
        return self.last(found if found.dim() == 2 else found.mean(1))


class BySparseFunction(nn.Module):
    """Asks for a sparse gradient where no module tells."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(7, WIDTH))

    def forward(self, tokens: Tensor) -> Tensor:
        return nn.functional.embedding(tokens, self.weight, sparse=True)


@pytest.mark.parametrize(
    "table",
    [
        lambda: nn.Embedding(7, WIDTH, sparse=True),
        lambda: nn.EmbeddingBag(7, WIDTH, sparse=True),
        BySparseFunction,
    ],
)
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
def test_sparse_embeddings_have_the_gradients_of_dense_ones(table: Callable[[], Any]) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Bagged(table()).double()
    tokens = torch.randint(0, 7, (6, 4), generator=torch.Generator().manual_seed(0))
    targets = torch.arange(6) % CLASSES
    parameters = list(model.parameters())
    expected = []
    for i in range(6):
        loss = made_of.cross_entropy(model(tokens[i : i + 1]), targets[i : i + 1]).sum()
        parts = torch.autograd.grad(loss, parameters)
        expected.append(torch.cat([part.to_dense().reshape(-1) for part in parts]))
    rows = torch.stack(expected)
    whole = (rows * (CLIP / rows.norm(dim=1, keepdim=True)).clamp(max=1)).sum(0)
    found = ClippedGradients(flatten(model), made_of.cross_entropy).clipped_sum(
        tokens, targets, CLIP
    )
    assert whole.norm() > 0.5 * CLIP
    assert torch.allclose(found, whole, rtol=0, atol=1e-12)


class Snooping(Tensor):
    """Gives every row what all rows sum up to."""

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, given: Any = (), named: Any = None
    ) -> Any:
        found = super().__torch_function__(function, types, given, named or {})
        if function is nn.functional.linear:
            found = found + found.sum(0)
        return found


def test_a_tensor_of_one_s_own_class_is_a_plain_one_to_the_model() -> None:
    inputs, targets = records()
    task = Owned(tanh)
    plain = sums(task, inputs, targets)
    assert np.array_equal(plain, sums(task, inputs.as_subclass(Snooping), targets))


def test_an_input_that_is_no_tensor_is_named() -> None:
    clipped = ClippedGradients(flatten(nn.Linear(2, 2)), made_of.cross_entropy)
    with pytest.raises(TypeError, match="inputs hold a str: give tensors"):
        clipped.clipped_sum(["a", "b"], torch.zeros(2, dtype=torch.int64), math.inf)
