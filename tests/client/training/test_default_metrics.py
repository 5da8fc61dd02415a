"""Accuracy is reported where outputs and targets can be nothing but classes, and nowhere else."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from sklearn.metrics import accuracy_score
from torch import Tensor, nn

from zerosum.client.spec import TrainSpec
from zerosum.client.task import TaskError
from zerosum.client.training.default_metrics import accuracy, default_metrics, why_unscored
from zerosum.client.training.evaluation import evaluate, per_example_metrics
from zerosum.client.training.initial_model import initial_vector
from zerosum.client.training.local import LocalTrainer

CLASSES = torch.tensor([0, 1, 1, 0])
THREE = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 0.5], [9.0, 1.0, 0.0], [1.0, 0.0, 0.0]])


def old_rule(outputs: Tensor, targets: Tensor) -> bool:
    """What was scored before: the control, under which most of these had an accuracy."""
    return not targets.is_floating_point() and targets.dim() == 1 and outputs.dim() == 2


def test_classes_have_the_accuracy_of_scikit_learn() -> None:
    found = default_metrics(THREE, CLASSES)["accuracy"].mean().item()
    assert found == accuracy_score(CLASSES, THREE.argmax(1)) == 0.75


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64, torch.bool])
def test_labels_of_any_integer_type_name_classes(dtype: torch.dtype) -> None:
    outputs = THREE[:, :2]
    assert default_metrics(outputs, CLASSES.to(dtype))["accuracy"].tolist() == [1, 1, 0, 1]


@pytest.mark.parametrize(
    ("outputs", "targets", "said"),
    [
        (THREE[:, :1], CLASSES, "one output an example"),
        (THREE[:, 0], CLASSES, "one output an example"),
        (THREE, torch.tensor([0, -100, 1, 2]), "label -100 is none of the model's 3 outputs"),
        (THREE, torch.tensor([0, 3, 1, 2]), "label 3 is none of the model's 3 outputs"),
        (THREE, nn.functional.one_hot(CLASSES, 3), r"shape \(n, 3\)"),
        (THREE, nn.functional.one_hot(CLASSES, 3).float(), "0.0 or 1.0 in floating point"),
        (THREE[:, :1], CLASSES.float(), "0.0 or 1.0 in floating point"),
        (THREE[:, :1], torch.tensor([0.5, 2.0, 7.0, 1.0]), "targets are numbers"),
        (torch.zeros(4, 3, 5), torch.zeros(4, 5, dtype=torch.int64), r"shape \(n, 5\)"),
        (torch.zeros(4, 3, 5), CLASSES, r"shape \(n, 3, 5\)"),
        (THREE.to(torch.complex64), CLASSES, "complex64"),
        ((THREE, THREE), CLASSES, "a tuple, not one tensor"),
        ({"logits": THREE}, CLASSES, "a dict, not one tensor"),
    ],
)
def test_what_may_be_no_class_has_no_accuracy_and_a_reason(
    outputs: Any, targets: Tensor, said: str
) -> None:
    assert default_metrics(outputs, targets) == {}
    assert re.search(said, why_unscored(outputs, targets))


def test_argmax_of_one_logit_was_the_share_of_class_zero() -> None:
    outputs = torch.tensor([[5.0], [5.0], [5.0], [-5.0]])  # all wrong
    targets = torch.tensor([0, 0, 0, 1])
    assert old_rule(outputs, targets)
    assert (outputs.argmax(1) == targets).float().mean() == 0.75
    assert default_metrics(outputs, targets) == {}


def test_a_nan_is_no_class() -> None:
    outputs = THREE.clone()
    outputs[0, 0] = torch.nan  # class 0, whose index argmax gives a NaN
    found = accuracy(outputs, CLASSES)
    assert found.isnan().tolist() == [True, False, False, False]
    assert outputs.argmax(1)[0] == CLASSES[0], "the control: argmax calls the NaN right"


def test_an_infinite_output_is_a_class_or_none() -> None:
    outputs = torch.tensor([[torch.inf, 0.0], [-torch.inf, 0.0]])
    assert accuracy(outputs, torch.tensor([0, 1])).tolist() == [1.0, 1.0]


class Labelled:
    """A linear model of three classes, and labels."""

    def __init__(self, targets: Tensor, make: Callable[[], nn.Module]) -> None:
        self.targets, self.make = targets, make

    def model(self) -> nn.Module:
        return self.make()

    def data(self, client: object) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(0)
        return torch.randn(len(self.targets), 4, generator=generator), self.targets

    def test_data(self) -> tuple[Tensor, Tensor]:
        return self.data(None)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")


def test_a_metric_that_one_batch_lacks_is_none_of_the_data_set() -> None:
    """Its sum over some batches was divided by the records of all."""
    task: Any = Labelled(torch.tensor([0, 1, 2, -100]), lambda: nn.Linear(4, 3))
    assert evaluate(task.model(), task.data(None), task, batch_size=2).keys() == {"loss", "count"}
    trainer = LocalTrainer(task, TrainSpec())
    start = initial_vector(task, 0)
    trainer.evaluate(start, task.data(None), batch_size=2)
    assert "label -100" in trainer.unscored
    scored = trainer.evaluate(start, task.data(None), records=3)
    assert scored.keys() == {"loss", "accuracy", "count"}
    assert scored["count"] == 3
    assert trainer.unscored == ""


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("cut_of", torch.ones(4), "the name 'cut_of'; give it another one, other than loss"),
        ("loss_noise_std", torch.ones(4), "not ending with _noise_std"),
        (3, torch.ones(4), "the name 3;"),
        ("bias", None, "bias as a NoneType and no tensor; return one real number an example"),
        ("bias", 1.0, "bias as a float and no tensor"),
        ("bias", torch.ones(4, 1), r"bias as shape \(4, 1\) for 4 examples"),
        ("bias", torch.ones(4, dtype=torch.complex64), "bias as torch.complex64 and no real"),
    ],
)
def test_metrics_that_cannot_be_summed_are_refused_by_name(name, value, said) -> None:
    """A cast drops imaginary parts, and a name of the line's own is overwritten in it."""

    class Own:
        def metrics(self, outputs: Tensor, targets: Tensor) -> dict[Any, Any]:
            return {name: value}

    with pytest.raises(TaskError, match=f"metrics returned {said}" if said[0] != "n" else said):
        per_example_metrics(Own(), THREE, CLASSES)  # type: ignore[arg-type]  # no more is asked
