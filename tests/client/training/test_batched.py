"""Clients trained together come to what each comes to alone, whatever the others are like."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from pictures import CLASSES, Task, ends, frozen, gradient_hooked, images, tied
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset, TensorDataset

from zerosum.client.spec import TrainSpec
from zerosum.client.training.batched import BatchedTrainer
from zerosum.client.training.initial_model import initial_vector
from zerosum.client.training.local import LocalTrainer
from zerosum.client.training.projection import Projection
from zerosum.client.training.stacked_records import Member, TrainedClient

pytestmark = pytest.mark.usefixtures("one_thread")
SIZES = (11, 3, 0, 8, 1, 25)
"""Records of the clients in a group: fewer than a batch, none, several epochs of uneven batches."""

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch finds no GPU here")
    return name


def clients(sizes: tuple[int, ...] = SIZES) -> list[Any]:
    return [images(size, seed=place) for place, size in enumerate(sizes)]


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(120, 9), nn.ReLU(), nn.Dropout(0.0), nn.Linear(9, CLASSES)
    )


def cnn() -> nn.Module:
    return ends(
        36,
        nn.Conv2d(1, 4, 5, padding=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, padding=1, bias=False),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )


class Residual(nn.Module):
    """No chain: two ways, a norm, attention and a parameter of its own that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(12)
        self.attention = nn.MultiheadAttention(12, 2, batch_first=True)
        self.scale = nn.Parameter(torch.full((12,), 0.5))
        self.idle = nn.Parameter(torch.ones(3))
        self.last = nn.Linear(12, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        rows = inputs.squeeze(1) * self.scale
        normed = self.norm(rows)
        mixed, _ = self.attention(normed, normed, normed, need_weights=False)
        outputs: Tensor = self.last((rows + mixed * self.scale).mean(1))
        return outputs


MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": mlp,
    "cnn": cnn,
    "strides": lambda: ends(36, nn.Conv2d(1, 4, 3, 2, 1), nn.ReLU(), nn.Conv2d(4, 6, 3, (1, 2), 0)),
    "dilation": lambda: ends(
        4 * 6 * 6, nn.Conv2d(1, 3, 3, dilation=2), nn.Conv2d(3, 4, (1, 3), dilation=(2, 1))
    ),
    "same padding": lambda: ends(240, nn.Conv2d(1, 2, (3, 5), padding="same"), nn.ReLU()),
    "grouped": lambda: ends(480, nn.Conv2d(1, 4, 1), nn.Conv2d(4, 4, 3, padding=1, groups=4)),
    "circular": lambda: ends(240, nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular")),
    "pools": lambda: ends(
        2 * 4 * 5, nn.Conv2d(1, 2, 3), nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(3, 1, 1)
    ),
    "group norm": lambda: ends(240, nn.Conv2d(1, 2, 3, padding=1), nn.GroupNorm(2, 2), nn.Tanh()),
    "residual": Residual,
    "tied": tied,
    "frozen": frozen,
}

SPECS = {
    "plain": TrainSpec(epochs=2, batch_size=4),
    "all": TrainSpec(epochs=3, batch_size=None),
    "momentum": TrainSpec(epochs=2, batch_size=4, momentum=0.9),
    "decay": TrainSpec(epochs=2, batch_size=4, weight_decay=0.1),
    "proximal": TrainSpec(epochs=2, batch_size=4, proximal=0.5),
    "steps": TrainSpec(steps=5, batch_size=3),
    "few steps": TrainSpec(steps=1, batch_size=2),
    "everything": TrainSpec(steps=7, batch_size=5, momentum=0.5, weight_decay=0.01, proximal=0.1),
}


def members(data: list[Any], number: int = 7) -> list[Member]:
    return [Member(lambda one=one: one, number + place) for place, one in enumerate(data)]  # type: ignore[misc]


def together(trainer: BatchedTrainer, start: np.ndarray, data: list[Any]) -> list[np.ndarray]:
    """Return the changes of clients, each of which must have been trained in a group."""
    return list(_deltas(trainer.train_cohort(start, members(data))))


def _deltas(outcomes: Iterator[TrainedClient | Exception]) -> Iterator[np.ndarray]:
    for outcome in outcomes:
        assert isinstance(outcome, TrainedClient), outcome
        assert outcome.together
        yield outcome.delta


def alone(trainer: LocalTrainer, start: np.ndarray, data: list[Any]) -> list[np.ndarray]:
    return [trainer.train(start, one.load(), one.seed) for one in members(data)]


def both(
    task: Any, spec: TrainSpec, data: list[Any], device: str = "cpu", **options: Any
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    dtype = options.pop("dtype", torch.float64)
    start = initial_vector(task, 0)
    group = BatchedTrainer(task, spec, dtype=dtype, device=device, **options)
    assert group.name == "batched"
    return together(group, start, data), alone(LocalTrainer(task, spec, dtype=dtype), start, data)


def check(found: list[np.ndarray], wanted: list[np.ndarray], tolerance: float = 1e-12) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
@pytest.mark.parametrize("spec", [SPECS["plain"], SPECS["everything"]], ids=["plain", "everything"])
def test_every_model_trains_in_a_group_as_alone(
    model: Callable[[], nn.Module], spec: TrainSpec, device: str
) -> None:
    found, wanted = both(Task(model), spec, clients(), device)
    check(found, wanted)
    assert all(np.abs(delta).max() > 1e-4 for delta, n in zip(wanted, SIZES, strict=True) if n)


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_every_option_and_every_size_goes_together(spec: TrainSpec, device: str) -> None:
    found, wanted = both(Task(mlp), spec, clients(), device)
    check(found, wanted)
    assert not wanted[2].any()


@pytest.mark.quick_one_in(2)
@pytest.mark.parametrize("model", [mlp, cnn])
def test_three_rounds_of_averaging_stay_equal(model: Callable[[], nn.Module], device: str) -> None:
    task, spec, data = Task(model), SPECS["everything"], clients()
    group = BatchedTrainer(task, spec, dtype=torch.float64, device=device)
    single = LocalTrainer(task, spec, dtype=torch.float64)
    ours = theirs = initial_vector(task, 0).astype(np.float64)
    for _ in range(3):
        ours = ours + np.mean(together(group, ours, data), axis=0)
        theirs = theirs + np.mean(alone(single, theirs, data), axis=0)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


def test_a_group_of_another_batch_order_is_found_to_differ() -> None:
    task, spec = Task(mlp), SPECS["plain"]
    start, data = initial_vector(task, 0), clients()
    group = BatchedTrainer(task, spec, dtype=torch.float64)
    wanted = alone(LocalTrainer(task, spec, dtype=torch.float64), start, data)
    others = [
        o.delta for o in group.train_cohort(start, members(data, 8)) if isinstance(o, TrainedClient)
    ]
    with pytest.raises(AssertionError):
        check(others, wanted)


def test_float32_agrees_after_one_round(device: str) -> None:
    check(*both(Task(cnn), SPECS["plain"], clients(), device, dtype=torch.float32), 1e-4)


@pytest.mark.parametrize("budget", [1, 40_000, 1 << 40])
def test_the_size_of_a_group_changes_nothing(budget: int) -> None:
    found, wanted = both(Task(mlp), SPECS["momentum"], clients(), budget=budget)
    check(found, wanted)


def test_a_group_is_as_many_clients_as_the_budget_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    task, sizes = Task(mlp), list[int]()
    trainer = BatchedTrainer(task, SPECS["plain"])
    trained = trainer._together

    def counting(start: np.ndarray, group: Any) -> list[np.ndarray]:
        sizes.append(len(group))
        return trained(start, group)

    monkeypatch.setattr(trainer, "_together", counting)
    data = clients((10,) * 9)
    together(trainer, initial_vector(task, 0), data)
    trainer._budget = int(4.5 * trainer._cost(trainer._records(members(data)[0])))
    together(trainer, initial_vector(task, 0), data)
    assert sizes == [9, 4, 4, 1]


def test_out_of_memory_halves_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    task, sizes = Task(mlp), list[int]()
    trainer = BatchedTrainer(task, SPECS["plain"], dtype=torch.float64)
    trained = trainer._together

    def small(start: np.ndarray, group: Any) -> list[np.ndarray]:
        sizes.append(len(group))
        if len(group) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return trained(start, group)

    monkeypatch.setattr(trainer, "_together", small)
    start, data = initial_vector(task, 0), clients((10, 9, 8, 7, 6))
    found = together(trainer, start, data)
    assert sizes == [5, 2, 3]
    check(found, alone(LocalTrainer(task, SPECS["plain"], dtype=torch.float64), start, data))


def test_nan_in_one_client_does_not_reach_another(device: str) -> None:
    data = clients()
    data[0][0][0, 0, 5, 5] = float("nan")
    data[3][0][1, 0, 5, 5] = float("inf")
    found, wanted = both(Task(mlp), SPECS["everything"], data, device)
    check(found, wanted)
    for place, delta in enumerate(found):
        assert np.isfinite(delta).all() == (place not in (0, 3))


def test_a_client_whose_data_raises_fails_alone(device: str) -> None:
    task, spec, data = Task(mlp), SPECS["plain"], clients()
    start = initial_vector(task, 0)

    def broken() -> Any:
        raise OSError("the disk is gone")

    asked = members(data)
    asked[1] = Member(broken, 0)
    trainer = BatchedTrainer(task, spec, dtype=torch.float64, device=device)
    outcomes = list(trainer.train_cohort(start, asked))
    assert isinstance(outcomes[1], OSError)
    wanted = alone(LocalTrainer(task, spec, dtype=torch.float64), start, data)
    del outcomes[1], wanted[1]
    check(list(_deltas(iter(outcomes))), wanted)


@pytest.mark.parametrize("wrong", [CLASSES, -1, 10**9])
def test_a_class_that_there_is_not_fails_alone_and_before_it_reaches_the_device(
    wrong: int, device: str
) -> None:
    task, spec, data = Task(mlp), SPECS["plain"], clients()
    data[3][1][4] = wrong
    start = initial_vector(task, 0)
    trainer = BatchedTrainer(task, spec, dtype=torch.float64, device=device)
    outcomes = list(trainer.train_cohort(start, members(data)))
    assert isinstance(outcomes[3], IndexError)
    assert all(isinstance(o, TrainedClient) and o.together for o in outcomes[:3] + outcomes[4:])


def test_subsets_and_tensor_datasets_go_together() -> None:
    whole = TensorDataset(*images(30))
    data = [Subset(whole, [3, 1, 4, 15, 9, 2, 6]), TensorDataset(*images(9)), images(5)]
    check(*both(Task(mlp), SPECS["everything"], data))


class Noisy(Dataset[Any]):
    """Draws a transform each time an item is read."""

    def __init__(self, count: int) -> None:
        self.inputs, self.targets = images(count)

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> Any:
        return self.inputs[index] + torch.rand(1), int(self.targets[index])


def test_transforms_are_drawn_as_they_are_alone() -> None:
    check(*both(Task(mlp), SPECS["plain"], [Noisy(9), Noisy(4), images(6)]))


def test_records_of_other_shapes_are_other_groups() -> None:
    def model() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 2, 3), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8, CLASSES)
        )

    small = [(x[:, :, 2:, 2:], y) for x, y in clients((4, 6))]
    check(*both(Task(model), SPECS["plain"], [*clients((5, 7)), *small]))


