"""Other optimizers are torch's own, bit for bit; micro-batches and step counts change no more."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from zerosum.client.spec import TrainSpec
from zerosum.client.task import ClientInfo, TaskError
from zerosum.client.training.batched import BatchedTrainer
from zerosum.client.training.batches import normalised, step_count
from zerosum.client.training.fast import FastTrainer, choose_trainer
from zerosum.client.training.fast_dual import DualLayer
from zerosum.client.training.fast_stacks import StackingTrainer
from zerosum.client.training.initial_model import initial_vector
from zerosum.client.training.local import LocalTrainer
from zerosum.client.training.optimizers import ClientOptimizer
from zerosum.client.training.stacked_records import Member
from zerosum.secagg.randomness import numpy_generator

pytestmark = pytest.mark.usefixtures("one_thread")

NUMBER, COUNT = 7, 11


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def wide() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))


class Unused(nn.Module):
    """A layer that no loss depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.idle = nn.Linear(6, 5), nn.Linear(5, 3), nn.Linear(2, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.second(torch.tanh(self.first(inputs)))
        return outputs


class Task:
    def __init__(self, make: Any = mlp) -> None:
        self.make = make

    def model(self) -> nn.Module:
        model: nn.Module = self.make()
        return model

    def data(self, client: ClientInfo) -> tuple[Tensor, Tensor]:
        return records(client.index)

    def test_data(self) -> None:
        return None

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")


def records(index: int = 0, shape: tuple[int, int] = (COUNT, 6)) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(index)
    inputs = torch.rand(shape, generator=generator)
    return inputs, torch.randint(0, 3, (shape[0],), generator=generator)


def rows(spec: TrainSpec) -> Iterator[np.ndarray]:
    """The documented order of batches, written again."""
    generator, size = numpy_generator(NUMBER, "batch order"), spec.batch_size or COUNT
    for _ in range(spec.epochs or 0):
        order = generator.permutation(COUNT) if size < COUNT else np.arange(COUNT)
        yield from (order[start : start + size] for start in range(0, COUNT, size))


def by_hand(kind: Any, spec: TrainSpec, make: Any = mlp, **options: Any) -> np.ndarray:
    """A loop as any user of torch writes it; the proximal term is part of the loss."""
    model = make()
    start = torch.tensor(initial_vector(Task(make), 0))
    nn.utils.vector_to_parameters(start.clone(), model.parameters())
    optimizer = kind(model.parameters(), lr=spec.lr, **options)
    inputs, targets = records()
    for batch in rows(spec):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs[batch]), targets[batch])
        if spec.proximal:
            moved = nn.utils.parameters_to_vector(model.parameters()) - start
            loss = loss + spec.proximal / 2 * moved.square().sum()
        torch.autograd.backward(loss)
        optimizer.step()
    local = nn.utils.parameters_to_vector(model.parameters()).detach()
    change: np.ndarray = (local - start).numpy()
    return change


OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "Adam": ("Adam", {}),
    "Adam with options": ("Adam", {"betas": [0.8, 0.99], "weight_decay": 0.1, "amsgrad": True}),
    "AdamW": ("AdamW", {"weight_decay": 0.05}),
    "Adagrad": ("Adagrad", {"lr_decay": 0.1}),
    "RMSprop": ("RMSprop", {"momentum": 0.9, "centered": True}),
    "Rprop": ("Rprop", {}),
    "NAdam": ("NAdam", {}),
}


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("make", [mlp, Unused])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_another_optimizer_is_a_hand_run_loop_bit_for_bit(name: str, make: Any) -> None:
    optimizer, options = OPTIMIZERS[name]
    spec = TrainSpec(epochs=3, batch_size=4, lr=0.01, optimizer=optimizer, options=options)
    trainer = LocalTrainer(Task(make), spec)
    start = initial_vector(Task(make), 0)
    trainer.train(start, records(1), 3)  # nothing of one client is in the next
    found = trainer.train(start, records(), NUMBER)
    assert np.array_equal(found, by_hand(getattr(torch.optim, optimizer), spec, make, **options))
    other = by_hand(torch.optim.SGD, spec, make)
    assert not np.allclose(found, other, rtol=1e-2), "the control: SGD is another"


