"""Records are the user's: whatever works in place is handed tensors of its own."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from zerosum.client.spec import TrainSpec
from zerosum.client.training.batched import BatchedTrainer
from zerosum.client.training.evaluation import evaluate
from zerosum.client.training.examples import as_examples
from zerosum.client.training.fast import FastTrainer
from zerosum.client.training.initial_model import initial_vector
from zerosum.client.training.local import LocalTrainer
from zerosum.client.training.stacked_records import Member, TrainedClient

pytestmark = pytest.mark.usefixtures("one_thread")

ROWS = 6


class Doubling(nn.Module):
    """Works on its inputs in place, as ``relu_(inputs)`` would."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.linear(inputs.mul_(2))
        return outputs


class InPlace:
    """A task whose model, loss and metrics all write to what they are given."""

    def __init__(self, data: Any) -> None:
        self.records = data

    def model(self) -> nn.Module:
        return Doubling()

    def data(self, client: Any) -> Any:
        return self.records

    def test_data(self) -> Any:
        return self.records

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets.clamp_(max=1), reduction="none")

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        return {"right": outputs.mul_(-1).argmax(1) == targets.add_(1)}


def records() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(ROWS, 4, generator=generator), torch.tensor([0, 1, 2, 0, 1, 2])


def of_arrays() -> Any:
    return tuple(part.numpy() for part in records())


def of_a_dataset() -> Any:
    return torch.utils.data.TensorDataset(*records())


class Views(torch.utils.data.Dataset[Any]):
    """Gives views of its rows."""

    def __init__(self) -> None:
        self.tensors = records()

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> Any:
        return self.tensors[0][index], self.tensors[1][index]


KINDS: dict[str, Callable[[], Any]] = {
    "tensors": records,
    "arrays": of_arrays,
    "a data set of tensors": of_a_dataset,
    "part of one": lambda: torch.utils.data.Subset(of_a_dataset(), list(range(ROWS))),
    "a data set of views": Views,
}


def entries(data: Any) -> list[np.ndarray]:
    if isinstance(data, torch.utils.data.Subset):
        data = data.dataset
    return [torch.as_tensor(part).clone().numpy() for part in getattr(data, "tensors", data)]


SPEC = TrainSpec(epochs=3, batch_size=None, lr=0.1)


def local(task: InPlace, start: np.ndarray) -> np.ndarray:
    return LocalTrainer(task, SPEC).train(start, task.records, 1)


def fast(task: InPlace, start: np.ndarray) -> np.ndarray:
    return FastTrainer(task, SPEC).train(start, task.records, 1)


def batched(task: InPlace, start: np.ndarray) -> list[TrainedClient | Exception]:
    return list(BatchedTrainer(task, SPEC).train_cohort(start, [Member(lambda: task.records, 1)]))


def evaluated(task: InPlace, start: np.ndarray) -> object:
    return LocalTrainer(task, SPEC).evaluate(start, task.records)


def tried_out(task: InPlace, start: np.ndarray) -> object:
    LocalTrainer(task, SPEC).trial_evaluation(start, task.records)
    return None


def predicted(task: InPlace, start: np.ndarray) -> object:
    inputs = torch.as_tensor(entries(task.records)[0])
    kept = inputs.clone()
    LocalTrainer(task, SPEC).predict(start, inputs)
    assert torch.equal(inputs, kept)
    return None


USES = [local, fast, batched, evaluated, tried_out, predicted]


@pytest.mark.quick_one_in(7)
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", KINDS)
def test_records_are_as_they_were_after(kind: str, use: Callable[..., object]) -> None:
    task = InPlace(KINDS[kind]())
    before = entries(task.records)
    use(task, initial_vector(task, 0))
    for one, other in zip(before, entries(task.records), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_of_all_records_shares_no_memory_with_them(kind: str) -> None:
    data = KINDS[kind]()
    before = entries(data)
    inputs, targets = as_examples(data, torch.float32, torch.device("cpu")).all()
    inputs.zero_()
    targets.zero_()
    for one, other in zip(before, entries(data), strict=True):
        np.testing.assert_array_equal(one, other)


def test_training_in_place_gives_what_plain_torch_gives_on_fresh_copies() -> None:
    task = InPlace(records())
    start = initial_vector(task, 0)
    model = Doubling()
    torch.nn.utils.vector_to_parameters(torch.tensor(start), model.parameters())
    descent = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        inputs, targets = records()
        descent.zero_grad()
        task.loss(model(inputs), targets).mean().backward()  # type: ignore[no-untyped-call]
        descent.step()
    wanted = torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy() - start
    (together,) = batched(task, start)
    assert isinstance(together, TrainedClient)
    for found in (local(task, start), fast(task, start), together.delta):
        np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_a_metric_that_works_in_place_changes_no_loss() -> None:
    class Plain(InPlace):
        metrics = None  # type: ignore[assignment]

    found = []
    for kind in (InPlace, Plain):
        task = kind(records())
        model = task.model()
        torch.nn.utils.vector_to_parameters(torch.ones(15), model.parameters())
        found.append(evaluate(model, task.records, task)["loss"])
    assert found[0] == found[1]


def test_losses_that_write_change_nothing_that_the_rules_of_common_layers_go_on_with() -> None:
    class Common(InPlace):
        writes = False

        def model(self) -> nn.Module:
            return nn.Sequential(nn.Linear(4, 3))

        def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
            losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
            if self.writes and not torch.is_grad_enabled():
                outputs.detach().zero_()
                targets.zero_()
            return losses

    task = Common(records())
    start = initial_vector(task, 0)
    spec = TrainSpec(epochs=2, batch_size=None, lr=0.1)
    trainer = FastTrainer(task, spec)
    assert trainer.name == "fast"
    task.writes = True

    class Kind(Common):
        def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
            return nn.functional.cross_entropy(outputs, targets, reduction="none")

    wanted = LocalTrainer(Kind(records()), spec).train(start, records(), 1)
    np.testing.assert_allclose(trainer.train(start, task.records, 1), wanted, atol=1e-6)
