"""Attacks on a task of one's own recover what leaks, and nothing under protection."""

from typing import Any

import numpy as np
import own_tasks
import pytest

from zerosum.client.given_task import GivenTask
from zerosum.simulations.attacks import Cell, Defense, Imprint, LossThreshold, play
from zerosum.simulations.attacks.harness.metrics import Mean, Proportion, Ranking
from zerosum.simulations.attacks.harness.sealed_view import sealed
from zerosum.simulations.attacks.inversion.differencing import Differencing
from zerosum.simulations.attacks.inversion.first_layer import FirstLayer
from zerosum.simulations.attacks.inversion.gradient_matching import GradientMatching
from zerosum.simulations.attacks.own_task.cases import Unfit, fitting
from zerosum.simulations.attacks.own_task.cases import own_cases as typed_cases
from zerosum.simulations.attacks.own_task.scenes import hands_of
from zerosum.simulations.attacks.own_task.subject import Subject, pool_of

own_cases: Any = typed_cases  # whose settings are of this library's own classes

PLAIN = Defense("plain")
NOISED = Defense("local noise 3 C", clip=0.1, noise="local", sigma=3.0)


def outcome(attack, task, protection, seed=0, **chosen):
    """Play the first case that is set so, against a protection."""
    subject = Subject(GivenTask(task))
    for case in own_cases(attack, subject, "quick"):
        if all(getattr(case.setting, name) == value for name, value in chosen.items()):
            cell = Cell(attack, type(case)(case.setting, protection))
            played = play(0, cell, seed)
            assert played.status == "value", played.note
            return played
    raise LookupError(chosen)


def mean(played, metric="PSNR", of="units"):
    units = getattr(played, of)[metric]
    assert isinstance(units, Mean | Proportion | Ranking)
    return units.figure().value


WIDE = {"lowest": -3.0, "scale": 8.0}


@pytest.mark.quick_one_in(2)
@pytest.mark.parametrize("task", [own_tasks.Images(), own_tasks.WrittenImages(**WIDE)])
@pytest.mark.parametrize(
    "attack", [FirstLayer(), pytest.param(GradientMatching(), marks=pytest.mark.slow)]
)
def test_an_image_of_ones_own_comes_out_exactly_and_not_under_noise(task, attack, one_thread):
    plain = outcome(attack, task, PLAIN, clients=2, steps=1)
    assert mean(plain) > 60
    assert mean(plain, of="baseline") < 25
    noised = outcome(attack, task, NOISED, clients=2, steps=1)
    assert mean(noised) < mean(noised, of="baseline") + 3


@pytest.mark.parametrize("kind", [own_tasks.Values, own_tasks.DictOutputs, own_tasks.OneClass])
def test_a_record_comes_out_of_any_loss(kind, one_thread):
    assert mean(outcome(FirstLayer(), kind(), PLAIN, clients=2, steps=1)) > 60


def test_guesses_are_scored_against_records_of_the_task_itself(one_thread):
    """The truth is found in the task by a search of its own, at the range that was drawn."""
    task = own_tasks.Images(**WIDE)
    subject = Subject(GivenTask(task))
    (case, *_) = own_cases(FirstLayer(), subject, "quick")
    scene = case.setting.play(FirstLayer(), PLAIN, 0)
    guess = FirstLayer().run(sealed(scene.view), np.random.default_rng(0))
    pool = pool_of(subject)
    for image in guess["images"]:
        back = image * pool.scale + pool.lowest
        errors = np.abs(task.inputs.numpy() - back).max(axis=(1, 2, 3))
        assert errors.min() < 1e-3
        assert int(errors.argmin()) < own_tasks.CLIENTS * task.held  # of a client, not public


@pytest.mark.quick_one_in(2)
@pytest.mark.parametrize("kind", [own_tasks.Images, own_tasks.WrittenImages])
def test_crafted_weights_imprint_images_into_the_tasks_own_model(kind, one_thread):
    task = kind(width=400, **WIDE)
    plain = outcome(Imprint(), task, PLAIN)
    assert mean(plain, "images above 20 dB") > 0.8
    noised = outcome(Imprint(), task, NOISED)
    assert mean(noised, "images above 20 dB") < 0.2


def test_one_client_is_singled_out_where_masks_are_not_bound(one_thread):
    attack = Imprint(target=0)
    unbound = Defense("unbound", masking="double", request_hash=False)
    task = own_tasks.Images(width=400)
    assert mean(outcome(attack, task, unbound), "images above 20 dB") > 0.8


@pytest.mark.slow
def test_two_sums_differ_by_a_client(one_thread):
    played = outcome(Differencing(), own_tasks.Images(), Defense("masked", masking="double"))
    assert mean(played, "updates recovered") == 1
    assert mean(played) > 40


def test_scenes_share_no_record_and_end_when_there_are_no_more():
    subject = Subject(GivenTask(own_tasks.Images()))
    rows = np.concatenate(hands_of(pool_of(subject), 5))
    assert len(np.unique(rows)) == len(rows)
    (case, *_) = own_cases(FirstLayer(), subject, "quick")
    drawn = [case.setting.drawn(seed).inputs.tobytes() for seed in range(3)]
    assert len(set(drawn)) == 3
    none_left = play(0, Cell(FirstLayer(), case), 10_000)
    assert none_left.status == "not applicable"
    assert "no records left" in none_left.note


def test_a_client_that_cannot_train_is_a_failure_and_no_protection(one_thread):
    class Diverging(own_tasks.Images):
        def loss(self, outputs, targets):
            return super().loss(outputs, targets) * float("nan")

    subject = Subject(GivenTask(Diverging()))
    (case, *_) = own_cases(FirstLayer(), subject, "quick")
    played = play(0, Cell(FirstLayer(), case), 0)
    assert played.status == "failed"
    assert "not finite: lower training.lr" in played.note


def test_tiny_clients_give_smaller_scenes_and_none_at_all_a_line():
    tiny = Subject(GivenTask(own_tasks.Images(held=1)))
    assert {case.setting.records for case in own_cases(Imprint(), tiny, "quick")} == {1}
    with pytest.raises(Unfit, match="needs 20 records for each of 3 seeds"):
        own_cases(LossThreshold(), tiny, "quick")


def test_sizes_follow_the_task():
    subject = Subject(GivenTask(own_tasks.Images()))
    cohorts = {case.setting.clients for case in own_cases(FirstLayer(), subject, "quick")}
    assert cohorts == {2, own_tasks.CLIENTS}
    found = fitting([FirstLayer()], subject, "quick")
    assert len({cell.label for cell in found.cells}) == len(found.cells)