def test_the_proximal_term_is_part_of_the_gradient_of_another_optimizer() -> None:
    spec = TrainSpec(epochs=3, batch_size=4, lr=0.01, optimizer="Adam", proximal=0.5)
    found = LocalTrainer(Task(), spec).train(initial_vector(Task(), 0), records(), NUMBER)
    np.testing.assert_allclose(found, by_hand(torch.optim.Adam, spec), rtol=1e-3, atol=1e-6)
    without = by_hand(torch.optim.Adam, spec.model_copy(update={"proximal": 0.0}))
    assert not np.allclose(found, without, rtol=1e-2), "the control: without the term"


def test_an_optimizer_that_fails_in_a_trial_step_leaves_no_trace() -> None:
    spec = TrainSpec(optimizer="Adam", lr=0.01, epochs=2, batch_size=4)
    trainer, start = LocalTrainer(Task(), spec), initial_vector(Task(), 0)
    assert trainer.trial_step(start, records())
    found = trainer.train(start, records(), NUMBER)
    assert np.array_equal(found, by_hand(torch.optim.Adam, spec))


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("kind", ["fast", "batched", "auto"])
@pytest.mark.parametrize(
    "keys", [{"optimizer": "Adam", "lr": 0.01}, {"micro_batch": 3}], ids=["Adam", "parts"]
)
def test_what_only_the_general_trainer_does_is_left_to_it(kind: str, keys: dict[str, Any]) -> None:
    spec, start = TrainSpec(epochs=2, batch_size=4, **keys), initial_vector(Task(), 0)
    trainer = choose_trainer(Task(), spec, kind=kind)
    assert trainer.name == "general"
    expected = [LocalTrainer(Task(), spec).train(start, records(i), i) for i in range(3)]
    found = [trainer.train(start, records(i), i) for i in range(3)]
    assert all(map(np.array_equal, found, expected))
    if isinstance(trainer, BatchedTrainer | StackingTrainer):
        members = [Member(lambda i=i: records(i), i) for i in range(3)]  # type: ignore[misc]
        outcomes = list(trainer.train_cohort(start, members))
        assert all(
            np.array_equal(one.delta, delta)  # type: ignore[union-attr]
            for one, delta in zip(outcomes, expected, strict=True)
        )


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no such class": (
        {"optimizer": "Adams"},
        r"training.optimizer = 'Adams' is not usable: .*Adam",
    ),
    "LBFGS": ({"optimizer": "LBFGS"}, "training.optimizer = 'LBFGS' is not usable"),
    "another class": ({"optimizer": "lr_scheduler"}, "is not usable"),
    "no such option": ({"optimizer": "Adam", "options": {"beta": 1}}, "Adam says: .*'beta'"),
    "the rate again": ({"optimizer": "Adam", "options": {"lr": 1.0}}, "Adam says: .*'lr'"),
    "out of bounds": ({"optimizer": "Adam", "options": {"betas": [2.0, 0.9]}}, "Invalid beta"),
    "NaN": ({"optimizer": "Adam", "options": {"eps": math.nan}}, "eps = nan: .* finite numbers"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_optimizer_that_cannot_be_had_is_refused_by_its_key(name: str) -> None:
    keys, message = REFUSED[name]
    with pytest.raises(TaskError, match=message) as caught:
        LocalTrainer(Task(), TrainSpec(**keys))
    assert "\n" not in str(caught.value)


def test_the_gradients_of_parameters_are_put_back() -> None:
    parameter = nn.Parameter(torch.zeros(2))
    parameter.grad = kept = torch.ones(2)
    optimizer = ClientOptimizer(TrainSpec(optimizer="Adam"), [parameter])
    optimizer.step([torch.ones(2)], first=True)
    assert parameter.grad is kept
    assert parameter.tolist() == pytest.approx([-0.1, -0.1])


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("part", [1, 3, 4, 100])
@pytest.mark.parametrize("size", [4, None])
@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"momentum": 0.9, "weight_decay": 0.1, "proximal": 0.2},
        {"optimizer": "Adam", "lr": 0.01},
    ],
    ids=["plain", "momentum", "Adam"],
)
def test_parts_of_a_batch_take_the_step_of_the_whole(
    keys: dict[str, Any], size: int | None, part: int
) -> None:
    start = initial_vector(Task(), 0)
    whole = TrainSpec(epochs=2, batch_size=size, **keys)
    cut = TrainSpec(epochs=2, batch_size=size, micro_batch=part, **keys)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
        if dtype == torch.float32 and "optimizer" in keys:
            continue  # Adam divides by roots of what rounding moves
        one, other = (LocalTrainer(Task(), spec, dtype=dtype) for spec in (whole, cut))
        expected, found = (each.train(start, records(), NUMBER) for each in (one, other))
        # Relative to the model: float32 has no more of a change, which is a difference.
        error = np.linalg.norm(found - expected) / np.linalg.norm(start)
        assert error <= tolerance
        if part == 100:
            assert np.array_equal(found, expected)


