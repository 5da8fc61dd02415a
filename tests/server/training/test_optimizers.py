"""Server optimizers: FedAvg is SGD with lr = 1, the rest are torch's own."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch

from zerosum.server.config import ConfigError
from zerosum.server.spec import ServerSpec
from zerosum.server.training.optimizers import ServerOptimizer

MODEL = np.array([1.0, -2.0, 3.0], dtype=np.float32)
UPDATES = [np.array([0.1, 0.2, -0.3]), np.array([0.0, -0.5, 1.0]), np.array([1.0, 1.0, 1.0])]


def test_fedavg_adds_the_average():
    optimizer = ServerOptimizer(ServerSpec(), MODEL)
    optimizer.step(UPDATES[0])
    np.testing.assert_array_equal(optimizer.model, MODEL + UPDATES[0].astype(np.float32))


@pytest.mark.parametrize(
    "spec",
    [
        ServerSpec(options={"momentum": 0.9}),
        ServerSpec(optimizer="Adam", lr=0.1, options={"betas": [0.9, 0.99]}),
        ServerSpec(optimizer="Adagrad", lr=0.1),
        ServerSpec(optimizer="AdamW", lr=0.1, options={"amsgrad": True}),
    ],
)
def test_a_restored_optimizer_goes_on_as_if_never_stopped(spec):
    whole = ServerOptimizer(spec, MODEL)
    for update in UPDATES:
        whole.step(update)
    first = ServerOptimizer(spec, MODEL)
    first.step(UPDATES[0])
    tensors, scalars = first.state()
    second = ServerOptimizer(spec, MODEL)
    second.restore(
        torch.from_numpy(first.model), {k: v.clone() for k, v in tensors.items()}, scalars
    )
    for update in UPDATES[1:]:
        second.step(update)
    np.testing.assert_array_equal(second.model, whole.model)


@pytest.mark.parametrize(
    ("kind", "options"), [("SGD", {}), ("SGD", {"momentum": 0.9}), ("Adam", {}), ("Adagrad", {})]
)
def test_a_rate_in_force_is_that_of_torchs_scheduler(kind, options):
    spec = ServerSpec(optimizer=kind, options=options, lr=0.3, schedule="cosine", final=0.1)
    optimizer = ServerOptimizer(spec, MODEL)
    parameter = torch.nn.Parameter(torch.from_numpy(MODEL.copy()))
    reference = getattr(torch.optim, kind)([parameter], lr=0.3, **options)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(reference, 3, eta_min=0.03)
    for number, update in enumerate(UPDATES, start=1):
        optimizer.step(update, spec.lr_at(number, len(UPDATES)))
        parameter.grad = torch.from_numpy(-update.astype(np.float32))
        reference.step()
        scheduler.step()
    np.testing.assert_allclose(optimizer.model, parameter.detach().numpy(), rtol=1e-6)
    unscheduled = ServerOptimizer(spec, MODEL)
    for update in UPDATES:
        unscheduled.step(update)
    assert not np.allclose(unscheduled.model, optimizer.model, rtol=1e-3), "the control"


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"momentum": 0}])
def test_plain_sgd_is_torchs_bit_for_bit(options):
    draws = np.random.default_rng(1).normal(size=(20, 1000))
    model = draws[0].astype(np.float32)
    parameter = torch.nn.Parameter(torch.from_numpy(model.copy()))
    reference = torch.optim.SGD([parameter], lr=0.37, **options)
    optimizer = ServerOptimizer(ServerSpec(lr=0.37, options=options), model)
    for update in draws[1:]:
        optimizer.step(update)
        parameter.grad = torch.from_numpy(-update.astype(np.float32))
        reference.step()
    np.testing.assert_array_equal(optimizer.model, parameter.detach().numpy())


@pytest.mark.slow
def test_a_run_by_sgd_does_not_load_torchs_compiler():
    code = (
        "import sys, numpy; from zerosum.server.training.optimizers import ServerOptimizer as O; "
        "from zerosum.server.spec import ServerSpec as S; "
        "O(S(options={'momentum': 0.9}), numpy.zeros(3, 'f4')).step(numpy.ones(3)); "
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_fedadam_is_torchs_adam_on_the_negated_average():
    optimizer = ServerOptimizer(ServerSpec(optimizer="Adam", lr=0.05), MODEL)
    parameter = torch.nn.Parameter(torch.from_numpy(MODEL.copy()))
    reference = torch.optim.Adam([parameter], lr=0.05)
    for update in UPDATES:
        optimizer.step(update)
        parameter.grad = torch.from_numpy(-update.astype(np.float32))
        reference.step()
    np.testing.assert_array_equal(optimizer.model, parameter.detach().numpy())


@pytest.mark.parametrize("name", ["Sgd", "LBFGS", "lr_scheduler", "Optimizer", "__name__"])
def test_an_optimizer_that_torch_lacks_is_refused_with_those_it_has(name):
    with pytest.raises(ConfigError, match=r"server\.optimizer .*Adam.*SGD"):
        ServerOptimizer(ServerSpec(optimizer=name), MODEL)


def test_an_argument_that_the_optimizer_refuses_is_named():
    with pytest.raises(ConfigError, match=r"server\.options .*momentun"):
        ServerOptimizer(ServerSpec(options={"momentun": 0.9}), MODEL)


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        ("SGD", {"momentum": 0.9, "dampening": math.nan}),
        ("SGD", {"momentum": math.inf}),
        ("Adam", {"betas": [0.9, math.nan]}),
    ],
)
def test_no_option_is_infinite_or_no_number(optimizer, options):
    with pytest.raises(ConfigError, match=r"server\.options: .* takes finite numbers"):
        ServerOptimizer(ServerSpec(optimizer=optimizer, options=options), MODEL)
