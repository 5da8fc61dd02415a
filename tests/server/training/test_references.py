"""Constant predictors: the figures that a model which looks at nothing would have."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.dummy import DummyClassifier, DummyRegressor
from torch import nn

from zerosum.server.runs.records import RoundRecord, Summary
from zerosum.server.runs.reference_words import (
    not_better,
    predictor_in_words,
    reference_of,
    worse_losses,
)
from zerosum.server.training.class_figures import classified
from zerosum.server.training.references import reference


def loss(function):
    return lambda outputs, targets: function(outputs.squeeze(1), targets, reduction="none")


SQUARED = SimpleNamespace(loss=loss(nn.functional.mse_loss))
ENTROPY = SimpleNamespace(
    loss=lambda outputs, targets: nn.functional.cross_entropy(outputs, targets, reduction="none")
)


def compared(task, outputs, targets, measured):
    return reference(task, outputs, targets, classified(task, outputs, targets), measured)


def test_majority_class_is_that_of_scikit_learn() -> None:
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(4, (101,), generator=generator)
    outputs = torch.randn(101, 4, generator=generator)
    accuracy = float((outputs.argmax(1) == targets).float().mean())
    found = compared(ENTROPY, outputs, targets, {"test_accuracy": accuracy})
    dummy = DummyClassifier().fit(np.zeros((101, 1)), targets)
    assert found["metrics"] == {"test_accuracy": dummy.score(np.zeros((101, 1)), targets)}
    assert found["label"] == int(dummy.predict([[0]])[0])


def test_an_accuracy_of_another_kind_has_no_reference() -> None:
    outputs, targets = torch.eye(4), torch.tensor([0, 1, 2, 0])
    found = compared(ENTROPY, outputs, targets, {"test_accuracy": 0.9})
    assert found == {"reason": "the task's accuracy is not the part of test examples that is right"}
    assert compared(ENTROPY, outputs, targets, {})["reason"] == "the task has no accuracy"


def test_a_diverged_model_has_a_reference_all_the_same() -> None:
    outputs, targets = torch.eye(4), torch.tensor([0, 1, 2, 0])
    found = compared(ENTROPY, outputs, targets, {"test_accuracy": float("nan")})
    assert found["metrics"] == {"test_accuracy": 0.5}


@pytest.mark.parametrize("axis", [1, 2])
def test_sequences_are_compared_by_position(axis) -> None:
    generator = torch.Generator().manual_seed(1)
    targets = torch.randint(3, (6, 5), generator=generator)
    outputs = torch.randn(6, 5, 3, generator=generator)
    accuracy = float((outputs.argmax(2) == targets).double().mean())
    outputs = outputs if axis == 2 else outputs.transpose(1, 2)
    found = compared(ENTROPY, outputs, targets, {"test_accuracy": accuracy})
    expected = max((targets == label).double().mean().item() for label in range(3))
    assert found["metrics"]["test_accuracy"] == pytest.approx(expected)
    padded = compared(ENTROPY, outputs, targets, {"test_accuracy": accuracy / 2})
    assert "positions" in padded["reason"]


def test_mean_predictor_is_that_of_scikit_learn_in_the_labels_unit() -> None:
    targets = torch.randn(200, generator=torch.Generator().manual_seed(2)) * 3 + 5
    task = SimpleNamespace(
        loss=SQUARED.loss,
        loss_unit=4.0,
        metrics=lambda outputs, targets: {"off": (outputs.squeeze(1) - targets).abs()},
    )
    measured = {"test_loss": 1.0, "test_off": 1.0, "test_auc": 0.7}
    found = compared(task, torch.zeros(200, 1), targets, measured)
    dummy = DummyRegressor().fit(np.zeros((200, 1)), targets)
    error = dummy.predict(np.zeros((200, 1))) - targets.double().numpy()
    assert found["metrics"]["test_loss"] == pytest.approx(4 * np.mean(error**2), rel=1e-5)
    assert found["metrics"]["test_off"] == pytest.approx(np.mean(np.abs(error)), rel=1e-5)
    assert set(found["metrics"]) == {"test_loss", "test_off"}


def test_a_loss_of_logarithms_has_no_mean_predictor() -> None:
    rates = torch.poisson(torch.full((500,), 4.0), generator=torch.Generator().manual_seed(3))
    task = SimpleNamespace(loss=loss(nn.functional.poisson_nll_loss))
    found = compared(task, torch.zeros(500, 1), rates, {"test_loss": 1.0})
    assert found == {"reason": "the loss is not least near the mean of the targets"}


@pytest.mark.parametrize(
    ("outputs", "targets"),
    [
        (torch.randn(5, 3), torch.randn(5)),
        ({"a": torch.randn(5, 1)}, torch.randn(5)),
        (torch.randn(5, 3), torch.ones(5, 3)),
    ],
    ids=["more outputs", "dict", "multi-label"],
)
def test_other_outputs_have_a_reason_and_no_figure(outputs, targets) -> None:
    assert compared(SQUARED, outputs, targets, {"test_loss": 1.0})["reason"]


def test_a_task_that_fails_on_constants_ends_nothing() -> None:
    def broken(outputs, targets):
        raise RuntimeError("no constants")

    found = compared(SimpleNamespace(loss=broken), torch.zeros(5, 1), torch.randn(5), {})
    assert "RuntimeError: no constants" in found["reason"]


def summary(metric: float, constant: float, name: str = "test_accuracy") -> Summary:
    kind = "majority class" if name == "test_accuracy" else "mean of the targets"
    found = {"predictor": kind, "label": 2, "metrics": {name: constant}}
    return Summary(metrics={name: metric}, reference=found)


@pytest.mark.parametrize(
    ("given", "better"),
    [
        (summary(0.51, 0.5), True),
        (summary(0.5, 0.5), False),
        (summary(0.4, 0.5), False),
        (summary(1.0, 2.0, "test_loss"), True),
        (summary(2.0, 2.0, "test_loss"), False),
        (Summary(metrics={"test_accuracy": 0.1}), True),
        (Summary(metrics={"test_accuracy": 0.1}, reference={"reason": "none"}), True),
    ],
)
def test_no_better_than_a_constant_is_said(given, better) -> None:
    assert bool(not_better(given)) is not better


def test_words_name_the_class_and_the_set() -> None:
    assert "class 2, the most frequent of the test set" in predictor_in_words(summary(0.1, 0.5))
    assert reference_of(Summary(reference={"metrics": {"test_accuracy": 0.5}})) == {}


def test_loss_of_a_constant_is_the_entropy_of_the_labels() -> None:
    targets = torch.tensor([0, 0, 0, 1, 1, 3])  # no label 2
    outputs = torch.randn(6, 4, generator=torch.Generator().manual_seed(2))
    accuracy = float((outputs.argmax(1) == targets).double().mean())
    found = compared(ENTROPY, outputs, targets, {"test_accuracy": accuracy, "test_loss": 1.0})
    parts = np.array([3, 2, 1]) / 6
    assert found["loss"] == pytest.approx(-(parts * np.log(parts)).sum(), rel=1e-5)
    assert "loss" not in compared(ENTROPY, outputs, targets, {"test_accuracy": accuracy})


def rounds_of(*losses: float) -> list[RoundRecord]:
    lines = [{"round": number, "test_loss": loss} for number, loss in enumerate(losses, 1)]
    return [RoundRecord.model_validate(line) for line in lines]


@pytest.mark.parametrize(
    ("losses", "constant", "said"),
    [
        ((2.0, 1.0, 1.5), 1.9, []),
        ((1.0, 0.5, 1.5), None, ["above the 1 of round 1"]),
        ((2.0, 1.9), 1.9, ["no better than the 1.9"]),
        ((1.0, 3.0), 2.0, ["above the 1", "no better than the 2"]),
        ((3.0,), None, []),
        ((1.0, float("nan")), 0.5, []),
    ],
)
def test_a_loss_that_grew_or_is_no_better_than_a_constant_s_is_said(losses, constant, said) -> None:
    reference = {} if constant is None else {"loss": constant}
    given = Summary(metrics={"test_loss": losses[-1]}, reference=reference)
    found = worse_losses(given, rounds_of(*losses))
    assert len(found) == len(said)
    assert all(words in clause for words, clause in zip(said, found, strict=True))
