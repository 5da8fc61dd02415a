"""Figures of a whole data set: what a task is given, and what it may return."""

from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch

from zerosum.client.task import TaskError
from zerosum.client.training.whole_set import OutputsKept, not_finite, whole_set_metrics

Pair = namedtuple("Pair", "mean spread")


class Saying:
    def __init__(self, answer) -> None:
        self.answer = answer

    def test_metrics(self, outputs, targets):
        return self.answer(outputs, targets) if callable(self.answer) else self.answer


def says(answer) -> Any:
    return Saying(answer)


def kept(make, sizes=(3, 3, 1)):
    found, start = OutputsKept(), 0
    for size in sizes:
        rows = torch.arange(start, start + size, dtype=torch.float32)
        found.add(make(rows), rows.long())
        start += size
    return found.joined()


def test_outputs_and_targets_are_joined_in_order() -> None:
    outputs, targets = kept(lambda rows: torch.stack([rows, -rows], 1))
    assert targets.tolist() == list(range(7))
    assert torch.equal(outputs[:, 1], -torch.arange(7.0))


def test_structures_keep_their_form() -> None:
    def make(rows):
        return {"a": [rows, (rows, rows.sum())], "b": Pair(rows, rows[:, None]), "c": None}

    outputs, _ = kept(make)
    assert outputs["a"][0].shape == (7,)
    assert isinstance(outputs["a"][1], tuple)
    assert outputs["a"][1][1].tolist() == [3.0, 12.0, 6.0]  # a number of a batch, one each
    assert isinstance(outputs["b"], Pair)
    assert outputs["b"].spread.shape == (7, 1)
    assert outputs["c"] is None


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda rows: rows.repeat(len(rows), 1), "pad all records"),
        (lambda rows: {str(len(rows)): rows}, "structure"),
        (lambda rows: (rows,) * len(rows), "structure"),
    ],
)
def test_batches_of_several_forms_are_refused(make, said) -> None:
    with pytest.raises(TaskError, match=said):
        kept(make)


def test_what_is_kept_is_a_copy() -> None:
    outputs, found = torch.zeros(2, 2), OutputsKept()
    found.add(outputs, torch.zeros(2))
    outputs.fill_(9)
    joined, targets = found.joined()
    assert not joined.any()
    whole_set_metrics(says(lambda o, t: {"x": float(o.fill_(1).sum() + t.fill_(1).sum())}),
                      joined, targets)  # fmt: skip
    assert not joined.any()
    assert not targets.any()


def test_a_task_without_the_method_has_none() -> None:
    task: Any = object()
    assert whole_set_metrics(task, torch.zeros(2), torch.zeros(2)) == {}


@pytest.mark.parametrize(
    "value",
    [1, 0.5, np.float32(0.5), np.int64(3), np.array(0.25), torch.tensor(0.5), torch.tensor(2)],
    ids=repr,
)
def test_numbers_of_all_libraries_become_floats(value) -> None:
    found = whole_set_metrics(says({"auc": value}), torch.zeros(2), torch.zeros(2))
    assert found == {"auc": float(value)}
    assert type(found["auc"]) is float


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (0.5, "no mapping"),
        (None, "NoneType"),
        ({"loss": 0.5}, "the name 'loss'"),
        ({"auc_noise_std": 0.5}, "another one"),
        ({3: 0.5}, "the name 3"),
        ({"auc": [0.5]}, "a list"),
        ({"auc": True}, "a bool"),
        ({"auc": "0.5"}, "a str"),
        ({"auc": 1j}, "a complex"),
        ({"auc": torch.zeros(3)}, r"shape \(3,\)"),
        ({"auc": torch.tensor(1j)}, "complex64"),
        ({"auc": 10**400}, "beyond any float"),
        ({"accuracy": 0.5}, "already"),
    ],
    ids=str,
)
def test_what_is_no_figure_is_refused_by_name(answer, said) -> None:
    with pytest.raises(TaskError, match=said):
        whole_set_metrics(says(answer), torch.zeros(2), torch.zeros(2), measured=["accuracy"])


def test_nan_is_a_figure_that_is_named() -> None:
    found = whole_set_metrics(
        says({"auc": float("nan"), "f1": 1.0}), torch.zeros(2), torch.zeros(2)
    )
    assert not_finite(found) == ["auc"]


def test_coins_of_a_task_are_the_same_each_time_and_touch_no_generator() -> None:
    task = says(lambda o, t: {"x": torch.rand(()), "y": np.random.rand()})  # noqa: NPY002
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = whole_set_metrics(task, torch.zeros(2), torch.zeros(2))
    assert torch.equal(torch.rand(3), expected)
    assert whole_set_metrics(task, torch.zeros(2), torch.zeros(2)) == first


def test_gradients_are_off() -> None:
    task = says(lambda o, t: {"grad": float(torch.is_grad_enabled())})
    assert whole_set_metrics(task, torch.zeros(2), torch.zeros(2)) == {"grad": 0.0}
