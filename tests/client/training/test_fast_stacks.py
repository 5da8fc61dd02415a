"""Clients side by side: each has the bits that it has by itself, and its own failures."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from pictures import CLASSES, Task, images, mlp
from torch import Tensor, nn

from zerosum.client.protocol.noise_source import SeededEntropy
from zerosum.client.request import ModelQuestion, ModelRequest, model_payload
from zerosum.client.spec import DataSpec, EncodingSpec, ModelSpec, PrivacySpec, TrainSpec
from zerosum.client.task import ClientInfo
from zerosum.client.training import fast_stacks
from zerosum.client.training.compute import LocalComputation
from zerosum.client.training.fast_dual import DualLayer, DualProgram
from zerosum.client.training.fast_stacks import MOST_CLIENTS, StackingTrainer
from zerosum.client.training.initial_model import initial_vector
from zerosum.client.training.local import LocalTrainer
from zerosum.client.training.stacked_records import Member, TrainedClient

pytestmark = pytest.mark.usefixtures("one_thread", "always")


def wide(bias: bool = True) -> nn.Module:
    """Return a model of products large enough to be the library's, whose bits do not depend on it.

    torch multiplies many matrices of less than 400 operations in another way than one.
    """
    return nn.Sequential(
        nn.Flatten(), nn.Linear(120, 60, bias), nn.ReLU(), nn.Linear(60, CLASSES, bias)
    )


MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": wide,
    "without bias": lambda: wide(bias=False),
    "one layer alone": lambda: nn.Sequential(nn.Flatten(), nn.Linear(120, 40)),
    "three layers": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(120, 50), nn.ReLU(), nn.Linear(50, 40), nn.ReLU(), nn.Linear(40, 9)
    ),
    "too small": mlp,
}
SPECS = {
    "one epoch": TrainSpec(epochs=1, batch_size=4),
    "epochs": TrainSpec(epochs=3, batch_size=4),
    "everything at once": TrainSpec(epochs=3, batch_size=None),
    "one step": TrainSpec(steps=1, batch_size=None),
    "less than an epoch": TrainSpec(steps=2, batch_size=3),
    "one epoch and a part": TrainSpec(steps=6, batch_size=3),
}


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the dual form also where it costs more."""
    monkeypatch.setattr(DualLayer, "pays", lambda self, count, size, steps: True)


