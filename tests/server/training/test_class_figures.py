"""Confusion matrix, figures of classes and calibration, against scikit-learn and a plain loop."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, confusion_matrix, f1_score, precision_score
from torch import nn

from zerosum.server.training.class_figures import (
    MOST_IN_MATRIX,
    Classified,
    calibration,
    class_figures,
    classified,
)


class Plain:
    """A task that has a loss alone."""

    def __init__(self, loss) -> None:
        self.loss = loss


ENTROPY: Any = Plain(lambda outputs, targets: nn.functional.cross_entropy(outputs, targets.long(),
                                                                     reduction="none"))  # fmt: skip


def read(outputs: torch.Tensor, targets: torch.Tensor, task: Any = ENTROPY) -> Classified:
    found = classified(task, outputs, targets)
    assert isinstance(found, Classified), found
    return found


def drawn(classes: int, labels: int, n: int = 500, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(labels, (n,), generator=generator)
    outputs = torch.randn(n, classes, generator=generator)
    outputs[torch.arange(n), targets] += 1.0
    return outputs, targets


def ece_by_hand(confidence: np.ndarray, right: np.ndarray, bins: int) -> float:
    """Equation 3 of Guo et al. 2017, bin by bin and example by example."""
    total = 0.0
    for m in range(1, bins + 1):
        inside = [i for i, c in enumerate(confidence) if (m - 1) / bins < c <= m / bins]
        if inside:
            accuracy = sum(bool(right[i]) for i in inside) / len(inside)
            mean = sum(float(confidence[i]) for i in inside) / len(inside)
            total += len(inside) / len(confidence) * abs(accuracy - mean)
    return total


@pytest.mark.parametrize(("classes", "labels"), [(2, 2), (5, 5), (5, 4), (7, 1), (100, 100)])
def test_figures_are_those_of_scikit_learn(classes, labels) -> None:
    outputs, targets = drawn(classes, labels)
    figures = class_figures(read(outputs, targets))
    predictions, truth = outputs.argmax(1).numpy(), targets.numpy()
    expected = confusion_matrix(truth, predictions, labels=range(classes))
    assert figures["confusion"] == expected.tolist()
    present = np.unique(truth)
    f1 = f1_score(truth, predictions, labels=present, average="macro")
    assert figures["macro_f1"] == pytest.approx(f1)
    recalls = [float(np.mean(predictions[truth == label] == label)) for label in present]
    assert figures["balanced_accuracy"] == pytest.approx(np.mean(recalls))
    if set(predictions) <= set(truth):  # else scikit-learn warns of classes that are not there
        balanced = balanced_accuracy_score(truth, predictions)
        assert figures["balanced_accuracy"] == pytest.approx(balanced)
    assert figures["classes_present"] == len(present)
    precision = precision_score(
        truth, predictions, labels=range(classes), average=None, zero_division=np.nan
    )
    given = [np.nan if each["precision"] is None else each["precision"]
             for each in figures["per_class"]]  # fmt: skip
    np.testing.assert_allclose(given, precision)


def test_a_class_without_examples_has_no_accuracy_and_is_in_no_mean() -> None:
    outputs, targets = drawn(4, 3)
    figures = class_figures(read(outputs, targets))
    assert figures["per_class"][3]["accuracy"] is None
    means = [each["accuracy"] for each in figures["per_class"][:3]]
    assert figures["balanced_accuracy"] == pytest.approx(np.mean(means))
    with_zero = np.mean([*means, 0.0])
    assert figures["balanced_accuracy"] != pytest.approx(with_zero)


def test_one_prediction_for_all_is_half_of_two_classes() -> None:
    outputs = torch.tensor([[2.0, 0.0]]).repeat(10, 1)
    targets = torch.tensor([0] * 7 + [1] * 3)
    figures = class_figures(read(outputs, targets))
    assert figures["confusion"] == [[7, 0], [3, 0]]
    assert (figures["accuracy"], figures["balanced_accuracy"]) == (0.7, 0.5)
    assert figures["per_class"][1] == {
        "label": 1, "examples": 3, "predicted": 0, "accuracy": 0.0, "precision": None
    }  # fmt: skip


def test_more_classes_than_a_matrix_holds_keep_the_most_confused_pairs() -> None:
    outputs, targets = drawn(MOST_IN_MATRIX + 1, MOST_IN_MATRIX + 1, 2000)
    figures = class_figures(read(outputs, targets))
    assert "confusion" not in figures
    assert len(figures["per_class"]) == MOST_IN_MATRIX + 1
    full = confusion_matrix(targets, outputs.argmax(1), labels=range(MOST_IN_MATRIX + 1))
    np.fill_diagonal(full, 0)
    assert figures["confused"][0]["examples"] == full.max()
    for pair in figures["confused"]:
        assert full[pair["label"], pair["predicted"]] == pair["examples"]
    many = class_figures(read(*drawn(2000, 2000, 300)))
    assert "per_class" not in many
    assert many["classes"] == 2000


@pytest.mark.parametrize("classes", [2, 3, 120])
def test_calibration_error_is_that_of_a_plain_loop(classes) -> None:
    outputs, targets = drawn(classes, classes, 400, seed=classes)
    figures = class_figures(read(outputs, targets))["calibration"]
    likely = outputs.double().softmax(1).numpy()
    right = likely.argmax(1) == targets.numpy()
    by_hand = ece_by_hand(likely.max(1), right, figures["bins"])
    assert figures["ece"] == pytest.approx(by_hand, abs=1e-12)
    assert abs(by_hand - ece_by_hand(likely.max(1), right, 10)) > 1e-6  # another binning is another
    assert sum(each["examples"] for each in figures["reliability"]) == 400


def test_a_confidence_at_a_border_is_of_the_bin_below() -> None:
    outputs = torch.tensor([[1.0, 0.0], [0.75, 0.25], [0.5, 0.5]])
    found = read(outputs, torch.tensor([0, 1, 0]))
    assert found.reading == "the outputs, which are probabilities"
    four = calibration(found, bins=4)
    assert [each["examples"] for each in four["reliability"]] == [0, 1, 1, 1]
    assert [each["accuracy"] for each in four["reliability"]] == [None, 1.0, 0.0, 1.0]
    assert four["ece"] == pytest.approx((0.5 + 0.75 + 0.0) / 3)


def test_masked_outputs_are_read_and_nan_is_counted_apart() -> None:
    inf = float("inf")
    outputs = torch.tensor([[0.0, -inf, 1.0], [inf, 0.0, 1.0], [float("nan"), 0.0, 1.0]])
    found = read(outputs, torch.tensor([2, 0, 1]))
    assert (found.undefined, found.predictions.tolist()) == (1, [2, 0])
    assert np.isfinite(found.confidences).all()


LOGIT = Plain(lambda outputs, targets: nn.functional.binary_cross_entropy_with_logits(
    outputs.reshape(-1), targets.reshape(-1).float(), reduction="none"))  # fmt: skip
CHANCE = Plain(lambda outputs, targets: nn.functional.binary_cross_entropy(
    outputs.reshape(-1), targets.reshape(-1).float(), reduction="none"))  # fmt: skip
HINGE: Any = Plain(
    lambda outputs, targets: (1 - (2 * targets - 1) * outputs.reshape(-1)).clamp(min=0)
)


@pytest.mark.parametrize("shape", [(50,), (50, 1)])
@pytest.mark.parametrize("kind", [torch.int64, torch.float32])
def test_one_output_is_read_as_its_loss_reads_it(shape, kind) -> None:
    generator = torch.Generator().manual_seed(0)
    likely = torch.rand(shape, generator=generator)
    targets = torch.randint(2, (50,), generator=generator).to(kind)
    by_chance = read(likely, targets, CHANCE)
    by_logit = read(likely.logit(), targets, LOGIT)
    np.testing.assert_array_equal(by_chance.predictions, (likely.reshape(-1) > 0.5).numpy())
    np.testing.assert_array_equal(by_chance.predictions, by_logit.predictions)
    np.testing.assert_allclose(by_chance.confidences, by_logit.confidences, atol=1e-6)
    # Read the other way round, probabilities would all be class 1.
    wrong = read(likely, targets, LOGIT)
    assert wrong.predictions.all()
    assert "not the cross-entropy" in str(classified(HINGE, likely, targets))


def test_a_loss_that_works_in_place_changes_nothing_here() -> None:
    def spoil(outputs, targets):
        losses = LOGIT.loss(outputs, targets)
        outputs.zero_()
        return losses

    outputs = torch.randn(20, 1, generator=torch.Generator().manual_seed(0))
    before = outputs.clone()
    targets = torch.arange(20) % 2
    assert read(outputs, targets, Plain(spoil)).predictions.any()
    assert torch.equal(outputs, before)


@pytest.mark.parametrize(
    ("outputs", "targets"),
    [
        (torch.randn(4, 9, 5), torch.zeros(4, 9, dtype=torch.int64)),
        (torch.randn(4, 2, 3, 3), torch.zeros(4, 3, 3, dtype=torch.int64)),
        (torch.randn(4, 3), torch.ones(4, 3)),
        ({"a": torch.randn(4, 3)}, torch.zeros(4, dtype=torch.int64)),
        (torch.randn(4, 1), torch.randn(4)),
    ],
    ids=["sequences", "segmentation", "multi-label", "dict", "regression"],
)
def test_other_tasks_are_left_out_with_a_reason(outputs, targets) -> None:
    assert isinstance(classified(ENTROPY, outputs, targets), str)
