"""State and coins in odd places: what an example adds to a sum follows from that example alone."""

import array
import functools
import itertools
import logging
import random
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from zerosum.client.spec import PrivacySpec, TrainSpec
from zerosum.client.task import TaskError
from zerosum.client.training import dpsgd
from zerosum.client.training.dpsgd import ExampleTrainer
from zerosum.client.training.initial_model import initial_vector
from zerosum.client.training.torch_seed import all_seeded, coins_apart
from zerosum.secagg.randomness import insecure_keystream

WIDTH, CLASSES, EXAMPLES, CLIP = 4, 3, 10, 0.3
EVERY = PrivacySpec(unit="example", examples=40, lot=40, clip=CLIP, noise_multiplier=1.0)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dpsgd, "BATCH", 4)
    monkeypatch.setattr(logging.getLogger("zerosum.client"), "disabled", True)


class OddTask:
    """A linear model of what a function makes of its inputs and of something that it holds."""

    def __init__(self, changed: Callable[[Any, Tensor], Tensor], held: Any = None) -> None:
        self.changed, self.held = changed, held

    def model(self) -> nn.Module:
        return Odd(self.changed, self.held() if callable(self.held) else self.held)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")


class Odd(nn.Module):
    def __init__(self, changed: Callable[[Any, Tensor], Tensor], held: Any) -> None:
        super().__init__()
        self.last = nn.Linear(WIDTH, CLASSES)
        self.changed, self.held = changed, held

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.changed(self, inputs))


def farthest(task: Any) -> float:
    """Return how far one example more moves the sum, in clips, with the same coins."""
    coins = torch.Generator().manual_seed(0)
    inputs = torch.randn(EXAMPLES, WIDTH, generator=coins, dtype=torch.float64)
    targets = torch.randint(CLASSES, (EXAMPLES,), generator=coins)
    start = initial_vector(task, 0)

    def descent(left_out: int | None) -> np.ndarray:
        kept = [i for i in range(EXAMPLES) if i != left_out]
        made = ExampleTrainer(task, TrainSpec(steps=1), EVERY)
        data = inputs[kept], targets[kept]
        return made.descent(start, lambda: data, insecure_keystream(5, "examples"))

    whole = descent(None)
    assert np.linalg.norm(whole) > CLIP / 2, "nothing is trained"
    return max(float(np.linalg.norm(whole - descent(i))) for i in (0, 1, 5)) / CLIP


class Slotted:
    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = 0.0


class Named:
    last = 0.0

    def moved(self, inputs: Tensor) -> Tensor:
        found = inputs + 3 * self.last
        self.last = float(inputs.sum())
        return found


class NamedDict(dict[str, float]):
    last = 0.0


KEPT_ALIVE = Named()


def by_list(held: list[float], inputs: Tensor) -> Tensor:
    found = inputs + 3 * held[0]
    held[0] = float(inputs.sum())
    return found


def by_default(inputs: Tensor, held: list[float] = [0.0]) -> Tensor:  # noqa: B006
    return by_list(held, inputs)


def by_closure() -> Callable[[Tensor], Tensor]:
    last = 0.0

    def moved(inputs: Tensor) -> Tensor:
        nonlocal last
        found = inputs + 3 * last
        last = float(inputs.sum())
        return found

    return moved


def by_attribute(model: Any, inputs: Tensor) -> Tensor:
    found = inputs + 3 * getattr(model, "last", 0.0)
    model.last = float(inputs.sum())
    return found


def by_gradient(model: Any, inputs: Tensor) -> Tensor:
    weight = model.last.weight
    found = inputs if weight.grad is None else inputs + weight.grad[0]
    weight.grad = inputs.detach().sum(0).expand_as(weight).clone()
    return found + 0 * float(inputs.sum())


def called(model: Any, inputs: Tensor) -> Tensor:
    result: Tensor = model.held(inputs)
    return result