@pytest.fixture
def stacks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the clients of each training in the dual form, comparisons left out."""
    seen: list[int] = []
    train = DualProgram.train

    def counting(self: DualProgram, model: np.ndarray, orders: Any, check: Any) -> list[bool]:
        if check.__name__ != "<lambda>":
            seen.append(self.form.clients)
        return train(self, model, orders, check)

    monkeypatch.setattr(DualProgram, "train", counting)
    return seen


def records(number: int, count: int = 11) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(number)
    inputs = torch.rand((count, 1, 10, 12), generator=generator)
    return inputs, torch.randint(CLASSES, (count,), generator=generator)


def members(*counts: int) -> Iterator[Member]:
    """Yield clients of so many records, no two alike."""
    for number, count in enumerate(counts):
        yield Member(lambda number=number, count=count: records(number, count), number)  # type: ignore[misc]


def changes(
    trainer: StackingTrainer, start: np.ndarray, clients: Iterator[Member]
) -> list[np.ndarray]:
    found = []
    for outcome in trainer.train_cohort(start, clients):
        assert isinstance(outcome, TrainedClient)
        found.append(outcome.delta)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_clients_of_a_stack_have_the_bits_that_each_has_by_itself(
    model: Callable[[], nn.Module], spec: TrainSpec, dtype: torch.dtype
) -> None:
    task, start = Task(model), initial_vector(Task(model), 0)
    found = changes(StackingTrainer(task, spec, dtype=dtype), start, members(*[11] * 13))
    for number, change in enumerate(found):
        trainer = StackingTrainer(task, spec, dtype=dtype)
        alone = trainer.train(start, records(number), number)
        assert np.array_equal(change, alone)
        exact = LocalTrainer(task, spec, dtype=torch.float64)
        wanted = exact.train(start, records(number), number)
        np.testing.assert_allclose(
            change, wanted, rtol=0, atol=1e-12 if dtype == torch.float64 else 1e-5
        )
    assert not np.array_equal(found[0], found[1])


def test_clients_that_follow_one_another_are_trained_side_by_side(stacks: list[int]) -> None:
    task, start = Task(wide), initial_vector(Task(wide), 0)
    trainer = StackingTrainer(task, SPECS["one epoch"])
    counts = [11] * (MOST_CLIENTS + 3) + [12, 12, 0, 12, 11]
    found = changes(trainer, start, members(*counts))
    assert stacks == [MOST_CLIENTS, 3, 2, 1, 1]
    for number, (count, change) in enumerate(zip(counts, found, strict=True)):
        fresh = StackingTrainer(task, SPECS["one epoch"])
        assert np.array_equal(change, fresh.train(start, records(number, count), number))


def test_a_stack_is_bounded_in_memory(stacks: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    task, start = Task(wide), initial_vector(Task(wide), 0)
    monkeypatch.setattr(fast_stacks, "RECORD_BYTES", 3 * 11 * 120 * 4)
    changes(StackingTrainer(task, SPECS["one epoch"]), start, members(*[11] * 5))
    assert stacks == [3, 2]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30])
def test_a_client_whose_records_are_no_numbers_spoils_no_other(value: float) -> None:
    task, start, spec = Task(wide), initial_vector(Task(wide), 0), SPECS["epochs"]

    def spoilt() -> tuple[Tensor, Tensor]:
        inputs, targets = records(1)
        inputs[4].view(-1)[3] = value
        return inputs, targets

    clients = list(members(*[11] * 4))
    clients[1] = Member(spoilt, 1)
    found = changes(StackingTrainer(task, spec), start, iter(clients))
    for number, change in enumerate(found):
        data = spoilt() if number == 1 else records(number)
        alone = StackingTrainer(task, spec).train(start, data, number)
        assert np.array_equal(change, alone, equal_nan=True)
    assert np.isfinite(found[0]).all()
    assert not np.isfinite(found[1]).all() or value == 1e30


def test_clients_that_fail_or_cannot_be_stacked_keep_their_place(stacks: list[int]) -> None:
    task, start, spec = Task(wide), initial_vector(Task(wide), 0), SPECS["one epoch"]

    def failing() -> tuple[Tensor, Tensor]:
        raise OSError("no such file")

    def one_by_one() -> Any:
        return torch.utils.data.Subset(list(zip(*records(3), strict=True)), range(11))  # type: ignore[arg-type]

    def beyond() -> tuple[Tensor, Tensor]:
        inputs, targets = records(4)
        return inputs, targets + CLASSES

    clients = list(members(*[11] * 7))
    clients[2], clients[3] = Member(failing, 2), Member(one_by_one, 3)
    clients[4] = Member(beyond, 4)
    outcomes = list(StackingTrainer(task, spec).train_cohort(start, clients))
    assert isinstance(outcomes[2], OSError)
    assert isinstance(outcomes[4], Exception)  # of torch's own cross-entropy
    for number in (0, 1, 3, 5, 6):
        outcome = outcomes[number]
        assert isinstance(outcome, TrainedClient)
        data = one_by_one() if number == 3 else records(number)
        assert np.array_equal(outcome.delta, StackingTrainer(task, spec).train(start, data, number))
    assert stacks[:2] == [2, 2]


@pytest.mark.parametrize("where", ["data", "loss"])
def test_a_task_that_exits_is_one_clients_failure(where: str) -> None:
    def leaving(outputs: Tensor, targets: Tensor) -> Tensor:
        if where == "loss" and (targets == 0).all():
            sys.exit(3)
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    def load(number: int) -> tuple[Tensor, Tensor]:
        if where == "data" and number == 2:
            sys.exit(3)
        inputs, targets = records(number)
        return inputs, targets * 0 if number == 2 else targets.clamp(1)

    task, start = Task(wide, leaving), initial_vector(Task(wide), 0)
    clients = [Member(lambda number=number: load(number), number) for number in range(4)]  # type: ignore[misc]
    outcomes = list(StackingTrainer(task, SPECS["one epoch"]).train_cohort(start, clients))
    assert [isinstance(one, SystemExit) for one in outcomes] == [False, False, True, False]


def test_a_client_has_the_same_answer_alone_and_among_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = Task(wide)
    monkeypatch.setattr(task, "data", lambda client: records(client.index))
    question = ModelQuestion(
        kind="train",
        round=1,
        seed=5,
        population=9,
        task="",
        data=DataSpec(),
        model=ModelSpec(),
        training=SPECS["one epoch"],
        privacy=PrivacySpec(model="none"),
        encoding=EncodingSpec(range=1.0),
        noise_draw="summed",
        max_loss=1.0,
    )
    request = ModelRequest(question, model_payload(initial_vector(task, 0)))
    clients = [ClientInfo(index=index, count=9, seed=5) for index in range(9)]
    together = LocalComputation(task).answers(request, clients, SeededEntropy(5))
    for client, answer in zip(clients, together, strict=True):
        alone = LocalComputation(task).update(request, client, SeededEntropy(5))
        assert np.array_equal(answer(), alone)


def test_a_task_may_give_all_clients_one_piece_of_memory() -> None:
    task, start, spec = Task(wide), initial_vector(Task(wide), 0), SPECS["one epoch"]
    inputs, targets = records(0)

    def load(number: int) -> tuple[Tensor, Tensor]:
        for own, part in zip((inputs, targets), records(number), strict=True):
            own.copy_(part)
        return inputs, targets

    clients = (Member(lambda number=number: load(number), number) for number in range(5))  # type: ignore[misc]
    for number, change in enumerate(changes(StackingTrainer(task, spec), start, clients)):
        alone = StackingTrainer(task, spec).train(start, records(number), number)
        assert np.array_equal(change, alone)


def test_a_loss_that_only_all_clients_together_hide_is_noticed() -> None:
    def first_class_twice(outputs: Tensor, targets: Tensor) -> Tensor:
        share = 1 + (targets == 0).to(outputs.dtype) * (len(targets) == 4)
        return nn.functional.cross_entropy(outputs, targets, reduction="none") * share

    task, start, spec = (
        Task(wide, first_class_twice),
        initial_vector(Task(wide), 0),
        SPECS["epochs"],
    )
    assert StackingTrainer(task, spec).name == "fast"
    data = [records(number) for number in range(6)]
    for number, (_, targets) in enumerate(data):
        targets.fill_(0 if number == 3 else 1)  # one client alone has the class
    clients = [Member(lambda pair=pair: pair, number) for number, pair in enumerate(data)]  # type: ignore[misc]
    found = changes(StackingTrainer(task, spec), start, iter(clients))
    for number, change in enumerate(found):
        alone = StackingTrainer(task, spec).train(start, data[number], number)
        assert np.array_equal(change, alone)
    wanted = LocalTrainer(task, spec).train(start, data[3], 3)
    assert np.array_equal(found[3], wanted)


def test_products_that_differ_side_by_side_train_clients_by_themselves(
    stacks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    task, start, spec = Task(wide), initial_vector(Task(wide), 0), SPECS["one epoch"]
    product = torch.bmm
    monkeypatch.setattr(
        torch, "bmm", lambda left, right, out: product(left, right, out=out).mul_(1 + 1e-6)
    )
    found = changes(StackingTrainer(task, spec), start, members(*[11] * 5))
    assert set(stacks) == {1}
    for number, change in enumerate(found):
        alone = StackingTrainer(task, spec).train(start, records(number), number)
        assert np.array_equal(change, alone)


@pytest.mark.slow
def test_memory_that_grows_does_not_move_a_client_in_it() -> None:
    task, start, spec = Task(wide), initial_vector(Task(wide), 0), SPECS["epochs"]
    counts = [5, 5, 60, 60, 60, 5, 90, 11, 11, 90, 90]
    found = changes(StackingTrainer(task, spec), start, members(*counts))
    for number, (count, change) in enumerate(zip(counts, found, strict=True)):
        alone = StackingTrainer(task, spec).train(start, records(number, count), number)
        assert np.array_equal(change, alone)


def test_another_training_between_two_outcomes_is_noticed() -> None:
    task, start = Task(wide), initial_vector(Task(wide), 0)
    trainer = StackingTrainer(task, SPECS["one epoch"])
    outcomes = trainer.train_cohort(start, members(*[11] * 4))
    next(outcomes)
    trainer.train(start, images(), 0)
    with pytest.raises(RuntimeError, match="another client was trained"):
        next(outcomes)


@pytest.mark.parametrize(
    "spec",
    [
        TrainSpec(epochs=1, batch_size=4, momentum=0.9),
        TrainSpec(epochs=1, batch_size=4, proximal=0.1),
    ],
)
def test_other_steps_than_plain_ones_are_not_stacked(spec: TrainSpec) -> None:
    assert not StackingTrainer(Task(wide), spec).stacks
    assert StackingTrainer(Task(wide), SPECS["epochs"]).stacks