def test_equal_weights_of_unequal_parts_are_another_step() -> None:
    """The control: eleven records in parts of four and three, as if they counted alike."""
    start, (inputs, targets) = initial_vector(Task(), 0), records()
    spec = TrainSpec(epochs=1, batch_size=None, micro_batch=4)
    found = LocalTrainer(Task(), spec, dtype=torch.float64).train(start, records(), NUMBER)
    model = mlp().double()
    nn.utils.vector_to_parameters(torch.tensor(start, dtype=torch.float64), model.parameters())
    parts = torch.split(torch.arange(COUNT), 4)
    losses = [nn.functional.cross_entropy(model(inputs[p].double()), targets[p]) for p in parts]
    weights = torch.tensor([len(p) / COUNT for p in parts], dtype=torch.float64)
    for shares, same in ((weights, True), (torch.full((3,), 1 / 3), False)):
        total = (torch.stack(losses) * shares).sum()
        gradients = torch.autograd.grad(total, list(model.parameters()), retain_graph=True)
        step = -spec.lr * torch.cat([g.reshape(-1) for g in gradients])
        assert np.allclose(found, step.numpy(), rtol=1e-6, atol=1e-9) == same


def test_parts_of_a_batch_are_never_in_memory_together() -> None:
    taken: list[int] = []

    class Watched(Task):
        def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
            taken.append(len(outputs))
            return super().loss(outputs, targets)

    spec = TrainSpec(epochs=1, batch_size=8, micro_batch=3)
    LocalTrainer(Watched(), spec).train(initial_vector(Task(), 0), records(), NUMBER)
    assert taken == [3, 3, 2, 3]


def test_a_model_that_mixes_records_is_not_cut_into_parts() -> None:
    def mixing() -> nn.Module:
        norm = nn.BatchNorm1d(5, track_running_stats=False)
        return nn.Sequential(nn.Linear(6, 5), norm, nn.Linear(5, 3))

    LocalTrainer(Task(mixing), TrainSpec())
    with pytest.raises(TaskError, match=r"micro_batch = 3: 1 normalises by the records of a batch"):
        LocalTrainer(Task(mixing), TrainSpec(micro_batch=3))


RATES: dict[str, tuple[Any, Any, tuple[int, int], dict[str, Any]]] = {
    "general": (LocalTrainer, mlp, (COUNT, 6), {}),
    "general, momentum": (LocalTrainer, mlp, (COUNT, 6), {"momentum": 0.9}),
    "general, Adam": (LocalTrainer, mlp, (COUNT, 6), {"optimizer": "Adam"}),
    "fast": (FastTrainer, wide, (40, 784), {"epochs": 1}),
    "fast, dual": (FastTrainer, wide, (40, 784), {"epochs": 4}),
    "fast, momentum": (FastTrainer, wide, (40, 784), {"momentum": 0.9}),
    "batched": (BatchedTrainer, mlp, (COUNT, 6), {}),
}


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("name", RATES)
def test_another_rate_gives_the_bits_of_a_trainer_made_with_it(name: str) -> None:
    kind, make, shape, keys = RATES[name]
    task, start = Task(make), initial_vector(Task(make), 0)
    first, second = (TrainSpec(batch_size=10, lr=lr, **keys) for lr in (0.1, 0.003))
    trainer = kind(task, first)
    before = trainer.train(start, records(0, shape), NUMBER)
    if name == "fast, dual":
        assert list(map(bool, trainer._dual_programs.values())) == [True]
    trainer.set_rate(second)
    found = trainer.train(start, records(0, shape), NUMBER)
    assert np.array_equal(found, kind(task, second).train(start, records(0, shape), NUMBER))
    assert not np.array_equal(found, before)
    trainer.set_rate(first)
    assert np.array_equal(trainer.train(start, records(0, shape), NUMBER), before)
    with pytest.raises(ValueError, match="another learning rate, and nothing else"):
        trainer.set_rate(second.model_copy(update={"batch_size": 3}))


