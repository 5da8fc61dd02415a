"""One SGD update: torch's, which the fused and the numpy versions of it agree with."""

from typing import Any

import numpy as np
import pytest
import torch

from zerosum.client.privacy import local_dp_noise
from zerosum.client.spec import PrivacySpec, TrainSpec
from zerosum.client.training.fast_layers import Parameter, Update
from zerosum.client.training.sgd import Sgd
from zerosum.secagg.randomness import Keystream

STEPS = 4
OPTIONS: list[dict[str, Any]] = [
    {"momentum": 0.0, "weight_decay": 0.0},
    {"momentum": 0.9, "weight_decay": 0.0},
    {"momentum": 0.0, "weight_decay": 0.01},
    {"momentum": 0.5, "weight_decay": 0.1},
]


def gradients(seed: int = 0) -> torch.Tensor:
    return torch.randn((STEPS, 3, 4), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("options", OPTIONS)
def test_step_is_torch_s_bit_for_bit(options: dict[str, Any]) -> None:
    mine, theirs = torch.ones(3, 4), torch.nn.Parameter(torch.ones(3, 4))
    sgd, optimizer = Sgd(0.1, **options), torch.optim.SGD([theirs], lr=0.1, **options)
    buffer = torch.full((3, 4), torch.nan)  # what a client before left must not matter
    for number, gradient in enumerate(gradients()):
        sgd.step(mine, gradient, buffer, first=number == 0)
        theirs.grad = gradient.clone()
        optimizer.step()
    assert torch.equal(mine, theirs.detach())


def test_proximal_term_pulls_towards_the_origin_after_weight_decay() -> None:
    weights, origin, gradient = torch.full((2,), 3.0), torch.ones(2), torch.zeros(2)
    Sgd(0.5, weight_decay=0.1, proximal=0.2).step(weights, gradient, origin=origin)
    assert torch.allclose(weights, torch.full((2,), 3.0 - 0.5 * (0.1 * 3.0 + 0.2 * 2.0)))
    assert not gradient.any()


def test_gradient_that_repeats_one_place_of_memory_is_taken_as_it_is() -> None:
    weights, expanded = torch.ones(3, 4), torch.ones(1).expand(3, 4)
    Sgd(0.1, 0.9, 0.1).step(weights, expanded, torch.zeros(3, 4), first=True)
    assert torch.allclose(weights, torch.full((3, 4), 1 - 0.1 * 1.1))


def test_tensor_that_is_needed_and_absent_is_refused() -> None:
    with pytest.raises(ValueError, match="momentum needs a buffer"):
        Sgd(0.1, momentum=0.5).step(torch.ones(2), torch.ones(2))
    with pytest.raises(ValueError, match="proximal term needs the weights"):
        Sgd(0.1, proximal=0.5).step(torch.ones(2), torch.ones(2))


def test_fused_step_of_the_fast_trainer_is_the_plain_step() -> None:
    left, right = gradients(1)[0].t().contiguous(), gradients(2)[0]
    fused, plain = torch.ones(4, 4), torch.ones(4, 4)
    parameter = Parameter(fused, torch.zeros(4, 4), Update(0.1))
    parameter.product(left, right)
    Sgd(0.1).step(plain, left @ right)
    assert torch.allclose(fused, plain)


def test_steps_on_nothing_but_noise_are_those_of_training() -> None:
    training = TrainSpec(steps=3, lr=0.1, momentum=0.9, weight_decay=0.05, proximal=0.2)
    privacy = PrivacySpec.model_validate(
        {"model": "local", "unit": "example", "examples": 100, "lot": 10, "clip": 1.0,
         "mechanism": "binned-gaussian", "noise_multiplier": 1.0}
    )  # fmt: skip
    start: Any = np.linspace(-1, 1, 8)  # float64, to compare far below float32's rounding
    delta = local_dp_noise.train_on_noise(start, training, privacy, Keystream(bytes(32)), 2)
    coins = Keystream(bytes(32))
    code, mechanism = local_dp_noise.noise_inside(privacy, 8)
    origin = torch.from_numpy(start)
    weights, buffer = origin.clone(), torch.zeros(8, dtype=torch.float64)
    for number in range(3):
        noise = code.decode(mechanism.apply(np.zeros(code.length, dtype=np.int64), coins))
        gradient = torch.from_numpy(noise / local_dp_noise.local_lot(privacy, 2))
        Sgd.of(training).step(weights, gradient, buffer, origin, first=number == 0)
    assert np.allclose(delta, (weights - origin).numpy(), rtol=0, atol=1e-12)
