"""A server's optimizer moves weights; running statistics are averaged, and no more."""

import numpy as np
import pytest
import torch

from zerosum.client.training.flat_parameters import Layout
from zerosum.server.spec import ServerSpec
from zerosum.server.training.global_model import GlobalModel
from zerosum.server.training.optimizers import ServerOptimizer

LAYOUT = Layout(("weight",), ((2,),), (("norm.running_mean", (2,)), ("norm.running_var", (1,))))
START = np.array([1.0, -2.0, 0.5, -0.5, 1.0], dtype=np.float32)
UPDATES = [np.array([0.1, -0.2, 3.0, -4.0, 0.5]), np.array([0.3, 0.1, -2.0, 1.0, -0.75])]

SPECS = {
    "SGD": ServerSpec(),
    "a small rate": ServerSpec(lr=0.1),
    "a large rate": ServerSpec(lr=4.0),
    "momentum": ServerSpec(options={"momentum": 0.9}),
    "Adam": ServerSpec(optimizer="Adam", lr=0.05),
    "decay": ServerSpec(optimizer="SGD", options={"weight_decay": 0.1}),
}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_statistics_take_the_average_change_whatever_moves_the_weights(spec: ServerSpec) -> None:
    model, alone = GlobalModel(spec, START, LAYOUT), ServerOptimizer(spec, START[:2])
    for update in UPDATES:
        model.step(update)
        alone.step(update[:2])
    np.testing.assert_array_equal(model.model[:2], alone.model)
    np.testing.assert_allclose(model.model[2:], START[2:] + sum(UPDATES)[2:], rtol=1e-6)  # type: ignore[index]
    assert model.model.dtype == np.float32


def test_a_variance_is_not_negative_and_a_mean_may_be() -> None:
    model = GlobalModel(ServerSpec(), START, LAYOUT)
    model.step(np.array([0.0, 0.0, -9.0, 0.0, -1.0001]))
    assert model.model[2:].tolist() == [-8.5, -0.5, 0.0]


def test_what_is_restored_goes_on_with_the_same_bits() -> None:
    spec = SPECS["Adam"]
    whole, first = (GlobalModel(spec, START, LAYOUT) for _ in range(2))
    for update in UPDATES:
        whole.step(update)
    first.step(UPDATES[0])
    second = GlobalModel(spec, START, LAYOUT)
    second.restore(torch.from_numpy(first.model), *first.state())
    second.step(UPDATES[1])
    assert np.array_equal(second.model, whole.model)


def test_the_model_read_is_a_copy_and_its_weights_a_part() -> None:
    model = GlobalModel(ServerSpec(), START, LAYOUT)
    model.model[:] = 0
    assert np.array_equal(model.model, START)
    assert model.weights_of(START).tolist() == [1.0, -2.0]
