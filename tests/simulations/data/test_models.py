"""Built-in models fit their inputs and start from the seed."""

import numpy as np
import pytest
import torch

from zerosum.client.spec import ModelSpec
from zerosum.client.task import TaskError
from zerosum.client.training.flat_parameters import Layout, parameters_to_vector
from zerosum.simulations.data.models import make_model

IMAGES = [(1, 28, 28), (1, 14, 14), (1, 8, 8), (3, 32, 30), (1, 4, 4)]


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("shape", [*IMAGES, (5,)])
@pytest.mark.parametrize("name", ["linear", "mlp", "cnn"])
def test_outputs_have_one_row_an_input(name: str, shape: tuple[int, ...]) -> None:
    spec = ModelSpec.model_validate({"name": name})
    if name == "cnn" and len(shape) == 1:
        with pytest.raises(TaskError, match=r'model\.name = "cnn" needs images.*"linear", "mlp"'):
            make_model(spec, shape, 7, 0)
        return
    assert make_model(spec, shape, 7, 0)(torch.zeros(2, *shape)).shape == (2, 7)


def test_sizes_are_what_they_say() -> None:
    shape = (1, 14, 14)
    assert Layout.of(make_model(ModelSpec(name="linear"), shape, 10, 0)).length == 1970
    assert Layout.of(make_model(ModelSpec(name="mlp"), shape, 10, 0)).length == 13258
    deep = ModelSpec(name="mlp", hidden=[8, 4])
    assert Layout.of(make_model(deep, (3,), 2, 0)).length == 32 + 36 + 10


def test_the_seed_decides_the_start_and_the_global_generator_stays() -> None:
    before = torch.get_rng_state()
    first, again, other = (
        parameters_to_vector(make_model(ModelSpec(), (1, 8, 8), 10, seed)) for seed in (0, 0, 1)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("hidden", "words"),
    [
        ([1_000_000, 1_000_000], r"make 1000796000010 parameters"),
        ([2**63 - 1], r"parameters; allowed: 268435456"),
        ([10**400], r"parameters; allowed: 268435456"),
        (["wide"], "TypeError"),
        ([1.5], "TypeError"),
        ([-1], "RuntimeError"),
    ],
)
def test_an_absurd_width_is_named(hidden: list[int], words: str) -> None:
    spec = ModelSpec.model_construct(name="mlp", hidden=hidden)
    with pytest.raises(TaskError, match=words) as caught:
        make_model(spec, (1, 28, 28), 10, 0)
    assert str(caught.value).startswith("model.hidden = [")
    assert "\n" not in str(caught.value)
    assert "choose smaller" in str(caught.value)


@pytest.mark.parametrize("name", ["linear", "cnn"])
def test_inputs_that_make_an_absurd_model_are_named(name: str) -> None:
    spec = ModelSpec.model_validate({"name": name})
    with pytest.raises(TaskError, match=rf'model\.name = "{name}".*allowed: 268435456'):
        make_model(spec, (1, 1000, 1000), 100_000, 0)
