"""A model and its flat vector are the same thing."""

import numpy as np
import pytest
import torch
from torch import nn

from zerosum.client.task import TaskError
from zerosum.client.training.flat_parameters import (
    Layout,
    flatten,
    from_state_dict,
    load_vector,
    parameters_to_vector,
)
from zerosum.client.training.torch_seed import seeded


def make() -> nn.Module:
    with seeded(1):
        return nn.Sequential(nn.Conv2d(1, 2, 3), nn.GroupNorm(1, 2), nn.Flatten(), nn.Linear(8, 3))


def test_a_vector_loaded_is_the_vector_read() -> None:
    model = make()
    layout = Layout.of(model)
    vector = np.arange(layout.length, dtype=np.float32)
    load_vector(model, vector)
    assert np.array_equal(parameters_to_vector(model), vector)
    assert parameters_to_vector(model).dtype == np.float32


def test_the_vector_read_is_a_copy() -> None:
    model = nn.Linear(2, 1, bias=False)
    vector = parameters_to_vector(model)
    vector += 1
    assert not np.array_equal(parameters_to_vector(model), vector)


def test_flattening_keeps_the_function_and_shares_the_memory() -> None:
    inputs = torch.ones(2, 1, 4, 4)
    model = make()
    before, vector = model(inputs), parameters_to_vector(model)
    flat = flatten(model)
    assert torch.equal(model(inputs), before)
    assert np.array_equal(flat.weights.numpy(), vector)
    flat.weights.zero_()
    assert not parameters_to_vector(model).any()
    model(inputs).sum().backward()
    assert flat.gradients.any()
    flat.gradients.zero_()
    assert all(not value.grad.any() for value in model.parameters() if value.grad is not None)


def test_a_state_dict_is_the_same_vector_whatever_else_it_holds() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    model[0].requires_grad_(False)
    model.register_buffer("scale", torch.ones(2))
    state = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    layout = Layout.of(model)
    assert np.array_equal(from_state_dict(state, layout), parameters_to_vector(model))
    trained_alone = {name: state[name] for name in layout.names}
    assert np.array_equal(from_state_dict(trained_alone, layout), parameters_to_vector(model))


def test_shared_parameters_appear_once() -> None:
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    flat = flatten(nn.Sequential(first, second))
    assert flat.layout.length == 9 + 3 + 3
    flat.weights.fill_(2)
    assert second.weight.tolist() == [[2.0] * 3] * 3


def test_frozen_parameters_are_not_in_the_vector() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    model[0].requires_grad_(False)
    assert Layout.of(model).names == ("1.weight", "1.bias")


@pytest.mark.parametrize("affine", [True, False])
def test_running_statistics_are_refused(affine: bool) -> None:
    layer = nn.BatchNorm1d(3, affine=affine)
    ways = "running statistics.*GroupNorm.*track_running_stats.*freeze.*training.batchnorm"
    with pytest.raises(TaskError, match=ways):
        Layout.of(nn.Sequential(nn.Linear(3, 3), layer))


def test_running_statistics_follow_the_parameters_where_they_are_averaged() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    layout = Layout.of(model, "average")
    assert layout.statistics == (("1.running_mean", (3,)), ("1.running_var", (3,)))
    assert (layout.length, layout.dimension) == (15, 21)
    vector = np.arange(21, dtype=np.float32)
    load_vector(model, vector, "average")
    assert model.get_buffer("1.running_var").tolist() == [18, 19, 20]
    assert np.array_equal(parameters_to_vector(model, "average"), vector)
    state = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    assert np.array_equal(from_state_dict(state, layout), vector)
    with pytest.raises(ValueError, match=r"\(21,\)"):
        load_vector(model, vector[:15], "average")


def test_batch_normalisation_without_statistics_is_allowed() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, track_running_stats=False))
    assert Layout.of(model).length == 3 * 3 + 3 + 3 + 3


def test_a_model_with_nothing_to_train_is_refused() -> None:
    with pytest.raises(TaskError, match="nothing to train"):
        Layout.of(nn.Flatten())


def test_wrong_lengths_and_names_are_refused() -> None:
    model = nn.Linear(2, 1)
    layout = Layout.of(model)
    with pytest.raises(ValueError, match=r"\(4,\)"):
        load_vector(model, np.zeros(4, dtype=np.float32))
    weight, bias = np.zeros((1, 2), dtype=np.float32), np.zeros(1, dtype=np.float32)
    with pytest.raises(ValueError, match="bias"):
        from_state_dict({"weight": weight}, layout)
    with pytest.raises(ValueError, match="weight"):
        from_state_dict({"weight": weight.T, "bias": bias}, layout)


def test_weight_and_bias_of_a_module_are_one_layer() -> None:
    layout = Layout.of(make())
    assert len(layout.names) == 6
    assert layout.layers == [slice(0, 20), slice(20, 24), slice(24, 51)]
    bare = Layout(("scale", "shift", "body.weight"), ((2,), (3,), (4,)))
    assert bare.layers == [slice(0, 5), slice(5, 9)]