def test_projected_models_train_in_groups() -> None:
    def model() -> nn.Module:
        return nn.Sequential(Projection(120, 6), nn.Linear(6, CLASSES))

    task, spec, data = Task(model), SPECS["momentum"], clients()
    generator = np.random.default_rng(0)
    start = np.concatenate([generator.normal(size=720).astype(np.float32), initial_vector(task, 0)])
    group = BatchedTrainer(task, spec, dtype=torch.float64)
    wanted = alone(LocalTrainer(task, spec, dtype=torch.float64), start, data)
    check(together(group, start, data), wanted)


def test_other_losses_and_targets_go_together() -> None:
    task = Task(mlp, lambda a, b: (a - b).square().mean(1))
    data = [(x, torch.randn(len(x), CLASSES, dtype=torch.float64)) for x, _ in clients((5, 8))]
    check(*both(task, SPECS["plain"], data))


class Mixing(nn.Module):
    """Centres a batch, without saying so by its type."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.inner(inputs - inputs.mean(0))
        return outputs


class Branching(Mixing):
    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.inner(inputs)
        return outputs if float(outputs.sum()) > 0 else outputs * 2


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.last = nn.LSTM(12, 4, batch_first=True), nn.Linear(4, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.last(self.lstm(inputs.squeeze(1))[0][:, -1])
        return outputs


def dropping() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(120, CLASSES))


def normed() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.BatchNorm1d(120, track_running_stats=False), nn.Linear(120, CLASSES)
    )


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize(
    ("model", "known"),
    [
        (Mixing, False),
        (Branching, False),
        (gradient_hooked, True),
        (Recurrent, True),
        (dropping, True),
        (normed, True),
    ],
)
def test_what_cannot_go_together_keeps_the_bits_of_one_by_one_and_says_why(
    model: Callable[[], nn.Module], known: bool, caplog: pytest.LogCaptureFixture
) -> None:
    task, spec, data = Task(model), SPECS["plain"], clients((11, 6, 0, 8))
    start = initial_vector(task, 0)
    with caplog.at_level(logging.WARNING, "zerosum.client"):
        trainer = BatchedTrainer(task, spec)
        assert trainer.name == ("general" if known else "batched")
        outcomes = list(trainer.train_cohort(start, members(data)))
    assert "clients are trained one by one, not together" in caplog.text
    for outcome, wanted in zip(outcomes, alone(LocalTrainer(task, spec), start, data), strict=True):
        assert isinstance(outcome, TrainedClient)
        assert outcome.delta.tobytes() == wanted.tobytes()
    trainer.settle(start, lambda: data[0])
    assert trainer.name == "general"


def test_a_model_is_named_for_what_its_first_records_allow() -> None:
    trainer = BatchedTrainer(Task(cnn), SPECS["plain"])
    trainer.settle(initial_vector(Task(cnn), 0), lambda: images(11))
    assert trainer.name == "batched"


def test_a_model_of_another_length_fails_at_every_client() -> None:
    trainer = BatchedTrainer(Task(mlp), SPECS["plain"])
    outcomes = list(trainer.train_cohort(np.zeros(3, dtype=np.float32), members(clients())))
    assert [type(outcome) for outcome in outcomes] == [ValueError] * len(SIZES)


@pytest.mark.slow
def test_a_step_is_computed_on_one_device() -> None:
    """On the device without memory: whatever was left on the CPU would raise."""
    task = Task(cnn)
    trainer = BatchedTrainer(task, SPECS["everything"])
    trainer.model.to("meta")
    trainer.device = torch.device("meta")
    shapes = trainer.layout.shapes
    weights, momentum, origin = (
        [torch.zeros(*lead, *shape, device="meta") for shape in shapes] for lead in ((3,), (3,), ())
    )
    batch = torch.zeros(3, 4, 1, 10, 12, device="meta")
    classes = torch.zeros(3, 4, dtype=torch.int64, device="meta")
    shares = torch.zeros(3, 4, device="meta")
    with trainer._stacked():
        gradients = trainer._gradients(weights, batch, classes, shares)
        with pytest.raises(RuntimeError):
            trainer._gradients(
                [torch.zeros(part.shape) for part in weights], batch, classes, shares
            )
    trainer._descend_all(weights, gradients, momentum, origin, first=False)
    devices = {None if part is None else part.device.type for part in gradients}
    assert devices == {"meta"}