def freezes(model: Any, inputs: Tensor) -> Tensor:
    if float(inputs[0, 0]) > 0:
        model.last.bias.requires_grad_(False)
        model.last.weight.requires_grad_(False)
    return inputs


class Descriptor:
    """An object that is its own attribute of every class, as functions are."""

    def __init__(self) -> None:
        self.last = 0.0

    def __get__(self, _instance: Any, _owner: Any) -> "Descriptor":
        return self


class Describing:
    kept = Descriptor()


class Caching:
    @functools.cache  # noqa: B019
    def first_seen(self) -> float:
        return float(self.seen.sum())

    def moved(self, inputs: Tensor) -> Tensor:
        self.seen = inputs.detach()
        return inputs * (1 + self.first_seen())


STATE = {
    "a class's descriptor": (lambda m, x: by_attribute(m.held.kept, x), Describing),
    "a method's cache": (lambda m, x: m.held.moved(x), Caching),
    "a bound method": (called, lambda: Named().moved),
    "a partial call": (called, lambda: functools.partial(by_list, [0.0])),
    "a closure": (called, by_closure),
    "a default": (called, lambda: by_default),
    "a slot": (lambda m, x: by_attribute(m.held, x), Slotted),
    "a class": (lambda m, x: by_attribute(m.held, x), lambda: Named),
    "a dictionary's attribute": (lambda m, x: by_attribute(m.held, x), NamedDict),
    "a dictionary's key": (lambda m, x: by_attribute(next(iter(m.held)), x), lambda: {Named(): 1}),
    "a weak reference": (
        lambda m, x: by_attribute(m.held(), x),
        lambda: weakref.ref(KEPT_ALIVE),
    ),
    "a flat array": (lambda m, x: by_list(m.held, x), lambda: array.array("d", [0.0])),
    "an array of lists": (
        lambda m, x: by_list(m.held[0], x),
        lambda: np.array([[0.0], None], dtype=object),
    ),
    "a long list's item": (
        lambda m, x: by_list(m.held[3], x),
        lambda: [[0.0] for _ in range(1500)],
    ),
    "a parameter's attribute": (lambda m, x: by_attribute(m.last.weight, x), None),
    "a parameter's gradient": (by_gradient, None),
    "whether parameters are trained": (freezes, None),
}


@pytest.mark.slow
@pytest.mark.parametrize("where", STATE)
def test_what_an_example_leaves_in_odd_places_is_put_back(where: str) -> None:
    changed, held = STATE[where]
    assert farthest(OddTask(changed, None if held is None else lambda: held())) <= 1.0000001


def test_an_iterator_is_refused_by_name() -> None:
    task = OddTask(lambda m, x: x * (1 + next(m.held)), itertools.count)
    with pytest.raises(TaskError, match=r"held is an iterator \(count\): nothing can put it back"):
        ExampleTrainer(task, TrainSpec(steps=1), EVERY)  # type: ignore[arg-type]


def test_a_sparse_buffer_is_kept_like_any_other() -> None:
    class Graph(OddTask):
        def model(self) -> nn.Module:
            made = super().model()
            near = (1.0 + torch.eye(WIDTH)).to_sparse()
            made.register_buffer("near", near, persistent=False)  # no file of tensors holds it
            return made

    assert farthest(Graph(lambda m, x: (m.near.to(x.dtype) @ x.T).T)) <= 1.0000001


def projected(seed: Callable[[], Any]) -> Callable[[Any, Tensor], Tensor]:
    def changed(model: Any, inputs: Tensor) -> Tensor:
        with torch.random.fork_rng(devices=[]):
            generator = seed()
            directions = torch.randn(WIDTH, WIDTH, dtype=inputs.dtype, generator=generator)
        return inputs @ directions

    return changed


