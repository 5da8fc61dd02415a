"""A model and its flat vector are the same thing."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from torch import nn

from zerosum.client.task import TaskError
from zerosum.client.torch_seed import seeded
from zerosum.client.vectors import (
    Layout,
    flatten,
    from_state_dict,
    load_vector,
    parameters_to_vector,
    to_state_dict,
)


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


def test_a_saved_model_is_the_same_vector_and_loads_into_torch(tmp_path: Path) -> None:
    model = make()
    layout, vector = Layout.of(model), parameters_to_vector(model)
    save_file(to_state_dict(vector, layout), tmp_path / "model.safetensors")
    state = load_file(tmp_path / "model.safetensors")
    assert np.array_equal(from_state_dict(state, layout), vector)
    other = make()
    other.load_state_dict({name: torch.tensor(value) for name, value in state.items()})
    assert np.array_equal(parameters_to_vector(other), vector)


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
    with pytest.raises(TaskError, match=r"running statistics.*GroupNorm"):
        Layout.of(nn.Sequential(nn.Linear(3, 3), layer))


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
    state = to_state_dict(np.zeros(3, dtype=np.float32), layout)
    with pytest.raises(ValueError, match="bias"):
        from_state_dict({"weight": state["weight"]}, layout)
    with pytest.raises(ValueError, match="other"):
        from_state_dict({**state, "other": state["bias"]}, layout)


def test_weight_and_bias_of_a_module_are_one_layer() -> None:
    layout = Layout.of(make())
    assert len(layout.names) == 6
    assert layout.layers == [slice(0, 20), slice(20, 24), slice(24, 51)]
    bare = Layout(("scale", "shift", "body.weight"), ((2,), (3,), (4,)))
    assert bare.layers == [slice(0, 5), slice(5, 9)]
