"""What attacks need of a task is found out on the task, and what is missing is named."""

import own_tasks
import pytest
import torch
from torch import nn

from zerosum.client.given_task import GivenTask
from zerosum.client.task import TaskError
from zerosum.simulations.attacks import Imprint, LossThreshold, ModelInversion
from zerosum.simulations.attacks.inversion.features import FeatureInversion
from zerosum.simulations.attacks.inversion.first_layer import FirstLayer
from zerosum.simulations.attacks.inversion.gradient_matching import GradientMatching
from zerosum.simulations.attacks.inversion.repetition import Repetition
from zerosum.simulations.attacks.own_task.facts import facts_of
from zerosum.simulations.attacks.own_task.needs import missing
from zerosum.simulations.attacks.own_task.subject import Subject, pool_of


def subject(task):
    return Subject(GivenTask(task))


def lacks(task, attack):
    mine = subject(task)
    return missing(attack, facts_of(mine), pool_of(mine))


@pytest.mark.parametrize("kind", [own_tasks.Images, own_tasks.WrittenImages])
def test_layers_are_found_however_a_model_is_written(kind):
    facts = facts_of(subject(kind()))
    assert (facts.classes, facts.cross_entropy, facts.image) == (3, True, True)
    first, second = facts.chain
    assert facts.first == first
    assert (first.rows, first.columns, second.rows, second.columns) == (48, 32, 3, 48)
    offset = 0 if kind is own_tasks.Images else 3 * 48 + 3  # declared after the other
    assert (first.weights, first.biases) == (offset, offset + 48 * 32)


class Smooth(own_tasks.Images):
    def model(self):
        last = nn.Linear(8, 3)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        return nn.Sequential(nn.Flatten(), nn.Linear(32, 8), nn.Tanh(), last)


class Normalised(own_tasks.Images):
    def model(self):
        return nn.Sequential(nn.LayerNorm((2, 4, 4)), *super().model())


class Dropped(own_tasks.Images):
    def model(self):
        return nn.Sequential(*super().model()[:3], nn.Dropout(0.5), nn.Linear(48, 3))


class Convolved(own_tasks.Images):
    def model(self):
        return nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))


class Scaled(own_tasks.Images):
    def loss(self, outputs, targets):
        return 2 * super().loss(outputs, targets)


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize(
    ("task", "attack", "said"),
    [
        (own_tasks.Images(), GradientMatching(), ""),
        (own_tasks.Images(), FirstLayer(), ""),
        (own_tasks.Images(), Imprint(), ""),
        (own_tasks.Images(), ModelInversion(), ""),
        (own_tasks.Images(), Repetition(), "needs records of 17 levels"),
        (own_tasks.Images(), FeatureInversion(), "needs a first layer that sees patches"),
        (own_tasks.Images(public=0), FirstLayer(), "needs 10 public records beside the clients'"),
        (own_tasks.Images(public=0), LossThreshold(), ""),
        (Convolved(), FeatureInversion(), ""),
        (Convolved(), FirstLayer(), "needs a first layer torch.nn.Linear"),
        (Normalised(), FirstLayer(), "needs a first layer torch.nn.Linear"),
        (Smooth(), FirstLayer(), ""),
        (Smooth(), Imprint(), "needs a model of Linear layers with biases and ReLU"),
        (Dropped(), GradientMatching(), "needs a model without dropout"),
        (Scaled(), GradientMatching(), "needs class labels, and a loss that is their cross-"),
        (own_tasks.Values(), FirstLayer(), ""),
        (own_tasks.Values(), GradientMatching(), "needs class labels"),
        (own_tasks.Values(), ModelInversion(), "needs images, and a record has the shape (6,)"),
        (own_tasks.Texts(), FirstLayer(), "needs records of floating-point numbers"),
        (own_tasks.Texts(), LossThreshold(), ""),
        (own_tasks.DictOutputs(), FirstLayer(), ""),
        (own_tasks.DictOutputs(), GradientMatching(), "needs class labels"),
        (own_tasks.OneClass(), ModelInversion(), "needs class labels"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value[:30],
)
def test_what_is_missing_is_said_in_a_line(task, attack, said):
    reason = lacks(task, attack)
    assert reason.startswith(said) if said else not reason
    assert "\n" not in reason


def test_records_of_several_tensors_are_refused_in_a_line():
    with pytest.raises(TaskError, match="attacks need records that are one tensor each"):
        facts_of(subject(own_tasks.DictInputs()))


def test_a_loss_that_fails_is_named():
    class Broken(own_tasks.Images):
        def loss(self, outputs, targets):
            raise RuntimeError("no loss today")

    with pytest.raises(TaskError, match="its model or loss fails with RuntimeError: no loss today"):
        facts_of(subject(Broken()))


def test_numbers_beyond_zero_and_one_are_scaled_by_the_public_records_and_others_are_not():
    wide = pool_of(subject(own_tasks.Images(lowest=-3.0, scale=8.0)))
    unit = wide.unit(wide.records.inputs)
    assert 0 <= unit.min() < unit.max() <= 1
    assert torch.allclose(
        torch.tensor(unit * wide.scale + wide.lowest), torch.tensor(wide.records.inputs), atol=1e-5
    )
    usual = pool_of(subject(own_tasks.Images()))
    assert (usual.lowest, usual.scale) == (0.0, 1.0)


def test_two_tasks_of_one_name_are_two():
    one, other = subject(own_tasks.Images()), subject(own_tasks.Images(width=7))
    assert facts_of(one).chain[0].rows == 48
    assert facts_of(other).chain[0].rows == 7