@pytest.mark.parametrize("kind", [StackingTrainer, BatchedTrainer])
def test_clients_side_by_side_take_another_rate(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(120, 60), nn.ReLU(), nn.Linear(60, 40))

    monkeypatch.setattr(DualLayer, "pays", lambda self, count, size, steps: True)
    task, start = Task(model), initial_vector(Task(model), 0)
    first, second = (TrainSpec(batch_size=4, epochs=3, lr=lr) for lr in (0.1, 0.003))

    def cohort(trainer: Any) -> list[np.ndarray]:
        members = [Member(lambda i=i: records(i, (11, 120)), i) for i in range(5)]  # type: ignore[misc]
        outcomes = list(trainer.train_cohort(start, members))
        assert all(one.together for one in outcomes)
        return [one.delta for one in outcomes]

    trainer = kind(task, first)
    before = cohort(trainer)
    trainer.set_rate(second)
    found, made = cohort(trainer), cohort(kind(task, second))
    assert all(map(np.array_equal, found, made))
    assert not any(map(np.array_equal, found, before))


def test_an_update_is_scaled_to_the_reference_steps() -> None:
    spec = TrainSpec(epochs=3, batch_size=4, normalise="steps", reference_steps=5)
    delta = np.linspace(-1, 1, 7, dtype=np.float32)
    assert step_count(COUNT, spec) == 9
    scaled = normalised(delta, COUNT, spec)
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled, delta * 5 / 9, rtol=1e-6)
    assert normalised(delta, 0, spec) is delta
    assert normalised(delta, COUNT, TrainSpec()) is delta


KEYS: dict[str, tuple[dict[str, Any], str]] = {
    "options of SGD": ({"options": {"nesterov": True}}, "options = .* is for other optimizers"),
    "momentum of Adam": ({"optimizer": "Adam", "momentum": 0.9}, r'momentum = 0.9 is for .*"SGD"'),
    "decay of Adam": ({"optimizer": "Adam", "weight_decay": 0.1}, "stands in training.options"),
    "no reference": ({"normalise": "steps"}, r"needs training.reference_steps: write .*=50"),
    "a reference alone": ({"reference_steps": 5}, r"reference_steps = 5 is for .*: take it out"),
    "equal steps": (
        {"normalise": "steps", "reference_steps": 5, "steps": 5},
        "is not for training.steps = 5, which all clients take",
    ),
    "Adam's steps": (
        {"normalise": "steps", "reference_steps": 5, "optimizer": "Adam"},
        'is not for training.optimizer = "Adam"',
    ),
    "momentum's steps": (
        {"normalise": "steps", "reference_steps": 5, "momentum": 0.5},
        "is not for training.momentum = 0.5",
    ),
    "proximal steps": (
        {"normalise": "steps", "reference_steps": 5, "proximal": 0.5},
        "is not for training.proximal = 0.5",
    ),
    "statistics": (
        {"normalise": "steps", "reference_steps": 5, "batchnorm": "average"},
        'is not for training.batchnorm = "average"',
    ),
    "statistics of parts": (
        {"micro_batch": 5, "batchnorm": "average"},
        'micro_batch = 5 is not for training.batchnorm = "average"',
    ),
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_that_exclude_each_other_are_named(name: str) -> None:
    keys, message = KEYS[name]
    with pytest.raises(ValueError, match=message):
        TrainSpec(**keys)
