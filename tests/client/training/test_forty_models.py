"""Models of other people's kinds are trained as plain PyTorch trains them, or refused in words."""

import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from model_rows import ROWS, Row
from other_models import COUNT
from plain_training import NUMBER, RowTask, batches, flat, fresh, trained_plainly
from torch import Tensor

from zerosum.client.spec import PrivacySpec, TrainSpec
from zerosum.client.task import TaskError
from zerosum.client.training.batched import BatchedTrainer
from zerosum.client.training.dpsgd import ExampleTrainer
from zerosum.client.training.fast import FastTrainer, choose_trainer
from zerosum.client.training.initial_model import initial_vector
from zerosum.client.training.local import LocalTrainer
from zerosum.client.training.stacked_records import Member
from zerosum.secagg.randomness import insecure_keystream

pytestmark = pytest.mark.usefixtures("one_thread")

SPEC = TrainSpec(epochs=2, batch_size=4, lr=0.1, momentum=0.9, weight_decay=0.01)
PLAIN = TrainSpec(epochs=2, batch_size=4, lr=0.1)
WHOLE = TrainSpec(epochs=1, batch_size=COUNT)
EVERY = PrivacySpec(unit="example", examples=COUNT, lot=COUNT, clip=1e6, noise_multiplier=1.0)
LEARNT = 1e-3

TRAINED = [one for one in ROWS if not one.refused]
REFUSED = [one for one in ROWS if one.refused]


def start_of(one: Row, dtype: torch.dtype) -> np.ndarray:
    return initial_vector(RowTask(one), 0).astype(np.float64 if dtype == torch.float64 else "f4")


def by(kind: type[LocalTrainer], one: Row, spec: TrainSpec, dtype: torch.dtype) -> np.ndarray:
    """Return the parameters that a trainer comes to."""
    made, start = kind(RowTask(one), spec, dtype=dtype), start_of(one, dtype)
    if isinstance(made, BatchedTrainer):
        found = list(made.train_cohort(start, [Member(one.data, NUMBER)] * 2))
        deltas = []
        for outcome in found:
            if isinstance(outcome, Exception):
                raise outcome
            deltas.append(outcome.delta)
        assert np.array_equal(deltas[0], deltas[1])
        return start + deltas[0]
    return start + made.train(start, one.data(), NUMBER)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():  # torch's, of scripts, and of stacked lookups
        warnings.simplefilter("ignore")
        yield


@pytest.mark.quick_one_in(9)
@pytest.mark.parametrize("one", TRAINED, ids=lambda one: one.name)
def test_a_model_is_trained_as_plain_pytorch_trains_it(one: Row) -> None:
    before, wanted = trained_plainly(one, SPEC, torch.float64)
    assert np.abs(wanted - before).max() > LEARNT
    for kind in (LocalTrainer, FastTrainer, BatchedTrainer):
        np.testing.assert_allclose(by(kind, one, SPEC, torch.float64), wanted, rtol=0, atol=1e-9)
    _, faster = trained_plainly(one, SPEC, torch.float64, lr=1.001 * SPEC.lr)
    assert np.abs(faster - wanted).max() > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("one", TRAINED, ids=lambda one: one.name)
def test_a_model_without_momentum_is_trained_so_too(one: Row) -> None:
    _, wanted = trained_plainly(one, PLAIN, torch.float64)
    found = by(LocalTrainer, one, PLAIN, torch.float64)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("one", TRAINED, ids=lambda one: one.name)
def test_the_default_path_is_plain_pytorch_in_float32(one: Row) -> None:
    _, wanted = trained_plainly(one, SPEC, torch.float32)
    made, start = choose_trainer(RowTask(one), SPEC), start_of(one, torch.float32)
    found = start + made.train(start, one.data(), NUMBER)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)
    assert np.array_equal(start + made.train(start, one.data(), NUMBER), found)


@pytest.mark.slow
@pytest.mark.parametrize("one", TRAINED, ids=lambda one: one.name)
def test_a_model_is_evaluated_as_plain_pytorch_evaluates_it(one: Row) -> None:
    made, start = choose_trainer(RowTask(one), SPEC), start_of(one, torch.float32)
    before = made.train(start, one.data(), NUMBER)
    made.trial_evaluation(start, one.data())
    found = made.evaluate(start, one.data())
    model = fresh(one, torch.float32).eval()
    with torch.no_grad():
        [(inputs, targets)] = batches(
            one.data(), TrainSpec(epochs=1, batch_size=COUNT), torch.float32
        )
        wanted = one.loss(model(inputs), targets).sum().item()
    assert found["loss"] == pytest.approx(wanted, rel=1e-5)
    assert np.array_equal(made.train(start, one.data(), NUMBER), before)


class ScoredTask(RowTask):
    """Has a metric of its own, which finds the logits by their name."""

    def metrics(self, outputs: Any, targets: Tensor) -> dict[str, Tensor]:
        return {"right": outputs.logits.argmax(1) == targets}


@pytest.mark.parametrize("name", ["namedtuple", "ModelOutput", "dataclass"])
def test_metrics_of_ones_own_are_given_outputs_as_the_model_gives_them(name: str) -> None:
    (one,) = (row for row in ROWS if row.name == f"{name} output")
    task = ScoredTask(one)
    made, start = choose_trainer(task, SPEC), start_of(one, torch.float32)
    assert 0 < made.evaluate(start, one.data())["right"] < COUNT


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("one", REFUSED, ids=lambda one: one.name)
def test_what_is_not_trained_is_refused_in_one_line(one: Row) -> None:
    def trained() -> None:
        made = choose_trainer(RowTask(one), SPEC)
        made.train(start_of(one, torch.float32), one.data(), NUMBER)

    # Reentrant checkpoints are refused by torch, in one line with the cure.
    kind = RuntimeError if "reentrant" in one.name else TaskError
    with pytest.raises(kind, match=re.escape(one.refused)) as caught:
        trained()
    assert len(str(caught.value).strip().splitlines()) == 1


@pytest.mark.quick_one_in(9)
@pytest.mark.parametrize("one", TRAINED, ids=lambda one: one.name)
def test_each_example_has_a_gradient_or_the_model_is_refused(one: Row) -> None:
    if one.by_example in ("", "coins"):
        found = sum_of_gradients(one)
    else:
        with pytest.raises(TaskError, match=re.escape(one.by_example)):
            sum_of_gradients(one)
    if one.by_example:  # with dropout, coins are secret: nothing to compare with
        return
    wanted, each = np.zeros(found.shape), TrainSpec(epochs=1, batch_size=1)
    for inputs, targets in batches(one.data(), each, torch.float64):
        model = fresh(one, torch.float64)
        one.loss(model(inputs), targets).sum().backward()
        wanted += flat(
            [
                torch.zeros_like(p) if p.grad is None else p.grad.to_dense()
                for p in model.parameters()
                if p.requires_grad
            ]
        )
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-9)


def sum_of_gradients(one: Row) -> np.ndarray:
    made = ExampleTrainer(RowTask(one), SPEC, EVERY)
    start = start_of(one, torch.float64)
    made.trial_step(start, one.data())
    found: np.ndarray = -made.descent(start, one.data, insecure_keystream(5, "examples"))
    return found
