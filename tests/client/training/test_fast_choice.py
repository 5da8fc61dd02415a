"""Models, losses and data without hand-derived rules keep the bits of the general path."""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from pictures import CLASSES, Task, ends, frozen, gradient_hooked, images, mlp, tied
from torch import Tensor, nn

from zerosum.client.spec import TrainSpec
from zerosum.client.task import TaskError
from zerosum.client.training.compute import LocalComputation
from zerosum.client.training.fast import choose_trainer
from zerosum.client.training.fast_model import Program
from zerosum.client.training.initial_model import initial_vector
from zerosum.client.training.local import LocalTrainer

pytestmark = pytest.mark.usefixtures("one_thread")
SEED = 7
SPEC = TrainSpec(steps=7, batch_size=5, momentum=0.5, weight_decay=0.01, proximal=0.1)


def cnn() -> nn.Module:
    return ends(
        5 * 2 * 3,
        nn.Conv2d(1, 3, 5, 2, 2),
        nn.ReLU(),
        nn.Conv2d(3, 5, 3, padding=1),
        nn.MaxPool2d(2),
    )


class Own(nn.Sequential):
    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = super().forward(inputs)
        return outputs * 2


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(120, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.linear(inputs.flatten(1)).tanh()
        return outputs


def twice() -> nn.Module:
    layer = nn.Linear(120, 120)
    return nn.Sequential(nn.Flatten(), layer, nn.ReLU(), layer, nn.Linear(120, CLASSES))


def hooked() -> nn.Module:
    model = mlp()
    model[3].register_forward_hook(lambda module, inputs, outputs: outputs * 2)
    return model


def patched() -> nn.Module:
    model = mlp()
    model[3].forward = lambda inputs: inputs[:, :CLASSES] * 2  # type: ignore[method-assign]
    return model


UNSUPPORTED: dict[str, Callable[[], nn.Module]] = {
    "group norm": lambda: ends(480, nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4)),
    "dropout": lambda: ends(120, nn.Dropout(0.3)),
    "an activation of another kind": lambda: nn.Sequential(ends(120), nn.Tanh()),
    "groups": lambda: ends(
        480, nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1, groups=2)
    ),
    "reflected margins": lambda: ends(480, nn.Conv2d(1, 4, 3, padding=1, padding_mode="reflect")),
    "a forward of its own": lambda: Own(nn.Flatten(), nn.Linear(120, CLASSES)),
    "a forward put in place": patched,
    "a functional module": Functional,
    "tied weights": tied,
    "a layer twice": twice,
    "frozen": frozen,
    "a hook": hooked,
    "a hook on gradients": gradient_hooked,
    "a parametrization": lambda: nn.Sequential(
        nn.Flatten(), nn.utils.parametrizations.weight_norm(nn.Linear(120, CLASSES))
    ),
}


def falls_back(task: Any, data: Any, *, name: str = "general") -> None:
    """Train in both ways and compare bits."""
    chosen = choose_trainer(task, SPEC)
    assert chosen.name == name
    start = initial_vector(task, 0)
    wanted = LocalTrainer(task, SPEC).train(start, data, SEED)
    assert np.array_equal(chosen.train(start, data, SEED), wanted)
    assert wanted.any()


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("model", UNSUPPORTED.values(), ids=UNSUPPORTED.keys())
def test_other_models_keep_the_general_bits(model: Callable[[], nn.Module]) -> None:
    falls_back(Task(model), images())


def test_embeddings_keep_the_general_bits() -> None:
    words = torch.arange(44).view(11, 4) % 13
    model = Task(lambda: nn.Sequential(nn.Embedding(13, 3), ends(12)))
    falls_back(model, (words, images()[1]))


def twice_the_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return 2 * nn.functional.cross_entropy(outputs, targets, reduction="none")


def smoothed(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none", label_smoothing=0.1)


def one_class_heavier(outputs: Tensor, targets: Tensor) -> Tensor:
    weight = torch.tensor([1, 1, 1, 1, 1.01], dtype=outputs.dtype)
    return nn.functional.cross_entropy(outputs, targets, weight, reduction="none")


def cut(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none").clamp(max=50)


def straight_through(outputs: Tensor, targets: Tensor) -> Tensor:
    losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
    return losses.detach() + 3 * (losses - losses.detach())


def squares(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - nn.functional.one_hot(targets, CLASSES)).square().sum(1)


@pytest.mark.parametrize(
    "loss", [twice_the_loss, smoothed, one_class_heavier, cut, straight_through, squares]
)
def test_other_losses_are_never_trained_as_cross_entropy(loss: Any) -> None:
    falls_back(Task(mlp, loss), images())


def test_a_loss_that_changes_with_the_client_is_noticed_in_its_first_batch() -> None:
    class Weighted(Task):
        weight = 1.0

        def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
            return super().loss(outputs, targets) * self.weight

    task = Weighted(mlp)
    chosen = choose_trainer(task, SPEC)
    assert chosen.name == "fast"
    start = initial_vector(task, 0)
    task.weight = 2.0
    wanted = LocalTrainer(task, SPEC).train(start, images(), SEED)
    assert np.array_equal(chosen.train(start, images(), SEED), wanted)


def test_rules_that_differ_from_autograd_are_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    descend = Program.descend

    def off_by_a_percent(self: Program, targets: Tensor) -> None:
        self._mean *= 1.01
        descend(self, targets)

    monkeypatch.setattr(Program, "descend", off_by_a_percent)
    with caplog.at_level(logging.INFO, "zerosum.client"):
        falls_back(Task(cnn), images(), name="fast")
    assert "gradients differ" in caplog.text


def test_what_a_client_brings_instead_of_classes_takes_the_general_path() -> None:
    inputs, targets = images()
    skipped = torch.where(targets == 0, -100, targets)  # cross-entropy ignores these
    falls_back(Task(mlp), (inputs, skipped), name="fast")
    shares = nn.functional.one_hot(targets, CLASSES).float()
    falls_back(Task(mlp), (inputs, shares), name="fast")
    falls_back(Task(mlp), (inputs.flatten(1), targets.to(torch.uint8)), name="fast")


def test_mistakes_are_told_as_the_general_path_tells_them() -> None:
    start, (inputs, targets) = initial_vector(Task(mlp), 0), images()
    trainer = choose_trainer(Task(mlp), SPEC)
    for data, error in (
        ((inputs, targets + 3), IndexError),
        ((inputs[:, :, :5], targets), RuntimeError),
        ((inputs.long(), targets), TaskError),
        ((inputs, targets[:3]), TaskError),
    ):
        with pytest.raises(error):
            trainer.train(start, data, SEED)
    with pytest.raises(ValueError, match="the vector has shape"):
        trainer.train(start[:5], images(), SEED)


def test_a_reason_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "zerosum.client"):
        trainer = choose_trainer(Task(tied), SPEC)
        for _ in range(2):
            trainer.train(initial_vector(trainer.task, 0), images(), SEED)
    assert caplog.text.count("shared") == 1


def test_clients_are_answered_by_the_chosen_trainer() -> None:
    class Question:
        training, seed = SPEC, 0

    assert LocalComputation(Task(cnn))._trainer(Question()).name == "fast"  # type: ignore[arg-type]
    assert LocalComputation(Task(tied))._trainer(Question()).name == "general"  # type: ignore[arg-type]