CHANGES: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "normalises in place": lambda m, x: x.sub_(0.3).mul_(2.0),
    "normalises in place and asks": lambda m, x: x.sub_(0.3).mul_(2.0 + 0 * float(x.sum())),
    "seeds torch's generator": projected(lambda: torch.manual_seed(0) and None),
    "draws from a generator of its own": projected(lambda: torch.Generator().manual_seed(3)),
    "looks behind its view": lambda m, x: x + 3 * (0 if x._base is None else x._base.sum(0)),
    "measures the storage": lambda m, x: x * x.untyped_storage().nbytes() / 32,
}


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("what", CHANGES)
def test_a_model_s_place_in_its_batch_changes_nothing_for_it(what: str) -> None:
    assert farthest(OddTask(CHANGES[what])) <= 1.0000001


def unpacked_by_all(model: Any, inputs: Tensor) -> Tensor:
    def unpack(kept: Tensor) -> Tensor:
        return kept * (1 + kept.abs().sum())

    with torch.autograd.graph.saved_tensors_hooks(lambda given: given * 1.0, unpack):
        return torch.tanh(model.held(inputs))


def test_saved_tensors_are_unpacked_of_one_example_at_a_time() -> None:
    assert farthest(OddTask(unpacked_by_all, lambda: nn.Linear(WIDTH, WIDTH))) <= 1.0000001


class RollsRows:
    """A batching rule that an operation inherits."""

    @staticmethod
    def vmap(info: Any, places: Any, rows: Tensor) -> tuple[Tensor, int]:
        return rows + 5 * rows.roll(1, 0), 0


class Rolled(RollsRows, torch.autograd.Function):
    @staticmethod
    def forward(rows: Tensor) -> Tensor:
        return rows.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


def test_an_inherited_batching_rule_is_not_used_either() -> None:
    before = Rolled.vmap
    assert farthest(OddTask(lambda m, x: Rolled.apply(x))) <= 1.0000001
    assert Rolled.vmap is before
    assert "vmap" not in vars(Rolled)


class MixingTensor(Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = super().__torch_function__(func, types, args, kwargs or {})
        if func is torch.nn.functional.linear:
            found = found.as_subclass(Tensor)
            return found + 5 * found.roll(1, 0)
        return found


def test_a_tensor_with_code_of_its_own_makes_a_layer_unknown() -> None:
    class Fixed(OddTask):
        def model(self) -> nn.Module:
            first = nn.Linear(WIDTH, WIDTH, bias=False)
            weight = first.weight.detach().double().as_subclass(MixingTensor)
            del first.weight
            first.weight = weight
            return nn.Sequential(first, nn.Linear(WIDTH, CLASSES))

    assert farthest(Fixed(called)) <= 1.0000001


def test_a_loss_that_seeds_the_generator_gives_every_example_the_same_coins() -> None:
    class Seeds(OddTask):
        def model(self) -> nn.Module:
            return nn.Sequential(nn.Linear(WIDTH, CLASSES))

        def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
            torch.manual_seed(1)
            return super().loss(outputs * 4 * torch.rand(CLASSES), targets)

    assert farthest(Seeds(called)) <= 1.0000001


def drawn() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))  # noqa: NPY002


def test_every_global_generator_is_seeded_by_the_coins_and_put_back() -> None:
    random.seed(7)
    np.random.seed(7)  # noqa: NPY002
    torch.manual_seed(7)
    public = drawn()
    random.seed(7)
    np.random.seed(7)  # noqa: NPY002
    torch.manual_seed(7)
    with all_seeded(b"12345678"):
        one = drawn()
    with all_seeded(b"12345679"):
        other = drawn()
    assert not {*one} & {*other}
    assert not {*one} & {*public}
    assert drawn() == public


def test_coins_drawn_or_seeded_inside_a_block_move_none_after_it() -> None:
    def after(inside: Callable[[], object]) -> tuple[float, float, float]:
        with all_seeded(5):
            with coins_apart():
                inside()
            return drawn()

    assert after(drawn) == after(lambda: None) == after(lambda: torch.manual_seed(0))
